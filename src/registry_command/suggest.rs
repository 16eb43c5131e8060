//! `locks registry suggest`: keys without a name → registry entries to begin with.
//!
//! Snapshots go in, one a look, and a registry file comes out: an entry for every key that was held
//! or awaited and has no name, or for a group of keys that look like one lock. Names are
//! placeholders, made of application names; what goes beyond what was seen is marked as a guess.
//! Pure: who looks, how often and where the text goes is not known here. Which keys belong
//! together is decided in `group`, what text a key may be made of in `guess`.

mod group;
mod guess;
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Applications;
use crate::key::Key;
use crate::registry::{Circumstances, Registry, Resolver, Signs};
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

/// Keys of one application in one database of which nothing is known but the number, and which get
/// an entry each. When there are more, none does: nobody names hundreds of keys by hand.
const MAX_SINGLE_KEYS: usize = 30;

/// Keys that get no entry, by their application.
type LeftOut = BTreeMap<(Place, Arc<str>), BTreeSet<Key>>;

/// All that was seen in some looks.
#[derive(Debug)]
pub struct Sightings {
    registry: Arc<Registry>,
    resolvers: BTreeMap<Arc<str>, (BTreeSet<Arc<str>>, Resolver)>,
    looks: u32,
    /// Those that could be looked at.
    servers: BTreeSet<Arc<str>>,
    all_servers: BTreeSet<Arc<str>>,
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
    /// Nothing was seen yet. Keys that `registry` names need no entry, whoever looked.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            names: registry.locks().iter().map(|lock| lock.name.clone()).collect(),
            registry,
            resolvers: BTreeMap::new(),
            looks: 0,
            servers: BTreeSet::new(),
            all_servers: BTreeSet::new(),
            last: None,
            places: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    /// Takes in one look.
    pub fn observe(&mut self, snapshot: &Snapshot, applications: &Applications) {
        self.looks += 1;
        for server in &snapshot.servers {
            self.all_servers.insert(server.server.clone());
            let Server { server: name, locks: Some(locks), .. } = server else { continue };
            self.servers.insert(name.clone());
            self.last = self.last.max(server.polled_at);
            self.renew_resolver(name, locks);
            for lock in locks {
                self.observe_lock(name, lock, applications);
            }
        }
    }

    /// Templates with the name of a database name keys only where it is known.
    fn renew_resolver(&mut self, server: &Arc<str>, locks: &[Lock]) {
        let mut databases: BTreeSet<Arc<str>> =
            locks.iter().map(|lock| lock.datname.clone()).collect();
        if let Some((known, _)) = self.resolvers.get(server) {
            if databases.is_subset(known) {
                return;
            }
            databases.extend(known.iter().cloned());
        }
        let told = Circumstances {
            // A snapshot does not tell encodings; nearly all are this one.
            databases: databases.iter().map(|name| (name.clone(), "UTF8".into())).collect(),
            ..Circumstances::default()
        };
        let resolver = Resolver::new(self.registry.clone(), server.clone(), &told);
        self.resolvers.insert(server.clone(), (databases, resolver));
    }

    /// Whether any server was looked at with success.
    pub fn is_blind(&self) -> bool {
        self.servers.is_empty()
    }

    fn observe_lock(&mut self, server: &Arc<str>, lock: &Lock, applications: &Applications) {
        let place = Place { server: server.clone(), database: database(&lock.datname) };
        if let Some(name) = &lock.lock {
            self.names.extend(name.split(" | ").map(Arc::from));
            self.named.insert((place, lock.key));
            return;
        }
        // Who looked knows better than we do what speaks for a preset: here, only what is beyond
        // doubt counts.
        let signs = Signs { is_crowded: true, ..Signs::default() };
        let resolution = self
            .resolvers
            .get(server)
            .map(|(_, resolver)| resolver.resolve(Some(&lock.datname), lock.key, signs));
        if resolution.is_some_and(|resolution| resolution.lock.is_some()) {
            self.named.insert((place, lock.key));
            return;
        }
        let sighting = self.places.entry(place).or_default().entry(lock.key).or_default();
        let candidates = lock.candidates.iter().map(|candidate| match &candidate.reason {
            Some(reason) => format!("{}, {reason}", candidate.lock),
            None => candidate.lock.to_string(),
        });
        sighting.candidates.extend(candidates);
        for holder in &lock.holders {
            sighting.observe_holder(holder, applications);
        }
        for waiter in &lock.waiters {
            sighting.observe_waiter(waiter, applications);
        }
    }

    /// A registry file; it names nothing when there is nothing to name.
    pub fn render(&self) -> String {
        let dictionary = Dictionary::new(self.texts());
        let mut left_out = LeftOut::new();
        let mut drafts = Vec::new();
        for (place, sightings) in &self.places {
            drafts.extend(draft(place, sightings, &dictionary, &mut left_out));
        }
        render::render(self, &merge(drafts), &left_out, &dictionary)
    }

    /// Names of applications and databases, some of them more than once.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let sightings = self.places.values().flat_map(BTreeMap::values);
        let parties =
            sightings.flat_map(|sighting| sighting.holders.iter().chain(&sighting.waiters));
        let applications =
            parties.flat_map(|(name, party)| std::iter::once(name).chain(&party.before));
        let databases = self.places.keys().filter_map(|place| place.database.as_ref());
        applications.chain(databases).map(|text| &**text)
    }
}

/// Groups the keys of one database by themselves.
fn draft(
    place: &Place,
    sightings: &BTreeMap<Key, Sighting>,
    dictionary: &Dictionary,
    left_out: &mut LeftOut,
) -> Vec<Draft> {
    let mut drafts = Vec::new();
    let mut mute: BTreeMap<Arc<str>, Vec<Draft>> = BTreeMap::new();
    for (pattern, keys) in group_keys(sightings) {
        let mut together = Sighting::default();
        for sighting in keys.iter().filter_map(|key| sightings.get(key)) {
            together.join(sighting);
        }
        let application = together.application();
        let is_mute = match pattern {
            Pattern::One(key) => {
                together.candidates.is_empty() && render::guess_one(key, dictionary).is_empty()
            }
            Pattern::PairsFrom(_) | Pattern::PairsTo(_) | Pattern::Packed(_) => false,
            Pattern::Range(..) => {
                // One of so many is no constant of a tool.
                together.candidates.clear();
                false
            }
        };
        let draft = Draft {
            pattern,
            keys,
            application: application.clone(),
            databases: BTreeSet::from([place.database.clone()]),
            servers: BTreeSet::from([place.server.clone()]),
            sighting: together,
        };
        if is_mute {
            mute.entry(application).or_default().push(draft);
        } else {
            drafts.push(draft);
        }
    }
    for (application, mute) in mute {
        if mute.len() > MAX_SINGLE_KEYS {
            let keys = mute.into_iter().flat_map(|draft| draft.keys).collect();
            left_out.insert((place.clone(), application), keys);
        } else {
            drafts.extend(mute);
        }
    }
    drafts
}

impl Sighting {
    fn observe_holder(&mut self, holder: &Holder, applications: &Applications) {
        let name = match holder.pid {
            None => PREPARED.into(),
            Some(_) => application(holder.session.application_name.as_deref(), applications),
        };
        let party = self.holders.entry(name.clone()).or_default();
        party.observe(holder.pid, holder.session.backend_start, holder.since);
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
        let name = application(waiter.session.application_name.as_deref(), applications);
        let party = self.waiters.entry(name).or_default();
        party.observe(waiter.pid, waiter.session.backend_start, waiter.waiting_since);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Application;
    use crate::registry::Source;
    use crate::snapshot::parse_snapshot;

    fn holder(pid: i32, application: &str) -> Value {
        json!({
            "pid": pid,
            "backend_start": "2026-11-30T12:00:00.000000Z",
            "application_name": application,
            "first_application_name": application,
            "scope": "unknown",
            "since": "2026-11-30T12:00:01.000000Z",
        })
    }

    fn lock(datname: &str, key: Key, holders: &[Value]) -> Value {
        json!({ "datname": datname, "key": key, "lock": null, "holders": holders })
    }

    fn server(name: &str, locks: &[Value]) -> Value {
        json!({
            "server": name,
            "up": true,
            "polled_at": "2026-11-30T12:00:02.500000Z",
            "locks": locks,
        })
    }

    fn snapshot(servers: &[Value]) -> Snapshot {
        parse_snapshot(json!({ "schema": 1, "servers": servers }).to_string().as_bytes()).unwrap()
    }

    fn suggest_beside(registry: Registry, servers: &[Value]) -> String {
        let mut sightings = Sightings::new(Arc::new(registry));
        sightings.observe(&snapshot(servers), &Applications::default());
        sightings.render()
    }

    fn suggest(servers: &[Value]) -> String {
        suggest_beside(Registry::empty(), servers)
    }

    fn parse(text: &str) -> Arc<Registry> {
        let source = Source { name: "suggested.yaml".into(), text: text.into() };
        Registry::parse(&[source]).unwrap_or_else(|error| panic!("{error}\n{text}")).into()
    }

    fn resolver(registry: &Arc<Registry>, server: &str) -> Resolver {
        Resolver::new(registry.clone(), server.into(), &Circumstances::default())
    }

    fn label(registry: &Arc<Registry>, server: &str, database: &str, key: Key) -> String {
        let resolution = resolver(registry, server).resolve(Some(database), key, Signs::default());
        resolution.label().to_owned()
    }

    /// The entries without the head, which every file has.
    fn entries(text: &str) -> &str {
        text.split_once("locks:\n\n").unwrap_or_else(|| panic!("{text}")).1
    }

    #[test]
    fn a_key_becomes_an_entry_with_who_was_seen_in_its_comments() {
        let mut pooled = holder(7, "pod-b");
        pooled["first_application_name"] = "pod-a".into();
        pooled["scope"] = "session".into();
        let mut lock = lock("app", Key::bigint(4242), &[pooled]);
        lock["waiters"] = json!([{
            "pid": 8, "application_name": "pod-c", "waiting_since": "2026-11-30T12:00:01.900000Z",
        }]);
        let named = json!({
            "datname": "app", "key": Key::bigint(1), "lock": "cron", "holders": [], "waiters": [],
        });
        let text = suggest(&[server("db-1", &[lock, named])]);
        assert_eq!(
            text,
            "\
# Suggested by locks registry suggest: 1 entry for 1 key without a name, held or awaited on db-1
#   in 1 look until 2026-11-30T12:00:02Z. 1 other key has a name.
# Names are placeholders, made of application names: rename them. What says more than was seen is
#   marked \"guess:\". Use this as a registry file of its own, or put its entries under locks: in
#   another.
locks:

  # held by pod-b (before: pod-a), session level, seen since 2026-11-30T12:00:01Z
  # awaited by pod-c, since 2026-11-30T12:00:01Z
  - name: pod-a-4242
    key: 4242
    databases: [app]
"
        );
        assert_eq!(label(&parse(&text), "db-1", "app", Key::bigint(4242)), "pod-a-4242");
    }

    #[test]
    fn with_nothing_to_suggest_it_says_so_in_a_file_that_names_nothing() {
        let text = suggest(&[server("db-1", &[])]);
        assert_eq!(
            text,
            "# Nothing to suggest: no key without a name was held or awaited on db-1 in 1 look \
             until\n#   2026-11-30T12:00:02Z.\n"
        );
        assert_eq!(parse(&text).entry_count(), 0);
    }

    #[test]
    fn every_look_adds_to_what_was_seen() {
        let mut sightings = Sightings::new(Arc::new(Registry::empty()));
        for (pid, number) in [(1, 42), (2, 43), (3, 42)] {
            let lock = lock("app", Key::bigint(number), &[holder(pid, "job")]);
            let seen = snapshot(&[server("db-1", &[lock])]);
            sightings.observe(&seen, &Applications::default());
        }
        let text = sightings.render();
        assert!(text.contains("1 entry") || text.contains("2 entries for 2 keys"), "{text}");
        assert!(text.contains("in 3 looks"), "{text}");
        assert!(text.contains("held by job, 2 sessions, the first seen since"), "{text}");
        let registry = parse(&text);
        assert_eq!(label(&registry, "db-1", "app", Key::bigint(43)), "job-43");
    }

    #[test]
    fn what_the_registry_names_already_needs_no_entry_and_its_names_are_taken() {
        let text = "locks: [{ name: a, key: 1 }, { name: job-42, key: 7 }]";
        let source = Source { name: "known.yaml".into(), text: text.into() };
        let registry = Registry::parse(&[source]).unwrap();
        let locks = [1, 42].map(|number| lock("app", Key::bigint(number), &[holder(1, "job")]));
        let text = suggest_beside(registry, &[server("db-1", &locks)]);
        assert!(text.contains("1 entry for 1 key") && text.contains("1 other key"), "{text}");
        assert!(text.contains("  - name: job-42-2\n    key: 42\n"), "{text}");
    }

    #[test]
    fn names_are_told_apart() {
        let keys = [42, 7_777_777, 8_888_888, -5].map(Key::bigint);
        let mut locks: Vec<Value> =
            keys.iter().map(|key| lock("app", *key, &[holder(1, "Job: #1/")])).collect();
        locks.push(lock("app2", Key::bigint(42), &[holder(1, "job-1")]));
        locks.push(lock("app", Key::pair(7, 42), &[]));
        locks.push(lock("app", Key::bigint(100), &[holder(1, "7f9c")]));
        let text = suggest(&[server("db-1", &locks)]);
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("  - name: ")).collect();
        assert_eq!(
            names,
            [
                "unknown-7-42",
                "key-7f9c-100",
                "job-1-42",
                "job-1-1",
                "job-1-2",
                "job-1-3",
                "job-1-42-2",
            ]
        );
        assert_eq!(parse(&text).entry_count(), 7);
    }

    #[test]
    fn one_key_of_one_application_in_many_databases_and_servers_is_one_entry() {
        let job = |database: &str| lock(database, Key::bigint(42), &[holder(1, "job")]);
        let other = lock("app", Key::bigint(7), &[holder(2, "other")]);
        let text = suggest(&[
            server("db-1", &[job("app"), job("app2"), other]),
            server("db-2", &[job("app"), job("app2")]),
            server("db-3", &[]),
        ]);
        assert!(
            text.contains(
                "  - name: job-42\n    key: 42\n    databases: [app, app2]\n    \
                 servers: [db-1, db-2]\n"
            ),
            "{text}"
        );
        assert!(text.contains("    key: 7\n    databases: [app]\n    servers: [db-1]\n"), "{text}");
        let registry = parse(&text);
        assert_eq!(registry.conflicts(), []);
        assert_eq!(label(&registry, "db-2", "app2", Key::bigint(42)), "job-42");
        assert_eq!(label(&registry, "db-2", "app", Key::bigint(7)), "unregistered");
    }

    #[test]
    fn a_database_without_a_usable_name_is_left_out() {
        let locks: Vec<Value> = ["(server-wide)", "16384", "a*b"]
            .iter()
            .zip(1..)
            .map(|(datname, number)| lock(datname, Key::bigint(number), &[holder(1, "job")]))
            .collect();
        let text = suggest(&[server("db-1", &locks)]);
        assert!(!text.contains("databases:"), "{text}");
        let why =
            "  # in any database: the name of its own is not known, or no entry can name it\n";
        assert_eq!(text.matches(why).count(), 3, "{text}");
        assert_eq!(parse(&text).entry_count(), 3);
    }

    #[test]
    fn applications_go_by_the_names_that_metrics_give_them() {
        let rules = [Application::new("^(svc-[a-z]+)-.*$", "$1").unwrap()];
        let applications = Applications::new(rules.into());
        let mut sightings = Sightings::new(Arc::new(Registry::empty()));
        let holders = [holder(1, "svc-pay-7f9c"), holder(2, "svc-pay-8a2d"), holder(3, "")];
        let seen = snapshot(&[server("db-1", &[lock("app", Key::bigint(1), &holders)])]);
        sightings.observe(&seen, &applications);
        let text = sightings.render();
        assert!(
            text.contains("# held by (none), seen since 2026-11-30T12:00:01Z; svc-pay, 2 sessions"),
            "{text}"
        );
    }

    #[test]
    fn pairs_with_a_shared_half_become_a_half_free_entry_marked_as_a_guess() {
        let locks: Vec<Value> = (1..=7)
            .map(|tenant| lock("app", Key::pair(7, tenant), &[holder(tenant, "worker")]))
            .collect();
        let text = suggest(&[server("db-1", &locks)]);
        assert_eq!(
            entries(&text),
            "  # held by worker, 7 sessions, the first seen since 2026-11-30T12:00:01Z
  # guess: one lock for each second half; 7 keys of (7, …) were seen: 1, 2, 3, 4, 5 and 2 more
  - name: worker-7
    key: { pair: [7, \"*\"] }
    parameter: number
    databases: [app]
"
        );
        assert_eq!(label(&parse(&text), "db-1", "app", Key::pair(7, 99)), "worker-7");
    }

    #[test]
    fn packed_keys_ranges_and_classes_are_written_in_their_own_forms() {
        let key = |high: i64, low: i64| Key::bigint((high << 32) | low);
        let mut locks: Vec<Value> = [key(5, 1), key(5, 2), key(5, 42), key(6, 42)]
            .map(|key| lock("app", key, &[holder(1, "crm")]))
            .into();
        locks.extend(
            (0..20)
                .map(|row| lock("app", Key::bigint(1_000_000 + row), &[holder(2, "row-worker")])),
        );
        locks.push(lock("app", Key::from_columns(0, 102_747, 777), &[holder(3, "ext")]));
        let text = suggest(&[server("db-1", &locks)]);
        assert_eq!(
            entries(&text),
            "  # held by crm, seen since 2026-11-30T12:00:01Z
  # guess: 6 and 42, packed into one bigint; if so, key: { packed: [6, \"*\"] } is one lock for
  #   every number with 6
  - name: crm-1
    key: 25769803818
    databases: [app]

  # held by crm, seen since 2026-11-30T12:00:01Z
  # guess: two numbers packed into one bigint; 3 keys with 5 as high half were seen: 1, 2, 42
  - name: crm-5
    key: { packed: [5, \"*\"] }
    parameter: number
    databases: [app]

  # held by ext, seen since 2026-11-30T12:00:01Z
  - name: ext-class-777
    key: { class: 777, classid: 0, objid: 102747 }
    databases: [app]

  # held by row-worker, seen since 2026-11-30T12:00:01Z
  # guess: one lock for each row; 20 keys from 1000000 to 1000019 were seen: widen the range to
  #   all that there may be
  - name: row-worker-range
    key: { range: [1000000, 1000019] }
    databases: [app]
"
        );
    }

    #[test]
    fn packed_keys_ranges_and_classes_are_named_by_what_is_suggested() {
        let packed = |low: i64| Key::bigint((5 << 32) | low);
        let keys: Vec<Key> = [packed(1), packed(2), packed(42), Key::from_columns(0, 102_747, 777)]
            .into_iter()
            .chain((0..20).map(|row| Key::bigint(1_000_000 + row)))
            .collect();
        let locks: Vec<Value> =
            keys.iter().map(|key| lock("app", *key, &[holder(1, "crm")])).collect();
        let registry = parse(&suggest(&[server("db-1", &locks)]));
        for key in keys {
            assert_ne!(label(&registry, "db-1", "app", key), "unregistered", "{key}");
        }
        assert_eq!(registry.entry_count(), 3);
    }

    #[test]
    fn a_hash_of_a_known_text_is_written_as_one_and_marked_as_a_guess() {
        let keys = [
            Key::bigint(7_259_640_204_928_003_297),
            Key::pair(-1_679_774_495, 5),
            Key::bigint(i64::from_be_bytes(*b"migrate!")),
        ];
        let locks = keys.map(|key| lock("app", key, &[holder(1, "app")]));
        let text = suggest(&[server("db-1", &locks)]);
        for piece in [
            "  # guess: 7259640204928003297 is made of the text jobs\n",
            "    key: { hashtextextended: \"jobs\" }\n",
            "  # guess: -1679774495 is made of the text jobs\n",
            "    key: { pair: [{ hashtext: \"jobs\" }, 5] }\n",
            "  # guess: the eight ASCII bytes migrate!\n",
        ] {
            assert!(text.contains(piece), "{piece}{text}");
        }
        let registry = parse(&text);
        for key in keys {
            assert!(label(&registry, "db-1", "app", key).starts_with("app-"), "{key}");
        }
    }

    #[test]
    fn candidates_are_told_with_their_reasons() {
        let mut lock = lock("app", Key::bigint(42), &[holder(1, "app")]);
        lock["candidates"] =
            json!([{ "lock": "rails\nmigrate", "reason": "preset rails" }, { "lock": "other" }]);
        let text = suggest(&[server("db-1", &[lock])]);
        assert!(
            text.contains("  # candidate: other\n  # candidate: rails\\nmigrate, preset rails\n"),
            "{text}"
        );
    }

    #[test]
    fn of_very_many_keys_only_those_that_tell_something_get_an_entry() {
        let mut locks: Vec<Value> = (1..=60)
            .map(|n| lock("app", Key::bigint(n * 1_234_567_890_123), &[holder(1, "ingest")]))
            .collect();
        let jobs = Key::bigint(7_259_640_204_928_003_297);
        locks.push(lock("app", jobs, &[holder(1, "ingest")]));
        let text = suggest(&[server("db-1", &locks)]);
        let registry = parse(&text);
        assert_eq!(registry.entry_count(), 1);
        assert_eq!(label(&registry, "db-1", "app", jobs), "ingest-1");
        assert!(
            text.ends_with(
                "
  # no entry for 60 keys of ingest in app of db-1: 1234567890123, 2469135780246, 3703703670369,
  #   4938271560492, 6172839450615 and 55 more. So many are ids or hashes of something that
  #   changes: name them by a range, or by a template with values, or not at all
"
            ),
            "{text}"
        );
        // Without any entry it is still a registry file.
        locks.truncate(60);
        assert_eq!(parse(&suggest(&[server("db-1", &locks)])).entry_count(), 0);
    }

    #[test]
    fn nothing_that_an_application_calls_itself_leaves_its_comment() {
        let hostile = "a\n  - name: evil\r\u{85}\u{2028}\u{202e}\t#\"'\\ {x} \u{feff}é 🔒";
        let locks = [
            lock(hostile, Key::bigint(1), &[holder(1, hostile)]),
            lock("app", Key::bigint(2), &[holder(1, "# \u{0}")]),
        ];
        let text = suggest(&[server(hostile, &locks), server("db-2", &[])]);
        assert!(
            text.contains("held by a\\n  - name: evil\\r\\u{85}\\u{2028}\\u{202e}\\t#"),
            "{text}"
        );
        let registry = parse(&text);
        assert_eq!(registry.entry_count(), 2);
        assert!(label(&registry, hostile, hostile, Key::bigint(1)).starts_with("a-name-evil"));
    }

    fn any_key() -> impl Strategy<Value = Key> {
        prop_oneof![
            (-20_i64..20).prop_map(Key::bigint),
            (-3_i64..3, 0_i64..9).prop_map(|(high, low)| Key::bigint((high << 32) | low)),
            (-3_i32..9, -3_i32..9).prop_map(|(first, second)| Key::pair(first, second)),
            any::<(u64, u16)>().prop_map(|(word, class)| Key::from_word(word, class)),
        ]
    }

    proptest! {
        // Each case reads all presets twice.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn whatever_was_seen_becomes_a_registry_that_names_it(
            seen in prop::collection::vec((".{0,9}", any_key(), ".{0,20}"), 0..30),
        ) {
            let locks: Vec<Value> = seen
                .iter()
                .map(|(database, key, name)| lock(database, *key, &[holder(1, name)]))
                .collect();
            let text = suggest(&[server("db-1", &locks)]);
            let source = Source { name: "suggested.yaml".into(), text: text.clone() };
            let registry = Registry::parse(&[source]);
            prop_assert!(registry.is_ok(), "{}\n{}", registry.unwrap_err(), text);
            let registry = Arc::new(registry.unwrap());
            prop_assert_eq!(registry.conflicts(), &[], "{}", &text);
            let resolver = resolver(&registry, "db-1");
            for (database, key, _) in &seen {
                let resolution = resolver.resolve(Some(database), *key, Signs::default());
                prop_assert!(resolution.lock.is_some(), "{} in {:?}\n{}", key, database, &text);
            }
        }
    }
}
