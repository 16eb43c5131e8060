//! The registry is edited, broken, mended and swapped under a running exporter, while applications
//! hold their locks: what is shown changes with it, what was seen stays, and the log tells it once.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::scrape::Matcher;
use crate::support::{Exporter, Postgres, Scrape, eventually, require};

const RELOADED: &str = "reloaded the registry";
const REFUSED: &str = "cannot reload the registry";

/// A folder for a registry.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder can be made"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, text: &str) {
        fs::write(self.path("registry.yaml"), text).expect("the folder is ours");
    }

    async fn watch(&self, postgres: &Postgres) -> Exporter {
        Exporter::watching(&postgres.dsn("app"))
            .argument("--registry.file")
            .argument(&self.path("registry.yaml").to_string_lossy())
            .start()
            .await
    }

    /// Writes the file and asks for it to be read. The exporter stands still meanwhile: it may find
    /// by itself that the file changed, and then would tell it twice.
    fn write_and_ask(&self, exporter: &Exporter, text: &str) {
        exporter.signal("STOP");
        self.write(text);
        exporter.signal("HUP");
        exporter.signal("CONT");
    }

    /// Points the link that a volume of Kubernetes swaps at another folder with this text.
    fn swap(&self, version: &str, text: &str) {
        fs::create_dir(self.path(version)).expect("the folder is ours");
        fs::write(self.path(version).join("registry.yaml"), text).expect("the folder is ours");
        symlink(version, self.path("..data_tmp")).expect("the folder is ours");
        fs::rename(self.path("..data_tmp"), self.path("..data")).expect("the folder is ours");
    }
}

/// A sample of database `app` under the name and the key of its lock.
fn of<'a>(scrape: &'a Scrape, metric: &str, lock: &str, key: &str) -> Matcher<'a> {
    let metric = format!("pg_advisory_lock_{metric}");
    scrape.sample(&metric).with("datname", "app").with("lock", lock).with("key", key)
}

/// Waits until the last reading was a success, or was none, and the log has told so many of both.
async fn until_told(exporter: &Exporter, is_current: f64, reloaded: usize, refused: usize) {
    eventually("the last reading is told", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_registry_last_reload_successful").is(is_current);
        let told = [RELOADED, REFUSED].map(|message| exporter.logged(&[message]).len());
        assert_eq!(told, [reloaded, refused], "{}", exporter.log());
    })
    .await;
}

/// A hold that went on began when it did. The proof that it was there a moment before its first
/// sight may come with a later poll; a hold that began anew would be younger.
fn assert_same_age(since: f64, before: f64) {
    assert!(since <= before && before - since < 1.0, "held since {since}, before {before}");
}

#[tokio::test]
async fn an_edited_registry_changes_labels_and_limits_and_neither_ages_nor_counters() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    files.write(
        "locks:
  - { name: stays, key: 1, databases: [app] }
  - { name: before, key: 2, databases: [app] }
  - { name: goes, key: 3, databases: [app] }
",
    );
    let exporter = files.watch(&postgres).await;
    eventually("a poll saw that nothing was held", async || {
        exporter.scrape().await.sample("pg_advisory_lock_rows").with("granted", "true").is(0.0);
    })
    .await;
    let _stays = postgres.holds("pod-a", "1").await;
    let _renamed = postgres.holds("pod-b", "2").await;
    let _nameless = postgres.holds("pod-c", "4").await;
    let first = eventually("they are held", async || {
        let scrape = exporter.scrape_fresh().await;
        for (lock, key) in [("stays", "1"), ("before", "2"), ("unregistered", "4")] {
            of(&scrape, "acquisitions_observed_total", lock, key).is(1.0);
        }
        scrape
    })
    .await;
    let read_at = first.sample("pg_advisory_registry_last_reload_timestamp_seconds").value();
    first.sample("pg_advisory_registry_entries").is(3.0);

    files.write_and_ask(
        &exporter,
        "locks:
  - { name: named, key: 4, databases: [app] }
  - { name: after, key: 2, databases: [app] }
  - { name: stays, key: 1, databases: [app], max_hold: 7m, owner: growth }
",
    );
    until_told(&exporter, 1.0, 1, 0).await;
    let line = &exporter.logged(&[RELOADED])[0];
    for field in
        ["level=info", "entries=3", "new_names=\"after, named\"", "gone_names=\"before, goes\""]
    {
        assert!(line.contains(field), "{field} is not in {line}");
    }
    let scrape = exporter.scrape_fresh().await;
    let since =
        |scrape: &Scrape, lock, key| of(scrape, "held_since_timestamp_seconds", lock, key).value();
    assert_same_age(since(&scrape, "stays", "1"), since(&first, "stays", "1"));
    assert_same_age(since(&scrape, "after", "2"), since(&first, "before", "2"));
    assert_same_age(since(&scrape, "named", "4"), since(&first, "unregistered", "4"));
    let seconds = |scrape: &Scrape| of(scrape, "hold_seconds_total", "stays", "1").value();
    assert!(seconds(&scrape) > seconds(&first));
    of(&scrape, "acquisitions_observed_total", "stays", "1").is(1.0);
    of(&scrape, "hold_limit_seconds", "stays", "1").is(420.0);
    of(&scrape, "acquisitions_observed_total", "after", "2").is(0.0);
    let shown: BTreeSet<&str> = scrape
        .sample("pg_advisory_lock_holders")
        .matches()
        .iter()
        .map(|sample| sample.labels["lock"].as_str())
        .collect();
    assert_eq!(shown, ["after", "named", "stays"].into());
    scrape.sample("pg_advisory_lock_acquisitions_observed_total").with("lock", "goes").absent();
    let info = scrape.sample("pg_advisory_lock_info").with("lock", "stays");
    info.with("owner", "growth").is(1.0);
    let read_again = scrape.sample("pg_advisory_registry_last_reload_timestamp_seconds").value();
    assert!(read_again > read_at);
}

#[tokio::test]
async fn a_broken_registry_is_told_once_and_leaves_the_one_before_in_use_until_it_is_mended() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    files.write("locks: [{ name: jobs, key: 1 }]\n");
    let exporter = files.watch(&postgres).await;
    let _jobs = postgres.holds("pod-a", "1").await;
    let first = eventually("it is held by name", async || {
        let scrape = exporter.scrape().await;
        of(&scrape, "holders", "jobs", "1").is(1.0);
        scrape
    })
    .await;
    let read_at = first.sample("pg_advisory_registry_last_reload_timestamp_seconds").value();
    let since = of(&first, "held_since_timestamp_seconds", "jobs", "1").value();

    files.write_and_ask(&exporter, "locks: [{ name: jobs, key: 1, kay: 2 }, { name: mails }]\n");
    until_told(&exporter, 0.0, 0, 1).await;
    let line = &exporter.logged(&[REFUSED])[0];
    for field in ["level=error", "registry.yaml:1:31: unknown field", "this entry has no key"] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
    let scrape = exporter.scrape_fresh().await;
    of(&scrape, "holders", "jobs", "1").is(1.0);
    scrape.sample("pg_advisory_registry_last_reload_timestamp_seconds").is(read_at);

    // Who asks again is answered again.
    exporter.signal("HUP");
    until_told(&exporter, 0.0, 0, 2).await;

    fs::remove_file(files.path("registry.yaml")).expect("the folder is ours");
    until_told(&exporter, 0.0, 0, 3).await;
    let line = exporter.logged(&[REFUSED]).remove(2);
    assert!(line.contains("No such file"), "{line}");
    of(&exporter.scrape_fresh().await, "holders", "jobs", "1").is(1.0);

    files.write_and_ask(&exporter, "locks: [{ name: jobs, key: 1, max_hold: 1m }]\n");
    until_told(&exporter, 1.0, 1, 3).await;
    let scrape = exporter.scrape_fresh().await;
    of(&scrape, "hold_limit_seconds", "jobs", "1").is(60.0);
    assert_same_age(of(&scrape, "held_since_timestamp_seconds", "jobs", "1").value(), since);
}

#[tokio::test]
async fn files_that_change_by_themselves_are_read_without_being_asked() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let files = Files::new();
    files.swap("..1", "locks: [{ name: jobs, key: 1 }]\n");
    symlink("..data/registry.yaml", files.path("registry.yaml")).expect("the folder is ours");
    let exporter = files.watch(&postgres).await;
    let _jobs = postgres.holds("pod-a", "1").await;
    eventually("it is held by its first name", async || {
        of(&exporter.scrape().await, "holders", "jobs", "1").is(1.0);
    })
    .await;

    files.swap("..2", "locks: [{ name: jobs, key: 1.5 }]\n");
    until_told(&exporter, 0.0, 0, 1).await;
    files.swap("..3", "locks: [{ name: mails, key: 1 }]\n");
    until_told(&exporter, 1.0, 1, 1).await;
    let scrape = exporter.scrape_fresh().await;
    of(&scrape, "holders", "mails", "1").is(1.0);
    scrape.sample("pg_advisory_lock_holders").with("lock", "jobs").absent();
}

#[tokio::test]
async fn a_new_registry_is_compared_with_the_server_anew() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("log_statement", "all").start().await;
    let files = Files::new();
    files.write("locks: [{ name: mails, key: 1, databases: [nowhere] }]\n");
    let exporter = files.watch(&postgres).await;
    let missing = || exporter.logged(&["databases that the server does not have"]);
    eventually("a misspelt database is told", async || assert_eq!(missing().len(), 1)).await;

    let _jobs = postgres.holds("pod-a", "hashtext('jobs')").await;
    files.write_and_ask(
        &exporter,
        "locks:
  - { name: jobs, key: { hashtext: jobs } }
  - { name: mails, key: 1, databases: [nowhere, elsewhere] }
  - { name: notes, key: 1, databases: [nowhere] }
",
    );
    eventually("names, databases and hashes are those of the new one", async || {
        let scrape = exporter.scrape().await;
        scrape.sample("pg_advisory_hash_mismatches").is(0.0);
        scrape.sample("pg_advisory_lock_holders").with("lock", "jobs").is(1.0);
        scrape.sample("pg_advisory_registry_conflicts").is(1.0);
        let missing = missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[1].contains("count=2"), "{missing:?}");
        let log = postgres.log();
        assert!(log.contains("SELECT hashtext(t)"), "the server was not asked: {log}");
    })
    .await;
    let conflicts = exporter.logged(&["a key of the registry has several names"]);
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
}
