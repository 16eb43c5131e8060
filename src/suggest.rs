//! `locks registry suggest`: keys without a name → registry entries to begin with.
//!
//! Snapshots go in, one a look, and a registry file comes out: an entry for every key that was held
//! or awaited and has no name, or for a group of keys that look like one lock. Names are
//! placeholders, made of application names; what goes beyond what was seen is marked as a guess.
//! Pure: who looks, how often and where the text goes is not known here. Which keys belong
//! together is decided in [`group`], what text a number may be the hash of in [`guess`].

mod group;
mod guess;
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Applications;
use crate::key::Key;
use crate::registry::{Database, Registry};
use crate::sample::Pid;
use crate::snapshot::{Holder, Lock, Server, Snapshot, Waiter};
use crate::timestamp::Timestamp;
use crate::tracker::Scope;
use group::{Pattern, group_keys};
use guess::Dictionary;

/// In place of an application's name, the words that metrics use.
const NO_APPLICATION: &str = "(none)";
const UNKNOWN_APPLICATION: &str = "(unknown)";
const PREPARED: &str = "(prepared)";

/// Keys of one application in one database that get an entry of their own. Beyond it they are
/// counted: nobody names hundreds of keys by hand.
const MAX_SINGLE_KEYS: usize = 50;

/// All that was seen in some looks.
#[derive(Debug, Default)]
pub struct Sightings {
    looks: u32,
    servers: BTreeSet<Arc<str>>,
    last: Option<Timestamp>,
    places: BTreeMap<Place, BTreeMap<Key, Sighting>>,
    named: BTreeSet<(Place, Key)>,
    names: BTreeSet<Arc<str>>,
}

/// A database of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    server: Arc<str>,
    /// `None` where an entry cannot say which.
    database: Option<Arc<str>>,
}

/// Who was seen with a key, by application.
#[derive(Clone, Debug, Default)]
struct Sighting {
    holders: BTreeMap<Arc<str>, Party>,
    waiters: BTreeMap<Arc<str>, Party>,
    /// Names that it may have, and why.
    candidates: BTreeSet<String>,
}

/// The sessions of one application.
#[derive(Clone, Debug, Default)]
struct Party {
    sessions: BTreeSet<(Option<Pid>, Option<Timestamp>)>,
    /// The earliest moment of them all.
    since: Option<Timestamp>,
    /// The scope, if it is proved, and whether two contradict each other.
    scopes: BTreeSet<&'static str>,
    /// Other names that its backends went by before.
    before: BTreeSet<Arc<str>>,
}

/// One entry to be.
#[derive(Clone, Debug)]
struct Draft {
    pattern: Pattern,
    keys: BTreeSet<Key>,
    /// Whose name becomes part of the entry's.
    application: Arc<str>,
    databases: BTreeSet<Option<Arc<str>>>,
    servers: BTreeSet<Arc<str>>,
    sighting: Sighting,
}

impl Sightings {
    /// Nothing was seen yet; the names of `registry` are taken.
    pub fn new(registry: &Registry) -> Self {
        let names = registry.locks().iter().map(|lock| lock.name.clone()).collect();
        Self { names, ..Self::default() }
    }

    /// Takes in one look. Keys that `registry` names need no entry, whoever looked.
    pub fn observe(
        &mut self,
        snapshot: &Snapshot,
        registry: &Registry,
        applications: &Applications,
    ) {
        self.looks += 1;
        for server in &snapshot.servers {
            let Server { server: name, locks: Some(locks), .. } = server else { continue };
            self.servers.insert(name.clone());
            self.last = self.last.max(server.polled_at);
            for lock in locks {
                self.observe_lock(name, lock, registry, applications);
            }
        }
    }

    /// Whether any server was looked at with success.
    pub fn is_blind(&self) -> bool {
        self.servers.is_empty()
    }

    fn observe_lock(
        &mut self,
        server: &Arc<str>,
        lock: &Lock,
        registry: &Registry,
        applications: &Applications,
    ) {
        let place = Place { server: server.clone(), database: database(&lock.datname) };
        if let Some(name) = &lock.lock {
            self.names.extend(name.split(" | ").map(Arc::from));
            self.named.insert((place, lock.key));
            return;
        }
        let known = Database { name: Some(&lock.datname), is_utf8: true };
        let resolution = registry.resolve(server, known, lock.key);
        if resolution.lock.is_some() {
            self.named.insert((place, lock.key));
            return;
        }
        let sighting = self.places.entry(place).or_default().entry(lock.key).or_default();
        let candidates = lock.candidates.iter().map(|candidate| match &candidate.reason {
            Some(reason) => format!("{}, {reason}", candidate.lock),
            None => candidate.lock.to_string(),
        });
        sighting.candidates.extend(candidates);
        for candidate in &resolution.candidates {
            sighting.candidates.insert(format!("{}, {candidate}", candidate.name));
        }
        for holder in &lock.holders {
            sighting.observe_holder(holder, applications);
        }
        for waiter in &lock.waiters {
            sighting.observe_waiter(waiter, applications);
        }
    }

    /// A registry file; it names nothing when there is nothing to name.
    pub fn render(&self) -> String {
        let mut left_out = BTreeMap::new();
        let drafts = merge(self.drafts(&mut left_out));
        let applications = self.places.values().flat_map(BTreeMap::values);
        let applications = applications.flat_map(|sighting| {
            let holders = sighting.holders.iter();
            holders
                .chain(&sighting.waiters)
                .flat_map(|(name, party)| std::iter::once(name).chain(&party.before))
        });
        let databases = self.places.keys().filter_map(|place| place.database.as_ref());
        let dictionary = Dictionary::new(applications.chain(databases).map(|text| &**text));
        render::render(self, &drafts, &left_out, &dictionary)
    }

    /// Groups the keys of each database by themselves. Keys of an application past the bound are
    /// counted in `left_out` only.
    fn drafts(&self, left_out: &mut BTreeMap<(Place, Arc<str>), usize>) -> Vec<Draft> {
        let mut drafts = Vec::new();
        for (place, sightings) in &self.places {
            let mut singles: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            for (pattern, keys) in group_keys(sightings) {
                let mut together = Sighting::default();
                for sighting in keys.iter().filter_map(|key| sightings.get(key)) {
                    together.join(sighting);
                }
                let application = together.application();
                if let Pattern::One(_) = pattern {
                    let singles = singles.entry(application.clone()).or_default();
                    *singles += 1;
                    if *singles > MAX_SINGLE_KEYS {
                        *left_out.entry((place.clone(), application)).or_default() += 1;
                        continue;
                    }
                }
                drafts.push(Draft {
                    pattern,
                    keys,
                    application,
                    databases: BTreeSet::from([place.database.clone()]),
                    servers: BTreeSet::from([place.server.clone()]),
                    sighting: together,
                });
            }
        }
        drafts
    }
}

impl Sighting {
    fn observe_holder(&mut self, holder: &Holder, applications: &Applications) {
        let name = match holder.pid {
            None => PREPARED.into(),
            Some(_) => application(holder.application_name.as_deref(), applications),
        };
        let party = self.holders.entry(name.clone()).or_default();
        party.observe(holder.pid, holder.backend_start, holder.since);
        match holder.scope {
            Scope::Session => party.scopes.insert("session"),
            Scope::Transaction => party.scopes.insert("transaction"),
            Scope::Unknown => false,
        };
        if let Some(first) = holder.first_application_name.as_deref() {
            let first = application(Some(first), applications);
            if first != name && holder.pid.is_some() {
                party.before.insert(first);
            }
        }
    }

    fn observe_waiter(&mut self, waiter: &Waiter, applications: &Applications) {
        let name = application(waiter.application_name.as_deref(), applications);
        let party = self.waiters.entry(name).or_default();
        party.observe(waiter.pid, waiter.backend_start, waiter.waiting_since);
    }

    fn join(&mut self, other: &Self) {
        for (mine, others) in
            [(&mut self.holders, &other.holders), (&mut self.waiters, &other.waiters)]
        {
            for (name, party) in others {
                mine.entry(name.clone()).or_default().join(party);
            }
        }
        self.candidates.extend(other.candidates.iter().cloned());
    }

    /// The one that its name is made of: the first holder, else the first waiter; at the name it
    /// went by when it came, since behind a pooler the present one may be a stranger's.
    fn application(&self) -> Arc<str> {
        let first = |parties: &BTreeMap<Arc<str>, Party>| {
            let first = parties
                .iter()
                .min_by_key(|(name, party)| (party.since.is_none(), party.since, Arc::clone(name)));
            first.map(|(name, party)| party.before.first().unwrap_or(name).clone())
        };
        first(&self.holders)
            .or_else(|| first(&self.waiters))
            .unwrap_or_else(|| UNKNOWN_APPLICATION.into())
    }
}

impl Party {
    fn observe(
        &mut self,
        pid: Option<Pid>,
        backend_start: Option<Timestamp>,
        since: Option<Timestamp>,
    ) {
        self.sessions.insert((pid, backend_start));
        self.since = earlier(self.since, since);
    }

    fn join(&mut self, other: &Self) {
        self.sessions.extend(other.sessions.iter().copied());
        self.since = earlier(self.since, other.since);
        self.scopes.extend(&other.scopes);
        self.before.extend(other.before.iter().cloned());
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

fn application(name: Option<&str>, applications: &Applications) -> Arc<str> {
    match name {
        None => UNKNOWN_APPLICATION.into(),
        Some("") => NO_APPLICATION.into(),
        Some(name) => applications.rename(name).into(),
    }
}

/// The database as an entry may name it. What a snapshot says in place of a name, a number or
/// words in brackets, is none; neither is what the registry would take for a pattern.
fn database(datname: &Arc<str>) -> Option<Arc<str>> {
    let is_none = datname.is_empty()
        || datname.starts_with('(')
        || datname.contains('*')
        || datname.bytes().all(|byte| byte.is_ascii_digit());
    (!is_none).then(|| datname.clone())
}

/// One entry for what several databases have alike, then for what several servers have alike.
fn merge(drafts: Vec<Draft>) -> Vec<Draft> {
    let by_server =
        |draft: &Draft| (draft.pattern, draft.application.clone(), draft.servers.clone());
    let drafts = merge_by(drafts, by_server);
    merge_by(drafts, |draft| (draft.pattern, draft.application.clone(), draft.databases.clone()))
}

fn merge_by<K: Ord>(drafts: Vec<Draft>, alike: impl Fn(&Draft) -> K) -> Vec<Draft> {
    let mut merged: BTreeMap<K, Draft> = BTreeMap::new();
    for draft in drafts {
        match merged.entry(alike(&draft)) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(draft);
            }
            std::collections::btree_map::Entry::Occupied(mut occupied) => {
                let one = occupied.get_mut();
                one.keys.extend(draft.keys);
                one.databases.extend(draft.databases);
                one.servers.extend(draft.servers);
                one.sighting.join(&draft.sighting);
            }
        }
    }
    merged.into_values().collect()
}
