//! Random samples through everything pure, up to the text of a scrape: whatever a server answers,
//! no row is lost, no series comes twice, nothing goes back, nothing grows without bound, and nothing
//! is found twice or of somebody who is not there; whatever registry comes in between, what it still
//! calls the same keeps all it has.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::config::HolderChanges;
use crate::finding::{Finding, FindingKind};
use crate::key::Key;
use crate::metrics::exposition::{Format, render_families};
use crate::metrics::{Process, collect_families};
use crate::mode::Mode;
use crate::registry::{Limit, Source, UNREGISTERED};
use crate::sample::{
    Backend, DatabaseName, KeyGroup, LockRow, LockTag, Pid, PreparedTransaction, State,
    TransactionId, VirtualTransaction,
};
use crate::series::{Counters, LockSeries, OTHER};
use crate::tracker::SessionId;
use crate::view::{Polls, View};

const LIMITS: Limits =
    Limits { keys: 4, applications: 3, databases: 3, registered_keys: 4, values: 100 };
const APP: DatabaseOid = DatabaseOid(5);
const SECOND: Duration = Duration::from_secs(1);

const REGISTRY: &str = "
locks:
  - { name: armed, key: 1, databases: [app] }
  - { name: tenants, key: { pair: [7, '*'] }, databases: [app] }
  - { name: anywhere, key: 2 }
";

/// The same names for the same keys, elsewhere in the file and with other limits.
const MOVED: &str = "
defaults: { max_hold: 1m, unregistered: { max_wait: 2s } }
locks:
  - { name: anywhere, key: 2, max_wait: 3s }
  - { name: tenants, key: { pair: [7, '*'] }, databases: [app], owner: growth }
  - { name: armed, key: 1, databases: [app], last_held_within: 1h }
";

/// Whatever may be asked of a key is asked of one of these, and soon.
const STRICT: &str = "
defaults:
  max_hold: 3s
  max_wait: 2s
  unregistered: { max_hold: 2s, max_wait: 1s }
locks:
  - name: armed
    key: 1
    databases: [app]
    scope: transaction
    holders: [a]
    must_be_held: true
    vacant_for: 2s
    last_held_within: 3s
    not_again_within: 1h
  - { name: tenants, key: { pair: [7, '*'] }, databases: [app], scope: session, max_hold: unlimited }
  - { name: anywhere, key: 2, max_idle_in_transaction: 2s, max_wait: unlimited }
  - { name: standby-only, key: 3, databases: [app], must_be_held: true, vacant_for: 1s, role: standby }
";

/// What may replace it: the armed ones are always named, moved about and with other limits; the
/// rest comes, goes and changes its name.
const REPLACEMENTS: [&str; 3] = [
    "
locks:
  - { name: anywhere, key: 2, max_hold: 1m }
  - { name: tenants, key: { pair: [7, '*'] }, databases: [app], max_wait: 1s }
  - { name: seven, key: { pair: [7, 1] } }
  - { name: armed, key: 1, databases: [app], max_hold: 1m }
",
    "
locks:
  - { name: renamed, key: 2 }
  - { name: armed, key: 1 }
  - { name: armed, key: 1, databases: [app, app2] }
  - { name: tenants, key: { pair: [7, '*'] } }
  - { name: tenants, key: { pair: [7, '*'] }, databases: [app] }
  - { name: more, key: 3, databases: [app2] }
",
    REGISTRY,
];

/// A fold with what a poller keeps around it.
struct Replay {
    registry: Arc<Registry>,
    fold: Fold,
    view: View,
    /// The server's clock.
    now: Timestamp,
    /// Ours.
    now_local: Timestamp,
}

impl Replay {
    fn new() -> Self {
        let registry = registry(REGISTRY);
        let rules = Arc::new(Applications::default());
        let mut fold =
            Fold::new("orders-1".into(), registry.clone(), rules, &LIMITS, Thresholds::default());
        let app = DatabaseName { name: "app".into(), encoding: "UTF8".into() };
        fold.observe_names(Names { databases: [(APP, app)].into(), ..Names::default() });
        let polls = Polls { interval: SECOND, ..Polls::default() };
        let view = View { server: "orders-1".into(), polls, ..View::default() };
        let now = Timestamp::from_unix_micros(0);
        Self { registry, fold, view, now, now_local: now }
    }

    /// With every rule likely to find something.
    fn strict() -> Self {
        let thresholds = Thresholds {
            idle_in_transaction: SECOND,
            prepared: 2 * SECOND,
            snapshot_age: 40,
            keys_per_session: 2,
            holder_changes: HolderChanges { count: 1, within: 20 * SECOND },
        };
        let mut replay = Self::new();
        replay.fold.judge = Judge::new(thresholds, Arc::default());
        replay.reload(STRICT);
        replay
    }

    fn reload(&mut self, text: &str) {
        self.registry = registry(text);
        self.fold.observe_registry(self.registry.clone());
    }

    fn pass(&mut self, time: Duration) {
        let seconds = i64::try_from(time.as_secs()).unwrap();
        self.jump(seconds, seconds);
    }

    /// The server's clock and ours move by so many seconds, each for itself.
    fn jump(&mut self, server: i64, ours: i64) {
        let moved = |time: Timestamp, seconds: i64| {
            Timestamp::from_unix_micros(time.unix_micros() + seconds * 1_000_000)
        };
        self.now = moved(self.now, server);
        self.now_local = moved(self.now_local, ours);
    }

    fn observe(&mut self, advisory: Vec<KeyGroup>, backends: Option<Vec<Backend>>) -> Sample {
        let (other_locks, prepared) = prepared_of(&advisory);
        let sample = Sample {
            at: self.now,
            at_local: self.now_local,
            round_trip: Duration::ZERO,
            read_at: self.now,
            own_pid: Pid(1),
            in_recovery: false,
            advisory,
            other_locks,
            backends,
            prepared: Some(prepared),
            table_entries: None,
        };
        let picture = self.fold.observe(&sample, 2 * SECOND);
        self.view.picture = Some(picture);
        self.fold.fill(&mut self.view);
        sample
    }

    /// The poll, and the time in seconds since the one before.
    fn observe_random(&mut self, (gap, rows, activity): &RandomPoll) -> (u32, Sample) {
        // Mostly a second, now and then hours, so that slots come back.
        let seconds = if *gap > 240 { 36_000 } else { 1 };
        self.pass(seconds * SECOND);
        let now = self.now;
        let advisory = rows.iter().take(12).map(|row| random_group(row, now)).collect();
        let backends = activity.as_ref().map(|all| {
            let mut pids = HashSet::new();
            let one_each = all.iter().filter(|row| pids.insert(row.0 % 8));
            one_each.map(|row| random_backend(row, now)).collect()
        });
        (seconds, self.observe(advisory, backends))
    }

    fn picture(&self) -> &Picture {
        self.view.picture.as_ref().unwrap()
    }

    fn render(&self) -> String {
        let process = Process {
            registry: &self.registry,
            registry_read_at: self.now_local,
            registry_is_current: true,
            config: None,
        };
        let families = collect_families(process, [&self.view], self.now_local);
        let exposition = render_families(&families, Format::Text);
        assert_eq!(exposition.dropped, 0, "a series came twice");
        exposition.text
    }
}

fn registry(text: &str) -> Arc<Registry> {
    let source = Source { name: "replay.yaml".into(), text: text.into() };
    Arc::new(Registry::parse(&[source]).unwrap())
}

fn group(pid: Option<i32>, database: DatabaseOid, key: Key, granted: bool) -> KeyGroup {
    KeyGroup {
        database,
        pid: pid.map(Pid),
        transaction: VirtualTransaction::from_server("4/1"),
        mode: Mode::Exclusive,
        granted,
        wait_start: None,
        keys: vec![key],
    }
}

/// Every other transaction without a backend is known as prepared long ago, by a gid that reads like
/// its number.
fn prepared_of(advisory: &[KeyGroup]) -> (Vec<LockRow>, Vec<PreparedTransaction>) {
    let mut seen = HashSet::new();
    let without_backend = advisory.iter().filter(|group| group.pid.is_none());
    without_backend
        .filter(|group| group.transaction.local_id().is_some_and(|id| id.is_multiple_of(2)))
        .filter(|group| seen.insert(group.transaction.clone()))
        .zip(700..)
        .map(|(group, number)| {
            let transaction = TransactionId(number);
            let row = LockRow {
                tag: LockTag {
                    locktype: "transactionid".into(),
                    database: None,
                    relation: None,
                    page: None,
                    tuple: None,
                    virtualxid: None,
                    transactionid: Some(transaction),
                    object: None,
                    objsubid: None,
                },
                pid: None,
                transaction: group.transaction.clone(),
                mode: Mode::Exclusive,
                granted: true,
                wait_start: None,
            };
            let prepared = PreparedTransaction {
                transaction,
                gid: group.transaction.as_str().into(),
                prepared_at: Timestamp::from_unix_micros(0),
                owner: RoleOid(10),
                database: group.database,
            };
            (row, prepared)
        })
        .unzip()
}

fn backend(pid: i32, application_name: &str) -> Backend {
    Backend {
        pid: Pid(pid),
        database: None,
        role: None,
        application_name: Some(application_name.into()),
        state: State::Active,
        state_change: None,
        wait_event: None,
        backend_start: None,
        client_addr: None,
        client_port: None,
        snapshot_age: None,
        backend_type: None,
        leader: None,
    }
}

/// A row and a backend of a random poll, in small numbers.
type Row = (u8, u8, u8, u8, u8);
type Activity = (u8, u8, u8, i8);
type RandomPoll = (u8, Vec<Row>, Option<Vec<Activity>>);

fn random_group(&(pid, database, key, mode, how): &Row, now: Timestamp) -> KeyGroup {
    let granted = how.is_multiple_of(3) || how.is_multiple_of(2);
    let key = match key % 16 {
        key @ 0..=2 => Key::pair(7, key.into()),
        15 => Key::from_columns(0, 102_747, 5),
        key => Key::bigint(i64::from(key) - 3),
    };
    KeyGroup {
        database: DatabaseOid(u32::from(database % 6)),
        // Only what is granted can be a prepared transaction's.
        pid: (pid > 30 || !granted).then_some(Pid(i32::from(pid % 8))),
        transaction: VirtualTransaction::from_server(&format!("{}/{}", pid % 8, how % 4)),
        mode: Mode::KNOWN[usize::from(mode) % Mode::KNOWN.len()].clone(),
        granted,
        wait_start: (!granted && how > 40).then(|| now.before(SECOND.mul_f64(f64::from(how % 8)))),
        keys: vec![key],
    }
}

fn random_backend(&(pid, name, state, change): &Activity, now: Timestamp) -> Backend {
    let state = match state % 5 {
        0 => State::Idle,
        1 => State::Active,
        2 => State::IdleInTransaction,
        3 => State::IdleInTransactionAborted,
        _ => State::Unknown,
    };
    let moved = now.unix_micros() - i64::from(change) * 100_000;
    Backend {
        state,
        state_change: (change % 7 != 0).then(|| Timestamp::from_unix_micros(moved)),
        backend_start: (change % 5 != 0).then(|| Timestamp::from_unix_micros(-i64::from(name % 2))),
        snapshot_age: (change % 3 != 0).then_some(u32::from(name)),
        ..backend(
            i32::from(pid % 8),
            ["", "a", "b\n", "other", "c", "d", "(none)"][usize::from(name) % 7],
        )
    }
}

/// Rows read = rows accounted for, each to its own session, once.
fn check_rows(sample: &Sample, picture: &Picture) -> TestCaseResult {
    let rows = |granted: bool| -> HashSet<String> {
        let groups = sample.advisory.iter().filter(|group| group.granted == granted);
        groups
            .map(|group| {
                let who = match group.pid {
                    Some(pid) => pid.to_string(),
                    None => group.transaction.as_str().to_owned(),
                };
                format!("{who} {:?} {:?} {}", group.database, group.keys[0], group.mode)
            })
            .collect()
    };
    let mut held = HashSet::new();
    let mut awaited = HashSet::new();
    for lock in &picture.locks {
        let place = format!("{:?} {:?}", lock.id.database, lock.id.key);
        let sessions: HashSet<_> = lock.holders.iter().map(|holder| &holder.id).collect();
        prop_assert_eq!(sessions.len(), lock.holders.len(), "a holder came twice");
        for holder in &lock.holders {
            let who = match &holder.id {
                SessionId::Backend(pid) => pid.to_string(),
                SessionId::Prepared(gid) => gid.to_string(),
                SessionId::Nameless(transaction) => transaction.as_str().to_owned(),
            };
            for mode in holder.modes() {
                prop_assert!(mode.strength() <= holder.mode.strength());
                let row = format!("{who} {place} {mode}");
                prop_assert!(held.insert(row), "a row came twice");
            }
            prop_assert!(holder.since <= picture.at, "{holder:?}");
            prop_assert!(holder.since <= holder.proved_since, "{holder:?}");
            prop_assert!(holder.proved_since <= picture.at, "{holder:?}");
            prop_assert!(holder.not_before.is_none_or(|bound| bound <= holder.since), "{holder:?}");
        }
        for waiter in &lock.waiters {
            let row = format!("{} {place} {}", waiter.id.pid().expect("a backend"), waiter.mode);
            prop_assert!(awaited.insert(row), "a row came twice");
        }
    }
    prop_assert_eq!(held, rows(true));
    prop_assert_eq!(awaited, rows(false));
    Ok(())
}

const ABOUT_THE_KEY: [FindingKind; 4] =
    [FindingKind::Vacant, FindingKind::Missed, FindingKind::Repeated, FindingKind::Flapping];
const ABOUT_HOLDERS: [FindingKind; 7] = [
    FindingKind::HeldTooLong,
    FindingKind::Stuck,
    FindingKind::HolderIdleInTransaction,
    FindingKind::HeldByPreparedTransaction,
    FindingKind::TooManyKeys,
    FindingKind::UnexpectedHolder,
    FindingKind::UnexpectedScope,
];
const ABOUT_WAITERS: [FindingKind; 2] =
    [FindingKind::WaitingTooLong, FindingKind::WaiterHoldsBackVacuum];

/// Each rule speaks once of a key, of those who are there, in one line, and as its predicate says.
fn check_findings(picture: &Picture) -> TestCaseResult {
    for lock in picture.locks.iter().chain(&picture.free) {
        let of = |kind: FindingKind| lock.findings.iter().find(move |it| it.kind == kind);
        let sessions = |finding: Option<&Finding>| -> BTreeSet<SessionId> {
            finding.into_iter().flat_map(|it| it.sessions.iter().cloned()).collect()
        };
        let holders: BTreeSet<_> = lock.holders.iter().map(|it| it.id.clone()).collect();
        let waiters: BTreeSet<_> = lock.waiters.iter().map(|it| it.id.clone()).collect();
        let kinds: BTreeSet<_> = lock.findings.iter().map(|it| it.kind).collect();
        prop_assert_eq!(kinds.len(), lock.findings.len(), "found twice: {:?}", lock.findings);
        for finding in &lock.findings {
            let context = || format!("{finding:?} of {lock:?}");
            prop_assert_eq!(finding.severity, finding.kind.severity());
            let concerned = sessions(Some(finding));
            prop_assert_eq!(concerned.len(), finding.sessions.len(), "told twice: {}", context());
            let is_there = if ABOUT_THE_KEY.contains(&finding.kind) {
                concerned.is_empty()
            } else if ABOUT_HOLDERS.contains(&finding.kind) {
                concerned.is_subset(&holders)
            } else if finding.kind == FindingKind::WaiterHoldsBackVacuum {
                concerned.is_subset(&waiters)
            } else {
                concerned.iter().all(|it| holders.contains(it) || waiters.contains(it))
            };
            prop_assert!(is_there, "told of somebody else: {}", context());
            let is_about_sessions =
                ABOUT_HOLDERS.contains(&finding.kind) || ABOUT_WAITERS.contains(&finding.kind);
            prop_assert!(
                !(is_about_sessions && concerned.is_empty()),
                "told of nobody: {}",
                context()
            );
            for details in [false, true] {
                for text in [finding.render_text(details), finding.render_remedy(details)] {
                    prop_assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
                }
            }
        }
        let seen_too_long = |limit: Duration| {
            let holders = lock.holders.iter();
            holders
                .filter(move |it| picture.at.since(it.since) > limit)
                .map(|it| it.id.clone())
                .collect::<BTreeSet<_>>()
        };
        let expected = match lock.label.resolution.max_hold {
            Limit::Of(limit) => seen_too_long(limit),
            Limit::Unlimited => BTreeSet::new(),
        };
        prop_assert_eq!(sessions(of(FindingKind::HeldTooLong)), expected, "{:?}", lock);
        prop_assert!(
            of(FindingKind::Stuck).is_none() || of(FindingKind::WaitingTooLong).is_some(),
            "stuck, though nobody waits for too long: {lock:?}"
        );
        prop_assert!(
            of(FindingKind::Vacant).is_none() || lock.holders.is_empty(),
            "vacant, and held: {lock:?}"
        );
        let unknown = lock.holders.iter().filter(|it| it.session.state == State::Unknown);
        let unknown: BTreeSet<_> = unknown.map(|it| it.id.clone()).collect();
        for kind in [FindingKind::Stuck, FindingKind::HolderIdleInTransaction] {
            prop_assert!(
                sessions(of(kind)).is_disjoint(&unknown),
                "what is unknown satisfies no rule: {lock:?}"
            );
        }
    }
    for lock in &picture.free {
        prop_assert!(lock.holders.is_empty() && lock.waiters.is_empty(), "not free: {lock:?}");
        prop_assert!(!lock.findings.is_empty(), "nothing to be said: {lock:?}");
    }
    let mut ids: Vec<_> = picture.locks.iter().chain(&picture.free).map(|it| it.id).collect();
    ids.sort_unstable();
    ids.dedup();
    prop_assert_eq!(ids.len(), picture.locks.len() + picture.free.len(), "a key came twice");
    Ok(())
}

/// The gauge counts whom findings are about, each session once in a series, and keys.
fn check_finding_gauge(picture: &Picture, text: &str) -> TestCaseResult {
    let mut concerned: BTreeMap<_, (BTreeSet<&SessionId>, usize)> = BTreeMap::new();
    for lock in picture.locks.iter().chain(&picture.free) {
        for finding in &lock.findings {
            let (sessions, keys) = concerned.entry((&lock.label.series, finding.kind)).or_default();
            sessions.extend(&finding.sessions);
            *keys += usize::from(finding.sessions.is_empty());
        }
    }
    let expected: usize = concerned.values().map(|(sessions, keys)| sessions.len() + keys).sum();
    let samples = text.lines().filter(|line| line.starts_with("pg_advisory_lock_findings{"));
    let found: f64 = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    prop_assert_eq!(found, f64::from(u32::try_from(expected).unwrap()));
    Ok(())
}

/// Whatever has a counter in both never goes back.
fn check_counters(before: &Counters, now: &Counters) -> TestCaseResult {
    for (series, then) in &before.keys {
        let Some(now) = now.keys.get(series) else { continue };
        prop_assert!(
            then.acquisitions <= now.acquisitions && then.waits <= now.waits,
            "{series:?}: {then:?} then, {now:?} now"
        );
        prop_assert!(then.waits_abandoned <= now.waits_abandoned);
        prop_assert!(then.holder_changes <= now.holder_changes);
    }
    for (series, then) in &before.seconds {
        let Some(now) = now.seconds.get(series) else { continue };
        prop_assert!(then.hold <= now.hold && then.wait <= now.wait);
    }
    for (series, then) in &before.hold_durations {
        let Some(now) = now.hold_durations.get(series) else { continue };
        prop_assert!(then.count <= now.count && then.sum <= now.sum);
    }
    for (series, then) in &before.wait_durations {
        let Some(now) = now.wait_durations.get(series) else { continue };
        prop_assert!(then.count <= now.count && then.sum <= now.sum);
    }
    Ok(())
}

/// No more series than the bounds allow, for whatever they count.
fn check_bounds(counters: &Counters) -> TestCaseResult {
    let has_own = |series: &&LockSeries| &*series.key != OTHER;
    let (unregistered, registered): (Vec<_>, Vec<_>) =
        counters.keys.keys().filter(has_own).partition(|series| &*series.lock == UNREGISTERED);
    prop_assert!(unregistered.len() <= LIMITS.keys, "{unregistered:?}");
    prop_assert!(registered.len() <= LIMITS.registered_keys, "{registered:?}");
    let datnames: BTreeSet<_> = counters.keys.keys().map(|series| &series.datname).collect();
    // Beside the slots: `other`, the registry's own, and those whose registered locks stay.
    prop_assert!(datnames.len() <= LIMITS.databases + LIMITS.registered_keys + 2, "{datnames:?}");
    let applications: BTreeSet<_> = counters.seconds.keys().map(|(_, name)| name).collect();
    let fixed = ["(none)", "(unknown)", "(prepared)", OTHER];
    let own = applications.iter().filter(|name| !fixed.contains(&&****name)).count();
    prop_assert!(own <= LIMITS.applications, "{applications:?}");
    Ok(())
}

/// No time that passed is negative or no number.
fn check_ages(text: &str) -> TestCaseResult {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        let is_moment = name.ends_with("_timestamp_seconds");
        let is_difference = name == "pg_advisory_clock_offset_seconds";
        let value: f64 = value.parse().expect("a number");
        prop_assert!(value >= 0.0 || is_moment || is_difference, "{}", line);
    }
    Ok(())
}

/// An armed lock always has a number of holders: theirs, or 0.
fn check_armed(replay: &Replay, text: &str) -> TestCaseResult {
    let picture = replay.picture();
    for (lock, key) in [("armed", "1"), ("tenants", "(7,*)")] {
        let labels = format!("datname=\"app\",key=\"{key}\",lock=\"{lock}\"");
        let present = picture.locks.iter().filter(|held| {
            &*held.label.series.lock == lock && &*held.label.series.datname == "app"
        });
        let (mut is_held, mut is_awaited) = (false, false);
        for lock in present {
            is_held |= !lock.holders.is_empty();
            is_awaited |= !lock.waiters.is_empty();
        }
        for (name, is_there) in
            [("pg_advisory_lock_holders{", is_held), ("pg_advisory_lock_waiters{", is_awaited)]
        {
            let samples = || text.lines().filter(|it| it.starts_with(name) && it.contains(&labels));
            let zeros = samples().filter(|sample| sample.ends_with(" 0")).count();
            prop_assert_eq!(zeros, usize::from(!is_there), "{} {}", name, labels);
            prop_assert_eq!(samples().count() > zeros, is_there, "{} {}", name, labels);
        }
    }
    Ok(())
}

/// Every key is in exactly one series, under its own name or under `other`.
fn check_sums(replay: &Replay, text: &str) -> TestCaseResult {
    let picture = replay.picture();
    let sum = |name: &str| -> f64 {
        let samples = text.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let count = |number: usize| f64::from(u32::try_from(number).unwrap());
    let held = picture.locks.iter().filter(|lock| !lock.holders.is_empty()).count();
    let awaited = picture.locks.iter().filter(|lock| !lock.waiters.is_empty()).count();
    prop_assert_eq!(sum("pg_advisory_keys{"), count(held + awaited));
    let folded = picture.locks.iter().filter(|lock| &*lock.label.series.key == OTHER).count();
    prop_assert_eq!(sum("pg_advisory_folded_keys{"), count(folded));
    let rows = picture.rows_granted + picture.rows_waiting;
    prop_assert_eq!(sum("pg_advisory_lock_rows{"), count(rows));
    // A session is one holder of a series however many keys of it it holds, in each of its modes.
    let mut sessions: BTreeMap<&LockSeries, HashMap<_, BTreeSet<_>>> = BTreeMap::new();
    for lock in &picture.locks {
        for holder in &lock.holders {
            let modes = sessions.entry(&lock.label.series).or_default();
            modes.entry(&holder.id).or_default().insert(&holder.mode);
        }
    }
    let holders = sessions.values().flat_map(HashMap::values).map(BTreeSet::len).sum();
    prop_assert_eq!(sum("pg_advisory_lock_holders{"), count(holders));
    Ok(())
}

/// What is there after a long gap keeps its counters: slots come back from those that are not.
fn keep_present(before: &mut Counters, picture: &Picture) {
    let locks = || picture.locks.iter().map(|lock| (&lock.label.series, lock));
    let series: HashSet<&LockSeries> = locks().map(|(series, _)| series).collect();
    let applications: HashSet<(&LockSeries, &str)> = locks()
        .flat_map(|(series, lock)| {
            let holders = lock.holders.iter().map(|holder| &holder.session);
            let waiters = lock.waiters.iter().map(|waiter| &waiter.session);
            holders.chain(waiters).map(move |session| (series, &*session.application_label))
        })
        .collect();
    let databases: HashSet<&str> = series.iter().map(|series| &*series.datname).collect();
    before.keys.retain(|key, _| series.contains(key));
    before.seconds.retain(|(key, name), _| applications.contains(&(key, &**name)));
    before.hold_durations.retain(|(datname, _), _| databases.contains(&**datname));
    before.wait_durations.retain(|(datname, ..), _| databases.contains(&**datname));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_polls_lose_nothing_and_take_nothing_back(
        polls in prop::collection::vec(any::<RandomPoll>(), 1..25)
    ) {
        let mut replay = Replay::new();
        for poll in &polls {
            if let Some(text) = REPLACEMENTS.get(usize::from(poll.0 % 8)) {
                replay.reload(text);
            }
            let mut before = Counters::clone(&replay.view.counters);
            let (seconds, sample) = replay.observe_random(poll);
            check_rows(&sample, replay.picture())?;
            if seconds > 1 {
                keep_present(&mut before, replay.picture());
            }
            check_counters(&before, &replay.view.counters)?;
            check_bounds(&replay.view.counters)?;
            let text = replay.render();
            check_armed(&replay, &text)?;
            check_sums(&replay, &text)?;
        }
    }

    #[test]
    fn clocks_that_jump_lose_no_row_and_take_nothing_back(
        polls in prop::collection::vec((any::<RandomPoll>(), 0..12_usize, 0..12_usize), 1..25)
    ) {
        // In seconds; mostly none.
        const JUMPS: [i64; 6] = [-100_000_000, -3_600, -2, 2, 3_600, 100_000_000];
        let mut replay = Replay::strict();
        for (poll, server, ours) in &polls {
            let jump = |index: &usize| JUMPS.get(*index).copied().unwrap_or(0);
            replay.jump(jump(server), jump(ours));
            let mut before = Counters::clone(&replay.view.counters);
            let (_, sample) = replay.observe_random(poll);
            check_rows(&sample, replay.picture())?;
            keep_present(&mut before, replay.picture());
            check_counters(&before, &replay.view.counters)?;
            check_bounds(&replay.view.counters)?;
            check_findings(replay.picture())?;
            let text = replay.render();
            check_sums(&replay, &text)?;
            check_ages(&text)?;
        }
    }

    #[test]
    fn random_polls_are_judged_once_a_rule_and_of_those_who_are_there(
        polls in prop::collection::vec(any::<RandomPoll>(), 1..25)
    ) {
        let mut replay = Replay::strict();
        for poll in &polls {
            replay.observe_random(poll);
            check_findings(replay.picture())?;
            check_finding_gauge(replay.picture(), &replay.render())?;
        }
    }

    #[test]
    fn a_reload_of_what_names_the_same_keys_changes_no_counter_and_no_age(
        polls in prop::collection::vec(any::<RandomPoll>(), 1..25)
    ) {
        let mut steady = Replay::new();
        let mut reloaded = Replay::new();
        for poll in &polls {
            steady.observe_random(poll);
            if poll.0 % 4 < 2 {
                reloaded.reload([REGISTRY, MOVED][usize::from(poll.0 % 4)]);
            }
            reloaded.observe_random(poll);
            let (there, here) = (&steady.view, &reloaded.view);
            prop_assert_eq!(format!("{:?}", there.counters), format!("{:?}", here.counters));
            let last_held = |view: &View| {
                let registered = view.registered.iter();
                registered.map(|(series, it)| (series.clone(), it.last_held)).collect::<Vec<_>>()
            };
            prop_assert_eq!(last_held(there), last_held(here));
            let locks = |replay: &Replay| {
                let locks = replay.picture().locks.iter();
                locks
                    .map(|lock| {
                        let since: Vec<_> = lock.holders.iter().map(|it| it.since_local).collect();
                        (lock.label.series.clone(), since)
                    })
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(locks(&steady), locks(&reloaded));
        }
    }
}

#[test]
fn a_month_of_ever_new_keys_names_and_databases_stays_within_the_bounds() {
    let mut replay = Replay::new();
    let mut given: BTreeSet<LockSeries> = BTreeSet::new();
    let mut most_samples = 0;
    for round in 0..30 * 144_u32 {
        replay.pass(600 * SECOND);
        let id = i32::try_from(round).unwrap();
        // Each stays for two polls: it begins and ends under a label.
        let old = DatabaseOid(1000 + round.saturating_sub(1) / 2);
        let advisory = vec![
            group(Some(id), DatabaseOid(1000 + round / 2), Key::bigint(i64::from(round)), true),
            group(Some(id + 1), old, Key::pair(9, id), true),
            group(Some(id + 1), old, Key::bigint(2), true),
            group(Some(id + 1), APP, Key::bigint(1), id % 2 == 0),
            group(Some(id), APP, Key::bigint(1), false),
        ];
        let names = [format!("job-{round}"), format!("pod-{round}")];
        let backends = vec![backend(id, &names[0]), backend(id + 1, &names[1])];
        replay.observe(advisory, Some(backends));
        let counters = &*replay.view.counters;
        check_bounds(counters).unwrap();
        given.extend(counters.keys.keys().cloned());
        if round.is_multiple_of(50) {
            most_samples = most_samples.max(replay.render().lines().count());
        }
    }
    let days = 31;
    let own = given.iter().filter(|it| &*it.lock == UNREGISTERED && &*it.key != OTHER).count();
    assert!(own > LIMITS.keys, "slots never came back");
    assert!(own <= days * 2 * LIMITS.keys, "{own} keys had a series of their own");
    assert!(most_samples < 1000, "{most_samples} lines");
}

#[test]
fn a_lock_of_a_named_database_keeps_its_series_past_the_bound_of_databases() {
    let mut replay = Replay::new();
    replay.pass(SECOND);
    let others = (10..20).map(|oid| group(Some(9), DatabaseOid(oid), Key::bigint(50), true));
    replay.observe(others.collect(), None);
    replay.pass(SECOND);
    replay.observe(vec![group(Some(9), APP, Key::bigint(1), true)], None);
    let text = replay.render();
    check_armed(&replay, &text).unwrap();
    assert_eq!(&*replay.picture().locks[0].label.series.datname, "app");
}

#[test]
fn what_ends_in_the_poll_in_which_names_change_still_counts() {
    let mut replay = Replay::new();
    let held = || vec![group(Some(9), APP, Key::bigint(1), true)];
    for rows in [Vec::new(), held(), held()] {
        replay.pass(SECOND);
        replay.observe(rows, None);
    }
    replay.fold.observe_names(Names::default());
    replay.pass(SECOND);
    replay.observe(Vec::new(), None);
    let counters = &*replay.view.counters;
    assert_eq!(counters.hold_durations.values().map(|it| it.count).sum::<u64>(), 1);
}

#[test]
fn a_series_of_values_outlives_the_values_that_were_seen() {
    let mut replay = Replay::new();
    replay.reload(
        "locks: [{ name: jobs, key: { integer: '{id}' }, \
         values: { id: { query: select, database: app } } }]",
    );
    // What is held at the first poll began before.
    replay.observe(Vec::new(), None);
    let mut acquired = 0;
    for generation in 0..3_i64 {
        let ids: Vec<i64> = (0..20).map(|id| 1000 * generation + id).collect();
        let mut answers = Answers::default();
        let values = ids.iter().map(|id| id.to_string().into()).collect();
        answers.insert_values(&"app".into(), &"select".into(), values);
        replay.fold.observe_answers(Arc::new(answers));
        for rows in [&ids[..], &[]] {
            replay.pass(SECOND);
            let held = rows.iter().map(|id| group(Some(9), APP, Key::bigint(*id), true));
            replay.observe(held.collect(), None);
            acquired += u64::try_from(rows.len()).unwrap();
            let series =
                LockSeries { datname: "app".into(), lock: "jobs".into(), key: "values(id)".into() };
            let counted = replay.view.counters.keys.get(&series).map(|it| it.acquisitions);
            assert_eq!(counted, Some(acquired), "{generation}");
        }
    }
    replay.fold.observe_answers(Arc::default());
    replay.pass(SECOND);
    replay.observe(Vec::new(), None);
    assert!(replay.view.counters.keys.keys().all(|series| &*series.lock != "jobs"));
}

#[test]
fn keys_that_count_under_other_keep_what_the_registry_says_of_each() {
    let mut replay = Replay::new();
    let held = |number| group(Some(9), APP, Key::bigint(number), true);
    // Candidates of two presets, and a key that none of them knows.
    let asked = [42, 1000, 987_654_321];
    for keys in [vec![], asked.to_vec(), asked.to_vec()] {
        replay.pass(SECOND);
        let keys = [-1, -2].into_iter().chain(keys).map(held);
        replay.observe(keys.collect(), Some(vec![backend(9, "shop")]));
    }
    let candidates = asked.map(|number| {
        let mut locks = replay.picture().locks.iter();
        let lock = locks.find(|lock| lock.id.key == Key::bigint(number)).unwrap();
        assert_eq!(&*lock.label.series.key, OTHER);
        lock.label.resolution.candidates.iter().map(|it| it.name.to_string()).collect::<Vec<_>>()
    });
    assert_eq!(candidates[0], ["immich-backup-database"]);
    assert_eq!(candidates[1], ["authentik-migrations"]);
    assert!(candidates[2].is_empty());
}

/// A test of rules that find nothing would say little.
#[test]
fn a_thousand_random_polls_are_judged_by_each_rule() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut replay = Replay::strict();
    let mut found: BTreeMap<FindingKind, usize> = BTreeMap::new();
    let mut last: RandomPoll = Default::default();
    for number in 0..1000_u16 {
        let (gap, mut rows, activity) =
            any::<RandomPoll>().new_tree(&mut runner).unwrap().current();
        // Most of a poll is as it was, so that something lasts.
        if !number.is_multiple_of(8) {
            rows.truncate(1);
            rows.extend(last.1.iter().skip(1).take(10));
        }
        // A leader that comes, goes and is another one then.
        let leader = 40 + u8::try_from(number / 10 % 3).unwrap();
        let is_led = number % 10 < 5;
        rows.insert(0, if is_led { (leader, 5, 4, 6, 0) } else { (50, 5, 3, 6, 0) });
        let activity = if number.is_multiple_of(4) { activity } else { last.2.take() };
        last = (gap, rows, activity);
        replay.observe_random(&last);
        check_findings(replay.picture()).unwrap();
        if number.is_multiple_of(10) {
            check_finding_gauge(replay.picture(), &replay.render()).unwrap();
        }
        for lock in replay.picture().locks.iter().chain(&replay.picture().free) {
            lock.findings.iter().for_each(|it| *found.entry(it.kind).or_default() += 1);
        }
    }
    let expected = [&ABOUT_THE_KEY[..], &ABOUT_HOLDERS, &ABOUT_WAITERS].concat();
    let silent: Vec<_> = expected.iter().filter(|it| !found.contains_key(it)).collect();
    assert!(silent.is_empty(), "never found: {silent:?}; found: {found:?}");
}
