//! Scenarios: what polls see, written down, and what must be concluded from it.
//!
//! Every `*.toml` file beside this one is a case: a title that is a sentence, polls in the notation
//! of [`notation`], and what is expected after each. They run through [`Fold`] and the metrics as a
//! live server's samples do, with a clock of their own. A new case needs a new file and no code; a
//! new kind of expectation is one field of [`Expect`] and one function of [`outcome`].
//!
//! ```toml
//! title = "A lock that is released leaves no series behind"
//!
//! [[poll]]
//! at = 10                                # seconds, on any clock you like
//! locks = """
//! 100  app  42  exclusive  held  4/17
//! """
//! backends = """
//! 100  pod-a  idle  9                    # state, and since when
//! """
//! expect.holds = ["app 42 100 exclusive since=9 scope=session"]
//! expect.samples = ['pg_advisory_lock_holders{key="42"} 1']
//!
//! [[poll]]
//! at = 20
//! locks = ""                             # what a poll leaves out is as in the poll before
//! expect.absent = ['pg_advisory_lock_holders{key="42"}']
//! ```

mod notation;
mod outcome;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pg_locks_exporter::config::{
    Application, Applications, HolderChanges, Limits, Pooler, Poolers, Thresholds,
};
use pg_locks_exporter::fold::Fold;
use pg_locks_exporter::memory::Memory;
use pg_locks_exporter::metrics::exposition::{Format, render_families};
use pg_locks_exporter::metrics::{Process, collect_families};
use pg_locks_exporter::registry::{
    Circumstances, DeclaredScope, Registry, Resolver, Signs, Source,
};
use pg_locks_exporter::sample::{DatabaseName, FailureReason, Names, Sample};
use pg_locks_exporter::tracker::{Change, KeyId, Tracker};
use pg_locks_exporter::view::{Picture, Polls, View};
use serde::Deserialize;

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// A sentence: what must be so.
    title: String,
    /// A registry file.
    #[serde(default)]
    registry: String,
    /// Rules that rewrite application names, the first that matches decides.
    #[serde(default)]
    applications: Vec<Rule>,
    /// Client addresses of poolers.
    #[serde(default)]
    poolers: Vec<String>,
    #[serde(default)]
    limits: Bounds,
    #[serde(default)]
    thresholds: Beyond,
    /// The poll interval that is asked for, in seconds.
    #[serde(default = "ten_seconds")]
    interval: f64,
    /// The server's clock minus ours, in seconds. All times of a file are the server's.
    #[serde(default)]
    clock_offset: f64,
    poll: Vec<Poll>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    r#match: String,
    name: String,
    #[serde(default)]
    renames_itself: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Bounds {
    keys: usize,
    applications: usize,
    databases: usize,
    registered_keys: usize,
}

/// Beyond these something is a finding. Times are seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Beyond {
    idle_in_transaction: f64,
    prepared: f64,
    snapshot_age: u32,
    keys_per_session: usize,
    /// More changes than the first in as many seconds as the second says.
    holder_changes: (u32, f64),
}

/// One poll, or a run of equal ones; the expectations are those after the last.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll {
    at: f64,
    /// Polls again at every `every` seconds up to this moment.
    until: Option<f64>,
    every: Option<f64>,
    /// A registry file that replaces the one before, just before this poll.
    reload: Option<String>,
    /// Just before this poll the exporter was started again, with the memory that it left.
    #[serde(default)]
    restart: bool,
    /// The poll failed: nothing was seen.
    #[serde(default)]
    fails: bool,
    /// The server is a standby.
    #[serde(default)]
    in_recovery: bool,
    locks: Option<String>,
    other_locks: Option<String>,
    /// `"unread"` where the server did not answer that part in time.
    backends: Option<String>,
    /// `"unread"` likewise.
    prepared: Option<String>,
    /// Entries of the lock table, if this poll counted them.
    table_entries: Option<u64>,
    /// Our own connection was proved to come through a pooler at this address.
    pooled_from: Option<IpAddr>,
    /// What databases answered to the questions of the registry before this poll.
    tables: Option<String>,
    /// Hashes that the server computes in its own way, told before this poll.
    hashes: Option<String>,
    #[serde(default)]
    expect: Expect,
}

/// What must be so after a poll. Lists are whole: what is there and not listed is an error too,
/// except for samples.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// `DATABASE KEY HOLDER MODE[+MODE] [FIELD=VALUE]…`; only the fields that are written are
    /// compared. A holder is a pid, `gid:` and the gid, or `nameless:` and the virtual transaction.
    holds: Option<Vec<String>>,
    /// `DATABASE KEY PID MODE [FIELD=VALUE]…`. In `blocked_by`, `7` holds the key, `~8` is ahead in
    /// the queue and `~8?` may be; in `roots`, `7*` waits in a circle.
    waits: Option<Vec<String>>,
    /// `hold began DATABASE KEY`, `hold ended DATABASE KEY lasted SECONDS`, `wait began …`,
    /// `wait ended DATABASE KEY OUTCOME lasted SECONDS`.
    changes: Option<Vec<String>>,
    /// `DATABASE LOCK KEY`, the labels of everything held or awaited.
    series: Option<Vec<String>>,
    /// `DATABASE KEY NAME`, what people are shown of everything held or awaited that has a name.
    names: Option<Vec<String>>,
    /// `DATABASE KEY LOCK [FIELD=VALUE]…`, names that may be meant; fields: `written`, `with` (its
    /// values), `from` (a file and line, or `preset:` and its name) and `doubt`.
    candidates: Option<Vec<String>>,
    /// `DATABASE KEY FINDING [FIELD=VALUE]…`; fields: `severity`, `who` (pids and gids, the worst
    /// first), `text` and `remedy` as those read them who may see details.
    findings: Option<Vec<String>>,
    /// `DATABASE KEY KEY finding|may [FIELD=VALUE]…`, pairs of keys taken in both orders, the lower
    /// key first; fields: `first` and `second` (`certain` or `hint`, of who held the first, the
    /// second key), `who` (both pids) and `times` (both).
    orders: Option<Vec<String>>,
    /// `FINDING [FIELD=VALUE]…`, what could not be judged; fields: `part` and `reason`.
    not_judged: Option<Vec<String>>,
    /// `name{label="value",…} value`, with those labels that matter; must match one sample.
    #[serde(default)]
    samples: Vec<String>,
    /// The same without a value; must match none.
    #[serde(default)]
    absent: Vec<String>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { keys: 100, applications: 100, databases: 500, registered_keys: 10_000 }
    }
}

impl Default for Beyond {
    fn default() -> Self {
        Self {
            idle_in_transaction: 60.0,
            prepared: 60.0,
            snapshot_age: 1_000_000,
            keys_per_session: 1000,
            holder_changes: (5, 600.0),
        }
    }
}

impl Beyond {
    fn thresholds(&self) -> Thresholds {
        let (count, within) = self.holder_changes;
        Thresholds {
            idle_in_transaction: Duration::from_secs_f64(self.idle_in_transaction),
            prepared: Duration::from_secs_f64(self.prepared),
            snapshot_age: self.snapshot_age,
            keys_per_session: self.keys_per_session,
            holder_changes: HolderChanges { count, within: Duration::from_secs_f64(within) },
        }
    }
}

impl Expect {
    fn is_empty(&self) -> bool {
        self.holds.is_none()
            && self.waits.is_none()
            && self.changes.is_none()
            && self.series.is_none()
            && self.names.is_none()
            && self.candidates.is_none()
            && self.findings.is_none()
            && self.orders.is_none()
            && self.not_judged.is_none()
            && self.samples.is_empty()
            && self.absent.is_empty()
    }
}

fn ten_seconds() -> f64 {
    10.0
}

const SERVER: &str = "orders-1";

/// The program's memory of one server, and a tracker of its own to see what changed.
struct World {
    registry: Arc<Registry>,
    names: Names,
    told: Circumstances,
    fold: Fold,
    tracker: Tracker,
    view: View,
}

/// What is known after a poll.
struct Known {
    picture: Option<Arc<Picture>>,
    changes: Vec<Change>,
    exposition: String,
}

impl World {
    fn new(scenario: &Scenario, registry: Arc<Registry>) -> Result<Self, String> {
        let rules = scenario
            .applications
            .iter()
            .map(|rule| {
                let application = Application::new(&rule.r#match, &rule.name);
                let application = application.map_err(|error| error.to_string())?;
                Ok(application.renaming_itself(rule.renames_itself))
            })
            .collect::<Result<_, String>>()?;
        let poolers = scenario
            .poolers
            .iter()
            .map(|text| text.parse::<Pooler>().map_err(|error| format!("{text}: {error}")))
            .collect::<Result<_, _>>()?;
        let Bounds { keys, applications, databases, registered_keys } = scenario.limits;
        let limits = Limits { keys, applications, databases, registered_keys, values: 1_000_000 };
        let rules = Arc::new(Applications::new(rules));
        let mut fold = Fold::new(
            SERVER.into(),
            registry.clone(),
            rules,
            &limits,
            scenario.thresholds.thresholds(),
        )
        .with_poolers(Poolers::new(poolers));
        let databases = notation::DATABASES.map(|(name, oid, encoding)| {
            (oid, DatabaseName { name: name.into(), encoding: encoding.into() })
        });
        let names = Names { databases: databases.into(), ..Names::default() };
        let told = Circumstances {
            databases: names
                .databases
                .values()
                .map(|it| (it.name.clone(), it.encoding.clone()))
                .collect(),
            ..Circumstances::default()
        };
        fold.observe_names(names.clone());
        let interval = Duration::from_secs_f64(scenario.interval);
        let polls =
            Polls { interval, interval_configured: interval, duration: None, ..Polls::default() };
        Ok(Self {
            registry,
            names,
            told,
            fold,
            tracker: Tracker::default(),
            view: View { server: SERVER.into(), polls, ..View::default() },
        })
    }

    /// All but the memory is lost, which goes through a file.
    fn restart(&mut self, scenario: &Scenario) -> Result<(), String> {
        let file = serde_json::to_string(&self.fold.memory()).map_err(|error| error.to_string())?;
        let memory: Memory = serde_json::from_str(&file).map_err(|error| error.to_string())?;
        *self = Self::new(scenario, self.registry.clone())?;
        self.fold.restore(memory);
        Ok(())
    }

    fn reload(&mut self, registry: &str) -> Result<(), String> {
        self.registry = parse_registry(registry)?;
        self.told.server_hashes.clear();
        self.fold.observe_registry(self.registry.clone());
        Ok(())
    }

    fn hear(&mut self, poll: &Poll) -> Result<(), String> {
        if let Some(text) = &poll.tables {
            self.told.answers = Arc::new(notation::parse_tables(text)?);
            self.fold.observe_answers(self.told.answers.clone());
        }
        if let Some(text) = &poll.hashes {
            self.told.server_hashes = notation::parse_hashes(text)?;
            self.fold.observe_server_hashes(self.told.server_hashes.clone());
        }
        Ok(())
    }

    fn observe(&mut self, sample: Option<&Sample>, at_local: f64) -> Result<Known, String> {
        let polls = &mut self.view.polls;
        polls.total += 1;
        let mut changes = Vec::new();
        if let Some(sample) = sample {
            let picture = self.fold.observe(sample, 2 * polls.interval);
            let resolver = Resolver::new(self.registry.clone(), SERVER.into(), &self.told);
            let names = &self.names;
            changes = self.tracker.observe(sample, |key| declared_scope(&resolver, names, key));
            polls.last_success = Some(sample.at_local);
            outcome::check_rows(sample, &picture)?;
            self.view.picture = Some(picture);
        } else {
            *polls.failures.entry(FailureReason::Timeout).or_default() += 1;
            self.view.picture = None;
        }
        self.fold.fill(&mut self.view);
        let now = notation::moment(at_local);
        let process = Process {
            registry: &self.registry,
            registry_read_at: now,
            registry_is_current: true,
            config: None,
        };
        let families = collect_families(process, [&self.view], now);
        let exposition = render_families(&families, Format::Text);
        if exposition.dropped > 0 {
            return Err(format!("{} samples have the labels of another", exposition.dropped));
        }
        Ok(Known { picture: self.view.picture.clone(), changes, exposition: exposition.text })
    }
}

fn parse_registry(text: &str) -> Result<Arc<Registry>, String> {
    if text.is_empty() {
        return Ok(Arc::new(Registry::empty()));
    }
    let source = Source { name: "scenario.yaml".into(), text: text.into() };
    let registry = Registry::parse(&[source]).map_err(|error| format!("registry: {error}"))?;
    Ok(Arc::new(registry))
}

fn declared_scope(resolver: &Resolver, names: &Names, key: KeyId) -> Option<DeclaredScope> {
    let database = names.databases.get(&key.database).map(|database| &*database.name);
    resolver.resolve(database, key.key, Signs::default()).scope
}

/// Runs one file. The error says at which poll, what was expected and what there was.
fn run(text: &str) -> Result<(), String> {
    let scenario: Scenario = toml::from_str(text).map_err(|error| error.to_string())?;
    let inside = |error: String| format!("{}\n{error}", scenario.title);
    if !scenario.title.contains(' ') {
        return Err(inside("a title is a sentence".into()));
    }
    if scenario.poll.iter().all(|poll| poll.expect.is_empty()) {
        return Err(inside("nothing is expected".into()));
    }
    let registry = parse_registry(&scenario.registry).map_err(inside)?;
    let mut world = World::new(&scenario, registry).map_err(inside)?;
    let mut seen = notation::Seen::default();
    for poll in &scenario.poll {
        let here = |error: String| inside(format!("at {}: {error}", poll.at));
        seen.update(poll).map_err(here)?;
        if poll.restart {
            world.restart(&scenario).map_err(here)?;
        }
        if let Some(registry) = &poll.reload {
            world.reload(registry).map_err(here)?;
        }
        world.hear(poll).map_err(here)?;
        world.fold.observe_pooled_connection(poll.pooled_from.is_some());
        let mut known = None;
        for at in moments(poll) {
            let at_local = at - scenario.clock_offset;
            let sample = (!poll.fails).then(|| seen.sample(poll, at, at_local));
            known = Some(world.observe(sample.as_ref(), at_local).map_err(here)?);
        }
        let known = known.ok_or_else(|| here("until lies before at".into()))?;
        outcome::check(&poll.expect, &known).map_err(here)?;
    }
    Ok(())
}

fn moments(poll: &Poll) -> impl Iterator<Item = f64> {
    let (every, until) = (poll.every.unwrap_or(1.0), poll.until.unwrap_or(poll.at));
    let at = poll.at;
    (0_u32..).map(move |step| at + f64::from(step) * every).take_while(move |at| *at <= until)
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder of this file");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_comes_out_as_written() {
    let files = files();
    assert!(!files.is_empty());
    let failures: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let error = run(&std::fs::read_to_string(path).unwrap()).err()?;
            Some(format!("{}\n{error}", path.display()))
        })
        .collect();
    let (failed, all) = (failures.len(), files.len());
    assert!(failures.is_empty(), "{failed} of {all} scenarios\n\n{}", failures.join("\n\n"));
}

/// A scenario with one hold, and a poll's expectation put in.
fn expecting(expectation: &str) -> Result<(), String> {
    run(&format!(
        "title = \"a lock is held\"\n[[poll]]\nat = 10\n\
         locks = \"100 app 42 exclusive held 4/1\"\nbackends = \"100 pod-a active 9\"\n{expectation}"
    ))
}

#[test]
fn what_is_expected_and_does_not_come_is_an_error() {
    assert_eq!(expecting("expect.holds = ['app 42 100 exclusive since=10 app=pod-a']"), Ok(()));
    for expectation in [
        "expect.holds = []",
        "expect.holds = ['app 43 100 exclusive']",
        "expect.holds = ['app 42 100 exclusive since=9']",
        "expect.holds = ['app 42 100 exclusive colour=red']",
        "expect.holds = ['app 42 100 exclusive', 'app 42 100 exclusive']",
        "expect.waits = ['app 42 100 exclusive']",
        "expect.changes = ['hold began app 42']",
        "expect.series = ['app unregistered 43']",
        "expect.names = ['app 42 jobs']",
        "expect.candidates = []",
        "expect.findings = ['app 42 held_too_long']",
        "expect.orders = ['app 42 43 may']",
        "expect.samples = ['pg_advisory_lock_holders{key=\"42\"} 2']",
        "expect.samples = ['pg_advisory_no_such_metric 1']",
        "expect.samples = ['pg_advisory_keys 1']",
        "expect.absent = ['pg_advisory_lock_holders{key=\"42\"}']",
        "expect.absent = ['pg_advisory_no_such_metric']",
    ] {
        assert!(expecting(expectation).is_err(), "{expectation}");
    }
}

#[test]
fn what_a_scenario_file_does_not_know_is_an_error() {
    for text in [
        "expect.holdz = []",
        "extra = 1",
        "other_locks = '100 nowhere'",
        "backends = '100 pod-a dozing 9'",
        "reload = 'locks: [{ name: jobs }'",
        "prepared = 'unread'\nuntil = 9\nexpect.holds = []",
        "tables = 'nowhere public.jobs'\nexpect.waits = []",
        "hashes = 'md5 jobs 0 7'\nexpect.waits = []",
        "",
    ] {
        assert!(expecting(text).is_err(), "{text}");
    }
}
