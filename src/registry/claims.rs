//! Which entries claim a key within one database, or within any.
//!
//! A map from keys and half-free pairs to claims. It answers for one rank of databases only; which
//! is asked first is [`Registry::resolve`](super::Registry::resolve)'s business.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::entry::Entry;
use super::pattern::{KeyPattern, Keys};
use super::{Candidate, Conflict, Resolution};
use crate::key::Key;

/// How many meetings of two half-free pairs are looked at: a bound that only a file made to exceed
/// it exceeds.
const MAX_CROSSINGS: usize = 100_000;

/// Claims by what is claimed.
#[derive(Debug, Default)]
pub(super) struct Claims(HashMap<Keys, Vec<Claim>>);

/// One key of one entry.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) entry: Arc<Entry>,
    pub(super) pattern: Arc<KeyPattern>,
}

impl Claims {
    pub(super) fn insert(&mut self, claim: Claim) {
        self.0.entry(claim.pattern.keys).or_default().push(claim);
    }

    /// By the most precise rank that has a claim for this server.
    pub(super) fn resolve(&self, server: &str, is_utf8: bool, key: Key) -> Option<Resolution> {
        Keys::ranks_of(key).into_iter().find_map(|rank| {
            let claims = rank.into_iter().flatten().filter_map(|keys| self.0.get(&keys)).flatten();
            let claims: Vec<_> = claims.filter(|claim| claim.holds_on(server, is_utf8)).collect();
            resolution(&claims, Some(key))
        })
    }

    /// Whether any claim is for this server.
    pub(super) fn concern(&self, server: &str) -> bool {
        self.0.values().flatten().any(|claim| claim.holds_on(server, true))
    }

    /// Every key and every pattern with a claim for this server.
    pub(super) fn series(
        &self,
        server: &str,
        is_utf8: bool,
    ) -> impl Iterator<Item = (Option<Key>, Resolution)> {
        self.0.iter().filter_map(move |(keys, claims)| {
            let claims: Vec<_> =
                claims.iter().filter(|claim| claim.holds_on(server, is_utf8)).collect();
            let key = match keys {
                Keys::One(key) => Some(*key),
                Keys::PairsFrom(_) | Keys::PairsTo(_) => None,
            };
            Some((key, resolution(&claims, key)?))
        })
    }

    /// What is claimed under several names on some server; the databases are left empty.
    pub(super) fn conflicts(&self) -> impl Iterator<Item = Conflict> {
        let same = self.0.iter().filter_map(|(keys, claims)| {
            let claims: Vec<&Claim> = claims.iter().collect();
            conflict(keys.to_string(), &claims, &claims)
        });
        same.chain(self.crossings())
    }

    /// Two patterns that leave the other half free meet in one pair, unless that pair has an entry
    /// of its own.
    fn crossings(&self) -> impl Iterator<Item = Conflict> {
        let mut from: Vec<(i32, &Vec<Claim>)> = Vec::new();
        let mut to: Vec<(i32, &Vec<Claim>)> = Vec::new();
        for (keys, claims) in &self.0 {
            match keys {
                Keys::One(_) => {}
                Keys::PairsFrom(first) => from.push((*first, claims)),
                Keys::PairsTo(second) => to.push((*second, claims)),
            }
        }
        from.sort_by_key(|(half, _)| *half);
        to.sort_by_key(|(half, _)| *half);
        from.into_iter()
            .flat_map(move |from| to.clone().into_iter().map(move |to| (from, to)))
            .take(MAX_CROSSINGS)
            .filter_map(|((first, from), (second, to))| {
                let pair = Key::pair(first, second);
                if self.0.contains_key(&Keys::One(pair)) {
                    return None;
                }
                let from: Vec<&Claim> = from.iter().collect();
                let to: Vec<&Claim> = to.iter().collect();
                conflict(pair.to_string(), &from, &to)
            })
    }
}

/// What two sets of claims on one key contradict each other in.
fn conflict(key: String, these: &[&Claim], those: &[&Claim]) -> Option<Conflict> {
    let name = &these.first()?.entry.name;
    if these.iter().chain(those).all(|claim| claim.entry.name == *name) {
        return None;
    }
    let contested = |claims: &[&Claim], others: &[&Claim]| -> Vec<Candidate> {
        candidates(
            claims
                .iter()
                .copied()
                .filter(|claim| others.iter().any(|other| claim.contradicts(other))),
        )
    };
    let mut candidates = contested(these, those);
    candidates.extend(contested(those, these));
    candidates.sort();
    candidates.dedup();
    (!candidates.is_empty()).then(|| Conflict {
        key: key.into(),
        databases: Vec::new(),
        candidates,
    })
}

impl Claim {
    fn holds_on(&self, server: &str, is_utf8: bool) -> bool {
        let servers = self.entry.servers.as_ref();
        (is_utf8 || !self.pattern.needs_utf8())
            && servers.is_none_or(|globs| globs.iter().any(|glob| glob.matches(server)))
    }

    /// Another name for the same keys on some server.
    fn contradicts(&self, other: &Claim) -> bool {
        self.entry.name != other.entry.name
            && match (&self.entry.servers, &other.entry.servers) {
                (Some(here), Some(there)) => {
                    here.iter().any(|glob| there.iter().any(|other| glob.overlaps(other)))
                }
                (None, _) | (_, None) => true,
            }
    }

    /// The free half under the name that the entry gives it.
    fn parameter(&self, key: Option<Key>) -> Option<(Arc<str>, String)> {
        let name = self.entry.parameter.clone()?;
        Some((name, self.pattern.free_half(key?)?.to_string()))
    }
}

/// What claims of equal rank say together; `None` when there are none.
fn resolution(claims: &[&Claim], key: Option<Key>) -> Option<Resolution> {
    let first = claims.first()?;
    let conflict = claims.iter().any(|claim| claim.entry.name != first.entry.name);
    let lock = if conflict {
        let names: BTreeSet<&str> = claims.iter().map(|claim| &*claim.entry.name).collect();
        names.into_iter().collect::<Vec<_>>().join(" | ").into()
    } else {
        first.entry.name.clone()
    };
    let entries = || claims.iter().map(|claim| &claim.entry);
    Some(Resolution {
        lock: Some(lock),
        pattern: agreed(claims.iter().map(|claim| claim.pattern.series.clone())).flatten(),
        parameters: agreed(claims.iter().map(|claim| claim.parameter(key)))
            .flatten()
            .into_iter()
            .collect(),
        max_hold: entries().map(|entry| entry.max_hold).min()?,
        max_wait: entries().map(|entry| entry.max_wait).min()?,
        last_held_within: entries().filter_map(|entry| entry.last_held_within).min(),
        scope: agreed(entries().map(|entry| entry.scope)).flatten(),
        exact: matches!(first.pattern.keys, Keys::One(_)),
        candidates: if conflict { candidates(claims.iter().copied()) } else { Vec::new() },
    })
}

fn candidates<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = claims
        .map(|Claim { entry, pattern }| Candidate {
            name: entry.name.clone(),
            file: entry.file.clone(),
            line: pattern.at.line,
            written: pattern.written.clone(),
        })
        .collect();
    candidates.sort();
    candidates
}

/// What all of them say; `None` when they differ.
fn agreed<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}
