//! What a poll costs the server and leaves there, read off the wire: round trips, calls, settings,
//! statements, locks.

use pg_locks_exporter::sample::{LockRow, Sample};

use crate::support::network::Network;
use crate::support::relay::Burst;
use crate::support::{
    DEADLINE, Exporter, PgBouncer, PoolMode, Postgres, Relay, eventually, require,
};
use crate::watch::connect;

/// The statements of a burst without the comments of their `.sql` files.
fn statements(burst: &Burst) -> Vec<String> {
    let without_comment =
        |line: &str| line.split("--").next().unwrap_or_default().trim().to_owned();
    let one_line = |text: &String| text.lines().map(without_comment).collect::<Vec<_>>().join(" ");
    burst.statements.iter().map(one_line).collect()
}

fn calls(statements: &[String], function: &str) -> usize {
    statements.iter().map(|statement| statement.matches(function).count()).sum()
}

fn is_poll(burst: &Burst) -> bool {
    calls(&statements(burst), "pg_lock_status()") > 0
}

/// An exporter behind a relay, after so many polls.
async fn bursts_after(postgres: &Postgres, dsn: &str, relay: &Relay, polls: usize) -> Vec<Burst> {
    let exporter = Exporter::serve(&["--dsn", dsn, "--poll.interval", "20ms"]).await;
    eventually("enough polls", async || {
        assert!(relay.bursts().iter().filter(|burst| is_poll(burst)).count() >= polls);
    })
    .await;
    let scrape = exporter.scrape().await;
    scrape.sample("pg_advisory_up").is(1.0);
    let failures = scrape.sample("pg_advisory_poll_failures_total").values();
    assert!(failures.iter().all(|count| *count == 0.0), "{}\n{}", exporter.log(), postgres.log());
    relay.bursts()
}

#[tokio::test]
async fn a_poll_is_one_write_and_one_round_trip_and_reads_the_lock_table_once_and_first() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let relay = Relay::start(&postgres).await;
    let bursts = bursts_after(&postgres, &relay.dsn("app"), &relay, 46).await;

    // A poll, then what is asked once for a connection, then polls and nothing else.
    let (one_offs, polls): (Vec<&Burst>, Vec<&Burst>) =
        bursts.iter().partition(|burst| !is_poll(burst));
    let position = |wanted: &Burst| bursts.iter().position(|burst| std::ptr::eq(burst, wanted));
    let positions: Vec<_> = one_offs.iter().map(|burst| position(burst)).collect();
    assert_eq!(positions, [1, 2, 3, 4].map(Some), "{one_offs:#?}");
    let one_offs = one_offs.into_iter().flat_map(statements).collect::<Vec<_>>();
    // Presets rely on hashes of the server.
    for question in [
        "current_setting('server_version')",
        "FROM pg_database",
        "FROM pg_roles",
        "to_regclass('pg_catalog.pg_stat_lock')",
        "SELECT hashtext(t)",
    ] {
        assert_eq!(calls(&one_offs, question), 1, "{question}: {one_offs:#?}");
    }

    for (number, burst) in polls.into_iter().enumerate() {
        let statements = statements(burst);
        assert_eq!(burst.reads, 1, "poll {number} is one write: {burst:#?}");
        let counts_entries = number % 15 == 0;
        let lock_tables = calls(&statements, "pg_lock_status()");
        assert_eq!(lock_tables, 1 + usize::from(counts_entries), "poll {number}: {statements:#?}");
        assert_eq!(calls(&statements, "pg_stat_get_activity(NULL)"), 1, "poll {number}");

        let place = |text: &str| statements.iter().position(|statement| statement.contains(text));
        assert_eq!(place("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"), Some(0));
        assert_eq!(place("pg_lock_status()"), Some(1), "the lock table first: {statements:#?}");
        assert_eq!(place("pg_stat_get_activity(NULL)"), Some(2), "{statements:#?}");
        assert_eq!(statements.last().map(String::as_str), Some("COMMIT"));
        // Whether anything can be prepared is known after the first poll.
        assert_eq!(calls(&statements, "pg_prepared_xact()"), usize::from(number == 0));
        // No catalog, and no view over one: they hang on somebody's lock.
        for word in ["pg_locks", "pg_stat_activity", "pg_database", "pg_roles", "pg_prepared_xacts"]
        {
            assert_eq!(calls(&statements, word), 0, "{word} in poll {number}: {statements:#?}");
        }
    }
}

#[tokio::test]
async fn nothing_is_named_written_locked_or_set_beyond_a_poll() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session("observer").await;
    let next_transaction = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
    let before = observer.value(next_transaction).await;
    let relay = Relay::start(&postgres).await;
    let bursts = bursts_after(&postgres, &relay.dsn("app"), &relay, 20).await;

    for burst in &bursts {
        assert_eq!(burst.named_statements, [""; 0], "{burst:#?}");
        let statements = statements(burst);
        let parts = statements.iter().flat_map(|statement| statement.split(';')).map(str::trim);
        for part in parts.filter(|part| part.starts_with("SET")) {
            assert!(part.starts_with("SET LOCAL "), "{part} outlives the transaction");
            assert!(statements[0].starts_with("BEGIN") && statements[0].contains(part), "{part}");
        }
        assert_eq!(calls(&statements, "advisory_"), 0, "{statements:#?}");
        assert_eq!(calls(&statements, "set_config"), 0, "{statements:#?}");
    }
    for setting in ["statement_timeout = 5000", "work_mem = '64MB'", "jit = off"] {
        let set = bursts
            .iter()
            .filter(|burst| is_poll(burst))
            .all(|burst| calls(&statements(burst), &format!("SET LOCAL {setting}")) == 1);
        assert!(set, "every poll sets {setting}");
    }
    let after = observer.value(next_transaction).await;
    assert_eq!(before, after, "no transaction of ours got an id, so none wrote");

    // A sample shows our own backend in the middle of a poll.
    let mut connection = connect(&postgres.dsn("app")).await;
    let sample = connection.fetch_sample(DEADLINE).await.expect("a sample");
    assert!(sample.advisory.is_empty(), "{:?}", sample.advisory);
}

#[tokio::test]
async fn a_setting_that_the_role_brings_is_not_overridden() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin
        .run(
            "CREATE ROLE patient LOGIN IN ROLE pg_monitor; \
             ALTER ROLE patient SET statement_timeout = '2s'; \
             ALTER ROLE patient SET jit = 'on'",
        )
        .await;
    let relay = Relay::start(&postgres).await;
    let dsn = relay.dsn("app").replace("postgres@", "patient@");
    let bursts = bursts_after(&postgres, &dsn, &relay, 5).await;
    // The first poll of a connection comes before any question, so it cannot know yet.
    let polls: Vec<_> = bursts.iter().filter(|burst| is_poll(burst)).skip(1).collect();
    for burst in polls {
        let statements = statements(burst);
        assert_eq!(calls(&statements, "statement_timeout"), 0, "{statements:#?}");
        assert_eq!(calls(&statements, "jit"), 0, "{statements:#?}");
        assert_eq!(calls(&statements, "SET LOCAL work_mem = '64MB'"), 1, "{statements:#?}");
    }
}

#[tokio::test]
async fn a_stranger_on_the_same_backend_of_a_pooler_finds_nothing_of_ours() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let stranger = pooler.session("stranger").await;
    let settings = "SELECT pg_backend_pid(), current_setting('statement_timeout'), \
                    current_setting('work_mem'), current_setting('jit'), \
                    (SELECT count(*) FROM pg_prepared_statements), \
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')";
    let before = stranger.rows(settings).await;
    assert_eq!(before[0][4].as_deref(), Some("0"));

    let dsn = pooler.dsn("app");
    let exporter = Exporter::serve(&["--dsn", &dsn, "--poll.interval", "20ms"]).await;
    let polls = async || exporter.scrape().await.sample("pg_advisory_polls_total").value();
    eventually("polls go through the pooler", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(1.0);
        assert!(polls().await >= 16.0);
        assert_eq!(stranger.rows(settings).await, before, "the backend is as it was");
    })
    .await;
    // There is one backend for both of them, so the stranger stood where the polls ran.
    let backends = "SELECT count(*) FROM pg_stat_activity \
                    WHERE datname = 'app' AND backend_type = 'client backend'";
    let observer = postgres.session_in("postgres", "observer").await;
    assert_eq!(observer.value(backends).await.as_deref(), Some("1"));
}

/// The rows of a relation's lock.
fn rows_of(sample: &Sample, relation: u32) -> Vec<&LockRow> {
    let of_relation = |row: &&LockRow| row.tag.relation == Some(relation);
    sample.other_locks.iter().filter(of_relation).collect()
}

#[tokio::test]
async fn when_somebody_begins_to_wait_for_a_relation_the_poll_is_repeated_for_its_holders() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.session("migration").await;
    holder.run("CREATE TABLE t ()").await;
    holder.run("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").await;
    let relation = holder.value("SELECT 't'::regclass::oid::int8").await;
    let relation: u32 = relation.and_then(|oid| oid.parse().ok()).expect("an OID");

    let relay = Relay::start(&postgres).await;
    let mut connection = connect(&relay.dsn("app")).await;
    let mut poll = async || {
        relay.forget();
        let sample = connection.fetch_sample(DEADLINE).await.expect("a sample");
        (sample, relay.bursts().len())
    };
    let (sample, round_trips) = poll().await;
    assert_eq!((rows_of(&sample, relation).len(), round_trips), (0, 1), "nobody waits for it");

    let waiter = postgres.session("web").await;
    let statement = waiter.start("SELECT FROM t");
    postgres.until_waiting(&waiter).await;
    let pids = |sample: &Sample| {
        let mut rows = rows_of(sample, relation);
        rows.sort_by_key(|row| !row.granted);
        rows.iter().map(|row| (row.pid.map_or(0, |pid| pid.0), row.granted)).collect::<Vec<_>>()
    };
    let both = [(holder.pid(), true), (waiter.pid(), false)];
    let (sample, round_trips) = poll().await;
    assert_eq!(pids(&sample), both, "the holder is in the very sample that shows the wait");
    assert_eq!(round_trips, 2, "repeated once, at once");
    let (sample, round_trips) = poll().await;
    assert_eq!((pids(&sample), round_trips), (both.to_vec(), 1), "the wait is not new any more");

    holder.run("COMMIT").await;
    statement.finish().await;
    let (sample, round_trips) = poll().await;
    assert_eq!((rows_of(&sample, relation).len(), round_trips), (0, 1));
}

#[tokio::test]
async fn ten_thousand_locks_are_eight_bytes_each_on_the_wire_and_little_beside() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 200).start().await;
    let mut holders = Vec::new();
    for number in 0..50 {
        let session = postgres.session(&format!("pod-{number}")).await;
        let sql = "SELECT count(pg_advisory_lock(n)) FROM generate_series";
        session.run(&format!("{sql}({number} * 200, {number} * 200 + 199) AS n")).await;
        holders.push(session);
    }
    let network = Network::start(&postgres).await;
    let mut connection = connect(&network.dsn("app")).await;
    connection.fetch_sample(DEADLINE).await.expect("it can be polled");
    let before = network.answered();
    let sample = connection.fetch_sample(DEADLINE).await.expect("it can be polled");
    let bytes = network.answered() - before;
    assert_eq!(sample.advisory_rows(true), 10_000);
    // Each of the sessions is a row of the lock table and one of activity.
    assert!(bytes <= 80_000 + 55 * 400, "{bytes} bytes");
}
