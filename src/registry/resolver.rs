//! Who names a key on one server.
//!
//! A [`Resolver`] is the registry with all that only a server knows put in: which databases there
//! are and in which encoding they write text, what queries and tables answered, and hashes that the
//! server computes in its own way. It does not change either; a new one is made when any of that
//! changes. What is seen of a key at the moment (who holds it, what lies around it) comes with each
//! question as [`Signs`], since small numbers are named by presets only with evidence.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::claims::{Claim, Claims};
use super::encoding::Encoding;
use super::entry::{Entry, Policy, Said, Values};
use super::fault::Faults;
use super::formula::{Facts, HashCall, HashCheck, ServerHashes};
use super::pattern::{Rank, Shape, packing_of};
use super::{
    Armed, Builder, Candidate, Doubt, HashChecks, Layer, Registry, Resolution, Source, Standing,
    Unfinished, display_name,
};
use crate::inspected::Answers;
use crate::key::Key;

/// Presets name smaller numbers only with a marker, and counted ids reach up to the larger one.
const SMALL: u64 = 1_000_000;
const COUNTED: u64 = 1 << 31;

/// A packing of so many characters uses nearly all of the 64 bits, so that other pairs look like
/// one.
const LONG_PACKING: usize = 8;

/// Names for the keys of one server.
#[derive(Debug)]
pub struct Resolver {
    registry: Arc<Registry>,
    server: Arc<str>,
    answers: Arc<Answers>,
    fixed: Arc<Layer>,
    /// From values that the server told.
    queried: Layer,
    by_encoding: HashMap<Encoding, Layer>,
    databases: HashMap<Arc<str>, KnownDatabase>,
    shared_classes: HashSet<u16>,
    /// Numbers of presets among which counted ids may lie.
    preset_numbers: Vec<i64>,
    hash_checks: Arc<[HashCheck]>,
}

#[derive(Debug)]
struct KnownDatabase {
    encoding: Option<Encoding>,
    /// What its name and its tables made computable.
    layer: Layer,
}

/// What a server told, as far as names depend on it.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Databases, each with the name of its encoding.
    pub databases: Vec<(Arc<str>, Arc<str>)>,
    /// Answers to what the registry wanted to know.
    pub answers: Arc<Answers>,
    /// Hashes that the server computes differently, with its values.
    pub server_hashes: HashMap<HashCall, i64>,
}

/// What is seen of a key at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs<'a> {
    /// The application names of those who hold it.
    pub applications: &'a [Arc<str>],
    /// Unregistered keys that look like counted ids were seen around it.
    pub is_crowded: bool,
    /// A name that is given without evidence, if somebody claims the key under it.
    pub believed: Option<&'a str>,
}

impl Resolver {
    /// Computes what can be computed now.
    pub fn new(registry: Arc<Registry>, server: Arc<str>, told: &Circumstances) -> Self {
        let mut builder = Builder::new(registry.max_keys);
        let is_own = !told.server_hashes.is_empty();
        if is_own {
            // The server wins, so what was computed without asking it is of no use.
            builder = builder.with_server_hashes(&told.server_hashes);
        }
        let nowhere = Source { name: String::new(), text: String::new() };
        // A value that cannot be hashed names nothing; it was somebody's data, not a fault.
        let mut faults = Faults::new(&nowhere);
        if is_own {
            for entry in &registry.entries {
                builder.add(entry, &mut faults);
            }
        }
        let fixed = if is_own {
            let mut layer = std::mem::take(&mut builder.layer);
            layer.finish();
            Arc::new(layer)
        } else {
            registry.fixed.clone()
        };
        builder.queried.clear();
        for entry in &registry.queried {
            if let Some(entry) = answered(entry, &told.answers) {
                builder.add(&Arc::new(entry), &mut faults);
            }
        }
        let mut queried = std::mem::take(&mut builder.layer);
        queried.finish();
        let (by_encoding, by_database) = if is_own {
            (builder.by_encoding, builder.by_database)
        } else {
            (
                [&registry.by_encoding[..], &builder.by_encoding].concat(),
                [&registry.by_database[..], &builder.by_database].concat(),
            )
        };
        let mut hash_checks = builder.hash_checks;
        if !is_own {
            hash_checks.insert_all(registry.hash_checks.iter().cloned());
        }

        let mut resolver = Self {
            server,
            answers: told.answers.clone(),
            fixed,
            queried,
            by_encoding: HashMap::new(),
            databases: HashMap::new(),
            shared_classes: shared_classes(&registry.entries),
            preset_numbers: Vec::new(),
            hash_checks: Arc::default(),
            registry,
        };
        for (name, encoding) in &told.databases {
            resolver.add_database(name, encoding, &by_database, told, &mut hash_checks);
        }
        let encodings: HashSet<Encoding> =
            resolver.databases.values().filter_map(|database| database.encoding).collect();
        for encoding in encodings {
            let mut calls = Vec::new();
            let layer =
                compute(&by_encoding, &told.server_hashes, Some(encoding), None, &mut calls);
            if encoding == Encoding::Utf8 {
                hash_checks.insert(calls);
            }
            resolver.by_encoding.insert(encoding, layer);
        }
        resolver.hash_checks = hash_checks.0.into_iter().collect();
        resolver.preset_numbers = resolver.find_preset_numbers();
        resolver
    }

    fn add_database(
        &mut self,
        name: &Arc<str>,
        encoding: &str,
        unfinished: &[Unfinished],
        told: &Circumstances,
        hash_checks: &mut HashChecks,
    ) {
        let encoding = Encoding::of_server(encoding);
        let oids = |table: &str| told.answers.table_oid(name, table);
        let mut calls = Vec::new();
        let database = Some((name, &oids as OidsOf<'_>));
        let layer = compute(unfinished, &told.server_hashes, encoding, database, &mut calls);
        if encoding == Some(Encoding::Utf8) {
            hash_checks.insert(calls);
        }
        self.databases.insert(name.clone(), KnownDatabase { encoding, layer });
    }

    /// The registry it was made of.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Hashes of the server that keys were computed from: of ASCII texts, and of others as a
    /// database in UTF8 hashes them. Of very many some.
    pub fn hash_checks(&self) -> &Arc<[HashCheck]> {
        &self.hash_checks
    }

    /// Numbers of presets around which counted ids would make the name doubtful, in order.
    pub fn preset_numbers(&self) -> &[i64] {
        &self.preset_numbers
    }

    /// Who names `key` in a database, `None` for one without a known name, and its limits.
    pub fn resolve(&self, database: Option<&str>, key: Key, signs: Signs<'_>) -> Resolution {
        for standing in [database.map(Standing::Named), Some(Standing::Any)].into_iter().flatten() {
            let claims = self.claims(standing, database, key);
            if let Some(resolution) = first_rank(&claims, Some(key)) {
                return resolution;
            }
        }
        self.resolve_preset(database, key, signs)
    }

    fn resolve_preset(&self, database: Option<&str>, key: Key, signs: Signs<'_>) -> Resolution {
        let mut certain = Vec::new();
        let mut candidates = BTreeSet::new();
        let mut is_open = false;
        for claim in self.claims(Standing::Preset, database, key) {
            let (doubt, may_change) = self.doubt(claim, database, key, signs);
            is_open |= may_change;
            match doubt {
                None => certain.push(claim),
                Some(_) => {
                    candidates.insert(Candidate { doubt, ..claim.candidate() });
                }
            }
        }
        match first_rank(&certain, Some(key)) {
            Some(resolution) => Resolution { is_open, ..resolution },
            None if candidates.is_empty() => self.registry.unregistered.clone(),
            None => Resolution {
                candidates: candidates.into_iter().collect(),
                is_open,
                ..self.registry.unregistered.clone()
            },
        }
    }

    /// Why a preset may not name this key, and whether that may change.
    pub(super) fn doubt(
        &self,
        claim: &Claim,
        database: Option<&str>,
        key: Key,
        signs: Signs<'_>,
    ) -> (Option<Doubt>, bool) {
        if !claim.entry.is_preset {
            return (None, false);
        }
        if signs.believed == Some(&*claim.entry.name) {
            return (None, true);
        }
        if self.shared_classes.contains(&key.objsubid()) {
            return (Some(Doubt::SharedClass), false);
        }
        if claim.shape == Shape::Packing
            && packing_of(key).is_some_and(|text| text.len() >= LONG_PACKING)
        {
            return (Some(Doubt::Chance), false);
        }
        match claim.shape.magnitude() {
            Some(magnitude) if magnitude < SMALL => {
                let marker = &claim.entry.marker;
                let has_table = database.is_some_and(|database| {
                    let has = |table: &Arc<str>| self.answers.has_table(database, table);
                    marker.tables.iter().any(|table| has(table) == Some(true))
                });
                let matches =
                    |name: &Arc<str>| marker.applications.iter().any(|glob| glob.matches(name));
                if has_table {
                    (None, false)
                } else if signs.applications.iter().any(matches) {
                    (None, true)
                } else {
                    (Some(Doubt::NoMarker), true)
                }
            }
            Some(magnitude) if magnitude < COUNTED && key.as_bigint().is_some() => {
                (signs.is_crowded.then_some(Doubt::Crowded), true)
            }
            Some(_) | None => (None, false),
        }
    }

    /// Claims of one standing on this server.
    fn claims(&self, standing: Standing<'_>, database: Option<&str>, key: Key) -> Vec<&Claim> {
        self.layers(database)
            .filter_map(|layer| layer.standing(standing))
            .flat_map(|claims| claims.of(key))
            .filter(|claim| claim.holds_on(&self.server))
            .collect()
    }

    /// Every layer that speaks of a database.
    pub(super) fn layers(&self, database: Option<&str>) -> impl Iterator<Item = &Layer> {
        let known = database.and_then(|name| self.databases.get(name));
        let by_encoding = known
            .and_then(|database| database.encoding)
            .and_then(|encoding| self.by_encoding.get(&encoding));
        [Some(&*self.fixed), Some(&self.queried), by_encoding, known.map(|known| &known.layer)]
            .into_iter()
            .flatten()
    }

    /// Databases for which entries name keys on this server.
    pub fn named_databases(&self) -> BTreeSet<Arc<str>> {
        self.registry
            .entries
            .iter()
            .filter(|entry| entry.holds_on(&self.server))
            .flat_map(|entry| entry.databases.iter().flatten().cloned())
            .collect()
    }

    /// The series that exist before their key was ever seen, in a stable order: those of entries
    /// that name databases.
    pub fn armed(&self) -> Vec<Armed> {
        let mut armed: BTreeMap<[Arc<str>; 3], Armed> = BTreeMap::new();
        for datname in self.named_databases() {
            let claims: Vec<&Claim> = self
                .layers(Some(&datname))
                .filter_map(|layer| layer.standing(Standing::Named(&datname)))
                .flat_map(Claims::iter)
                .filter(|claim| claim.holds_on(&self.server))
                .collect();
            let mut groups: HashMap<Group<'_>, Vec<&Claim>> = HashMap::new();
            for claim in claims {
                // Which series there are cannot be told before the keys are seen.
                if claim.entry.labels_value && !matches!(claim.shape, Shape::One(_)) {
                    continue;
                }
                groups.entry(Group::of(claim)).or_default().push(claim);
            }
            for (group, claims) in groups {
                let key = match group {
                    Group::Shape(Rank::Exact | Rank::Values, Shape::One(key)) => Some(*key),
                    Group::Shape(..) | Group::Entry(..) => None,
                };
                let Some(resolution) = first_rank(&claims, key) else { continue };
                let label = match (&resolution.pattern, key) {
                    (Some(pattern), _) => pattern.clone(),
                    (None, Some(key)) => key.to_string().into(),
                    (None, None) => continue,
                };
                let order = [datname.clone(), label.clone(), resolution.label().into()];
                let series = Armed { datname: datname.clone(), key: label, resolution };
                armed.entry(order).or_insert(series);
            }
        }
        armed.into_values().collect()
    }

    fn find_preset_numbers(&self) -> Vec<i64> {
        let layers = [&*self.fixed, &self.queried].into_iter().chain(self.by_encoding.values());
        let layers = layers.chain(self.databases.values().map(|database| &database.layer));
        let numbers: BTreeSet<i64> = layers
            .flat_map(|layer| layer.presets.iter())
            .filter_map(|claim| match &claim.shape {
                Shape::One(key) => key.as_bigint(),
                Shape::Halves(..) | Shape::Range(..) | Shape::MultipleOf(_) | Shape::Packing => {
                    None
                }
            })
            .filter(|number| (SMALL..COUNTED).contains(&number.unsigned_abs()))
            .collect();
        numbers.into_iter().collect()
    }
}

/// Claims that share a series.
#[derive(PartialEq, Eq, Hash)]
enum Group<'a> {
    /// Of one key or pattern; several names for it are a conflict.
    Shape(Rank, &'a Shape),
    /// All values of an entry.
    Entry(*const Entry, usize),
}

impl<'a> Group<'a> {
    fn of(claim: &'a Claim) -> Self {
        if claim.bindings.is_empty() || claim.entry.labels_value {
            Self::Shape(claim.rank(), &claim.shape)
        } else {
            Self::Entry(Arc::as_ptr(&claim.entry), claim.rule)
        }
    }
}

/// The entry with lists in the place of its queries; `None` when one of them was not answered.
fn answered(entry: &Entry, answers: &Answers) -> Option<Entry> {
    let mut entry = entry.clone();
    for (_, values) in &mut entry.values {
        if let Values::Query(query) = values {
            let list = answers.values(&query.database, &query.sql)?;
            *values = Values::List(list.to_vec());
        }
    }
    Some(entry)
}

/// The OID of a table of a database.
type OidsOf<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// Finishes what can be finished for an encoding, or for one database.
fn compute(
    unfinished: &[Unfinished],
    server_hashes: &ServerHashes,
    encoding: Option<Encoding>,
    database: Option<(&Arc<str>, OidsOf<'_>)>,
    calls: &mut Vec<HashCheck>,
) -> Layer {
    let mut layer = Layer::default();
    for key in unfinished {
        let mut bindings = key.bindings.to_vec();
        let mut oids: OidsOf<'_> = &|_| None;
        if let Some((name, of_tables)) = database {
            bindings.push((super::DATABASE.into(), name.clone()));
            oids = of_tables;
        }
        let facts = Facts { bindings: &bindings, encoding, server_hashes, oids };
        // What cannot be computed here names nothing here.
        if let Ok(shape) = key.entry.rules[key.rule].shape(&facts, calls) {
            layer.insert(key.claim(shape), database.map(|(name, _)| name));
        }
    }
    layer.finish();
    layer
}

/// Classes of keys that presets of several tools claim.
fn shared_classes(entries: &[Arc<Entry>]) -> HashSet<u16> {
    let mut tools: HashMap<u16, BTreeSet<&str>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.is_preset) {
        for class in entry.rules.iter().filter_map(|rule| rule.class()) {
            tools.entry(class).or_default().insert(&entry.file);
        }
    }
    tools.into_iter().filter(|(_, tools)| tools.len() > 1).map(|(class, _)| class).collect()
}

/// What the claims of the most precise rank say together; `None` when there are none.
pub(super) fn first_rank(claims: &[&Claim], key: Option<Key>) -> Option<Resolution> {
    let rank = claims.iter().map(|claim| claim.rank()).min()?;
    let claims: Vec<&Claim> = claims.iter().copied().filter(|claim| claim.rank() == rank).collect();
    let first = claims.first()?;
    let contradicted = claims.iter().any(|claim| claim.contradicts(first));
    let names: BTreeSet<&str> = claims.iter().map(|claim| &*claim.entry.name).collect();
    let policies = || claims.iter().map(|claim| &claim.entry.policy);
    let labels_value = claims.iter().all(|claim| claim.entry.labels_value);
    // Values under different names have nothing to do with each other.
    let parameters = key.filter(|_| names.len() == 1);
    let parameters = parameters.map(|key| parameters_of(&claims, key)).unwrap_or_default();
    let lock = match names.len() {
        1 if labels_value => display_name(&first.entry.name, &parameters).into(),
        1 => first.entry.name.clone(),
        _ => names.into_iter().collect::<Vec<_>>().join(" | ").into(),
    };
    let mut candidates = BTreeSet::new();
    if contradicted {
        candidates.extend(claims.iter().map(|claim| claim.candidate()));
    }
    Some(Resolution {
        lock: Some(lock),
        pattern: agreed(claims.iter().map(|claim| claim.series())).flatten(),
        parameters: if labels_value { Vec::new() } else { parameters },
        max_hold: policies().map(|policy| policy.max_hold).min()?,
        max_wait: policies().map(|policy| policy.max_wait).min()?,
        max_idle_in_transaction: policies().filter_map(|it| it.max_idle_in_transaction).min(),
        last_held_within: policies().filter_map(|policy| policy.last_held_within).min(),
        not_again_within: policies().filter_map(|policy| policy.not_again_within).min(),
        must_be_held: policies().any(|policy| policy.must_be_held),
        vacant_for: policies().filter_map(|policy| policy.vacant_for).min(),
        holders: agreed(policies().map(|policy| &policy.holders)).cloned().flatten(),
        role: agreed(policies().map(|policy| policy.role)).flatten(),
        scope: said(policies().map(|policy: &Policy| policy.scope)),
        mode: said(policies().map(|policy: &Policy| policy.mode)),
        exact: rank == Rank::Exact,
        candidates: candidates.into_iter().collect(),
        is_open: false,
        owner: joined(claims.iter().map(|claim| &claim.entry.owner)),
        runbook: agreed(texts(claims.iter().map(|claim| &claim.entry.runbook))).flatten(),
        description: joined(claims.iter().map(|claim| &claim.entry.description)),
    })
}

/// The parameters of all claims; where they differ, a claim that says which one is meant would be a
/// guess.
fn parameters_of(claims: &[&Claim], key: Key) -> Vec<(Arc<str>, String)> {
    let mut merged: Vec<(Arc<str>, BTreeSet<String>)> = Vec::new();
    for (name, value) in claims.iter().flat_map(|claim| claim.parameters(key)) {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => {
                values.insert(value);
            }
            None => merged.push((name, BTreeSet::from([value]))),
        }
    }
    merged
        .into_iter()
        .map(|(name, values)| (name, values.into_iter().collect::<Vec<_>>().join(" or ")))
        .collect()
}

fn texts<'a>(
    said: impl Iterator<Item = &'a Option<Said>>,
) -> impl Iterator<Item = Option<Arc<str>>> {
    said.map(|said| said.as_ref().map(|said| said.text.clone()))
}

/// What any of them say, as the names in a conflict are written.
fn joined<'a>(said: impl Iterator<Item = &'a Option<Said>>) -> Option<Arc<str>> {
    let mut said: Vec<Arc<str>> = texts(said).flatten().collect();
    said.sort_unstable();
    said.dedup();
    match said.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(several.join(" | ").into()),
    }
}

/// What all of them say; `None` when they differ.
fn agreed<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// What those say who say something; `None` when they differ.
fn said<T: PartialEq>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    agreed(values).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::MAX_KEYS;
    use crate::registry::entry::parse_file;

    /// A registry whose only preset has this text.
    fn with_preset(text: &str) -> Registry {
        let source = Source { name: "tool".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        let file = parse_file(&source, true, &mut faults);
        let mut builder = Builder::new(MAX_KEYS);
        let entries: Vec<Arc<Entry>> = file.entries.into_iter().map(Arc::new).collect();
        for entry in &entries {
            builder.add(entry, &mut faults);
        }
        assert!(faults.is_empty(), "{:?}", faults.finish());
        builder.layer.finish();
        let none = Source { name: "locks.yaml".into(), text: "presets: none".into() };
        let registry = Registry::parse(&[none]).unwrap();
        Registry { fixed: Arc::new(builder.layer), entries, ..registry }
    }

    #[test]
    fn the_application_of_any_holder_speaks_for_a_small_number_as_long_as_it_holds_it() {
        let registry = with_preset(
            "locks: [{ name: leader, key: 7, marker: { applications: ['sched-*', beat] } }]",
        );
        let resolver = Resolver::new(Arc::new(registry), "db-1".into(), &Circumstances::default());
        let resolve = |names: &[&str]| {
            let applications: Vec<Arc<str>> = names.iter().copied().map(Arc::from).collect();
            let signs = Signs { applications: &applications, ..Signs::default() };
            resolver.resolve(Some("app"), Key::bigint(7), signs)
        };
        for strangers in [&[][..], &["worker"], &["beat-1", "a sched-1", ""]] {
            let resolution = resolve(strangers);
            assert_eq!((resolution.lock.as_deref(), resolution.is_open), (None, true));
            let [candidate] = &resolution.candidates[..] else { panic!("{resolution:?}") };
            assert_eq!((&*candidate.name, candidate.doubt), ("leader", Some(Doubt::NoMarker)));
            assert_eq!(candidate.origin, crate::registry::Origin::Preset("tool".into()));
        }
        for holders in [&["beat"][..], &["sched-1"], &["worker", "sched-2"]] {
            let resolution = resolve(holders);
            // The next holder may be a stranger.
            assert_eq!((resolution.label(), resolution.is_open), ("leader", true));
            assert!(resolution.candidates.is_empty());
        }
    }

    #[test]
    fn numbers_up_to_a_million_need_a_sign_and_those_up_to_two_to_the_31_no_crowd() {
        let registry = with_preset(
            "locks:\n\
             - { name: a, key: -999999 }\n\
             - { name: b, key: 1000000 }\n\
             - { name: c, key: -2147483647 }\n\
             - { name: d, key: 2147483648 }\n\
             - { name: e, key: { pair: [1, 2] } }\n",
        );
        let resolver = Resolver::new(Arc::new(registry), "db-1".into(), &Circumstances::default());
        let doubt = |key, is_crowded| {
            let signs = Signs { is_crowded, ..Signs::default() };
            let resolution = resolver.resolve(Some("app"), key, signs);
            let doubt = resolution.candidates.first().and_then(|candidate| candidate.doubt);
            assert_eq!(doubt.is_none(), resolution.lock.is_some(), "{resolution:?}");
            doubt
        };
        for (key, alone, crowded) in [
            (Key::bigint(-999_999), Some(Doubt::NoMarker), Some(Doubt::NoMarker)),
            (Key::bigint(1_000_000), None, Some(Doubt::Crowded)),
            (Key::bigint(-2_147_483_647), None, Some(Doubt::Crowded)),
            (Key::bigint(2_147_483_648), None, None),
            (Key::pair(1, 2), Some(Doubt::NoMarker), Some(Doubt::NoMarker)),
        ] {
            assert_eq!((doubt(key, false), doubt(key, true)), (alone, crowded), "{key}");
        }
        assert_eq!(resolver.preset_numbers(), [-2_147_483_647, 1_000_000]);
    }
}
