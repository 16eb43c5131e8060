//! What may be said of a hold, against what the server's own sessions know: how long at least, how
//! long at most, whose, at which level, and what no sample can tell.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use pg_locks_exporter::key::Key;
use pg_locks_exporter::sample::VirtualTransaction;
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::tracker::{Change, Scope, ScopeEvidence, SessionId};
use serde_json::Value;
use tokio::task::{JoinHandle, LocalSet};

use crate::support::{DEADLINE, Exporter, Postgres, Session, eventually, require};
use crate::watch::{CLOCK, Watch, elapsed, holding, moment, now};

/// Sessions that do something over and over while a test polls.
pub struct Workers {
    end: Rc<Cell<bool>>,
    working: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Nobody yet.
    pub fn new() -> Workers {
        Workers { end: Rc::default(), working: Vec::new() }
    }

    /// Lets a session begin again until told to end. Within a [`LocalSet`].
    pub fn add(&mut self, session: Session, mut turn: impl AsyncFnMut(&Session) + 'static) {
        let end = Rc::clone(&self.end);
        self.working.push(tokio::task::spawn_local(async move {
            while !end.get() {
                turn(&session).await;
            }
        }));
    }

    /// Ends them all, each after its turn.
    pub async fn end(self) {
        self.end.set(true);
        for worker in self.working {
            worker.await.expect("no worker fails");
        }
    }
}

/// Whose pid holds a key at every poll need not hold it for long.
#[tokio::test]
async fn a_lock_taken_again_in_each_short_transaction_is_many_holds_and_never_a_long_one() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let worker = postgres.session("worker").await;
    let pid = worker.pid();
    // Before each taking: which transaction it is in, and the time.
    let takings: Rc<RefCell<HashMap<VirtualTransaction, Timestamp>>> = Rc::default();
    let notes = Rc::clone(&takings);
    LocalSet::new()
        .run_until(async {
            let mut workers = Workers::new();
            workers.add(worker, async move |worker| {
                let begin = format!(
                    "BEGIN; SELECT {CLOCK}, virtualtransaction FROM pg_locks \
                     WHERE pid = pg_backend_pid() AND locktype = 'virtualxid'"
                );
                let row = worker.rows(&begin).await.swap_remove(0);
                let [at, transaction] = row.try_into().expect("two columns");
                let transaction = VirtualTransaction::from_server(&transaction.expect("a number"));
                notes.borrow_mut().insert(transaction, moment(at));
                worker.run("SELECT pg_advisory_xact_lock(77); SELECT pg_sleep(0.05)").await;
                worker.run("COMMIT").await;
            });
            let mut watch = Watch::start(&postgres.dsn("app")).await;
            let (mut seen, mut began) = (0, 0);
            let started = now();
            while began < 20 {
                assert!(elapsed(started) < DEADLINE, "{began} holds began");
                let (sample, changes) = watch.poll().await;
                began += changes.iter().filter(|c| matches!(c, Change::HoldBegan { .. })).count();
                for (id, hold) in watch.tracker.holds() {
                    assert_eq!(id.holder.pid().map(|pid| pid.0), Some(pid));
                    assert_eq!(hold.scope(), Scope::Unknown);
                }
                // In the moment of a commit the row names no transaction.
                let row = holding(&sample, Key::bigint(77)).next();
                if let Some(row) = row.filter(|row| row.transaction.local_id() != Some(0)) {
                    let hold = watch.tracker.holds().values().next().expect("the hold of the row");
                    let taken = takings.borrow()[&row.transaction];
                    let at = hold.since;
                    assert!(at >= taken, "held since {at}, taken after {taken}");
                    assert!(hold.proved_since >= taken, "proved since {at}, taken after {taken}");
                    assert!(hold.transactions_seen <= 1);
                    seen += 1;
                }
                // Several polls see each transaction, several transactions go by unseen or not.
                tokio::time::sleep(std::time::Duration::from_millis(15)).await;
            }
            assert!(seen >= 20, "only {seen} samples show a transaction with the lock");
            workers.end().await;
        })
        .await;
}

/// While a transaction commits, its row already stands outside of it.
#[tokio::test]
async fn a_lock_of_a_transaction_that_commits_is_never_called_session_level() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE TABLE event (id bigint)").await;
    LocalSet::new()
        .run_until(async {
            let mut workers = Workers::new();
            for number in 0..8 {
                // One takes many locks, which take long to let go of.
                let keys = if number == 0 { 300 } else { 1 };
                let session = postgres.session("ingest").await;
                let transaction = format!(
                    "BEGIN; SELECT pg_advisory_xact_lock({number}, key) \
                     FROM generate_series(1, {keys}) AS key; \
                     INSERT INTO event VALUES ({number}); COMMIT"
                );
                workers.add(session, async move |session| session.run(&transaction).await);
            }
            let mut watch = Watch::start(&postgres.dsn("app")).await;
            let (mut rows, mut outside_transaction) = (0, 0);
            let started = now();
            let mut polls = 0;
            while polls < 1000 || outside_transaction < 1000 {
                assert!(
                    elapsed(started) < DEADLINE,
                    "in {polls} polls only {outside_transaction} of {rows} rows were of interest"
                );
                let (sample, _) = watch.poll().await;
                polls += 1;
                rows += sample.advisory_rows(true);
                for group in sample.advisory.iter().filter(|group| group.granted) {
                    if group.transaction.local_id() == Some(0) {
                        outside_transaction += group.keys.len();
                    }
                }
                for (id, hold) in watch.tracker.holds() {
                    assert_eq!(hold.scope(), Scope::Unknown, "{id:?}: {hold:?}");
                }
            }
            workers.end().await;
        })
        .await;
}

/// The next in the queue holds since the grant; how long others have waited says nothing of it.
#[tokio::test]
async fn a_hold_begins_at_its_grant_and_not_when_others_began_to_wait() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    let s0 = postgres.holds("s0", "9").await;
    let first = postgres.waits("s1", "9").await;
    let second = postgres.waits("s2", "9").await;
    let key = Key::bigint(9);
    for _ in 0..3 {
        watch.poll().await;
    }
    assert!(watch.hold(&s0, key).is_some());
    assert!(watch.hold(&first.session, key).is_none(), "it waits");
    let wait_start = watch.wait(&second.session).and_then(|wait| wait.start).expect("a wait");

    let before_grant = moment(s0.value(&format!("SELECT {CLOCK}")).await);
    s0.run("SELECT pg_advisory_unlock(9)").await;
    first.statement.finish().await;
    for _ in 0..3 {
        watch.poll().await;
        let hold = watch.hold(&first.session, key).expect("the first waiter holds now");
        assert!(hold.since >= before_grant, "{} is before {before_grant}", hold.since);
        assert!(hold.proved_since >= before_grant);
        assert!(hold.earliest_start().is_some_and(|moment| moment <= hold.since));
        assert!(watch.hold(&s0, key).is_none());
        let wait = watch.wait(&second.session).expect("the second one waits on");
        assert_eq!(wait.start, Some(wait_start), "and its wait is the same");
        assert!(wait_start < before_grant);
    }
}

/// The truth about every hold, written down by who holds, against every claim.
#[tokio::test]
async fn no_hold_is_given_an_age_that_its_session_does_not_confirm() {
    require!(Postgres);
    const SESSIONS: usize = 6;
    const POLLS: usize = 2000;
    let postgres = Postgres::start().await;
    // By pid: just before each taking, and just after each letting go once that is known.
    type Takings = HashMap<i32, Vec<(Timestamp, Option<Timestamp>)>>;
    let truth: Rc<RefCell<Takings>> = Rc::default();
    /// What a poll claimed: whose hold, proved since when, seen between which moments.
    struct Claim {
        pid: i32,
        proved_since: Timestamp,
        window: (Timestamp, Timestamp),
    }
    let mut claims = Vec::new();
    LocalSet::new()
        .run_until(async {
            let mut workers = Workers::new();
            for number in 0..SESSIONS {
                // Two keys, so that there is a queue; half of them in transactions.
                let key = number % 2;
                let (take, let_go) = if number < SESSIONS / 2 {
                    (format!("SELECT {CLOCK}, pg_advisory_lock({key})"), "pg_advisory_unlock")
                } else {
                    (format!("BEGIN; SELECT {CLOCK}, pg_advisory_xact_lock({key})"), "COMMIT")
                };
                let let_go = match let_go {
                    "COMMIT" => format!("COMMIT; SELECT {CLOCK}"),
                    unlock => format!("SELECT {unlock}({key}); SELECT {CLOCK}"),
                };
                let truth = Rc::clone(&truth);
                let session = postgres.session("worker").await;
                workers.add(session, async move |session| {
                    let row = session.rows(&take).await.swap_remove(0);
                    let taken = moment(row.into_iter().next().flatten());
                    truth.borrow_mut().entry(session.pid()).or_default().push((taken, None));
                    let rows = session.rows(&let_go).await;
                    let let_go =
                        moment(rows.into_iter().next_back().and_then(|mut row| row.remove(0)));
                    if let Some(last) = truth.borrow_mut().get_mut(&session.pid()) {
                        last.last_mut().expect("it was taken").1 = Some(let_go);
                    }
                });
            }
            let mut watch = Watch::start(&postgres.dsn("app")).await;
            for _ in 0..POLLS {
                let (sample, _) = watch.poll().await;
                let window = (sample.at, now());
                for (id, hold) in watch.tracker.holds() {
                    let SessionId::Backend(pid) = &id.holder else { panic!("{id:?}") };
                    claims.push(Claim { pid: pid.0, proved_since: hold.proved_since, window });
                }
            }
            workers.end().await;
        })
        .await;

    let truth = truth.borrow();
    let mut aged = 0;
    assert!(claims.len() > POLLS / 2, "only {} holds were seen", claims.len());
    for claim in &claims {
        let (asked, answered) = claim.window;
        // The row was read somewhere in the window, so it is of a hold that touches it.
        let earliest = truth[&claim.pid]
            .iter()
            .find(|(_, let_go)| let_go.is_none_or(|moment| moment >= asked))
            .map(|(taken, _)| *taken)
            .filter(|taken| *taken <= answered)
            .expect("somebody who is seen to hold does hold");
        aged += usize::from(claim.proved_since < asked);
        assert!(
            claim.proved_since >= earliest,
            "{} is said to hold since {}, but took the key after {earliest}, as seen by a poll \
             from {asked} to {answered}",
            claim.pid,
            claim.proved_since
        );
    }
    assert!(aged > 0, "no hold was given any age, so nothing was shown");
}

#[tokio::test]
async fn a_session_lock_outlives_the_rollback_of_the_transaction_it_was_taken_in() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    let session = postgres.session("settlement").await;
    let key = Key::bigint(4);
    session.run("BEGIN; SELECT pg_advisory_lock(4)").await;
    watch.poll().await;
    let hold = watch.hold(&session, key).expect("held");
    assert_eq!(hold.scope(), Scope::Unknown, "in a transaction nobody can tell");
    let since = hold.since;

    session.run("ROLLBACK").await;
    let (_, changes) = watch.poll().await;
    let hold = watch.hold(&session, key).expect("held on");
    assert_eq!(hold.scope, Some(ScopeEvidence::IdleOutsideTransaction));
    assert_eq!((hold.since, changes), (since, Vec::new()), "the same hold");
}

#[tokio::test]
async fn a_lock_taken_thrice_is_one_holder_until_its_last_unlock() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    let session = postgres.session("good-job").await;
    watch.poll().await;
    session.run("SELECT pg_advisory_lock(5), pg_advisory_lock(5), pg_advisory_lock(5)").await;
    let key = Key::bigint(5);
    let (_, changes) = watch.poll().await;
    assert!(matches!(changes[..], [Change::HoldBegan { .. }]), "{changes:?}");
    let since = watch.hold(&session, key).expect("held").since;
    for _ in 0..2 {
        let unlocked = session.value("SELECT pg_advisory_unlock(5)").await;
        assert_eq!(unlocked.as_deref(), Some("t"));
        let (sample, changes) = watch.poll().await;
        assert_eq!((sample.advisory_rows(true), changes), (1, Vec::new()));
        assert_eq!(watch.hold(&session, key).map(|hold| hold.since), Some(since));
    }
    session.run("SELECT pg_advisory_unlock(5)").await;
    let (_, changes) = watch.poll().await;
    assert!(matches!(changes[..], [Change::HoldEnded { .. }]), "{changes:?}");
}

/// What `/api/v1/locks` says of one key of the only server.
async fn lock_json(exporter: &Exporter, key: &str) -> Value {
    let response = exporter.get("/api/v1/locks", &[]).await;
    let snapshot: Value = serde_json::from_slice(&response.body).expect("JSON");
    let locks = snapshot["servers"][0]["locks"].as_array().cloned().unwrap_or_default();
    locks.into_iter().find(|lock| lock["key"]["text"] == key).unwrap_or_default()
}

async fn exporter_of(postgres: &Postgres) -> Exporter {
    Exporter::serve(&["--dsn", &postgres.dsn("app"), "--poll.interval", "100ms"]).await
}

#[tokio::test]
async fn a_session_with_a_key_in_two_modes_is_one_holder_and_no_waiter() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = exporter_of(&postgres).await;
    let session = postgres.holds("good-job", "7").await;
    session.run("SELECT pg_advisory_lock_shared(7)").await;
    eventually("both modes are seen", async || {
        let scrape = exporter.scrape().await;
        let of_key = |name| scrape.sample(name).with("datname", "app").with("key", "7");
        let holders = of_key("pg_advisory_lock_holders");
        holders.clone().is(1.0);
        holders.with("mode", "exclusive").with("application_name", "good-job").is(1.0);
        of_key("pg_advisory_lock_waiters").absent();
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(2.0);
        let lock = lock_json(&exporter, "7").await;
        let holders = lock["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 1, "{lock:#}");
        assert_eq!(holders[0]["pid"], session.pid());
        let modes = holders[0]["modes"].as_array().expect("modes");
        assert_eq!(modes.len(), 2, "{lock:#}");
    })
    .await;
}

#[tokio::test]
async fn whether_a_failed_transaction_still_holds_is_read_and_not_concluded() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    let plain = postgres.session("plain").await;
    plain.run("BEGIN; SELECT pg_advisory_xact_lock(501); SELECT pg_advisory_lock(502)").await;
    let savepoint = postgres.session("orm").await;
    savepoint.run("BEGIN; SELECT pg_advisory_xact_lock(503); SAVEPOINT a").await;
    watch.poll().await;
    for key in [501, 502] {
        assert!(watch.hold(&plain, Key::bigint(key)).is_some());
    }
    for session in [&plain, &savepoint] {
        assert!(session.try_run("SELECT 1/0").await.is_err());
    }
    watch.poll().await;
    assert!(watch.hold(&plain, Key::bigint(501)).is_none(), "gone with the transaction");
    let survivor = watch.hold(&plain, Key::bigint(502)).expect("it outlives the failure");
    assert_eq!(survivor.scope, Some(ScopeEvidence::OutlivedFailedTransaction));
    let kept = watch.hold(&savepoint, Key::bigint(503)).expect("the savepoint keeps it");
    assert_eq!(kept.scope(), Scope::Unknown);

    savepoint.run("ROLLBACK").await;
    watch.poll().await;
    assert!(watch.hold(&savepoint, Key::bigint(503)).is_none());
}

#[tokio::test]
async fn a_prepared_transaction_holds_by_its_gid_before_and_after_a_restart() {
    require!(Postgres);
    let mut postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
    let exporter = exporter_of(&postgres).await;
    let payer = postgres.session("pay-2pc").await;
    payer.run("BEGIN; SELECT pg_advisory_xact_lock(4242)").await;
    eventually("the payer is seen with the key", async || {
        assert_eq!(lock_json(&exporter, "4242").await["holders"][0]["pid"], payer.pid());
    })
    .await;
    payer.run("PREPARE TRANSACTION 'gid-4242'").await;
    let prepared = payer
        .value(
            "SELECT to_char(prepared AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') \
             FROM pg_prepared_xacts",
        )
        .await
        .expect("it is prepared");
    payer.close().await;

    let is_held_by_gid = async |waiters: usize| {
        let lock = lock_json(&exporter, "4242").await;
        let holders = lock["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 1, "{lock:#}");
        let holder = &holders[0];
        assert_eq!(holder["pid"], Value::Null, "{lock:#}");
        assert_eq!(holder["application_name"], Value::Null);
        assert_eq!(holder["scope"], "transaction");
        assert_eq!(holder["prepared"]["gid"], "gid-4242");
        assert_eq!(holder["prepared"]["owner"], "postgres");
        assert_eq!(holder["prepared"]["prepared_at"], prepared);
        let since: Timestamp = parse_time(&holder["since"]);
        assert!(since <= parse_time(&holder["prepared"]["prepared_at"]), "{lock:#}");
        assert_eq!(lock["waiters"].as_array().map(Vec::len), Some(waiters), "{lock:#}");
        let scrape = exporter.scrape().await;
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "4242");
        holders.with("application_name", "(prepared)").with("state", "prepared").is(1.0);
        since
    };
    let _waiter = postgres.waits("waiter", "4242").await;
    let since = eventually("the gid holds", async || is_held_by_gid(1).await).await;

    postgres.restart().await;
    let waiter = postgres.waits("waiter", "4242").await;
    eventually("the gid holds after the restart, and has ever since", async || {
        assert_eq!(is_held_by_gid(1).await, since);
    })
    .await;

    let admin = postgres.session("admin").await;
    admin.run("ROLLBACK PREPARED 'gid-4242'").await;
    eventually("the waiter holds", async || {
        let lock = lock_json(&exporter, "4242").await;
        assert_eq!(lock["holders"][0]["pid"], waiter.session.pid(), "{lock:#}");
        assert_eq!(lock["waiters"].as_array().map(Vec::len), Some(0));
    })
    .await;
}

/// Seen by someone who comes late: "since" is when it was prepared.
#[tokio::test]
async fn a_prepared_transaction_met_at_the_first_poll_holds_since_it_was_prepared() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
    let payer = postgres.session("pay-2pc").await;
    payer.run("BEGIN; SELECT pg_advisory_xact_lock(4242); PREPARE TRANSACTION 'gid'").await;
    let prepared = format!("SELECT {}", CLOCK.replace("clock_timestamp()", "prepared"));
    let prepared = moment(payer.value(&format!("{prepared} FROM pg_prepared_xacts")).await);
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    watch.poll().await;
    let holds: Vec<_> = watch.tracker.holds().iter().collect();
    let [(id, hold)] = holds[..] else { panic!("{holds:?}") };
    assert_eq!(id.holder, SessionId::Prepared("gid".into()));
    assert_eq!((hold.since, hold.proved_since), (prepared, prepared));
    assert_eq!(hold.scope, Some(ScopeEvidence::Prepared));
}

fn parse_time(text: &Value) -> Timestamp {
    let text = text.as_str().unwrap_or_else(|| panic!("no moment: {text}"));
    let time: jiff::Timestamp = text.parse().expect("RFC 3339");
    Timestamp::from_unix_micros(time.as_microsecond())
}

#[tokio::test]
async fn a_holders_new_statements_do_not_make_its_hold_younger() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    let session = postgres.holds("s1", "31").await;
    let key = Key::bigint(31);
    watch.poll().await;
    let first = watch.hold(&session, key).expect("held").since;
    for _ in 0..5 {
        session.run("BEGIN; SELECT 1; COMMIT").await;
        let (sample, changes) = watch.poll().await;
        assert_eq!(changes, [], "no hold ended");
        let hold = watch.hold(&session, key).expect("held on");
        assert_eq!(hold.since, first);
        assert!(hold.proved_since <= sample.at);
    }
}

#[tokio::test]
async fn a_wait_is_as_old_as_the_wait_and_not_as_its_statement() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("s1", "31").await;
    let waiter = postgres.session("s2").await;
    let statement = waiter.start("SELECT pg_sleep(0.2), pg_advisory_lock(31)");
    postgres.until_waiting(&waiter).await;
    let observer = postgres.session("observer").await;
    let of_waiter = |column: &str| CLOCK.replace("clock_timestamp()", column);
    let times = format!(
        "SELECT {}, {} FROM pg_locks JOIN pg_stat_activity USING (pid) \
         WHERE pid = {} AND NOT granted",
        of_waiter("waitstart"),
        of_waiter("query_start"),
        waiter.pid()
    );
    // In its first moment a wait has no start.
    let (wait_start, query_start) = eventually("the wait has a start", async || {
        let mut row = observer.rows(&times).await.swap_remove(0);
        (moment(row[0].take()), moment(row[1].take()))
    })
    .await;
    let mut watch = Watch::start(&postgres.dsn("app")).await;
    watch.poll().await;
    let wait = watch.wait(&waiter).expect("it waits");
    assert_eq!(wait.start, Some(wait_start));
    assert!(wait_start.since(query_start).as_millis() >= 200);
    statement.cancel().await;
}

#[tokio::test]
async fn an_exporter_that_starts_late_gives_a_hold_two_bounds() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let before = now();
    let holder = postgres.session("s1").await;
    let taken = moment(holder.value(&format!("SELECT {CLOCK}, pg_advisory_lock(31)")).await);
    let idle_since = format!("SELECT {}", CLOCK.replace("clock_timestamp()", "state_change"));
    let idle_since = format!("{idle_since} FROM pg_stat_activity WHERE pid = {}", holder.pid());
    let observer = postgres.session("observer").await;
    let idle_since = moment(observer.value(&idle_since).await);

    let exporter = exporter_of(&postgres).await;
    eventually("the hold is seen", async || {
        let lock = lock_json(&exporter, "31").await;
        let holder = &lock["holders"][0];
        let seconds = |field: &str| holder[field].as_f64().expect("a number");
        // Idle since then, so held since then; connected since then, so not held before.
        assert_eq!(parse_time(&holder["since"]), idle_since, "{lock:#}");
        assert!(idle_since >= taken);
        let start = parse_time(&holder["backend_start"]);
        assert!(start >= before && start <= taken);
        let least = seconds("held_at_least_seconds");
        let most = seconds("held_at_most_seconds");
        assert!(0.0 <= least && least <= seconds("seen_for_seconds") + 1e-6 && least < most);
        let between = idle_since.since(start).as_secs_f64();
        assert!((most - least - between).abs() < 1e-5, "{most} - {least} is not {between}");
    })
    .await;
}

/// The new one has seen less, and says so: what is still proved is as old as before, what is not is
/// younger, and nothing is older than its session.
#[tokio::test]
async fn an_exporter_that_is_restarted_makes_no_hold_older_and_none_negative() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let idle = postgres.holds("idle", "31").await;
    let busy = postgres.holds("busy", "32").await;
    let waiter = postgres.waits("waiter", "31").await;
    let mut exporter = exporter_of(&postgres).await;
    let ages = async |exporter: &Exporter| {
        let mut told = Vec::new();
        for (key, session) in [("31", &idle), ("32", &busy)] {
            exporter.scrape_fresh().await;
            let lock = lock_json(exporter, key).await;
            let holder = &lock["holders"][0];
            assert_eq!(holder["pid"], session.pid(), "{lock:#}");
            let seconds = |field: &str| holder[field].as_f64().expect("a number");
            let (least, most) = (seconds("held_at_least_seconds"), seconds("held_at_most_seconds"));
            assert!(0.0 <= least && least <= most, "{lock:#}");
            assert!(0.0 <= seconds("seen_for_seconds"), "{lock:#}");
            assert!(parse_time(&holder["since"]) >= parse_time(&holder["backend_start"]));
            told.push((parse_time(&holder["since"]), most));
        }
        let waits = &lock_json(exporter, "31").await["waiters"][0];
        told.push((parse_time(&waits["waiting_since"]), waits["waited_seconds"].as_f64().unwrap()));
        told
    };
    let before = ages(&exporter).await;
    exporter.signal("TERM");
    exporter.exit_status().await;
    busy.run("SELECT 1").await;
    let after = ages(&exporter_of(&postgres).await).await;
    assert_eq!(after[0].0, before[0].0, "it has been idle since");
    assert!(after[1].0 > before[1].0, "nobody saw it in between");
    assert!(after[1].1 > before[1].1, "it may be as old as its session");
    assert_eq!(after[2].0, before[2].0, "a wait is as old as the server says");
    assert!(after[2].1 > before[2].1);
    waiter.statement.cancel().await;
}

#[tokio::test]
async fn many_sessions_that_share_a_key_are_one_entry_of_the_lock_table() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let entries = async || {
        // The first poll of a connection counts them.
        let mut watch = Watch::start(&postgres.dsn("app")).await;
        let (sample, _) = watch.poll().await;
        (sample.table_entries.expect("counted"), sample.advisory_rows(true))
    };
    let (before, _) = entries().await;
    let mut sessions = Vec::new();
    for _ in 0..40 {
        let session = postgres.session("reader").await;
        session.run("SELECT pg_advisory_lock_shared(11)").await;
        sessions.push(session);
    }
    assert_eq!(entries().await, (before + 1, 40));
}
