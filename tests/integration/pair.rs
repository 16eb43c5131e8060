//! Two exporters on the same servers, for when one of them dies: as the documentation has Prometheus
//! scrape them, whoever is on call hears of a lock once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::alert::{hurried_alertmanager, hurried_rules};
use crate::servers::{config, documented_job, server, until_up};
use crate::support::files::Files;
use crate::support::{
    Alertmanager, Catcher, Exporter, Postgres, Prometheus, eventually, http, require,
};

#[tokio::test]
async fn a_pair_tells_of_a_lock_in_one_message_and_goes_on_when_one_dies() {
    require!(Postgres, Prometheus, Alertmanager);
    let (a, b) = (Postgres::start().await, Postgres::start().await);
    let files = Files::new();
    let registry = files.write(
        "registry.yaml",
        "locks: [{ name: billing, key: 42, databases: [app], max_hold: 1s, owner: payments }]",
    );
    let path = files.write("locks.yaml", &config(&[server("a", &a), server("b", &b)]));
    let serve =
        async || Exporter::serve(&["--config.file", &path, "--registry.file", &registry]).await;
    let pair = [serve().await, serve().await];
    let catcher = Catcher::start().await;
    let alertmanager = Alertmanager::start(&hurried_alertmanager(&catcher)).await;
    let job = documented_job("pair", &pair.each_ref());
    let rules = hurried_rules("1s");
    let prometheus =
        Prometheus::start_with_job_and_rules(&[], &job, &[&rules], &[alertmanager.address()]).await;
    let _holder = a.holds("pod-a", "42").await;

    let [first, second] = &pair;
    eventually("both are scraped for both servers", async || {
        let up = prometheus.query("pg_advisory_up == 1").await;
        let seen: BTreeSet<(String, String)> = up
            .iter()
            .map(|(labels, _)| (labels["server"].clone(), labels["instance"].clone()))
            .collect();
        let expected = ["a", "b"].into_iter().flat_map(|server| {
            [first, second]
                .map(|exporter| (server.to_owned(), format!("{server} by {}", exporter.address())))
        });
        assert_eq!((up.len(), seen), (4, expected.collect()));
    })
    .await;
    let holders = "sum(max without (instance) (pg_advisory_lock_holders{lock=\"billing\"})) == 1";
    eventually("a sum counts each holder once", async || {
        assert_eq!(prometheus.query(holders).await.len(), 1);
    })
    .await;

    eventually("it is one message, with what both saw", async || {
        let answer = http::get(alertmanager.address(), "/api/v2/alerts/groups", &[]).await;
        let groups: Vec<Value> = serde_json::from_slice(&answer.body).expect("it is JSON");
        let is_meant = |group: &&Value| {
            group["labels"]["alertname"] == "AdvisoryLockHeldTooLong"
                && group["receiver"]["name"] == "payments"
        };
        let told: Vec<&Value> = groups.iter().filter(is_meant).collect();
        assert_eq!(told.len(), 1, "{groups:#?}");
        let alerts = told[0]["alerts"].as_array().expect("alerts");
        assert_eq!(alerts.len(), 2, "{alerts:#?}");
        for alert in alerts {
            assert_eq!(alert["labels"]["owner"], "payments", "{alert:#}");
            assert_eq!(alert["labels"]["server"], "a", "{alert:#}");
        }
    })
    .await;

    // One dies; the other still sees the lock, and the sum does not move.
    let [first, survivor] = pair;
    drop(first);
    eventually("only one is left", async || {
        assert_eq!(prometheus.query("pg_advisory_up").await.len(), 2);
    })
    .await;
    until_up(&survivor, "a").await;
    assert_eq!(prometheus.query(holders).await.len(), 1);
}

#[tokio::test]
async fn the_exporter_itself_is_a_job_beside_those_of_its_servers() {
    require!(Postgres, Prometheus);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let path = files.write("locks.yaml", &config(&[server("a", &postgres)]));
    let exporter = Exporter::serve(&["--config.file", &path]).await;
    until_up(&exporter, "a").await;
    let mut job = documented_job("itself", &[]);
    job["static_configs"] = json!([{ "targets": [exporter.address()] }]);
    let prometheus = Prometheus::start_with_job(&[], &job, &[]).await;
    eventually("it is scraped without what it has of servers", async || {
        for series in
            ["pg_advisory_exporter_build_info", "pg_advisory_registry_entries", "process_open_fds"]
        {
            assert_eq!(prometheus.query(series).await.len(), 1, "{series}");
        }
        assert_eq!(prometheus.query("{server!=\"\"}").await, []);
    })
    .await;
}
