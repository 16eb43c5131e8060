//! Waits that end without the lock, and clients that give up and come back: neither is an
//! acquisition, and together they are a finding about the hold that outlasts them.

use serde_json::{Value, json};
use tokio_postgres::error::SqlState;

use crate::explain::{self, explain};
use crate::support::snapshot::statement;
use crate::support::{Exporter, Postgres, Scrape, Session, eventually, require};

const REGISTRY: &str = "locks: [{ name: role, key: 334, databases: [app], max_wait: 1s }]";

async fn watch(postgres: &Postgres) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    exporter.scrape_fresh().await;
    exporter
}

/// Acquisitions, waits, abandoned waits and changes of the holder that were seen of the key.
fn counted(scrape: &Scrape) -> [f64; 4] {
    ["acquisitions_observed", "waits_observed", "waits_abandoned", "holder_changes"].map(|what| {
        scrape.sample(&format!("pg_advisory_lock_{what}_total")).with("lock", "role").value()
    })
}

/// A wait for the key that the exporter sees before it ends by this setting.
async fn give_up(postgres: &Postgres, exporter: &Exporter, session: &Session, setting: &str) {
    session.run(&format!("RESET ALL; SET {setting} = '1500ms'")).await;
    let wait = session.start("SELECT pg_advisory_xact_lock(334)");
    postgres.until_waiting(session).await;
    let lock = exporter.lock("334").await;
    assert_eq!(lock.count("waiters"), 1, "{:#}", *lock);
    let error = wait.try_finish().await.expect_err("its patience ends");
    let code = match setting {
        "lock_timeout" => SqlState::LOCK_NOT_AVAILABLE,
        _ => SqlState::QUERY_CANCELED,
    };
    assert_eq!(error.code(), Some(&code));
}

#[tokio::test]
async fn a_wait_that_times_out_left_without_the_lock() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("log_lock_waits", "on")
        .setting("deadlock_timeout", "100ms")
        .start()
        .await;
    let exporter = watch(&postgres).await;
    let holder = postgres.holds("apply", "334").await;
    let before = counted(&exporter.scrape_fresh().await);
    assert_eq!(before, [1.0, 0.0, 0.0, 0.0]);
    let provider = postgres.session("provider").await;
    for (number, setting) in [(1.0, "lock_timeout"), (2.0, "statement_timeout")] {
        give_up(&postgres, &exporter, &provider, setting).await;
        let scrape = exporter.scrape_fresh().await;
        assert_eq!(counted(&scrape), [1.0, number, number, 0.0], "after {setting}");
        scrape.sample("pg_advisory_lock_waiters").with("lock", "role").is(0.0);
        let durations = scrape.sample("pg_advisory_lock_wait_duration_seconds_count");
        durations.with("lock", "role").with("outcome", "gone").is(number);
    }
    let lock = exporter.lock("334").await;
    assert_eq!(lock.only_holder()["pid"], holder.pid());
    let events = exporter.get("/api/v1/events?lock=role", &[]).await;
    let events: Value = serde_json::from_slice(&events.body).expect("it is JSON");
    let ended = events["events"].as_array().expect("a list").iter();
    let outcomes: Vec<_> = ended
        .filter(|event| event["event"] == "wait_ended")
        .map(|event| (&event["pid"], &event["outcome"]))
        .collect();
    assert_eq!(outcomes, [(&json!(provider.pid()), &json!("gone")); 2]);
    let help = &exporter.scrape().await.help()["pg_advisory_lock_waits_observed_total"].clone();
    assert!(help.contains("shorter than the poll interval are mostly missed"), "{help}");

    let told = explain::json(&explain(&["--json"], postgres.log().as_bytes()));
    let lock = &told["locks"][0];
    assert_eq!(lock["key"]["text"], "334");
    assert_eq!(lock["waiting_pids"], json!([]));
    assert_eq!(lock["ended_waits"], json!({ "lock_timeout": 1, "statement_timeout": 1 }));
    assert_eq!(lock["longest_wait"]["holder_pids"], json!([holder.pid()]));
}

#[tokio::test]
async fn a_holder_that_its_timeout_ends_lets_the_next_in_and_is_no_end_of_a_wait() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let holder = postgres.session("apply").await;
    let begin = "SET idle_in_transaction_session_timeout = '800ms'; \
                 BEGIN; SELECT pg_advisory_xact_lock(334)";
    holder.run(begin).await;
    let next = postgres.waits("provider", "334").await;
    let lock = exporter.lock("334").await;
    assert_eq!((lock.count("holders"), lock.count("waiters")), (1, 1), "{:#}", *lock);
    assert_eq!(lock.only_holder()["pid"], holder.pid());

    next.statement.finish().await;
    let lock = exporter.lock("334").await;
    assert_eq!(lock.only_holder()["pid"], next.session.pid());
    assert_eq!(counted(&exporter.scrape_fresh().await), [2.0, 1.0, 0.0, 1.0]);
    assert!(holder.try_run("COMMIT").await.is_err(), "its session is over, and it learns late");
}

/// No wait is longer than a third of the limit.
#[tokio::test]
async fn clients_that_give_up_and_come_back_behind_an_idle_holder_are_kept_out_by_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began.
    }
    let exporter = watch(&postgres).await;
    let holder = postgres.holds("apply", "334").await;
    let checkout = postgres.session("checkout").await;
    checkout.run("SET lock_timeout = '300ms'").await;
    let lock = eventually("the hold is told", async || {
        let wait = checkout.start("SELECT pg_advisory_lock(334)");
        postgres.until_waiting(&checkout).await;
        let lock = exporter.lock("334").await;
        let _ = wait.try_finish().await;
        assert_eq!(lock.findings(), ["waiting_too_long", "stuck"]);
        lock
    })
    .await;
    for name in ["waiting_too_long", "stuck"] {
        let finding = lock.finding(name);
        assert_eq!(finding["pids"], json!([holder.pid()]), "it is about who stays: {finding}");
        assert_eq!(statement(finding), format!("SELECT pg_terminate_backend({})", holder.pid()));
    }
    let waited = lock["waiters"][0]["waited_seconds"].as_f64();
    assert!(waited.is_none_or(|seconds| seconds < 1.0), "{waited:?}");
    let [acquired, waits, abandoned, changes] = counted(&exporter.scrape_fresh().await);
    assert_eq!((acquired, changes), (1.0, 0.0));
    assert!(abandoned >= 2.0 && waits >= abandoned, "{abandoned} of {waits}");
    let scrape = exporter.scrape_fresh().await;
    let since = scrape.sample("pg_advisory_lock_contended_since_timestamp_seconds");
    since.with("lock", "role").present();

    postgres.session("operator").await.run(statement(lock.finding("stuck"))).await;
    eventually("the next one gets it", async || checkout.run("SELECT pg_advisory_lock(334)").await)
        .await;
    let lock = exporter.lock("334").await;
    assert_eq!(lock.only_holder()["pid"], checkout.pid());
    assert_eq!(lock.findings(), [""; 0]);
}
