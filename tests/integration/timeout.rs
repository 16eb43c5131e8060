//! Polls that do not end in time: what is known of them is published, what is not is unknown, and
//! the server is never left with more of us than before.

use std::process::Command;
use std::time::Duration;

use crate::support::{DEADLINE, Exporter, Postgres, Session, eventually, require};
use crate::watch::connect;

/// A role that sees everybody's state but is no superuser, whose rights are therefore looked up.
const MONITOR: &str = "CREATE ROLE bystander; CREATE ROLE mon LOGIN IN ROLE pg_monitor";

fn monitor_dsn(postgres: &Postgres) -> String {
    format!("{}?application_name=locks", postgres.dsn("app").replace("postgres@", "mon@"))
}

/// The backends of a role.
async fn backends_of(observer: &Session, role: &str) -> Vec<String> {
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE usename = '{role}' ORDER BY 1");
    observer.rows(&sql).await.into_iter().flatten().flatten().collect()
}

/// Locks the catalog in which activity looks up its reader's rights, and makes it look again: the
/// change that all backends must learn of is committed to one who stands in the queue for the
/// lock, so that no poll can come in between. Ends with the session.
async fn block_activity(postgres: &Postgres) -> Session {
    let (grant, lock) = (postgres.session("grant").await, postgres.session("lock").await);
    let sql = "BEGIN; LOCK TABLE pg_auth_members IN ACCESS EXCLUSIVE MODE";
    grant.run(sql).await;
    grant.run("GRANT pg_monitor TO bystander").await;
    let next = lock.start(sql);
    postgres.until_waiting(&lock).await;
    grant.run("COMMIT").await;
    next.finish().await;
    lock
}

#[tokio::test]
async fn a_catalog_locked_before_the_first_connection_costs_names_and_no_second_connection() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run(MONITOR).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let lock = postgres.session("lock").await;
    lock.run("BEGIN; LOCK TABLE pg_auth_members IN ACCESS EXCLUSIVE MODE").await;

    let dsn = monitor_dsn(&postgres);
    let exporter =
        Exporter::serve(&["--dsn", &dsn, "--poll.interval", "100ms", "--poll.timeout", "200ms"])
            .await;
    let polls = async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(1.0);
        let key = scrape.sample("pg_advisory_lock_holders").with("key", "42");
        key.with("state", "unknown").is(1.0);
        scrape.sample("pg_advisory_polls_total").value()
    };
    let first = eventually("the lock is seen", polls).await;
    let ours = backends_of(&admin, "mon").await;
    assert_eq!(ours.len(), 1, "{ours:?}");
    eventually("polls go on", async || assert!(polls().await >= first + 10.0)).await;
    assert_eq!(backends_of(&admin, "mon").await, ours, "another connection was opened");

    lock.run("ROLLBACK").await;
    eventually("what was not told is asked again", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_lock_table_capacity").present();
        scrape.sample("pg_advisory_privileges_sufficient").is(1.0);
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
        holders.with("datname", "app").with("state", "idle").is(1.0);
    })
    .await;
    assert_eq!(backends_of(&admin, "mon").await, ours, "another connection was opened");
}

#[tokio::test]
async fn when_only_activity_times_out_the_locks_are_published_with_an_unknown_state() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run(MONITOR).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let dsn = monitor_dsn(&postgres);
    let exporter =
        Exporter::serve(&["--dsn", &dsn, "--poll.interval", "100ms", "--poll.timeout", "200ms"])
            .await;
    let state_is = async |state: &str, application: &str| {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(1.0);
        let holders = scrape.sample("pg_advisory_lock_holders").with("key", "42");
        holders.clone().is(1.0);
        holders.with("state", state).with("application_name", application).is(1.0);
        scrape.sample("pg_advisory_lock_waiters").with("key", "42").is(1.0);
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(1.0);
        scrape.sample("pg_advisory_lock_rows").with("granted", "false").is(1.0);
        scrape
    };
    let before = eventually("all is seen", async || state_is("idle", "pod-a").await).await;
    before.sample("pg_advisory_privileges_sufficient").is(1.0);
    let ours = backends_of(&admin, "mon").await;
    assert_eq!(ours.len(), 1, "{ours:?}");

    let lock = block_activity(&postgres).await;
    let blocked = eventually("activity is unknown, the locks are not", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_privileges_sufficient").absent();
        state_is("unknown", "(unknown)").await
    })
    .await;
    let polls = blocked.sample("pg_advisory_polls_total").value();
    eventually("polls go on", async || {
        let scrape = state_is("unknown", "(unknown)").await;
        assert!(scrape.sample("pg_advisory_polls_total").value() >= polls + 3.0);
    })
    .await;

    lock.run("ROLLBACK").await;
    let after = eventually("all is seen again", async || state_is("idle", "pod-a").await).await;
    let failures = after.sample("pg_advisory_poll_failures_total");
    assert!(failures.values().iter().all(|count| *count == 0.0), "{:?}", failures.matches());
    assert_eq!(backends_of(&admin, "mon").await, ours, "one connection, the same throughout");
}

#[tokio::test]
async fn a_sample_without_activity_keeps_every_row() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run(MONITOR).await;
    let _holder = postgres.holds("pod-a", "42").await;
    let mut connection = connect(&monitor_dsn(&postgres)).await;
    let limit = Duration::from_millis(200);
    assert!(connection.fetch_sample(limit).await.expect("a sample").backends.is_some());
    let lock = block_activity(&postgres).await;
    let sample = connection.fetch_sample(limit).await.expect("a sample");
    assert!(sample.backends.is_none());
    assert_eq!(sample.advisory_rows(true), 1);
    lock.run("ROLLBACK").await;
    assert!(connection.fetch_sample(limit).await.expect("a sample").backends.is_some());
}

#[tokio::test]
async fn a_lock_table_that_is_not_read_in_time_is_a_failed_poll_on_a_connection_that_stays() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 2000).start().await;
    let admin = postgres.session("admin").await;
    admin.run(MONITOR).await;
    let dsn = monitor_dsn(&postgres);
    let exporter =
        Exporter::serve(&["--dsn", &dsn, "--poll.interval", "50ms", "--poll.timeout", "20ms"])
            .await;
    let is_up = async || exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    eventually("a small lock table is read in time", is_up).await;
    let ours = backends_of(&admin, "mon").await;
    assert_eq!(ours.len(), 1, "{ours:?}");

    let holder = postgres.session("greedy").await;
    holder.run("SELECT pg_advisory_lock(key) FROM generate_series(1, 150000) AS key").await;
    let timeouts = async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_up").is(0.0);
        scrape.sample("pg_advisory_lock_rows").absent();
        scrape.sample("pg_advisory_lock_holders").absent();
        scrape.sample("pg_advisory_poll_failures_total").with("reason", "timeout").value()
    };
    let failures = eventually("polls fail", timeouts).await;
    eventually("they go on failing", async || assert!(timeouts().await >= failures + 3.0)).await;
    assert_eq!(backends_of(&admin, "mon").await, ours, "the same one connection");

    holder.run("SELECT pg_advisory_unlock_all()").await;
    eventually("polls succeed again", is_up).await;
    assert_eq!(backends_of(&admin, "mon").await, ours, "the same one connection");
}

#[tokio::test]
async fn a_backend_that_does_not_answer_at_all_is_given_up_and_leaves_the_server() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run(MONITOR).await;
    let dsn = monitor_dsn(&postgres);
    let exporter =
        Exporter::serve(&["--dsn", &dsn, "--poll.interval", "50ms", "--poll.timeout", "100ms"])
            .await;
    let is_up = async || exporter.scrape().await.sample("pg_advisory_up").is(1.0);
    eventually("it polls", is_up).await;
    let [first]: [String; 1] = backends_of(&admin, "mon").await.try_into().expect("one backend");

    signal("STOP", &first);
    let failed = async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_poll_failures_total").with("reason", "timeout").is(1.0);
    };
    eventually("the poll is given up", failed).await;
    eventually("another connection polls", is_up).await;
    let meanwhile = backends_of(&admin, "mon").await;
    assert_eq!(meanwhile.len(), 2, "the stopped one cannot leave yet: {meanwhile:?}");

    signal("CONT", &first);
    eventually("one connection is left", async || {
        let backends = backends_of(&admin, "mon").await;
        assert!(backends.len() == 1 && backends[0] != first, "{backends:?}");
    })
    .await;
    is_up().await;
    failed().await;
}

/// Stops a backend of a server of ours, or lets it go on.
fn signal(signal: &str, pid: &str) {
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "cannot send {signal} to {pid}");
}

#[tokio::test]
async fn a_limit_that_fires_on_the_server_leaves_the_connection_usable() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 2000).start().await;
    let holder = postgres.session("greedy").await;
    holder.run("SELECT pg_advisory_lock(key) FROM generate_series(1, 150000) AS key").await;
    let mut connection = connect(&postgres.dsn("app")).await;
    let error = connection.fetch_sample(Duration::from_millis(1)).await.expect_err("too slow");
    assert_eq!(error.reason().as_str(), "timeout", "{error}");
    assert!(connection.is_usable(&error), "{error}");
    let sample = connection.fetch_sample(DEADLINE).await.expect("the next poll");
    assert_eq!(sample.advisory_rows(true), 150_000);
}
