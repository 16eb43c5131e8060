//! One key on a primary and on its standby: two locks on two servers, before and after a promotion
//! that the exporter sees without a restart.

use serde_json::{Value, json};

use crate::support::snapshot::Lock;
use crate::support::{Exporter, Postgres, Scrape, Session, eventually, require};

/// What a fresh poll saw of a key of one server.
async fn lock(exporter: &Exporter, server: &str, key: &str) -> Option<Lock> {
    exporter.scrape_fresh().await;
    let answer = exporter.get("/api/v1/locks", &[]).await;
    let answer: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
    let servers = answer["servers"].as_array().expect("servers are listed");
    let server = servers.iter().find(|it| it["server"] == server).expect("it is watched");
    let mut locks = server["locks"].as_array().expect("it is up").iter();
    locks.find(|lock| lock["key"]["text"] == key).cloned().map(Lock::of)
}

#[track_caller]
fn assert_role(scrape: &Scrape, server: &str, role: &str) {
    let info = scrape.sample("pg_advisory_server_info").with("server", server);
    info.clone().with("role", role).is(1.0);
    assert_eq!(info.matches().len(), 1, "one role at a time");
}

/// Waits until the standby has replayed all that the primary wrote so far.
async fn until_replayed(primary: &Session, standby: &Session) {
    let written = primary.value("SELECT pg_current_wal_flush_lsn()").await.expect("a place");
    let is_there = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
    eventually("the standby has replayed it", async || {
        assert_eq!(standby.value(&is_there).await.as_deref(), Some("t"));
    })
    .await;
}

#[tokio::test]
async fn a_promotion_changes_the_role_and_neither_holds_nor_whose_they_are() {
    require!(Postgres);
    let mut primary = Postgres::builder()
        .setting("max_prepared_transactions", 10)
        .setting("wal_keep_size", "64MB")
        .setting("synchronous_commit", "on")
        .start()
        .await;
    let standby = primary.start_standby().await;
    let writer = primary.holds("scheduler", "28319").await;
    writer.run("SELECT pg_advisory_lock(77)").await;
    let payer = primary.session("pay-2pc").await;
    payer.run("BEGIN; SELECT pg_advisory_xact_lock(888); PREPARE TRANSACTION 'g888'").await;
    let reader = standby.holds("scheduler", "28319").await;
    reader.run("SELECT pg_advisory_lock(999)").await;
    let servers = format!(
        "servers:\n- {{ name: old, dsn: '{}' }}\n- {{ name: new, dsn: '{}' }}",
        primary.dsn("postgres"),
        standby.dsn("postgres")
    );
    let registry = "locks: [{ name: leader, key: 77, databases: [app], must_be_held: true, \
                    vacant_for: 1s, role: primary }]";
    let exporter = Exporter::builder().config(&servers).registry(registry).start().await;
    until_replayed(&writer, &reader).await;

    let scrape = exporter.scrape_fresh().await;
    assert_role(&scrape, "old", "primary");
    assert_role(&scrape, "new", "standby");
    let of = |scrape: &Scrape, name: &str, server: &str, key: &str| {
        scrape.sample(name).with("server", server).with("key", key).values()
    };
    const HOLDERS: &str = "pg_advisory_lock_holders";
    for server in ["old", "new"] {
        assert_eq!(of(&scrape, HOLDERS, server, "28319"), [1.0], "once on each");
    }
    scrape.sample("pg_advisory_lock_waiters").with("key", "28319").absent();
    assert_eq!(of(&scrape, HOLDERS, "old", "888"), [1.0]);
    assert_eq!(of(&scrape, HOLDERS, "new", "888"), [0.0; 0]);
    assert_eq!(of(&scrape, HOLDERS, "old", "999"), [0.0; 0]);
    let before = lock(&exporter, "new", "999").await.expect("it is held");
    assert_eq!(before.holder(&reader)["scope"], "session");
    assert!(lock(&exporter, "new", "77").await.is_none(), "nobody must hold it on a standby");

    let is_promoted = reader.value("SELECT pg_promote(true, 20)").await;
    assert_eq!(is_promoted.as_deref(), Some("t"));
    let scrape = eventually("the role is told", async || {
        let scrape = exporter.scrape_fresh().await;
        assert_role(&scrape, "new", "primary");
        scrape
    })
    .await;
    assert_role(&scrape, "old", "primary");
    for key in ["28319", "999"] {
        assert_eq!(of(&scrape, HOLDERS, "new", key), [1.0], "still held: {key}");
    }
    assert_eq!(of(&scrape, HOLDERS, "old", "28319"), [1.0], "the old primary has its own");
    let after = lock(&exporter, "new", "999").await.expect("it is held");
    let holder = after.holder(&reader);
    assert_eq!(holder["since"], before.holder(&reader)["since"], "one hold all along");
    assert_eq!(holder["backend_start"], before.holder(&reader)["backend_start"]);
    let events = exporter.get("/api/v1/events?server=new", &[]).await;
    let events: Value = serde_json::from_slice(&events.body).expect("it is JSON");
    let events = events["events"].as_array().expect("a list");
    assert!(events.iter().all(|event| event["event"] != "hold_ended"), "{events:#?}");

    let handed_on = lock(&exporter, "new", "888").await.expect("it came with the promotion");
    let holder = handed_on.only_holder();
    assert_eq!((&holder["pid"], &holder["prepared"]["gid"]), (&Value::Null, &json!("g888")));
    let leader = eventually("it is missed where it must be held now", async || {
        lock(&exporter, "new", "77").await.expect("it is told of")
    })
    .await;
    assert_eq!(leader.findings(), ["vacant"]);
    let held = lock(&exporter, "old", "77").await.expect("it is held");
    assert_eq!(held.findings(), [""; 0], "the old primary has its own leader still");
    assert_eq!(exporter.logged(&["level=warn"]), [""; 0], "nothing failed meanwhile");
}
