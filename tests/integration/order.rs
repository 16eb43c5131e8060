//! In which order sessions take keys, on a real server: seen before, while and after two of them
//! deadlock, and never where nobody waits.

use serde_json::{Value, json};

use crate::support::{Exporter, Postgres, Scrape, eventually, require};

const REGISTRY: &str = "
locks:
  - { name: account-one, key: 9001, databases: [app] }
  - { name: account-other, key: 9002, databases: [app] }
";

async fn watch(postgres: &Postgres) -> Exporter {
    Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await
}

/// The pairs of keys taken in both orders, as the snapshot has them.
async fn lock_orders(exporter: &Exporter) -> Value {
    exporter.snapshot().await["lock_orders"].take()
}

fn is_inversion_at_both_accounts(scrape: &Scrape) {
    for (lock, key) in [("account-one", "9001"), ("account-other", "9002")] {
        scrape
            .sample("pg_advisory_lock_findings")
            .with("datname", "app")
            .with("lock", lock)
            .with("key", key)
            .with("finding", "order_inversion")
            .with("severity", "warning")
            .is(1.0);
    }
}

fn has_no_inversion(scrape: &Scrape) {
    scrape.sample("pg_advisory_lock_findings").with("finding", "order_inversion").absent();
}

#[tokio::test]
async fn a_deadlock_shows_both_orders_while_it_lasts_and_after_the_server_broke_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let there = postgres.session("transfer-there").await;
    let back = postgres.session("transfer-back").await;
    // The one who comes last looks for the deadlock, some polls later.
    there.run("SET deadlock_timeout = '1h'; BEGIN; SELECT pg_advisory_xact_lock(9001)").await;
    back.run("SET deadlock_timeout = '6s'; BEGIN; SELECT pg_advisory_xact_lock(9002)").await;
    let there_waits = there.start("SELECT pg_advisory_xact_lock(9002)");
    postgres.until_waiting(&there).await;
    has_no_inversion(&exporter.scrape_fresh().await);
    let back_waits = back.start("SELECT pg_advisory_xact_lock(9001)");

    eventually("both orders are seen while the two wait", async || {
        let server = exporter.snapshot().await;
        let waiting = server["locks"].as_array().into_iter().flatten();
        let in_cycle = waiting.filter(|lock| lock["waiters"][0]["roots"][0]["in_cycle"] == true);
        assert_eq!(in_cycle.count(), 2);
        let orders = &server["lock_orders"][0];
        assert_eq!(orders["is_finding"], true);
        assert_eq!(orders["keys"][0]["lock"], "account-one");
        let [one, other] = [0, 1].map(|side| &orders["orders"][side]);
        assert_eq!((&one["pid"], &other["pid"]), (&json!(there.pid()), &json!(back.pid())));
        assert_eq!((&one["grade"], &other["grade"]), (&json!("certain"), &json!("certain")));
        assert_eq!((&one["held"]["text"], &one["taken"]["text"]), (&json!("9001"), &json!("9002")));
    })
    .await;
    is_inversion_at_both_accounts(&exporter.scrape().await);

    back_waits.try_finish().await.expect_err("the server ends it");
    there_waits.finish().await;
    there.run("ROLLBACK").await;
    back.run("ROLLBACK").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("lock", "account-one").is(0.0);
    is_inversion_at_both_accounts(&scrape);
}

#[tokio::test]
async fn two_orders_at_two_times_are_told_without_any_deadlock() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let there = postgres.holds("transfer-there", "9001").await;
    let back = postgres.holds("transfer-back", "9002").await;
    let waits = there.start("SELECT pg_advisory_lock(9002)");
    postgres.until_waiting(&there).await;
    has_no_inversion(&exporter.scrape_fresh().await);
    back.run("SELECT pg_advisory_unlock_all()").await;
    waits.finish().await;
    there.run("SELECT pg_advisory_unlock_all()").await;
    has_no_inversion(&exporter.scrape_fresh().await);

    there.run("SELECT pg_advisory_lock(9001)").await;
    back.run("SELECT pg_advisory_lock(9002)").await;
    let waits = back.start("SELECT pg_advisory_lock(9001)");
    postgres.until_waiting(&back).await;
    is_inversion_at_both_accounts(&exporter.scrape_fresh().await);
    there.run("SELECT pg_advisory_unlock_all()").await;
    waits.finish().await;
    back.run("SELECT pg_advisory_unlock_all()").await;

    is_inversion_at_both_accounts(&exporter.scrape_fresh().await);
    let free = exporter.snapshot().await["locks"].take();
    for (lock, name) in
        free.as_array().expect("a list").iter().zip(["account-one", "account-other"])
    {
        assert_eq!((&lock["lock"], &lock["holders"]), (&json!(name), &json!([])));
        let finding = &lock["findings"][0];
        let text = finding["text"].as_str().expect("a sentence");
        for piece in ["(transfer-there)", "(transfer-back)", "account-one", "may deadlock"] {
            assert!(text.contains(piece), "{text}");
        }
    }
}

#[tokio::test]
async fn a_key_taken_under_a_hold_that_somebody_waits_for_is_a_hint() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began, and so not that it went on.
    }
    let exporter = watch(&postgres).await;
    let there = postgres.holds("transfer-there", "9001").await;
    let other = postgres.waits("other", "9001").await;
    exporter.scrape_fresh().await;
    there.run("SELECT pg_advisory_lock(9002)").await;
    exporter.scrape_fresh().await;
    there.run("SELECT pg_advisory_unlock_all()").await;
    other.statement.finish().await;

    // The first holds one key and the second waits for it with the other; somebody waits for that.
    let back = postgres.holds("transfer-back", "9002").await;
    let back_waits = back.start("SELECT pg_advisory_lock(9001)");
    postgres.until_waiting(&back).await;
    has_no_inversion(&exporter.scrape_fresh().await);
    let _last = postgres.waits("last", "9002").await;
    is_inversion_at_both_accounts(&exporter.scrape_fresh().await);
    let orders = lock_orders(&exporter).await;
    let [one, other_way] = [0, 1].map(|side| &orders[0]["orders"][side]);
    assert_eq!((&one["grade"], &one["pid"]), (&json!("hint"), &json!(there.pid())));
    assert_eq!((&other_way["grade"], &other_way["pid"]), (&json!("certain"), &json!(back.pid())));
    other.session.run("SELECT pg_advisory_unlock_all()").await;
    back_waits.finish().await;
}

#[tokio::test]
async fn who_only_ever_tries_makes_no_order() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    for (application, keys) in [("there", [9001, 9002]), ("back", [9002, 9001])] {
        let session = postgres.session(application).await;
        for key in keys {
            session.run(&format!("SELECT pg_try_advisory_lock({key})")).await;
            exporter.scrape_fresh().await;
        }
        session.run("SELECT pg_advisory_unlock_all()").await;
    }
    has_no_inversion(&exporter.scrape_fresh().await);
    assert_eq!(lock_orders(&exporter).await, json!([]));
}
