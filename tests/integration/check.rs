//! `locks check` through the built binary: what a monitoring system reads of it, with which exit
//! code, about real servers and through a running exporter.

use std::process::Stdio;

use regex::Regex;
use serde_json::Value;

use crate::support::files::Files;
use crate::support::port::Port;
use crate::support::process::{Outcome, run};
use crate::support::{
    Exporter, PgBouncer, PoolMode, Postgres, Session, eventually, locks, require,
};

/// Two looks at what the arguments name, one right after the other.
async fn check(arguments: &[&str]) -> Outcome {
    let mut command = locks(&["check", "--interval", "20ms"]);
    command.args(arguments).stdin(Stdio::null());
    run(command).await
}

fn first_line(outcome: &Outcome) -> &str {
    outcome.stdout.lines().next().unwrap_or_default()
}

/// The lines below a heading, up to the next.
fn below<'a>(outcome: &'a Outcome, heading: &str) -> Vec<&'a str> {
    let lines = outcome.stdout.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

#[tokio::test]
async fn a_server_without_findings_is_ok() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let outcome = check(&["--dsn", &postgres.dsn("postgres")]).await;
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", outcome.stdout);
    let port = postgres.port();
    let calm = format!(
        "LOCKS OK - no findings on 127.0.0.1:{port}: 1 key held, 0 awaited | holders=1;;;0 "
    );
    assert!(outcome.stdout.starts_with(&calm), "{}", outcome.stdout);
    assert!(first_line(&outcome).contains(" lock_table="), "{}", outcome.stdout);
}

#[tokio::test]
async fn a_hold_past_its_limit_is_a_warning_and_a_stuck_one_is_critical() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let registry = files.write(
        "locks.yaml",
        "locks:\n- { name: nightly, key: 42, max_hold: 10ms, runbook: 'https://wiki/nightly' }\n\
         - { name: signup, key: { pair: [7, '*'] }, parameter: tenant, max_wait: 10ms }\n",
    );
    let dsn = postgres.dsn("postgres");
    let arguments = ["--dsn", &dsn, "--registry.file", &registry];
    let late = postgres.holds("pod-a", "42").await;
    let place = format!("in app on 127.0.0.1:{}", postgres.port());

    let outcome = check(&arguments).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let expected = format!("LOCKS WARNING - 1 warning: held_too_long: nightly {place}: seen held ");
    assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
    let [text, remedy, runbook] =
        below(&outcome, &format!("WARNING held_too_long: nightly, key 42 {place}"))[..]
    else {
        panic!("{}", outcome.stdout);
    };
    assert!(text.contains("; max_hold is 10ms; its name may be that of a later user"), "{text}");
    let end = format!("remedy: SELECT pg_terminate_backend({}); ", late.pid());
    assert!(remedy.starts_with(&end), "{remedy}");
    assert_eq!(runbook, "runbook: https://wiki/nightly");

    let holder = postgres.holds("pod-b", "7, 99").await;
    let _waiter = postgres.waits("pod-c", "7, 99").await;
    let outcome = eventually("the wait is too long", async || {
        let outcome = check(&arguments).await;
        assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
        outcome
    })
    .await;
    let expected = format!(
        "LOCKS CRITICAL - 1 critical, 2 warnings: stuck: signup (tenant 99) {place}: session {} \
         (pod-b) has been idle for at least ",
        holder.pid()
    );
    assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
    let figures = " | holders=2;;;0 waiters=1;;;0 keys_held=2;;;0 keys_awaited=1;;;0 longest_hold=";
    assert!(first_line(&outcome).contains(figures), "{}", outcome.stdout);
    assert!(
        first_line(&outcome).contains(" warnings=2;;;0 criticals=1;;;0 "),
        "{}",
        outcome.stdout
    );
}

#[tokio::test]
async fn a_server_that_is_down_cannot_be_told_of_and_hides_nothing_critical() {
    require!(Postgres);
    let mut postgres = Postgres::start().await;
    let other = Postgres::start().await;
    let files = Files::new();
    let config = files.write(
        "config.yaml",
        &format!(
            "servers:\n- {{ name: main, dsn: \"postgresql://postgres:S3cr3t@127.0.0.1:{}/app\" }}\n\
             - {{ name: other, dsn: \"{}\" }}\nregistry: [locks.yaml]\n",
            postgres.port(),
            other.dsn("app")
        ),
    );
    files.write("locks.yaml", "locks: [{ name: signup, key: 7, max_hold: 10ms, max_wait: 10ms }]");
    postgres.stop().await;

    let outcome = check(&["--config.file", &config]).await;
    assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    let expected = "LOCKS UNKNOWN - main: cannot connect: Connection refused";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);

    let _holder = other.holds("pod-a", "7").await;
    let outcome = check(&["--config.file", &config]).await;
    assert_eq!(outcome.code, Some(3), "a warning hides no outage: {}", outcome.stdout);
    let expected = "LOCKS UNKNOWN - 1 warning, 1 unknown: main: cannot connect: ";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);

    let _waiter = other.waits("pod-b", "7").await;
    eventually("the wait is too long", async || {
        let outcome = check(&["--config.file", &config]).await;
        assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("\nUNKNOWN main: cannot connect"), "{}", outcome.stdout);
        assert!(outcome.stdout.contains(" 'lock_table other'="), "{}", outcome.stdout);
        let said = outcome.stdout + &outcome.stderr;
        assert!(!said.contains("S3cr3t"), "{said}");
    })
    .await;
}

#[tokio::test]
async fn a_required_finding_that_is_hidden_from_us_cannot_be_told_of() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE ROLE watcher LOGIN").await;
    let dsn = format!("postgresql://watcher@127.0.0.1:{}/app", postgres.port());
    let stuck = ["--dsn", &dsn, "--require", "stuck"];

    let outcome = check(&["--dsn", &dsn]).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let hidden = "LOCKS WARNING - 1 warning: privileges_insufficient: 127.0.0.1:";
    assert!(outcome.stdout.starts_with(hidden), "{}", outcome.stdout);

    let outcome = check(&stuck).await;
    assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    let expected = "LOCKS UNKNOWN - 1 warning, 1 unknown: cannot judge stuck on 127.0.0.1:";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);
    let gaps = below(&outcome, &format!("could not judge on 127.0.0.1:{}:", postgres.port()));
    let [hidden, _orders] = gaps[..] else { panic!("{gaps:?}") };
    let expected = "stuck, hidden_cycle, holder_idle_in_transaction, pooled_backend, \
                    waiter_holds_back_vacuum: the state of other sessions is hidden: GRANT ";
    assert!(hidden.starts_with(expected), "{hidden}");

    let outcome = check(&["--dsn", &dsn, "--require", "held_too_long"]).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);

    admin.run("GRANT pg_read_all_stats TO watcher").await;
    let outcome = check(&stuck).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
}

#[tokio::test]
async fn a_required_finding_that_no_entry_asks_for_is_no_good_news() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let dsn = postgres.dsn("postgres");
    let outcome = check(&["--dsn", &dsn, "--require", "missed"]).await;
    assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    let expected = "LOCKS UNKNOWN - cannot judge missed: no entry of the registry has \
                    last_held_within: name its file with --registry.file, or add it to an entry";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);

    let files = Files::new();
    let registry = "locks: [{ name: leader, key: 42, databases: [app], must_be_held: true }]";
    let file = files.write("locks.yaml", registry);
    let arguments = ["--dsn", &dsn, "--registry.file", &file, "--require", "flapping"];
    let outcome = check(&arguments).await;
    let expected = "LOCKS UNKNOWN - cannot judge flapping on 127.0.0.1:";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);
}

#[tokio::test]
async fn a_pooler_in_between_is_a_warning() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pgbouncer = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    // The only backend of the pool gets a lock of its own, by which it is known.
    let session = pgbouncer.session("pod-a").await;
    session.run("SELECT pg_advisory_lock(42)").await;
    let outcome = check(&["--dsn", &pgbouncer.dsn("app")]).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let expected = "LOCKS WARNING - 1 warning: pooled_connection: 127.0.0.1:";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);
}

#[tokio::test]
async fn behind_a_pooler_one_address_makes_no_program_and_so_no_hidden_cycle() {
    require!(Postgres, PgBouncer);
    let postgres = Postgres::start().await;
    let pgbouncer = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    let own = pgbouncer.session("pod-a").await;
    own.run("SELECT pg_advisory_lock(42); CREATE TABLE big (i int)").await;
    let files = Files::new();
    let registry = files.write("locks.yaml", "locks: [{ name: migrate, key: 7, max_wait: 10ms }]");
    let _migrate = postgres.holds("web", "7").await;
    let _worker = postgres.waits("worker", "7").await;
    let build = postgres.session("web").await;
    let _building = build.start("CREATE INDEX CONCURRENTLY bigi ON big (i)");
    postgres.until_waiting(&build).await;
    let check = async |dsn: &str| check(&["--dsn", dsn, "--registry.file", &registry]).await;
    eventually("it is a circle as far as the server's own clients tell", async || {
        let outcome = check(&postgres.dsn("app")).await;
        assert!(outcome.stdout.contains("CRITICAL hidden_cycle: "), "{}", outcome.stdout);
    })
    .await;
    let outcome = check(&pgbouncer.dsn("app")).await;
    assert!(outcome.stdout.contains("WARNING pooled_connection: "), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("CRITICAL hidden_cycle: "), "{}", outcome.stdout);
}

#[tokio::test]
async fn an_exporter_judges_what_two_samples_cannot() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let registry = "locks: [{ name: leader, key: 42, databases: [app], must_be_held: true, \
                    vacant_for: 1s }]";
    let files = Files::new();
    let file = files.write("locks.yaml", registry);
    let dsn = postgres.dsn("postgres");
    let arguments = ["--dsn", &dsn, "--registry.file", &file];

    // Nobody holds anything at all there, and the leader is missed nevertheless.
    let outcome = check(&arguments).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    let gaps = below(&outcome, &format!("could not judge on 127.0.0.1:{}:", postgres.port()));
    let [vacant, flapping, _orders] = gaps[..] else { panic!("{gaps:?}") };
    assert!(vacant.starts_with("vacant: it takes 1s of watching leader, "), "{vacant}");
    assert!(flapping.starts_with("flapping: it takes 10m of watching leader, "), "{flapping}");
    let outcome = check(&[&arguments[..], &["--require", "vacant"]].concat()).await;
    assert_eq!(outcome.code, Some(3), "{}", outcome.stdout);
    let expected = "LOCKS UNKNOWN - cannot judge vacant on 127.0.0.1:";
    assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);

    let exporter = Exporter::watching(&dsn).registry(registry).start().await;
    let url = exporter.url();
    let from = ["--from", &url, "--samples", "1", "--require", "vacant"];
    eventually("the exporter has watched for long enough", async || {
        let outcome = check(&from).await;
        assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
        let expected = "LOCKS CRITICAL - 1 critical: vacant: leader in app on 127.0.0.1:";
        assert!(outcome.stdout.starts_with(expected), "{}", outcome.stdout);
    })
    .await;
    let leader = postgres.holds("pod-a", "42").await;
    exporter.scrape_fresh().await;
    let outcome = check(&from).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    // Looks of its own judge it too, if there are enough of them.
    drop(leader);
    eventually("the leader is gone", async || {
        let samples = ["--samples", "25", "--interval", "50ms"];
        let mut command = locks(&["check"]);
        command.args(arguments).args(samples);
        let outcome = run(command).await;
        assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
    })
    .await;
}

#[tokio::test]
async fn a_mistake_is_told_in_the_form_of_a_plugin_with_exit_code_3() {
    let files = Files::new();
    let broken = files.write("locks.yaml", "locks: {}\n");
    let nobody = Port::reserve();
    let url = format!("http://me:S3cr3t@127.0.0.1:{}", nobody.number());
    let cases: [(&[&str], &str); 10] = [
        (&["--jason"], "unexpected argument '--jason' found"),
        (&["--samples", "0"], "invalid value '0' for '--samples <N>'"),
        (
            &["--require", "stack"],
            "invalid value 'stack' for '--require <FINDING>': no finding has this name; known are \
             held_too_long, ",
        ),
        (&["--dsn", "S3cr3t"], "--dsn: neither a URI nor key=value"),
        (&["--config.file", "/nowhere.yaml"], "/nowhere.yaml: "),
        (&["--registry.file", &broken], &format!("{broken}:1:8: locks is a list")),
        (&["--from", "ftp://me:S3cr3t@h"], "--from: an address begins with http:// or https://"),
        (
            &["--from", "https://h", "--from.ca-file", "/nowhere.pem"],
            "--from.ca-file: cannot read certificates as PEM from /nowhere.pem: ",
        ),
        (&["--from.ca-file", &broken], "--from.ca-file is for the exporter of --from: name it"),
        (&["--from", &url], &format!("http://127.0.0.1:{}: cannot connect", nobody.number())),
    ];
    for (arguments, said) in cases {
        let outcome = check(arguments).await;
        assert_eq!(outcome.code, Some(3), "{arguments:?}: {}{}", outcome.stdout, outcome.stderr);
        let expected = format!("LOCKS UNKNOWN - {said}");
        assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
        assert!(!outcome.stdout.contains('|'), "{}", outcome.stdout);
        let all = outcome.stdout + &outcome.stderr;
        assert!(!all.contains("S3cr3t"), "{all}");
    }
    assert_eq!(check(&["--help"]).await.code, Some(0));
}

/// With every number, duration and moment replaced, which are different each time.
fn without_numbers(text: &str) -> String {
    let number = Regex::new(r"\b\d[\w.:-]*").expect("it is one");
    number.replace_all(text, "N").into_owned()
}

#[tokio::test]
async fn the_readme_shows_what_it_says() {
    require!(Postgres);
    let readme = include_str!("../../README.md");
    let (_, shown) = readme.split_once("```text check\n").expect("it has an example");
    let (shown, _) = shown.split_once("```").expect("the example ends");
    let (_, shown) = shown.split_once('\n').expect("the command stands above");
    let postgres = Postgres::start().await;
    let files = Files::new();
    let config = files.write(
        "locks.yaml",
        &format!(
            "servers: [{{ name: orders-primary, dsn: \"{}\" }}]\nregistry: [registry.yaml]\n",
            postgres.dsn("postgres")
        ),
    );
    files.write(
        "registry.yaml",
        "locks:\n- { name: nightly-billing, key: 42, databases: [app], max_wait: 10ms }\n\
         - { name: recalc-reward-points, key: 43, databases: [app], last_held_within: 25h }\n",
    );
    let _holder = postgres.holds("billing-b", "42").await;
    let _waiter = postgres.waits("billing-a", "42").await;
    eventually("the wait is too long", async || {
        let outcome = check(&["--config.file", &config]).await;
        assert_eq!(outcome.code, Some(2));
        let [said, shown] =
            [&outcome.stdout, shown].map(|text| without_numbers(&without_cut_clause(text)));
        assert_eq!(said, shown, "{}", outcome.stdout);
    })
    .await;
}

/// Where the first line is cut depends on how many digits pids and ages have.
fn without_cut_clause(text: &str) -> String {
    let (headline, rest) = text.split_once("… | ").expect("a first line that is cut");
    let (whole, _) = headline.rsplit_once("; ").expect("several clauses");
    format!("{whole} | {rest}")
}

#[tokio::test]
async fn no_name_of_others_breaks_the_format() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE DATABASE \"a|b\nc\u{1b}[2J\"").await;
    let dsn = postgres.dsn("a%7Cb%0Ac%1B%5B2J");
    let hostile = Session::connect(&dsn, "pod|holders=9;\n\u{1b}[2Jx").await;
    hostile.run("SELECT pg_advisory_lock(42)").await;
    let files = Files::new();
    let registry = files.write(
        "locks.yaml",
        "locks:\n- { name: one, key: 42, max_hold: 10ms }\n- { name: two, key: 42 }\n",
    );
    let outcome = check(&["--dsn", &dsn, "--registry.file", &registry]).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let (said, figures) = outcome.stdout.split_once('|').expect("performance data");
    assert!(said.contains("one ¦ two in a¦b\\nc\\u{1b}[2J on 127.0.0.1:"), "{said}");
    assert!(said.contains("(pod¦holders=9;"), "{said}");
    assert!(figures.starts_with(" holders=1;;;0 "), "{figures}");
    assert!(!figures.contains('|') && !outcome.stdout.contains('\u{1b}'), "{figures}");
    assert!(outcome.stdout.contains("\nWARNING registry_conflicts: 127.0.0.1:"), "{figures}");
    let is_known = |line: &str| {
        ["LOCKS ", "WARNING ", "could not judge on ", "  "].iter().any(|it| line.starts_with(it))
    };
    assert!(outcome.stdout.lines().all(is_known), "{}", outcome.stdout);
}

#[tokio::test]
async fn json_says_the_same_with_the_same_exit_code() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let registry = files.write("locks.yaml", "locks: [{ name: nightly, key: 42, max_hold: 10ms }]");
    let dsn = postgres.dsn("postgres");
    let holder = postgres.holds("pod-a", "42").await;
    let arguments = ["--json", "--dsn", &dsn, "--registry.file", &registry];
    let outcome = check(&arguments).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let json: Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
    assert_eq!((&json["status"], &json["exit_code"]), (&"warning".into(), &1.into()));
    let finding = &json["findings"][0];
    assert_eq!((&finding["lock"], &finding["datname"]), (&"nightly".into(), &"app".into()));
    assert_eq!(finding["pids"][0], holder.pid());
    assert_eq!(json["servers"][0]["role"], "primary");
    assert_eq!(json["servers"][0]["figures"]["keys_held"], 1);

    for mistake in [["--from", "nowhere"], ["--samples", "0"]] {
        let outcome = check(&[&["--json"], &mistake[..]].concat()).await;
        let json: Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
        assert_eq!((outcome.code, &json["exit_code"]), (Some(3), &3.into()));
        let reason = json["unknown"][0]["reason"].as_str().expect("it says why");
        assert!(reason.contains(mistake[0]), "{reason}");
    }
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_changes_no_exit_code() {
    let nobody = Port::reserve();
    let dsn = format!("postgresql://me@127.0.0.1:{}/app", nobody.number());
    let mut command = locks(&["check", "--samples", "1", "--dsn", &dsn]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary can be run");
    drop(child.stdout.take());
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = ended.await.expect("it can be waited for").expect("it ends");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
