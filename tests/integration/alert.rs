//! An alert on its whole way: a lock that somebody really holds, the exporter, Prometheus with the
//! rules as they are shipped, Alertmanager with the example's routes and inhibitions, and a
//! receiver. Only durations are shortened, in a copy. What each rule says is tested in `rule`.

use std::collections::BTreeSet;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use crate::rule::{ALERTMANAGER, RULES};
use crate::support::files::Files;
use crate::support::{
    Alertmanager, Catcher, Exporter, Postgres, Prometheus, eventually, eventually_within, require,
};

/// Five programs hand it on, each at its own pace.
const PATIENCE: Duration = Duration::from_secs(60);

/// The rules with windows and waits of seconds, and alerts that outlast their cause by `kept`.
pub fn hurried_rules(kept: &str) -> String {
    let waits = Regex::new(r"  for: \d+m").expect("a pattern");
    let keeps = Regex::new(r"keep_firing_for: \d+m").expect("a pattern");
    let windows = Regex::new(r"\[[25]m(:?)\]").expect("a pattern");
    let rules = waits.replace_all(RULES, "  for: 1s");
    let rules = keeps.replace_all(&rules, format!("keep_firing_for: {kept}"));
    windows.replace_all(&rules, "[5s$1]").into_owned()
}

/// The example with pauses of a second and everything sent to one receiver.
pub fn hurried_alertmanager(catcher: &Catcher) -> String {
    let pauses = Regex::new(r"(group_wait|group_interval): \w+").expect("a pattern");
    let receivers = Regex::new(r"'http://[^']+'").expect("a pattern");
    let configuration = pauses.replace_all(ALERTMANAGER, "$1: 1s");
    receivers.replace_all(&configuration, format!("'{}'", catcher.url())).into_owned()
}

/// Everything behind the exporter.
struct Watchmen {
    // Dropped in this order: clients before what they talk to.
    _prometheus: Prometheus,
    alertmanager: Alertmanager,
    catcher: Catcher,
}

impl Watchmen {
    async fn start(exporter: &Exporter, kept: &str) -> Watchmen {
        let catcher = Catcher::start().await;
        let alertmanager = Alertmanager::start(&hurried_alertmanager(&catcher)).await;
        let prometheus = Prometheus::start_with_rules(
            &[exporter.address()],
            &[&hurried_rules(kept)],
            &[alertmanager.address()],
        )
        .await;
        Watchmen { _prometheus: prometheus, alertmanager, catcher }
    }

    /// The last thing that the receiver was told of an alert, once that is `status`.
    async fn told(&self, alert: &str, status: &str) -> Value {
        eventually_within(PATIENCE, &format!("{alert} arrives as {status}"), async || {
            let told = self.catcher.caught(alert);
            let last = told.last().unwrap_or_else(|| panic!("nothing was told of {alert}"));
            assert_eq!(last["status"], status, "{last:#}");
            last.clone()
        })
        .await
    }
}

#[tokio::test]
async fn an_alert_arrives_with_what_one_needs_to_know_and_resolves() {
    require!(Postgres, Prometheus, Alertmanager);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .registry(
            "locks:\n  - { name: nightly-billing, key: 42, databases: [app], owner: payments, \
             runbook: 'https://wiki.example.com/billing', max_hold: 1s }",
        )
        .start()
        .await;
    let watchmen = Watchmen::start(&exporter, "1s").await;
    let holder = postgres.holds("pod-a", "42").await;

    let alert = watchmen.told("AdvisoryLockHeldTooLong", "firing").await;
    let server = format!("127.0.0.1:{}", postgres.port());
    for (label, value) in [
        ("job", "locks"),
        ("instance", &*exporter.address().to_string()),
        ("server", &*server),
        ("datname", "app"),
        ("lock", "nightly-billing"),
        ("key", "42"),
        ("finding", "held_too_long"),
        ("severity", "warning"),
        ("owner", "payments"),
        ("runbook", "https://wiki.example.com/billing"),
    ] {
        assert_eq!(alert["labels"][label], value, "{alert:#}");
    }
    assert_eq!(alert["labels"].as_object().expect("labels").len(), 11, "{alert:#}");
    let description = alert["annotations"]["description"].as_str().expect("it is described");
    let begin = format!("nightly-billing (key 42) in app on {server}; seen held for ");
    assert!(description.starts_with(&begin), "{description}");
    assert!(description.ends_with("s; held by pod-a, idle."), "{description}");

    holder.close().await;
    watchmen.told("AdvisoryLockHeldTooLong", "resolved").await;
}

/// What is told of the cause need not be told of the effect. The limit comes from the registry, and a
/// changed entry is enough to change the alert.
#[tokio::test]
async fn a_stuck_lock_is_told_and_that_it_is_held_too_long_is_not() {
    require!(Postgres, Prometheus, Alertmanager);
    let postgres = Postgres::start().await;
    let files = Files::new();
    let registry = |max_hold: &str| {
        let entry = format!(
            "locks:\n  - {{ name: nightly-billing, key: 42, databases: [app], max_wait: 1s, max_hold: {max_hold} }}"
        );
        files.write("registry.yaml", &entry)
    };
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--registry.file")
        .argument(&registry("1h"))
        .start()
        .await;
    let watchmen = Watchmen::start(&exporter, "1s").await;
    let _holder = postgres.holds("pod-a", "42").await;
    let _waiter = postgres.waits("pod-b", "42").await;
    let stuck = watchmen.told("AdvisoryLockStuck", "firing").await;
    assert_eq!(stuck["labels"]["severity"], "critical");
    let description = stuck["annotations"]["description"].as_str().expect("it is described");
    assert!(
        description.contains("; held by pod-a, idle; keeps others waiting for ")
            && description.ends_with("; root: pod-a, idle (waiters behind it: 1)."),
        "{description}"
    );

    registry("1s");
    exporter.signal("HUP");
    eventually_within(PATIENCE, "that it is held too long is inhibited", async || {
        let alerts = watchmen.alertmanager.alerts().await;
        let held = alerts.iter().find(|it| it["labels"]["alertname"] == "AdvisoryLockHeldTooLong");
        let held = held.unwrap_or_else(|| panic!("not among {alerts:#?}"));
        assert_eq!(held["status"]["state"], "suppressed", "{held:#}");
        assert_eq!(held["status"]["inhibitedBy"], serde_json::json!([stuck["fingerprint"]]));
    })
    .await;
    assert!(watchmen.catcher.caught("AdvisoryLockHeldTooLong").is_empty());
}

#[tokio::test]
async fn that_nobody_looks_is_told_and_what_was_seen_before_is_not_told_again() {
    require!(Postgres, Prometheus, Alertmanager);
    let mut postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .registry("locks:\n  - { name: nightly-billing, key: 42, databases: [app], max_hold: 1s }")
        .start()
        .await;
    let watchmen = Watchmen::start(&exporter, "1h").await;
    let _holder = postgres.holds("pod-a", "42").await;
    watchmen.told("AdvisoryLockHeldTooLong", "firing").await;

    postgres.stop().await;
    let blind = watchmen.told("AdvisoryLockExporterBlind", "firing").await;
    assert_eq!(blind["labels"]["reason"], "no_poll", "{blind:#}");
    eventually_within(PATIENCE, "that the lock is held is inhibited", async || {
        let alerts = watchmen.alertmanager.alerts().await;
        let held = alerts.iter().find(|it| it["labels"]["alertname"] == "AdvisoryLockHeldTooLong");
        let held = held.unwrap_or_else(|| panic!("not among {alerts:#?}"));
        assert_eq!(held["status"]["inhibitedBy"], serde_json::json!([blind["fingerprint"]]));
    })
    .await;

    let instance = exporter.address().to_string();
    drop(exporter);
    eventually_within(PATIENCE, "that the exporter is down is told", async || {
        let told = watchmen.catcher.caught("AdvisoryLockExporterBlind");
        let down = told.iter().find(|alert| alert["labels"]["reason"] == "down");
        let down = down.unwrap_or_else(|| panic!("only {told:#?}"));
        let description = format!("The exporter {instance} does not answer.");
        assert_eq!(down["annotations"]["description"], description);
    })
    .await;
}

#[tokio::test]
async fn a_lock_table_that_fills_is_told_with_how_full_it_is_and_who_fills_it() {
    require!(Postgres, Prometheus, Alertmanager);
    let postgres = Postgres::builder()
        .setting("max_connections", 100)
        .setting("max_locks_per_transaction", 64)
        .setting("max_prepared_transactions", 10)
        .start()
        .await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .argument("--poll.timeout")
        .argument("30s")
        .start()
        .await;
    let watchmen = Watchmen::start(&exporter, "1s").await;
    let import = postgres.session("bulk-import").await;
    let keys = "SELECT count(pg_advisory_xact_lock(71, n)) FROM generate_series(1, 12000) n";
    import.run(&format!("BEGIN; {keys}")).await;

    let filling = watchmen.told("AdvisoryLockTableFilling", "firing").await;
    let description = filling["annotations"]["description"].as_str().expect("it is described");
    let begin = format!("The lock table of 127.0.0.1:{} is filled to 17", postgres.port());
    assert!(description.starts_with(&begin), "{description}");
    let crowded = watchmen.told("AdvisoryLockTooManyKeys", "firing").await;
    assert_eq!(crowded["annotations"]["keys"], "12000 in one session", "{crowded:#}");
    let description = crowded["annotations"]["description"].as_str().expect("it is described");
    assert!(description.contains("; held by bulk-import, idle in transaction"), "{description}");
    assert!(watchmen.catcher.caught("AdvisoryLockExporterBlind").is_empty());

    import.run("ROLLBACK").await;
    watchmen.told("AdvisoryLockTableFilling", "resolved").await;
}

/// A name or a key that has no series of its own is watched all the same.
#[tokio::test]
async fn a_hold_that_is_counted_with_others_is_told_like_any() {
    require!(Postgres, Prometheus, Alertmanager);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .config("limits: { keys: 2, applications: 1 }")
        .registry(
            "defaults: { unregistered: { max_hold: 2s } }\nlocks:\n  - { name: quiet, key: 9, max_hold: unlimited }",
        )
        .start()
        .await;
    let _first = postgres.holds("svc-a", "9").await;
    exporter.scrape_fresh().await;
    let mut others = Vec::new();
    for key in 101..=105 {
        others.push(postgres.holds(&format!("svc-{key}"), &key.to_string()).await);
    }
    let watchmen = Watchmen::start(&exporter, "1s").await;
    let held = eventually_within(PATIENCE, "what counts under other is told", async || {
        let told = watchmen.catcher.caught("AdvisoryLockHeldTooLong");
        let is_it = |alert: &&Value| alert["labels"]["key"] == "other";
        told.iter().find(is_it).unwrap_or_else(|| panic!("not among {told:#?}")).clone()
    })
    .await;
    assert_eq!(held["labels"]["datname"], "app", "{held:#}");
    let description = held["annotations"]["description"].as_str().expect("it is described");
    assert!(description.contains("; held by other, idle"), "{description}");
    let scrape = exporter.scrape_fresh().await;
    assert!(scrape.sample("pg_advisory_folded_keys").value() >= 3.0);
    scrape.sample("pg_advisory_folded_applications").is(5.0);
    let findings = scrape.sample("pg_advisory_lock_findings").with("finding", "held_too_long");
    assert_eq!(findings.values().iter().sum::<f64>(), 5.0, "each is judged by itself");
}

#[tokio::test]
async fn that_much_is_hidden_from_the_exporter_is_told_until_it_may_see() {
    require!(Postgres, Prometheus, Alertmanager);
    let postgres = Postgres::start().await;
    let operator = postgres.session("operator").await;
    operator.run("CREATE ROLE mon LOGIN; SELECT pg_advisory_lock(333)").await;
    let dsn = format!("postgresql://mon@127.0.0.1:{}/postgres", postgres.port());
    let exporter = Exporter::watching(&dsn).start().await;
    let watchmen = Watchmen::start(&exporter, "1s").await;
    let degraded = watchmen.told("AdvisoryLockExporterDegraded", "firing").await;
    assert_eq!(degraded["labels"]["reason"], "privileges", "{degraded:#}");
    let description = degraded["annotations"]["description"].as_str().expect("it is described");
    assert!(description.contains("grant pg_read_all_stats to its role"), "{description}");
    operator.run("GRANT pg_monitor TO mon").await;
    watchmen.told("AdvisoryLockExporterDegraded", "resolved").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").with("key", "333").with("state", "idle").is(1.0);
}

/// The age of a hold is one number wherever it is read, and so is what is judged by it.
#[tokio::test]
async fn rules_findings_and_the_json_judge_by_the_same_ages() {
    require!(Postgres, Prometheus);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres"))
        .registry(
            "locks:\n  \
             - { name: long, key: 1, databases: [app], max_hold: 2s, max_wait: unlimited }\n  \
             - { name: short, key: 2, databases: [app], max_hold: 1h, max_wait: 1h }\n  \
             - { name: endless, key: 3, databases: [app], max_hold: unlimited, max_wait: 2s }",
        )
        .start()
        .await;
    let prometheus =
        Prometheus::start_with_rules(&[exporter.address()], &[&hurried_rules("1s")], &[]).await;
    let holders = [
        postgres.holds("pod-a", "1").await,
        postgres.holds("pod-a", "2").await,
        postgres.holds("pod-a", "3").await,
    ];
    // Working, so that nothing is stuck.
    let work = holders[2].start("SELECT pg_sleep(600)");
    let _waiters = [
        postgres.waits("pod-b", "1").await,
        postgres.waits("pod-b", "2").await,
        postgres.waits("pod-b", "3").await,
    ];

    for (finding, alert, lock) in [
        ("held_too_long", "AdvisoryLockHeldTooLong", "long"),
        ("waiting_too_long", "AdvisoryLockWaitingTooLong", "endless"),
    ] {
        let expected = BTreeSet::from([lock.to_owned()]);
        eventually_within(PATIENCE, &format!("{finding} is told in all ways"), async || {
            let locks = async |promql: &str| -> BTreeSet<String> {
                let told = prometheus.query(promql).await;
                told.into_iter().map(|(labels, _)| labels["lock"].clone()).collect()
            };
            let findings = format!("pg_advisory_lock_findings{{finding=\"{finding}\"}} > 0");
            assert_eq!(locks(&findings).await, expected);
            let alerts = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
            assert_eq!(locks(&alerts).await, expected);
            let snapshot = exporter.snapshot().await;
            let in_json = snapshot["locks"].as_array().expect("locks").iter().filter(|lock| {
                let mut findings = lock["findings"].as_array().expect("findings").iter();
                findings.any(|it| it["finding"] == finding)
            });
            let in_json = in_json.filter_map(|lock| lock["lock"].as_str().map(str::to_owned));
            assert_eq!(in_json.collect::<BTreeSet<_>>(), expected);
        })
        .await;
    }

    // Since when, by each of the three. A poll is a tenth of a second.
    let scrape = exporter.scrape_fresh().await;
    let since = "pg_advisory_lock_held_since_timestamp_seconds";
    let since = scrape.sample(since).with("lock", "long").value();
    let snapshot = exporter.snapshot().await;
    let locks = snapshot["locks"].as_array().expect("locks");
    let long = locks.iter().find(|lock| lock["lock"] == "long").expect("it is held");
    let seen_for = long["holders"][0]["seen_for_seconds"].as_f64().expect("an age");
    let polled_at = snapshot["polled_at"].as_str().expect("a moment");
    let polled_at: jiff::Timestamp = polled_at.parse().expect("a moment as text");
    let in_json = Duration::try_from(polled_at.as_duration()).expect("after 1970").as_secs_f64();
    assert!((in_json - seen_for - since).abs() < 0.1, "{in_json} - {seen_for} is not {since}");

    // Prometheus looks at whole seconds, so that the moment is known to which the age belongs.
    eventually("the alert has the same age", async || {
        let (alert, now) =
            (prometheus.alert("AdvisoryLockHeldTooLong").await, prometheus.now().await);
        let looked_at = alert + since;
        assert!((looked_at - looked_at.round()).abs() < 0.001, "{alert} + {since}");
        assert!((now - 5.0..=now).contains(&looked_at), "{looked_at} is not just before {now}");
    })
    .await;
    work.cancel().await;
    drop(holders);
}
