//! What a role may do shows in what is told, is said with the SQL that mends it, and is cured without
//! a restart.

use std::process::Stdio;

use pg_locks_exporter::cli;

use crate::support::exporter::locks;
use crate::support::process::{Outcome, run};
use crate::support::{Exporter, Postgres, Scrape, Session, eventually, require};

async fn check(dsn: &str, more: &[&str]) -> Outcome {
    let mut command = locks(&["check", "--privileges", "--dsn", dsn]);
    command.args(more).stdin(Stdio::null());
    run(command).await
}

/// The statements among these lines, as this version understands them.
fn statements(text: &str, postgres: &Postgres) -> Vec<String> {
    let is_sql = |line: &&str| {
        ["CREATE ROLE ", "ALTER ROLE ", "GRANT ", "REVOKE "]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let is_known = |line: &&str| postgres.major_version() >= 16 || !line.contains("reserved");
    text.lines().map(str::trim).filter(is_sql).filter(is_known).map(str::to_owned).collect()
}

fn help() -> String {
    let serve = cli::parse(["locks", "serve", "--help"].map(Into::into));
    serve.expect_err("help is no command").to_string()
}

#[tokio::test]
async fn the_role_that_the_help_makes_lacks_nothing() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_connections", 20).start().await;
    let operator = postgres.session("operator").await;
    let told = statements(&help(), &postgres);
    assert!(told.len() >= 3 && told[0].starts_with("CREATE ROLE locks "), "{told:#?}");
    for sql in &told {
        operator.run(sql).await;
    }
    let dsn = format!("postgresql://locks@127.0.0.1:{}/postgres", postgres.port());
    let outcome = check(&dsn, &[]).await;
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.starts_with("LOCKS OK - nothing is missing\n"), "{}", outcome.stdout);
    let _holder = postgres.holds("pod-a", "42").await;
    let exporter = Exporter::watching(&dsn).start().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_privileges_sufficient").is(1.0);
    assert_eq!(exporter.logged(&["level=warn"]), [""; 0]);
}

#[test]
fn the_document_makes_the_role_that_the_help_makes() {
    let document = include_str!("../../docs/connecting.md");
    for line in help().lines().map(str::trim) {
        if ["CREATE ROLE ", "ALTER ROLE ", "GRANT "].iter().any(|word| line.starts_with(word)) {
            assert!(document.contains(line), "{line}");
        }
    }
}

#[tokio::test]
async fn running_what_the_check_tells_a_role_to_get_leaves_nothing_missing() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE \"wat\"\"cher\" LOGIN CONNECTION LIMIT 1").await;
    let dsn = format!("postgresql://wat%22cher@127.0.0.1:{}/postgres", postgres.port());
    let outcome = check(&dsn, &[]).await;
    assert_eq!(outcome.code, Some(1), "{}{}", outcome.stdout, outcome.stderr);
    let told = statements(&outcome.stdout, &postgres);
    assert!(told.contains(&"GRANT pg_read_all_stats TO \"wat\"\"cher\";".to_owned()), "{told:#?}");
    let has_reserved = told.iter().any(|sql| sql.starts_with("GRANT pg_use_reserved_connections "));
    assert_eq!(has_reserved, postgres.major_version() >= 16, "{told:#?}");
    for sql in &told {
        operator.run(sql).await;
    }
    let outcome = check(&dsn, &["--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
    assert_eq!((outcome.code, &json["status"]), (Some(0), &"ok".into()), "{json:#}");
    assert_eq!(json["servers"][0]["role"], "wat\"cher");
}

#[tokio::test]
async fn a_superuser_is_advised_against_and_a_server_that_cannot_be_asked_is_unknown() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let dsn = postgres.dsn("postgres");
    let outcome = check(&dsn, &[]).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("  advice   superuser: "), "{}", outcome.stdout);
    postgres.stop().await;
    let outcome = check(&dsn, &[]).await;
    assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    assert!(outcome.stdout.starts_with("LOCKS UNKNOWN - "), "{}", outcome.stdout);
}

fn sufficient(scrape: &Scrape) -> f64 {
    scrape.sample("pg_advisory_privileges_sufficient").value()
}

#[tokio::test]
async fn a_right_that_comes_goes_and_comes_is_told_each_time_it_goes() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE \"wat\"\"cher\" LOGIN").await;
    let _holder = postgres.holds("pod-a", "42").await;
    let dsn = format!("postgresql://wat%22cher@127.0.0.1:{}/postgres", postgres.port());
    let exporter = Exporter::watching(&dsn).start().await;
    for round in 1..=2 {
        eventually("it is hidden", async || {
            assert_eq!(sufficient(&exporter.scrape_fresh().await), 0.0);
        })
        .await;
        let told = exporter.logged(&["level=warn"]);
        assert_eq!(told.len(), round, "{told:#?}");
        let sql = told[round - 1].replace("\\\"", "\"");
        assert!(sql.contains("GRANT pg_read_all_stats TO \"wat\"\"cher\";"), "{sql}");
        let has_reserved = sql.contains("GRANT pg_use_reserved_connections TO \"wat\"\"cher\";");
        assert_eq!(has_reserved, postgres.major_version() >= 16, "{sql}");
        let scrape = exporter.scrape_fresh().await;
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
        holders.with("application_name", "pod-a").with("state", "unknown").is(1.0);

        operator.run("GRANT pg_read_all_stats TO \"wat\"\"cher\"").await;
        let scrape = exporter.scrape_fresh().await;
        assert_eq!(sufficient(&scrape), 1.0);
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
        holders.with("application_name", "pod-a").with("state", "idle").is(1.0);
        operator.run("REVOKE pg_read_all_stats FROM \"wat\"\"cher\"").await;
    }
}

#[tokio::test]
async fn a_role_that_may_use_reserved_connections_gets_in_where_all_others_are_taken() {
    require!(Postgres);
    // Older servers do not know the setting and would not start.
    if Postgres::start().await.major_version() < 16 {
        return;
    }
    let postgres = Postgres::builder()
        .setting("max_connections", 6)
        .setting("superuser_reserved_connections", 1)
        .setting("reserved_connections", 2)
        .start()
        .await;
    let admin = postgres.session("admin").await;
    admin
        .run(
            "CREATE ROLE watcher LOGIN IN ROLE pg_monitor, pg_use_reserved_connections; \
             CREATE ROLE pod LOGIN",
        )
        .await;
    let dsn = |role: &str| format!("postgresql://{role}@127.0.0.1:{}/app", postgres.port());
    let _pods = (
        Session::connect(&dsn("pod"), "pod-a").await,
        Session::connect(&dsn("pod"), "pod-b").await,
    );
    let ordinary = Exporter::watching(&dsn("pod")).start().await;
    eventually("one without the privilege is turned away", async || {
        let scrape = ordinary.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        let failures = scrape.sample("pg_advisory_poll_failures_total");
        assert!(failures.with("reason", "too_many_connections").value() >= 1.0);
    })
    .await;
    let exporter = Exporter::watching(&dsn("watcher")).start().await;
    exporter.scrape_fresh().await.sample("pg_advisory_up").is(1.0);
    assert_eq!(exporter.logged(&["level=warn"]), [""; 0]);
}

#[tokio::test]
async fn a_login_that_is_not_listed_any_more_is_told_at_the_next_connection_and_cured_with_its_line()
 {
    const ALWAYS: &str = "local all all trust";
    const OURS: &str = "host postgres watcher 127.0.0.1/32 trust";
    require!(Postgres);
    let postgres = Postgres::start().await;
    let operator = Session::connect(&postgres.socket_dsn("app"), "operator").await;
    operator.run("CREATE ROLE watcher LOGIN; SELECT pg_advisory_lock(42)").await;
    postgres.set_hba_alone(&[ALWAYS, OURS]);
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/postgres", postgres.port());
    let exporter = Exporter::watching(&dsn).start().await;
    exporter.scrape_fresh().await;

    postgres.set_hba_alone(&[ALWAYS]);
    eventually("the server has read its rules", async || {
        let refused = tokio_postgres::connect(&dsn, tokio_postgres::NoTls).await;
        assert!(refused.is_err(), "let in");
    })
    .await;
    // Whoever is in stays in.
    exporter.scrape_fresh().await.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    let ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'watcher'";
    operator.run(ours).await;
    eventually("the login is refused more than once", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        scrape.sample("pg_advisory_lock_holders").absent();
        let failures = scrape.sample("pg_advisory_poll_failures_total").with("reason", "login");
        assert!(failures.value() >= 2.0);
    })
    .await;
    let told = exporter.logged(&["reason=login"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
    for piece in ["no pg_hba.conf entry", "127.0.0.1", "watcher", "database"] {
        assert!(told[0].contains(piece), "{}", told[0]);
    }

    postgres.set_hba_alone(&[ALWAYS, OURS]);
    exporter.scrape_fresh().await.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
    assert_eq!(exporter.logged(&["reason=login"]).len(), 1, "{}", exporter.log());
}
