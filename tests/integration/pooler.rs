//! The exporter behind a real PgBouncer: what works goes on, a pooler is told once when it is proved,
//! and what it refuses is said in words that name it. What is left on a shared backend is in `fault`.

use crate::support::exporter::locks;
use crate::support::process::run;
use crate::support::{Exporter, PgBouncer, PoolMode, Postgres, Scrape, eventually, require};

fn failures(scrape: &Scrape) -> f64 {
    scrape.sample("pg_advisory_poll_failures_total").values().iter().sum()
}

#[tokio::test]
async fn polls_through_a_shared_backend_leave_no_statement_and_no_setting_on_it() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let stranger = pooler.session("stranger").await;
    let settings = "SELECT string_agg(name || ' ' || setting, ',' ORDER BY name) FROM pg_settings \
                    WHERE name IN ('statement_timeout', 'work_mem', 'jit', 'search_path', \
                    'lock_timeout', 'client_encoding')";
    let before = stranger.value(settings).await;
    let backend = stranger.value("SELECT pg_backend_pid()").await;
    let exporter = Exporter::watching(&pooler.dsn("app")).start().await;
    for _ in 0..5 {
        assert_eq!(failures(&exporter.scrape_fresh().await), 0.0, "{}", exporter.log());
        let named = stranger.value("SELECT count(*) FROM pg_prepared_statements").await;
        assert_eq!(named.as_deref(), Some("0"));
        assert_eq!(stranger.value(settings).await, before);
        assert_eq!(stranger.value("SELECT pg_backend_pid()").await, backend, "it is shared");
    }
}

#[tokio::test]
async fn in_session_mode_a_backend_older_than_our_connection_is_proof() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Session, 1).await;
    let first = pooler.session("first").await;
    let is_old = "SELECT clock_timestamp() - backend_start > '2 s' FROM pg_stat_activity \
                  WHERE pid = pg_backend_pid()";
    eventually("its backend is old enough to tell", async || {
        assert_eq!(first.value(is_old).await.as_deref(), Some("t"));
    })
    .await;
    first.close().await;
    let exporter = Exporter::watching(&pooler.dsn("app")).start().await;
    for _ in 0..3 {
        let scrape = exporter.scrape_fresh().await;
        scrape.sample("pg_advisory_pooled_connection").is(1.0);
        assert_eq!(failures(&scrape), 0.0, "{}", exporter.log());
    }
    let told = exporter.logged(&["level=warn", "connect to the server directly"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn a_start_up_parameter_that_a_pooler_refuses_is_named() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let dsn = format!("{}?options=-c%20statement_timeout%3D3s", pooler.dsn("app"));
    let exporter = Exporter::watching(&dsn).start().await;
    eventually("it is refused", async || {
        assert!(failures(&exporter.scrape().await) >= 2.0);
    })
    .await;
    let told = exporter.logged(&["level=warn", "options", "this is a pooler"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
    assert_eq!(exporter.logged(&["level=warn"]).len(), 1, "{}", exporter.log());
    // Whoever asks once is told and sent away.
    let check = run(locks(&["check", "--dsn", &dsn])).await;
    assert_eq!(check.code, Some(3), "{}", check.stdout);
    let words =
        "unsupported startup parameter: options; this is a pooler: connect to the server itself";
    assert!(check.stdout.contains(words), "{}", check.stdout);
}

#[tokio::test]
async fn a_backend_that_was_reset_goes_by_no_name_until_it_is_given_one() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let lines = "server_reset_query = DISCARD ALL";
    let pooler = PgBouncer::start_with(&postgres, PoolMode::Session, 1, lines).await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let first = pooler.session("svc-a").await;
    first.run("SELECT pg_advisory_lock(42)").await;
    let backend = first.value("SELECT pg_backend_pid()").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("application_name", "svc-a").is(1.0);
    first.close().await;
    let next = pooler.session("").await;
    next.run("SELECT pg_advisory_lock(43)").await;
    assert_eq!(next.value("SELECT pg_backend_pid()").await, backend, "it is the same backend");
    let scrape = exporter.scrape_fresh().await;
    let holders = scrape.sample("pg_advisory_lock_holders");
    assert_eq!(holders.values(), [1.0], "a reset lets go of the keys");
    holders.with("key", "43").with("application_name", "(none)").is(1.0);
}

#[tokio::test]
async fn a_pool_without_a_free_backend_is_an_outage_told_once_and_over_with_it() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let lines = "query_wait_timeout = 1\nserver_reset_query = DISCARD ALL";
    let pooler = PgBouncer::start_with(&postgres, PoolMode::Transaction, 1, lines).await;
    let exporter = Exporter::watching(&pooler.dsn("app")).start().await;
    exporter.scrape_fresh().await;
    let greedy = pooler.session("greedy").await;
    greedy.run("BEGIN").await;
    eventually("polls get no backend", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        assert!(failures(&scrape) >= 1.0);
    })
    .await;
    greedy.run("ROLLBACK").await;
    exporter.scrape_fresh().await;
    assert_eq!(exporter.logged(&["cannot poll the server"]).len(), 1, "{}", exporter.log());
}

#[tokio::test]
async fn privileges_asked_for_through_a_pooler_tell_of_it() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let leaky = pooler.session("leaky").await;
    leaky.run("SELECT pg_advisory_lock(42)").await;
    let outcome = run(locks(&["check", "--privileges", "--dsn", &pooler.dsn("app")])).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("there is a pooler"), "{}", outcome.stdout);
    let console = run(locks(&["check", "--privileges", "--dsn", &pooler.dsn("pgbouncer")])).await;
    assert_eq!(console.code, Some(3), "{}", console.stdout);
    assert!(console.stdout.contains("admin console of a pooler"), "{}", console.stdout);
}
