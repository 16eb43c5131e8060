//! Who waits for whom, and what may be done about it, as one on call would read it off a real
//! server: the roots are those who really keep others out, and doing what a remedy says really lets
//! them in.

use serde_json::{Value, json};
use tokio_postgres::error::SqlState;

use crate::explain::{self, explain};
use crate::support::snapshot::{pids, statement};
use crate::support::{Exporter, Postgres, Session, eventually, require};

async fn watch(postgres: &Postgres, registry: &str) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { snapshot_age: 1000 }")
        .registry(registry)
        .start()
        .await;
    exporter.scrape_fresh().await;
    exporter
}

/// As a chain names a session.
fn pid(session: &Session) -> Option<i64> {
    Some(session.pid().into())
}

/// One that keeps another out.
fn blocker(session: &Session, kind: &str) -> Value {
    json!({ "pid": session.pid(), "kind": kind, "certain": true })
}

#[tokio::test]
async fn a_queued_writer_keeps_new_readers_out_and_the_old_readers_are_the_roots() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began.
    }
    let exporter = watch(&postgres, "locks: []").await;
    let shared = "SELECT pg_advisory_lock_shared(900)";
    let (one, other) = (postgres.session("reader").await, postgres.session("reader").await);
    one.run(shared).await;
    other.run(shared).await;
    let writer = postgres.waits("writer", "900").await;
    let late = postgres.session("late-reader").await;
    let late_wait = late.start(shared);
    postgres.until_waiting(&late).await;
    let hasty = postgres.session("hasty-reader").await;
    let is_let_in = hasty.value("SELECT pg_try_advisory_lock_shared(900)").await;
    assert_eq!(is_let_in.as_deref(), Some("f"), "it would have to wait behind the writer");

    let lock = eventually("both waits have a start", async || {
        let lock = exporter.lock("900").await;
        assert!(lock.waiter(&late)["waiting_since"].is_string());
        lock
    })
    .await;
    assert_eq!((lock.count("holders"), lock.count("waiters")), (2, 2), "a try leaves no trace");
    let mut readers = [pid(&one), pid(&other)];
    readers.sort();
    for waiter in [&writer.session, &late] {
        let mut roots = pids(&lock.waiter(waiter)["roots"]);
        roots.sort();
        assert_eq!(roots, readers, "{:#}", *lock);
    }
    let mut blockers = pids(&lock.waiter(&writer.session)["blocked_by"]);
    blockers.sort();
    assert_eq!(blockers, readers);
    assert_eq!(lock.waiter(&writer.session)["mode"], "exclusive");
    assert_eq!(lock.waiter(&late)["mode"], "share");
    assert_eq!(lock.waiter(&late)["blocked_by"], json!([blocker(&writer.session, "soft")]));
    for reader in [&one, &other] {
        let holder = lock.holder(reader);
        assert_eq!((&holder["mode"], &holder["blocks"]), (&json!("share"), &json!(2)));
        assert_eq!(holder["frees_next"], json!([]), "the other reader still holds");
    }
    let scrape = exporter.scrape_fresh().await;
    let of_key = |name: &str| scrape.sample(name).with("key", "900");
    of_key("pg_advisory_lock_roots").with("application_name", "reader").is(2.0);
    of_key("pg_advisory_lock_roots").with("application_name", "writer").absent();
    of_key("pg_advisory_lock_blocked_sessions").is(2.0);
    let since = lock.waiter(&late)["waiting_since"].clone();

    one.close().await;
    let lock = eventually("one reader is left", async || {
        let lock = exporter.lock("900").await;
        assert_eq!(lock.count("holders"), 1);
        lock
    })
    .await;
    assert_eq!(lock.holder(&other)["frees_next"], json!([writer.session.pid()]));
    other.close().await;
    writer.statement.finish().await;
    let lock = exporter.lock("900").await;
    assert_eq!(lock.only_holder()["pid"], writer.session.pid());
    let waiter = lock.waiter(&late);
    assert_eq!(waiter["blocked_by"], json!([blocker(&writer.session, "hard")]));
    assert_eq!(waiter["waiting_since"], since, "it has waited all along");
    writer.session.close().await;
    late_wait.finish().await;
}

#[tokio::test]
async fn an_idle_holder_is_the_root_of_a_whole_queue_and_ending_it_lets_the_first_in() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began.
    }
    let exporter = watch(&postgres, "locks: [{ name: cron, key: 5150, max_wait: 1s }]").await;
    let leader = postgres.holds("cron-leader", "5150").await;
    let first = postgres.waits("cron-follower", "5150").await;
    let second = postgres.waits("cron-follower", "5150").await;
    let third = postgres.waits("cron-follower", "5150").await;
    let lock = eventually("somebody has waited for too long", async || {
        let lock = exporter.lock("5150").await;
        assert_eq!(lock.findings(), ["waiting_too_long", "stuck"]);
        assert_eq!(lock.finding("waiting_too_long")["sessions_count"], 3);
        lock
    })
    .await;
    let ahead = [&leader, &first.session, &second.session].map(pid);
    let waiters = [&first, &second, &third].map(|waiter| lock.waiter(&waiter.session));
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(pids(&waiter["blocked_by"]), ahead[..=number], "in the order of the queue");
        assert_eq!(pids(&waiter["roots"]), [pid(&leader)], "waiters do not block each other");
        let root = &waiter["roots"][0];
        assert_eq!((&root["state"], &root["holds_key"]), (&json!("idle"), &json!(true)));
        assert_eq!((&root["in_cycle"], &root["blocks"]), (&json!(false), &json!(3)));
    }
    let holder = lock.holder(&leader);
    assert_eq!((&holder["blocks"], &holder["blocks_through"]), (&json!(3), &json!(["advisory"])));
    assert_eq!(holder["frees_next"], json!([first.session.pid()]));
    let waiting = lock.finding("waiting_too_long");
    let text = waiting["text"].as_str().expect("a sentence");
    let ends_at = format!("; its chain ends at session {} (cron-leader)", leader.pid());
    assert!(text.contains(&ends_at), "{text}");
    let stuck = lock.finding("stuck");
    assert_eq!((&stuck["severity"], &stuck["pids"]), (&json!("critical"), &json!([leader.pid()])));
    assert_eq!(statement(stuck), format!("SELECT pg_terminate_backend({})", leader.pid()));
    assert_eq!(statement(waiting), statement(stuck), "both point at the root");

    let operator = postgres.session("operator").await;
    operator.run(statement(stuck)).await;
    first.statement.finish().await;
    let lock = exporter.lock("5150").await;
    assert_eq!(lock.only_holder()["pid"], first.session.pid());
    assert_eq!(pids(&lock.waiter(&third.session)["roots"]), [pid(&first.session)]);
    let findings = lock.findings();
    assert!(!findings.contains(&"stuck"), "the next hold is young: {findings:?}");
}

#[tokio::test]
async fn a_root_without_an_advisory_lock_is_found_behind_a_holder_that_waits_for_a_row() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres, "locks: [{ name: acct, key: 4711, max_wait: 1s }]").await;
    let batch = postgres.session("batch").await;
    batch.run("CREATE TABLE acct (id int, v int); INSERT INTO acct VALUES (1, 0)").await;
    batch.run("BEGIN; UPDATE acct SET v = v + 1 WHERE id = 1").await;
    let middle = postgres.holds("middle", "4711").await;
    let update = middle.start("UPDATE acct SET v = 2 WHERE id = 1");
    postgres.until_waiting(&middle).await;
    let leaf = postgres.waits("leaf", "4711").await;

    let lock = eventually("the leaf has waited for too long", async || {
        let lock = exporter.lock("4711").await;
        assert_eq!(lock.findings(), ["waiting_too_long"], "its holder is not idle");
        lock
    })
    .await;
    let holder = lock.holder(&middle);
    assert_eq!((&holder["blocks"], &holder["has_written"]), (&json!(1), &json!(true)));
    assert_eq!(holder["state"], "active");
    let waiter = lock.waiter(&leaf.session);
    assert_eq!(pids(&waiter["blocked_by"]), [pid(&middle)]);
    assert_eq!(
        waiter["roots"],
        json!([{
            "pid": batch.pid(), "application_name": "batch", "state": "idle in transaction",
            "holds_key": false, "in_cycle": false, "blocks": 2,
        }])
    );
    let scrape = exporter.scrape_fresh().await;
    let roots = scrape.sample("pg_advisory_lock_roots").with("key", "4711");
    roots.with("application_name", "batch").with("holds_key", "false").is(1.0);
    let finding = lock.finding("waiting_too_long");
    assert_eq!(statement(finding), format!("SELECT pg_terminate_backend({})", batch.pid()));

    let operator = postgres.session("operator").await;
    operator.run(statement(finding)).await;
    update.finish().await;
    let lock = exporter.lock("4711").await;
    let roots = pids(&lock.waiter(&leaf.session)["roots"]);
    assert_eq!(roots, [pid(&middle)], "the way is free as far as the holder");
}

#[tokio::test]
async fn a_waiters_snapshot_is_told_beside_the_root_it_waits_for_and_cancelling_frees_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let registry = "locks: [{ name: indexer, key: 46630, max_wait: 1s }]";
    let exporter = watch(&postgres, registry).await;
    let old = postgres.holds("indexer-old", "46630").await;
    let new = postgres.waits("indexer-new", "46630").await;
    let operator = postgres.session("operator").await;
    let many = "DO $$ BEGIN FOR i IN 1..1500 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$";
    operator.run(many).await;

    let lock = eventually("the wait lasts too long", async || {
        let lock = exporter.lock("46630").await;
        let findings = lock.findings();
        assert_eq!(findings, ["waiting_too_long", "stuck", "waiter_holds_back_vacuum"]);
        lock
    })
    .await;
    let age = |session: &Session| {
        format!("SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = {}", session.pid())
    };
    assert_eq!(operator.value(&age(&old)).await, None, "who is idle has no snapshot");
    let age = operator.value(&age(&new.session)).await.expect("who waits has one");
    let waiter = lock.waiter(&new.session);
    assert_eq!(waiter["xmin_age"].to_string(), age);
    assert_eq!(pids(&waiter["roots"]), [pid(&old)], "who pins and who blocks are two");
    let finding = lock.finding("waiter_holds_back_vacuum");
    assert_eq!(finding["pids"], json!([new.session.pid()]));
    let text = finding["text"].as_str().expect("a sentence");
    assert!(text.contains(&format!("a snapshot that is {age} transactions old")), "{text}");
    let scrape = exporter.scrape_fresh().await;
    let age: f64 = age.parse().expect("a number");
    scrape.sample("pg_advisory_lock_waiter_snapshot_age").with("lock", "indexer").is(age);
    let findings = scrape.sample("pg_advisory_lock_findings").with("lock", "indexer");
    findings.with("finding", "waiter_holds_back_vacuum").is(1.0);

    operator.run(statement(finding)).await;
    let error = new.statement.try_finish().await.expect_err("it is cancelled");
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
    let lock = exporter.lock("46630").await;
    assert_eq!((lock.count("holders"), lock.count("waiters")), (1, 0), "the holder is left alone");
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_waiter_snapshot_age").with("lock", "indexer").absent();
}

#[tokio::test]
async fn the_victim_of_a_deadlock_with_an_index_build_has_acquired_nothing() {
    const KEY: &str = "77431133147203";
    require!(Postgres);
    let postgres = Postgres::builder().setting("log_lock_waits", "on").start().await;
    postgres.session("setup").await.run("CREATE TABLE big (i int, j int)").await;
    let exporter = watch(&postgres, "locks: []").await;
    let builder = postgres.holds("flyway-a", KEY).await;
    builder.run("SET deadlock_timeout = '1h'").await;
    let victim = postgres.session("flyway-b").await;
    // Time enough for a look at the circle.
    victim.run("SET deadlock_timeout = '3s'").await;
    let wait = victim.start(&format!("SELECT pg_advisory_lock({KEY})"));
    postgres.until_waiting(&victim).await;
    let build = builder.start("CREATE INDEX CONCURRENTLY bigj ON big (j)");
    postgres.until_waiting(&builder).await;

    let lock = exporter.lock(KEY).await;
    assert_eq!(lock["key"]["classid"], 18028);
    assert_eq!(lock["key"]["objid"], 1_462_734_915);
    let roots = &lock.waiter(&victim)["roots"];
    let mut circle = pids(roots);
    circle.sort();
    let mut expected = [pid(&builder), pid(&victim)];
    expected.sort();
    assert_eq!(circle, expected, "{roots}");
    assert_eq!(roots[0]["in_cycle"], true);

    let error = wait.try_finish().await.expect_err("somebody has to give way");
    assert_eq!(error.code(), Some(&SqlState::T_R_DEADLOCK_DETECTED));
    build.finish().await;
    let lock = exporter.lock(KEY).await;
    assert_eq!(lock.only_holder()["pid"], builder.pid());
    assert_eq!(lock.count("waiters"), 0);
    let scrape = exporter.scrape_fresh().await;
    let of_key = |name: &str| scrape.sample(name).with("lock", "flyway-migrate");
    of_key("pg_advisory_lock_acquisitions_observed_total").is(1.0);
    of_key("pg_advisory_lock_waits_observed_total").is(1.0);
    let granted = scrape.sample("pg_advisory_lock_wait_duration_seconds_count");
    assert!(granted.with("outcome", "granted").values().iter().all(|count| *count == 0.0));

    let told = explain::json(&explain(&["--json"], postgres.log().as_bytes()));
    let deadlocks = told["deadlocks"].as_array().expect("a list");
    assert_eq!(deadlocks.len(), 1, "{told:#}");
    assert_eq!(deadlocks[0]["victim"], victim.pid());
    let waits = deadlocks[0]["waits"].as_array().expect("a list");
    let of = |session: &Session| {
        let wait = waits.iter().find(|wait| wait["pid"] == session.pid());
        &wait.unwrap_or_else(|| panic!("{told:#}"))["object"]
    };
    assert_eq!(of(&victim)["key"]["text"], KEY);
    assert_eq!(of(&builder)["key"], Value::Null, "it waits for a transaction's end");
}
