//! Sessions that hold keys and do not work: what is said of each on a real server, what is not, and
//! what ends it.

use serde_json::json;

use crate::support::process::Frozen;
use crate::support::snapshot::statement;
use crate::support::{Exporter, Postgres, Relay, Scrape, Session, eventually, require};

/// Limits short enough to be passed in a test.
async fn watch(postgres: &Postgres, registry: &str) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { idle_in_transaction: 1s }")
        .registry(registry)
        .start()
        .await;
    exporter.scrape_fresh().await;
    exporter
}

/// The pool is empty, and the queue for it is where no server sees it.
#[tokio::test]
async fn twenty_idle_transactions_without_a_waiter_are_twenty_findings_and_no_chain() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres, "locks: []").await;
    let mut pool = Vec::new();
    for number in 1..=20 {
        let session = postgres.session("workflow-api").await;
        session.run(&format!("BEGIN; SELECT pg_advisory_xact_lock(8000, {number})")).await;
        pool.push(session);
    }
    let scrape = eventually("all are told", async || {
        let scrape = exporter.scrape_fresh().await;
        let findings = scrape.sample("pg_advisory_lock_findings");
        let idle = findings.with("finding", "holder_idle_in_transaction").values();
        assert_eq!(idle, [1.0; 20]);
        scrape
    })
    .await;
    let sessions = scrape.sample("pg_advisory_sessions").with("application_name", "workflow-api");
    sessions.with("state", "idle in transaction").with("side", "holder").is(20.0);
    scrape.sample("pg_advisory_keys").with("state", "held").is(20.0);
    scrape.sample("pg_advisory_lock_waiters").absent();
    scrape.sample("pg_advisory_lock_roots").absent();
    let blocked = scrape.sample("pg_advisory_lock_blocked_sessions").values();
    assert!(blocked.iter().all(|sessions| *sessions == 0.0), "{blocked:?}");
    for (number, session) in pool.iter().enumerate() {
        let lock = exporter.find_lock(&format!("(8000,{})", number + 1)).await.expect("it is held");
        let holder = lock.holder(session);
        assert_eq!((&holder["blocks"], &holder["blocks_through"]), (&json!(0), &json!([])));
        assert_eq!(lock.findings(), ["holder_idle_in_transaction"]);
    }
}

/// Whoever pulled a cable looks like anybody who is idle, for as long as the server's keepalive
/// waits.
#[tokio::test]
async fn a_client_that_vanished_without_a_word_is_an_idle_holder_like_any_other() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let registry = "locks: [{ name: changelog, key: 702, max_hold: 1s }]";
    let exporter = watch(&postgres, registry).await;
    let relay = Relay::start_half_open(&postgres).await;
    let vanished = Session::connect(&relay.dsn("app"), "liquibase").await;
    vanished.run("SELECT pg_advisory_lock(702)").await;
    let pid = vanished.pid();
    drop(vanished);
    let other = postgres.session("liquibase").await;
    let is_free = other.value("SELECT pg_try_advisory_lock(702)").await;
    assert_eq!(is_free.as_deref(), Some("f"));

    let lock = eventually("it is held for too long", async || {
        let lock = exporter.lock("702").await;
        assert_eq!(lock.findings(), ["held_too_long"]);
        lock
    })
    .await;
    let holder = lock.only_holder();
    let expected = other
        .rows(&format!(
            "SELECT state, host(client_addr), client_port, wait_event_type || '/' || wait_event,
                 to_char(state_change AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
             FROM pg_stat_activity WHERE pid = {pid}"
        ))
        .await
        .swap_remove(0);
    let fields = ["state", "client_addr", "client_port", "wait_event", "state_since"];
    let shown = fields.map(|field| {
        let value = &holder[field];
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    });
    assert_eq!(shown.map(Some).to_vec(), expected);
    assert_eq!(holder["scope"], "session");
    assert!(holder["held_at_least_seconds"].as_f64().is_some_and(|age| age > 1.0), "{holder}");
    assert_eq!(lock.count("waiters"), 0, "who only tries does not wait");
    let keepalive = other.value("SHOW tcp_keepalives_idle").await.expect("a number");
    let told = &exporter.snapshot().await["tcp_keepalives_idle_seconds"];
    assert_eq!(told.to_string(), keepalive, "until then nobody asks whether it lives");
    let finding = lock.finding("held_too_long");
    let text = finding["text"].as_str().expect("a sentence");
    let begins = format!("seen held by session {pid} (liquibase) since ");
    assert!(text.starts_with(&begins), "no more than was seen: {text}");

    other.run(statement(finding)).await;
    eventually("the key is free", async || {
        let is_free = other.value("SELECT pg_try_advisory_lock(702)").await;
        assert_eq!(is_free.as_deref(), Some("t"));
    })
    .await;
}

#[tokio::test]
async fn a_leader_may_be_idle_in_its_transaction_where_its_entry_says_so_and_others_may_not() {
    const REGISTRY: &str = "
defaults: { max_hold: 1s, max_wait: 1s }
locks:
  - { name: sky-leader, key: 640001, max_hold: unlimited, max_idle_in_transaction: unlimited }
  - { name: sky-status, key: 640002 }
";
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres, REGISTRY).await;
    let leader = postgres.session("sky-leader").await;
    leader.run("BEGIN; SELECT pg_try_advisory_lock(640001)").await;
    let other = postgres.session("sky-cluster-status").await;
    other.run("BEGIN; SELECT pg_advisory_xact_lock(640002)").await;
    let both = ["held_too_long", "holder_idle_in_transaction"];
    eventually("the other is told", async || {
        assert_eq!(exporter.lock("640002").await.findings(), both);
        let lock = exporter.lock("640001").await;
        let age = lock.holder(&leader)["seen_for_seconds"].as_f64().expect("it has been seen");
        assert!(age > 1.0, "the leader is as old");
        assert_eq!(lock.findings(), [""; 0]);
    })
    .await;
    for (key, session) in [("640001", &leader), ("640002", &other)] {
        let lock = exporter.lock(key).await;
        let holder = lock.holder(session);
        assert_eq!(holder["scope"], "unknown");
        assert_eq!(holder["scope_evidence"], "session or transaction");
    }
    let scrape = exporter.scrape_fresh().await;
    let limits = scrape.sample("pg_advisory_lock_hold_limit_seconds");
    limits.clone().with("lock", "sky-leader").is(f64::INFINITY);
    limits.with("lock", "sky-status").is(1.0);

    let _waiter = postgres.waits("sky-2", "640001").await;
    eventually("who waits for the leader still counts", async || {
        assert_eq!(exporter.lock("640001").await.findings(), ["waiting_too_long", "stuck"]);
    })
    .await;
}

#[tokio::test]
async fn a_failed_transaction_holds_what_its_savepoint_kept_until_its_session_ends() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = watch(&postgres, "locks: []").await;
    let plain = postgres.session("plain").await;
    plain.run("BEGIN; SELECT pg_advisory_xact_lock(501), pg_advisory_lock(502)").await;
    plain.try_run("SELECT 1/0").await.expect_err("it fails");
    let orm = postgres.session("orm").await;
    orm.run("BEGIN; SELECT pg_advisory_xact_lock(503); SAVEPOINT a").await;
    orm.try_run("SELECT 1/0").await.expect_err("it fails");

    let idle = ["holder_idle_in_transaction"];
    let kept = eventually("both are told", async || {
        assert_eq!(exporter.lock("502").await.findings(), idle);
        let lock = exporter.lock("503").await;
        assert_eq!(lock.findings(), idle);
        lock
    })
    .await;
    assert!(exporter.find_lock("501").await.is_none(), "gone with its transaction");
    let outlived = exporter.lock("502").await;
    for (lock, session, scope) in [(&outlived, &plain, "session"), (&kept, &orm, "unknown")] {
        let holder = lock.holder(session);
        assert_eq!(holder["state"], "idle in transaction (aborted)");
        assert_eq!(holder["scope"], scope);
        let text = lock.finding(idle[0])["text"].as_str().expect("a sentence");
        assert!(text.contains("has been idle in a failed transaction for at least"), "{text}");
    }

    let operator = postgres.session("operator").await;
    operator.run(&format!("SELECT pg_cancel_backend({})", orm.pid())).await;
    let lock = exporter.lock("503").await;
    assert_eq!(lock.only_holder()["pid"], orm.pid(), "there is no query to cancel");
    operator.run(statement(lock.finding(idle[0]))).await;
    eventually("its session's end frees it", async || {
        assert!(exporter.find_lock("503").await.is_none());
    })
    .await;
    plain.run("ROLLBACK").await;
    let lock = exporter.lock("502").await;
    assert_eq!(lock.holder(&plain)["state"], "idle", "a session's lock outlives the rollback");
    assert_eq!(lock.findings(), [""; 0]);
}

/// With 10 locks for each of 100 sessions, the server promises to hold 1000.
#[tokio::test]
async fn a_lock_for_each_row_is_told_before_the_lock_table_is_full() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("max_locks_per_transaction", 10)
        .setting("max_connections", 100)
        .setting("max_prepared_transactions", 0)
        .start()
        .await;
    let worker = postgres.session("row-worker").await;
    worker.run("CREATE TABLE row (id int); INSERT INTO row SELECT generate_series(1, 90)").await;
    worker.run("BEGIN; SELECT pg_advisory_xact_lock(71, n) FROM generate_series(1, 750) n").await;
    let one =
        "BEGIN; SELECT id FROM row WHERE pg_try_advisory_xact_lock(72, id) ORDER BY id LIMIT 1";
    let greedy = postgres.session("queue-worker").await;
    greedy.run(one).await;

    let exporter = watch(&postgres, "locks: []").await;
    let scrape = exporter.scrape_fresh().await;
    let entries = scrape.sample("pg_advisory_lock_table_entries").value();
    scrape.sample("pg_advisory_lock_table_capacity").is(1000.0);
    assert!((840.0..900.0).contains(&entries), "{entries} entries");
    scrape.sample("pg_advisory_session_keys_max").is(750.0);
    let crowded = scrape.sample("pg_advisory_lock_findings").with("finding", "too_many_keys");
    assert_eq!(crowded.values(), [1.0], "once, whatever the number of keys");
    let snapshot = exporter.snapshot().await;
    let table = &snapshot["lock_table"];
    assert_eq!((table["entries"].as_f64(), &table["capacity"]), (Some(entries), &json!(1000)));
    let locks = snapshot["locks"].as_array().expect("locks are known");
    let greedy_keys = locks.iter().filter(|lock| lock["holders"][0]["pid"] == greedy.pid());
    assert_eq!(greedy_keys.count(), 90, "it asked for one");
    let findings = locks.iter().flat_map(|lock| lock["findings"].as_array().into_iter().flatten());
    let findings: Vec<_> = findings.filter(|it| it["finding"] == "too_many_keys").collect();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0]["pids"], json!([worker.pid()]));
    let text = findings[0]["text"].as_str().expect("a sentence");
    let said = "was seen holding 750 advisory keys at once; the limit is 100";
    assert!(text.contains(said), "a tenth of the table: {text}");

    worker.run("ROLLBACK").await;
    let scrape = eventually("entries are counted again", async || {
        let scrape = exporter.scrape_fresh().await;
        assert!(scrape.sample("pg_advisory_lock_table_entries").value() < 200.0);
        scrape
    })
    .await;
    scrape.sample("pg_advisory_lock_findings").with("finding", "too_many_keys").absent();
}

/// Takes keys until the lock table has no entry left, for anybody.
async fn fill_lock_table(greedy: &Session) {
    let all = "SELECT count(pg_advisory_lock(72, n)) FROM generate_series(1, 100000) n";
    let error = greedy.try_run(all).await.expect_err("the table has an end");
    assert_eq!(error.code().map(|code| code.code()), Some("53200"));
}

/// The lock table itself is read without a lock. Catalogs are not, and those that all databases share
/// take an entry each: to look up a right again, and to log in.
#[tokio::test]
async fn a_poll_that_finds_no_room_in_the_lock_table_has_failed_and_says_of_no_lock_that_it_is_free()
 {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("max_locks_per_transaction", 10)
        .setting("max_connections", 20)
        .start()
        .await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE bystander; CREATE ROLE mon LOGIN IN ROLE pg_monitor").await;
    let greedy = postgres.session("bulk-import").await;
    let _holder = postgres.holds("pod-a", "42").await;
    let dsn = format!("postgresql://mon@127.0.0.1:{}/app", postgres.port());
    let exporter =
        Exporter::watching(&dsn).argument("--poll.timeout").argument("30s").start().await;
    exporter.scrape_fresh().await;
    let end = |application: &str| {
        format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_get_activity(NULL) \
             WHERE application_name = '{application}'"
        )
    };
    let grant = postgres.session("grant").await;
    grant.run("BEGIN; GRANT pg_monitor TO bystander").await;
    // It does not look while there is room for a moment.
    let frozen = Frozen::freeze(&[exporter.id()]);
    grant.run("COMMIT").await;
    // The operator has looked up what ending a session takes while that is possible.
    let _victim = Session::connect(&dsn, "victim").await;
    operator.run(&end("victim")).await;
    fill_lock_table(&greedy).await;
    drop(frozen);

    let failures = |scrape: &Scrape| {
        scrape.sample("pg_advisory_poll_failures_total").with("reason", "out_of_memory").value()
    };
    let down = async |at_least: f64| {
        eventually("polls fail", async || {
            let scrape = exporter.scrape().await;
            assert!(failures(&scrape) >= at_least, "{}", exporter.log());
            scrape.sample("pg_advisory_up").is(0.0);
            for family in ["holders", "rows", "findings", "table_entries"] {
                scrape.sample(&format!("pg_advisory_lock_{family}")).absent();
            }
            scrape
        })
        .await
    };
    let scrape = down(2.0).await;
    scrape.sample("pg_advisory_lock_hold_seconds_total").with("key", "42").present();
    // Nor is there room for a new connection.
    operator.run(&end("locks")).await;
    down(failures(&scrape) + 2.0).await;
    let told = exporter.logged(&["level=warn", "out of shared memory"]);
    assert_eq!(told.len(), 1, "{told:#?}");

    greedy.close().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
}
