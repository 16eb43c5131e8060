//! What differs from server to server: columns that are missing, statistics that are there, and rows
//! as only those give them that speak PostgreSQL's protocol. Whatever a server tells, a poll goes on,
//! and what it does not tell is unknown.

use serde_json::Value;

use crate::support::process::run;
use crate::support::{Exporter, Postgres, Scrape, Session, eventually, locks, require};

/// Stands in for the view of a server from 19 on. Only a superuser can put it where it is looked for.
pub async fn make_statistics(postgres: &Postgres, database: &str) -> Session {
    let admin = postgres.session_in(database, "admin").await;
    if admin.value("SELECT to_regclass('pg_catalog.pg_stat_lock')").await.is_some() {
        return admin;
    }
    admin
        .run(
            "SET allow_system_table_mods = on;
             CREATE TABLE public.counted AS SELECT 7::int8 AS waits, 1500.5::float8 AS wait_time;
             CREATE VIEW pg_catalog.pg_stat_lock AS
                 SELECT 'advisory'::text AS locktype, waits, wait_time, 0::int8 AS fastpath_exceeded,
                        now() AS stats_reset FROM public.counted
                 UNION ALL SELECT 'relation', 100, 100.0, 3, now();
             GRANT SELECT ON pg_catalog.pg_stat_lock TO PUBLIC",
        )
        .await;
    admin
}

#[track_caller]
fn assert_counted(scrape: &Scrape, waits: f64, seconds: f64) {
    scrape.sample("pg_advisory_server_waits_total").is(waits);
    scrape.sample("pg_advisory_server_wait_seconds_total").is(seconds);
}

/// With a stand-in for the view: no server that has it can be had here yet.
#[tokio::test]
async fn the_servers_own_count_of_waits_is_passed_on_and_starts_anew_when_it_does() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() >= 19 {
        return; // It has the view, and nobody else may write what is in it.
    }
    let admin = make_statistics(&postgres, "postgres").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    assert_counted(&exporter.scrape_fresh().await, 7.0, 1.5005);
    admin.run("UPDATE public.counted SET waits = 8, wait_time = 2500").await;
    eventually("it goes up", async || {
        assert_counted(&exporter.scrape_fresh().await, 8.0, 2.5);
    })
    .await;
    admin.run("UPDATE public.counted SET waits = 0, wait_time = 0").await;
    eventually("it was reset", async || {
        assert_counted(&exporter.scrape_fresh().await, 0.0, 0.0);
    })
    .await;
    // Somebody's lock on it costs a count and no poll.
    admin.run("BEGIN; LOCK TABLE public.counted IN ACCESS EXCLUSIVE MODE").await;
    for _ in 0..20 {
        exporter.scrape_fresh().await;
    }
    let scrape = exporter.scrape_fresh().await;
    assert_counted(&scrape, 0.0, 0.0);
    let failures = scrape.sample("pg_advisory_poll_failures_total").values();
    assert_eq!(failures.iter().sum::<f64>(), 0.0, "{}", exporter.log());
    assert_eq!(exporter.logged(&["level=warn"]), [""; 0]);
}

#[tokio::test]
async fn without_a_count_of_the_servers_own_none_is_told_whatever_users_make() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    if postgres.major_version() >= 19 {
        return; // It has the view.
    }
    let user = postgres.session_in("postgres", "user").await;
    user.run(
        "CREATE VIEW public.pg_stat_lock AS
             SELECT 'advisory'::text AS locktype, 1::int8 AS waits, 1::float8 AS wait_time",
    )
    .await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_server_waits_total").absent();
    scrape.sample("pg_advisory_server_wait_seconds_total").absent();
    assert!(!postgres.log().contains("ERROR"), "the server is asked for nothing it lacks");
}

#[tokio::test]
async fn how_long_somebody_waits_is_told_by_a_server_from_14_on_and_unknown_before() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let waiter = postgres.waits("pod-b", "42").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_waiters").with("key", "42").is(1.0);
    let since = scrape.sample("pg_advisory_lock_waiting_since_timestamp_seconds");
    since.present();
    let lock = exporter.lock("42").await;
    let waiter = lock.waiter(&waiter.session);
    let snapshot = exporter.snapshot().await;
    let gaps = snapshot["not_judged"].as_array().expect("a list");
    let is_said = gaps.iter().any(|gap| gap["reason"].to_string().contains("does not tell when"));
    if postgres.major_version() < 14 {
        assert_eq!(
            (&waiter["waiting_since"], &waiter["waited_seconds"]),
            (&Value::Null, &Value::Null)
        );
        // At least so long it was seen to wait.
        assert!(waiter["seen_for_seconds"].as_f64().is_some_and(|time| time > 0.0), "{waiter}");
        let top = run(locks(&["top", "--once", "--from", &exporter.url(), "--view", "tree"])).await;
        assert!(top.stdout.contains("≥ "), "{}", top.stdout);
        assert!(is_said, "{gaps:#?}");
    } else {
        assert!(waiter["waited_seconds"].as_f64().is_some(), "{waiter}");
        assert!(!is_said, "{gaps:#?}");
    }
    let version = snapshot["version"].as_str().expect("it tells its version");
    assert!(version.starts_with(&postgres.major_version().to_string()), "{version}");
}

/// Rows that are missing something, unknown, or there twice. The server's own function still gives
/// those it has.
const STRANGE: &str = r#"
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.pg_lock_status() RENAME TO own_lock_status;
CREATE FUNCTION pg_catalog.pg_lock_status() RETURNS SETOF pg_catalog.pg_locks LANGUAGE sql AS $$
    SELECT * FROM pg_catalog.own_lock_status()
    UNION ALL
    SELECT strange.* FROM unnest(ARRAY[
        '{"locktype": "advisory", "classid": 0, "objid": 77, "objsubid": 1, "pid": 4000000,
          "mode": "WEAK_READ", "granted": true, "fastpath": false}',
        '{"locktype": "advisory", "classid": 0, "objid": 78, "objsubid": 1, "mode": "ExclusiveLock",
          "fastpath": false}',
        '{"locktype": "advisory", "classid": 0, "objid": 78, "objsubid": 1, "mode": "ExclusiveLock",
          "fastpath": false}',
        '{"locktype": "advisory", "classid": 1, "objid": 79, "objsubid": 9, "granted": false,
          "fastpath": false}',
        '{"locktype": "advisory", "mode": "ExclusiveLock", "granted": true, "fastpath": false}',
        '{"locktype": "tablet", "pid": 4000000, "mode": "WEAK_WRITE", "granted": false, "fastpath": false}',
        '{"fastpath": false}'
    ]::jsonb[]) AS row (text), jsonb_populate_record(NULL::pg_catalog.pg_locks, row.text) AS strange
$$;
"#;

#[tokio::test]
async fn rows_that_lack_something_or_come_twice_break_no_poll() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    postgres.session_in("postgres", "admin").await.run(STRANGE).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders");
    holders.clone().with("key", "42").with("datname", "app").is(1.0);
    scrape.sample("pg_advisory_lock_waiters").with("key", "42").is(1.0);
    holders
        .clone()
        .with("key", "77")
        .with("datname", "(server-wide)")
        .with("mode", "WEAK_READ")
        .is(1.0);
    holders.clone().with("key", "78").present();
    let waiters = scrape.sample("pg_advisory_lock_waiters");
    waiters.with("key", "class 9: 1/79").with("mode", "unknown").is(1.0);
    let rows = scrape.sample("pg_advisory_lock_rows");
    assert_eq!(rows.values().iter().sum::<f64>(), 7.0, "none is lost");
    let failures = scrape.sample("pg_advisory_poll_failures_total").values();
    assert_eq!(failures.iter().sum::<f64>(), 0.0, "{}", exporter.log());
    for path in ["/", "/api/v1/locks", "/api/v1/events"] {
        assert_eq!(exporter.get(path, &[]).await.status, 200, "{path}");
    }
}
