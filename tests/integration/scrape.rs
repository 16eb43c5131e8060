//! What is served over HTTP is what scrapers understand and what dashboards and alerts are built
//! on: names, types and labels are a contract. Whether the values are true is tested beside, in
//! `lock` and `fault`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::net::TcpListener;

use crate::support::session::Waiter;
use crate::support::{
    Exporter, PgBouncer, PoolMode, Postgres, Prometheus, Scrape, Session, eventually, http,
    prometheus, require,
};
use crate::versions::make_statistics;

const REGISTRY: &str = r#"
locks:
  - name: recalc-reward-points
    key: { hashtextextended: "cron:recalc-reward-points" }
    databases: [app]
    owner: growth
    description: Nightly recalculation of reward points
    last_held_within: 25h
  - { name: vacuum-pages, key: { pair: [7, { oid: pg_catalog.pg_class }] }, databases: [app] }
"#;

/// The registered key, as an application takes it.
const RECALC: &str = "hashtextextended('cron:recalc-reward-points', 0)";

/// Every metric with its type and its labels.
pub const CONTRACT: &str = include_str!("../contract.txt");

/// Values that are another at the next poll although nothing happened.
const MOVING: [&str; 9] = [
    "pg_advisory_clock_offset_seconds",
    "pg_advisory_last_poll_timestamp_seconds",
    "pg_advisory_lock_hold_seconds_total",
    "pg_advisory_lock_last_held_timestamp_seconds",
    "pg_advisory_lock_wait_seconds_total",
    "pg_advisory_observed_seconds_total",
    "pg_advisory_poll_duration_seconds",
    "pg_advisory_poll_interval_seconds",
    "pg_advisory_polls_total",
];

/// A setting in which every metric has a reason to be there.
struct Stage {
    exporter: Exporter,
    // Dropped in this order: clients before what they talk to.
    _sessions: Vec<Session>,
    _waiters: Vec<Waiter>,
    _pooler: PgBouncer,
    _postgres: Postgres,
}

impl Stage {
    async fn set() -> Stage {
        let postgres = Postgres::builder().setting("max_prepared_transactions", 5).start().await;
        make_statistics(&postgres, "postgres").await;
        // One backend for all clients: a lock left behind on it is a proof that we share it.
        let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
        let leaky = pooler.session("leaky").await;
        leaky.run("SELECT pg_advisory_lock(77)").await;
        let exporter = Exporter::builder()
            .config(&format!(
                "thresholds: {{ prepared: 1ms }}\nservers:\n  - {{ name: direct, dsn: '{}', inspect: [app] }}\n  - {{ name: pooled, dsn: '{}' }}",
                postgres.dsn("postgres"),
                pooler.dsn("app")
            ))
            .registry(REGISTRY)
            .start()
            .await;
        eventually("the database has told the OID", async || {
            let scrape = exporter.scrape_fresh().await;
            scrape.sample("pg_advisory_registry_source_last_success_timestamp_seconds").present();
        })
        .await;

        // Taken, awaited, and passed on, each before the eyes of the exporter.
        let brief = postgres.holds("brief", "1001").await;
        let next = postgres.waits("next", "1001").await;
        exporter.scrape_fresh().await;
        exporter.scrape_fresh().await;
        brief.close().await;
        next.statement.finish().await;

        let holder = postgres.holds("pod-a", RECALC).await;
        let waiter = postgres.waits("pod-b", RECALC).await;
        let preparer = postgres.session_in("app2", "preparer").await;
        preparer
            .run("BEGIN; SELECT pg_advisory_xact_lock(8); PREPARE TRANSACTION 'two-phase'")
            .await;
        eventually("the prepared transaction is a finding", async || {
            exporter.scrape_fresh().await.sample("pg_advisory_lock_findings").present();
        })
        .await;
        Stage {
            exporter,
            _sessions: vec![leaky, next.session, holder, preparer],
            _waiters: vec![waiter],
            _pooler: pooler,
            _postgres: postgres,
        }
    }
}

#[tokio::test]
async fn prometheus_sees_one_holder_and_a_zero_after_the_unlock() {
    require!(Postgres, Prometheus);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    let prometheus = Prometheus::start(&[exporter.address()]).await;
    let (instance, server) =
        (exporter.address().to_string(), format!("127.0.0.1:{}", postgres.port()));
    let series = |more: &[(&str, &str)]| -> BTreeMap<String, String> {
        [
            ("__name__", "pg_advisory_lock_holders"),
            ("job", "locks"),
            ("instance", &instance),
            ("server", &server),
            ("datname", "app"),
            ("lock", "recalc-reward-points"),
            ("key", "6110350855857795459"),
        ]
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
    };

    let pod_a = postgres.holds("pod-a", RECALC).await;
    let held = [("application_name", "pod-a"), ("mode", "exclusive"), ("state", "idle")];
    eventually("Prometheus has the holder and nothing else", async || {
        let holders = prometheus.query("pg_advisory_lock_holders").await;
        assert_eq!(holders, [(series(&held), 1.0)]);
    })
    .await;

    pod_a.run(&format!("SELECT pg_advisory_unlock({RECALC})")).await;
    let scrape = exporter.scrape_fresh().await;
    let holders = || scrape.sample("pg_advisory_lock_holders").with("lock", "recalc-reward-points");
    holders().with("application_name", "").with("mode", "").with("state", "").is(0.0);
    assert_eq!(holders().values(), [0.0], "the zero is alone from the next poll on");
    eventually("Prometheus has the zero and nothing else", async || {
        let holders = prometheus.query("pg_advisory_lock_holders").await;
        assert_eq!(holders, [(series(&[]), 0.0)]);
    })
    .await;
}

#[tokio::test]
async fn names_types_and_labels_are_those_agreed_upon() {
    require!(Postgres, PgBouncer);
    let stage = Stage::set().await;
    // Where the server does not tell when a wait began, the second poll tells that it lasts.
    stage.exporter.scrape_fresh().await;
    let scrape = stage.exporter.scrape_fresh().await;
    let agreed: BTreeSet<String> = CONTRACT
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let labels: BTreeSet<&str> = words[2..].iter().copied().collect();
            format!("{} {} {labels:?}", words[0], words[1])
        })
        .collect();
    let served: BTreeSet<String> = scrape
        .samples()
        .iter()
        .map(|sample| {
            let family = family_of(&scrape, &sample.name);
            let labels = sample.labels.keys().map(String::as_str).filter(|label| *label != "le");
            let labels: BTreeSet<&str> = labels.collect();
            format!("{family} {} {labels:?}", scrape.types()[family])
        })
        .collect();
    let missing: Vec<&String> = agreed.difference(&served).collect();
    let unknown: Vec<&String> = served.difference(&agreed).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing: {missing:#?}, unknown: {unknown:#?}"
    );
    for family in scrape.types().keys() {
        let help = scrape.help().get(family).map(String::as_str).unwrap_or_default();
        assert!(help.ends_with(['.', ')']) || family.starts_with("process_"), "{family}: {help:?}");
    }
}

fn family_of<'a>(scrape: &Scrape, sample: &'a str) -> &'a str {
    ["", "_bucket", "_sum", "_count"]
        .iter()
        .filter_map(|suffix| sample.strip_suffix(suffix))
        .find(|family| scrape.types().contains_key(*family))
        .unwrap_or_else(|| panic!("{sample} has no TYPE"))
}

#[tokio::test]
async fn both_formats_satisfy_the_checkers_of_their_makers() {
    require!(Postgres, PgBouncer, Promtool, OpenMetricsParser);
    let stage = Stage::set().await;
    let plain = stage.exporter.get("/metrics", &[]).await;
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    prometheus::assert_metrics_pass(plain.text());

    let accept = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let open = stage.exporter.get("/metrics", &accept).await;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(content_type));
    let samples = prometheus::parse_openmetrics(open.text());
    assert_eq!(samples, Scrape::parse(plain.text()).samples().len());
}

#[tokio::test]
async fn scrapes_at_one_time_get_the_same_series() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).registry(REGISTRY).start().await;
    let _holders = (postgres.holds("pod-a", RECALC).await, postgres.holds("pod-b", "7, 9").await);
    let _waiter = postgres.waits("pod-c", "7, 9").await;
    exporter.scrape_fresh().await;
    exporter.scrape_fresh().await;
    let quiet = |scrape: &Scrape| -> Vec<String> {
        let samples = scrape.samples().iter().cloned().map(|mut sample| {
            if MOVING.contains(&&*sample.name) || sample.name.starts_with("process_") {
                sample.value = f64::NAN;
            }
            sample.to_string()
        });
        samples.collect()
    };
    for _ in 0..10 {
        let (one, other) = tokio::join!(exporter.scrape(), exporter.scrape());
        assert!(one.samples().len() > 50);
        assert_eq!(quiet(&one), quiet(&other));
    }
}

#[tokio::test]
async fn every_path_answers_as_documented() {
    require!(Postgres);
    let postgres = Postgres::start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    for (path, status, piece) in [
        ("/", 200, "href=\"/metrics\""),
        ("/metrics", 200, "pg_advisory_up"),
        ("/api/v1/locks", 200, "\"schema\":1"),
        ("/api/v1/events", 200, "\"schema\":1"),
        ("/api/v1/events?lock=a&limit=ten", 400, "limit is not between 1 and 10000"),
        ("/-/healthy", 200, "healthy"),
        ("/-/ready", 200, "ready"),
        ("/nowhere", 404, "not found"),
    ] {
        let response = exporter.get(path, &[]).await;
        assert_eq!(response.status, status, "{path}");
        assert!(response.text().contains(piece), "{path}: {}", response.text());
        let head = http::request("HEAD", exporter.address(), path, &[]).await.expect("an answer");
        assert_eq!((head.status, head.body.len()), (status, 0), "HEAD {path}");
        for method in ["POST", "PUT", "DELETE"] {
            let refused = http::request(method, exporter.address(), path, &[]).await;
            let refused = refused.expect("an answer");
            assert_eq!(refused.status, 405, "{method} {path}");
            assert_eq!(refused.header("allow"), Some("GET, HEAD"), "{method} {path}");
        }
    }

    for path in ["/metrics", "/api/v1/locks"] {
        let packed = exporter.get(path, &[("Accept-Encoding", "gzip")]).await;
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        let plain = exporter.get(path, &[]).await;
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        assert!(packed.body.len() < plain.body.len(), "{path}");
        let begin = |text: &str| text.chars().take(40).collect::<String>();
        assert_eq!(begin(&packed.gunzipped()), begin(plain.text()), "{path}");
    }
}

#[tokio::test]
async fn it_is_ready_once_the_first_poll_was_tried_and_healthy_before() {
    // A server that lets clients in and never says a word.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = mute.local_addr().expect("a listener has an address");
    let dsn = format!("postgresql://postgres@{address}/postgres?connect_timeout=2");
    let exporter = Exporter::watching(&dsn).start().await;
    assert_eq!(exporter.get("/-/ready", &[]).await.status, 503);
    assert_eq!(exporter.get("/-/healthy", &[]).await.status, 200);
    let answer = tokio::time::timeout(Duration::from_secs(1), exporter.scrape()).await;
    answer.expect("nobody waits for the server").sample("pg_advisory_up").is(0.0);
    eventually("the first poll is given up", async || {
        assert_eq!(exporter.get("/-/ready", &[]).await.status, 200);
    })
    .await;
    exporter.scrape().await.sample("pg_advisory_up").is(0.0);
}
