//! One server: samples go in, pictures come out.
//!
//! Everything between reading and publishing meets here, in the order it depends on each other:
//! the tracker says what is one hold, the chains who waits for whom, the series say under which
//! labels it counts, the picture is drawn, what changed is counted, keys taken in both orders are
//! found, the picture is judged, and what happened is remembered as events. Pure, so a test can drive
//! it with samples and a clock of its own.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::Chains;
use crate::config::{Applications, Limits, Poolers, Thresholds};
use crate::event::{Event, Findings, History, Notice, Notices};
use crate::finding::{Judge, Moment};
use crate::inspected::Answers;
use crate::memory::{FIRST_NAMES, FirstName, Memory};
use crate::order::{Orders, Scene};
use crate::registry::{Circumstances, HashCall, HashCheck, Registry, Resolver};
use crate::sample::{ClientAddress, DatabaseOid, Names, Pid, RoleOid, Sample};
use crate::series::SeriesSet;
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, Tracker};
use crate::view::{Holder, Picture, View};

/// What is known of one server, from the samples so far.
#[derive(Debug)]
pub struct Fold {
    server: Arc<str>,
    /// What the server told that names depend on.
    told: Circumstances,
    resolver: Resolver,
    names: Names,
    tracker: Tracker,
    series: SeriesSet,
    history: Arc<History>,
    notices: Notices,
    /// The last one, to tell of what is gone since. Whoever publishes it has it too.
    picture: Option<Arc<Picture>>,
    orders: Orders,
    judge: Judge,
    /// A pooler stands between us and the server, for certain.
    is_pooled: bool,
    findings: Findings,
    /// Told by every 15th sample only.
    table_entries: Option<u64>,
    previous: Option<Timestamp>,
    observed: Duration,
    /// Somebody keeps what is to be remembered.
    is_remembered: bool,
    memory: Option<Arc<Memory>>,
    /// What an earlier process knew, until the next sample.
    recalled: Option<Memory>,
    /// First names from then, until activity tells which backends are still the same.
    recalled_names: Vec<FirstName>,
}

/// A number that stands for a name we do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nameless {
    /// A database.
    Database(DatabaseOid),
    /// A role.
    Role(RoleOid),
}

impl Fold {
    /// Nothing is known yet.
    pub fn new(
        server: Arc<str>,
        registry: Arc<Registry>,
        applications: Arc<Applications>,
        limits: &Limits,
        thresholds: Thresholds,
    ) -> Self {
        Self {
            told: Circumstances::default(),
            resolver: Resolver::new(registry, server.clone(), &Circumstances::default()),
            server,
            names: Names::default(),
            tracker: Tracker::default(),
            series: SeriesSet::new(applications.clone(), limits),
            judge: Judge::new(thresholds, applications),
            findings: Findings::default(),
            history: Arc::default(),
            notices: Notices::default(),
            picture: None,
            orders: Orders::default(),
            is_pooled: false,
            table_entries: None,
            previous: None,
            observed: Duration::ZERO,
            is_remembered: false,
            memory: None,
            recalled: None,
            recalled_names: Vec::new(),
        }
    }

    /// The same, with the addresses of the server's poolers.
    pub fn with_poolers(mut self, poolers: Poolers) -> Self {
        self.judge = self.judge.with_poolers(poolers);
        self
    }

    /// How many of the registry's series are past their bound.
    pub fn past_bound(&self) -> usize {
        self.series.past_bound()
    }

    /// What databases told makes more keys than the bound allows.
    pub fn is_past_max_keys(&self) -> bool {
        self.resolver.is_past_max_keys()
    }

    /// Puts into a view what does not go with a picture: it stays after a failed poll.
    pub fn fill(&self, view: &mut View) {
        view.polls.observed = self.observed;
        view.table_entries = self.table_entries;
        view.events = self.history.clone();
        view.memory = self.memory.clone();
        view.counters = Arc::new(self.series.counters().clone());
        view.registered = Arc::new(self.series.registered().clone());
        view.datnames = self.series.datnames().cloned().collect();
    }

    /// Tells with each view what is to be remembered.
    pub fn remember(&mut self) {
        self.is_remembered = true;
    }

    /// Goes on from what an earlier process knew of this server, from the next sample on. What this
    /// one has seen since goes first.
    pub fn restore(&mut self, memory: Memory) {
        self.recalled = Some(memory);
        // What was known without it is less than what was known before.
        self.memory = None;
    }

    /// Another cluster answers under the server's name: when its keys were held, and in which order
    /// they were taken, nobody saw.
    pub fn observe_other_cluster(&mut self) {
        self.series.forget_sights();
        self.orders = Orders::default();
        self.judge.observe_other_cluster();
        (self.recalled, self.memory) = (None, None);
        self.recalled_names.clear();
    }

    /// What is to be remembered; empty before the first sample.
    pub fn memory(&self) -> Memory {
        let Some(picture) = &self.picture else { return Memory::default() };
        Memory {
            last_held: self.series.last_held(picture.at),
            expectations: self.judge.expectations(),
            first_names: first_names(picture, &self.judge),
        }
    }

    /// Takes all events for worth a line in the log.
    pub fn tell_all_events(&mut self) {
        self.notices.tell_all();
    }

    /// What the last sample showed that is worth a line in the log.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let now = self.previous.unwrap_or(Timestamp::from_unix_micros(0));
        self.notices.take(now)
    }

    /// Other names of applications and other thresholds: both follow at the next sample.
    pub fn observe_rules(&mut self, applications: Arc<Applications>, thresholds: Thresholds) {
        self.series.observe_applications(applications.clone());
        self.judge.observe_rules(thresholds, applications);
    }

    /// A new registry: labels, limits and declared scopes follow at the next sample. Hashes have to
    /// be compared with the server's anew.
    pub fn observe_registry(&mut self, registry: Arc<Registry>) {
        self.told.server_hashes.clear();
        self.resolver = Resolver::new(registry, self.server.clone(), &self.told);
        self.series.forget_registry();
    }

    /// New names: labels follow at the next sample.
    pub fn observe_names(&mut self, names: Names) {
        if names.databases != self.names.databases {
            self.told.databases = names
                .databases
                .values()
                .map(|database| (database.name.clone(), database.encoding.clone()))
                .collect();
            self.renew_resolver();
            self.series.forget_labels();
        }
        self.names = names;
    }

    /// What databases answered to the questions of the registry.
    pub fn observe_answers(&mut self, answers: Arc<Answers>) {
        if !Arc::ptr_eq(&answers, &self.told.answers) {
            self.told.answers = answers;
            self.renew_resolver();
            self.series.forget_registry();
        }
    }

    /// Hashes of the registry that the server computes differently, with its values: they are what
    /// its sessions lock.
    pub fn observe_server_hashes(&mut self, server_hashes: HashMap<HashCall, i64>) {
        if server_hashes != self.told.server_hashes {
            self.told.server_hashes = server_hashes;
            self.renew_resolver();
            self.series.forget_registry();
        }
    }

    /// How many entries the server's lock table promises to hold, once it told.
    pub fn observe_table_capacity(&mut self, capacity: Option<u64>) {
        self.judge.observe_table_capacity(capacity);
    }

    /// Whether a pooler was proved to stand between us and the server.
    pub const fn observe_pooled_connection(&mut self, is_pooled: bool) {
        self.is_pooled = is_pooled;
    }

    /// From where the pooler before the server reaches it, if our own connection shows that.
    fn own_pooler(&self, sample: &Sample) -> Option<ClientAddress> {
        let own = sample.backends.iter().flatten().find(|one| one.pid == sample.own_pid);
        let own = own.filter(|_| self.is_pooled)?;
        ClientAddress::from_columns(own.client_addr, own.client_port)
    }

    fn renew_resolver(&mut self) {
        let registry = self.resolver.registry().clone();
        self.resolver = Resolver::new(registry, self.server.clone(), &self.told);
    }

    /// Hashes that keys were computed from, to be compared with the server's.
    pub fn hash_checks(&self) -> &Arc<[HashCheck]> {
        self.resolver.hash_checks()
    }

    /// Databases that the registry names for this server and the server does not have. Their
    /// entries name nothing, so it is likely that one of the two is misspelt.
    pub fn missing_databases(&self) -> BTreeSet<Arc<str>> {
        let known: HashSet<&str> =
            self.names.databases.values().map(|database| &*database.name).collect();
        let named = self.resolver.named_databases();
        named.into_iter().filter(|datname| !known.contains(&**datname)).collect()
    }

    /// What the sample speaks of and no name is known for.
    pub fn nameless(&self, sample: &Sample) -> HashSet<Nameless> {
        let databases = sample
            .advisory
            .iter()
            .map(|group| group.database)
            .filter(|oid| *oid != DatabaseOid::SERVER_WIDE)
            .filter(|oid| !self.names.databases.contains_key(oid))
            .map(Nameless::Database);
        let involved: HashSet<Pid> = sample.advisory.iter().filter_map(|group| group.pid).collect();
        let roles = sample
            .backends
            .iter()
            .flatten()
            .filter(|backend| involved.contains(&backend.pid))
            .filter_map(|backend| backend.role)
            .filter(|oid| !self.names.roles.contains_key(oid))
            .map(Nameless::Role);
        databases.chain(roles).collect()
    }

    /// Folds one sample in and draws the picture after it. `longest_gap` caps the time for which
    /// the sample is taken to stand.
    pub fn observe(&mut self, sample: &Sample, longest_gap: Duration) -> Arc<Picture> {
        let elapsed =
            self.previous.map_or(Duration::ZERO, |previous| sample.at_local.since(previous));
        let elapsed = elapsed.min(longest_gap);
        self.previous = Some(sample.at_local);
        self.observed += elapsed;
        self.table_entries = sample.table_entries.or(self.table_entries);

        let declared = |key| self.series.declared_scope(key, &self.names, &self.resolver);
        let changes = self.tracker.observe(sample, declared);
        if let Some(memory) = self.recalled.take() {
            self.recalled_names = memory.first_names;
            self.series.recall(memory.last_held, sample);
            self.judge.recall(memory.expectations, sample.at);
        }
        if sample.backends.is_some() {
            let names = std::mem::take(&mut self.recalled_names);
            self.judge.recall_idle_names(&names);
            self.tracker.recall_first_names(names);
        }
        let chains = Chains::of(sample, &self.tracker);
        let (tracker, names) = (&self.tracker, &self.names);
        self.series.observe_labels(sample, tracker, &chains, names, &self.resolver);
        let mut picture = Picture::draw(sample, tracker, chains, names, &self.series);
        let holder_changes = self.series.count(&picture, &changes, elapsed);
        let before = self.picture.as_deref();
        let scene = Scene { sample, tracker, changes: &changes, picture: &picture, before };
        self.orders.observe(scene);
        let (series, resolver) = (&mut self.series, &self.resolver);
        let labels = |keys: &[KeyId]| series.labels_of(keys, names, resolver);
        picture.inversions = self.orders.inversions(picture.at_local, labels);
        let registered = self.series.registered();
        let own_pooler = self.own_pooler(sample);
        let names = &self.names;
        let moment = Moment { changes: &changes, elapsed, registered, names, own_pooler };
        self.judge.observe(&mut picture, moment);
        let picture = Arc::new(picture);
        let before = self.picture.take();
        self.notices.observe_picture(before.as_deref(), &picture);
        let findings = self.findings.observe(before.as_deref(), &picture);
        if !changes.is_empty() || !findings.is_empty() {
            let events = Event::draw_all(before.as_deref(), &picture, &changes, &holder_changes);
            // Readers have the one before, so this copies it: pointers, no events.
            let history = Arc::make_mut(&mut self.history);
            for event in events.chain(findings).map(Arc::new) {
                self.notices.observe_event(&event);
                history.push(event);
            }
        }
        self.picture = Some(picture.clone());
        if self.is_remembered {
            self.memory = Some(Arc::new(self.memory()));
        }
        picture
    }
}

/// Of the present holders that can be known again; where there are very many, of the oldest.
fn first_names(picture: &Picture, judge: &Judge) -> Vec<FirstName> {
    let known = |holder: &Holder| {
        let name = holder.first_application_name.clone();
        Some((holder.id.pid()?, holder.session.backend_start?, name?))
    };
    let locks = picture.locks.iter();
    let mut holders: Vec<(KeyId, &Holder)> = locks
        .flat_map(|lock| lock.holders.iter().map(|holder| (lock.id, holder)))
        .filter(|(_, holder)| known(holder).is_some())
        .collect();
    let order = |(a_key, a): &(KeyId, &Holder), (b_key, b): &(KeyId, &Holder)| {
        (a.since, &a.id, a_key).cmp(&(b.since, &b.id, b_key))
    };
    if holders.len() > FIRST_NAMES {
        holders.select_nth_unstable_by(FIRST_NAMES, order);
        holders.truncate(FIRST_NAMES);
    }
    holders.sort_unstable_by(order);
    holders
        .into_iter()
        .filter_map(|(key, holder)| Some((key, holder, known(holder)?)))
        .flat_map(|(key, holder, (pid, backend_start, application_name))| {
            holder.modes().map(move |mode| FirstName {
                database: key.database,
                key: key.key.to_string().into(),
                pid,
                backend_start,
                mode: mode.clone(),
                application_name: application_name.clone(),
                seen_to_begin: holder.seen_to_begin,
                idle_name: judge.idle_name(key, holder).cloned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod replay;
