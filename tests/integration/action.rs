//! What is done to sessions of a real server, and what is not: whoever has the pid of somebody else,
//! whoever may not be told apart, whoever is protected from our role.

use std::time::Duration;

use pg_locks_exporter::postgres::Dsn;
use pg_locks_exporter::postgres::action::{
    ActionError, Outcome, Signal, fetch_queries, send_signal,
};
use pg_locks_exporter::sample::Pid;
use pg_locks_exporter::timestamp::Timestamp;

use crate::support::{PgBouncer, PoolMode, Postgres, Relay, Session, eventually, require};

const SIGNALS: [Signal; 2] = [Signal::Cancel, Signal::Terminate];

/// When a session began that had the pid before: a microsecond earlier.
fn earlier(session: &Session) -> Timestamp {
    Timestamp::from(session.backend_start()).before(Duration::from_micros(1))
}

fn parse(dsn: &str) -> Dsn {
    Dsn::parse(dsn, &|_| None).expect("a connection string")
}

/// The backend as somebody asks about it.
fn backend(session: &Session) -> (Pid, Timestamp) {
    (Pid(session.pid()), session.backend_start().into())
}

async fn signal(dsn: &str, signal: Signal, session: &Session) -> Result<Outcome, ActionError> {
    send_signal(&parse(dsn), signal, Pid(session.pid()), session.backend_start().into()).await
}

/// The server's words of a refusal.
#[track_caller]
fn refused(outcome: Result<Outcome, ActionError>) -> String {
    match outcome {
        Err(ActionError::Refused(words)) => words,
        other => panic!("not refused: {other:?}"),
    }
}

/// A role without any right, and a connection string for it.
async fn watcher(postgres: &Postgres) -> String {
    postgres.session("admin").await.run("CREATE ROLE watcher LOGIN").await;
    format!("postgresql://watcher@127.0.0.1:{}/app", postgres.port())
}

async fn is_alive(session: &Session) -> bool {
    session.try_run("SELECT 1").await.is_ok()
}

#[tokio::test]
async fn a_cancelled_waiter_fails_and_leaves_the_holder_alone() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("holder", "42").await;
    let waiter = postgres.waits("waiter", "42").await;
    let outcome = signal(&postgres.dsn("app"), Signal::Cancel, &waiter.session).await;
    assert_eq!(outcome.expect("it is sent"), Outcome::Sent);
    let error = waiter.statement.try_finish().await.expect_err("it fails");
    assert_eq!(error.code().map(|code| code.code()), Some("57014"));
    assert!(is_alive(&waiter.session).await);
    let unlocked = holder.value("SELECT pg_advisory_unlock(42)").await;
    assert_eq!(unlocked.as_deref(), Some("t"), "the holder held it to the end");
}

#[tokio::test]
async fn a_holder_that_is_ended_lets_the_waiter_in_and_one_that_is_cancelled_does_not() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("holder", "42").await;
    let waiter = postgres.waits("waiter", "42").await;
    // It is idle: there is no statement to cancel, and the lock is the session's.
    let outcome = signal(&postgres.dsn("app"), Signal::Cancel, &holder).await;
    assert_eq!(outcome.expect("it is sent"), Outcome::Sent);
    assert!(is_alive(&holder).await && !waiter.statement.is_finished());

    // Through another database of the server, and over the socket.
    let outcome = signal(&postgres.socket_dsn("app2"), Signal::Terminate, &holder).await;
    assert_eq!(outcome.expect("it is sent"), Outcome::Sent);
    waiter.statement.finish().await;
    assert!(!is_alive(&holder).await);
}

#[tokio::test]
async fn a_pid_that_was_given_to_somebody_else_is_left_alone() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let bystander = postgres.session("bystander").await;
    let dsn = postgres.dsn("app");
    let before = postgres.holds("before", "42").await.backend_start();
    let pid = Pid(bystander.pid());
    for signal in SIGNALS {
        for start in [earlier(&bystander), before.into()] {
            let outcome = send_signal(&parse(&dsn), signal, pid, start).await;
            assert_eq!(outcome.expect("an answer"), Outcome::Reused, "{signal:?}");
        }
    }
    assert!(is_alive(&bystander).await);

    // Nor is the function so much as called: this role would be refused.
    let admin = postgres.session("admin").await;
    let dsn = watcher(&postgres).await;
    admin.run("GRANT pg_read_all_stats TO watcher").await;
    for kind in SIGNALS {
        refused(signal(&dsn, kind, &bystander).await);
        let outcome = send_signal(&parse(&dsn), kind, pid, earlier(&bystander)).await;
        assert_eq!(outcome.expect("an answer"), Outcome::Reused, "{kind:?}");
    }
}

#[tokio::test]
async fn nobody_is_reached_by_the_pid_of_a_session_that_is_gone_or_of_none() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let bystander = postgres.session("bystander").await;
    let dsn = postgres.dsn("app");
    let gone = postgres.session("gone").await;
    let (pid, start) = (gone.pid(), Timestamp::from(gone.backend_start()));
    gone.close().await;
    let all = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    eventually("the backend is gone", async || {
        assert_eq!(bystander.value(&all).await.as_deref(), Some("0"));
    })
    .await;
    // To the function that lists sessions -1 means all of them.
    for pid in [pid, -1, 0, i32::MAX] {
        for signal in SIGNALS {
            let outcome = send_signal(&parse(&dsn), signal, Pid(pid), start).await;
            assert_eq!(outcome.expect("an answer"), Outcome::Gone, "{pid} {signal:?}");
        }
    }
    assert!(is_alive(&bystander).await);
}

#[tokio::test]
async fn a_session_whose_start_is_hidden_is_left_alone_until_a_role_may_see_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    let dsn = watcher(&postgres).await;
    admin.run("CREATE ROLE pod LOGIN").await;
    let pod = format!("postgresql://pod@127.0.0.1:{}/app", postgres.port());
    let pod = Session::connect(&pod, "pod").await;
    for kind in SIGNALS {
        assert_eq!(signal(&dsn, kind, &pod).await.expect("an answer"), Outcome::Hidden);
    }
    admin.run("GRANT pg_read_all_stats, pg_signal_backend TO watcher").await;
    // What belongs to a superuser stays out of reach, and the server says so.
    for kind in SIGNALS {
        let words = refused(signal(&dsn, kind, &admin).await);
        assert!(words.to_lowercase().contains("superuser"), "{words}");
    }
    let outcome = signal(&dsn, Signal::Terminate, &pod).await;
    assert_eq!(outcome.expect("it is sent"), Outcome::Sent);
    eventually("the session is ended", async || assert!(!is_alive(&pod).await)).await;
    assert!(is_alive(&admin).await);
}

#[tokio::test]
async fn a_role_ends_its_own_sessions_without_any_right() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let dsn = watcher(&postgres).await;
    let own = Session::connect(&dsn, "own").await;
    assert_eq!(signal(&dsn, Signal::Terminate, &own).await.expect("an answer"), Outcome::Sent);
    eventually("the session is ended", async || assert!(!is_alive(&own).await)).await;
}

#[tokio::test]
async fn a_pooler_passes_it_on_but_does_not_end_the_backend_it_lends_us() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let owner = pooler.session("owner").await;
    owner.run("SELECT pg_advisory_lock(42)").await;
    let observer = postgres.session("observer").await;
    let holder = "SELECT l.pid, (extract(epoch FROM a.backend_start) * 1000000)::int8 \
                  FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                  WHERE locktype = 'advisory' AND granted";
    let rows = observer.rows(holder).await;
    let number = |column: usize| rows[0][column].as_deref().and_then(|text| text.parse().ok());
    let (pid, start) = (number(0).expect("a pid"), number(1).expect("a start"));
    let pid = Pid(i32::try_from(pid).expect("a pid"));
    let start = Timestamp::from_unix_micros(start);
    let waiter = postgres.waits("waiter", "42").await;

    // The pool has one backend, which we are given too.
    let through = parse(&pooler.dsn("app"));
    for signal in SIGNALS {
        let outcome = send_signal(&through, signal, pid, start).await;
        assert_eq!(outcome.expect("an answer"), Outcome::Own);
    }
    assert!(!waiter.statement.is_finished());
    // Of another database it lends us another.
    let through = parse(&pooler.dsn("app2"));
    let outcome = send_signal(&through, Signal::Terminate, pid, start).await;
    assert_eq!(outcome.expect("an answer"), Outcome::Sent);
    waiter.statement.finish().await;
}

#[tokio::test]
async fn one_statement_without_a_name_does_it_all() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.session("holder").await;
    let relay = Relay::start(&postgres).await;
    let dsn = relay.dsn("app");
    assert_eq!(signal(&dsn, Signal::Terminate, &holder).await.expect("an answer"), Outcome::Sent);
    fetch_queries(&parse(&dsn), &[backend(&holder)]).await.expect("an answer");
    let bursts = relay.bursts();
    let statements: Vec<usize> = bursts.iter().map(|burst| burst.statements.len()).collect();
    assert_eq!(statements, [1, 1], "{bursts:?}");
    assert!(bursts.iter().all(|burst| burst.named_statements.is_empty()), "{bursts:?}");
}

#[tokio::test]
async fn a_server_that_is_down_is_told_apart_from_a_session_that_is_gone() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let holder = postgres.session("holder").await;
    postgres.stop().await;
    let error = signal(&postgres.dsn("app"), Signal::Terminate, &holder).await;
    let error = error.expect_err("nobody answers");
    assert!(matches!(error, ActionError::Connection(_)), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn what_did_not_happen_in_time_does_not_happen_later() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    let dsn = watcher(&postgres).await;
    admin.run("CREATE ROLE pod LOGIN; GRANT pg_read_all_stats, pg_signal_backend TO watcher").await;
    let pod = format!("postgresql://pod@127.0.0.1:{}/app", postgres.port());
    let pod = Session::connect(&pod, "pod").await;
    // The server cannot say whose member the role is while somebody has the list of members.
    admin.run("BEGIN; LOCK TABLE pg_auth_members IN ACCESS EXCLUSIVE MODE").await;
    let observer = postgres.session("observer").await;
    let waiting = "SELECT pid FROM pg_locks WHERE NOT granted";
    let sending = signal(&dsn, Signal::Terminate, &pod);
    let clock = async {
        let pid = eventually("the statement hangs", async || {
            observer.value(waiting).await.expect("nobody waits")
        })
        .await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        pid
    };
    let (outcome, pid) = tokio::join!(sending, clock);
    assert!(matches!(outcome, Err(ActionError::Timeout)), "{outcome:?}");
    let alive = format!("SELECT count(*) FROM pg_stat_get_activity({pid})");
    eventually("the server has let go of the statement", async || {
        assert_eq!(observer.value(waiting).await, None);
        assert_eq!(observer.value(&alive).await.as_deref(), Some("0"));
    })
    .await;
    admin.run("ROLLBACK").await;
    assert!(is_alive(&pod).await);
}

#[tokio::test]
async fn query_texts_are_cut_and_say_when_they_are_hidden() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("track_activity_query_size", 10_000).start().await;
    let holder = postgres.holds("holder", "42").await;
    let long = postgres.session("long").await;
    long.run(&format!("SELECT '{}'", "ä".repeat(4000))).await;
    let holder_pid = Pid(holder.pid());
    // The last was somebody else with the pid of the first.
    let backends = [backend(&holder), backend(&long), (holder_pid, earlier(&holder))];

    let mut queries = fetch_queries(&parse(&postgres.dsn("app")), &backends).await.expect("texts");
    queries.sort_by_key(|query| query.pid != holder_pid);
    assert_eq!(queries.len(), 2, "{queries:?}");
    assert_eq!(queries[0].text.as_deref(), Some("SELECT pg_advisory_lock(42)"));
    assert_eq!(queries[1].text.as_ref().map(|text| text.chars().count()), Some(2000));

    let dsn = watcher(&postgres).await;
    let own = Session::connect(&dsn, "own").await;
    // When a session of others began is hidden too, so it cannot be told from a later one.
    let backends = [backend(&holder), backend(&own)];
    let queries = fetch_queries(&parse(&dsn), &backends).await.expect("texts");
    let [query] = &queries[..] else { panic!("{queries:?}") };
    assert_eq!(query.pid, Pid(own.pid()));
    assert!(query.text.is_some());
}
