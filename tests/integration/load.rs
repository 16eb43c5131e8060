//! Much of everything: keys by the thousand, names that mean harm, and scrapers in a crowd. What is
//! served stays bounded, valid and complete, and the server notices one connection.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::sleep;

use crate::support::{Exporter, Postgres, Scrape, Session, exporter, prometheus, require};

/// Defaults of the exporter: keys and application names that have series of their own.
const LIMIT: usize = 100;

/// How long the crowd of scrapers stays.
const CROWDED: Duration = Duration::from_secs(60);

fn distinct_values(scrape: &Scrape, name: &str, label: &str) -> usize {
    let matcher = scrape.sample(name);
    let mut values: Vec<&str> =
        matcher.matches().iter().map(|sample| sample.labels[label].as_str()).collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

fn sum(scrape: &Scrape, name: &str) -> f64 {
    scrape.sample(name).values().iter().sum()
}

/// Scrapes once more and puts what it took into the test's output: a figure, no verdict.
#[expect(clippy::print_stderr, reason = "the figure is read by people")]
async fn report_cost(what: &str, exporter: &Exporter) -> String {
    let scrape = exporter.scrape_fresh().await;
    let polled = scrape.sample("pg_advisory_poll_duration_seconds").value();
    let began = exporter::now();
    let body = exporter.get("/metrics", &[]).await.text().to_owned();
    let took = exporter::now().duration_since(began).unwrap_or_default();
    eprintln!("{what}: poll {polled:.3} s, scrape {took:?}, {} bytes", body.len());
    body
}

#[tokio::test]
async fn ten_thousand_keys_of_one_session_fold_into_a_bounded_number_of_series() {
    require!(Postgres, Promtool);
    let postgres = Postgres::builder().setting("max_locks_per_transaction", 150).start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let session = postgres.session("row-worker").await;
    session.run("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 10000) AS n").await;
    // Keys that stay get the second half of the slots after some polls.
    for _ in 0..12 {
        let scrape = exporter.scrape_fresh().await;
        scrape.sample("pg_advisory_lock_rows").with("granted", "true").is(10_000.0);
        scrape.sample("pg_advisory_keys").with("state", "held").with("datname", "app").is(10_000.0);
        scrape.sample("pg_advisory_lock_holders").with("key", "other").is(1.0);
        assert!(distinct_values(&scrape, "pg_advisory_lock_holders", "key") <= LIMIT + 1);
    }
    let scrape = exporter.scrape_fresh().await;
    assert_eq!(distinct_values(&scrape, "pg_advisory_lock_holders", "key"), LIMIT + 1);
    scrape.sample("pg_advisory_folded_keys").is(10_000.0 - 100.0);
    scrape.sample("pg_advisory_unregistered_keys").with("datname", "app").is(10_000.0);
    scrape.sample("pg_advisory_session_keys_max").is(10_000.0);
    assert_eq!(sum(&scrape, "pg_advisory_lock_acquisitions_observed_total"), 10_000.0);
    assert!(scrape.samples().len() < 2_000, "{} samples", scrape.samples().len());
    prometheus::assert_metrics_pass(&report_cost("10,000 keys", &exporter).await);

    session.run("SELECT pg_advisory_unlock_all()").await;
    let scrape = exporter.scrape_fresh().await;
    scrape.sample("pg_advisory_lock_holders").absent();
    scrape.sample("pg_advisory_folded_keys").is(0.0);
}

/// A name that tries to leave its label, one of a kind by its number, as long as a name may be.
fn hostile_name(number: usize) -> String {
    const STINGS: [&str; 10] = [
        "\"} 1\n",
        "\\",
        "\\\"",
        "{lock=\"x\"}",
        "\r\n# HELP x",
        "\u{1}\u{1b}[31m\u{7f}",
        "pod-ä-日本-🔒",
        "' OR 1=1; --",
        "  ,= \t",
        "<script>",
    ];
    let mut name = format!("{number} {}", STINGS[number % STINGS.len()]);
    if number.is_multiple_of(3) {
        // Ends in the middle of what an escape would make of it.
        write!(name, "{:\\<63}", "").expect("text can be written to a string");
        while name.len() > 63 {
            name.pop();
        }
    }
    name
}

#[tokio::test]
async fn a_thousand_hostile_names_neither_tear_the_scrape_nor_lose_a_session() {
    const SESSIONS: usize = 100;
    const ROUNDS: usize = 10;
    require!(Postgres, Promtool, OpenMetricsParser);
    let postgres = Postgres::builder().setting("max_connections", SESSIONS + 10).start().await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    let mut sessions: Vec<Session> = Vec::new();
    for _ in 0..SESSIONS {
        let session = postgres.session("").await;
        session.run("SELECT pg_advisory_lock_shared(42)").await;
        sessions.push(session);
    }
    // So many sessions take turns with their names.
    for round in 0..ROUNDS {
        for (number, session) in sessions.iter().enumerate() {
            let name = hostile_name(round * SESSIONS + number).replace('\'', "''");
            session.run(&format!("SET application_name = '{name}'")).await;
        }
        let scrape = exporter.scrape_fresh().await;
        let holders = scrape.sample("pg_advisory_lock_holders");
        assert!(holders.matches().iter().all(|sample| sample.labels["key"] == "42"));
        assert_eq!(sum(&scrape, "pg_advisory_lock_holders"), 100.0, "no session is lost");
        assert_eq!(sum(&scrape, "pg_advisory_sessions"), 100.0);
        let applications = distinct_values(&scrape, "pg_advisory_lock_holders", "application_name");
        assert!(applications <= LIMIT + 1, "{applications} names in round {round}");
        let ever =
            distinct_values(&scrape, "pg_advisory_lock_hold_seconds_total", "application_name");
        // `other` and `(none)` come on top.
        assert!(ever <= LIMIT + 2, "{ever} names ever in round {round}");
        if round == 0 {
            assert_eq!(applications, LIMIT);
            holders.clone().with("application_name", "1 \\").is(1.0);
            holders.clone().with("application_name", "13 {lock=\"x\"}").is(1.0);
        }
        if round + 1 == ROUNDS {
            scrape.sample("pg_advisory_folded_applications").is(100.0);
            holders.with("application_name", "other").is(100.0);
        }
    }
    prometheus::assert_metrics_pass(&report_cost("1,000 names", &exporter).await);
    let accept = [("Accept", "application/openmetrics-text; version=1.0.0")];
    prometheus::parse_openmetrics(exporter.get("/metrics", &accept).await.text());
    let snapshot = exporter.snapshot().await;
    let holders = snapshot["locks"][0]["holders"].as_array().expect("there are holders");
    assert_eq!(holders.len(), SESSIONS, "the snapshot folds nobody");
}

/// What a pod calls itself, as its platform makes it up: one of a kind, and gone soon.
fn pod_name(session: &Session) -> String {
    let mut hasher = DefaultHasher::new();
    session.backend_start().hash(&mut hasher);
    format!("svc-{:08x}-{}", hasher.finish() >> 32, session.pid())
}

#[tokio::test]
async fn names_that_never_come_again_stay_within_the_bound_for_the_life_of_the_process() {
    const ROUNDS: usize = 30;
    const PODS: usize = 10;
    const NAMELESS: usize = 20;
    const BOUND: usize = 20;
    require!(Postgres);
    let postgres = Postgres::start().await;
    let dsn = postgres.dsn("postgres");
    let limits = format!("limits: {{ applications: {BOUND} }}");
    let plain = Exporter::watching(&dsn).config(&limits).start().await;
    let rule = "applications: [{ match: '^svc-.*$', name: svc }]";
    let rewriting = Exporter::watching(&dsn).config(&limits).config(rule).start().await;
    let mut nameless = Vec::new();
    for _ in 0..NAMELESS {
        nameless.push(postgres.session("").await);
        nameless[nameless.len() - 1].run("SELECT pg_advisory_lock_shared(7)").await;
    }
    let mut ever: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut pods = Vec::new();
        for number in 0..PODS {
            let pod = postgres.session("").await;
            let name = pod_name(&pod);
            let key = round * PODS + number;
            pod.run(&format!("SET application_name = '{name}'; SELECT pg_advisory_lock(8, {key})"))
                .await;
            names.insert(name);
            pods.push(pod);
        }
        for (which, exporter) in [("plain", &plain), ("rewriting", &rewriting)] {
            let scrape = exporter.scrape_fresh().await;
            // A round before may not have gone yet.
            let all = sum(&scrape, "pg_advisory_lock_holders");
            let rows = scrape.sample("pg_advisory_lock_rows").with("granted", "true").value();
            assert_eq!(all, rows, "a row is lost");
            let of_pods = scrape.sample("pg_advisory_lock_holders").with("lock", "unregistered");
            assert!(of_pods.values().iter().sum::<f64>() >= (PODS + NAMELESS) as f64);
            let nameless = scrape.sample("pg_advisory_lock_holders").with("key", "7");
            nameless.with("application_name", "(none)").is(NAMELESS as f64);
            let values = scrape.samples().iter().filter_map(|it| it.labels.get("application_name"));
            ever.entry(which).or_default().extend(values.cloned());
            let folded = scrape.sample("pg_advisory_folded_applications").value();
            if which == "rewriting" {
                assert_eq!(folded, 0.0);
            } else if round * PODS >= 2 * BOUND {
                assert!(folded >= PODS as f64, "{folded} in round {round}");
            }
        }
        for pod in pods {
            pod.close().await;
        }
    }
    assert_eq!(names.len(), ROUNDS * PODS, "each was another");
    // `(none)` and `other` come on top.
    assert!(ever["plain"].len() <= BOUND + 2, "{:?}", ever["plain"]);
    assert!(ever["plain"].contains("other"));
    assert_eq!(ever["rewriting"], BTreeSet::from(["(none)".to_owned(), "svc".to_owned()]));
}

#[tokio::test]
async fn a_crowd_of_scrapers_costs_the_server_one_connection() {
    const SCRAPERS: usize = 20;
    require!(Postgres);
    let postgres = Postgres::start().await;
    let _holder = postgres.holds("pod-a", "42").await;
    let observer = postgres.session("observer").await;
    let exporter = Exporter::watching(&postgres.dsn("postgres")).start().await;
    exporter.scrape_fresh().await;
    let ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'locks'";
    let backend = observer.rows(ours).await;
    assert_eq!(backend.len(), 1);

    let end = exporter::now() + CROWDED;
    let scrape_on = async |_| {
        let mut scrapes = 0_u32;
        while exporter::now() < end {
            let scrape = exporter.scrape().await;
            scrape.sample("pg_advisory_up").is(1.0);
            scrape.sample("pg_advisory_lock_holders").with("key", "42").is(1.0);
            scrapes += 1;
            sleep(Duration::from_millis(200)).await;
        }
        scrapes
    };
    let observe = async {
        while exporter::now() < end {
            assert_eq!(observer.rows(ours).await, backend, "another connection of ours");
            sleep(Duration::from_millis(50)).await;
        }
    };
    let crowd = futures_util::future::join_all((0..SCRAPERS).map(scrape_on));
    let (scrapes, ()) = tokio::join!(crowd, observe);
    let total: u32 = scrapes.iter().sum();
    assert!(total > 1_000, "a crowd that scraped {total} times is none");
    let failures = exporter.scrape_fresh().await;
    assert_eq!(sum(&failures, "pg_advisory_poll_failures_total"), 0.0);
}
