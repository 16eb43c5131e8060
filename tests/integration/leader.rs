//! Locks that are held on purpose for as long as a program runs: missed when nobody holds them,
//! handed on when their holder dies, and never held too long.

use serde_json::{Value, json};

use crate::support::{Exporter, Postgres, eventually, require};

const REGISTRY: &str = "
locks:
  - name: leader
    key: { hashtext: boss-leader }
    databases: [app]
    scope: session
    holders: ['boss-*']
    must_be_held: true
    vacant_for: 1s
    max_hold: unlimited
    max_wait: unlimited
  - { name: pg-boss-migrate, max_hold: 1s, max_wait: 1s }
";
const KEY: &str = "hashtext('boss-leader')";

struct Stage {
    postgres: Postgres,
    exporter: Exporter,
    /// The key as the snapshot spells it.
    key: String,
}

async fn stage() -> Stage {
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { idle_in_transaction: 1s }")
        .registry(REGISTRY)
        .start()
        .await;
    let operator = postgres.session("operator").await;
    let key = operator.value(&format!("SELECT {KEY}")).await.expect("a number");
    Stage { postgres, exporter, key }
}

impl Stage {
    async fn until_vacant(&self) {
        let lock = eventually("nobody leads", async || self.exporter.lock(&self.key).await).await;
        assert_eq!((lock.count("holders"), lock.findings()), (0, vec!["vacant"]));
        assert_eq!(lock.finding("vacant")["severity"], "critical");
        self.assert_vacant(1.0).await;
    }

    async fn assert_vacant(&self, expected: f64) {
        let scrape = self.exporter.scrape_fresh().await;
        let findings = scrape.sample("pg_advisory_lock_findings").with("lock", "leader");
        findings.with("finding", "vacant").with("severity", "critical").is(expected);
    }
}

#[tokio::test]
async fn a_leader_whose_connection_dies_is_followed_at_once_or_missed_after_the_grace() {
    require!(Postgres);
    let stage = stage().await;
    stage.until_vacant().await;
    let first = stage.postgres.holds("boss-1", KEY).await;
    let (first_pid, first_start) = (first.pid(), first.backend_start());
    stage.assert_vacant(0.0).await;
    let second = stage.postgres.waits("boss-2", KEY).await;
    let lock = stage.exporter.lock(&stage.key).await;
    assert_eq!(lock.only_holder()["pid"], first_pid);
    assert_eq!(lock.waiter(&second.session)["roots"][0]["pid"], first_pid);

    // As a process that is killed: its socket is closed, and nothing is said.
    drop(first);
    second.statement.finish().await;
    let lock = stage.exporter.lock(&stage.key).await;
    assert_eq!(lock.only_holder()["pid"], second.session.pid());
    assert_eq!(lock.findings(), [""; 0]);
    let scrape = stage.exporter.scrape_fresh().await;
    let changes = scrape.sample("pg_advisory_lock_holder_changes_total");
    changes.with("lock", "leader").is(1.0);
    let events = stage.exporter.get("/api/v1/events?lock=leader", &[]).await;
    let events: Value = serde_json::from_slice(&events.body).expect("it is JSON");
    let mut events = events["events"].as_array().expect("a list").iter();
    let change = events.find(|event| event["event"] == "holder_changed").expect("it is told");
    assert_eq!(
        (&change["from"]["pid"], &change["pid"]),
        (&json!(first_pid), &lock.only_holder()["pid"])
    );
    assert!(second.session.backend_start() > first_start);

    let operator = stage.postgres.session("operator").await;
    operator.run(&format!("SELECT pg_terminate_backend({})", second.session.pid())).await;
    stage.until_vacant().await;
}

/// As pg-boss works: maintenance under locks of transactions, one leader under a session's, and
/// workers that fetch with `SKIP LOCKED`.
#[tokio::test]
async fn a_job_queue_at_work_has_names_for_its_locks_and_a_leader_that_may_lead_for_ever() {
    require!(Postgres);
    let stage = stage().await;
    let postgres = &stage.postgres;
    let leader = postgres.holds("boss-1", KEY).await;
    leader.run("CREATE TABLE job (id int); INSERT INTO job SELECT generate_series(1, 10)").await;
    let mut workers = Vec::new();
    for number in 0..3 {
        let worker = postgres.session(&format!("worker-{number}")).await;
        worker.run("BEGIN; SELECT id FROM job LIMIT 1 FOR UPDATE SKIP LOCKED").await;
        workers.push(worker);
    }
    let migrate = "SELECT pg_advisory_xact_lock(\
                   ('x' || encode(sha224((current_database() || '.pgboss.pgboss')::bytea), 'hex'))\
                   ::bit(64)::bigint)";
    let migrating = postgres.session("boss-1").await;
    migrating.run(&format!("BEGIN; {migrate}")).await;
    let late = postgres.session("boss-2").await;
    let wait = late.start(&format!("BEGIN; {migrate}; COMMIT"));
    postgres.until_waiting(&late).await;

    eventually("maintenance stalls, and the leader is well", async || {
        let scrape = stage.exporter.scrape_fresh().await;
        let sample = |name: &str, lock: &str| scrape.sample(name).with("lock", lock).values();
        assert_eq!(sample("pg_advisory_lock_holders", "pg-boss-migrate"), [1.0]);
        assert_eq!(sample("pg_advisory_lock_waiters", "pg-boss-migrate"), [1.0]);
        assert_eq!(sample("pg_advisory_lock_blocked_sessions", "leader"), [0.0]);
        let findings = scrape.sample("pg_advisory_lock_findings").with("lock", "pg-boss-migrate");
        for finding in ["held_too_long", "waiting_too_long", "holder_idle_in_transaction", "stuck"]
        {
            findings.clone().with("finding", finding).is(1.0);
        }
        let lock = stage.exporter.lock(&stage.key).await;
        assert_eq!(lock.only_holder()["application_name"], "boss-1");
        assert_eq!(lock.findings(), [""; 0], "though it has held for as long");
        assert_eq!(lock["limits"]["max_hold_seconds"], "unlimited");
        assert!(lock.only_holder()["seen_for_seconds"].as_f64().is_some_and(|age| age > 1.0));
    })
    .await;
    migrating.run("COMMIT").await;
    wait.finish().await;
    // The leader is too busy to answer, and is ended with its lock.
    drop((leader, workers));
    stage.until_vacant().await;
}
