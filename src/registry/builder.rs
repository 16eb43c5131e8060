//! From entries to claims: every key of an entry for every combination of its values, as far as
//! keys can be computed without a database.
//!
//! What needs a database, its encoding or an answer is put aside as [`Unfinished`], or with its
//! entry, for the [`Resolver`](super::Resolver) of a server to finish. How many keys there are is
//! bounded here, since a few short lists of values may make very many.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Layer;
use super::claims::Claim;
use super::entry::{Entry, Values};
use super::fault::Faults;
use super::formula::{Facts, HashCheck, ServerHashes, Unfit};
use super::pattern::{KeyRule, Shape};
use super::template::Binding;
use crate::inspected::Answers;

/// So many hashes of the texts of files are compared with the server's.
pub(super) const MAX_HASH_CHECKS: usize = 10_000;

/// Computes claims.
pub(super) struct Builder {
    pub(super) layer: Layer,
    pub(super) by_encoding: Vec<Unfinished>,
    pub(super) by_database: Vec<Unfinished>,
    pub(super) queried: Vec<Arc<Entry>>,
    pub(super) hash_checks: HashChecks,
    server_hashes: ServerHashes,
    pub(super) keys_left: usize,
    max_keys: usize,
    /// An entry was left out for its number of keys.
    pub(super) is_exceeded: bool,
}

/// A key of an entry that cannot be computed yet.
#[derive(Clone, Debug)]
pub(super) struct Unfinished {
    pub(super) entry: Arc<Entry>,
    pub(super) rule: usize,
    pub(super) bindings: Arc<[Binding]>,
}

/// Hashes to be compared with the server's, each once.
#[derive(Debug, Default)]
pub(super) struct HashChecks(BTreeSet<HashCheck>);

impl HashChecks {
    /// Those that there is room for: a difference is one of machine or collation and shows in any
    /// of them, and there may be a million.
    pub(super) fn insert(&mut self, checks: impl IntoIterator<Item = HashCheck>) {
        for check in checks {
            if self.0.len() >= MAX_HASH_CHECKS {
                break;
            }
            self.0.insert(check);
        }
    }

    /// All of them, for those that are known to be few.
    pub(super) fn insert_all(&mut self, checks: impl IntoIterator<Item = HashCheck>) {
        self.0.extend(checks);
    }

    /// All that are in.
    pub(super) fn in_order(self) -> impl Iterator<Item = HashCheck> {
        self.0.into_iter()
    }
}

impl Builder {
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            layer: Layer::default(),
            by_encoding: Vec::new(),
            by_database: Vec::new(),
            queried: Vec::new(),
            hash_checks: HashChecks::default(),
            server_hashes: ServerHashes::new(),
            keys_left: max_keys,
            max_keys,
            is_exceeded: false,
        }
    }

    /// The server's own hashes win.
    pub(super) fn with_server_hashes(self, server_hashes: &ServerHashes) -> Self {
        Self { server_hashes: server_hashes.clone(), ..self }
    }

    /// Every key of the entry for every combination of its values, but those for which a server is
    /// to be asked: they have their turn when it has answered.
    pub(super) fn add(&mut self, entry: &Arc<Entry>, faults: &mut Faults<'_>) {
        let is_queried = |rule: &KeyRule| entry.queries_of(rule).next().is_some();
        if entry.rules.iter().any(is_queried) {
            self.queried.push(entry.clone());
        }
        let at_hand = Answers::default();
        self.add_rules(entry, &at_hand, |rule| !is_queried(rule), faults);
    }

    /// The keys that wait for answers, as far as these are there.
    pub(super) fn add_answered(
        &mut self,
        entry: &Arc<Entry>,
        answers: &Answers,
        faults: &mut Faults<'_>,
    ) {
        let is_queried = |rule: &KeyRule| entry.queries_of(rule).next().is_some();
        self.add_rules(entry, answers, is_queried, faults);
    }

    fn add_rules(
        &mut self,
        entry: &Arc<Entry>,
        answers: &Answers,
        is_meant: impl Fn(&KeyRule) -> bool,
        faults: &mut Faults<'_>,
    ) {
        let lists: Vec<(usize, Vec<ValueList<'_>>)> = entry
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| is_meant(rule))
            .filter_map(|(index, rule)| Some((index, entry.lists_of(rule, answers)?)))
            .collect();
        let databases = entry.databases.as_ref().map_or(1, Vec::len);
        let keys = lists.iter().fold(0_usize, |keys, (_, lists)| {
            let product =
                |product: usize, (_, list): &ValueList<'_>| product.saturating_mul(list.len());
            keys.saturating_add(lists.iter().fold(databases, product))
        });
        if keys > self.keys_left {
            if !std::mem::replace(&mut self.is_exceeded, true) {
                faults.add(
                    entry.at,
                    format!(
                        "with this entry, keys times values times databases exceed {}: leave \
                         databases out, list fewer values, or raise limits.values",
                        self.max_keys
                    ),
                );
            }
            return;
        }
        self.keys_left -= keys;
        for (rule, lists) in lists {
            let is_about_database = entry.rules[rule].is_about_database();
            for bindings in bindings_of(&lists) {
                let key = Unfinished { entry: entry.clone(), rule, bindings };
                if is_about_database {
                    self.by_database.push(key);
                } else {
                    self.add_key(key, faults);
                }
            }
        }
    }

    fn add_key(&mut self, key: Unfinished, faults: &mut Faults<'_>) {
        let rule = &key.entry.rules[key.rule];
        let mut calls = Vec::new();
        let facts = Facts {
            bindings: &key.bindings,
            encoding: None,
            server_hashes: &self.server_hashes,
            oids: &|_| None,
        };
        match rule.shape(&facts, &mut calls) {
            Ok(shape) => {
                if key.entry.is_preset {
                    self.hash_checks.insert_all(calls);
                } else {
                    self.hash_checks.insert(calls);
                }
                self.layer.insert(key.claim(shape), None);
            }
            Err(Unfit::Encoding) => self.by_encoding.push(key),
            // Where the values are missing is told already, with the mend.
            Err(Unfit::NoValue) if !faults.is_empty() => {}
            Err(unfit) => {
                let values: Vec<String> =
                    key.bindings.iter().map(|(name, value)| format!("{name} {value:?}")).collect();
                let of = if values.is_empty() {
                    String::new()
                } else {
                    format!(" (with {})", values.join(", "))
                };
                faults.add(rule.at, format!("{unfit}{of}"));
            }
        }
    }
}

/// A placeholder and what it may stand for.
type ValueList<'a> = (&'a Arc<str>, &'a [Arc<str>]);

/// Every combination of one value from each list.
fn bindings_of(lists: &[ValueList<'_>]) -> Vec<Arc<[Binding]>> {
    let mut combinations: Vec<Vec<Binding>> = vec![Vec::new()];
    for (name, list) in lists {
        combinations = combinations
            .iter()
            .flat_map(|combination| {
                list.iter().map(|value| {
                    let mut longer = combination.clone();
                    longer.push(((*name).clone(), value.clone()));
                    longer
                })
            })
            .collect();
    }
    combinations.into_iter().map(Arc::from).collect()
}

impl Unfinished {
    pub(super) fn claim(&self, shape: Shape) -> Claim {
        Claim { entry: self.entry.clone(), rule: self.rule, bindings: self.bindings.clone(), shape }
    }
}

impl Entry {
    /// The values of the placeholders in one key; `None` when a server has not told some of them.
    fn lists_of<'a>(&'a self, rule: &KeyRule, answers: &'a Answers) -> Option<Vec<ValueList<'a>>> {
        self.values_of(rule)
            .map(|(name, values)| match values {
                Values::List(list) => Some((name, list.as_slice())),
                Values::Query(query) => {
                    answers.values(&query.database, &query.sql).map(|list| (name, &**list))
                }
                // Read before, or a fault.
                Values::File { .. } => None,
            })
            .collect()
    }
}
