//! What the server's lock table holds is what is shown: every key as it was taken, every row
//! counted, every session under its own name, mode and age. The locks are real and the answer is
//! compared with the server's own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::scrape::Sample;
use crate::support::{Exporter, Postgres, Scrape, Session, eventually, prometheus, require};

async fn watch(postgres: &Postgres) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    exporter
}

/// What the server says of a key, found by its text in the answer.
fn lock_of<'a>(snapshot: &'a Value, datname: &str, key: &Value) -> &'a Value {
    let locks = snapshot["locks"].as_array().expect("locks are known");
    let is_meant = |lock: &&Value| lock["datname"] == datname && lock["key"]["text"] == *key;
    locks.iter().find(is_meant).unwrap_or_else(|| panic!("no {key} in {datname}: {snapshot:#}"))
}

#[tokio::test]
async fn every_key_is_shown_as_it_was_taken_in_its_own_database() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let keys = [
        ("app", "1", "1"),
        ("app", "0, 1", "(0,1)"),
        ("app", "42", "42"),
        ("app2", "42", "42"),
        ("app", "0", "0"),
        ("app", "0, 0", "(0,0)"),
        ("app", "-1", "-1"),
        ("app", "'-9223372036854775808'::bigint", "-9223372036854775808"),
        ("app", "9223372036854775807", "9223372036854775807"),
        ("app", "-1, -1", "(-1,-1)"),
        ("app", "'-2147483648'::int, 2147483647", "(-2147483648,2147483647)"),
        ("app", "2147483647, '-2147483648'::int", "(2147483647,-2147483648)"),
        // The same 64 bits as (1,0), in the other key space.
        ("app", "4294967296", "4294967296"),
        ("app", "1, 0", "(1,0)"),
    ];
    let session = postgres.session("edge-keys").await;
    let neighbour = postgres.session_in("app2", "edge-keys").await;
    for (datname, argument, _) in keys {
        let session = if datname == "app" { &session } else { &neighbour };
        session.run(&format!("SELECT pg_advisory_lock({argument})")).await;
    }
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders").with("application_name", "edge-keys");
    let shown: BTreeSet<(&str, &str)> = holders
        .matches()
        .iter()
        .map(|sample| (sample.labels["datname"].as_str(), sample.labels["key"].as_str()))
        .collect();
    assert_eq!(shown, keys.iter().map(|(datname, _, key)| (*datname, *key)).collect());
    assert_eq!(scrape.sample("pg_advisory_lock_holders").values(), vec![1.0; keys.len()]);
}

#[tokio::test]
async fn a_database_made_a_moment_ago_goes_by_its_name_from_the_first() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE DATABASE newborn").await;
    let session = postgres.session_in("newborn", "pod-a").await;
    session.run("SELECT pg_advisory_lock(42)").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("datname", "newborn").is(1.0);
    let seconds = scrape.sample("pg_advisory_lock_hold_seconds_total");
    assert_eq!(seconds.matches().len(), 1, "nothing is counted under another name");
}

#[tokio::test]
async fn rows_are_as_many_as_the_server_counts() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let exporter = watch(&postgres).await;
    let observer = postgres.session("observer").await;

    let writer = postgres.holds("writer", "1").await;
    writer.run("SELECT pg_advisory_lock_shared(2), pg_advisory_lock_shared(3, 4)").await;
    let reader = postgres.session("reader").await;
    reader.run("SELECT pg_advisory_lock_shared(2)").await;
    let neighbour = postgres.session_in("app2", "neighbour").await;
    neighbour.run("BEGIN; SELECT pg_advisory_xact_lock(1)").await;
    prepare(&postgres, "two-phase", "5").await;
    let _waiters = (
        postgres.waits("pod-a", "1").await,
        postgres.waits("pod-b", "2").await,
        postgres.waits("pod-c", "5").await,
    );

    let scrape = exporter.scrape_fresh().await;
    assert_rows_are_the_servers(&scrape, &observer, [6, 3]).await;
    let sum = |name: &str| scrape.sample(name).values().iter().sum::<f64>();
    assert_eq!(sum("pg_advisory_lock_holders"), 6.0, "no row is lost on the way to a holder");
    assert_eq!(sum("pg_advisory_lock_waiters"), 3.0, "nor on the way to a waiter");

    reader.close().await;
    neighbour.run("ROLLBACK").await;
    eventually("the server has closed the session", async || {
        assert_rows_are_the_servers(&exporter.scrape_fresh().await, &observer, [4, 3]).await;
    })
    .await;
}

#[tokio::test]
async fn three_sessions_of_one_name_are_one_series_of_a_clean_scrape() {
    require!(Postgres, Promtool);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let reader = postgres.session("reader").await;
        reader.run("SELECT pg_advisory_lock_shared(60, 61)").await;
        readers.push(reader);
    }
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders").with("mode", "share");
    holders.with("key", "(60,61)").with("application_name", "reader").is(3.0);
    assert_eq!(scrape.sample("pg_advisory_lock_holders").values(), [3.0], "and no other");
    prometheus::assert_metrics_pass(exporter.get("/metrics", &[]).await.text());
}

#[tokio::test]
async fn the_series_of_a_key_goes_at_the_first_poll_after_its_release_and_its_counters_stay() {
    const COUNTERS: [&str; 2] =
        ["pg_advisory_lock_acquisitions_observed_total", "pg_advisory_lock_hold_seconds_total"];
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let _bystander = postgres.holds("bystander", "1").await;
    let session = postgres.session("migrate").await;
    // One that nothing names, and one that has a name.
    session.run("SELECT pg_advisory_lock(4711), pg_advisory_lock(72707369)").await;
    exporter.scrape_fresh().await;
    let before = exporter.scrape_fresh().await;
    let seconds = ["4711", "72707369"].map(|key| {
        before.sample("pg_advisory_lock_holders").with("key", key).is(1.0);
        before.sample(COUNTERS[1]).with("key", key).value()
    });

    session.run("SELECT pg_advisory_unlock_all()").await;
    for poll in 1..=2 {
        let after = exporter.scrape_fresh().await;
        let is_of_it = |sample: &&Sample| {
            sample.labels.get("key").is_some_and(|key| key == "4711")
                && after.types().get(&sample.name).is_some_and(|kind| kind == "gauge")
        };
        let left: Vec<_> = after.samples().iter().filter(is_of_it).collect();
        assert!(left.is_empty(), "poll {poll} after the release: {left:?}");
        let named = after.sample("pg_advisory_lock_holders").with("key", "72707369");
        assert_eq!(named.values(), [0.0], "poll {poll} after the release");
        named.with("application_name", "").is(0.0);
        let since = after.sample("pg_advisory_lock_held_since_timestamp_seconds");
        since.with("key", "72707369").absent();
        after.sample("pg_advisory_lock_holders").with("key", "1").is(1.0);
        for (key, seconds) in ["4711", "72707369"].into_iter().zip(seconds) {
            after.sample(COUNTERS[0]).with("key", key).is(1.0);
            assert!(after.sample(COUNTERS[1]).with("key", key).value() >= seconds);
        }
    }
}

#[tokio::test]
async fn the_total_is_zero_and_present_when_the_last_lock_goes() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let assert_none = |scrape: &Scrape| {
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(0.0);
        scrape.sample("pg_advisory_lock_rows").with("granted", "false").is(0.0);
        scrape.sample("pg_advisory_lock_holders").absent();
        scrape.sample("pg_advisory_up").is(1.0);
    };
    assert_none(&exporter.scrape_fresh().await);
    let session = postgres.holds("migrate", "4711").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(1.0);
    session.run("SELECT pg_advisory_unlock(4711)").await;
    for _ in 0..2 {
        let scrape = exporter.scrape_fresh().await;
        assert_none(&scrape);
        scrape.sample("pg_advisory_keys").with("datname", "app").with("state", "held").is(0.0);
    }
}

/// Compares with what the server counts, and with what the test expects, so that two zeros are no
/// agreement.
async fn assert_rows_are_the_servers(scrape: &Scrape, observer: &Session, expected: [u32; 2]) {
    for (granted, expected) in [("true", expected[0]), ("false", expected[1])] {
        let count = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = {granted}"
        );
        assert_eq!(observer.value(&count).await, Some(expected.to_string()), "granted {granted}");
        scrape.sample("pg_advisory_lock_rows").with("granted", granted).is(f64::from(expected));
    }
}

/// Leaves a prepared transaction in `app` that holds a key, and no session.
async fn prepare(postgres: &Postgres, gid: &str, key: &str) {
    let session = postgres.session("preparer").await;
    session
        .run(&format!("BEGIN; SELECT pg_advisory_xact_lock({key}); PREPARE TRANSACTION '{gid}'"))
        .await;
    session.close().await;
}

#[tokio::test]
async fn a_prepared_transaction_holds_its_key_without_a_session_and_across_a_restart() {
    require!(Postgres);
    let mut postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    // Before anybody watches: a poll that saw the key in its session would know it for longer.
    prepare(&postgres, "two-phase", "7, 9").await;
    let exporter = watch(&postgres).await;

    let before = prepared_holder(&exporter).await;
    assert_eq!(before["pid"], Value::Null);
    assert_eq!(before["scope"], "transaction");
    assert_eq!(before["prepared"]["gid"], "two-phase");
    assert_eq!(before["prepared"]["owner"], "postgres");
    assert_eq!(before["since"], before["prepared"]["prepared_at"]);

    postgres.restart().await;
    let after = prepared_holder(&exporter).await;
    let observer = postgres.session("observer").await;
    assert_rows_are_the_servers(&exporter.scrape_fresh().await, &observer, [1, 0]).await;
    assert_eq!(after["prepared"], before["prepared"]);
    assert_eq!(after["since"], before["since"]);
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_acquisitions_observed_total").is(0.0);
    scrape.sample("pg_advisory_lock_holder_changes_total").is(0.0);

    let operator = postgres.session("operator").await;
    operator.run("ROLLBACK PREPARED 'two-phase'").await;
    exporter.scrape_fresh().await.sample("pg_advisory_lock_holders").absent();
}

#[tokio::test]
async fn of_all_locks_those_of_prepared_transactions_are_back_after_a_restart() {
    require!(Postgres);
    let mut postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
    let exporter = watch(&postgres).await;
    prepare(&postgres, "two-phase", "7, 9").await;
    let _session = postgres.holds("pod-a", "42").await;
    let before = exporter.scrape_fresh().await;
    before.sample("pg_advisory_lock_rows").with("granted", "true").is(2.0);

    postgres.stop().await;
    eventually("the end is seen", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        scrape.sample("pg_advisory_lock_holders").absent();
        scrape.sample("pg_advisory_lock_rows").absent();
    })
    .await;
    postgres.start_again().await;
    let after = exporter.scrape_fresh().await;
    after.sample("pg_advisory_lock_rows").with("granted", "true").is(1.0);
    let holders = after.sample("pg_advisory_lock_holders");
    assert_eq!(holders.values(), [1.0]);
    holders.with("key", "(7,9)").with("application_name", "(prepared)").is(1.0);
    let since = "pg_advisory_lock_held_since_timestamp_seconds";
    let since = |scrape: &Scrape| scrape.sample(since).with("key", "(7,9)").value();
    assert!((since(&after) - since(&before)).abs() < 0.1, "its hold goes on");
}

/// The only holder, once its metric is checked.
async fn prepared_holder(exporter: &Exporter) -> Value {
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders");
    holders.clone().with("application_name", "(prepared)").with("state", "prepared").is(1.0);
    holders.with("datname", "app").with("key", "(7,9)").with("mode", "exclusive").is(1.0);
    let snapshot = exporter.snapshot().await;
    lock_of(&snapshot, "app", &json!("(7,9)"))["holders"][0].clone()
}

#[tokio::test]
async fn readers_and_writers_are_told_apart_and_waits_begin_when_the_server_says() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session("observer").await;
    let shared = "SELECT pg_advisory_lock_shared(7007)";
    let old_reader = postgres.session("old-reader").await;
    old_reader.run(shared).await;
    let other_reader = postgres.session("old-reader").await;
    other_reader.run(shared).await;
    let writer = postgres.waits("writer", "7007").await;
    let late_reader = postgres.session("late-reader").await;
    let _late = late_reader.start(shared);
    postgres.until_waiting(&late_reader).await;
    let has_waitstart = postgres.major_version() >= 14;
    if has_waitstart {
        // Only a wait that is older than the exporter tells its start from its first sight.
        eventually("the writer has waited for a while", async || {
            let long = format!(
                "SELECT clock_timestamp() - waitstart > '2 s' FROM pg_locks
                 WHERE pid = {} AND NOT granted",
                writer.session.pid()
            );
            assert_eq!(observer.value(&long).await.as_deref(), Some("t"));
        })
        .await;
    }

    let exporter = watch(&postgres).await;
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders").with("key", "7007");
    holders.clone().with("application_name", "old-reader").with("mode", "share").is(2.0);
    assert_eq!(holders.matches().len(), 1);
    let waiters = scrape.sample("pg_advisory_lock_waiters").with("key", "7007");
    waiters.clone().with("application_name", "writer").with("mode", "exclusive").is(1.0);
    waiters.clone().with("application_name", "late-reader").with("mode", "share").is(1.0);
    assert_eq!(waiters.matches().len(), 2);

    if has_waitstart {
        let waits = observer
            .rows(
                "SELECT to_char(waitstart AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                     extract(epoch FROM waitstart)
                 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted ORDER BY waitstart",
            )
            .await;
        let snapshot = exporter.snapshot().await;
        let shown = &lock_of(&snapshot, "app", &json!("7007"))["waiters"];
        assert_eq!(shown[0]["waiting_since"], json!(waits[0][0]), "{shown:#}");
        assert_eq!(shown[1]["waiting_since"], json!(waits[1][0]), "{shown:#}");
        assert_eq!(shown[0]["application_name"], "writer");

        // On our clock, which lags behind the server's by the time a poll takes to get there.
        let since = || scrape.sample("pg_advisory_lock_waiting_since_timestamp_seconds");
        let waitstart: f64 = waits[0][1].as_deref().expect("a start").parse().expect("a number");
        assert!((since().value() - waitstart).abs() < 1.0, "{} {waitstart}", since().value());
        let later = exporter.scrape_fresh().await;
        later.sample("pg_advisory_lock_waiting_since_timestamp_seconds").is(since().value());
    }
    writer.statement.cancel().await;
}

#[tokio::test]
async fn a_holder_is_a_session_and_keeps_what_its_transaction_gave_up() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let session = postgres.session("worker").await;
    session
        .run("SELECT pg_advisory_lock(5005), pg_advisory_lock(5005), pg_advisory_lock(5005)")
        .await;
    session.run("SELECT pg_advisory_lock_shared(5006), pg_advisory_lock(5006)").await;
    session
        .run("BEGIN; SELECT pg_advisory_lock(4004), pg_advisory_xact_lock(4005); ROLLBACK")
        .await;
    let nameless = postgres.session("").await;
    nameless.run("BEGIN; SELECT pg_advisory_xact_lock(6006)").await;

    let scrape = exporter.scrape_fresh().await;
    let holders = |key: &str| scrape.sample("pg_advisory_lock_holders").with("key", key);
    holders("5005").with("mode", "exclusive").is(1.0);
    holders("5006").with("mode", "exclusive").is(1.0);
    assert_eq!(holders("5006").matches().len(), 1, "two modes of one session are one holder");
    holders("4004").with("application_name", "worker").with("state", "idle").is(1.0);
    holders("4005").absent();
    holders("6006").with("application_name", "(none)").with("state", "idle in transaction").is(1.0);
    scrape.sample("pg_advisory_session_keys_max").is(3.0);
    scrape
        .sample("pg_advisory_sessions")
        .with("application_name", "worker")
        .with("side", "holder")
        .is(1.0);
}

#[tokio::test]
async fn forty_sessions_on_one_key_fill_one_entry_of_the_lock_table() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 70).start().await;
    let exporter = watch(&postgres).await;
    let before = exporter.scrape().await.sample("pg_advisory_lock_table_entries").value();
    let mut sessions = Vec::new();
    for _ in 0..40 {
        let session = postgres.session("reader").await;
        session.run("SELECT pg_advisory_lock_shared(40)").await;
        sessions.push(session);
    }
    // Entries are counted at every 15th poll.
    let polls = exporter.scrape_fresh().await.sample("pg_advisory_polls_total").value();
    let scrape = eventually("entries are counted again", async || {
        let scrape = exporter.scrape().await;
        assert!(scrape.sample("pg_advisory_polls_total").value() >= polls + 15.0);
        scrape
    })
    .await;
    scrape.sample("pg_advisory_lock_holders").with("key", "40").is(40.0);
    scrape.sample("pg_advisory_lock_table_entries").is(before + 1.0);
    scrape.sample("pg_advisory_lock_table_capacity").is(70.0 * 100.0);
}

#[tokio::test]
async fn the_snapshot_says_who_in_what_scope_and_how_that_is_known() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let holder = postgres.holds("pod-a", "42").await;
    let waiter = postgres.waits("pod-b", "42").await;
    let undecided = postgres.session("pod-c").await;
    undecided.run("BEGIN; SELECT pg_advisory_xact_lock(43)").await;
    let failed = postgres.session("pod-d").await;
    failed.run("BEGIN; SELECT pg_advisory_lock(44)").await;
    failed.try_run("SELECT 1 / 0").await.expect_err("it fails");
    exporter.scrape_fresh().await;

    let snapshot = exporter.snapshot().await;
    assert_eq!(snapshot["up"], true);
    assert_eq!(snapshot["error"], Value::Null);
    assert_eq!(snapshot["looked_at"]["rows"], 4);
    let lock = lock_of(&snapshot, "app", &json!("42"));
    assert_eq!(lock["lock"], Value::Null);
    let shown = &lock["holders"][0];
    assert_eq!(shown["pid"], holder.pid());
    assert_eq!(shown["application_name"], "pod-a");
    assert_eq!(shown["usename"], "postgres", "the reader sits on this machine");
    assert_eq!(shown["state"], "idle");
    assert_eq!(shown["mode"], "exclusive");
    assert_eq!(shown["scope"], "session");
    assert_eq!(shown["scope_evidence"], "session: the backend was idle outside a transaction");
    let shown = &lock["waiters"][0];
    assert_eq!(shown["pid"], waiter.session.pid());
    assert_eq!(shown["application_name"], "pod-b");
    assert_eq!(shown["state"], "active");

    let undecided = &lock_of(&snapshot, "app", &json!("43"))["holders"][0];
    assert_eq!(undecided["scope"], "unknown");
    assert_eq!(undecided["scope_evidence"], "session or transaction");
    let failed = &lock_of(&snapshot, "app", &json!("44"))["holders"][0];
    assert_eq!(failed["scope"], "session");
    assert_eq!(failed["scope_evidence"], "session: it outlived a failed transaction");
}
