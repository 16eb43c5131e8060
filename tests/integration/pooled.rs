//! Locks that a pooler strands, hands on and hides, and circles that close in a program: what people
//! have run into, recreated on real servers, and what they are told.

use std::future::Future;

use serde_json::Value;

use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, Session, eventually, require,
};

/// What the exporter says of a key now; null where nobody holds or awaits it.
async fn lock_now(exporter: &Exporter, key: &str) -> Value {
    exporter.scrape_fresh().await;
    let snapshot = exporter.snapshot().await;
    let locks = snapshot["locks"].as_array().expect("the server is polled");
    locks.iter().find(|lock| lock["key"]["text"] == key).cloned().unwrap_or_default()
}

fn finding<'a>(lock: &'a Value, kind: &str) -> Option<&'a Value> {
    lock["findings"].as_array()?.iter().find(|finding| finding["finding"] == kind)
}

/// Waits until all of these are found of a key, and returns what is said of it.
async fn found(exporter: &Exporter, key: &str, kinds: &[&str]) -> Value {
    eventually("the findings are there", async || {
        let lock = lock_now(exporter, key).await;
        for kind in kinds {
            assert!(finding(&lock, kind).is_some(), "no {kind}: {lock:#}");
        }
        lock
    })
    .await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

#[track_caller]
fn assert_says(value: &Value, pieces: &[&str]) {
    for piece in pieces {
        assert!(text(value).contains(piece), "{piece:?} is not in {value}");
    }
}

/// The backend that holds a key of one number in `app`, as the server says.
async fn holder_pid(observer: &Session, key: i64) -> Option<i64> {
    let (classid, objid) = (key >> 32, key & 0xffff_ffff);
    let sql = format!(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
         AND classid = {classid} AND objid = {objid}"
    );
    observer.value(&sql).await.map(|pid| pid.parse().expect("a pid"))
}

/// Lets another client use the backend on which `owner` took a key, so that its unlock goes
/// elsewhere, and then both leave. Between these `look` sees who is there.
async fn strand<F: Future<Output = ()>>(
    pooler: &PgBouncer,
    key: i64,
    backend: i64,
    owner: Session,
    look: impl FnOnce() -> F,
) {
    look().await;
    let web = pooler.session("web").await;
    // The pooler gives out the backend first that came back last.
    let given = web.rows("BEGIN; SELECT pg_backend_pid()").await;
    assert_eq!(given, [[Some(backend.to_string())]], "another backend than that of the lock");
    let unlock = format!("SELECT pg_advisory_unlock({key})");
    assert_eq!(owner.value(&unlock).await.as_deref(), Some("f"), "the unlock went elsewhere");
    web.run("COMMIT").await;
    owner.close().await;
    web.close().await;
}

#[tokio::test]
async fn a_stranded_lock_is_told_by_its_first_name_and_no_restart_of_pods_frees_it() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let observer = postgres.session("observer").await;
    let registry =
        "locks: [{ name: migrate, key: 1000, databases: [app], max_hold: 1s, max_wait: 1s }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    exporter.scrape_fresh().await;

    let owner = pooler.session("authentik-migrate").await;
    owner.run("SELECT pg_advisory_lock(1000)").await;
    let backend = holder_pid(&observer, 1000).await.expect("it holds the key");
    let mut before = Value::Null;
    strand(&pooler, 1000, backend, owner, || async {
        before = lock_now(&exporter, "1000").await["holders"][0].take();
    })
    .await;
    let pod = postgres.waits("pod-2", "1000").await;

    let kinds = ["held_too_long", "waiting_too_long", "pooled_backend"];
    let lock = found(&exporter, "1000", &kinds).await;
    let holder = &lock["holders"][0];
    assert_eq!(before["application_name"], "authentik-migrate");
    assert_eq!(holder["application_name"], "web");
    assert_eq!(holder["first_application_name"], "authentik-migrate");
    assert_eq!(holder["seen_to_begin"], true);
    for field in ["pid", "backend_start", "client_port"] {
        assert_eq!(holder[field], before[field], "{field}");
    }
    assert_eq!(lock["waiters"][0]["roots"][0]["pid"], backend, "it keeps pod-2 waiting");
    let pooled = finding(&lock, "pooled_backend").unwrap();
    assert_eq!((&pooled["severity"], &pooled["pids"][0]), (&"warning".into(), &backend.into()));
    assert_says(
        &pooled["text"],
        &[
            "first under the name authentik-migrate",
            "under web",
            "authentik-migrate is the name of session",
            "either the program renames itself or other clients use this connection",
            "exclusion is not guaranteed on a shared backend",
        ],
    );
    let remedy = format!("SELECT pg_terminate_backend({backend})");
    assert_says(
        &pooled["remedy"],
        &[
            &remedy,
            "restarting the applications does not free it",
            "may go on working without the lock",
            "renames_itself",
        ],
    );
    let scrape = exporter.scrape_fresh().await;
    let of_lock = |name: &str| scrape.sample(name).with("lock", "migrate");
    of_lock("pg_advisory_lock_acquisitions_observed_total").is(1.0);
    of_lock("pg_advisory_lock_holder_changes_total").is(0.0);
    let held_since = of_lock("pg_advisory_lock_held_since_timestamp_seconds").value();

    drop(pod);
    let pod = postgres.waits("pod-2", "1000").await;
    let lock = found(&exporter, "1000", &kinds).await;
    assert_eq!(lock["holders"][0]["pid"], backend, "the next pod waits for the same one");
    let scrape = exporter.scrape_fresh().await;
    let since = scrape.sample("pg_advisory_lock_held_since_timestamp_seconds");
    since.with("lock", "migrate").is(held_since);

    observer.run(&remedy).await;
    pod.statement.finish().await;
    let lock = eventually("the next pod holds the key", async || {
        let lock = lock_now(&exporter, "1000").await;
        assert_eq!(lock["holders"][0]["application_name"], "pod-2");
        lock
    })
    .await;
    assert!(finding(&lock, "pooled_backend").is_none(), "{lock:#}");
}

#[tokio::test]
async fn a_key_made_of_the_database_is_named_on_the_backend_where_it_is_stranded() {
    require!(Postgres, PgBouncer);
    const KEY: i64 = 6_939_591_962_871_035_475;
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let observer = postgres.session("observer").await;
    let registry = "locks: [{ name: rails-migrations, max_hold: 1s }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let owner = pooler.session("rails").await;
    owner.run(&format!("SELECT pg_advisory_lock({KEY})")).await;
    let backend = holder_pid(&observer, KEY).await.expect("it holds the key");
    strand(&pooler, KEY, backend, owner, async || {
        lock_now(&exporter, &KEY.to_string()).await;
    })
    .await;
    let lock = found(&exporter, &KEY.to_string(), &["held_too_long", "pooled_backend"]).await;
    assert_eq!(lock["lock"], "rails-migrations");
    let holder = &lock["holders"][0];
    assert_eq!((&holder["pid"], &holder["state"]), (&backend.into(), &"idle".into()));
    assert_eq!(holder["client_addr"], "127.0.0.1", "the pooler's");
}

#[tokio::test]
async fn two_clients_that_were_both_given_the_lock_are_one_holder_on_a_shared_backend() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let claim = "SELECT pg_try_advisory_lock(555), pg_backend_pid()";
    let job_a = pooler.session("jobA").await;
    let of_a = job_a.rows(claim).await;
    lock_now(&exporter, "555").await;
    let job_b = pooler.session("jobB").await;
    assert_eq!(job_b.rows(claim).await, of_a, "the same backend says yes again");
    assert_eq!(of_a[0][0].as_deref(), Some("t"));

    let lock = found(&exporter, "555", &["pooled_backend"]).await;
    assert_eq!(lock["holders"].as_array().map(Vec::len), Some(1));
    assert_eq!(lock["waiters"].as_array().map(Vec::len), Some(0));
    let pooled = finding(&lock, "pooled_backend").unwrap();
    let words = ["jobA", "jobB", "exclusion is not guaranteed on a shared backend"];
    assert_says(&pooled["text"], &words);
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(1.0);
    scrape.sample("pg_advisory_lock_holders").with("key", "555").is(1.0);
}

#[tokio::test]
async fn the_lock_of_a_client_killed_while_idle_stays_and_three_other_deaths_leave_nothing() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let transactions = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let sessions = PgBouncer::start(&postgres, PoolMode::Session, 2).await;
    let registry = "defaults: { unregistered: { max_hold: 1s } }\nlocks: []";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;

    // In the middle of a statement, in a transaction, and with a backend of its own.
    let amid = transactions.session("psql").await;
    let statement = amid.start("SELECT pg_advisory_lock(999125, 1), pg_sleep(1)");
    let in_transaction = transactions.session("psql").await;
    in_transaction.run("BEGIN; SELECT pg_advisory_lock(999125, 2)").await;
    let alone = sessions.session("psql").await;
    alone.run("SELECT pg_try_advisory_lock(999125, 3)").await;
    eventually("all three hold", async || {
        for key in 1..=3 {
            let lock = lock_now(&exporter, &format!("(999125,{key})")).await;
            assert_eq!(lock["holders"].as_array().map(Vec::len), Some(1), "{key}");
        }
    })
    .await;
    drop((amid, statement, in_transaction, alone));
    eventually("the server lets go of all three", async || {
        for key in 1..=3 {
            assert_eq!(lock_now(&exporter, &format!("(999125,{key})")).await, Value::Null);
        }
    })
    .await;

    let idle = transactions.session("psql").await;
    idle.run("SELECT pg_try_advisory_lock(999125, 0)").await;
    drop(idle);
    let lock = found(&exporter, "(999125,0)", &["held_too_long"]).await;
    assert_eq!(lock["key"]["kind"], "pair");
    assert_eq!((&lock["key"]["classid"], &lock["key"]["objsubid"]), (&999_125.into(), &2.into()));
    assert_eq!(lock["holders"][0]["state"], "idle");
    assert_eq!(lock["holders"][0]["scope"], "session");
    let scrape = exporter.scrape_fresh().await;
    for key in 1..=3 {
        let key = format!("(999125,{key})");
        for name in ["pg_advisory_lock_holders", "pg_advisory_lock_findings"] {
            scrape.sample(name).with("key", &key).absent();
        }
    }
}

#[tokio::test]
async fn a_program_that_counts_in_its_name_is_silent_and_one_that_takes_another_is_asked_about() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let worker = postgres.holds("worker: ReportJob#41", "77").await;
    lock_now(&exporter, "77").await;
    let renamed = async |name: &str| {
        worker.run(&format!("SET application_name = '{name}'")).await;
        eventually("the new name is seen", async || {
            let lock = lock_now(&exporter, "77").await;
            assert_eq!(lock["holders"][0]["application_name"], name);
            assert_eq!(lock["holders"][0]["state"], "idle");
            lock
        })
        .await
    };
    let lock = renamed("worker: ReportJob#42").await;
    assert!(finding(&lock, "pooled_backend").is_none(), "{lock:#}");
    let lock = renamed("mailer").await;
    let pooled = finding(&lock, "pooled_backend").unwrap_or_else(|| panic!("{lock:#}"));
    assert_eq!(pooled["severity"], "warning");
    let words = "either the program renames itself or other clients use this connection";
    assert_says(&pooled["text"], &["worker: ReportJob#41", "mailer", words]);
}

#[tokio::test]
async fn clients_of_one_name_are_told_apart_from_a_program_by_the_listed_address_of_their_pooler() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    let server = format!(
        "servers: [{{ name: db, dsn: \"{}\", poolers: [127.0.0.0/8] }}]",
        postgres.dsn("postgres")
    );
    let exporter = Exporter::builder().config(&server).start().await;
    exporter.scrape_fresh().await;
    let local = postgres.socket_dsn("app");
    let direct = Session::connect(&local, "web").await;
    direct.run("SELECT pg_advisory_lock(6)").await;
    let first = pooler.session("web").await;
    first.run("SELECT pg_advisory_lock(7)").await;
    let lock = found(&exporter, "7", &["pooled_backend"]).await;
    let pooled = finding(&lock, "pooled_backend").unwrap();
    assert_eq!(pooled["severity"], "warning");
    assert_says(&pooled["text"], &["its client address is listed in `poolers`"]);
    let lock = lock_now(&exporter, "6").await;
    assert!(finding(&lock, "pooled_backend").is_none(), "over the socket: {lock:#}");

    let second = pooler.session("mail").await;
    second.run("SELECT 1").await;
    eventually("it is critical", async || {
        let lock = lock_now(&exporter, "7").await;
        assert_eq!(finding(&lock, "pooled_backend").unwrap()["severity"], "critical");
        let scrape = exporter.scrape_fresh().await;
        let findings = scrape.sample("pg_advisory_lock_findings").with("key", "7");
        findings.with("finding", "pooled_backend").is(1.0);
    })
    .await;
}

#[tokio::test]
async fn clients_of_one_name_are_told_apart_by_the_host_that_their_pooler_adds_to_it() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let add_host = "application_name_add_host = 1";
    let pooler = PgBouncer::start_with(&postgres, PoolMode::Transaction, 2, add_host).await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let first = pooler.session("web").await;
    first.run("SELECT pg_advisory_lock(7)").await;
    let lock = lock_now(&exporter, "7").await;
    assert!(finding(&lock, "pooled_backend").is_none(), "one client so far: {lock:#}");
    let second = pooler.session("web").await;
    second.run("SELECT 1").await;
    let lock = found(&exporter, "7", &["pooled_backend"]).await;
    let pooled = finding(&lock, "pooled_backend").unwrap();
    assert_eq!(pooled["severity"], "critical");
    assert_says(&pooled["text"], &["web - 127.0.0.1:", "host and port that the pooler adds"]);
}

#[tokio::test]
async fn an_exporter_behind_the_pooler_itself_makes_a_changed_name_critical() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
    // A backend that is older than the exporter's connection shows what it connects through.
    let observer = pooler.session("observer").await;
    let age = "SELECT now() - backend_start > '1.5s' FROM pg_stat_activity \
               WHERE pid = pg_backend_pid()";
    eventually("the backend is old", async || {
        assert_eq!(observer.value(age).await.as_deref(), Some("t"));
    })
    .await;
    let exporter = Exporter::watching(&pooler.dsn("app")).start().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_pooled_connection").is(1.0);
    let direct = postgres.holds("nightly", "7").await;
    lock_now(&exporter, "7").await;
    direct.run("SET application_name = 'reports'").await;
    let lock = found(&exporter, "7", &["pooled_backend"]).await;
    let pooled = finding(&lock, "pooled_backend").unwrap();
    assert_eq!(pooled["severity"], "critical");
    assert_says(&pooled["text"], &["a pooler at its client address serves our own connection too"]);
}

#[tokio::test]
async fn the_pooled_applications_of_the_fleet_are_found_out() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 5).await;
    let registry = include_str!("../../examples/fleet-registry.yaml");
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let fleet = Fleet::start(&postgres, Some(&pooler));
    let lock = found(&exporter, "4242", &["pooled_backend"]).await;
    assert_eq!(lock["lock"], "nightly-billing");
    // Whoever comes to the connection before the next poll may be who is seen first.
    let lock = found(&exporter, "3527008159069678219", &["pooled_backend"]).await;
    assert_eq!(lock["lock"], "signup-pooled");
    let remedy = format!("SELECT pg_terminate_backend({})", lock["holders"][0]["pid"]);
    assert_says(&finding(&lock, "pooled_backend").unwrap()["remedy"], &[&remedy]);
    fleet.end().await;
}

/// The lock connection of a migration, another pod, and the index build that waits for that pod.
#[tokio::test]
async fn an_index_build_behind_a_waiter_for_its_own_lock_is_freed_by_ending_the_wait() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    postgres.session("setup").await.run("CREATE TABLE big (i int)").await;
    let registry = "locks: [{ name: migrate, key: 123456, databases: [app], max_wait: 1s }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let migrate = postgres.holds("web-migrate", "123456").await;
    let worker = postgres.waits("worker-migrate", "123456").await;
    let build = postgres.session("web-migrate").await;
    let building = build.start("CREATE INDEX CONCURRENTLY bigi ON big (i)");
    postgres.until_waiting(&build).await;

    let lock = found(&exporter, "123456", &["waiting_too_long", "hidden_cycle"]).await;
    let cycle = finding(&lock, "hidden_cycle").unwrap();
    assert_eq!(cycle["severity"], "critical");
    assert_eq!(cycle["pids"], serde_json::json!([worker.session.pid()]));
    let pids = [build.pid(), worker.session.pid(), migrate.pid()];
    let words = pids.map(|pid| format!("session {pid} "));
    assert_says(&cycle["text"], &words.each_ref().map(String::as_str));
    assert_says(&cycle["text"], &["virtualxid"]);
    let remedy = format!("SELECT pg_cancel_backend({})", worker.session.pid());
    assert_says(&cycle["remedy"], &[&remedy, "do not end session"]);
    for finding in lock["findings"].as_array().unwrap() {
        assert!(!text(&finding["remedy"]).contains("pg_terminate_backend"), "{finding}");
    }

    postgres.session("operator").await.run(&remedy).await;
    assert!(worker.statement.try_finish().await.is_err(), "its statement was cancelled");
    building.finish().await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_findings").with("finding", "hidden_cycle").absent();
    let unlocked = migrate.value("SELECT pg_advisory_unlock(123456)").await;
    assert_eq!(unlocked.as_deref(), Some("t"), "the holder still had it");
}

#[tokio::test]
async fn a_queue_of_one_program_behind_its_forgotten_session_is_stuck_and_no_hidden_cycle() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let registry = "locks: [{ name: prisma-migrate, max_hold: 1s, max_wait: 1s }]";
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(registry).start().await;
    let forgotten = postgres.holds("prisma-migrate", "72707369").await;
    let mut pool = Vec::new();
    for _ in 0..16 {
        pool.push(postgres.session("prisma-migrate").await);
    }
    let _tries = (
        postgres.waits("prisma-migrate", "72707369").await,
        postgres.waits("prisma-migrate", "72707369").await,
        postgres.waits("prisma-migrate", "72707369").await,
    );
    let kinds = ["held_too_long", "waiting_too_long", "stuck"];
    let lock = eventually("all three have waited for too long", async || {
        let lock = found(&exporter, "72707369", &kinds).await;
        assert_eq!(finding(&lock, "waiting_too_long").unwrap()["sessions_count"], 3);
        lock
    })
    .await;
    assert_eq!(lock["lock"], "prisma-migrate");
    assert!(finding(&lock, "hidden_cycle").is_none(), "{lock:#}");
    let stuck = finding(&lock, "stuck").unwrap();
    assert_says(&stuck["remedy"], &[&format!("pg_terminate_backend({})", forgotten.pid())]);
    for waiter in lock["waiters"].as_array().unwrap() {
        assert_eq!(waiter["roots"][0]["pid"], forgotten.pid());
        assert_eq!(waiter["roots_count"], 1);
    }
}

#[tokio::test]
async fn a_program_that_waits_for_the_snapshot_of_its_own_lock_connection_is_no_hidden_cycle() {
    require!(Postgres);
    const KEY: &str = "77431133147203";
    let postgres = Postgres::start().await;
    postgres.session("setup").await.run("CREATE TABLE big (j int)").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { idle_in_transaction: 1s }")
        .registry(&format!(
            "locks: [{{ name: flyway, key: {KEY}, databases: [app], max_wait: 1s }}]"
        ))
        .start()
        .await;
    let ddl = postgres.session("flyway").await;
    let lock_connection = postgres.session("flyway").await;
    let take = format!("SELECT pg_try_advisory_xact_lock({KEY})");
    // Without a snapshot that stays, the build waits for nobody.
    lock_connection.run(&format!("BEGIN; {take}; SELECT 1")).await;
    ddl.run("CREATE INDEX CONCURRENTLY control ON big (j)").await;
    lock_connection.run("COMMIT").await;

    let snapshot = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {take}; SELECT 1");
    lock_connection.run(&snapshot).await;
    let building = ddl.start("CREATE INDEX CONCURRENTLY bigk ON big (j)");
    postgres.until_waiting(&ddl).await;
    let lock = found(&exporter, KEY, &["holder_idle_in_transaction"]).await;
    let holder = &lock["holders"][0];
    assert_eq!(holder["pid"], lock_connection.pid());
    assert_eq!(holder["blocks"], 1);
    assert_eq!(holder["blocks_through"], serde_json::json!(["virtualxid"]));
    assert_eq!(lock["waiters"].as_array().map(Vec::len), Some(0));
    assert!(finding(&lock, "hidden_cycle").is_none(), "{lock:#}");
    lock_connection.run("COMMIT").await;
    building.finish().await;
}
