//! Which entries claim a key: an index from keys to what was said of them.
//!
//! A key is looked up with a few hash probes and binary searches, however many entries there are.
//! It answers for one set of entries only; which set is asked first is
//! [`Resolver`](super::Resolver)'s business.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::Entry;
use super::pattern::{KeyRule, Part, Rank, Shape};
use super::template::Binding;
use super::{Candidate, Conflict};
use crate::key::Key;

/// How many pairs of patterns are compared for conflicts: a bound that only a file made to exceed it
/// exceeds.
const MAX_COMPARISONS: usize = 1_000_000;

/// One key of one entry, its values filled in.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) entry: Arc<Entry>,
    /// Which of the entry's keys.
    pub(super) rule: usize,
    /// The values of its placeholders, the database left out.
    pub(super) bindings: Arc<[Binding]>,
    pub(super) shape: Shape,
}

/// Claims by what is claimed.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: Vec<Claim>,
    /// The last claim in each slot.
    slots: HashMap<Slot, u32>,
    /// For each claim the one before it in its slot.
    before: Vec<Option<u32>>,
    /// Ranges of bigints.
    ranges: Intervals,
    /// Ranges of high halves of bigints.
    high_ranges: Intervals,
    /// Recognised by their form alone.
    forms: Vec<u32>,
}

/// What of a key decides where its claims are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Key(Key),
    High(u16, u32),
    Low(u16, u32),
    Class(u16),
}

impl Claims {
    pub(super) fn insert(&mut self, claim: Claim) {
        let Ok(index) = u32::try_from(self.claims.len()) else { return };
        let slot = match &claim.shape {
            Shape::One(key) => Some(Slot::Key(*key)),
            Shape::Halves(class, Part::One(high), _) => Some(Slot::High(*class, *high)),
            Shape::Halves(class, _, Part::One(low)) => Some(Slot::Low(*class, *low)),
            Shape::Halves(_, Part::Range(from, to, _), _) => {
                self.high_ranges.insert(*from, *to, index);
                None
            }
            Shape::Halves(class, Part::Any, _) => Some(Slot::Class(*class)),
            Shape::Range(from, to) => {
                self.ranges.insert(*from, *to, index);
                None
            }
            Shape::MultipleOf(_) | Shape::Packing => {
                self.forms.push(index);
                None
            }
        };
        let before = slot.and_then(|slot| self.slots.insert(slot, index));
        self.before.push(before);
        self.claims.push(claim);
    }

    /// To be called after the last insertion.
    pub(super) fn finish(&mut self) {
        self.claims.shrink_to_fit();
        self.before.shrink_to_fit();
        self.ranges.finish();
        self.high_ranges.finish();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter()
    }

    /// Every claim on `key`, of whatever rank, in no order.
    pub(super) fn of(&self, key: Key) -> impl Iterator<Item = &Claim> {
        let slots = [
            Slot::Key(key),
            Slot::High(key.objsubid(), key.classid()),
            Slot::Low(key.objsubid(), key.objid()),
            Slot::Class(key.objsubid()),
        ];
        let slots = if self.claims.is_empty() { &slots[..0] } else { &slots[..] };
        let mut found: Vec<u32> = Vec::new();
        for slot in slots {
            let mut next = self.slots.get(slot).copied();
            while let Some(index) = next {
                found.push(index);
                next = self.before.get(index as usize).copied().flatten();
            }
        }
        if let Some(number) = key.as_bigint() {
            self.ranges.containing(number, &mut found);
            self.high_ranges.containing(number >> 32, &mut found);
        }
        found.extend(&self.forms);
        found
            .into_iter()
            .filter_map(|index| self.claims.get(index as usize))
            .filter(move |claim| claim.shape.matches(key))
    }

    /// What is claimed under several names on some server; the databases are left empty.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts: Vec<Conflict> = Vec::new();
        // Keys of their own: whoever else claims one is in its slot.
        for (slot, last) in &self.slots {
            let Slot::Key(key) = slot else { continue };
            if self.before.get(*last as usize).is_none_or(Option::is_none) {
                continue;
            }
            for rank in [Rank::Exact, Rank::Values] {
                let claims: Vec<&Claim> =
                    self.of(*key).filter(|claim| claim.rank() == rank).collect();
                conflicts.extend(conflict(key.to_string(), &claims));
            }
        }
        let patterns: Vec<&Claim> =
            self.claims.iter().filter(|claim| !matches!(claim.shape, Shape::One(_))).collect();
        let pairs = patterns.iter().enumerate().flat_map(|(index, claim)| {
            patterns.iter().skip(index + 1).map(move |other| [*claim, *other])
        });
        for [claim, other] in pairs.take(MAX_COMPARISONS) {
            if claim.rank() != other.rank() || !claim.contradicts(other) {
                continue;
            }
            let Some(meeting) = claim.shape.meeting(&other.shape) else { continue };
            // A key in which two patterns meet may have an entry of its own.
            if let Shape::One(key) = &meeting
                && self.slots.contains_key(&Slot::Key(*key))
            {
                continue;
            }
            conflicts.extend(conflict(meeting.to_string(), &[claim, other]));
        }
        conflicts
    }
}

/// Intervals by what they contain.
#[derive(Debug, Default)]
struct Intervals {
    /// By their first number, with the largest last number so far.
    sorted: Vec<Interval>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    from: i64,
    to: i64,
    /// The largest `to` of this one and of all before it.
    reach: i64,
    claim: u32,
}

impl Intervals {
    fn insert(&mut self, from: i64, to: i64, claim: u32) {
        self.sorted.push(Interval { from, to, reach: to, claim });
    }

    fn finish(&mut self) {
        self.sorted.sort_by_key(|interval| interval.from);
        let mut reach = i64::MIN;
        for interval in &mut self.sorted {
            reach = reach.max(interval.to);
            interval.reach = reach;
        }
    }

    fn containing(&self, number: i64, found: &mut Vec<u32>) {
        let begun = self.sorted.partition_point(|interval| interval.from <= number);
        let reaching = self.sorted[..begun].iter().rev().take_while(|it| it.reach >= number);
        found.extend(reaching.filter(|it| it.to >= number).map(|it| it.claim));
    }
}

impl Claim {
    pub(super) fn rule(&self) -> &KeyRule {
        &self.entry.rules[self.rule]
    }

    pub(super) fn rank(&self) -> Rank {
        let rank = self.shape.rank();
        if rank == Rank::Exact && !self.bindings.is_empty() { Rank::Values } else { rank }
    }

    pub(super) fn holds_on(&self, server: &str) -> bool {
        let servers = self.entry.servers.as_ref();
        servers.is_none_or(|globs| globs.iter().any(|glob| glob.matches(server)))
    }

    /// Another name, or another value under the same name, for the same keys on some server.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        (self.entry.name != other.entry.name || self.bindings != other.bindings)
            && match (&self.entry.servers, &other.entry.servers) {
                (Some(here), Some(there)) => {
                    here.iter().any(|glob| there.iter().any(|other| glob.overlaps(other)))
                }
                (None, _) | (_, None) => true,
            }
    }

    /// What the name leaves open and the key tells: values, then free parts, by their names.
    pub(super) fn parameters(&self, key: Key) -> Vec<(Arc<str>, String)> {
        let values = self.bindings.iter().map(|(name, value)| (name.clone(), value.to_string()));
        let free = self.entry.parameters.iter().cloned().zip(self.rule().free_values(key));
        values.chain(free).collect()
    }

    /// The `key` label of the one series that stands for many keys.
    pub(super) fn series(&self) -> Option<Arc<str>> {
        if self.entry.labels_value {
            return None;
        }
        if !self.bindings.is_empty() {
            let names: Vec<&str> = self.bindings.iter().map(|(name, _)| &**name).collect();
            return Some(format!("values({})", names.join(",")).into());
        }
        let is_one = matches!(self.shape, Shape::One(_));
        (!is_one).then(|| self.shape.to_string().into())
    }

    pub(super) fn candidate(&self) -> Candidate {
        let values: Vec<(Arc<str>, String)> =
            self.bindings.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        Candidate {
            name: self.entry.name.clone(),
            parameters: values,
            origin: self.entry.origin(self.rule().at),
            written: self.rule().written.clone(),
            doubt: None,
        }
    }
}

/// What claims of one rank on one key contradict each other in.
fn conflict(key: String, claims: &[&Claim]) -> Option<Conflict> {
    let contested =
        claims.iter().filter(|claim| claims.iter().any(|other| claim.contradicts(other)));
    let mut candidates: Vec<Candidate> = contested.map(|claim| claim.candidate()).collect();
    candidates.sort();
    candidates.dedup();
    (!candidates.is_empty()).then(|| Conflict {
        key: key.into(),
        databases: Vec::new(),
        candidates,
    })
}
