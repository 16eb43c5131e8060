//! Every query of every dashboard, asked of a real Prometheus that scrapes the real exporter while the
//! fleet is at work: it is answered whatever is chosen, names only what the scrape has, and shows what
//! the fleet does; what only trouble shows, shows in trouble. What is true of the dashboards without
//! any server is tested in `tests/dashboards`, whose model of them is used here.
//!
//! The answers are left in `target/tmp/dashboards`, and with Node.js and Chromium a picture of each
//! dashboard is drawn from them, for a person to look at. A picture with a past takes longer, and has
//! the alerts as they are shipped:
//!
//! ```text
//! LOCKS_PREVIEW_SECONDS=600 cargo test --test integration dashboard::every_query
//! ```

mod viewer;

#[path = "../dashboards/dashboard.rs"]
#[expect(dead_code, reason = "rules of their own look at the rest")]
mod model;
#[path = "../dashboards/query.rs"]
#[expect(dead_code, reason = "rules of their own look at the rest")]
mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use self::model::{Asker, Choice, Dashboard, Panel, Question, Target};
use self::viewer::{Chosen, Shown, Viewer, values};
use crate::alert::hurried_rules;
use crate::rule::{RULES, assert_passes};
use crate::support::files::Files;
use crate::support::preview::Preview;
use crate::support::prometheus::promtool;
use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, Prometheus, Tool, eventually,
    eventually_within, is_installed, require,
};

/// The fleet plays its rounds, and Prometheus scrapes them, while a busy machine runs other tests.
const PATIENCE: Duration = Duration::from_secs(180);

/// Where one lock has to be chosen, each of these in turn: one that most happens to, of which a picture
/// is drawn; one that a job takes now and then; one for which nobody waits to the end.
const LOCKS: [&str; 3] = ["signup-pooled", "send-statements", "schema-migration"];

/// No age in a test is as much as this, in seconds.
const HOURS: f64 = 6.0 * 3600.0;

/// What a query shows of a fleet whose exporter is well, if it is not what the fleet does.
#[derive(Clone, Copy, PartialEq)]
enum Quiet {
    /// No series at all.
    Empty,
    /// A zero that was seen.
    Zero,
    /// As it happens.
    Whatever,
}
use Quiet::{Empty, Whatever, Zero};

/// Queries of one dashboard that are quiet for one reason. One that shows more fails the test, so that
/// the list stays true; and in trouble each has to show something.
struct AllIsWell {
    dashboard: &'static str,
    quiet: Quiet,
    #[expect(dead_code, reason = "for people")]
    reason: &'static str,
    places: &'static [&'static str],
}

#[rustfmt::skip]
const QUIET: &[AllIsWell] = &[
    AllIsWell { dashboard: "overview.json", quiet: Zero, reason: "every server and session is seen",
        places: &["Blind spots (stat), A", "Blind spots (stat), B"] },
    AllIsWell { dashboard: "overview.json", quiet: Whatever, reason: "zeros that are drawn while nothing happens",
        places: &["Longest hold against its limit (timeseries), B", "Longest wait against its limit (timeseries), B",
            "Sessions behind holders by lock (timeseries), B"] },
    AllIsWell { dashboard: "overview.json", quiet: Whatever, reason: "after a minute it is 0",
        places: &["Servers (table), E"] },
    AllIsWell { dashboard: "lock.json", quiet: Whatever, reason: "few transactions write",
        places: &["Oldest snapshot of a waiter (timeseries), A"] },
    AllIsWell { dashboard: "lock.json", quiet: Empty, reason: "nothing is wrong with the exporter",
        places: &["annotation Alerts on the exporter"] },
    AllIsWell { dashboard: "exporter.json", quiet: Empty, reason: "nothing is wrong with the exporter",
        places: &["annotation Alerts"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "every exporter, server and session is seen",
        places: &["Blind spots (stat), A", "Blind spots (stat), B", "Sees too little (stat), A"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "no pooler lies between",
        places: &["Sees too little (stat), B"] },
    AllIsWell { dashboard: "exporter.json", quiet: Whatever, reason: "after a minute it is 0",
        places: &["Servers by exporter (table), E"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "every poll succeeds",
        places: &["Polls now (stat), A", "Poll failures by reason (timeseries), B"] },
    AllIsWell { dashboard: "exporter.json", quiet: Empty, reason: "every poll succeeds",
        places: &["Poll failures by reason (timeseries), A"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "its files are read, and agree",
        places: &["Registry (stat), A", "Registry (stat), B", "Registry entries and conflicts (timeseries), B"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "the server hashes as all others do",
        places: &["Registry (stat), C", "Servers by exporter (table), G"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "there are few applications",
        places: &["Folded into other (timeseries), B"] },
    AllIsWell { dashboard: "exporter.json", quiet: Empty, reason: "no database is asked",
        places: &["Age of values asked of databases (timeseries), A", "Failures to ask databases (timeseries), A"] },
    AllIsWell { dashboard: "exporter.json", quiet: Zero, reason: "it stands for there being none",
        places: &["Age of values asked of databases (timeseries), B", "Failures to ask databases (timeseries), B"] },
    AllIsWell { dashboard: "exporter.json", quiet: Whatever, reason: "after a while the history is full",
        places: &["Servers by exporter (table), H", "Events dropped (timeseries), A"] },
];

/// Of these, what no trouble that a test can make shows.
const SPARED: &[(&str, &str)] = &[
    ("overview.json", "Longest hold against its limit (timeseries), B"),
    ("overview.json", "Longest wait against its limit (timeseries), B"),
    ("overview.json", "Sessions behind holders by lock (timeseries), B"),
    ("exporter.json", "Registry (stat), C"),
    ("exporter.json", "Servers by exporter (table), G"),
    ("exporter.json", "Servers by exporter (table), H"),
    ("exporter.json", "Events dropped (timeseries), A"),
    ("exporter.json", "Age of values asked of databases (timeseries), B"),
    ("exporter.json", "Failures to ask databases (timeseries), B"),
];

/// Metrics in the dashboards that the fleet's exporter does not serve, and why.
const NOT_SERVED: &[(&str, &str)] = &[
    ("pg_advisory_registry_source_failures_total", "no database is asked"),
    ("pg_advisory_registry_source_last_success_timestamp_seconds", "no database is asked"),
];

/// Metrics that it serves after a minute, or sooner, or with proof only.
const SERVED_LATE: &[&str] = &["pg_advisory_pooled_connection"];

fn dashboards() -> Vec<Dashboard> {
    ["overview", "lock", "exporter"].map(|name| read(&format!("{name}.json"))).into()
}

fn read(file: &str) -> Dashboard {
    let path = folder().join(file);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    Dashboard::parse(file, &text)
}

/// Where the dashboards are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards")
}

/// What is listed of a query.
fn quiet(file: &str, place: &str) -> Option<Quiet> {
    let is_meant = |it: &&AllIsWell| it.dashboard == file && it.places.contains(&place);
    QUIET.iter().find(is_meant).map(|it| it.quiet)
}

/// The locks that a dashboard is looked at for: one if all can be chosen.
fn locks<'a>(dashboard: &Dashboard, locks: &[&'a str]) -> Vec<&'a str> {
    let has_to_choose = dashboard.variable("lock").is_some_and(|lock| !lock.include_all);
    locks.iter().copied().take(if has_to_choose { locks.len() } else { 1 }).collect()
}

/// What each query has shown, the most of it.
type Seen = BTreeMap<(String, String), Shown>;

/// Those of the queries that this is so of, as a person reads them.
fn which(seen: &Seen, is_so: impl Fn(&str, &str, Shown) -> bool) -> Vec<String> {
    let meant = seen.iter().filter(|((file, place), shown)| is_so(file, place, **shown));
    meant.map(|((file, place), shown)| format!("{file}, {place}: {shown:?}")).collect()
}

/// Looks at every query that has not shown something yet, with all chosen that can be.
async fn look(prometheus: &Prometheus, began: f64, among: &[&str], seen: &mut Seen) {
    let time = (began, prometheus.now().await);
    for dashboard in &dashboards() {
        for lock in locks(dashboard, among) {
            let viewer = Viewer { prometheus, dashboard, lock, time };
            let situation = viewer.choose(Chosen::All).await;
            for question in dashboard.questions() {
                let key = (dashboard.file.clone(), question.place.clone());
                let most = seen.entry(key).or_insert(Shown::Nothing);
                if *most < Shown::Something {
                    *most = (*most).max(Shown::of(&viewer.ask(&question, &situation).await.1));
                }
            }
        }
    }
}

/// The fleet, and all that looks at it.
struct Stage {
    // Dropped in this order: clients before what they talk to.
    prometheus: Prometheus,
    _exporter: Exporter,
    _fleet: Fleet,
    _pooler: PgBouncer,
    _postgres: Postgres,
    began: f64,
}

impl Stage {
    async fn set(rules: &str) -> Stage {
        let postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
        let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet-config.yaml");
        let exporter =
            Exporter::serve(&["--config.file", config, "--dsn", &postgres.dsn("postgres")]).await;
        let prometheus = Prometheus::start_with_rules(&[exporter.address()], &[rules], &[]).await;
        let began = prometheus.now().await;
        let fleet = Fleet::start(&postgres, Some(&pooler));
        Stage {
            prometheus,
            _exporter: exporter,
            _fleet: fleet,
            _pooler: pooler,
            _postgres: postgres,
            began,
        }
    }

    /// With all chosen that can be, until each query has shown something at some time.
    async fn until_all_is_shown(&self) {
        let mut seen = Seen::new();
        let is_missing = |file: &str, place: &str, shown: Shown| match quiet(file, place) {
            Some(Empty | Whatever) => false,
            Some(Zero) => shown < Shown::Zero,
            None => shown < Shown::Something,
        };
        eventually_within(PATIENCE, "every query shows something", async || {
            look(&self.prometheus, self.began, &LOCKS, &mut seen).await;
            let missing = which(&seen, is_missing);
            assert!(missing.is_empty(), "{missing:#?}");
        })
        .await;
        let is_loud = |file: &str, place: &str, shown: Shown| match quiet(file, place) {
            Some(Empty) => shown > Shown::Nothing,
            Some(Zero) => shown > Shown::Zero,
            Some(Whatever) | None => false,
        };
        let loud = which(&seen, is_loud);
        assert!(loud.is_empty(), "these are not quiet: {loud:#?}");
        for AllIsWell { dashboard, places, .. } in QUIET {
            for place in *places {
                let key = ((*dashboard).to_owned(), (*place).to_owned());
                assert!(seen.contains_key(&key), "{dashboard} has no {place}");
            }
        }
    }
}

#[tokio::test]
async fn every_query_shows_what_the_fleet_does() {
    require!(Postgres, PgBouncer, Prometheus);
    let seconds = env::var("LOCKS_PREVIEW_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    // Where nobody waits for minutes, alerts do not either.
    let rules = seconds.map_or_else(|| hurried_rules("5s"), |_| RULES.to_owned());
    let stage = Stage::set(&rules).await;
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => stage.until_all_is_shown().await,
    }
    let time = (stage.began, stage.prometheus.now().await);
    let prometheus = &stage.prometheus;
    for dashboard in &dashboards() {
        let viewer = Viewer { prometheus, dashboard, lock: LOCKS[0], time };
        leave_answers(&viewer).await;
        if is_installed(Tool::Node) && is_installed(Tool::Chromium) {
            draw(dashboard).await;
        }
        names_are_served(&viewer).await;
        for chosen in [Chosen::One, Chosen::Several, Chosen::All, Chosen::Nothing] {
            let situation = viewer.choose(chosen).await;
            for question in dashboard.questions() {
                let (text, data) = viewer.ask(&question, &situation).await;
                assert_sane(dashboard, &question, &text, &data);
                assert_named(dashboard, &question, &data);
            }
        }
    }
}

/// Names and labels are those of series that were there.
async fn names_are_served(viewer: &Viewer<'_>) {
    let situation = viewer.choose(Chosen::All).await;
    let mut asked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for question in viewer.dashboard.questions() {
        let text = viewer.dashboard.fill_in(question.text, &situation, question.min_step);
        let query = query::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        for selector in query.selectors {
            let labels = selector.matchers.into_iter().map(|matcher| matcher.label);
            asked.entry(selector.metric).or_default().extend(labels);
        }
    }
    for (metric, labels) in &asked {
        let served = viewer.prometheus.labels(metric, viewer.time).await;
        if SERVED_LATE.contains(&&**metric) && served.is_empty() {
            continue;
        }
        let is_missing = NOT_SERVED.iter().any(|(name, _)| name == metric);
        assert!(served.is_empty() == is_missing, "{metric} is served: {}", !served.is_empty());
        for label in labels.iter().filter(|_| !is_missing) {
            assert!(served.contains(label), "{metric} has {served:?}, not {label}");
        }
    }
}

/// No number that cannot be.
#[track_caller]
fn assert_sane(dashboard: &Dashboard, question: &Question<'_>, text: &str, data: &Value) {
    let unit = match question.asker {
        Asker::Panel(panel, _) => panel.field_config.defaults.unit.as_deref(),
        Asker::Annotation => None,
    };
    let most = match unit {
        // Of all sessions together.
        Some("s" | "dtdurations") if text.contains("_seconds_total") => f64::MAX,
        Some("s" | "dtdurations") => HOURS,
        // A hold may last for many times its limit.
        Some("percentunit") if text.contains("_limit_seconds") => 1000.0,
        // On a machine that is busy otherwise a poll may last for longer than its interval.
        Some("percentunit") if text.contains("pg_advisory_poll_duration_seconds") => 1000.0,
        // A rate over few scrapes is extrapolated to its whole window.
        Some("percentunit") if text.contains("rate(") => 2.0,
        Some("percentunit") => 1.0,
        _ => f64::MAX,
    };
    // The clock of a server may be behind ours, and states are numbers of no meaning.
    let is_code =
        matches!(question.asker, Asker::Panel(panel, _) if panel.kind == "state-timeline");
    let may_be_negative = is_code || text.contains("pg_advisory_clock_offset_seconds");
    let least = if may_be_negative { -10.0 } else { 0.0 };
    // A table has words for it.
    let may_be_infinite = matches!(question.asker, Asker::Panel(panel, _) if panel.kind == "table")
        && text.contains("_limit_seconds");
    let (file, place) = (&dashboard.file, &question.place);
    for value in values(data) {
        let is_sane = (least..=most).contains(&value) || may_be_infinite && value == f64::INFINITY;
        assert!(is_sane, "{file}, {place}: {value} as {unit:?}: {text}");
    }
}

/// Every series has the labels that its name is made of.
#[track_caller]
fn assert_named(dashboard: &Dashboard, question: &Question<'_>, data: &Value) {
    let Asker::Panel(_, Target { legend_format: Some(legend), .. }) = question.asker else {
        return;
    };
    let (file, place) = (&dashboard.file, &question.place);
    for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
        for series in data["result"].as_array().into_iter().flatten() {
            let metric = &series["metric"];
            assert!(metric.get(label.trim()).is_some(), "{file}, {place}: no {label} in {metric}");
        }
    }
}

/// Where the answers and the pictures are left.
fn gallery() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboards")
}

/// Writes what the panels show, as `tests/browser/preview.mjs` reads it.
async fn leave_answers(viewer: &Viewer<'_>) {
    let dashboard = viewer.dashboard;
    let situation = viewer.choose(Chosen::All).await;
    let mut panels: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
    let mut annotations = Vec::new();
    for question in dashboard.questions() {
        let (text, data) = viewer.ask(&question, &situation).await;
        match question.asker {
            Asker::Panel(Panel { id, .. }, target) => {
                panels.entry(*id).or_default().push(json!({
                    "refId": target.ref_id,
                    "expr": text,
                    "legendFormat": target.legend_format,
                    "format": target.format.as_deref().unwrap_or("time_series"),
                    "instant": target.instant,
                    "data": data,
                }));
            }
            Asker::Annotation => {
                let name = question.place.trim_start_matches("annotation ");
                annotations.push(json!({ "name": name, "data": data }));
            }
        }
    }
    let said = |choice: &Choice| match choice {
        Choice::One(value) => value.clone(),
        Choice::Several(values) => values.join(" + "),
        Choice::All => "All".to_owned(),
        Choice::Nothing => "None".to_owned(),
    };
    let variables: BTreeMap<&String, String> =
        situation.choices.iter().map(|(name, choice)| (name, said(choice))).collect();
    let panels: Vec<Value> =
        panels.into_iter().map(|(id, targets)| json!({ "id": id, "targets": targets })).collect();
    let answers = json!({
        "dashboard": dashboard.json,
        "from": viewer.time.0,
        "to": viewer.time.1,
        "variables": variables,
        "panels": panels,
        "annotations": annotations,
    });
    fs::create_dir_all(gallery()).expect("the target folder is ours");
    let file = gallery().join(&dashboard.file);
    fs::write(file, answers.to_string()).expect("the target folder is ours");
}

/// Draws the answers that were left, and expects something in every panel.
async fn draw(dashboard: &Dashboard) {
    let answers = gallery().join(&dashboard.file);
    let picture = answers.with_extension("png");
    let preview = Preview::draw(&answers, &picture, &[]).await;
    let drawn: BTreeSet<i64> =
        preview.panels.iter().filter(|panel| panel.drawn).map(|panel| panel.id.into()).collect();
    let blank: Vec<&String> = dashboard
        .panels()
        .filter(|panel| !drawn.contains(&panel.id))
        .map(|panel| &panel.title)
        .collect();
    assert!(blank.is_empty(), "{}: blank are {blank:?}: {:#?}", dashboard.file, preview.panels);
    let png = fs::read(picture).expect("it was drawn");
    let height = u32::from_be_bytes(png[20..24].try_into().expect("four bytes"));
    assert!(png.starts_with(b"\x89PNG") && height > 1000, "{height}");
}

/// The numbers of the overview that are read first, while nothing is held.
const READ_ZERO: [&str; 9] = [
    "Blind spots (stat), A",
    "Blind spots (stat), B",
    "Findings (stat), A",
    "Findings (stat), B",
    "Keys now (stat), A",
    "Keys now (stat), B",
    "Longest hold (stat), A",
    "Longest wait (stat), A",
    "Longest wait (stat), B",
];

/// Of these, what is still told of a server that nobody sees.
const TOLD_BLIND: [&str; 2] = ["Blind spots (stat), A", "Oldest poll (stat), A"];

/// The numbers that the overview's single numbers show now.
async fn numbers(prometheus: &Prometheus, began: f64) -> BTreeMap<String, Vec<f64>> {
    let overview = read("overview.json");
    let time = (began, prometheus.now().await);
    let viewer = Viewer { prometheus, dashboard: &overview, lock: "", time };
    let situation = viewer.choose(Chosen::All).await;
    let mut numbers = BTreeMap::new();
    for question in overview.questions() {
        if matches!(question.asker, Asker::Panel(panel, _) if panel.kind == "stat") {
            let data = viewer.ask(&question, &situation).await.1;
            numbers.insert(question.place, values(&data));
        }
    }
    numbers
}

/// Panels without any series where nothing was held in the time shown: lists of those who held or
/// waited, and what is told of registered keys and of finished waits alone.
const EMPTY_WHEN_QUIET: [&str; 6] = [
    "overview.json, Most hold time by application",
    "overview.json, Most wait time by application",
    "lock.json, Last held",
    "lock.json, Last held over time",
    "lock.json, Mean duration of holds and waits",
    "lock.json, Wait durations",
];

async fn empty_panels(prometheus: &Prometheus, began: f64) -> Vec<String> {
    let time = (began, prometheus.now().await);
    let mut empty = Vec::new();
    for dashboard in &dashboards() {
        let viewer = Viewer { prometheus, dashboard, lock: "unregistered", time };
        let situation = viewer.choose(Chosen::All).await;
        let mut shown: BTreeMap<&str, Shown> = BTreeMap::new();
        for question in &dashboard.questions() {
            if let Asker::Panel(panel, _) = question.asker {
                let most = shown.entry(&panel.title).or_insert(Shown::Nothing);
                *most = (*most).max(Shown::of(&viewer.ask(question, &situation).await.1));
            }
        }
        let is_empty = |(_, shown): &(&str, Shown)| *shown == Shown::Nothing;
        let of_it = shown.into_iter().filter(is_empty);
        empty.extend(of_it.map(|(title, _)| format!("{}, {title}", dashboard.file)));
    }
    empty
}

/// With a pair of exporters, as one has them so that one is always there.
#[tokio::test]
async fn a_quiet_server_reads_zero_and_one_that_nobody_sees_does_not() {
    require!(Postgres, Prometheus);
    let mut postgres = Postgres::start().await;
    let dsn = postgres.dsn("postgres");
    let pair = (Exporter::watching(&dsn).start().await, Exporter::watching(&dsn).start().await);
    let prometheus = Prometheus::start(&[pair.0.address(), pair.1.address()]).await;
    let began = prometheus.now().await;
    // A lock that is not there cannot be chosen, and a choice of none is no reason to show nothing.
    let holder = postgres.holds("pod-a", "42").await;
    eventually("both have seen a lock", async || {
        let seen = prometheus.query("pg_advisory_lock_holders").await;
        assert_eq!(seen.len(), 2);
        let numbers = numbers(&prometheus, began).await;
        assert_eq!(numbers["Keys now (stat), A"], [1.0], "the two count as one");
    })
    .await;

    holder.close().await;
    eventually("everything reads zero", async || {
        let numbers = numbers(&prometheus, began).await;
        for place in READ_ZERO {
            assert_eq!(numbers[place], [0.0], "{place}");
        }
        for (place, values) in &numbers {
            assert_eq!(values.len(), 1, "{place}");
        }
    })
    .await;

    let quiet_since = prometheus.now().await;
    eventually("no panel is empty for being quiet", async || {
        assert_eq!(empty_panels(&prometheus, quiet_since).await, EMPTY_WHEN_QUIET);
    })
    .await;

    postgres.stop().await;
    eventually("nothing reads zero any more", async || {
        let numbers = numbers(&prometheus, began).await;
        assert_eq!(numbers["Blind spots (stat), A"], [1.0], "the two miss one server");
        for (place, values) in &numbers {
            let is_told = TOLD_BLIND.contains(&&**place);
            assert_eq!(values.is_empty(), !is_told, "{place}: {values:?}");
        }
    })
    .await;
}

/// Names that contradict each other, values that can be asked for and values that cannot, and a lock
/// for `lock.json` to look at.
const TROUBLED_REGISTRY: &str = "
locks:
  - { name: watched, key: 42, databases: [app], last_held_within: 1s }
  - { name: one-name, key: 7, databases: [app] }
  - { name: other-name, key: 7, databases: [app] }
  - name: prices
    key: { hashtext: 'prices:{shop}' }
    databases: [app]
    values: { shop: { query: \"SELECT 'a'\", database: app, refresh: 1m } }
  - name: stocks
    key: { hashtext: 'stocks:{shop}' }
    databases: [app]
    values: { shop: { query: 'SELECT 1/0', database: app, refresh: 1m } }
";

/// Everything that the fleet's exporter is spared.
#[tokio::test]
async fn what_is_quiet_when_all_is_well_shows_in_trouble() {
    require!(Postgres, PgBouncer, Prometheus);
    let postgres = Postgres::start().await;
    let admin = postgres.session("admin").await;
    admin.run("CREATE ROLE humble LOGIN; CREATE ROLE watchman LOGIN IN ROLE pg_monitor").await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 1).await;
    // One backend for all clients: a lock left behind on it is a proof that we share it.
    pooler.session("leaky").await.run("SELECT pg_advisory_lock(77)").await;
    let files = Files::new();
    let registry = files.write("registry.yaml", TROUBLED_REGISTRY);
    let dsn = postgres.dsn("postgres");
    let exporter = Exporter::builder()
        .config(&format!(
            "limits: {{ applications: 1 }}\nservers:
  - {{ name: asked, dsn: '{}', inspect: [app] }}
  - {{ name: hidden, dsn: '{}' }}
  - {{ name: pooled, dsn: '{}' }}
  - {{ name: gone, dsn: 'postgresql://postgres@127.0.0.1:1/postgres' }}",
            dsn.replace("postgres@", "watchman@"),
            dsn.replace("postgres@", "humble@"),
            pooler.dsn("app"),
        ))
        .argument("--registry.file")
        .argument(&registry)
        .start()
        .await;
    let dying = Exporter::watching(&dsn).start().await;
    let prometheus = Prometheus::start_with_rules(
        &[exporter.address(), dying.address()],
        &[&hurried_rules("5s")],
        &[],
    )
    .await;
    let began = prometheus.now().await;
    // Beside them, transactions that write: the snapshot of the waiter grows old.
    let _holder = postgres.holds("pod-a", "42").await;
    let waiter = postgres.session("pod-b").await;
    waiter.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
    let _waiting = waiter.start("SELECT pg_advisory_lock(42)");
    postgres.until_waiting(&waiter).await;
    eventually("both exporters were scraped", async || {
        assert_eq!(prometheus.query("up == 1").await.len(), 2);
        assert_eq!(prometheus.query("pg_advisory_exporter_build_info").await.len(), 2);
    })
    .await;
    drop(dying);
    files.write("registry.yaml", "locks: [");
    exporter.signal("HUP");

    let mut seen = Seen::new();
    eventually_within(PATIENCE, "every query shows something in trouble", async || {
        admin.run("SELECT pg_current_xact_id()").await;
        look(&prometheus, began, &["watched"], &mut seen).await;
        let is_listed = |file: &str, place: &str| {
            quiet(file, place).is_some() && !SPARED.contains(&(file, place))
        };
        let silent =
            which(&seen, |file, place, shown| is_listed(file, place) && shown < Shown::Something);
        assert!(silent.is_empty(), "{silent:#?}");
    })
    .await;
}

/// With the rules where they are here: the example says where they are on the server.
#[test]
fn promtool_accepts_the_scrape_example() {
    require!(Promtool);
    let example = fs::read_to_string(folder().join("prometheus-example.yml")).expect("it is there");
    let rules = "/etc/prometheus/rules/";
    assert!(example.contains(rules), "{example}");
    let alerts = folder().with_file_name("alerts");
    let files = Files::new();
    let example = example.replace(rules, &format!("{}/", alerts.display()));
    let path = files.write("prometheus.yml", &example);
    let output = promtool(&["check", "config", &path], "");
    assert_passes(&output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("rules found"), "{said}");
}
