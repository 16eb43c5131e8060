//! The state file of the built binary: what it takes over a restart, what it does not, and that
//! nothing that happens to the file or its folder ends the exporter.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::files::Files;
use crate::support::{Exporter, Postgres, eventually, require};

const REGISTRY: &str = "
locks:
  - { name: nightly, key: 42, databases: [app], last_held_within: 1s }
  - { name: settlement, key: 43, databases: [app], not_again_within: 1d }
  - { name: billing, key: 44, databases: [app], max_hold: unlimited }
";

async fn start(postgres: &Postgres, state: &Path) -> Exporter {
    let watching = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY);
    watching.argument("--state.file").argument(&state.to_string_lossy()).start().await
}

async fn stop(mut exporter: Exporter) {
    exporter.signal("TERM");
    let status = exporter.exit_status().await;
    assert!(status.success(), "{status}: {}", exporter.log());
}

/// When the lock was last seen held.
async fn last_held(exporter: &Exporter, lock: &str) -> Vec<f64> {
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_last_held_timestamp_seconds").with("lock", lock).values()
}

/// The text of a finding of the only server.
async fn finding(exporter: &Exporter, lock: &str, finding: &str) -> Option<String> {
    let snapshot = exporter.snapshot().await;
    let locks = snapshot["locks"].as_array()?;
    let findings = locks.iter().filter(|it| it["lock"] == lock).map(|it| &it["findings"]);
    let mut findings = findings.flat_map(|it| it.as_array().expect("they are listed"));
    let found = findings.find(|it| it["finding"] == finding)?;
    found["text"].as_str().map(str::to_owned)
}

/// A job ran in each of two locks, and somebody holds a third.
async fn leave_a_past(postgres: &Postgres, state: &Path) -> crate::support::Session {
    let exporter = start(postgres, state).await;
    exporter.scrape_fresh().await;
    let holder = postgres.holds("pod-a", "44").await;
    for key in ["42", "43"] {
        let job = postgres.holds("job-a", key).await;
        exporter.scrape_fresh().await;
        job.close().await;
    }
    exporter.scrape_fresh().await;
    stop(exporter).await;
    holder
}

#[tokio::test]
async fn what_was_seen_before_a_restart_counts_after_it() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let state = files.path("state.json");
    let holder = leave_a_past(&postgres, &state).await;
    holder.run("SET application_name = 'pod-b'").await;
    let again = postgres.holds("job-b", "43").await;

    let exporter = start(&postgres, &state).await;
    assert_eq!(last_held(&exporter, "nightly").await.len(), 1, "nobody has held it since");
    let missed = eventually("it is missed", async || {
        finding(&exporter, "nightly", "missed").await.expect("it was not held for 1 s")
    })
    .await;
    assert!(!missed.contains("never seen held"), "{missed}");
    let repeated = finding(&exporter, "settlement", "repeated").await.expect("it ran twice");
    assert!(repeated.contains(&format!("session {} (job-b)", again.pid())), "{repeated}");
    let snapshot = exporter.snapshot().await;
    let locks = snapshot["locks"].as_array().expect("they are listed");
    let billing = locks.iter().find(|it| it["lock"] == "billing").expect("it is held");
    let names = ["first_application_name", "application_name"];
    let names = names.map(|field| billing["holders"][0][field].as_str());
    assert_eq!(names, [Some("pod-a"), Some("pod-b")]);

    // Secrets are in the connection string alone, and that is not in the file.
    let text = fs::read_to_string(&state).expect("it was written");
    assert!(!text.contains("postgresql://") && text.contains("pod-a"), "{text}");
}

#[tokio::test]
async fn another_cluster_under_the_same_name_takes_nothing_over() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let state = files.path("state.json");
    let _holder = leave_a_past(&postgres, &state).await;
    let text = fs::read_to_string(&state).expect("it was written");
    let mut document: Value = serde_json::from_str(&text).expect("it is JSON");
    document["servers"][0]["system_identifier"] = "1".into();
    files.write("state.json", &document.to_string());

    let exporter = start(&postgres, &state).await;
    assert_eq!(last_held(&exporter, "nightly").await, [0.0; 0]);
    assert_eq!(exporter.logged(&["about another cluster under this name"]).len(), 1);
    stop(exporter).await;
    let text = fs::read_to_string(&state).expect("it was written");
    assert!(!text.contains("\"system_identifier\":\"1\""), "{text}");
}

#[tokio::test]
async fn a_broken_file_costs_one_line_and_what_it_knew() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let state = files.path("state.json");
    drop(leave_a_past(&postgres, &state).await);
    let text = fs::read_to_string(&state).expect("it was written");
    files.write("state.json", &text[..text.len() - 20]);

    let exporter = start(&postgres, &state).await;
    exporter.scrape_fresh().await;
    let told = exporter.logged(&["level=warn", "cannot use the state file", "it is damaged"]);
    assert_eq!(told.len(), 1, "{}", exporter.log());
    assert_eq!(last_held(&exporter, "nightly").await, [0.0; 0]);
    stop(exporter).await;
    let text = fs::read_to_string(&state).expect("it was written");
    serde_json::from_str::<Value>(&text).expect("it is whole again");
}

#[tokio::test]
async fn who_is_killed_leaves_a_whole_file() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let state = files.path("state.json");
    let _job = postgres.holds("job-a", "42").await;
    let mut exporter = start(&postgres, &state).await;
    eventually("it is written soon after the first poll", async || {
        assert!(state.exists());
    })
    .await;
    exporter.signal("KILL");
    exporter.exit_status().await;
    // As one that was killed in the middle of its next write.
    files.write(".state.json.locks-tmp", "{\"format\":\"pg-lo");

    let exporter = start(&postgres, &state).await;
    assert_eq!(exporter.logged(&["msg=\"read the state file\"", "servers=1"]).len(), 1);
    stop(exporter).await;
    let text = fs::read_to_string(&state).expect("it was written");
    serde_json::from_str::<Value>(&text).expect("it is whole");
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_to_is_told_when_it_begins_and_when_it_ends() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let folder = files.path("state");
    let _job = postgres.holds("job-a", "42").await;
    // There is none: that stops also those who may do everything.
    let exporter = start(&postgres, &folder.join("state.json")).await;
    let cannot = ["level=warn", "cannot write the state file"];
    eventually("it is told", async || assert_eq!(exporter.logged(&cannot).len(), 1)).await;
    exporter.scrape_fresh().await;
    fs::create_dir(&folder).expect("the folder is ours");
    eventually("it is over", async || {
        assert_eq!(exporter.logged(&["writing the state file again"]).len(), 1);
    })
    .await;
    assert_eq!(exporter.logged(&cannot).len(), 1);
    assert!(folder.join("state.json").exists());
}
