//! The chapter on naming, on a real server: the applications of each scenario take their
//! locks with the SQL they would use, and the snapshot calls them as the chapter says.

use crate::support::{Exporter, Postgres, eventually, require};

/// What an application passes to `pg_advisory_lock`, in which database, and how the lock is shown.
/// `None` where the chapter says that there is no name.
const LOCKS: [(&str, &str, Option<&str>); 23] = [
    ("app", "hashtextextended('cron:recalc-reward-points', 0)", Some("recalc-reward-points")),
    ("app2", "hashtextextended('cron:recalc-reward-points', 0)", None),
    (
        "app",
        "hashtextextended('signup:' || lower('An@Example.com'), 0)",
        Some("signup (email an@example.com)"),
    ),
    ("app", "hashtextextended('signup:cy@example.com', 0)", None),
    ("app", "hashtextextended('signup:pooled', 0)", Some("signup-pooled")),
    ("app", "hashtext('settlement:eu')", Some("settlement")),
    (
        "app",
        "('x' || left(encode(sha256('process-customer:cust_12345'), 'hex'), 16))::bit(64)::bigint",
        Some("process-customer (customer cust_12345)"),
    ),
    ("app", "hashtext('jobs'), hashtext('job:nightly')", Some("jobs")),
    ("app", "42", Some("nightly-billing")),
    ("app2", "42", None),
    ("app", "5005", Some("ledger-close")),
    ("app", "1", Some("catalogue")),
    ("app", "0, 1", Some("inventory-pairs")),
    ("app", "7007", Some("report")),
    ("app", "9001", Some("account-one")),
    ("app", "1010", Some("inventory-sync")),
    ("app", "1000123", Some("order-rows (row 1000123)")),
    ("app", "7, 99", Some("tenant-reindex (tenant 99)")),
    ("app", "99", None),
    ("app", "(5::bigint << 32) | 42", Some("tenant-resource (tenant 5, resource 42)")),
    ("app", "hashtext('boss-leader')", Some("pg-boss-leader")),
    (
        "app",
        "('x' || encode(sha224((current_database() || '.pgboss.jobs')::bytea), 'hex'))\
         ::bit(64)::bigint",
        Some("pg-boss-migrate (schema jobs)"),
    ),
    ("app", "72707369", Some("prisma-migrate")),
];

fn registries() -> Vec<String> {
    let chapter = include_str!("../../docs/naming.md");
    let blocks = chapter.split("```yaml registry\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_locks_of_the_chapters_applications_have_the_names_it_gives_them() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut exporter = Exporter::builder()
        .config(&format!("servers: [{{ name: orders-1, dsn: {:?} }}]\n", postgres.dsn("app")));
    for (number, text) in registries().iter().enumerate() {
        let path = folder.path().join(format!("{number}.yaml"));
        std::fs::write(&path, text).expect("the folder is ours");
        exporter = exporter.argument("--registry.file").argument(&path.to_string_lossy());
    }
    let exporter = exporter.start().await;
    let mut sessions = Vec::new();
    for (database, key, _) in LOCKS {
        let session = postgres.session_in(database, "app-1").await;
        session.run(&format!("SELECT pg_advisory_lock({key})")).await;
        sessions.push(session);
    }
    eventually("every lock has its name", async || {
        let snapshot = exporter.snapshot().await;
        let locks = snapshot["locks"].as_array().cloned().unwrap_or_default();
        assert_eq!(locks.len(), LOCKS.len(), "{snapshot:#}");
        for (session, (database, key, name)) in sessions.iter().zip(LOCKS) {
            let is_held = |lock: &&serde_json::Value| lock["holders"][0]["pid"] == session.pid();
            let lock = locks.iter().find(is_held).expect("it is held");
            assert_eq!(lock["display_name"].as_str(), name, "{key} in {database}: {lock:#}");
            assert_eq!(lock["datname"], database);
        }
    })
    .await;
}
