//! Whom each waiter waits for, against the server's own word: twenty sessions lock keys, rows and
//! tables, build indexes, prepare transactions and give up at random, and whenever nothing moves,
//! every chain that was read off a sample must be what `pg_blocking_pids()` says.
//!
//! The seed is printed. `LOCKS_TEST_BLOCKING_STATES` sets how many quiet states are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use pg_locks_exporter::blocking::{BlockerKind, Chains};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::sample::{Pid, Sample};
use pg_locks_exporter::tracker::{KeyId, SessionId};

use crate::support::session::Statement;
use crate::support::{Exporter, Postgres, Session, eventually, require};
use crate::watch::Watch;

const SESSIONS: usize = 20;

/// Quiet states with somebody who waits in them, unless the environment wants more.
const STATES: usize = 30;

const TABLES: [&str; 3] = ["t0", "t1", "t2"];

const TABLE_MODES: [&str; 8] = [
    "ACCESS SHARE",
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
];

const KEY_LOCKS: [&str; 4] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
];

const KEY_OTHERS: [&str; 5] = [
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_advisory_unlock",
    "pg_advisory_unlock_shared",
];

const ROW_LOCKS: [&str; 4] = ["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"];

/// One session of the workload.
struct Actor {
    session: Session,
    running: Option<Statement>,
    in_transaction: bool,
}

/// All of them, and what chance says next.
struct Workload {
    actors: Vec<Actor>,
    prepared: Vec<String>,
    /// Numbers for names of transactions and indexes.
    next: u32,
    random: StdRng,
    /// The setting that makes any query use a worker.
    parallel: &'static str,
}

/// Who waits for whom.
type Edges = BTreeMap<i32, BTreeSet<i32>>;

/// How often each case was there to be compared.
#[derive(Debug, Default)]
struct Tally {
    states: usize,
    waiters: usize,
    soft: usize,
    uncertain: usize,
    /// States in which an order that is told to be uncertain was the other way round.
    doubtful: usize,
    cycles: usize,
    prepared: usize,
    workers: usize,
    locktypes: BTreeMap<String, usize>,
}

impl Tally {
    /// Chance decides what there is to see; without some of each, agreement proves little.
    fn has_everything(&self) -> bool {
        let types = ["advisory", "relation", "transactionid", "virtualxid"];
        types.iter().all(|locktype| self.locktypes.contains_key(*locktype))
            && [self.soft, self.cycles, self.prepared].iter().all(|count| *count > 0)
    }
}

#[tokio::test]
async fn every_waiter_waits_for_whom_the_server_says() {
    require!(Postgres);
    let seed = number_in("LOCKS_TEST_SEED").unwrap_or_else(rand::random);
    println!("the seed of this run is {seed}");
    let states = number_in("LOCKS_TEST_BLOCKING_STATES")
        .and_then(|states| usize::try_from(states).ok())
        .unwrap_or(STATES);
    // Deadlocks shall stay, to be seen, until somebody in them gives up.
    let postgres = Postgres::builder()
        .setting("deadlock_timeout", "1h")
        .setting("max_prepared_transactions", 20)
        .start()
        .await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began, and so not the order of a queue.
    }
    let observer = postgres.session_in("postgres", "observer").await;
    let mut watch = Watch::start(&postgres.dsn("postgres")).await;
    let mut workload = Workload::start(&postgres, seed).await;
    let mut tally = Tally::default();
    for round in 0.. {
        assert!(round < 20 * states.max(STATES), "too little was seen: {tally:?}");
        if tally.states >= states && tally.has_everything() {
            break;
        }
        workload.act().await;
        workload.settle(&observer).await;
        let Some((sample, server)) = quiet_state(&mut watch, &observer).await else { continue };
        let chains = Chains::of(&sample, &watch.tracker);
        check(&sample, &chains, &server, &mut tally).unwrap_or_else(|error| {
            panic!("round {round}, seed {seed}: {error}\n{}", rows(&sample).join("\n"))
        });
    }
    eprintln!("{tally:#?}");
    assert!(tally.doubtful <= 1 + states / 1000, "more than chance: {tally:?}");
}

#[tokio::test]
async fn who_was_let_in_front_of_a_waiter_who_gave_up_is_in_front_still() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() < 14 {
        return;
    }
    let reader = postgres.session("reader").await;
    reader.run("SELECT pg_advisory_lock_shared(42)").await;
    let upgrader = postgres.session("upgrader").await;
    upgrader.run("SELECT pg_advisory_lock_shared(42)").await;
    let impatient = postgres.waits("impatient", "42").await;
    let late = postgres.session("late reader").await;
    let late_wait = late.start("SELECT pg_advisory_lock_shared(42)");
    postgres.until_waiting(&late).await;
    let upgrade = upgrader.start("SELECT pg_advisory_lock(42)");
    postgres.until_waiting(&upgrader).await;
    impatient.statement.cancel().await;

    let observer = postgres.session_in("postgres", "observer").await;
    let mut watch = Watch::start(&postgres.dsn("postgres")).await;
    let (sample, server) = quiet_state(&mut watch, &observer).await.expect("two wait");
    let expected = [
        (upgrader.pid(), BTreeSet::from([reader.pid()])),
        (late.pid(), BTreeSet::from([upgrader.pid()])),
    ];
    assert_eq!(server, BTreeMap::from(expected));
    let chains = Chains::of(&sample, &watch.tracker);
    check(&sample, &chains, &server, &mut Tally::default()).unwrap();
    let key = KeyId { database: sample.advisory[0].database, key: Key::bigint(42) };
    let next = chains.next_holders(key, &SessionId::Backend(Pid(reader.pid())));
    reader.run("SELECT pg_advisory_unlock_shared(42)").await;
    upgrade.finish().await;
    assert!(!late_wait.is_finished());
    assert_eq!(next.as_deref(), Some(&[SessionId::Backend(Pid(upgrader.pid()))][..]));
}

#[tokio::test]
async fn a_chain_through_an_index_build_is_served_from_its_end_to_its_root() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    postgres.session("setup").await.run("CREATE TABLE big (i int)").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let migrate = postgres.holds("web-migrate", "123456").await;
    let worker = postgres.waits("worker-migrate", "123456").await;
    let build = postgres.session("web-migrate").await;
    let _building = build.start("CREATE INDEX CONCURRENTLY bigi ON big (i)");
    postgres.until_waiting(&build).await;

    let scrape = exporter.scrape_fresh().await;
    let of_key = |name: &str| scrape.sample(name).with("key", "123456");
    of_key("pg_advisory_lock_waiters").is(1.0);
    of_key("pg_advisory_lock_blocked_sessions").is(2.0);
    of_key("pg_advisory_lock_roots")
        .with("kind", "session")
        .with("application_name", "web-migrate")
        .with("state", "idle")
        .with("holds_key", "true")
        .is(1.0);
    let snapshot = exporter.get("/api/v1/locks", &[]).await;
    let snapshot: Value = serde_json::from_str(snapshot.text()).expect("JSON");
    let lock = &snapshot["servers"][0]["locks"][0];
    let holder = &lock["holders"][0];
    assert_eq!((&holder["pid"], &holder["blocks"]), (&json!(migrate.pid()), &json!(2)));
    assert_eq!(holder["frees_next"], json!([worker.session.pid()]));
    let waiter = &lock["waiters"][0];
    let blocked_by = json!([{ "pid": migrate.pid(), "kind": "hard", "certain": true }]);
    assert_eq!(waiter["blocked_by"], blocked_by);
    assert_eq!(waiter["roots"][0]["pid"], json!(migrate.pid()));
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

impl Workload {
    async fn start(postgres: &Postgres, seed: u64) -> Workload {
        let setup = postgres.session("setup").await;
        for table in TABLES {
            setup
                .run(&format!(
                    "CREATE TABLE {table} (id int PRIMARY KEY, v int);
                     INSERT INTO {table} SELECT n, 0 FROM generate_series(1, 4) AS n;
                     CREATE FUNCTION peek_{table}() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
                     AS 'BEGIN RETURN (SELECT count(*) FROM {table}); END'"
                ))
                .await;
        }
        setup.run("CREATE TABLE claims (id int PRIMARY KEY)").await;
        let mut actors = Vec::new();
        for _ in 0..SESSIONS {
            let session = postgres.session("actor").await;
            actors.push(Actor { session, running: None, in_transaction: false });
        }
        let parallel = match postgres.major_version() {
            ..16 => "force_parallel_mode",
            16.. => "debug_parallel_query",
        };
        let random = StdRng::seed_from_u64(seed);
        Workload { actors, prepared: Vec::new(), next: 0, random, parallel }
    }

    /// A few steps of whoever can take one, and somebody gives up now and then: always where hardly
    /// anybody is left to move.
    async fn act(&mut self) {
        for _ in 0..self.random.random_range(2..8) {
            let index = self.random.random_range(0..self.actors.len());
            if self.actors[index].running.is_none() {
                self.step(index).await;
            }
        }
        let waiting: Vec<usize> =
            (0..SESSIONS).filter(|index| self.actors[*index].running.is_some()).collect();
        if waiting.len() > SESSIONS - 3 || self.random.random_bool(0.3) {
            for _ in 0..=waiting.len() / 6 {
                let Some(index) = waiting.choose(&mut self.random) else { return };
                let cancel = self.actors[*index].session.client().cancel_token();
                cancel.cancel_query(NoTls).await.expect("the server listens");
            }
        }
    }

    async fn step(&mut self, index: usize) {
        let sql = self.choose(self.actors[index].in_transaction);
        let patience = *["30ms", "0", "0", "0", "0"].choose(&mut self.random).expect("a word");
        let actor = &mut self.actors[index];
        // In a failed transaction it is refused, and so is what follows.
        let _ = actor.session.try_run(&format!("SET lock_timeout = '{patience}'")).await;
        actor.in_transaction = match sql.split([' ', ';']).next() {
            Some("BEGIN") => true,
            Some("COMMIT" | "ROLLBACK" | "PREPARE") if !sql.starts_with("ROLLBACK TO") => false,
            _ => actor.in_transaction,
        };
        actor.running = Some(actor.session.start(&sql));
    }

    fn choose(&mut self, in_transaction: bool) -> String {
        self.next += 1;
        let next = self.next;
        let random = &mut self.random;
        let kinds = if in_transaction { &INSIDE[..] } else { &OUTSIDE[..] };
        let kind = *ANYWHERE.iter().chain(kinds).collect::<Vec<_>>().choose(random).expect("one");
        let key = random.random_range(1..5);
        let table = *TABLES.choose(random).expect("a table");
        let begin = match (in_transaction, random.random_range(0..10)) {
            (true, _) => "",
            (false, 0) => "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM claims; ",
            (false, _) => "BEGIN; ",
        };
        let mut word = |words: &[&'static str]| *words.choose(random).expect("a word");
        match kind {
            Kind::Key => format!("{begin}SELECT {}({key})", word(&KEY_LOCKS)),
            Kind::SessionKey => format!("SELECT {}({key})", word(&KEY_LOCKS[..2])),
            Kind::OtherKey => format!("SELECT {}({key})", word(&KEY_OTHERS)),
            Kind::Update => format!("{begin}UPDATE {table} SET v = v + 1 WHERE id = {key}"),
            Kind::RowLock => {
                format!("{begin}SELECT 1 FROM {table} WHERE id = {key} FOR {}", word(&ROW_LOCKS))
            }
            Kind::Table => format!("{begin}LOCK TABLE {table} IN {} MODE", word(&TABLE_MODES)),
            Kind::Claim => {
                let conflict = word(&["", " ON CONFLICT DO NOTHING"]);
                // Claims stay once they are committed, so the numbers have to move on.
                format!("{begin}INSERT INTO claims VALUES ({}){conflict}", key + next / 50)
            }
            // Held in one mode and asked for in another: it goes before those whom it keeps out.
            Kind::Upgrade => format!(
                "{begin}SELECT pg_advisory_xact_lock_shared({key}); SELECT pg_advisory_xact_lock({key})"
            ),
            Kind::TableUpgrade => format!(
                "{begin}LOCK TABLE {table} IN {} MODE; LOCK TABLE {table} IN {} MODE",
                word(&TABLE_MODES[..4]),
                word(&TABLE_MODES[2..])
            ),
            Kind::Index => format!("CREATE INDEX CONCURRENTLY i{next} ON {table} (v)"),
            Kind::Worker => format!("SET {} = on; SELECT peek_{table}()", self.parallel),
            Kind::Savepoint => word(&["SAVEPOINT s", "ROLLBACK TO s"]).to_owned(),
            Kind::Prepare => {
                self.prepared.push(format!("g{next}"));
                format!("PREPARE TRANSACTION 'g{next}'")
            }
            Kind::Finish if self.prepared.len() > 2 => {
                format!("COMMIT PREPARED '{}'", self.prepared.remove(0))
            }
            Kind::Finish => "SELECT pg_advisory_unlock_all()".to_owned(),
            Kind::End => word(&["COMMIT", "ROLLBACK"]).to_owned(),
        }
    }

    /// Waits a little until each statement has ended or stands in a queue. An index build may be
    /// between two of its waits, so that this is no promise: [`quiet_state`] looks itself.
    async fn settle(&mut self, observer: &Session) {
        const QUEUED: &str = "SELECT count(DISTINCT coalesce(a.leader_pid, l.pid))
            FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted";
        for _ in 0..20 {
            self.collect().await;
            let running = self.actors.iter().filter(|actor| actor.running.is_some()).count();
            if observer.value(QUEUED).await == Some(running.to_string()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Takes the answers of statements that have ended. After an error there is no transaction.
    async fn collect(&mut self) {
        for actor in &mut self.actors {
            if let Some(statement) = actor.running.take_if(|statement| statement.is_finished())
                && statement.try_finish().await.is_err()
            {
                actor.in_transaction = false;
                // A cancel that came late may hit this one.
                eventually("it is rolled back", async || actor.session.run("ROLLBACK").await).await;
            }
        }
    }
}

/// What a session does next.
#[derive(Clone, Copy)]
enum Kind {
    Key,
    SessionKey,
    OtherKey,
    Update,
    RowLock,
    Table,
    Claim,
    Upgrade,
    TableUpgrade,
    Index,
    Worker,
    Savepoint,
    Prepare,
    Finish,
    End,
}

/// As often as they are named.
const ANYWHERE: [Kind; 26] = {
    use Kind::{
        Claim, Key, OtherKey, RowLock, SessionKey, Table, TableUpgrade, Update, Upgrade, Worker,
    };
    [
        Key,
        Key,
        Key,
        Key,
        Key,
        SessionKey,
        SessionKey,
        OtherKey,
        OtherKey,
        Update,
        Update,
        Update,
        Update,
        RowLock,
        RowLock,
        RowLock,
        Table,
        Table,
        Table,
        Claim,
        Claim,
        Worker,
        Upgrade,
        Upgrade,
        TableUpgrade,
        TableUpgrade,
    ]
};
const INSIDE: [Kind; 9] = {
    use Kind::{End, Prepare, Savepoint};
    [Savepoint, Savepoint, Prepare, End, End, End, End, End, End]
};
const OUTSIDE: [Kind; 5] = [Kind::Index, Kind::Index, Kind::Index, Kind::Finish, Kind::Finish];

/// A sample of a moment in which nothing moved, with somebody who waits in it, and what the server
/// says of the same moment.
async fn quiet_state(watch: &mut Watch, observer: &Session) -> Option<(Sample, Edges)> {
    for _ in 0..10 {
        let (before, _) = watch.poll().await;
        let edges = server_edges(observer).await;
        let (after, _) = watch.poll().await;
        // In its first moment a wait has no start yet.
        let is_settled = waiting_rows(&after).all(|(_, _, start)| start);
        if is_settled && rows(&before) == rows(&after) {
            return (!edges.is_empty()).then_some((after, edges));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    None
}

async fn server_edges(observer: &Session) -> Edges {
    let rows = observer
        .rows(
            "SELECT pid, array_to_string(pg_blocking_pids(pid), ' ')
             FROM (SELECT DISTINCT pid FROM pg_locks WHERE NOT granted) AS waiter",
        )
        .await;
    let number = |text: &str| text.parse::<i32>().expect("a pid");
    rows.iter()
        .map(|row| {
            let [Some(pid), Some(blockers)] = &row[..] else { panic!("{row:?}") };
            (number(pid), blockers.split_whitespace().map(number).collect())
        })
        .collect()
}

/// The whole lock table of a sample as lines, in order.
fn rows(sample: &Sample) -> Vec<String> {
    let keys = sample.advisory.iter().flat_map(|group| {
        group.keys.iter().map(move |key| {
            let who = (group.pid, group.transaction.as_str(), group.database);
            format!("{key} {who:?} {} {} {:?}", group.mode, group.granted, group.wait_start)
        })
    });
    let others = sample.other_locks.iter().map(|row| {
        let who = (row.pid, row.transaction.as_str());
        format!("{:?} {who:?} {} {} {:?}", row.tag, row.mode, row.granted, row.wait_start)
    });
    let mut rows: Vec<String> = keys.chain(others).collect();
    rows.sort();
    rows
}

/// Who waits for a lock of which type, and whether its start is known.
fn waiting_rows(sample: &Sample) -> impl Iterator<Item = (Option<Pid>, &str, bool)> {
    let keys = sample.advisory.iter().filter(|group| !group.granted);
    let keys = keys.map(|group| (group.pid, "advisory", group.wait_start.is_some()));
    let others = sample.other_locks.iter().filter(|row| !row.granted);
    keys.chain(others.map(|row| (row.pid, &*row.tag.locktype, row.wait_start.is_some())))
}

/// The server's pid; it calls every prepared transaction 0.
fn number(id: &SessionId) -> i32 {
    id.pid().map_or(0, |pid| pid.0)
}

fn check(
    sample: &Sample,
    chains: &Chains,
    server: &Edges,
    tally: &mut Tally,
) -> Result<(), String> {
    let backends = sample.backends.as_ref().expect("activity was read");
    let leaders: BTreeMap<i32, i32> =
        backends.iter().filter_map(|one| Some((one.pid.0, one.leader?.0))).collect();
    let mut expected = Edges::new();
    for (pid, blockers) in server {
        expected.entry(*leaders.get(pid).unwrap_or(pid)).or_default().extend(blockers);
    }
    let waiters: BTreeSet<i32> = chains.waiters().map(number).collect();
    if !waiters.iter().eq(expected.keys()) {
        return Err(format!("{waiters:?} wait, the server says {expected:?}"));
    }
    for (waiter, expected) in &expected {
        let id = SessionId::Backend(Pid(*waiter));
        let blockers: Vec<_> = chains.blockers(&id).collect();
        let found: BTreeSet<i32> = blockers.iter().map(|blocker| number(&blocker.id)).collect();
        if chains.blocker_count(&id) != blockers.len() {
            return Err(format!("{waiter} waits for {blockers:?}, and not that many are told"));
        }
        if found != *expected {
            let mut differing = found.symmetric_difference(expected);
            if differing.all(|other| is_order_doubtful(chains, *waiter, *other)) {
                tally.doubtful += 1;
                return Ok(());
            }
            return Err(format!("{waiter} waits for {blockers:?}, the server says {expected:?}"));
        }
        let soft = blockers.iter().filter(|it| it.kind == BlockerKind::Soft);
        tally.soft += soft.clone().count();
        tally.uncertain += soft.filter(|it| !it.is_certain).count();
        tally.prepared += usize::from(found.contains(&0));
    }
    check_ends(chains, &expected, tally)?;
    tally.states += 1;
    tally.waiters += expected.len();
    for (pid, locktype, _) in waiting_rows(sample) {
        *tally.locktypes.entry(locktype.to_owned()).or_default() += 1;
        tally.workers += usize::from(pid.is_some_and(|pid| leaders.contains_key(&pid.0)));
    }
    Ok(())
}

/// Whether the two stand in one queue in an order that is told to be uncertain. Who was let in front
/// of a waiter that has given up since may stand further ahead than any sample can show.
fn is_order_doubtful(chains: &Chains, one: i32, other: i32) -> bool {
    let is_told = |behind: i32, ahead: i32| {
        chains.blockers(&SessionId::Backend(Pid(behind))).any(|blocker| {
            number(&blocker.id) == ahead && blocker.kind == BlockerKind::Soft && !blocker.is_certain
        })
    };
    is_told(one, other) || is_told(other, one)
}

/// Roots and the number of those behind, as they follow from the server's own edges.
fn check_ends(chains: &Chains, edges: &Edges, tally: &mut Tally) -> Result<(), String> {
    let ahead: Edges = edges.keys().map(|waiter| (*waiter, ahead_of(edges, *waiter))).collect();
    let is_in_cycle = |pid: &i32| ahead.get(pid).is_some_and(|ahead| ahead.contains(pid));
    for (waiter, ahead) in &ahead {
        let is_root = |pid: &&i32| !edges.contains_key(pid) || is_in_cycle(pid);
        let expected: BTreeSet<i32> = ahead.iter().filter(is_root).copied().collect();
        let roots = chains.roots(&SessionId::Backend(Pid(*waiter)));
        let found: BTreeSet<i32> = roots.iter().map(|root| number(&root.id)).collect();
        if found != expected {
            return Err(format!("{waiter} has roots {found:?}, from {edges:?} {expected:?}"));
        }
        let claimed: BTreeSet<i32> =
            roots.iter().filter(|root| root.is_in_cycle).map(|root| number(&root.id)).collect();
        if !expected.iter().filter(|pid| is_in_cycle(pid)).eq(&claimed) {
            return Err(format!("{claimed:?} wait in circles, from {edges:?}"));
        }
        tally.cycles += usize::from(is_in_cycle(waiter));
    }
    for pid in edges.values().flatten().filter(|pid| **pid != 0) {
        let behind =
            |(waiter, ahead): &(&i32, &BTreeSet<i32>)| *waiter != pid && ahead.contains(pid);
        let expected = ahead.iter().filter(behind).count();
        let found = chains.sessions_behind(&SessionId::Backend(Pid(*pid)));
        if found != expected {
            return Err(format!("{found} are behind {pid}, from {edges:?} {expected}"));
        }
    }
    Ok(())
}

fn ahead_of(edges: &Edges, waiter: i32) -> BTreeSet<i32> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![waiter]);
    while let Some(pid) = open.pop() {
        let blockers = edges.get(&pid).into_iter().flatten();
        open.extend(blockers.filter(|blocker| seen.insert(**blocker)));
    }
    seen
}
