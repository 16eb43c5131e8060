//! What goes wrong between the exporter and its server is shown and counted, said once, and over
//! when it is over: never a frozen gauge, never an end of the process, never a connection too many.

use std::time::Duration;

use serde_json::Value;

use crate::support::exporter::unix_seconds;
use crate::support::process::Frozen;
use crate::support::{
    Exporter, PgBouncer, PoolMode, Postgres, Scrape, Session, eventually, eventually_within,
    exporter, require,
};

/// Gauges that may be there while the server cannot be asked: none of them is about a lock.
const GAUGES_WHILE_BLIND: [&str; 14] = [
    "pg_advisory_config_last_reload_successful",
    "pg_advisory_config_last_reload_timestamp_seconds",
    "pg_advisory_exporter_build_info",
    "pg_advisory_hash_mismatches",
    "pg_advisory_last_poll_timestamp_seconds",
    "pg_advisory_lock_info",
    "pg_advisory_poll_duration_seconds",
    "pg_advisory_poll_interval_configured_seconds",
    "pg_advisory_poll_interval_seconds",
    "pg_advisory_registry_conflicts",
    "pg_advisory_registry_entries",
    "pg_advisory_registry_last_reload_successful",
    "pg_advisory_registry_last_reload_timestamp_seconds",
    "pg_advisory_up",
];

/// Connections of the exporter.
const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'locks'";

#[track_caller]
fn assert_blind(scrape: &Scrape) {
    scrape.sample("pg_advisory_up").is(0.0);
    let frozen: Vec<_> = scrape
        .types()
        .iter()
        .filter(|(name, kind)| *kind == "gauge" && name.starts_with("pg_advisory_"))
        .map(|(name, _)| name.as_str())
        .filter(|name| !GAUGES_WHILE_BLIND.contains(name))
        .collect();
    assert!(frozen.is_empty(), "gauges that nobody can vouch for: {frozen:?}");
    scrape.sample("pg_advisory_polls_total").present();
    scrape.sample("process_cpu_seconds_total").present();
}

fn failures(scrape: &Scrape) -> f64 {
    scrape.sample("pg_advisory_poll_failures_total").values().iter().sum()
}

fn failures_for(scrape: &Scrape, reason: &str) -> f64 {
    scrape.sample("pg_advisory_poll_failures_total").with("reason", reason).value()
}

async fn watch(postgres: &Postgres) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    exporter
}

#[tokio::test]
async fn an_exporter_may_start_before_its_server() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    postgres.stop().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    assert_blind(&exporter.scrape().await);
    eventually("two polls fail", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert!(failures_for(&scrape, "unreachable") >= 2.0);
    })
    .await;
    postgres.start_again().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    assert_eq!(exporter.logged(&["level=warn", "cannot poll the server"]).len(), 1);
    assert_eq!(exporter.logged(&["level=info", "polling the server"]).len(), 1);
}

#[tokio::test]
async fn a_server_that_stops_and_comes_back_is_told_once_each_way() {
    require!(Postgres);
    outlive(async |postgres| postgres.stop().await).await;
}

#[tokio::test]
async fn a_server_that_crashes_and_comes_back_is_told_once_each_way() {
    require!(Postgres);
    outlive(async |postgres| postgres.kill().await).await;
}

async fn outlive(end: impl AsyncFnOnce(&mut Postgres)) {
    let mut postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let before = exporter.scrape_fresh().await;
    before.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    let acquisitions = "pg_advisory_lock_acquisitions_observed_total";
    before.sample(acquisitions).with("key", "42").is(1.0);

    end(&mut postgres).await;
    let ended = unix_seconds(exporter::now());
    // Sooner than an old picture would grow stale by itself.
    let blind = eventually_within(Duration::from_secs(2), "the end is noticed", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        scrape
    })
    .await;
    blind.sample(acquisitions).with("key", "42").is(1.0);
    blind.sample("pg_advisory_last_poll_timestamp_seconds").present();
    assert_eq!(exporter.get("/-/healthy", &[]).await.status, 200);
    let snapshot = exporter.snapshot().await;
    assert_eq!((&snapshot["up"], &snapshot["locks"]), (&Value::Bool(false), &Value::Null));
    eventually("polls go on failing", async || {
        assert!(failures(&exporter.scrape().await) >= 3.0);
    })
    .await;

    postgres.start_again().await;
    let _again = postgres.holds("pod-a", "42").await;
    let after = exporter.scrape_fresh().await;
    after.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    after.sample(acquisitions).with("key", "42").is(2.0);
    let since = after.sample("pg_advisory_lock_held_since_timestamp_seconds").value();
    assert!(since >= ended, "an age went over to another backend: {since}, not {ended}");
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
    assert_eq!(exporter.logged(&["polling the server"]).len(), 2, "{}", exporter.log());
}

#[tokio::test]
async fn a_terminated_backend_of_ours_costs_one_poll() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let since = "pg_advisory_lock_held_since_timestamp_seconds";
    let before = exporter.scrape_fresh().await.sample(since).value();
    let operator = postgres.session("operator").await;
    operator.run(&format!("SELECT pg_terminate_backend(pid) {OURS}")).await;
    eventually("a poll fails", async || {
        assert_eq!(failures(&exporter.scrape().await), 1.0);
    })
    .await;
    exporter.scrape_fresh().await;
    exporter.scrape_fresh().await;
    let scrape = exporter.scrape_fresh().await;
    assert_eq!(failures_for(&scrape, "connection_lost"), 1.0);
    assert_eq!(failures(&scrape), 1.0);
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    scrape.sample(since).is(before);
    assert_eq!(count_ours(&operator).await, 1);
}

/// How many connections of ours the server has.
async fn count_ours(observer: &Session) -> u32 {
    let count = observer.value(&format!("SELECT count(*) {OURS}")).await;
    count.expect("a count").parse().expect("a number")
}

#[tokio::test]
async fn a_refused_login_is_told_once_and_cured_without_a_restart() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres).await;
    let operator = Session::connect(&postgres.socket_dsn("app"), "operator").await;
    postgres.set_hba(&["host all all 127.0.0.1/32 reject"]);
    eventually("the login is refused more than once", async || {
        // The new rules are read soon, not at once.
        operator.run(&format!("SELECT pg_terminate_backend(pid) {OURS}")).await;
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert!(failures_for(&scrape, "login") >= 2.0);
    })
    .await;
    let told = exporter.logged(&["level=warn", "reason=login"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
    assert!(told[0].contains("pg_hba.conf"), "the server's own words are passed on: {}", told[0]);

    postgres.set_hba(&[]);
    exporter.scrape_fresh().await;
    assert_eq!(exporter.logged(&["level=warn", "reason=login"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_told_and_joined_when_there_is_one() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("max_connections", 3)
        .setting("superuser_reserved_connections", 0)
        .start()
        .await;
    let _two = (postgres.session("pod-a").await, postgres.session("pod-b").await);
    let third = postgres.session("pod-c").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    eventually("it is turned away more than once", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert!(failures_for(&scrape, "too_many_connections") >= 2.0);
    })
    .await;
    third.close().await;
    exporter.scrape_fresh().await;
    assert_eq!(exporter.logged(&["reason=too_many_connections"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn a_locked_catalog_of_databases_costs_names_and_no_poll() {
    require!(Postgres);
    poll_past_a_lock_on("pg_database").await;
}

#[tokio::test]
async fn a_locked_catalog_of_roles_costs_names_and_no_poll() {
    require!(Postgres);
    poll_past_a_lock_on("pg_authid").await;
}

async fn poll_past_a_lock_on(catalog: &str) {
    let postgres = Postgres::start().await;
    let operator = postgres.session("operator").await;
    let _early = postgres.holds("early", "1").await;
    let exporter = watch(&postgres).await;
    // Its name is not among those that the exporter has read.
    operator.run("CREATE ROLE newcomer LOGIN").await;
    let late_dsn = format!("postgresql://newcomer@127.0.0.1:{}/app", postgres.port());
    let late = Session::connect(&late_dsn, "late").await;

    operator.run(&format!("BEGIN; LOCK TABLE {catalog} IN ACCESS EXCLUSIVE MODE")).await;
    late.run("SELECT pg_advisory_lock(2)").await;
    eventually("the missing names are told", async || {
        let scrape = exporter.scrape_fresh().await;
        let holders = scrape.sample("pg_advisory_lock_holders").with("datname", "app");
        holders.clone().with("key", "1").with("application_name", "early").is(1.0);
        holders.with("key", "2").with("application_name", "late").is(1.0);
        assert_eq!(exporter.logged(&["level=warn", "cannot read the names"]).len(), 1);
    })
    .await;
    assert_eq!(failures(&exporter.scrape_fresh().await), 0.0, "{}", exporter.log());

    operator.run("ROLLBACK").await;
    eventually("the newcomer has a name", async || {
        let snapshot = exporter.snapshot().await;
        assert_eq!(snapshot["locks"][1]["holders"][0]["usename"], "newcomer");
    })
    .await;
    assert_eq!(failures(&exporter.scrape_fresh().await), 0.0, "{}", exporter.log());
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

/// Looked up again only after a change to what it tells; then whoever polls has to wait.
#[tokio::test]
async fn a_locked_catalog_of_functions_fails_polls_at_their_limit_and_is_over_when_it_is_over() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    // Every database has a catalog of functions of its own; ours is the exporter's.
    let observer = postgres.session_in("postgres", "observer").await;
    let change = postgres.session_in("postgres", "change").await;
    let lock = postgres.session_in("postgres", "lock").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--poll.timeout")
        .argument("400ms")
        .start()
        .await;
    exporter.scrape_fresh().await;
    let waits = format!("SELECT count(*) FROM pg_locks WHERE pid = {} AND NOT granted", lock.pid());
    // Asked before, so that this session knows the functions it takes. A new one would hang.
    assert_eq!(observer.value(&waits).await.as_deref(), Some("0"));
    let sql = "BEGIN; LOCK TABLE pg_catalog.pg_proc IN ACCESS EXCLUSIVE MODE";
    change.run(sql).await;
    change.run("ALTER FUNCTION pg_catalog.pg_lock_status() COST 2").await;
    let next = lock.start(sql);
    eventually("the next one waits for the lock", async || {
        assert_eq!(observer.value(&waits).await.as_deref(), Some("1"));
    })
    .await;
    // The next one has the lock before any poll can come in between.
    change.run("COMMIT").await;
    next.finish().await;
    eventually("polls fail, at their own limit, and the interval stays", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert!(failures_for(&scrape, "timeout") >= 4.0);
        // The server waits and does not work, so that even three polls of 400 ms count for nothing.
        scrape.sample("pg_advisory_poll_interval_seconds").is(0.1);
    })
    .await;
    let answer = tokio::time::timeout(Duration::from_secs(1), exporter.scrape()).await;
    answer.expect("nobody waits for the server");

    lock.run("ROLLBACK").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    assert_eq!(failures(&scrape), failures_for(&scrape, "timeout"), "{}", exporter.log());
    assert_eq!(count_ours(&observer).await, 1);
    assert_eq!(exporter.logged(&["polling the server"]).len(), 2, "{}", exporter.log());
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn a_server_that_hangs_is_down_soon_and_gets_no_second_connection() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let observer = postgres.session("observer").await;
    let dsn = format!("{}?connect_timeout=2", postgres.dsn("postgres"));
    let exporter = Exporter::watching(&dsn).start().await;
    exporter.scrape_fresh().await;
    let ours = observer.value(&format!("SELECT pid {OURS}")).await.expect("we are connected");

    let frozen = Frozen::freeze(&[postgres.process_id(), ours.parse().expect("a pid")]);
    let answer = tokio::time::timeout(Duration::from_secs(1), exporter.scrape()).await;
    answer.expect("nobody waits for the server");
    // Sooner than the poll is given up: an old picture does not pass for the present.
    eventually_within(Duration::from_millis(4500), "the picture is stale", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert_eq!(failures(&scrape), 0.0);
    })
    .await;
    eventually("it tries to connect in vain", async || {
        let scrape = exporter.scrape().await;
        assert_blind(&scrape);
        assert!(failures_for(&scrape, "timeout") >= 1.0);
        assert!(failures_for(&scrape, "unreachable") >= 2.0);
    })
    .await;

    drop(frozen);
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    eventually("the attempts in vain are gone from the server", async || {
        assert_eq!(count_ours(&observer).await, 1);
    })
    .await;
    for _ in 0..10 {
        exporter.scrape_fresh().await;
        assert_eq!(count_ours(&observer).await, 1);
    }
}

#[tokio::test]
async fn a_role_without_privileges_sees_holders_and_is_told_what_it_lacks() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE watcher LOGIN").await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/postgres", postgres.port());
    let exporter = Exporter::watching(&dsn).start().await;
    exporter.scrape_fresh().await;
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
    holders.with("application_name", "pod-a").with("state", "unknown").is(1.0);
    let waiters = scrape.sample("pg_advisory_lock_waiters").with("key", "42");
    waiters.with("application_name", "pod-b").is(1.0);
    scrape.sample("pg_advisory_privileges_sufficient").is(0.0);
    assert_eq!(failures(&scrape), 0.0);
    let told = exporter.logged(&["level=warn"]);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("GRANT pg_read_all_stats"), "{}", told[0]);

    operator.run("GRANT pg_read_all_stats TO watcher").await;
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
    holders.with("application_name", "pod-a").with("state", "idle").is(1.0);
    scrape.sample("pg_advisory_privileges_sufficient").is(1.0);
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn behind_a_pooler_polls_work_and_a_lock_left_on_our_backend_is_shown() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let exporter = Exporter::watching(&pooler.dsn("app")).start().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_pooled_connection").absent();

    // The pool has one backend, so the lock is left on the one that answers the exporter.
    let leaky = pooler.session("leaky").await;
    leaky.run("SELECT pg_advisory_lock(42)").await;
    let _direct = postgres.holds("pod-a", "43").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    scrape.sample("pg_advisory_lock_holders").with("key", "43").is(1.0);
    scrape.sample("pg_advisory_pooled_connection").is(1.0);
    let told = exporter.logged(&["level=warn", "pooler"]);
    assert_eq!(told.len(), 1, "{told:#?}");

    for _ in 0..10 {
        leaky.run("SELECT 1").await;
        let scrape = exporter.scrape_fresh().await;
        assert_eq!(failures(&scrape), 0.0, "{}", exporter.log());
        scrape.sample("pg_advisory_pooled_connection").is(1.0);
    }
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn a_pooler_that_cannot_pass_a_poll_on_is_told_and_asked_again() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let statements = PgBouncer::start(&postgres, PoolMode::Statement, 1).await;
    for (dsn, piece) in [
        (statements.dsn("pgbouncer"), "admin console of a pooler"),
        (statements.dsn("app"), "not allowed"),
    ] {
        let exporter = Exporter::watching(&dsn).start().await;
        eventually("polls fail", async || {
            let scrape = exporter.scrape().await;
            assert_blind(&scrape);
            assert!(failures_for(&scrape, "error") >= 2.0, "{}", exporter.log());
        })
        .await;
        assert_eq!(exporter.logged(&["level=warn", piece]).len(), 1, "{}", exporter.log());
        assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
    }
}

/// Names that are no text in the encoding they are read in: made by a client of another.
#[tokio::test]
async fn a_name_in_another_encoding_costs_neither_a_poll_nor_the_other_names() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", "10").start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").await;
    // There é becomes one byte, and one byte that is no UTF-8 is what the shared catalogs keep.
    let stranger = postgres.session_in("latin", "stranger").await;
    stranger.run("CREATE ROLE \"café\"").await;
    stranger.run("CREATE DATABASE \"café\"").await;
    stranger.run("BEGIN; SELECT pg_advisory_xact_lock(4000)").await;
    stranger.run("PREPARE TRANSACTION 'gid-é'").await;

    let exporter = Exporter::watching(&postgres.dsn("app")).start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    eventually("all is seen, under its name as far as that can be read", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(1.0);
        let holders = scrape.sample("pg_advisory_lock_holders");
        holders.clone().with("key", "42").with("datname", "app").is(1.0);
        let prepared = holders.with("key", "4000").with("datname", "latin");
        prepared.with("application_name", "(prepared)").is(1.0);
    })
    .await;
    assert!(exporter.snapshot().await.to_string().contains("gid-\u{fffd}"));
    assert!(!exporter.log().contains("level=warn"), "{}", exporter.log());
}

/// A connect that hangs in the server has a process there already.
#[tokio::test]
async fn a_connect_that_hangs_is_waited_for_and_not_repeated() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session_in("postgres", "observer").await;
    let lock = postgres.session("lock").await;
    lock.run("BEGIN; LOCK TABLE pg_catalog.pg_database IN ACCESS EXCLUSIVE MODE").await;
    let dsn = format!("{}?connect_timeout=2", postgres.dsn("app"));
    let exporter = Exporter::watching(&dsn).start().await;
    // Before it has read its database a backend shows no activity, but it waits.
    let starting = "SELECT count(*) FROM pg_lock_status() WHERE NOT granted AND relation = 1262";
    eventually("three connects' time went by", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        let failures = scrape.sample("pg_advisory_poll_failures_total");
        assert!(failures.with("reason", "unreachable").value() >= 3.0);
    })
    .await;
    assert_eq!(observer.value(starting).await.as_deref(), Some("1"));
    assert!(exporter.log().contains("no connection within 2s"), "{}", exporter.log());
    let told = exporter.log().lines().filter(|line| line.contains("level=warn")).count();
    assert_eq!(told, 1, "{}", exporter.log());

    lock.run("ROLLBACK").await;
    eventually("it goes on at once", async || {
        exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    })
    .await;
}
