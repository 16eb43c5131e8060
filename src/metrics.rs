//! Every metric: its name, type and HELP once, and how a [`View`] becomes samples.
//!
//! Families are built anew for each scrape from the published picture, never by mutating a set of
//! gauges: a lock that was released is simply not there. The only file that knows the `prometheus`
//! crate, with [`exposition`], which writes families as text. HELP says what polling misses.

pub mod exposition;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
pub use prometheus::proto::MetricFamily;
use prometheus::proto::{self, MetricType};

use crate::blocking::Chains;
use crate::finding::FindingKind;
use crate::inspected::{LastSuccess, Source};
use crate::registry::{Candidate, Limit, Registry, UNREGISTERED};
use crate::reload::config::Reading;
use crate::sample::FailureReason;
use crate::series::{self, DURATION_BUCKETS, LockSeries, OTHER, Registered};
use crate::timestamp::Timestamp;
use crate::tracker::SessionId;
use crate::view::{Lock, Picture, Root, View};

/// A family: what it is called, what it is, and what it does not see.
struct Family {
    name: &'static str,
    kind: MetricType,
    help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: MetricType::GAUGE, help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: MetricType::COUNTER, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: MetricType::HISTOGRAM, help }
}

const LOCK_HOLDERS: Family = gauge(
    "pg_advisory_lock_holders",
    "Sessions and prepared transactions that held the key at the last poll (pg_locks, granted). \
     What is held between two polls only is not seen.",
);
const LOCK_WAITERS: Family = gauge(
    "pg_advisory_lock_waiters",
    "Sessions that waited for the key at the last poll (pg_locks, not granted). Tries never wait, \
     and waits between two polls are not seen.",
);
const HELD_SINCE: Family = gauge(
    "pg_advisory_lock_held_since_timestamp_seconds",
    "Since when the oldest present hold was seen at every poll, or is proved to have been held. It \
     may have begun earlier. A session lock released and taken again between two polls looks the \
     same.",
);
const WAITING_SINCE: Family = gauge(
    "pg_advisory_lock_waiting_since_timestamp_seconds",
    "When the longest present wait began (pg_locks.waitstart). PostgreSQL 13 does not tell: there, \
     since when it was seen. Absent while nobody waits.",
);
const CONTENDED_SINCE: Family = gauge(
    "pg_advisory_lock_contended_since_timestamp_seconds",
    "Since when a present hold was seen to keep others waiting, the oldest; it ends with the hold, \
     and when nobody was seen waiting for more than 30 seconds and 10 polls. Waits between two polls \
     are not seen.",
);
const FINDINGS: Family = gauge(
    "pg_advisory_lock_findings",
    "What is to be said of the key as of the last poll, by the rules of this exporter: sessions or \
     prepared transactions concerned, or 1 where it is about the key. Where a rule finds nothing it is 0 if an entry of the registry \
     asks for it, else absent. A finding about a key has one severity at a time. What is hidden from us \
     satisfies no rule.",
);
const BLOCKED_SESSIONS: Family = gauge(
    "pg_advisory_lock_blocked_sessions",
    "Sessions that waited at the last poll for somebody who held the key, directly or through \
     others and for locks of any type: tables, rows and transactions too.",
);
const ROOTS: Family = gauge(
    "pg_advisory_lock_roots",
    "Waiters for the key whose chain of waits ended at the last poll with such a session or \
     prepared transaction: one that waits for no lock itself, or waits in a circle. holds_key is \
     false where it does not hold the key.",
);
const LAST_HELD: Family = gauge(
    "pg_advisory_lock_last_held_timestamp_seconds",
    "When a registered key was last seen held by this process, or with --state.file by one before it. \
     Holds between two polls only are not seen.",
);
const SNAPSHOT_AGE: Family = gauge(
    "pg_advisory_lock_waiter_snapshot_age",
    "Age of the oldest snapshot of a present waiter, in transactions (backend_xmin): vacuum \
     cannot remove what was deleted since.",
);
const HOLD_LIMIT: Family = gauge(
    "pg_advisory_lock_hold_limit_seconds",
    "How long the key may be held, from the registry or its defaults; +Inf for no limit.",
);
const WAIT_LIMIT: Family = gauge(
    "pg_advisory_lock_wait_limit_seconds",
    "How long a session may wait for the key, from the registry or its defaults; +Inf for no limit.",
);
const LAST_HELD_LIMIT: Family = gauge(
    "pg_advisory_lock_last_held_limit_seconds",
    "Within what time the key should be seen held again, from the registry.",
);
const ACQUISITIONS: Family = counter(
    "pg_advisory_lock_acquisitions_observed_total",
    "Holds that were seen to begin. Holds shorter than the poll interval are mostly missed, and a \
     session lock released and taken again between two polls is one hold.",
);
const WAITS: Family = counter(
    "pg_advisory_lock_waits_observed_total",
    "Waits that a poll saw. Waits shorter than the poll interval are mostly missed.",
);
const WAITS_ABANDONED: Family = counter(
    "pg_advisory_lock_waits_abandoned_total",
    "Waits seen that ended without the lock for certain: somebody else held the key throughout.",
);
const HOLDER_CHANGES: Family = counter(
    "pg_advisory_lock_holder_changes_total",
    "Times another session was seen to hold the key exclusively than the one before.",
);
const HOLD_SECONDS: Family = counter(
    "pg_advisory_lock_hold_seconds_total",
    "Session-seconds held, integrated over polls. Divided by the increase of \
     pg_advisory_observed_seconds_total it is the mean number of holders, right on average also \
     for holds shorter than a poll.",
);
const WAIT_SECONDS: Family = counter(
    "pg_advisory_lock_wait_seconds_total",
    "Session-seconds waited, integrated over polls. Divided by the increase of \
     pg_advisory_observed_seconds_total it is the mean number of waiters.",
);
const HOLD_DURATION: Family = histogram(
    "pg_advisory_lock_hold_duration_seconds",
    "How long finished holds lasted, for those seen to begin and seen in two polls or more; the \
     middle between the least and the most it can have been. Its resolution is the poll interval.",
);
const WAIT_DURATION: Family = histogram(
    "pg_advisory_lock_wait_duration_seconds",
    "How long finished waits lasted that a poll saw; the middle of the bounds, so that nothing \
     below a poll interval can be told apart. Outcome: granted, gone (without the lock, for \
     certain) or unknown.",
);
const LOCK_INFO: Family = gauge(
    "pg_advisory_lock_info",
    "Always 1. What the registry says of a name; also for keys without one.",
);
const SESSIONS: Family = gauge(
    "pg_advisory_sessions",
    "Distinct sessions that hold (side holder) or await (side waiter) advisory locks, whatever \
     their number of keys.",
);
const KEYS: Family = gauge(
    "pg_advisory_keys",
    "Distinct advisory keys held or awaited at the last poll, before any bound on series.",
);
const UNREGISTERED_KEYS: Family = gauge(
    "pg_advisory_unregistered_keys",
    "Distinct advisory keys held or awaited at the last poll that no registry entry names.",
);
const SESSION_KEYS_MAX: Family = gauge(
    "pg_advisory_session_keys_max",
    "Most advisory keys held by one session at the last poll.",
);
const LOCK_ROWS: Family = gauge(
    "pg_advisory_lock_rows",
    "Advisory rows read from the lock table at the last poll, before any grouping: what SELECT \
     count(*) FROM pg_locks WHERE locktype = 'advisory' says.",
);
const FOLDED_KEYS: Family = gauge(
    "pg_advisory_folded_keys",
    "Keys at the last poll that have no series of their own and count under other.",
);
const FOLDED_APPLICATIONS: Family = gauge(
    "pg_advisory_folded_applications",
    "Application names at the last poll that count under other.",
);
const TABLE_ENTRIES: Family = gauge(
    "pg_advisory_lock_table_entries",
    "Distinct entries of the server's shared lock table, locks of all types, counted at every \
     15th poll. Fast-path and predicate locks are not in it.",
);
const TABLE_CAPACITY: Family = gauge(
    "pg_advisory_lock_table_capacity",
    "Entries the shared lock table promises to hold: max_locks_per_transaction x (max_connections \
     + max_prepared_transactions). Beyond it the server uses what memory is left.",
);
const UP: Family =
    gauge("pg_advisory_up", "1 when the last poll succeeded, else 0. Always present.");
const SERVER_INFO: Family = gauge(
    "pg_advisory_server_info",
    "Always 1. Version of the server, and whether it is a primary or a standby.",
);
const PRIVILEGES: Family = gauge(
    "pg_advisory_privileges_sufficient",
    "0 when the state of other sessions is hidden from us: grant pg_read_all_stats.",
);
const POOLED_CONNECTION: Family = gauge(
    "pg_advisory_pooled_connection",
    "1 when our own connection is proved to go through a pooler, 0 when there is no sign of it. \
     Absent while it is too early to say.",
);
const CLOCK_OFFSET: Family = gauge(
    "pg_advisory_clock_offset_seconds",
    "The server's clock minus ours at the last poll. Ages are taken on the server's clock.",
);
const SERVER_WAITS: Family = counter(
    "pg_advisory_server_waits_total",
    "Waits for advisory locks that the server itself counted (pg_stat_lock, from PostgreSQL 19 on): \
     only those that got the lock after more than deadlock_timeout. Starts anew when the server's \
     statistics are reset.",
);
const SERVER_WAIT_SECONDS: Family = counter(
    "pg_advisory_server_wait_seconds_total",
    "Seconds of the waits in pg_advisory_server_waits_total.",
);
const POLLS: Family = counter("pg_advisory_polls_total", "Polls tried, connecting included.");
const POLL_FAILURES: Family =
    counter("pg_advisory_poll_failures_total", "Polls that failed, by reason.");
const OBSERVED_SECONDS: Family = counter(
    "pg_advisory_observed_seconds_total",
    "Time between successful polls, each capped at two intervals: the time the integrals cover.",
);
const POLL_INTERVAL: Family = gauge(
    "pg_advisory_poll_interval_seconds",
    "Time between polls; longer than configured when polls take long.",
);
const POLL_INTERVAL_CONFIGURED: Family =
    gauge("pg_advisory_poll_interval_configured_seconds", "Time between polls, as configured.");
const POLL_DURATION: Family =
    gauge("pg_advisory_poll_duration_seconds", "How long the last successful poll took.");
const LAST_POLL: Family = gauge(
    "pg_advisory_last_poll_timestamp_seconds",
    "When the last successful poll was. Every gauge about locks is true at this moment.",
);
const EVENTS_DROPPED: Family = counter(
    "pg_advisory_events_dropped_total",
    "Events that were seen and that /api/v1/events no longer has: forgotten to make room for newer \
     ones. Lines that the log left out are not counted here.",
);
const HASH_MISMATCHES: Family = gauge(
    "pg_advisory_hash_mismatches",
    "Hashed keys of the registry for which the server computes another value: those entries name \
     the wrong key there.",
);
const REGISTRY_ENTRIES: Family =
    gauge("pg_advisory_registry_entries", "Entries of the registry in use.");
const REGISTRY_CONFLICTS: Family = gauge(
    "pg_advisory_registry_conflicts",
    "Keys of the registry to which two names of equal rank lay claim.",
);
const REGISTRY_RELOAD_OK: Family = gauge(
    "pg_advisory_registry_last_reload_successful",
    "1 when the registry's files were read without a fault the last time, else 0: then they changed \
     and what was read before stays in use.",
);
const REGISTRY_RELOAD_TIME: Family = gauge(
    "pg_advisory_registry_last_reload_timestamp_seconds",
    "When the registry in use was read.",
);
const CONFIG_RELOAD_OK: Family = gauge(
    "pg_advisory_config_last_reload_successful",
    "1 when the configuration file was read without a fault the last time, else 0: then it changed \
     and what was read before stays in use. Absent without such a file.",
);
const CONFIG_RELOAD_TIME: Family = gauge(
    "pg_advisory_config_last_reload_timestamp_seconds",
    "When the configuration in use was read. Absent without such a file.",
);
const SOURCE_LAST_SUCCESS: Family = gauge(
    "pg_advisory_registry_source_last_success_timestamp_seconds",
    "When databases last told what the registry asks them for this lock; where several are asked, \
     the one that told it longest ago. Absent while one of them never did, or none is asked.",
);
const SOURCE_FAILURES: Family = counter(
    "pg_advisory_registry_source_failures_total",
    "Times a database did not tell what the registry asks it for this lock. The last good answer \
     stays in use.",
);
const BUILD_INFO: Family =
    gauge("pg_advisory_exporter_build_info", "Always 1. Version of this exporter.");

/// What is the same for all servers.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// The registry in use.
    pub registry: &'a Registry,
    /// When it was read.
    pub registry_read_at: Timestamp,
    /// The last reading of its files found no fault.
    pub registry_is_current: bool,
    /// How the last reading of the configuration file went, where there is one.
    pub config: Option<Reading>,
}

/// The families of one server alone: those that a scrape of it by name gets. What the registry says of
/// its locks is among them, since the alerts look for it beside their series.
pub fn collect_server_families(view: &View, now: Timestamp) -> Vec<MetricFamily> {
    let mut families = Families::default();
    collect_view(&mut families, view, now);
    let mut locks = Descriptions::default();
    describe_locks(&mut locks, view);
    collect_lock_info(&mut families, locks);
    families.into_families()
}

/// Owner, runbook and description of locks by name.
type Descriptions<'a> = BTreeMap<&'a str, [&'a str; 3]>;

/// Names without series are listed up to this many, so that a registry of very many does not fill
/// every scrape.
const LISTED_LOCKS: usize = 10_000;

/// All families of a scrape. `now` is our clock, to tell a picture that is too old.
pub fn collect_families<'a>(
    process: Process<'a>,
    views: impl IntoIterator<Item = &'a View>,
    now: Timestamp,
) -> Vec<MetricFamily> {
    let mut families = Families::default();
    let mut sources: BTreeMap<&str, Source> = BTreeMap::new();
    let mut conflicts: BTreeSet<(&str, &[Candidate])> = BTreeSet::new();
    let mut locks = Descriptions::default();
    for view in views {
        collect_view(&mut families, view, now);
        describe_locks(&mut locks, view);
        for (lock, source) in &view.inspected.sources {
            let combined = sources.get(&**lock).map_or(*source, |other| other.combine(*source));
            sources.insert(lock, combined);
        }
        // Those that only servers could tell, each once however many servers tell it.
        for (series, registered) in view.registered.iter() {
            if process.registry.is_news(&registered.resolution) {
                conflicts.insert((&series.key, &registered.resolution.candidates));
            }
        }
    }
    collect_sources(&mut families, &sources);
    collect_registry(&mut families, process);
    let conflicts = process.registry.conflicts().len() + conflicts.len();
    families.add(&REGISTRY_CONFLICTS, &[], count(conflicts));
    for lock in process.registry.locks() {
        if locks.len() >= LISTED_LOCKS {
            break;
        }
        let said = [&lock.owner, &lock.runbook, &lock.description];
        let said = said.map(|text| text.as_deref().unwrap_or_default());
        locks.entry(&lock.name).or_insert(said);
    }
    collect_lock_info(&mut families, locks);
    families.add(&BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut all = families.into_families();
    all.extend(ProcessCollector::for_self().collect());
    all
}

/// What has series, presets and the labels of conflicts included.
fn describe_locks<'a>(locks: &mut Descriptions<'a>, view: &'a View) {
    for Registered { resolution, .. } in view.registered.values() {
        let said = [&resolution.owner, &resolution.runbook, &resolution.description];
        let said = said.map(|text| text.as_deref().unwrap_or_default());
        locks.entry(resolution.label()).or_insert(said);
    }
}

fn collect_lock_info(families: &mut Families, mut locks: Descriptions<'_>) {
    locks.insert(UNREGISTERED, [""; 3]);
    for (lock, [owner, runbook, description]) in locks {
        let labels =
            [("lock", lock), ("owner", owner), ("runbook", runbook), ("description", description)];
        families.add(&LOCK_INFO, &labels, 1.0);
    }
}

fn collect_view(families: &mut Families, view: &View, now: Timestamp) {
    let server = ("server", &*view.server);
    let picture = view.fresh_picture(now);
    families.add(&UP, &[server], if picture.is_some() { 1.0 } else { 0.0 });
    collect_polls(families, view);
    collect_counters(families, view);
    if let Some(picture) = picture {
        collect_server(families, view, picture);
        collect_sessions(families, view, picture);
        collect_locks(families, view, picture);
    }
}

fn collect_polls(families: &mut Families, view: &View) {
    let server = ("server", &*view.server);
    let polls = &view.polls;
    families.add(&POLLS, &[server], count(polls.total));
    for reason in FailureReason::ALL {
        let failures = polls.failures.get(&reason).copied().unwrap_or_default();
        families.add(&POLL_FAILURES, &[server, ("reason", reason.as_str())], count(failures));
    }
    families.add(&OBSERVED_SECONDS, &[server], polls.observed.as_secs_f64());
    families.add(&POLL_INTERVAL, &[server], polls.interval.as_secs_f64());
    families.add(&POLL_INTERVAL_CONFIGURED, &[server], polls.interval_configured.as_secs_f64());
    if let Some(duration) = polls.duration {
        families.add(&POLL_DURATION, &[server], duration.as_secs_f64());
    }
    if let Some(moment) = polls.last_success {
        families.add(&LAST_POLL, &[server], moment.unix_seconds());
    }
    families.add(&EVENTS_DROPPED, &[server], count(view.events.forgotten()));
    if let Some(mismatches) = view.hash_mismatches {
        families.add(&HASH_MISMATCHES, &[server], count(mismatches));
    }
}

fn collect_counters(families: &mut Families, view: &View) {
    let server = ("server", &*view.server);
    for (series, counters) in &view.counters.keys {
        let labels = series.labels(server);
        families.add(&ACQUISITIONS, &labels, count(counters.acquisitions));
        families.add(&WAITS, &labels, count(counters.waits));
        families.add(&WAITS_ABANDONED, &labels, count(counters.waits_abandoned));
        if let Some(changes) = counters.holder_changes {
            families.add(&HOLDER_CHANGES, &labels, count(changes));
        }
    }
    for ((series, application), seconds) in &view.counters.seconds {
        let [a, b, c, d] = series.labels(server);
        let labels = [a, b, c, d, ("application_name", &**application)];
        families.add(&HOLD_SECONDS, &labels, seconds.hold);
        families.add(&WAIT_SECONDS, &labels, seconds.wait);
    }
    if let Some(statistics) = view.wait_statistics {
        families.add(&SERVER_WAITS, &[server], count(statistics.waits));
        families.add(&SERVER_WAIT_SECONDS, &[server], statistics.wait_seconds);
    }
    for ((datname, lock), histogram) in &view.counters.hold_durations {
        families.add_histogram(
            &HOLD_DURATION,
            &[server, ("datname", datname), ("lock", lock)],
            histogram,
        );
    }
    for ((datname, lock, outcome), histogram) in &view.counters.wait_durations {
        let labels =
            [server, ("datname", &**datname), ("lock", &**lock), ("outcome", outcome.as_str())];
        families.add_histogram(&WAIT_DURATION, &labels, histogram);
    }
}

fn collect_server(families: &mut Families, view: &View, picture: &Picture) {
    let server = ("server", &*view.server);
    let version = view.facts.version.as_deref().unwrap_or("unknown");
    families.add(&SERVER_INFO, &[server, ("version", version), ("role", picture.role())], 1.0);
    families.add(&LOCK_ROWS, &[server, ("granted", "true")], count(picture.rows_granted));
    families.add(&LOCK_ROWS, &[server, ("granted", "false")], count(picture.rows_waiting));
    families.add(&CLOCK_OFFSET, &[server], picture.clock_offset_seconds());
    if let Some(sufficient) = picture.privileges_sufficient {
        families.add(&PRIVILEGES, &[server], f64::from(u8::from(sufficient)));
    }
    if let Some(pooled) = view.pooled_connection {
        families.add(&POOLED_CONNECTION, &[server], f64::from(u8::from(pooled)));
    }
    if let Some(entries) = view.table_entries {
        families.add(&TABLE_ENTRIES, &[server], count(entries));
    }
    if let Some(capacity) = view.facts.table_capacity {
        families.add(&TABLE_CAPACITY, &[server], count(capacity));
    }
}

fn collect_sessions(families: &mut Families, view: &View, picture: &Picture) {
    let server = ("server", &*view.server);
    let mut sides: HashMap<[&str; 4], HashSet<&SessionId>> = HashMap::new();
    let mut keys_held: HashMap<&SessionId, usize> = HashMap::new();
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    let mut awaited: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unregistered: BTreeMap<&str, usize> = BTreeMap::new();
    let mut folded_keys = 0_usize;
    let mut folded_applications: HashSet<&str> = HashSet::new();
    for datname in view.datnames.iter() {
        for counts in [&mut held, &mut awaited, &mut unregistered] {
            counts.insert(datname, 0);
        }
    }
    for lock in &picture.locks {
        let series = &lock.label.series;
        for holder in &lock.holders {
            let session = &holder.session;
            let labels =
                [&*series.datname, &*session.application_label, holder.state_label(), "holder"];
            sides.entry(labels).or_default().insert(&holder.id);
            *keys_held.entry(&holder.id).or_default() += 1;
            folded_applications.extend(session.folded_application());
        }
        for waiter in &lock.waiters {
            let session = &waiter.session;
            let labels =
                [&*series.datname, &*session.application_label, session.state.as_str(), "waiter"];
            sides.entry(labels).or_default().insert(&waiter.id);
            folded_applications.extend(session.folded_application());
        }
        *held.entry(&series.datname).or_default() += usize::from(!lock.holders.is_empty());
        *awaited.entry(&series.datname).or_default() += usize::from(!lock.waiters.is_empty());
        *unregistered.entry(&series.datname).or_default() +=
            usize::from(&*series.lock == UNREGISTERED);
        folded_keys += usize::from(&*series.key == OTHER);
    }
    for ([datname, application, state, side], sessions) in &sides {
        let labels = [
            server,
            ("datname", *datname),
            ("application_name", *application),
            ("state", *state),
            ("side", *side),
        ];
        families.add(&SESSIONS, &labels, count(sessions.len()));
    }
    for (state, counts) in [("held", &held), ("awaited", &awaited)] {
        for (datname, keys) in counts {
            families.add(&KEYS, &[server, ("datname", *datname), ("state", state)], count(*keys));
        }
    }
    for (datname, keys) in &unregistered {
        families.add(&UNREGISTERED_KEYS, &[server, ("datname", *datname)], count(*keys));
    }
    let most = keys_held.values().copied().max().unwrap_or_default();
    families.add(&SESSION_KEYS_MAX, &[server], count(most));
    families.add(&FOLDED_KEYS, &[server], count(folded_keys));
    families.add(&FOLDED_APPLICATIONS, &[server], count(folded_applications.len()));
}

/// Whom a finding is about: sessions, or the key itself.
#[derive(Default)]
struct Concerned<'a> {
    sessions: HashSet<&'a SessionId>,
    keys: usize,
}

/// What one series says, over all the keys it stands for.
#[derive(Default)]
struct LockGauges<'a> {
    holders: BTreeMap<[&'a str; 3], HashSet<&'a SessionId>>,
    waiters: BTreeMap<[&'a str; 2], HashSet<&'a SessionId>>,
    blocking: HashSet<&'a SessionId>,
    roots: BTreeMap<[&'a str; 4], HashSet<&'a SessionId>>,
    held_since: Option<Timestamp>,
    waiting_since: Option<Timestamp>,
    contended_since: Option<Timestamp>,
    snapshot_age: Option<u32>,
    findings: BTreeMap<[&'a str; 2], Concerned<'a>>,
    max_hold: Option<Limit>,
    max_wait: Option<Limit>,
}

fn collect_locks(families: &mut Families, view: &View, picture: &Picture) {
    let server = ("server", &*view.server);
    let mut all: BTreeMap<&LockSeries, LockGauges<'_>> = BTreeMap::new();
    for (series, registered) in view.registered.iter() {
        let gauges = all.entry(series).or_default();
        gauges.limit(registered.resolution.max_hold, registered.resolution.max_wait);
        for kind in FindingKind::armed_by(&registered.resolution) {
            gauges.findings.entry([kind.as_str(), kind.severity().as_str()]).or_default();
        }
        let labels = series.labels(server);
        if let Some(sight) = registered.last_held {
            families.add(&LAST_HELD, &labels, sight.at_local.unix_seconds());
        }
        if let Some(limit) = registered.resolution.last_held_within {
            families.add(&LAST_HELD_LIMIT, &labels, limit.as_secs_f64());
        }
    }
    for lock in &picture.locks {
        all.entry(&lock.label.series).or_default().observe(lock, picture);
    }
    for lock in &picture.free {
        all.entry(&lock.label.series).or_default().observe_findings(lock);
    }
    for (series, gauges) in all {
        let shows_zero = view.registered.contains_key(series);
        gauges.collect(families, server, series, shows_zero, &picture.chains);
    }
}

impl<'a> LockGauges<'a> {
    /// The smallest limit of the keys a series stands for.
    fn limit(&mut self, max_hold: Limit, max_wait: Limit) {
        self.max_hold = Some(self.max_hold.map_or(max_hold, |limit| limit.min(max_hold)));
        self.max_wait = Some(self.max_wait.map_or(max_wait, |limit| limit.min(max_wait)));
    }

    fn observe(&mut self, lock: &'a Lock, picture: &Picture) {
        self.limit(lock.label.resolution.max_hold, lock.label.resolution.max_wait);
        for holder in &lock.holders {
            let labels =
                [&*holder.session.application_label, holder.mode.as_str(), holder.state_label()];
            self.holders.entry(labels).or_default().insert(&holder.id);
            self.held_since = Some(oldest(self.held_since, holder.since_local));
            if let Some(since) = holder.contended_since_local {
                self.contended_since = Some(oldest(self.contended_since, since));
            }
            if holder.blocks > 0 {
                self.blocking.insert(&holder.id);
            }
        }
        for waiter in &lock.waiters {
            let labels = [&*waiter.session.application_label, waiter.mode.as_str()];
            self.waiters.entry(labels).or_default().insert(&waiter.id);
            // Seen once, without a beginning, it may have begun at any time.
            let is_seen_for_long = waiter.seen_since < picture.at;
            let seen_since = is_seen_for_long.then_some(waiter.seen_since_local);
            if let Some(since) = waiter.since_local.or(seen_since) {
                self.waiting_since = Some(oldest(self.waiting_since, since));
            }
            self.snapshot_age = self.snapshot_age.max(waiter.snapshot_age);
        }
        self.observe_findings(lock);
        self.observe_roots(lock);
    }

    fn observe_findings(&mut self, lock: &'a Lock) {
        for finding in &lock.findings {
            let labels = [finding.kind.as_str(), finding.severity.as_str()];
            let concerned = self.findings.entry(labels).or_default();
            concerned.sessions.extend(&finding.sessions);
            concerned.keys += usize::from(finding.sessions.is_empty());
        }
    }

    fn observe_roots(&mut self, lock: &'a Lock) {
        let holders: HashSet<&SessionId> = match &lock.waiters[..] {
            [] => return,
            _ => lock.holders.iter().map(|holder| &holder.id).collect(),
        };
        // A thousand waiters of one key have the same thousand roots: each list is read once.
        let mut read: HashMap<*const Root, HashSet<[&str; 4]>> = HashMap::new();
        for waiter in &lock.waiters {
            let labels = read.entry(waiter.roots.as_ptr()).or_insert_with(|| {
                let labels = waiter.roots.iter().map(|root| {
                    let holds_key = if holders.contains(&root.id) { "true" } else { "false" };
                    let application = &*root.session.application_label;
                    [root.kind_label(), application, root.state_label(), holds_key]
                });
                labels.collect()
            });
            for labels in labels.iter() {
                self.roots.entry(*labels).or_default().insert(&waiter.id);
            }
        }
    }

    fn collect(
        &self,
        families: &mut Families,
        server: (&str, &str),
        series: &LockSeries,
        shows_zero: bool,
        chains: &Chains,
    ) {
        let [a, b, c, d] = series.labels(server);
        for ([application, mode, state], sessions) in &self.holders {
            let labels = [
                a,
                b,
                c,
                d,
                ("application_name", *application),
                ("mode", *mode),
                ("state", *state),
            ];
            families.add(&LOCK_HOLDERS, &labels, count(sessions.len()));
        }
        for ([application, mode], sessions) in &self.waiters {
            let labels = [a, b, c, d, ("application_name", *application), ("mode", *mode)];
            families.add(&LOCK_WAITERS, &labels, count(sessions.len()));
        }
        if shows_zero && self.holders.is_empty() {
            let labels = [a, b, c, d, ("application_name", ""), ("mode", ""), ("state", "")];
            families.add(&LOCK_HOLDERS, &labels, 0.0);
        }
        if shows_zero && self.waiters.is_empty() {
            let labels = [a, b, c, d, ("application_name", ""), ("mode", "")];
            families.add(&LOCK_WAITERS, &labels, 0.0);
        }
        for ([kind, application, state, holds_key], waiters) in &self.roots {
            let labels = [
                a,
                b,
                c,
                d,
                ("kind", *kind),
                ("application_name", *application),
                ("state", *state),
                ("holds_key", *holds_key),
            ];
            families.add(&ROOTS, &labels, count(waiters.len()));
        }
        for ([finding, severity], concerned) in &self.findings {
            let labels = [a, b, c, d, ("finding", *finding), ("severity", *severity)];
            families.add(&FINDINGS, &labels, count(concerned.sessions.len() + concerned.keys));
        }
        let labels = [a, b, c, d];
        if !self.holders.is_empty() || !self.waiters.is_empty() {
            let blocked = chains.sessions_behind_any(self.blocking.iter().copied());
            families.add(&BLOCKED_SESSIONS, &labels, count(blocked));
        }
        if let Some(since) = self.held_since {
            families.add(&HELD_SINCE, &labels, since.unix_seconds());
        }
        if let Some(since) = self.waiting_since {
            families.add(&WAITING_SINCE, &labels, since.unix_seconds());
        }
        if let Some(since) = self.contended_since {
            families.add(&CONTENDED_SINCE, &labels, since.unix_seconds());
        }
        if let Some(age) = self.snapshot_age {
            families.add(&SNAPSHOT_AGE, &labels, f64::from(age));
        }
        if let Some(limit) = self.max_hold {
            families.add(&HOLD_LIMIT, &labels, limit.as_secs_f64());
        }
        if let Some(limit) = self.max_wait {
            families.add(&WAIT_LIMIT, &labels, limit.as_secs_f64());
        }
    }
}

fn collect_registry(families: &mut Families, process: Process<'_>) {
    let registry = process.registry;
    families.add(&REGISTRY_ENTRIES, &[], count(registry.entry_count()));
    families.add(&REGISTRY_RELOAD_OK, &[], f64::from(u8::from(process.registry_is_current)));
    families.add(&REGISTRY_RELOAD_TIME, &[], process.registry_read_at.unix_seconds());
    if let Some(config) = process.config {
        families.add(&CONFIG_RELOAD_OK, &[], f64::from(u8::from(config.is_current)));
        families.add(&CONFIG_RELOAD_TIME, &[], config.read_at.unix_seconds());
    }
}

/// What is asked on behalf of entries of the registry, over all servers.
fn collect_sources(families: &mut Families, sources: &BTreeMap<&str, Source>) {
    for (lock, source) in sources {
        let labels = [("lock", *lock)];
        families.add(&SOURCE_FAILURES, &labels, count(source.failures));
        if let LastSuccess::At(moment) = source.last_success {
            families.add(&SOURCE_LAST_SUCCESS, &labels, moment.unix_seconds());
        }
    }
}

/// Families under construction.
#[derive(Default)]
struct Families(HashMap<&'static str, MetricFamily>);

impl Families {
    fn add(&mut self, family: &Family, labels: &[(&str, &str)], value: f64) {
        let mut metric = proto::Metric::default();
        if family.kind == MetricType::COUNTER {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.push(family, labels, metric);
    }

    fn add_histogram(
        &mut self,
        family: &Family,
        labels: &[(&str, &str)],
        observed: &series::Histogram,
    ) {
        let mut cumulative = 0;
        let buckets = DURATION_BUCKETS.iter().zip(observed.buckets).map(|(bound, observations)| {
            cumulative += observations;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(observed.count);
        histogram.set_sample_sum(observed.sum);
        let mut metric = proto::Metric::default();
        metric.set_histogram(histogram);
        self.push(family, labels, metric);
    }

    fn push(&mut self, family: &Family, labels: &[(&str, &str)], mut metric: proto::Metric) {
        let pairs = labels.iter().map(|(name, value)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        metric.set_label(pairs.collect());
        let entry = self.0.entry(family.name).or_insert_with(|| {
            let mut empty = MetricFamily::default();
            empty.set_name(family.name.to_owned());
            empty.set_help(family.help.to_owned());
            empty.set_field_type(family.kind);
            empty
        });
        entry.mut_metric().push(metric);
    }

    fn into_families(self) -> Vec<MetricFamily> {
        self.0.into_values().collect()
    }
}

impl LockSeries {
    fn labels<'a>(&'a self, server: (&'a str, &'a str)) -> [(&'a str, &'a str); 4] {
        [server, ("datname", &self.datname), ("lock", &self.lock), ("key", &self.key)]
    }
}

fn oldest(known: Option<Timestamp>, other: Timestamp) -> Timestamp {
    known.map_or(other, |known| known.min(other))
}

/// A count as a sample's value. Exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "every value of the exposition is a double")]
fn count(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::exposition::{Format, render_families};
    use super::*;
    use crate::inspected::Inspected;

    /// The view of a server at which this lock has a source.
    fn view(server: &str, failures: u64, last_success: LastSuccess) -> View {
        let sources = [("prices".into(), Source { failures, last_success })].into();
        let inspected = Arc::new(Inspected { sources, ..Inspected::default() });
        View { server: server.into(), inspected, ..View::default() }
    }

    fn sources(views: &[View]) -> Vec<String> {
        let at = Timestamp::from_unix_micros(0);
        let registry = Registry::empty();
        let process = Process {
            registry: &registry,
            registry_read_at: at,
            registry_is_current: true,
            config: None,
        };
        let text = render_families(&collect_families(process, views, at), Format::Text).text;
        let is_meant = |line: &&str| line.starts_with("pg_advisory_registry_source_");
        text.lines().filter(is_meant).map(str::to_owned).collect()
    }

    #[test]
    fn a_lock_that_several_servers_are_asked_for_is_one_series() {
        let at = |seconds: i64| LastSuccess::At(Timestamp::from_unix_micros(seconds * 1_000_000));
        let (one, other) = (view("a", 1, at(20)), view("b", 2, at(10)));
        let failures = "pg_advisory_registry_source_failures_total{lock=\"prices\"} 3";
        let success =
            "pg_advisory_registry_source_last_success_timestamp_seconds{lock=\"prices\"} 10";
        assert_eq!(sources(&[one.clone(), other.clone()]), [failures, success]);
        let with_new = [one, other, view("c", 0, LastSuccess::Never)];
        assert_eq!(sources(&with_new), [failures], "one of them never told it");
    }
}
