//! Who names a key on one server.
//!
//! A [`Resolver`] is the registry with all that only a server knows put in: which databases there
//! are and in which encoding they write text, what queries and tables answered, and hashes that the
//! server computes in its own way. It does not change either; a new one is made when any of that
//! changes. What is seen of a key at the moment (who holds it, what lies around it) comes with each
//! question as [`Signs`], since small numbers are named by presets only with evidence.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::builder::{Builder, HashChecks, Unfinished};
use super::claims::{Claim, Claims, candidates};
use super::encoding::Encoding;
use super::entry::{Entry, Policy, Said};
use super::fault::Faults;
use super::formula::{Facts, HashCall, HashCheck, ServerHashes};
use super::pattern::{Part, Rank, Shape, packing_of};
use super::template::DATABASE;
use super::{
    Armed, Candidate, Doubt, LISTED, Layer, Limit, Registry, Resolution, Source, Standing,
    display_name,
};
use crate::inspected::Answers;
use crate::key::Key;

/// Presets name smaller numbers only with a marker, and counted ids reach up to the larger one.
const SMALL: u64 = 1_000_000;
const COUNTED: u64 = 1 << 31;

/// A packing of so many characters uses nearly all of the 64 bits, so that other pairs look like
/// one.
const LONG_PACKING: usize = 8;

/// So many values that hash alike are told.
const ALTERNATIVES: usize = 8;

/// So many characters of a value become part of a label.
const LABEL_VALUE: usize = 100;

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
    /// How many keys may still be computed for databases.
    keys_left: usize,
    is_exceeded: bool,
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
            // They were counted when the files were read.
            builder.keys_left = usize::MAX;
            for entry in &registry.entries {
                builder.add(entry, &mut faults);
            }
            builder.keys_left = registry.max_keys;
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
            builder.add_answered(entry, &told.answers, &mut faults);
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
            keys_left: builder.keys_left,
            is_exceeded: builder.is_exceeded,
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
        resolver.hash_checks = hash_checks.in_order().collect();
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
        let speaks_of_it = |key: &&Unfinished| {
            key.entry.databases.as_ref().is_none_or(|databases| databases.contains(name))
        };
        let mut unfinished: Vec<&Unfinished> = unfinished.iter().filter(speaks_of_it).collect();
        let keys = unfinished.iter().filter(|key| !key.entry.is_preset).count();
        if keys > self.keys_left {
            self.is_exceeded = true;
            unfinished.retain(|key| key.entry.is_preset);
        } else {
            self.keys_left -= keys;
        }
        let database = Some((name, &oids as OidsOf<'_>));
        let layer = compute(unfinished, &told.server_hashes, encoding, database, &mut calls);
        if encoding == Some(Encoding::Utf8) {
            hash_checks.insert(calls);
        }
        self.databases.insert(name.clone(), KnownDatabase { encoding, layer });
    }

    /// What databases told makes more keys than `limits.values` allows: some have no name.
    pub fn is_past_max_keys(&self) -> bool {
        self.is_exceeded
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
        if is_by_chance(claim, key) {
            return (Some(Doubt::Chance), false);
        }
        if !claim.entry.is_preset {
            return (None, false);
        }
        if self.shared_classes.contains(&key.objsubid()) {
            return (Some(Doubt::SharedClass), false);
        }
        // In a conflict the label has several names.
        let believed = signs.believed.into_iter().flat_map(|label| label.split(" | "));
        if believed.into_iter().any(|name| *name == *claim.entry.name) {
            return (None, true);
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
                    // A table of the tool is not seen from one poll to the next.
                    (Some(Doubt::NoMarker), !marker.applications.is_empty())
                }
            }
            Some(magnitude) if magnitude < COUNTED && key.as_bigint().is_some() => {
                (signs.is_crowded.then_some(Doubt::Crowded), true)
            }
            Some(_) | None => (None, false),
        }
    }

    /// Claims of one standing on this server. What a file says of a preset makes no key the
    /// preset's that has its form by chance.
    fn claims(&self, standing: Standing<'_>, database: Option<&str>, key: Key) -> Vec<&Claim> {
        self.layers(database)
            .filter_map(|layer| layer.standing(standing))
            .flat_map(|claims| claims.of(key))
            .filter(|claim| claim.holds_on(&self.server))
            .filter(|claim| claim.entry.is_preset || !is_by_chance(claim, key))
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
            let claims = self
                .layers(Some(&datname))
                .filter_map(|layer| layer.standing(Standing::Named(&datname)))
                .flat_map(Claims::iter)
                .filter(|claim| claim.holds_on(&self.server));
            for (key, resolution) in series_of(claims) {
                let order = [datname.clone(), key.clone(), resolution.label().into()];
                let series = Armed { datname: datname.clone(), key, resolution };
                armed.entry(order).or_insert(series);
            }
        }
        armed.into_values().collect()
    }

    /// What series for many keys there may be in databases that no entry names, by `lock` and `key`.
    pub fn patterns(&self) -> HashMap<(Arc<str>, Arc<str>), Resolution> {
        let claims = self
            .all_layers()
            .flat_map(|layer| layer.any.iter().chain(layer.presets.iter()))
            .filter(|claim| !matches!(claim.rank(), Rank::Exact) && claim.holds_on(&self.server));
        series_of(claims)
            .into_iter()
            .filter(|(_, resolution)| resolution.pattern.is_some())
            .map(|(key, resolution)| ((resolution.label().into(), key), resolution))
            .collect()
    }

    fn all_layers(&self) -> impl Iterator<Item = &Layer> {
        let layers = [&*self.fixed, &self.queried].into_iter().chain(self.by_encoding.values());
        layers.chain(self.databases.values().map(|database| &database.layer))
    }

    fn find_preset_numbers(&self) -> Vec<i64> {
        let numbers: BTreeSet<i64> = self
            .all_layers()
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

/// Whether a key that is only recognised may well have its form by chance.
fn is_by_chance(claim: &Claim, key: Key) -> bool {
    match claim.shape {
        _ if !claim.entry.is_of_preset => false,
        Shape::Packing => packing_of(key).is_some_and(|text| text.len() >= LONG_PACKING),
        // Sooner or later ids come across each small multiple.
        Shape::MultipleOf(_) => key.as_bigint().is_some_and(|key| key.unsigned_abs() < COUNTED),
        // An id packed beside a number that happens to be the tool's is small; a hash hardly ever.
        Shape::Halves(_, _, Part::Any) => {
            key.as_bigint().is_some() && u64::from(key.objid()) < SMALL
        }
        Shape::One(_) | Shape::Halves(..) | Shape::Range(..) => false,
    }
}

/// The series that claims of one standing make, by their `key` label.
fn series_of<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<(Arc<str>, Resolution)> {
    let mut groups: HashMap<Group<'_>, Vec<&Claim>> = HashMap::new();
    for claim in claims {
        // Which series there are cannot be told before the keys are seen.
        if claim.entry.labels_value && !matches!(claim.shape, Shape::One(_)) {
            continue;
        }
        let group = Group::of(claim);
        let is_of_many = matches!(group, Group::Values(..));
        let claims = groups.entry(group).or_default();
        // Of the values of an entry, which may be very many, one speaks for all.
        if !is_of_many || claims.last().is_none_or(|last| !Arc::ptr_eq(&last.entry, &claim.entry)) {
            claims.push(claim);
        }
    }
    let series = groups.into_iter().filter_map(|(group, claims)| {
        let key = match group {
            Group::Shape(Rank::Exact | Rank::Values, Shape::One(key)) => Some(*key),
            Group::Shape(..) | Group::Values(..) => None,
        };
        let resolution = first_rank(&claims, key)?;
        let label = match &resolution.pattern {
            Some(pattern) => pattern.clone(),
            None => key?.to_string().into(),
        };
        Some((label, resolution))
    });
    series.collect()
}

/// Claims that share a series.
#[derive(PartialEq, Eq, Hash)]
enum Group<'a> {
    /// Of one key or pattern; several names for it are a conflict.
    Shape(Rank, &'a Shape),
    /// Of values, by the name and the placeholders.
    Values(&'a str, Vec<&'a str>),
}

impl<'a> Group<'a> {
    fn of(claim: &'a Claim) -> Self {
        if claim.bindings.is_empty() || claim.entry.labels_value {
            Self::Shape(claim.rank(), &claim.shape)
        } else {
            let placeholders = claim.bindings.iter().map(|(name, _)| &**name).collect();
            Self::Values(&claim.entry.name, placeholders)
        }
    }
}

/// The OID of a table of a database.
type OidsOf<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// Finishes what can be finished for an encoding, or for one database.
fn compute<'a>(
    unfinished: impl IntoIterator<Item = &'a Unfinished>,
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
            bindings.push((DATABASE.into(), name.clone()));
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
        1 if labels_value => display_name(&first.entry.name, &as_label(&parameters)).into(),
        1 => first.entry.name.clone(),
        _ => joined_names(&names),
    };
    let candidates = if contradicted { candidates(claims.iter().copied()) } else { Vec::new() };
    Some(Resolution {
        lock: Some(lock),
        pattern: agreed(claims.iter().map(|claim| claim.series())).flatten(),
        parameters: if labels_value { Vec::new() } else { parameters },
        max_hold: policies().map(|policy| policy.max_hold).min()?,
        max_wait: policies().map(|policy| policy.max_wait).min()?,
        max_idle_in_transaction: smallest(policies().map(|it| it.max_idle_in_transaction)),
        last_held_within: policies().filter_map(|policy| policy.last_held_within).min(),
        not_again_within: policies().filter_map(|policy| policy.not_again_within).min(),
        must_be_held: policies().any(|policy| policy.must_be_held),
        vacant_for: policies().filter_map(|policy| policy.vacant_for).min(),
        holders: agreed(policies().map(|policy| &policy.holders)).cloned().flatten(),
        role: agreed(policies().map(|policy| policy.role)).flatten(),
        scope: said(policies().map(|policy: &Policy| policy.scope)),
        mode: said(policies().map(|policy: &Policy| policy.mode)),
        exact: rank == Rank::Exact,
        candidates,
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
    merged.into_iter().map(|(name, values)| (name, alternatives(values))).collect()
}

/// `a or b`. Of a hash with few results very many values may be meant.
fn alternatives(values: BTreeSet<String>) -> String {
    let more = values.len().saturating_sub(ALTERNATIVES);
    let shown: Vec<String> = values.into_iter().take(ALTERNATIVES).collect();
    let more = if more == 0 { String::new() } else { format!(" or {more} others") };
    shown.join(" or ") + &more
}

/// Values come from databases too, and a label is one line of text, not too long, in which " | "
/// joins names.
fn as_label(parameters: &[(Arc<str>, String)]) -> Vec<(Arc<str>, String)> {
    let as_label = |value: &String| {
        let value = value.replace(char::is_control, "\u{fffd}").replace('|', "\u{a6}");
        match value.char_indices().nth(LABEL_VALUE) {
            Some((end, _)) => format!("{}\u{2026}", &value[..end]),
            None => value,
        }
    };
    parameters.iter().map(|(name, value)| (name.clone(), as_label(value))).collect()
}

fn texts<'a>(
    said: impl Iterator<Item = &'a Option<Said>>,
) -> impl Iterator<Item = Option<Arc<str>>> {
    said.map(|said| said.as_ref().map(|said| said.text.clone()))
}

/// `a | b`; of very many the first, and how many there are beside them.
fn joined_names(names: &BTreeSet<&str>) -> Arc<str> {
    let mut shown: Vec<&str> = names.iter().copied().take(LISTED).collect();
    let more = names.len() - shown.len();
    let rest = format!("{more} more");
    if more > 0 {
        shown.push(&rest);
    }
    shown.join(" | ").into()
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

/// The smallest limit; who says none has that of the configuration, which is never unlimited.
fn smallest(limits: impl Iterator<Item = Option<Limit>> + Clone) -> Option<Limit> {
    let is_finite = |limit: &Limit| *limit != Limit::Unlimited;
    let all_say_one = limits.clone().all(|limit| limit.is_some());
    limits.flatten().min().filter(|limit| all_say_one || is_finite(limit))
}

/// What those say who say something; `None` when they differ.
fn said<T: PartialEq>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    agreed(values).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn named(resolver: &Resolver, key: Key) -> String {
        resolver.resolve(Some("app"), key, Signs::default()).label().to_owned()
    }

    fn answers(sql: &str, values: &[&str]) -> Answers {
        let mut answers = Answers::default();
        let values = values.iter().map(|value| Arc::from(*value)).collect();
        answers.insert_values(&"app".into(), &sql.into(), values);
        answers
    }

    fn with_table(table: &str) -> Answers {
        let mut answers = Answers::default();
        answers.replace_tables(&"app".into(), [(table.into(), Some(1))]);
        answers
    }

    #[test]
    fn of_equal_standing_the_more_precise_entry_names_the_key() {
        // From the least precise on, each beside all before it.
        let ranked = [
            ("recognition", "key: { multiple_of: 7 }"),
            ("range", "key: { range: [0, 9999999999] }"),
            ("half", "key: { packed: [0, '*'] }"),
            ("values", "key: { integer: '{n}' }, values: { n: ['49'] }"),
            ("exact", "key: { integer: '49' }"),
        ];
        let mut text = "presets: none\nlocks:\n".to_owned();
        for (name, rest) in ranked {
            text.push_str(&format!("- {{ name: {name}, {rest} }}\n"));
            let registry = registry(&text);
            assert_eq!(label(&registry, APP, Key::bigint(49)), name);
            assert!(registry.conflicts().is_empty(), "{:?}", registry.conflicts());
        }
        text.push_str("- { name: number, key: 49 }\n");
        assert_eq!(label(&registry(&text), APP, Key::bigint(49)), "exact | number");
        text.push_str("- { name: app, key: { multiple_of: 7 }, databases: [app] }\n");
        assert_eq!(label(&registry(&text), APP, Key::bigint(49)), "app", "standing before rank");
    }

    #[test]
    fn a_text_with_the_databases_name_names_its_key_there_only() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - { name: any, key: { hashtext: 'jobs:{database}' } }\n\
             - { name: named, key: { crc32: '{database}' }, databases: [app, gone] }\n",
        );
        let resolver = resolver(&registry, "db-1", &[("app", "UTF8"), ("other", "UTF8")]);
        let of = |name: &str| {
            let any =
                Key::bigint(super::super::hash::hashtext(format!("jobs:{name}").as_bytes()).into());
            [any, crc32(name)]
        };
        let labels = |database, keys: [Key; 2]| {
            keys.map(|key| resolver.resolve(database, key, Signs::default()).label().to_owned())
        };
        assert_eq!(labels(Some("app"), of("app")), ["any", "named"]);
        assert_eq!(labels(Some("other"), of("other")), ["any", "unregistered"]);
        for (database, name) in
            [(Some("app"), "other"), (Some("other"), "app"), (None, "app"), (Some("gone"), "gone")]
        {
            assert_eq!(labels(database, of(name)), ["unregistered"; 2], "{database:?} {name}");
        }
        let armed: Vec<_> = resolver.armed().into_iter().map(|armed| armed.datname).collect();
        assert_eq!(armed, ["app".into()]);
    }

    #[test]
    fn a_conflict_that_only_a_server_shows_is_news() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - { name: a, key: { crc32: '{database}' } }\n\
             - { name: b, key: { crc32: '{database}' } }\n\
             - { name: c, keys: [1, 2] }\n\
             - { name: d, key: 1 }\n",
        );
        let crc = crc32("app");
        assert_eq!(registry.conflicts().len(), 1);
        let resolution = resolve(&registry, "db-1", APP, crc);
        assert_eq!((resolution.label(), registry.is_news(&resolution)), ("a | b", true));
        let resolution = resolve(&registry, "db-1", APP, Key::bigint(1));
        assert_eq!((resolution.label(), registry.is_news(&resolution)), ("c | d", false));
        assert!(!registry.is_news(&resolve(&registry, "db-1", APP, Key::bigint(2))));
    }

    #[test]
    fn a_key_takes_part_in_the_values_of_its_own_placeholders_only() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - name: job\n\
             \x20 keys: [{ integer: '{a}' }, { integer: '{b}' }, 7]\n\
             \x20 values: { a: ['1', '2'], b: ['3', '4'] }\n\
             - name: asked\n\
             \x20 keys: [8, { integer: '{c}' }]\n\
             \x20 values: { c: { query: select, database: app } }\n",
        );
        assert!(registry.conflicts().is_empty(), "{:?}", registry.conflicts());
        let resolution = resolve(&registry, "db-1", APP, Key::bigint(1));
        assert_eq!(resolution.parameters, [("a".into(), "1".to_owned())]);
        assert_eq!(resolution.pattern.as_deref(), Some("values(a)"));
        let resolution = resolve(&registry, "db-1", APP, Key::bigint(7));
        assert!(
            resolution.exact && resolution.pattern.is_none() && resolution.parameters.is_empty()
        );
        assert_eq!(label(&registry, APP, Key::bigint(8)), "asked", "without an answer");
        assert_eq!(label(&registry, APP, Key::bigint(9)), "unregistered");
        let told = resolver_told(&registry, "db-1", &[], answers("select", &["9", "no number"]));
        assert_eq!(
            [8, 9, 10].map(|n| named(&told, Key::bigint(n))),
            ["asked", "asked", "unregistered"]
        );
    }

    #[test]
    fn values_of_a_query_come_and_go_with_the_answers_and_are_bounded() {
        let text = "presets: none\n\
                    locks:\n\
                    - { name: few, key: { integer: '1{n}' }, values: { n: { query: table few, database: app } } }\n\
                    - { name: many, key: { integer: '2{n}' }, values: { n: { query: table many, database: app } } }\n";
        let registry = Registry::load_sources(&[source("f", text)], 3).unwrap();
        let resolver = |answers| resolver_told(&registry, "db-1", &[], answers);
        let mut told = answers("table many", &["1", "2", "3", "4"]);
        told.insert_values(&"app".into(), &"table few".into(), vec!["1".into(), "2".into()]);
        let both = resolver(told);
        assert_eq!([12, 23].map(|n| named(&both, Key::bigint(n))), ["few", "unregistered"]);
        assert!(both.is_past_max_keys());
        let some = resolver(answers("table many", &["1", "2", "3"]));
        assert_eq!([12, 23].map(|n| named(&some, Key::bigint(n))), ["unregistered", "many"]);
        assert!(!some.is_past_max_keys());
    }

    #[test]
    fn keys_of_the_databases_names_are_bounded_and_presets_stay() {
        let list = (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join("','");
        let text = format!(
            "presets: {{ grafana: {{}} }}\n\
             locks: [{{ name: a, key: {{ crc32: '{{n}}{{database}}' }}, values: {{ n: ['{list}'] }} }}]"
        );
        let registry = Registry::load_sources(&[source("f", &text)], 100).unwrap();
        let databases: Vec<(String, &str)> = (0..9).map(|n| (format!("d{n}"), "UTF8")).collect();
        let databases: Vec<(&str, &str)> = databases.iter().map(|(n, e)| (&**n, *e)).collect();
        let resolver = resolver(&registry, "db-1", &databases);
        assert!(resolver.is_past_max_keys());
        let claims = |name| {
            let layers = resolver.layers(Some(name));
            layers.map(|layer| (layer.any.iter().count(), layer.presets.iter().count())).last()
        };
        let all: Vec<_> = databases.iter().filter_map(|(name, _)| claims(name)).collect();
        assert_eq!(all.iter().map(|(of_file, _)| of_file).sum::<usize>(), 80);
        assert!(all.iter().all(|(_, of_preset)| *of_preset == 1), "{all:?}");
    }

    #[test]
    fn values_begin_one_series_without_a_conflict_and_with_the_smallest_limits() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - &a { name: a, key: { hashtext: 'a{n}' }, values: { n: [x, y, z] }, databases: [app], max_hold: 7m }\n\
             - { name: a, key: { hashtext: 'b{n}' }, values: { n: [x] }, databases: [app], max_hold: 5m }\n\
             - { name: b, key: { integer: '{n}' }, values: { n: ['1', '2'] }, databases: [app], label: value }\n",
        );
        let armed = resolver(&registry, "db-1", &[("app", "UTF8")]).armed();
        let series: Vec<_> = armed
            .iter()
            .map(|it| (&*it.key, it.resolution.label(), it.resolution.is_conflict()))
            .collect();
        assert_eq!(
            series,
            [("1", "b (n 1)", false), ("2", "b (n 2)", false), ("values(n)", "a", false)]
        );
        assert_eq!(armed[2].resolution.max_hold, minutes(5));
    }

    #[test]
    fn the_smallest_limit_of_two_names_holds_and_who_says_none_is_not_unlimited() {
        let limit = |first: &str, second: &str| {
            let registry = registry(&format!(
                "locks:\n- {{ name: a, key: 1{first} }}\n- {{ name: b, key: 1{second} }}\n"
            ));
            resolve(&registry, "db-1", APP, Key::bigint(1)).max_idle_in_transaction
        };
        let (unlimited, finite) =
            (", max_idle_in_transaction: unlimited", ", max_idle_in_transaction: 5m");
        assert_eq!(limit("", ""), None);
        assert_eq!(limit(unlimited, ""), None);
        assert_eq!(limit(unlimited, unlimited), Some(Limit::Unlimited));
        assert_eq!(limit(unlimited, finite), Some(minutes(5)));
        assert_eq!(limit("", finite), Some(minutes(5)));
    }

    #[test]
    fn a_value_in_a_label_is_one_line_that_joins_no_names_and_is_not_too_long() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - { name: a, key: { crc32: '{n}' }, label: value, values: { n: { query: table s, database: app } } }\n",
        );
        let long = "x".repeat(1000);
        let told =
            resolver_told(&registry, "db-1", &[], answers("table s", &["p | q\n", &long, "{}"]));
        let label = |value: &str| named(&told, crc32(value));
        assert_eq!(label("p | q\n"), "a (n p \u{a6} q\u{fffd})");
        assert_eq!(label(&long), format!("a (n {}\u{2026})", &long[..100]));
        assert_eq!(label("{}"), "a (n {})");
    }

    #[test]
    fn a_label_of_very_many_names_shows_the_first() {
        let entries = |count: usize| {
            let entry = |n| format!("- {{ name: n{n:02}, key: 1 }}\n");
            format!("locks:\n{}", (0..count).map(entry).collect::<String>())
        };
        let name = |count| label(&registry(&entries(count)), APP, Key::bigint(1));
        assert_eq!(name(10), "n00 | n01 | n02 | n03 | n04 | n05 | n06 | n07 | n08 | n09");
        assert_eq!(name(12), "n00 | n01 | n02 | n03 | n04 | n05 | n06 | n07 | n08 | n09 | 2 more");
    }

    #[test]
    fn a_number_of_a_preset_with_a_small_one_packed_beside_it_is_a_candidate() {
        let registry = Registry::empty();
        let hash = resolve(&registry, "db-1", APP, Key::bigint((18_028 << 32) | 1_462_734_915));
        assert_eq!(hash.display_name(), "flyway-migrate (low_half 1462734915)");
        let packed = resolve(&registry, "db-1", APP, Key::bigint((18_028 << 32) | 99));
        let doubts: Vec<_> = packed.candidates.iter().map(|it| (&*it.name, it.doubt)).collect();
        assert_eq!(packed.lock, None);
        assert_eq!(doubts, [("flyway-migrate", Some(Doubt::Chance))]);
    }

    #[test]
    fn a_small_number_of_a_preset_needs_its_table_in_that_database_or_is_a_candidate() {
        let registry = registry("presets: { airflow: {}, coder: {} }");
        let doubts = |resolution: &Resolution| -> Vec<_> {
            resolution.candidates.iter().map(|it| (it.name.to_string(), it.doubt)).collect()
        };
        let without = resolver(&registry, "db-1", &[]);
        let resolution = without.resolve(Some("app"), Key::bigint(2), Signs::default());
        // Nothing that a poll shows would change that: these presets know no application.
        assert_eq!((resolution.label(), resolution.is_open), ("unregistered", false));
        assert_eq!(
            doubts(&resolution),
            [
                ("airflow-scheduler".to_owned(), Some(Doubt::NoMarker)),
                ("coder-enterprise-setup".to_owned(), Some(Doubt::NoMarker))
            ]
        );
        let with = resolver_told(&registry, "db-1", &[], with_table("public.dag_run"));
        let in_app = with.resolve(Some("app"), Key::bigint(2), Signs::default());
        assert_eq!((in_app.label(), in_app.candidates.len()), ("airflow-scheduler", 0));
        for elsewhere in [Some("other"), None] {
            let resolution = with.resolve(elsewhere, Key::bigint(2), Signs::default());
            assert_eq!(resolution.label(), "unregistered", "{elsewhere:?}");
        }
    }

    #[test]
    fn a_counted_number_of_a_preset_is_a_candidate_in_a_crowd() {
        let registry = registry("");
        let resolver = resolver(&registry, "db-1", &[]);
        assert!(resolver.preset_numbers().contains(&72_707_369));
        let resolve = |number, is_crowded| {
            let signs = Signs { is_crowded, ..Signs::default() };
            resolver.resolve(Some("app"), Key::bigint(number), signs)
        };
        let alone = resolve(72_707_369, false);
        assert_eq!((alone.label(), alone.is_open), ("prisma-migrate", true));
        let crowded = resolve(72_707_369, true);
        assert_eq!(
            (crowded.label(), crowded.candidates[0].doubt),
            ("unregistered", Some(Doubt::Crowded))
        );
        let large = resolve(9_628_173_550_095_224, true);
        assert_eq!((large.label(), large.is_open), ("tern-migrate", false));
    }

    #[test]
    fn forms_that_other_keys_have_by_chance_are_candidates() {
        let registry = registry("presets: { rails: {}, madelson: {} }");
        let resolver = resolver(&registry, "db-1", &[]);
        let doubt = |key| {
            let resolution = resolver.resolve(Some("app"), key, Signs::default());
            match resolution.candidates.first() {
                None => (resolution.label().to_owned(), None),
                Some(candidate) => (resolution.label().to_owned(), candidate.doubt),
            }
        };
        let chance = ("unregistered".to_owned(), Some(Doubt::Chance));
        let rails = |quotient: i64| Key::bigint(2_053_462_845 * quotient);
        assert_eq!(doubt(rails(1)), chance, "an id may be so large");
        assert_eq!(doubt(rails(2)), ("rails-migrations".to_owned(), None));
        assert_eq!(doubt(rails(0)), ("unregistered".to_owned(), None));
        assert_eq!(doubt(rails(-2)), ("unregistered".to_owned(), None));
    }

    #[test]
    fn a_name_that_was_believed_is_kept_in_a_conflict_too_but_not_against_other_doubts() {
        let registry =
            registry("presets: { airflow: {}, coder: {}, citus: {}, pg-auto-failover: {} }");
        let resolver = resolver(&registry, "db-1", &[]);
        let resolve = |key, believed| {
            let signs = Signs { believed: Some(believed), ..Signs::default() };
            resolver.resolve(Some("app"), key, signs)
        };
        let both = "airflow-scheduler | coder-enterprise-setup";
        assert_eq!(resolve(Key::bigint(2), both).label(), both);
        assert_eq!(resolve(Key::bigint(2), "airflow-scheduler").label(), "airflow-scheduler");
        let shared = resolve(Key::from_columns(0, 9, 10), "citus-cleanup");
        assert_eq!(
            (shared.label(), shared.candidates[0].doubt),
            ("unregistered", Some(Doubt::SharedClass))
        );
    }

    #[test]
    fn an_encoding_that_cannot_write_the_text_is_a_fault_where_the_entry_chose_it() {
        let text = refusal("locks: [{ name: a, key: { crc32: '\u{20ac}', encoding: latin1 } }]");
        assert!(
            text.starts_with(
                "f:1:25: \"\u{20ac}\" cannot be written in the encoding that is given"
            ),
            "{text}"
        );
        // The database's own may be one that can.
        let registry =
            registry("locks: [{ name: a, key: { hashtext: '\u{20ac}' }, databases: [app] }]");
        let armed = |encoding| resolver(&registry, "db-1", &[("app", encoding)]).armed().len();
        assert_eq!([armed("UTF8"), armed("LATIN1"), armed("LATIN9")], [1, 0, 1]);
    }

    #[test]
    fn what_a_server_computes_of_other_than_ascii_text_is_of_its_utf8_databases() {
        let registry =
            Arc::new(registry("presets: none\nlocks: [{ name: a, key: { hashtext: caf\u{e9} } }]"));
        let call = HashCall {
            function: super::super::HashFunction::Hashtext,
            text: "caf\u{e9}".into(),
            seed: 0,
        };
        let told = Circumstances {
            databases: vec![("app".into(), "UTF8".into()), ("old".into(), "LATIN1".into())],
            server_hashes: HashMap::from([(call, 5)]),
            ..Circumstances::default()
        };
        let resolver = Resolver::new(registry, "db-1".into(), &told);
        let label = |database| resolver.resolve(Some(database), Key::bigint(5), Signs::default());
        assert_eq!(label("app").label(), "a");
        assert_eq!(label("old").label(), "unregistered");
    }

    /// A registry whose only preset has this text.
    fn with_preset(text: &str) -> Registry {
        let source = Source { name: "tool".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        let file = super::super::entry::parse_file(&source, true, &mut faults);
        let mut builder = Builder::new(super::super::MAX_KEYS);
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
