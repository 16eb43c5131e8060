//! Which series exist, and the counters behind them.
//!
//! Labels are decided here, once per poll, so that every scrape of one picture shows the same
//! series, and bounded for the life of the process. Counters belong to the label they are shown
//! under, not to a key: a key that has no slot of its own adds to `other`, and goes on doing so.
//!
//! A new registry ends the series of names that it does not give any more, at the next sample, with
//! their counters and their place within the bound; a name that is given again begins anew. What it
//! still calls the same keeps all it has, wherever the entry stands now and whatever its limits. A
//! key that gets its first name leaves its series without a name behind: the counters stand still
//! until their slot comes back like that of any key that was not seen for an hour.
//!
//! Pure. Its input is the tracker's picture and what changed; `metrics` turns it into families.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::blocking::Chains;
use crate::config::{Applications, Limits};
use crate::key::Key;
use crate::map::{HashMap, HashSet};
use crate::memory::{LastHeld, past};
use crate::registry::{Crowd, DeclaredScope, Resolution, Resolver, Signs, UNREGISTERED};
use crate::sample::{DatabaseOid, Names, Pid, Sample};
use crate::slot::Slots;
use crate::timestamp::Timestamp;
use crate::tracker::{Change, KeyId, SessionId, Tracker, WaitOutcome};
use crate::view::{Lock, Party, Picture};

/// `key`, `application_name` or `datname` past its bound.
pub const OTHER: &str = "other";

pub(crate) const NO_APPLICATION: &str = "(none)";
const UNKNOWN_APPLICATION: &str = "(unknown)";
const PREPARED_APPLICATION: &str = "(prepared)";
/// Labels that are no application's own. One that calls itself so shares the label, and no slot.
const RESERVED: [&str; 4] = [OTHER, NO_APPLICATION, UNKNOWN_APPLICATION, PREPARED_APPLICATION];
const SERVER_WIDE: &str = "(server-wide)";

/// A key needs this many polls in a row for a slot of the second half.
const STEADY_POLLS: u32 = 10;
/// Of the keys that a series of the registry stands for, so many are remembered.
const WITNESSES: usize = 8;
/// Of series that do not begin again, what an earlier process saw is kept for so long, and of so
/// many.
const RECALLED_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
const RECALLED: usize = 10_000;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Upper bounds of the duration histograms, in seconds; fixed for the life of the binary.
pub const DURATION_BUCKETS: [f64; 8] = [5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// The labels of every series about a key, beside `server`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct LockSeries {
    /// `datname`
    pub datname: Arc<str>,
    /// `lock`: the registry's name, or `unregistered`
    pub lock: Arc<str>,
    /// `key`: the key, a pattern, or `other`
    pub key: Arc<str>,
}

/// What a key is called, and under which series it counts.
#[derive(Clone, Debug)]
pub struct Label {
    /// The registry's answer.
    pub resolution: Arc<Resolution>,
    /// The database's name, whole, whatever the bound of the label says.
    pub datname: Arc<str>,
    /// The series.
    pub series: LockSeries,
    /// The series is about this key alone.
    pub is_single: bool,
}

/// The label of a key, and for how many polls in a row the key has been there.
#[derive(Clone, Debug)]
struct Seen {
    label: Arc<Label>,
    polls: u32,
}

/// What the keys of one database have in common.
#[derive(Clone, Debug)]
struct DatabaseLabel {
    datname: Arc<str>,
    label: Arc<str>,
    /// Another database of this poll goes by the same label.
    is_shared: bool,
    /// The last label of its keys that have neither a name nor a slot. Nearly all have the same
    /// answer of the registry, and share it.
    folded: Option<Arc<Label>>,
}

/// What never goes back while the process lives.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// By key.
    pub keys: BTreeMap<LockSeries, KeyCounters>,
    /// By key and application.
    pub seconds: BTreeMap<(LockSeries, Arc<str>), Seconds>,
    /// By database and lock.
    pub hold_durations: BTreeMap<(Arc<str>, Arc<str>), Histogram>,
    /// By database, lock and outcome.
    pub wait_durations: BTreeMap<(Arc<str>, Arc<str>, WaitOutcome), Histogram>,
}

/// What polling saw of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyCounters {
    /// Holds that began.
    pub acquisitions: u64,
    /// Waits that began.
    pub waits: u64,
    /// Waits that ended without the lock.
    pub waits_abandoned: u64,
    /// Changes of the session that holds it; `None` where the series stands for many keys.
    pub holder_changes: Option<u64>,
}

/// Session-seconds, integrated over polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seconds {
    /// Held.
    pub hold: f64,
    /// Awaited.
    pub wait: f64,
}

/// A classic histogram over [`DURATION_BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Observations at or below each bound, not summed up.
    pub buckets: [u64; DURATION_BUCKETS.len()],
    /// All observations.
    pub count: u64,
    /// Their sum, in seconds.
    pub sum: f64,
}

/// Another session holds a key than the one that held it last.
#[derive(Clone, Debug)]
pub struct HolderChange {
    /// The key.
    pub key: KeyId,
    /// Who held it, as it was last seen with it.
    pub from: Party,
    /// Who holds it now.
    pub to: SessionId,
}

/// A series that stays once it began: a lock of the registry.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Limits, and whether other fields are armed.
    pub resolution: Arc<Resolution>,
    /// When it was last seen held.
    pub last_held: Option<Sight>,
}

/// A moment at which something was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// On the server's clock.
    pub at: Timestamp,
    /// On ours.
    pub at_local: Timestamp,
}

/// The series of one server.
#[derive(Debug)]
pub struct SeriesSet {
    rules: Arc<Applications>,
    labels: HashMap<KeyId, Seen>,
    /// Of keys that were there at the poll before, and are not any more.
    labels_before: HashMap<KeyId, Seen>,
    application_labels: HashMap<Arc<str>, Arc<str>>,
    slotted: HashMap<KeyId, LockSeries>,
    /// So many keys keep their slots though nobody holds or awaits them.
    kept_for_told: usize,
    databases: Slots<DatabaseOid>,
    quick_keys: Slots<KeyId>,
    steady_keys: Slots<KeyId>,
    registered_keys: Slots<LockSeries>,
    applications: Slots<Arc<str>>,
    registered: BTreeMap<LockSeries, Registered>,
    /// What an earlier process saw of series that have not begun yet.
    recalled: BTreeMap<LockSeries, Sight>,
    /// Keys that were seen under each series of the registry, `other` included: a new registry is
    /// asked whether it still calls one of them so. A few are kept, for an entry of its own may
    /// take one out of a pattern.
    witnesses: HashMap<LockSeries, Vec<KeyId>>,
    last_holder: HashMap<LockSeries, Party>,
    /// Labels of databases, as long as they have a slot.
    datnames: BTreeMap<DatabaseOid, Arc<str>>,
    /// Labels of databases that the registry names: their series are there from the start.
    named: HashSet<Arc<str>>,
    unregistered: Option<Arc<Resolution>>,
    /// Keys that are told of though nobody may hold or await them, the most important first.
    told: Vec<KeyId>,
    /// What the registry says of those that are told of, since they were told of first.
    told_resolutions: HashMap<KeyId, Arc<Resolution>>,
    crowd: Crowd<DatabaseOid>,
    /// Series of the registry that the bound left out.
    past_bound: usize,
    counters: Counters,
    /// Names or the registry are not those that the labels were made of.
    is_stale: bool,
    /// The registry is another one.
    is_reloaded: bool,
}

impl SeriesSet {
    /// No series yet.
    pub fn new(rules: Arc<Applications>, limits: &Limits) -> Self {
        let quick = limits.keys.div_ceil(2);
        let steady = limits.keys - quick;
        Self {
            rules,
            labels: HashMap::default(),
            labels_before: HashMap::default(),
            application_labels: HashMap::default(),
            slotted: HashMap::default(),
            kept_for_told: limits.keys / 4,
            databases: Slots::new(limits.databases, DAY, limits.databases),
            quick_keys: Slots::new(quick, HOUR, 2 * quick),
            steady_keys: Slots::new(steady, HOUR, 2 * steady),
            registered_keys: Slots::new(limits.registered_keys, Duration::MAX, usize::MAX),
            applications: Slots::new(limits.applications, DAY, 2 * limits.applications),
            registered: BTreeMap::new(),
            recalled: BTreeMap::new(),
            witnesses: HashMap::default(),
            last_holder: HashMap::default(),
            datnames: BTreeMap::new(),
            named: HashSet::default(),
            unregistered: None,
            told: Vec::new(),
            told_resolutions: HashMap::default(),
            crowd: Crowd::default(),
            past_bound: 0,
            counters: Counters::default(),
            is_stale: true,
            is_reloaded: false,
        }
    }

    /// Other rules for names of applications, from the next sample on. What was counted stays under the
    /// names it has.
    pub fn observe_applications(&mut self, rules: Arc<Applications>) {
        self.rules = rules;
    }

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The registry's locks that have begun, with or without a holder.
    pub fn registered(&self) -> &BTreeMap<LockSeries, Registered> {
        &self.registered
    }

    /// When keys of the registry were last seen held, by this process or an earlier one.
    pub fn last_held(&self, now: Timestamp) -> Vec<LastHeld> {
        let seen = self.registered.iter().filter_map(|(series, it)| Some((series, it.last_held?)));
        let recalled = self.recalled.iter().map(|(series, sight)| (series, *sight));
        seen.chain(recalled.filter(|(_, sight)| now.since(sight.at) <= RECALLED_FOR))
            .map(|(series, sight)| LastHeld { series: series.clone(), at: sight.at })
            .collect()
    }

    /// Takes over what an earlier process saw, now or when a series begins. What was seen since goes
    /// first.
    pub fn recall(&mut self, last_held: Vec<LastHeld>, sample: &Sample) {
        for LastHeld { series, at } in last_held {
            let Some(at) = past(at, sample.at) else { continue };
            let sight = Sight { at, at_local: sample.local(at) };
            match self.registered.get_mut(&series) {
                Some(registered) => {
                    registered.last_held.get_or_insert(sight);
                }
                None if self.recalled.len() < RECALLED => {
                    self.recalled.insert(series, sight);
                }
                None => {}
            }
        }
    }

    /// What was seen was of another cluster.
    pub fn forget_sights(&mut self) {
        self.recalled.clear();
        for registered in self.registered.values_mut() {
            registered.last_held = None;
        }
    }

    /// How many of the registry's series have no place within the bound: they show no zero, and
    /// count under `other` when they are held.
    pub fn past_bound(&self) -> usize {
        self.past_bound
    }

    /// Names changed: at the next sample every key is asked for anew. Slots and counters stay, and
    /// what ended meanwhile counts under the label it had.
    pub fn forget_labels(&mut self) {
        self.is_stale = true;
    }

    /// The registry changed: as [`Self::forget_labels`], and what only the old one named goes.
    pub fn forget_registry(&mut self) {
        self.forget_labels();
        self.is_reloaded = true;
    }

    /// The scope that the registry declares for a key.
    pub fn declared_scope(
        &self,
        key: KeyId,
        names: &Names,
        resolver: &Resolver,
    ) -> Option<DeclaredScope> {
        match self.labels.get(&key).filter(|_| !self.is_stale) {
            Some(seen) => seen.label.resolution.scope,
            None => resolve(resolver, names, key, Signs::default()).scope,
        }
    }

    /// The label of a key that was held or awaited at the last poll or at the one before.
    pub fn label(&self, key: KeyId) -> Option<&Arc<Label>> {
        self.labels.get(&key).or_else(|| self.labels_before.get(&key)).map(|seen| &seen.label)
    }

    /// The labels of keys that are told of though nobody may hold or await them now, the most
    /// important first. No series begins by that: a key has its own while its slot is its own, which
    /// it keeps for as long as it is told of, and is one of `other` then.
    pub fn labels_of(
        &mut self,
        keys: &[KeyId],
        names: &Names,
        resolver: &Resolver,
    ) -> HashMap<KeyId, Arc<Label>> {
        let mut before = std::mem::take(&mut self.told_resolutions);
        let mut labels = HashMap::default();
        for key in keys {
            let present = self.labels.get(key).map(|seen| seen.label.clone());
            let resolution = match &present {
                Some(label) => label.resolution.clone(),
                None => before.remove(key).unwrap_or_else(|| {
                    self.share(resolve(resolver, names, *key, Signs::default()))
                }),
            };
            let label =
                present.unwrap_or_else(|| self.label_of_free(*key, resolution.clone(), names));
            self.told_resolutions.insert(*key, resolution);
            labels.insert(*key, label);
        }
        self.told = keys.to_vec();
        labels
    }

    /// The label of an application name as the server has it; `None` where no name is known.
    pub fn application_label(&self, name: Option<&Arc<str>>) -> Arc<str> {
        match name {
            None => UNKNOWN_APPLICATION.into(),
            Some(name) => match self.application_labels.get(name) {
                Some(label) => label.clone(),
                None => OTHER.into(),
            },
        }
    }

    /// The label of a transaction that has no session, and so no application.
    pub fn prepared_label(&self) -> Arc<str> {
        PREPARED_APPLICATION.into()
    }

    /// Databases that have a label of their own, in order.
    pub fn datnames(&self) -> impl Iterator<Item = &Arc<str>> {
        self.datnames.values().chain(&self.named).collect::<BTreeSet<_>>().into_iter()
    }

    /// Decides the labels of every key and application that is there now.
    pub fn observe_labels(
        &mut self,
        sample: &Sample,
        tracker: &Tracker,
        chains: &Chains,
        names: &Names,
        resolver: &Resolver,
    ) {
        let now = sample.at_local;
        // Once each and in order, and whether it is awaited; a sorted list, since there may be very many.
        let held = tracker.holds().keys().map(|id| (id.key, false));
        let awaited = tracker.waits().keys().map(|id| (id.key, true));
        let mut present: Vec<(KeyId, bool)> = held.chain(awaited).collect();
        present.sort_unstable_by_key(|(key, is_awaited)| (*key, std::cmp::Reverse(*is_awaited)));
        present.dedup_by_key(|(key, _)| *key);
        let keys = || present.iter().map(|(key, _)| key);
        let applications = self.rename_applications(sample, chains);
        // Who is here keeps what it has, however long the last poll was ago; only then do slots
        // come back.
        for key in keys() {
            self.databases.keep(&key.database, now);
            // A slot that the key had before it got a name is for others.
            if self.labels.get(key).is_none_or(|seen| seen.label.resolution.lock.is_none()) {
                self.quick_keys.keep(key, now);
                self.steady_keys.keep(key, now);
            }
        }
        for (_, label) in &applications {
            self.applications.keep(label, now);
        }
        // Not all of them: those that are there now need slots too.
        let is_nameless = |key: &&KeyId| {
            self.told_resolutions.get(key).is_some_and(|resolution| resolution.lock.is_none())
        };
        for key in self.told.iter().filter(is_nameless).take(self.kept_for_told) {
            self.quick_keys.keep(key, now);
            self.steady_keys.keep(key, now);
        }
        for key in &self.told {
            self.databases.keep(&key.database, now);
        }
        self.release_idle(now);
        if self.is_stale {
            // What was seen of a key made its name credible, and may be gone for the moment.
            for (key, resolution) in &mut self.told_resolutions {
                let signs = Signs { believed: resolution.lock.as_deref(), ..Signs::default() };
                *resolution = Arc::new(resolve(resolver, names, *key, signs));
            }
            let armed = self.armed(resolver);
            if std::mem::take(&mut self.is_reloaded) {
                self.release_unnamed(&armed, resolver, names);
            }
            self.arm(armed, now);
        }

        // Before any name is given, for the first of many ids may be the number of a preset.
        let is_new = |key: &&KeyId| self.is_stale || !self.labels.contains_key(key);
        for key in keys().filter(is_new) {
            let numbers = resolver.preset_numbers();
            if Crowd::<DatabaseOid>::is_near(key.key, numbers)
                && resolve(resolver, names, *key, Signs::default()).lock.is_none()
            {
                self.crowd.observe(key.database, key.key, numbers);
            }
        }

        let mut databases = self.label_databases(keys(), names, now);
        let mut before = std::mem::take(&mut self.labels);
        let mut holders: Option<HashMap<KeyId, Vec<Arc<str>>>> = None;
        // In order of the key, so that who comes first does not depend on a hash map.
        for (key, is_awaited) in present {
            let Some(database) = databases.get_mut(&key.database) else { continue };
            let seen = before.remove(&key);
            let polls = seen.as_ref().map_or(0, |seen| seen.polls).saturating_add(1);
            let known = seen.map(|seen| seen.label).filter(|_| !self.is_stale);
            // Without activity nothing speaks for another answer than before.
            let is_settled = |label: &Label| !label.resolution.is_open || sample.backends.is_none();
            let resolution = match &known {
                Some(label) if is_settled(label) => label.resolution.clone(),
                Some(_) | None => {
                    let mut resolution = resolve(resolver, names, key, Signs::default());
                    if resolution.is_open {
                        let holders = holders.get_or_insert_with(|| holder_names(sample, tracker));
                        let signs = Signs {
                            applications: holders.get(&key).map_or(&[], Vec::as_slice),
                            is_crowded: self.crowd.surrounds(key.database, key.key),
                            believed: None,
                        };
                        resolution = resolve(resolver, names, key, signs);
                    }
                    self.share(resolution)
                }
            };
            let is_steady = is_awaited || polls >= STEADY_POLLS;
            let label = self.decide_label(key, is_steady, known, resolution, database, now);
            self.labels.insert(key, Seen { label, polls });
        }
        self.labels_before = before;
        self.is_stale = false;
        self.application_labels = applications
            .into_iter()
            .map(|(name, label)| {
                let is_own = RESERVED.contains(&&*label) || self.applications.take(&label, now);
                (name, if is_own { label } else { OTHER.into() })
            })
            .collect();
    }

    /// Counts what changed since the last poll, and the time since then for all who hold or wait.
    /// Returns the changes of holders that it counted.
    pub fn count(
        &mut self,
        picture: &Picture,
        changes: &[Change],
        elapsed: Duration,
    ) -> Vec<HolderChange> {
        let mut holder_changes = Vec::new();
        let mut begun: HashSet<KeyId> = HashSet::default();
        for change in changes {
            self.count_change(change);
            if let Change::HoldBegan { id } = change {
                begun.insert(id.key);
            }
        }
        for lock in &picture.locks {
            self.count_lock(lock, elapsed);
            holder_changes.extend(self.observe_holder(lock, begun.contains(&lock.id)));
            if let Some(registered) = self.registered.get_mut(&lock.label.series)
                && !lock.holders.is_empty()
            {
                registered.last_held = Some(Sight { at: picture.at, at_local: picture.at_local });
            }
        }
        holder_changes
    }

    fn decide_label(
        &mut self,
        key: KeyId,
        is_steady: bool,
        known: Option<Arc<Label>>,
        resolution: Arc<Resolution>,
        database: &mut DatabaseLabel,
        now: Timestamp,
    ) -> Arc<Label> {
        let datname = database.label.clone();
        // A lock of the registry keeps its series, so nothing is left to decide for most keys.
        if let Some(label) = &known
            && Arc::ptr_eq(&label.resolution, &resolution)
            && resolution.lock.is_some()
            && label.series.datname == datname
            && &*label.series.key != OTHER
            && label.is_single == (resolution.pattern.is_none() && !database.is_shared)
        {
            return label.clone();
        }
        let series = match &resolution.lock {
            Some(lock) => self.decide_registered(datname, lock, key, &resolution, now),
            // Under a label that several databases share one number would be two keys.
            None if database.is_shared || !self.has_slot(key, is_steady, now) => {
                // What the registry says of a key is about this key, whatever it counts under.
                if let Some(folded) = &database.folded
                    && Arc::ptr_eq(&folded.resolution, &resolution)
                {
                    return folded.clone();
                }
                let series = LockSeries { datname, lock: UNREGISTERED.into(), key: OTHER.into() };
                let datname = database.datname.clone();
                let label = Arc::new(Label { resolution, datname, series, is_single: false });
                database.folded = Some(label.clone());
                return label;
            }
            None => {
                let text = key.key.to_string().into();
                let series = LockSeries { datname, lock: UNREGISTERED.into(), key: text };
                self.slotted.insert(key, series.clone());
                series
            }
        };
        let is_single =
            resolution.pattern.is_none() && &*series.key != OTHER && !database.is_shared;
        match known {
            Some(label)
                if label.series == series
                    && label.is_single == is_single
                    && (Arc::ptr_eq(&label.resolution, &resolution)
                        || label.resolution == resolution) =>
            {
                label
            }
            Some(_) | None => {
                let datname = database.datname.clone();
                Arc::new(Label { resolution, datname, series, is_single })
            }
        }
    }

    /// The label of a key that nobody holds or awaits: a series that is there already, or `other`.
    fn label_of_free(&self, key: KeyId, resolution: Arc<Resolution>, names: &Names) -> Arc<Label> {
        let whole = datname(names, key.database);
        let mut datname = clean_label(&whole);
        if !self.databases.has(&key.database) && !self.named.contains(&datname) {
            datname = OTHER.into();
        }
        let own = match &resolution.lock {
            None => self.slotted.get(&key).filter(|series| series.datname == datname).cloned(),
            Some(lock) => key_label(&resolution, Some(key.key))
                .map(|key| LockSeries { datname: datname.clone(), lock: lock.clone(), key })
                .filter(|series| self.registered.contains_key(series)),
        };
        let lock = || resolution.label().into();
        let is_single = own.is_some() && resolution.pattern.is_none();
        let series = own.unwrap_or_else(|| LockSeries { datname, lock: lock(), key: OTHER.into() });
        Arc::new(Label { resolution, datname: whole, series, is_single })
    }

    /// One copy for all keys without a name, of which there may be very many.
    fn share(&mut self, resolution: Resolution) -> Arc<Resolution> {
        if let Some(shared) = self.unregistered.as_ref().filter(|shared| ***shared == resolution) {
            return shared.clone();
        }
        let resolution = Arc::new(resolution);
        if resolution.lock.is_none() && resolution.candidates.is_empty() {
            self.unregistered = Some(resolution.clone());
        }
        resolution
    }

    /// Half of the slots go to whoever comes first; the other half only to keys that stay or keep
    /// somebody waiting, so that a stream of short job keys does not crowd out the one that
    /// matters.
    fn has_slot(&mut self, key: KeyId, is_steady: bool, now: Timestamp) -> bool {
        self.steady_keys.keep(&key, now)
            || self.quick_keys.take(&key, now)
            || (is_steady && self.steady_keys.take(&key, now))
    }

    /// A lock of the registry begins its series when its key is first seen, and keeps it.
    fn decide_registered(
        &mut self,
        datname: Arc<str>,
        lock: &Arc<str>,
        key: KeyId,
        resolution: &Arc<Resolution>,
        now: Timestamp,
    ) -> LockSeries {
        let text = resolution.pattern.clone().unwrap_or_else(|| key.key.to_string().into());
        let series = LockSeries { datname, lock: lock.clone(), key: text };
        let series = if self.registered_keys.take(&series, now) {
            if !self.registered.contains_key(&series) {
                self.begin_registered(series.clone(), resolution.clone());
            }
            series
        } else {
            LockSeries { key: OTHER.into(), ..series }
        };
        let witnesses = self.witnesses.entry(series.clone()).or_default();
        if witnesses.len() < WITNESSES && !witnesses.contains(&key) {
            witnesses.push(key);
        }
        series
    }

    fn label_databases<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a KeyId>,
        names: &Names,
        now: Timestamp,
    ) -> BTreeMap<DatabaseOid, DatabaseLabel> {
        let present: BTreeSet<DatabaseOid> = keys.map(|key| key.database).collect();
        let mut databases = BTreeMap::new();
        for database in present {
            let datname = datname(names, database);
            let label = self.decide_datname(database, &datname, now);
            let is_shared = &*label == OTHER
                || (&*label == SERVER_WIDE && database != DatabaseOid::SERVER_WIDE);
            databases.insert(database, DatabaseLabel { datname, label, is_shared, folded: None });
        }
        let mut by_label: HashMap<Arc<str>, u32> = HashMap::default();
        for database in databases.values() {
            *by_label.entry(database.label.clone()).or_default() += 1;
        }
        for database in databases.values_mut() {
            database.is_shared |= by_label[&database.label] > 1;
        }
        databases
    }

    fn decide_datname(
        &mut self,
        database: DatabaseOid,
        name: &Arc<str>,
        now: Timestamp,
    ) -> Arc<str> {
        let label = clean_label(name);
        if !self.databases.take(&database, now) && !self.named.contains(&label) {
            return OTHER.into();
        }
        let before = self.datnames.insert(database, label.clone());
        if before.is_some_and(|before| before != label) {
            self.release_datnames();
        }
        label
    }

    /// The series of entries that name their databases.
    fn armed(&self, resolver: &Resolver) -> Vec<(LockSeries, Arc<Resolution>)> {
        let series = resolver.armed().into_iter().map(|armed| {
            let series = LockSeries {
                datname: clean_label(&armed.datname),
                lock: armed.resolution.label().into(),
                key: armed.key,
            };
            (series, Arc::new(armed.resolution))
        });
        series.collect()
    }

    /// Entries that name their databases have their series from the first poll on, at 0.
    fn arm(&mut self, armed: Vec<(LockSeries, Arc<Resolution>)>, now: Timestamp) {
        self.named.clear();
        self.past_bound = 0;
        for (series, resolution) in armed {
            self.named.insert(series.datname.clone());
            if self.registered_keys.take(&series, now) {
                match self.registered.get_mut(&series) {
                    Some(registered) => registered.resolution = resolution,
                    None => self.begin_registered(series, resolution),
                }
            } else {
                self.past_bound += 1;
            }
        }
    }

    /// Ends the series of names that a new registry does not give any more, and gives the others
    /// their new limits.
    fn release_unnamed(
        &mut self,
        armed: &[(LockSeries, Arc<Resolution>)],
        resolver: &Resolver,
        names: &Names,
    ) {
        // A database past the bound has a label only while the registry names it.
        let named: HashSet<&Arc<str>> = armed.iter().map(|(series, _)| &series.datname).collect();
        let databases = &self.databases;
        self.datnames.retain(|oid, label| databases.has(oid) || named.contains(label));

        let mut kept = self.still_named(&named, resolver, names);
        kept.extend(armed.iter().cloned());
        self.registered.retain(|series, registered| {
            let resolution = kept.get(series);
            registered.resolution = resolution.unwrap_or(&registered.resolution).clone();
            resolution.is_some()
        });
        self.registered_keys.retain(|series| kept.contains_key(series));
        self.witnesses.retain(|series, _| kept.contains_key(series));
        let is_kept =
            |series: &LockSeries| &*series.lock == UNREGISTERED || kept.contains_key(series);
        self.counters.keys.retain(|series, _| is_kept(series));
        self.counters.seconds.retain(|(series, _), _| is_kept(series));
        self.last_holder.retain(|series, _| is_kept(series));
        let locks: HashSet<(&str, &str)> =
            kept.keys().map(|series| (&*series.datname, &*series.lock)).collect();
        let is_named =
            |datname: &str, lock: &str| lock == UNREGISTERED || locks.contains(&(datname, lock));
        self.counters.hold_durations.retain(|(datname, lock), _| is_named(datname, lock));
        self.counters.wait_durations.retain(|(datname, lock, _), _| is_named(datname, lock));
        self.release_datnames();
    }

    /// The series of which a key was seen that a new registry, which names these databases, still
    /// calls the same.
    fn still_named(
        &self,
        databases: &HashSet<&Arc<str>>,
        resolver: &Resolver,
        names: &Names,
    ) -> HashMap<LockSeries, Arc<Resolution>> {
        let labels: HashSet<&Arc<str>> = self.datnames.values().collect();
        let has_label = |datname: &Arc<str>| {
            !self.named.contains(datname) || databases.contains(datname) || labels.contains(datname)
        };
        let same = |series: &LockSeries, key: &KeyId| {
            // What was seen of the key made its name credible, and may be gone for the moment.
            let signs = Signs { believed: Some(&series.lock), ..Signs::default() };
            let resolution = resolve(resolver, names, *key, signs);
            let is_same = resolution.lock.as_ref() == Some(&series.lock)
                && (&*series.key == OTHER
                    || key_label(&resolution, Some(key.key)).as_ref() == Some(&series.key));
            is_same.then(|| Arc::new(resolution))
        };
        // Of many keys those that were seen may be gone for others, as values of a query do.
        let patterns = resolver.patterns();
        let pattern = |series: &LockSeries| {
            let resolution = patterns.get(&(series.lock.clone(), series.key.clone()))?;
            Some(Arc::new(resolution.clone()))
        };
        self.witnesses
            .iter()
            .filter(|(series, _)| has_label(&series.datname))
            .filter_map(|(series, keys)| {
                let resolution = keys.iter().find_map(|key| same(series, key));
                Some((series.clone(), resolution.or_else(|| pattern(series))?))
            })
            .collect()
    }

    fn begin_registered(&mut self, series: LockSeries, resolution: Arc<Resolution>) {
        let counters = self.counters.keys.entry(series.clone()).or_default();
        if resolution.pattern.is_none() {
            counters.holder_changes.get_or_insert(0);
        }
        let last_held = self.recalled.remove(&series);
        self.registered.insert(series, Registered { resolution, last_held });
    }

    /// The names of all who hold or wait, and of the roots of those who wait, in the server's order,
    /// as the rules and the format make them.
    fn rename_applications(&self, sample: &Sample, chains: &Chains) -> Vec<(Arc<str>, Arc<str>)> {
        let mut involved: HashSet<Pid> =
            sample.advisory.iter().filter_map(|group| group.pid).collect();
        let mut read = HashSet::default();
        let waiting = sample.advisory.iter().filter(|group| !group.granted);
        for waiter in waiting.filter_map(|group| group.pid) {
            let roots = chains.roots(&SessionId::Backend(waiter));
            // Waiters of one end share the list.
            if read.insert(roots.as_ptr()) {
                involved.extend(roots.iter().filter_map(|root| root.id.pid()));
            }
        }
        let mut renamed: HashSet<Arc<str>> = HashSet::default();
        sample
            .backends
            .iter()
            .flatten()
            .filter(|backend| involved.contains(&backend.pid))
            .filter_map(|backend| backend.application_name.clone())
            .filter(|name| renamed.insert(name.clone()))
            .map(|name| {
                let label = clean_label(&self.rules.rename(&name));
                (name, if label.is_empty() { NO_APPLICATION.into() } else { label })
            })
            .collect()
    }

    fn count_change(&mut self, change: &Change) {
        let Some(label) = self.label(change.key()).cloned() else { return };
        let LockSeries { datname, lock, .. } = label.series.clone();
        let has_begun = match change {
            Change::HoldBegan { .. } | Change::WaitBegan { .. } => true,
            Change::HoldEnded { .. } | Change::WaitEnded { .. } => false,
        };
        // What ended may have been the last of a series that is gone since the poll before.
        if !has_begun && !self.counters.keys.contains_key(&label.series) {
            return;
        }
        let counters = self.counters.keys.entry(label.series.clone()).or_default();
        match change {
            Change::HoldBegan { .. } => counters.acquisitions += 1,
            Change::HoldEnded { duration: None, .. } => {}
            Change::HoldEnded { duration: Some(duration), .. } => {
                self.counters.hold_durations.entry((datname, lock)).or_default().observe(*duration);
            }
            Change::WaitBegan { .. } => counters.waits += 1,
            Change::WaitEnded { outcome, duration, .. } => {
                counters.waits_abandoned += u64::from(*outcome == WaitOutcome::Gone);
                self.counters
                    .wait_durations
                    .entry((datname, lock, *outcome))
                    .or_default()
                    .observe(*duration);
            }
        }
    }

    fn count_lock(&mut self, lock: &Lock, elapsed: Duration) {
        let series = &lock.label.series;
        let counters = self.counters.keys.entry(series.clone()).or_default();
        if lock.label.is_single {
            counters.holder_changes.get_or_insert(0);
        }
        let mut add = |application: &Arc<str>, hold: f64, wait: f64| {
            let seconds =
                self.counters.seconds.entry((series.clone(), application.clone())).or_default();
            seconds.hold += hold;
            seconds.wait += wait;
        };
        for holder in &lock.holders {
            add(&holder.session.application_label, elapsed.as_secs_f64(), 0.0);
        }
        for waiter in &lock.waiters {
            add(&waiter.session.application_label, 0.0, elapsed.as_secs_f64());
        }
    }

    /// A change of the session that holds a key alone. Readers that come and go are no change.
    fn observe_holder(&mut self, lock: &Lock, has_begun: bool) -> Option<HolderChange> {
        if !lock.label.is_single {
            return None;
        }
        let holder = lock.holders.iter().find(|holder| holder.mode.conflicts_with(&holder.mode))?;
        let now = Party::of_holder(holder);
        let before = self.last_holder.insert(lock.label.series.clone(), now.clone());
        // Without a hold that began it is the same holder: a start that was hidden has become
        // visible, or its transaction was prepared.
        let from = before.filter(|before| has_begun && !before.is_same(&now))?;
        let counters = self.counters.keys.get_mut(&lock.label.series)?;
        counters.holder_changes = counters.holder_changes.map(|changes| changes + 1);
        Some(HolderChange { key: lock.id, from, to: now.id })
    }

    /// Takes back slots, and with them the counters that nobody adds to any more.
    fn release_idle(&mut self, now: Timestamp) {
        let mut keys = self.quick_keys.release_idle(now);
        keys.extend(self.steady_keys.release_idle(now));
        let gone: HashSet<LockSeries> =
            keys.iter().filter_map(|key| self.slotted.remove(key)).collect();
        let applications = self.applications.release_idle(now);
        let databases = self.databases.release_idle(now);
        if !databases.is_empty() {
            for database in databases {
                self.datnames.remove(&database);
            }
            self.release_datnames();
        }
        if gone.is_empty() && applications.is_empty() {
            return;
        }
        self.counters.keys.retain(|series, _| !gone.contains(series));
        self.counters.seconds.retain(|(series, application), _| {
            !gone.contains(series) && !applications.contains(application)
        });
        self.last_holder.retain(|series, _| !gone.contains(series));
    }

    /// Forgets what was counted under a database's label that nothing has any more.
    fn release_datnames(&mut self) {
        let mut kept: HashSet<&str> = self.datnames.values().map(|label| &**label).collect();
        kept.extend(self.registered.keys().map(|series| &*series.datname));
        kept.insert(OTHER);
        self.counters.keys.retain(|series, _| kept.contains(&*series.datname));
        self.counters.seconds.retain(|(series, _), _| kept.contains(&*series.datname));
        self.counters.hold_durations.retain(|(datname, _), _| kept.contains(&**datname));
        self.counters.wait_durations.retain(|(datname, ..), _| kept.contains(&**datname));
        self.last_holder.retain(|series, _| kept.contains(&*series.datname));
    }
}

impl Histogram {
    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(bucket) = DURATION_BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// The `key` label: the key, or the pattern that stands for it.
fn key_label(resolution: &Resolution, key: Option<Key>) -> Option<Arc<str>> {
    match &resolution.pattern {
        Some(pattern) => Some(pattern.clone()),
        None => key.map(|key| key.to_string().into()),
    }
}

fn resolve(resolver: &Resolver, names: &Names, key: KeyId, signs: Signs<'_>) -> Resolution {
    let database = names.databases.get(&key.database).map(|database| &*database.name);
    resolver.resolve(database, key.key, signs)
}

/// What those who hold a key call themselves.
fn holder_names(sample: &Sample, tracker: &Tracker) -> HashMap<KeyId, Vec<Arc<str>>> {
    let names: HashMap<Pid, &Arc<str>> = sample
        .backends
        .iter()
        .flatten()
        .filter_map(|backend| Some((backend.pid, backend.application_name.as_ref()?)))
        .collect();
    let mut holders: HashMap<KeyId, Vec<Arc<str>>> = HashMap::default();
    for id in tracker.holds().keys() {
        if let Some(name) = id.holder.pid().and_then(|pid| names.get(&pid)) {
            holders.entry(id.key).or_default().push((*name).clone());
        }
    }
    holders
}

/// The database's name; its OID in digits where it has none, or none that we could read.
fn datname(names: &Names, database: DatabaseOid) -> Arc<str> {
    match names.databases.get(&database) {
        Some(known) => known.name.clone(),
        None if database == DatabaseOid::SERVER_WIDE => SERVER_WIDE.into(),
        None => database.to_string().into(),
    }
}

/// A control character in a name would tear a line somewhere on its way to a person, and two names
/// that differ in nothing else would be one series written twice.
fn clean_label(text: &str) -> Arc<str> {
    if text.chars().any(char::is_control) {
        text.replace(char::is_control, "\u{fffd}").into()
    } else {
        text.into()
    }
}
