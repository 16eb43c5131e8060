//! Prepared transactions that hold keys: no session to end, and a name that its maker chose freely.
//! Each is told by its gid, and what the remedy says can be run as it stands.

use serde_json::{Value, json};

use crate::support::snapshot::Lock;
use crate::support::{Exporter, Postgres, Session, eventually, require};

/// A gid that tears lines, ends strings and moves cursors where it is not quoted, as text and as SQL.
const HOSTILE: &str = "it's\n'; DROP TABLE t; --\t\u{1b}[2J\\ é";
const HOSTILE_SQL: &str = r"E'it\'s\n\'; DROP TABLE t; --\t\x1b[2J\\ é'";

async fn stage() -> Postgres {
    Postgres::builder().setting("max_prepared_transactions", 10).start().await
}

async fn watch(postgres: &Postgres, registry: &str) -> Exporter {
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { prepared: 1s }")
        .registry(registry)
        .start()
        .await;
    exporter.scrape_fresh().await;
    exporter
}

/// The statement that rolls back, as an operator would copy it from a remedy.
fn rollback(finding: &Value) -> String {
    let remedy = finding["remedy"].as_str().expect("a remedy");
    assert!(!remedy.contains(char::is_control), "not one line: {remedy:?}");
    let begin = remedy.find("ROLLBACK PREPARED").unwrap_or_else(|| panic!("{remedy}"));
    let end = remedy.find(" in its database").unwrap_or_else(|| panic!("{remedy}"));
    let is_first = !remedy[..end].contains("pg_terminate_backend");
    assert!(is_first, "it has no backend: {remedy}");
    remedy[begin..end].to_owned()
}

/// Told by its gid, as the only root of the only waiter.
fn assert_waits_for(lock: &Lock, waiter: &Session, gid: &str) {
    let waiter = lock.waiter(waiter);
    let root = json!([{
        "pid": null, "gid": gid, "application_name": null, "state": null,
        "holds_key": true, "in_cycle": false, "blocks": 1,
    }]);
    assert_eq!(waiter["roots"], root);
    let blocker = json!([{ "pid": null, "gid": gid, "kind": "hard", "certain": true }]);
    assert_eq!(waiter["blocked_by"], blocker);
}

#[tokio::test]
async fn a_prepared_transaction_is_the_root_of_its_waiter_before_and_after_a_restart() {
    require!(Postgres);
    let mut postgres = stage().await;
    if postgres.major_version() < 14 {
        return; // It does not tell when a wait began.
    }
    let registry = "locks: [{ name: payment, key: 4242, max_wait: 1s }]";
    let exporter = watch(&postgres, registry).await;
    let payer = postgres.session("pay-2pc").await;
    let sql = "BEGIN; SELECT pg_advisory_xact_lock(4242); PREPARE TRANSACTION 'gid-4242'";
    payer.run(sql).await;
    payer.close().await;
    let early = postgres.waits("waiter", "4242").await;
    let is_told = async |waiter: &Session| {
        let lock = exporter.lock("4242").await;
        assert_eq!(lock.findings(), ["waiting_too_long", "held_by_prepared_transaction"]);
        assert_waits_for(&lock, waiter, "gid-4242");
        assert_eq!(lock.only_holder()["blocks"], 1);
        assert_eq!(lock.only_holder()["frees_next"], json!([waiter.pid()]));
        let waiting = lock.finding("waiting_too_long")["text"].as_str().expect("a sentence");
        let root = "; its chain ends at the prepared transaction 'gid-4242'";
        assert!(waiting.ends_with(root), "{waiting}");
        let scrape = exporter.scrape_fresh().await;
        let roots = scrape.sample("pg_advisory_lock_roots").with("lock", "payment");
        roots.with("kind", "prepared").with("application_name", "(prepared)").is(1.0);
        ["waiting_too_long", "held_by_prepared_transaction"]
            .map(|name| rollback(lock.finding(name)))
    };
    eventually("it is told", async || is_told(&early.session).await).await;

    postgres.restart().await;
    let waiter = postgres.waits("waiter", "4242").await;
    let statements = eventually("it is told again", async || is_told(&waiter.session).await).await;
    assert_eq!(statements, ["ROLLBACK PREPARED 'gid-4242'"; 2]);
    postgres.session("operator").await.run(&statements[0]).await;
    waiter.statement.finish().await;
    let lock = exporter.lock("4242").await;
    assert_eq!(lock.only_holder()["pid"], waiter.session.pid());
    assert_eq!(lock.findings(), [""; 0], "the next hold is young");
}

#[tokio::test]
async fn whatever_a_gid_and_a_database_are_called_the_remedy_is_one_line_that_works() {
    require!(Postgres);
    let postgres = stage().await;
    let datname = "shop\n'\"\u{1b}[2J";
    let admin = postgres.session("admin").await;
    admin.run(&format!("CREATE DATABASE \"{}\"", datname.replace('"', "\"\""))).await;
    let mut config: tokio_postgres::Config = postgres.dsn("app").parse().expect("a string");
    let (client, connection) =
        config.dbname(datname).connect(tokio_postgres::NoTls).await.expect("it is there");
    let connection = tokio::spawn(connection);
    let exporter = watch(&postgres, "locks: []").await;
    client.batch_execute("CREATE TABLE t ()").await.expect("a table");
    let prepare = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(13); \
         PREPARE TRANSACTION {HOSTILE_SQL}"
    );
    client.batch_execute(&prepare).await.expect("the server takes such names");
    let lock = eventually("it is told", async || {
        let lock = exporter.lock("13").await;
        assert_eq!(lock.findings(), ["held_by_prepared_transaction"]);
        lock
    })
    .await;
    assert_eq!(lock["datname"], datname);
    assert_eq!(lock.only_holder()["prepared"]["gid"], HOSTILE);
    let finding = lock.finding("held_by_prepared_transaction");
    let text = finding["text"].as_str().expect("a sentence");
    assert!(!text.contains(char::is_control), "not one line: {text:?}");
    let scrape = exporter.scrape_fresh().await;
    let label = datname.replace(char::is_control, "\u{fffd}");
    let holders = scrape.sample("pg_advisory_lock_holders").with("datname", &label);
    holders.with("application_name", "(prepared)").is(1.0);
    assert!(!exporter.log().contains('\u{1b}'), "{}", exporter.log());

    client.batch_execute(&rollback(finding)).await.expect("the remedy is SQL");
    let left = client.query("SELECT FROM pg_prepared_xacts", &[]).await.expect("a query");
    assert!(left.is_empty(), "it rolled back another one");
    client.batch_execute("SELECT FROM t").await.expect("nothing was injected");
    assert!(exporter.find_lock("13").await.is_none());
    drop(client);
    let _ = connection.await;
}

/// Rows, not keys: it is at the end of a chain, and in no list of holders.
#[tokio::test]
async fn a_prepared_transaction_without_a_key_of_its_own_is_a_root_by_its_gid() {
    require!(Postgres);
    let postgres = stage().await;
    let exporter = watch(&postgres, "locks: [{ name: acct, key: 4711, max_wait: 1s }]").await;
    let payer = postgres.session("pay-2pc").await;
    payer.run("CREATE TABLE acct (id int, v int); INSERT INTO acct VALUES (1, 0)").await;
    payer.run("BEGIN; UPDATE acct SET v = 1; PREPARE TRANSACTION 'rows-only'").await;
    payer.close().await;
    let middle = postgres.holds("middle", "4711").await;
    let update = middle.start("UPDATE acct SET v = 2");
    postgres.until_waiting(&middle).await;
    let leaf = postgres.waits("leaf", "4711").await;
    let lock = eventually("the leaf has waited for too long", async || {
        let lock = exporter.lock("4711").await;
        assert_eq!(lock.findings(), ["waiting_too_long"]);
        lock
    })
    .await;
    let root = &lock.waiter(&leaf.session)["roots"][0];
    assert_eq!((&root["gid"], &root["holds_key"]), (&json!("rows-only"), &json!(false)));
    let finding = lock.finding("waiting_too_long");
    assert_eq!(rollback(finding), "ROLLBACK PREPARED 'rows-only'");
    postgres.session("operator").await.run(&rollback(finding)).await;
    update.finish().await;
}
