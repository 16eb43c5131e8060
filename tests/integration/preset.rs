//! Locks as tools really take them, on a real server: named without a registry file, and not named
//! where the number alone proves nothing.

use serde_json::Value;

use crate::support::{Exporter, Postgres, eventually, require};

/// What tools pass to `pg_advisory_lock` in the database `app`, in SQL where they do it in SQL, and
/// what the lock is then called, for series and for people.
const LOCKS: [(&str, &str, &str); 24] = [
    ("6939591962871035475", "rails-migrations", "rails-migrations"),
    // Active Record in another database than the one it is connected to.
    ("2053462845 * 3::bigint", "rails-migrations", "rails-migrations (crc32 3)"),
    ("3469795979745788610", "sqlx-migrate", "sqlx-migrate"),
    ("72707369", "prisma-migrate", "prisma-migrate"),
    ("1787120056", "golang-migrate", "golang-migrate (schema public, table schema_migrations)"),
    (
        "77433833903597",
        "flyway-migrate",
        "flyway-migrate (schema public, table flyway_schema_history)",
    ),
    // The history table of the schema app, which no preset knows of.
    ("77431436970681", "flyway-migrate", "flyway-migrate (low_half 1766558393)"),
    (
        "-1497367772, -977423767",
        "liquibase-sessionlock",
        "liquibase-sessionlock (table databasechangeloglock, schema public)",
    ),
    ("5887940537704921958", "goose-migrate", "goose-migrate"),
    ("2686470616", "atlas-migrate-apply", "atlas-migrate-apply (lock atlas_migrate_execute)"),
    ("9628173550095224", "tern-migrate", "tern-migrate"),
    ("3853314791062309107", "kysely-migrate", "kysely-migrate"),
    ("7241865325823964", "node-pg-migrate", "node-pg-migrate"),
    ("4727445306447283", "graphile-migrate", "graphile-migrate"),
    (
        "('x' || encode(sha224((current_database() || '.pgboss.pgboss')::bytea), 'hex'))\
         ::bit(64)::bigint",
        "pg-boss-migrate",
        "pg-boss-migrate (schema pgboss)",
    ),
    (
        "('x' || encode(sha224((current_database() || '.pgboss.pgbosscreate-queue')::bytea), 'hex'))\
         ::bit(64)::bigint",
        "pg-boss-create-queue",
        "pg-boss-create-queue (schema pgboss)",
    ),
    (
        "hashtext('pg_partman run_maintenance')",
        "pg-partman-run-maintenance",
        "pg-partman-run-maintenance",
    ),
    (
        "hashtext('pg_partman partition_data_proc'), hashtext('public.events')",
        "pg-partman-partition-data",
        "pg-partman-partition-data (parent_table_hash 1726799227)",
    ),
    ("16185446, -2147467264", "pg-repack", "pg-repack (oid 16384)"),
    ("hashtext('pg_backup')", "wal-g-backup", "wal-g-backup"),
    ("hashtext('alembic')", "alembic-migrations", "alembic-migrations"),
    (
        "hashtext('electric_slot_default')",
        "electric-replication",
        "electric-replication (slot electric_slot_default)",
    ),
    ("-708896969, -1", "distributed-lock", "distributed-lock (name jobs)"),
    ("1308612253, 0", "sourcegraph-migrations", "sourcegraph-migrations (table schema_migrations)"),
];

/// What the snapshot tells of a key.
fn lock_of<'a>(snapshot: &'a Value, key: &str) -> &'a Value {
    let locks = snapshot["locks"].as_array().expect("locks are known");
    let is_meant = |lock: &&Value| lock["key"]["text"] == key;
    locks.iter().find(is_meant).unwrap_or_else(|| panic!("no {key}: {snapshot:#}"))
}

#[tokio::test]
async fn locks_of_known_tools_have_their_names_without_a_registry_file() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("app")).start().await;
    for (number, (argument, lock, display_name)) in LOCKS.into_iter().enumerate() {
        let application = format!("tool-{number}");
        let session = postgres.holds(&application, argument).await;
        let scrape = exporter.scrape_fresh().await;
        let holders = scrape.sample("pg_advisory_lock_holders").with("datname", "app");
        holders.with("lock", lock).with("application_name", &application).is(1.0);

        let snapshot = exporter.snapshot().await;
        let locks = snapshot["locks"].as_array().expect("locks are known");
        let is_held = |lock: &&Value| lock["holders"][0]["application_name"] == *application;
        let held = locks.iter().find(is_held).unwrap_or_else(|| panic!("{argument}: {snapshot:#}"));
        assert_eq!((&held["lock"], &held["display_name"]), (&lock.into(), &display_name.into()));
        session.close().await;
    }
}

#[tokio::test]
async fn a_number_that_many_tools_use_has_no_name_and_candidates_with_their_reasons() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("app")).start().await;
    let _session = postgres.holds("pod-a", "1").await;
    eventually("the key is shown", async || {
        let scrape = exporter.scrape_fresh().await;
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "1");
        holders.with("lock", "unregistered").with("application_name", "pod-a").is(1.0);
    })
    .await;

    let snapshot = exporter.snapshot().await;
    let lock = lock_of(&snapshot, "1");
    assert_eq!(lock["lock"], Value::Null);
    let candidates = lock["candidates"].as_array().expect("a list");
    let names: Vec<&str> = candidates.iter().filter_map(|c| c["lock"].as_str()).collect();
    let expected = [
        "airflow-migrations",
        "coder-deployment-setup",
        "graph-node-migrations",
        "spicedb-garbage-collection",
    ];
    assert_eq!(names, expected);
    for candidate in candidates {
        let reason = candidate["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("preset"), "{candidate}");
    }
}

#[tokio::test]
async fn a_number_that_many_tools_use_has_the_name_of_the_tool_whose_table_is_in_the_database() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE TABLE public.dag_run (id bigint)").await;
    admin.run("CREATE ROLE reader LOGIN; GRANT pg_read_all_stats TO reader").await;
    let dsn = postgres.dsn("postgres").replace("postgres@", "reader@");
    let exporter = Exporter::builder()
        .config(&format!("servers: [{{ name: here, dsn: '{dsn}', inspect: [app, app2] }}]"))
        .start()
        .await;
    let here = postgres.holds("pod-a", "2").await;
    let elsewhere = postgres.session_in("app2", "pod-b").await;
    elsewhere.run("SELECT pg_advisory_lock(2)").await;
    eventually("the table has been found", async || {
        let scrape = exporter.scrape_fresh().await;
        for (datname, lock) in [("app", "airflow-scheduler"), ("app2", "unregistered")] {
            let holders = scrape.sample("pg_advisory_lock_holders").with("datname", datname);
            holders.with("key", "2").with("lock", lock).is(1.0);
        }
    })
    .await;
    drop((here, elsewhere));
}

#[tokio::test]
async fn an_entry_of_the_operators_goes_before_a_preset() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let registry = "locks: [{ name: our-migrations, key: 72707369, databases: [app] }]";
    let exporter = Exporter::watching(&postgres.dsn("app")).registry(registry).start().await;
    let ours = postgres.holds("pod-a", "72707369").await;
    let theirs = postgres.session_in("app2", "pod-b").await;
    theirs.run("SELECT pg_advisory_lock(72707369)").await;
    let scrape = exporter.scrape_fresh().await;
    let holders = |datname| scrape.sample("pg_advisory_lock_holders").with("datname", datname);
    holders("app").with("lock", "our-migrations").with("application_name", "pod-a").is(1.0);
    holders("app2").with("lock", "prisma-migrate").with("application_name", "pod-b").is(1.0);
    drop((ours, theirs));
}
