//! What `locks explain` prints is true of a real server: the statements it shows take and find the
//! key, and it reads the server's own log. And how the command ends.

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Postgres, eventually, locks, require};

/// Runs the command to its end on this input.
pub fn explain(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = start(&mut locks(&[&["explain"], arguments].concat()));
    // A command that does not read its input ends before it has all of it.
    let _ = child.stdin.take().expect("it has one").write_all(input);
    child.wait_with_output().expect("the command ends")
}

fn start(command: &mut Command) -> std::process::Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary is built")
}

pub fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it is one object")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn the_statements_it_shows_take_the_key_and_find_its_holder() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let observer = postgres.session("observer").await;
    for (key, columns) in [
        ("42", "0/42/1"),
        ("-1", "4294967295/4294967295/1"),
        ("-2147483648", "4294967295/2147483648/1"),
        ("9223372036854775807", "2147483647/4294967295/1"),
        ("-9223372036854775808", "2147483648/0/1"),
        ("18446744073709551615", "4294967295/4294967295/1"),
        ("7,9", "7/9/2"),
        ("-7,-9", "4294967289/4294967287/2"),
        ("(-2147483648,2147483647)", "2147483648/2147483647/2"),
        ("2615192801/1973311789/2", "2615192801/1973311789/2"),
    ] {
        let explained = json(&explain(&["--json", key], b""));
        let statement = |field: &str| explained[field].as_str().expect(field).to_owned();
        let holder = postgres.session("holder").await;
        holder.run(&statement("taken_by")).await;
        let held_by = statement("held_by");
        let found = observer
            .value(&format!(
                "SELECT string_agg(pid || ' ' || application_name || ' ' || datname, ',') \
                 FROM ({}) found",
                held_by.trim_end_matches(';')
            ))
            .await;
        assert_eq!(found, Some(format!("{} holder app", holder.pid())), "{key}");
        let taken = observer
            .value("SELECT classid || '/' || objid || '/' || objsubid FROM pg_locks WHERE locktype = 'advisory'")
            .await;
        assert_eq!(taken.as_deref(), Some(columns), "{key}");
        holder.run("SELECT pg_advisory_unlock_all()").await;
    }
}

#[tokio::test]
async fn every_key_that_may_be_made_of_a_text_is_found_by_one_statement() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let holder = postgres.holds("cron", "hashtextextended('it''s {nightly}', 0)").await;
    let explained = json(&explain(&["--json", "it's {nightly}"], b""));
    let held_by = explained["held_by"].as_str().expect("it is text");
    let rows = postgres.session("observer").await.rows(held_by).await;
    assert_eq!(rows.len(), 1);
    assert!(rows[0].contains(&Some(holder.pid().to_string())), "{rows:?}");
}

#[tokio::test]
async fn a_deadlock_in_the_servers_own_log_is_told_with_its_victim() {
    require!(Postgres);
    let postgres = Postgres::builder()
        .setting("deadlock_timeout", "100ms")
        .setting("log_lock_waits", "on")
        .start()
        .await;
    // In transactions, so that whoever is cancelled lets the other go on.
    let one = postgres.session("one").await;
    one.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
    let other = postgres.session("other").await;
    other.run("BEGIN; SELECT pg_advisory_xact_lock(7, 9)").await;
    let waiting = one.start("SELECT pg_advisory_xact_lock(7, 9)");
    postgres.until_waiting(&one).await;
    let outcome = other.try_run("SELECT pg_advisory_xact_lock(42)").await;
    let explained = eventually("the log has the whole report", async || {
        let explained = json(&explain(&["--json"], postgres.log().as_bytes()));
        let queries = &explained["deadlocks"][0]["waits"][1]["query"];
        assert!(queries.is_string(), "{explained}");
        explained
    })
    .await;
    drop(waiting);
    let victim = if outcome.is_err() { other.pid() } else { one.pid() };
    let deadlock = &explained["deadlocks"][0];
    assert_eq!(deadlock["victim"], victim);
    assert_eq!(deadlock["complete"], true);
    let waited = deadlock["waits"].as_array().expect("it is a list").iter();
    let mut keys: Vec<_> = waited.map(|wait| &wait["object"]["key"]["text"]).collect();
    keys.sort_by_key(|key| key.to_string());
    assert_eq!(keys, ["(7,9)", "42"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let log = "on advisory lock [16384,0,42,1]\n".repeat(100_000);
    let mut child = start(&mut locks(&["explain"]));
    let mut input = child.stdin.take().expect("it has one");
    let writer = std::thread::spawn(move || input.write_all(log.as_bytes()));
    let mut seen = [0; 40];
    let mut output = child.stdout.take().expect("it has one");
    output.read_exact(&mut seen).expect("it says something");
    drop(output);
    let outcome = child.wait_with_output().expect("it ends");
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    let _ = writer.join().expect("writing does not panic");
}

#[test]
fn mistakes_exit_with_2_and_failures_with_1() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "locks:\n  - { name: x, key: 010 }\n").expect("the folder is ours");
    let outcome = explain(&["42", "--registry.file", &broken.to_string_lossy()], b"");
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
    assert!(said(&outcome).contains("broken.yaml:2:21: 010 begins with a zero"), "{outcome:?}");
    assert!(outcome.stdout.is_empty());

    let unreadable = std::fs::File::open(folder.path()).expect("a folder can be opened");
    let outcome = locks(&["explain"]).stdin(unreadable).output().expect("the command ends");
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(said(&outcome).contains("cannot read the log: "), "{outcome:?}");
}
