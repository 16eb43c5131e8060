//! Rows read are rows accounted for: on a server where nothing moves, the picture is the lock
//! table, row by row.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::support::session::Statement;
use crate::support::{Exporter, Postgres, Session, eventually, require};

/// Database, classid, objid, objsubid, pid, mode, granted.
type Row = (String, u64, u64, u64, i64, &'static str, bool);

/// Both ends of both numbers, signs, and keys that look alike in the two key spaces.
const KEYS: [&str; 10] = [
    "1",
    "0, 1",
    "42",
    "-1",
    "-1, -1",
    "9223372036854775807",
    "-9223372036854775808",
    "2147483647, -2147483648",
    "4294967296",
    "7, 99",
];

const ROUNDS: u32 = 25;

struct Actor {
    database: &'static str,
    session: Session,
    waiting: Option<Statement>,
}

/// One random thing: nothing here waits, or is waited for to its end.
async fn act(actor: &mut Actor, random: &mut StdRng) {
    if actor.waiting.is_some() {
        return;
    }
    let key = KEYS.choose(random).expect("a key");
    let xact = ["", "_xact"].choose(random).expect("a scope");
    let shared = ["", "_shared"].choose(random).expect("a mode");
    let session = &actor.session;
    match random.random_range(0..10) {
        0 => session.run("BEGIN").await,
        1 => session.run("COMMIT").await,
        2 => session.run(&format!("SELECT pg_advisory_unlock({key})")).await,
        3 | 4 => {
            // Waits unless it is free.
            actor.waiting =
                Some(session.start(&format!("SELECT pg_advisory{xact}_lock{shared}({key})")));
        }
        _ => session.run(&format!("SELECT pg_try_advisory{xact}_lock{shared}({key})")).await,
    }
}

fn mode(word: &str) -> &'static str {
    match word {
        "ExclusiveLock" | "exclusive" => "exclusive",
        "ShareLock" | "share" => "share",
        other => panic!("advisory locks have no mode {other}"),
    }
}

/// The lock table as the server shows it, and in how many rows.
async fn lock_table(observer: &Session) -> (BTreeSet<Row>, usize) {
    let rows = observer
        .rows(
            "SELECT datname, classid, objid, objsubid, pid, mode, granted \
             FROM pg_locks JOIN pg_database ON pg_database.oid = database \
             WHERE locktype = 'advisory'",
        )
        .await;
    let count = rows.len();
    let row = |row: Vec<Option<String>>| {
        let row: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        let number = |column: usize| row[column].parse().expect("a number");
        let pid = row[4].parse().expect("a pid");
        let granted = row[6] == "t";
        (row[0].clone(), number(1), number(2), number(3), pid, mode(&row[5]), granted)
    };
    (rows.into_iter().map(row).collect(), count)
}

/// The lock table as the exporter shows it, and in how many rows.
async fn picture(exporter: &Exporter) -> (BTreeSet<Row>, usize) {
    let response = exporter.get("/api/v1/locks", &[]).await;
    let snapshot: Value = serde_json::from_slice(&response.body).expect("JSON");
    let server = &snapshot["servers"][0];
    let mut rows = BTreeSet::new();
    for lock in server["locks"].as_array().expect("locks") {
        let number = |field: &str| lock["key"][field].as_u64().expect("a number");
        let mut add = |session: &Value, word: &Value, granted| {
            let is_new = rows.insert((
                lock["datname"].as_str().expect("a name").to_owned(),
                number("classid"),
                number("objid"),
                number("objsubid"),
                session["pid"].as_i64().expect("a pid"),
                mode(word.as_str().expect("a mode")),
                granted,
            ));
            assert!(is_new, "twice: {session} of {lock:#}");
        };
        for holder in lock["holders"].as_array().expect("holders") {
            for word in holder["modes"].as_array().expect("modes") {
                add(holder, word, true);
            }
        }
        for waiter in lock["waiters"].as_array().expect("waiters") {
            add(waiter, &waiter["mode"], false);
        }
    }
    let read = server["looked_at"]["rows"].as_u64().expect("a count");
    (rows, usize::try_from(read).expect("a small number"))
}

#[tokio::test]
async fn the_picture_of_a_quiet_server_is_its_lock_table_row_by_row() {
    require!(Postgres);
    let number = rand::random::<u64>();
    println!("the seed of this run is {number}");
    let mut random = StdRng::seed_from_u64(number);
    // Deadlocks may happen and shall stay.
    let postgres = Postgres::builder().setting("deadlock_timeout", "1h").start().await;
    let dsn = postgres.dsn("postgres");
    let exporter = Exporter::serve(&["--dsn", &dsn, "--poll.interval", "20ms"]).await;
    let observer = postgres.session("observer").await;
    let mut actors = Vec::new();
    for actor in 0..10 {
        let database = ["app", "app2"][actor % 2];
        let session = enter(&postgres, database).await;
        actors.push(Actor { database, session, waiting: None });
    }

    let (mut held, mut awaited, mut round) = (0, 0, 0);
    // Chance decides how much there is to see, so it goes on until that is enough.
    while round < ROUNDS || held < 100 || awaited < 10 {
        round += 1;
        assert!(round < 10 * ROUNDS, "too little was seen: {held} held, {awaited} awaited");
        for _ in 0..20 {
            let actor = random.random_range(0..actors.len());
            act(&mut actors[actor], &mut random).await;
        }
        settle(&observer, &mut actors).await;
        let (expected, count) = lock_table(&observer).await;
        assert_eq!(expected.len(), count);
        eventually("the picture is the lock table", async || {
            let (rows, read) = picture(&exporter).await;
            assert_eq!(rows, expected, "round {round}, seed {number}");
            assert_eq!(read, count, "round {round}, seed {number}");
        })
        .await;
        let (after, _) = lock_table(&observer).await;
        assert_eq!(after, expected, "the server was quiet");
        held += expected.iter().filter(|row| row.6).count();
        awaited += expected.iter().filter(|row| !row.6).count();
        release(&postgres, &observer, &mut actors, &mut random).await;
    }
}

/// Waits until each statement on its way has either ended or stands in a queue.
async fn settle(observer: &Session, actors: &mut [Actor]) {
    eventually("nothing moves", async || {
        for actor in actors.iter_mut() {
            if let Some(statement) = actor.waiting.take_if(|statement| statement.is_finished()) {
                statement.finish().await;
            }
        }
        let waiting = actors.iter().filter(|actor| actor.waiting.is_some()).count();
        let queued = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        assert_eq!(observer.value(queued).await, Some(waiting.to_string()));
    })
    .await;
}

/// Ends all who wait, and all locks of some others. A cancel would be gentler, but it may arrive
/// when its statement has ended, and hit the next one.
async fn release(
    postgres: &Postgres,
    observer: &Session,
    actors: &mut [Actor],
    random: &mut StdRng,
) {
    for actor in actors.iter_mut() {
        if actor.waiting.take().is_some() {
            let pid = actor.session.pid();
            observer.run(&format!("SELECT pg_terminate_backend({pid})")).await;
            let rest = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
            eventually("it is gone", async || {
                assert_eq!(observer.value(&rest).await.as_deref(), Some("0"));
            })
            .await;
            actor.session = enter(postgres, actor.database).await;
        } else if random.random_bool(0.3) {
            actor.session.run("ROLLBACK; SELECT pg_advisory_unlock_all()").await;
        }
    }
}

async fn enter(postgres: &Postgres, database: &str) -> Session {
    let session = postgres.session_in(database, "actor").await;
    session.run("SET lock_timeout = '1h'").await;
    session
}
