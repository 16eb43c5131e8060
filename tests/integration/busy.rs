//! Locks that are busy and healthy: whoever polls them sees somebody hold and somebody wait every
//! time, and nothing is to be said of any of it.

use std::time::Duration;

use serde_json::Value;
use tokio::task::LocalSet;

use crate::hold::Workers;
use crate::support::{Exporter, Postgres, require};
use crate::watch::{elapsed, now};

/// Limits that a hold or a wait would pass many times over if the sightings of each were taken for
/// one.
const REGISTRY: &str = "
defaults: { max_hold: 1s, max_wait: 1s, unregistered: { max_hold: 1s, max_wait: 1s } }
locks:
  - { name: worker, key: 77, databases: [app], scope: transaction }
  - { name: mutex, key: 78, databases: [app] }
  - { name: ingest, key: { pair: [79, '*'] }, databases: [app], scope: transaction }
";

#[tokio::test]
async fn locks_that_are_handed_on_all_the_time_are_no_finding_at_any_poll() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    postgres.session("admin").await.run("CREATE TABLE event (id bigint)").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("thresholds: { idle_in_transaction: 1s }")
        .registry(REGISTRY)
        .start()
        .await;
    LocalSet::new()
        .run_until(async {
            let mut workers = Workers::new();
            // One session that takes a transaction's lock anew all the time.
            workers.add(postgres.session("worker").await, async |session| {
                let hold = "BEGIN; SELECT pg_advisory_xact_lock(77), pg_sleep(0.095); COMMIT";
                session.run(hold).await;
            });
            // A mutex that somebody always waits for.
            for _ in 0..8 {
                workers.add(postgres.session("mutex-user").await, async |session| {
                    session.run("SELECT pg_advisory_lock(78)").await;
                    session.run("SELECT pg_sleep(0.005)").await;
                    session.run("SELECT pg_advisory_unlock(78)").await;
                });
            }
            // Commits, in whose moment a transaction's lock looks like a session's.
            for number in 0..4 {
                let commit = format!(
                    "BEGIN; SELECT pg_advisory_xact_lock(79, {number}); \
                     INSERT INTO event VALUES ({number}); COMMIT"
                );
                let session = postgres.session("ingest").await;
                workers.add(session, async move |session| session.run(&commit).await);
            }
            let started = now();
            let (mut polls, mut held, mut awaited) = (0, 0, 0);
            while elapsed(started) < Duration::from_secs(4) || polls < 20 {
                exporter.scrape_fresh().await;
                let snapshot = exporter.snapshot().await;
                polls += 1;
                for lock in snapshot["locks"].as_array().expect("locks are known") {
                    let count = |list: &str| lock[list].as_array().map_or(0, Vec::len);
                    assert_eq!(count("findings"), 0, "{lock:#}");
                    let holders = lock["holders"].as_array().into_iter().flatten();
                    for holder in holders.filter(|holder| holder["scope"] == "session") {
                        assert_eq!(
                            lock["lock"], "mutex",
                            "never proved of a transaction's: {holder}"
                        );
                    }
                    if lock["lock"] == "mutex" {
                        held += count("holders").min(1);
                        awaited += count("waiters").min(1);
                    }
                    assert_ne!(lock["lock"], Value::Null);
                }
            }
            assert!(held > polls / 2 && awaited > polls / 2, "{held}, {awaited} of {polls}");
            workers.end().await;
        })
        .await;
    let scrape = exporter.scrape_fresh().await;
    let holds = scrape.sample("pg_advisory_lock_acquisitions_observed_total");
    let holds = holds.with("lock", "worker").value();
    assert!(holds > 5.0, "many holds were seen of the worker, not one long one: {holds}");
}
