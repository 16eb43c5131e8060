//! Every query of every dashboard, asked of a real Prometheus that scrapes the real exporter while the
//! fleet is at work: it is answered whatever is chosen, names only what the scrape has, and finds what
//! the fleet does. What is true of the dashboards without a server is tested in `tests/dashboards`,
//! whose model of them is used here.
//!
//! The answers are left in `target/tmp/dashboards`, and with Node.js and Chromium a picture of each
//! dashboard is drawn from them, for a person to look at. A picture with a past takes longer:
//!
//! ```text
//! LOCKS_PREVIEW_SECONDS=600 cargo test --test integration dashboard::
//! ```

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

use self::model::{Asker, Choice, Dashboard, Panel, Question, Situation, Target, Variable};
use crate::alert::hurried_rules;
use crate::rule::RULES;
use crate::support::files::Files;
use crate::support::prometheus::promtool;
use crate::support::{
    Exporter, Fleet, PgBouncer, PoolMode, Postgres, Prometheus, eventually, eventually_within,
    require,
};

/// The fleet plays its rounds, and Prometheus scrapes them, while a busy machine runs other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// As the Prometheus of the tests does.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// What one person would choose, where there is a choice: the lock that most happens to.
const PREFERRED: [(&str, &str); 1] = [("lock", "signup-pooled")];

/// No age in a test is as old as this, in seconds.
const HOURS: f64 = 6.0 * 3600.0;

/// Why a query shows nothing, or nothing but zero, of a fleet that nothing is wrong with.
enum Quiet {
    /// No series at all.
    Empty,
    /// A zero.
    Zero,
    /// Either of them, or values, as it happens.
    Whatever,
}
use Quiet::{Empty, Whatever, Zero};

/// Dashboard, place, what is shown, and why. One that shows more fails the test, so that the list
/// stays true.
const QUIET: &[(&str, &str, Quiet, &str)] = &[];

/// Metrics in the dashboards that the fleet's exporter does not serve, and why.
const NOT_SERVED: &[(&str, &str)] = &[];

fn dashboards() -> Vec<Dashboard> {
    ["overview", "lock", "exporter"].map(|name| read(&format!("{name}.json"))).into()
}

fn read(file: &str) -> Dashboard {
    let path = root().join("dashboards").join(file);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
    Dashboard::parse(file, &text)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The fleet, and all that looks at it.
struct Stage {
    // Dropped in this order: clients before what they talk to.
    prometheus: Prometheus,
    exporter: Exporter,
    _fleet: Fleet,
    _pooler: PgBouncer,
    _postgres: Postgres,
    began: f64,
}

impl Stage {
    async fn set(rules: &str) -> Stage {
        let postgres = Postgres::builder().setting("max_prepared_transactions", 10).start().await;
        let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 2).await;
        let exporter = Exporter::watching(&postgres.dsn("postgres"))
            .argument("--registry.file")
            .argument(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/fleet-registry.yaml"))
            .start()
            .await;
        let prometheus = Prometheus::start_with_rules(&[exporter.address()], &[rules], &[]).await;
        let began = prometheus.now().await;
        let fleet = Fleet::start(&postgres, Some(&pooler));
        Stage { prometheus, exporter, _fleet: fleet, _pooler: pooler, _postgres: postgres, began }
    }

    async fn viewer<'a>(&'a self, dashboard: &'a Dashboard) -> Viewer<'a> {
        let time = (self.began, self.prometheus.now().await);
        Viewer { prometheus: &self.prometheus, dashboard, time }
    }
}

/// What is chosen of each variable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Chosen {
    One,
    Several,
    All,
    Nothing,
}

/// Grafana's part: asks for the variables' values, fills the queries in, and asks them.
struct Viewer<'a> {
    prometheus: &'a Prometheus,
    dashboard: &'a Dashboard,
    time: (f64, f64),
}

impl Viewer<'_> {
    /// Chooses of each variable in turn, among the values that the choices before it leave.
    async fn choose(&self, chosen: Chosen) -> Situation {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of seconds")]
        let range = Duration::from_secs((self.time.1 - self.time.0).ceil().max(1.0) as u64);
        let mut situation = Situation {
            choices: BTreeMap::new(),
            scrape_interval: SCRAPE_INTERVAL,
            range,
            points: 1000,
        };
        for variable in &self.dashboard.model.templating.list {
            let choice = match (&*variable.kind, chosen) {
                ("query", Chosen::All) if variable.include_all => {
                    let values = self.values(variable, &situation).await;
                    assert!(!values.is_empty(), "there is no {} to choose", variable.name);
                    Choice::All
                }
                ("query", Chosen::Nothing) => {
                    // None is asked for, and the question is answered all the same.
                    self.values(variable, &situation).await;
                    Choice::Nothing
                }
                ("query", Chosen::Several) if variable.multi => {
                    let values = self.values(variable, &situation).await;
                    Choice::Several(values.into_iter().take(3).collect())
                }
                ("query", _) => {
                    let values = self.values(variable, &situation).await;
                    let preferred = |value: &&String| PREFERRED.contains(&(&variable.name, value));
                    let value = values.iter().find(preferred).or(values.first());
                    let value = value.unwrap_or_else(|| panic!("there is no {}", variable.name));
                    Choice::One(value.clone())
                }
                ("datasource", _) => Choice::One("prometheus".to_owned()),
                (kind, _) => panic!("{}: what is chosen of a {kind}?", variable.name),
            };
            situation.choices.insert(variable.name.clone(), choice);
        }
        situation
    }

    /// What people can choose from.
    async fn values(&self, variable: &Variable, situation: &Situation) -> Vec<String> {
        let query = self.dashboard.fill_in(variable.query(), situation, None);
        let arguments = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let (selector, label) = arguments.and_then(|it| it.rsplit_once(',')).expect("label_values");
        let values = self.prometheus.label_values(selector.trim(), label.trim(), self.time).await;
        values.unwrap_or_else(|fault| panic!("{}: {query}: {fault}", variable.name))
    }

    /// The query as it is sent, and its answer's data.
    async fn ask(&self, question: &Question<'_>, situation: &Situation) -> (String, Value) {
        let text = self.dashboard.fill_in(question.text, situation, question.min_step);
        let answer = if matches!(question.asker, Asker::Panel(_, target) if target.instant) {
            self.prometheus.query_at(&text, self.time.1).await
        } else {
            let step = situation.step(question.min_step);
            // Points lie at multiples of the step, so that they stay where they are.
            #[expect(clippy::cast_precision_loss, reason = "of seconds")]
            let aligned = |time: f64| (time / step as f64).floor() * step as f64;
            let time = (aligned(self.time.0), aligned(self.time.1));
            self.prometheus.query_range(&text, time, step).await
        };
        let place = &question.place;
        let file = &self.dashboard.file;
        let data = answer.unwrap_or_else(|fault| panic!("{file}, {place}: {text}: {fault}"));
        (text, data)
    }
}

/// The values in an answer's data.
fn values(data: &Value) -> Vec<f64> {
    let series = data["result"].as_array().expect("a result is a list of series");
    let pairs = series.iter().flat_map(|series| {
        let many = series["values"].as_array().into_iter().flatten();
        many.chain(series.get("value"))
    });
    pairs
        .map(|pair| pair[1].as_str().expect("a value is text").parse().expect("it is a number"))
        .collect()
}

/// What a query has shown so far, the most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nothing,
    Zero,
    Something,
}

fn shown(data: &Value) -> Shown {
    match values(data) {
        values if values.is_empty() => Shown::Nothing,
        values if values.iter().all(|&value| value == 0.0) => Shown::Zero,
        _ => Shown::Something,
    }
}

fn quiet(dashboard: &Dashboard, place: &str) -> Option<&'static Quiet> {
    let is_meant = |(file, other, _, _): &&(&str, &str, Quiet, &str)| {
        *file == dashboard.file && *other == place
    };
    QUIET.iter().find(is_meant).map(|(_, _, quiet, _)| quiet)
}

#[tokio::test]
async fn every_query_of_every_dashboard_shows_what_the_fleet_does() {
    require!(Postgres, PgBouncer, Prometheus);
    let seconds = env::var("LOCKS_PREVIEW_SECONDS").ok();
    let seconds = seconds.map(|text| text.parse().expect("a number of seconds"));
    // Where nobody waits for minutes, alerts do not either.
    let rules = seconds.map_or_else(|| hurried_rules("5s"), |_| RULES.to_owned());
    let stage = Stage::set(&rules).await;
    if let Some(seconds) = seconds {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    let dashboards = dashboards();
    everything_is_shown(&stage, &dashboards).await;
    for dashboard in &dashboards {
        let viewer = stage.viewer(dashboard).await;
        names_are_served(&viewer).await;
        for chosen in [Chosen::One, Chosen::Several, Chosen::All, Chosen::Nothing] {
            let situation = viewer.choose(chosen).await;
            for question in dashboard.questions() {
                let (text, data) = viewer.ask(&question, &situation).await;
                is_sane(dashboard, &question, &text, &data);
                is_named(dashboard, &question, &data);
            }
        }
    }
    for dashboard in &dashboards {
        leave_answers(&stage.viewer(dashboard).await).await;
    }
}

/// With all chosen that can be, until each query has shown something at some time.
async fn everything_is_shown(stage: &Stage, dashboards: &[Dashboard]) {
    let mut seen: BTreeMap<(usize, String), Shown> = BTreeMap::new();
    eventually_within(PATIENCE, "every query shows something", async || {
        let mut missing = Vec::new();
        for (number, dashboard) in dashboards.iter().enumerate() {
            let viewer = stage.viewer(dashboard).await;
            let situation = viewer.choose(Chosen::All).await;
            for question in dashboard.questions() {
                let key = (number, question.place.clone());
                let so_far = seen.get(&key).copied().unwrap_or(Shown::Nothing);
                let needed = match quiet(dashboard, &question.place) {
                    Some(Empty | Whatever) => Shown::Nothing,
                    Some(Zero) => Shown::Zero,
                    None => Shown::Something,
                };
                if so_far == Shown::Something {
                    continue;
                }
                let so_far = so_far.max(shown(&viewer.ask(&question, &situation).await.1));
                if so_far < needed {
                    missing.push(format!("{}, {}: {so_far:?}", dashboard.file, question.place));
                }
                seen.insert(key, so_far);
            }
        }
        assert!(missing.is_empty(), "{missing:#?}");
    })
    .await;
    for (number, dashboard) in dashboards.iter().enumerate() {
        for question in dashboard.questions() {
            let place = &question.place;
            let seen = seen.get(&(number, place.clone()));
            let allowed = match quiet(dashboard, place) {
                Some(Empty) => Shown::Nothing,
                Some(Zero) => Shown::Zero,
                Some(Whatever) | None => Shown::Something,
            };
            assert!(seen <= Some(&allowed), "{}, {place} is not quiet: {seen:?}", dashboard.file);
        }
    }
    for (file, place, _, reason) in QUIET {
        let dashboard = dashboards.iter().find(|dashboard| dashboard.file == *file);
        let is_there = dashboard.is_some_and(|dashboard| {
            dashboard.questions().iter().any(|question| question.place == *place)
        });
        assert!(is_there, "{file} has no {place}, of which is said: {reason}");
    }
}

/// Names and labels are those of series that were there.
async fn names_are_served(viewer: &Viewer<'_>) {
    let situation = viewer.choose(Chosen::All).await;
    let mut asked = BTreeSet::new();
    for question in viewer.dashboard.questions() {
        let text = viewer.dashboard.fill_in(question.text, &situation, question.min_step);
        let query = query::parse(&text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        for selector in query.selectors {
            let labels = selector.matchers.into_iter().map(|matcher| matcher.label);
            asked.extend(labels.map(|label| (selector.metric.clone(), label)));
        }
    }
    let mut served: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (metric, label) in &asked {
        if !served.contains_key(&**metric) {
            served.insert(metric, viewer.prometheus.labels(metric, viewer.time).await);
        }
        let labels = &served[&**metric];
        let is_missing = NOT_SERVED.iter().any(|(name, _)| name == metric);
        assert!(labels.is_empty() == is_missing, "{metric} is served: {}", !labels.is_empty());
        assert!(is_missing || labels.contains(label), "{metric} has {labels:?}, not {label}");
    }
}

/// No number that cannot be.
fn is_sane(dashboard: &Dashboard, question: &Question<'_>, text: &str, data: &Value) {
    let unit = match question.asker {
        Asker::Panel(panel, _) => panel.field_config.defaults.unit.as_deref(),
        Asker::Annotation => None,
    };
    let most = match unit {
        Some("s" | "dtdurations") => HOURS,
        Some("percentunit") => 100.0,
        _ => f64::MAX,
    };
    for value in values(data) {
        let is_sane = value.is_finite() && value <= most && (value >= 0.0 || may_be_negative(text));
        let place = &question.place;
        assert!(is_sane, "{}, {place}: {value} is not {unit:?}: {text}", dashboard.file);
    }
}

/// Every series has the labels that its name is made of.
fn is_named(dashboard: &Dashboard, question: &Question<'_>, data: &Value) {
    let Asker::Panel(_, Target { legend_format: Some(legend), .. }) = question.asker else {
        return;
    };
    for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
        for series in data["result"].as_array().into_iter().flatten() {
            let is_there = series["metric"].get(label.trim()).is_some();
            let place = &question.place;
            assert!(is_there, "{}, {place}: {series} has no label {label}", dashboard.file);
        }
    }
}

/// The clock of a server may be behind ours.
fn may_be_negative(text: &str) -> bool {
    text.contains("pg_advisory_clock_offset_seconds")
}

/// Where the answers and the pictures are left.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboards")
}

/// Writes what the panels would show, as `tests/browser/preview.mjs` reads it.
async fn leave_answers(viewer: &Viewer<'_>) {
    let dashboard = viewer.dashboard;
    let situation = viewer.choose(Chosen::All).await;
    let mut panels: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
    let mut annotations = Vec::new();
    for question in dashboard.questions() {
        let (text, data) = viewer.ask(&question, &situation).await;
        match question.asker {
            Asker::Panel(Panel { id, .. }, target) => {
                panels.entry(*id).or_default().push(answer(target, text, data));
            }
            Asker::Annotation => {
                let name = question.place.trim_start_matches("annotation ");
                annotations.push(json!({ "name": name, "data": data }));
            }
        }
    }
    let variables: BTreeMap<&String, String> = situation
        .choices
        .iter()
        .map(|(name, choice)| {
            let text = match choice {
                Choice::One(value) => value.clone(),
                Choice::Several(values) => values.join(" + "),
                Choice::All => "All".to_owned(),
                Choice::Nothing => String::new(),
            };
            (name, text)
        })
        .collect();
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
    fs::create_dir_all(folder()).expect("the target folder is ours");
    fs::write(folder().join(&dashboard.file), answers.to_string())
        .expect("the target folder is ours");
}

fn answer(target: &Target, text: String, data: Value) -> Value {
    json!({
        "refId": target.ref_id,
        "expr": text,
        "legendFormat": target.legend_format,
        "format": target.format.as_deref().unwrap_or("time_series"),
        "instant": target.instant,
        "data": data,
    })
}
