//! Which entries claim a key: an index from keys to what was said of them.
//!
//! A key is looked up with a few hash probes and binary searches, however many entries there are.
//! It answers for one set of entries only; which set is asked first is
//! [`Resolver`](super::Resolver)'s business.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use super::entry::Entry;
use super::glob::Glob;
use super::pattern::{KeyRule, Part, Rank, Shape};
use super::template::Binding;
use super::{Candidate, Conflict};
use crate::key::Key;

/// How many pairs of patterns that may meet are compared for conflicts: a bound that only a file
/// made to exceed it exceeds. Conflicts beyond are told when such a key is seen.
const MAX_COMPARISONS: usize = 10_000_000;

/// More conflicts than anybody reads.
const MAX_CONFLICTS: usize = 10_000;

/// So many candidates of one name are told.
const MAX_OF_NAME: usize = 3;

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
        let slots = if self.slots.is_empty() { &slots[..0] } else { &slots[..] };
        let mut found: Vec<&Claim> = Vec::new();
        found.extend(slots.iter().flat_map(|slot| self.in_slot(*slot)));
        let mut indices: Vec<u32> = Vec::new();
        if let Some(number) = key.as_bigint() {
            self.ranges.containing(number, &mut indices);
            self.high_ranges.containing(number >> 32, &mut indices);
        }
        let indices = indices.into_iter().chain(self.forms.iter().copied());
        found.extend(indices.filter_map(|index| self.claims.get(index as usize)));
        found.into_iter().filter(move |claim| claim.shape.matches(key))
    }

    /// What is claimed under several names on some server; the databases are left empty. Of very
    /// many the first are told: who mends those sees the others at the next look.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts: Vec<Conflict> = Vec::new();
        for (slot, last) in &self.slots {
            let Slot::Key(key) = slot else { continue };
            if self.before.get(*last as usize).is_some_and(Option::is_some) {
                conflicts.extend(self.conflict_of_key(*key));
            }
        }
        let patterns = Patterns::of(&self.claims);
        for (shape, claims) in &patterns.by_shape {
            conflicts.extend(conflict(shape, claims));
        }
        let mut comparisons = 0;
        patterns.for_each_neighbour(|shape, other| {
            comparisons += 1;
            conflicts.extend(self.conflict_of_patterns(&patterns.by_shape, shape, other));
            conflicts.len() < MAX_CONFLICTS && comparisons < MAX_COMPARISONS
        });
        conflicts.truncate(MAX_CONFLICTS);
        conflicts
    }

    /// An exact claim settles what values hash to, unless it is made for some servers only.
    fn conflict_of_key(&self, key: Key) -> Option<Conflict> {
        let (exact, values): (Vec<&Claim>, Vec<&Claim>) =
            self.in_slot(Slot::Key(key)).partition(|claim| claim.rank() == Rank::Exact);
        let is_settled = exact.iter().any(|claim| claim.entry.servers.is_none());
        let shape = Shape::One(key);
        conflict(&shape, &exact)
            .or_else(|| if is_settled { None } else { conflict(&shape, &values) })
    }

    /// Keys that several values of one name hash to: who locks one of these blocks the others.
    pub(super) fn collisions(&self) -> Vec<Conflict> {
        let of_slot = |(slot, last): (&Slot, &u32)| {
            let Slot::Key(key) = slot else { return None };
            self.before.get(*last as usize).copied().flatten()?;
            self.collision_of_key(*key)
        };
        self.slots.iter().filter_map(of_slot).take(MAX_CONFLICTS).collect()
    }

    fn collision_of_key(&self, key: Key) -> Option<Conflict> {
        let values = || self.in_slot(Slot::Key(key)).filter(|it| it.rank() == Rank::Values);
        // There may be very many values, and few names.
        let mut by_name: HashMap<_, HashSet<&[Binding]>> = HashMap::new();
        for claim in values() {
            by_name.entry(claim.called()).or_default().insert(&claim.bindings);
        }
        let collide = |claim: &&Claim| by_name[&claim.called()].len() > 1;
        let candidates = candidates(values().filter(collide));
        (candidates.len() > 1).then(|| Conflict {
            key: key.to_string().into(),
            databases: Vec::new(),
            candidates,
        })
    }

    fn conflict_of_patterns(
        &self,
        by_shape: &HashMap<&Shape, Vec<&Claim>>,
        shape: &Shape,
        other: &Shape,
    ) -> Option<Conflict> {
        let meeting = shape.meeting(other)?;
        let (here, there) = (by_shape.get(shape)?, by_shape.get(other)?);
        let (one, another) = here.iter().find_map(|one| {
            let another = there.iter().find(|another| one.contradicts(another))?;
            Some((one, another))
        })?;
        // A key in which two patterns meet may have an entry of its own.
        if let Shape::One(key) = meeting {
            let servers = [&None, &one.entry.servers, &another.entry.servers];
            if self.in_slot(Slot::Key(key)).any(|claim| servers.contains(&&claim.entry.servers)) {
                return None;
            }
        }
        conflict(&meeting, &[&here[..], &there[..]].concat())
    }

    fn in_slot(&self, slot: Slot) -> impl Iterator<Item = &Claim> {
        let mut next = self.slots.get(&slot).copied();
        std::iter::from_fn(move || {
            let index = next? as usize;
            next = self.before.get(index).copied().flatten();
            self.claims.get(index)
        })
    }
}

/// What stands for many keys, in an order in which whatever may meet is near.
struct Patterns<'a> {
    by_shape: HashMap<&'a Shape, Vec<&'a Claim>>,
    /// With one high half, by class.
    rows: BTreeMap<u16, BTreeMap<u32, Vec<&'a Shape>>>,
    /// With one low half.
    columns: BTreeMap<u16, BTreeMap<u32, Vec<&'a Shape>>>,
    /// With neither.
    areas: BTreeMap<u16, Vec<&'a Shape>>,
    /// Of bigints, by their first number.
    ranges: BTreeMap<(i64, i64), &'a Shape>,
}

impl<'a> Patterns<'a> {
    fn of(claims: &'a [Claim]) -> Self {
        let mut patterns = Self {
            by_shape: HashMap::new(),
            rows: BTreeMap::new(),
            columns: BTreeMap::new(),
            areas: BTreeMap::new(),
            ranges: BTreeMap::new(),
        };
        for claim in claims.iter().filter(|claim| !matches!(claim.shape, Shape::One(_))) {
            let shape = &claim.shape;
            let claims = patterns.by_shape.entry(shape).or_default();
            claims.push(claim);
            if claims.len() > 1 {
                continue;
            }
            match shape {
                Shape::Halves(class, Part::One(high), _) => {
                    let rows = patterns.rows.entry(*class).or_default();
                    rows.entry(*high).or_default().push(shape);
                }
                Shape::Halves(class, _, Part::One(low)) => {
                    let columns = patterns.columns.entry(*class).or_default();
                    columns.entry(*low).or_default().push(shape);
                }
                Shape::Halves(class, ..) => patterns.areas.entry(*class).or_default().push(shape),
                Shape::Range(from, to) => {
                    patterns.ranges.insert((*from, *to), shape);
                }
                // They meet nothing but themselves as far as that can be told beforehand.
                Shape::One(_) | Shape::MultipleOf(_) | Shape::Packing => {}
            }
        }
        patterns
    }

    /// Calls `compare` with each two that may meet, as long as it says to go on.
    fn for_each_neighbour(&self, mut compare: impl FnMut(&Shape, &Shape) -> bool) {
        let (rows, columns) = (self.rows.values(), self.columns.values());
        let alike = rows.chain(columns).flat_map(BTreeMap::values).chain(self.areas.values());
        let alike = alike.flat_map(|shapes| {
            let others = |index| shapes.iter().skip(index + 1);
            shapes
                .iter()
                .enumerate()
                .flat_map(move |(index, shape)| others(index).map(move |other| (*shape, *other)))
        });
        let ranges = self.ranges.iter().flat_map(|(ends, shape)| {
            let after = (Bound::Excluded(*ends), Bound::Included((ends.1, i64::MAX)));
            self.ranges.range(after).map(move |(_, other)| (*shape, *other))
        });
        let crossing = self.rows.iter().flat_map(|(class, rows)| {
            let columns = self.columns.get(class).into_iter().flat_map(BTreeMap::values).flatten();
            let others = columns.chain(self.areas.get(class).into_iter().flatten());
            let rows = rows.values().flatten();
            rows.flat_map(move |row| others.clone().map(move |other| (*row, *other)))
        });
        let beside = self.columns.iter().flat_map(|(class, columns)| {
            let areas = self.areas.get(class).into_iter().flatten();
            let columns = columns.values().flatten();
            columns.flat_map(move |column| areas.clone().map(move |area| (*column, *area)))
        });
        for (shape, other) in alike.chain(ranges).chain(crossing).chain(beside) {
            if !compare(shape, other) {
                return;
            }
        }
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
        self.entry.holds_on(server)
    }

    /// What it calls its keys: the name, and the values where they are part of the label.
    fn called(&self) -> (&str, &[Binding]) {
        let values = if self.entry.labels_value { &*self.bindings } else { &[] };
        (&self.entry.name, values)
    }

    /// What it calls its keys, and where: claims that say the same contradict the same others.
    fn caller(&self) -> (&str, &[Binding], Option<*const [Glob]>) {
        let (name, values) = self.called();
        (name, values, self.entry.servers.as_ref().map(Arc::as_ptr))
    }

    /// Another name for the same keys on some server. Values of one name that hash alike are none:
    /// the name is right, and the parameters tell all of them.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        self.called() != other.called()
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

/// Who claims a key, by name: of each name a few, since very many values may hash to one key.
pub(super) fn candidates<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Candidate> {
    let all: BTreeSet<Candidate> = claims.map(Claim::candidate).collect();
    let mut few: Vec<Candidate> = Vec::new();
    for candidate in all {
        let alike = few.iter().rev().take(MAX_OF_NAME);
        if alike.filter(|known| known.name == candidate.name).count() < MAX_OF_NAME {
            few.push(candidate);
        }
    }
    few
}

/// What claims of one rank on the same keys contradict each other in.
fn conflict(keys: &Shape, claims: &[&Claim]) -> Option<Conflict> {
    // There may be very many values, and few names.
    let callers: HashMap<_, &Claim> = claims.iter().map(|claim| (claim.caller(), *claim)).collect();
    if callers.len() < 2 {
        return None;
    }
    let is_contested =
        |(_, claim): &(&_, &&Claim)| callers.values().any(|other| claim.contradicts(other));
    let contested: HashSet<_> = callers.iter().filter(is_contested).map(|(who, _)| who).collect();
    let claims = claims.iter().filter(|claim| contested.contains(&claim.caller()));
    let candidates = candidates(claims.copied());
    (!candidates.is_empty()).then(|| Conflict {
        key: keys.to_string().into(),
        databases: Vec::new(),
        candidates,
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::testing::*;
    use super::*;

    fn keys_of_conflicts(text: &str) -> Vec<String> {
        let registry = registry(&format!("presets: none\nlocks:\n{text}"));
        registry.conflicts().iter().map(|conflict| conflict.key.to_string()).collect()
    }

    #[test]
    fn patterns_of_each_form_are_told_where_they_meet() {
        let cases = [
            ("{ range: [-10, 5] }", "{ range: [5, 9] }", Some("5-5")),
            ("{ range: [-10, 4] }", "{ range: [5, 9] }", None),
            (
                "{ range: [-9223372036854775808, -1] }",
                "{ range: [-7, 9223372036854775807] }",
                Some("-7 to -1"),
            ),
            ("{ range: [7, 7] }", "{ range: [7, 7] }", Some("7-7")),
            ("{ pair: [7, '*'] }", "{ pair: ['*', -9] }", Some("(7,-9)")),
            ("{ pair: [7, '*'] }", "{ packed: [7, '*'] }", None),
            ("{ packed: [7, '*'] }", "{ packed: [{ range: [-1, 7] }, '*'] }", Some("packed(7,*)")),
            ("{ packed: [7, '*'] }", "{ packed: [{ range: [8, 9] }, '*'] }", None),
            (
                "{ packed: ['*', { range: [1, 3] }] }",
                "{ packed: [{ range: [1, 2] }, '*'] }",
                Some("packed(1-2,1-3)"),
            ),
            ("{ packed: ['*', 3] }", "{ packed: [{ range: [1, 2] }, '*'] }", Some("packed(1-2,3)")),
            (
                "{ class: 5, classid: '*', objid: '*' }",
                "{ class: 5, classid: 0, objid: '*' }",
                Some("class 5: 0/*"),
            ),
            (
                "{ class: 5, classid: '*', objid: '*' }",
                "{ class: 5, classid: '*', objid: 9 }",
                Some("class 5: */9"),
            ),
            (
                "{ class: 5, classid: '*', objid: '*' }",
                "{ class: 4, classid: 0, objid: '*' }",
                None,
            ),
            ("{ multiple_of: 12 }", "{ multiple_of: 12 }", Some("multiple of 12")),
            // Of other precision, so one of the two is asked first.
            ("{ range: [0, 9] }", "{ packed: [0, '*'] }", None),
            ("{ range: [0, 9] }", "5", None),
        ];
        for (a, b, meeting) in cases {
            let both = |a, b| format!("- {{ name: a, key: {a} }}\n- {{ name: b, key: {b} }}\n");
            assert_eq!(keys_of_conflicts(&both(a, b)), Vec::from_iter(meeting), "{a} {b}");
            assert_eq!(keys_of_conflicts(&both(b, a)), Vec::from_iter(meeting), "{b} {a}");
        }
    }

    #[test]
    fn a_conflict_among_very_many_patterns_is_found() {
        let mut text = String::new();
        for n in 0..5000 {
            let _ = writeln!(text, "- {{ name: n{n}, key: {{ pair: [{n}, '*'] }} }}");
            let _ = writeln!(text, "- {{ name: r{n}, key: {{ range: [{0}, {0}] }} }}", 2 * n);
        }
        text.push_str("- { name: z, key: { pair: [4999, '*'] } }\n");
        text.push_str("- { name: y, key: { range: [9997, 9998] } }\n");
        assert_eq!(keys_of_conflicts(&text), ["(4999,*)", "9998-9998"]);
    }

    #[test]
    fn an_entry_of_its_own_settles_a_conflict_only_on_its_servers() {
        let meeting = |servers: &str| {
            keys_of_conflicts(&format!(
                "- {{ name: rows, key: {{ pair: [7, '*'] }} }}\n\
                 - {{ name: columns, key: {{ pair: ['*', 9] }}, servers: ['a*'] }}\n\
                 - {{ name: cell, key: {{ pair: [7, 9] }}{servers} }}\n"
            ))
        };
        assert!(meeting("").is_empty());
        assert!(meeting(", servers: ['a*']").is_empty(), "wherever both are");
        assert_eq!(meeting(", servers: ['b*']"), ["(7,9)"]);
    }

    #[test]
    fn what_values_hash_to_is_no_conflict_where_a_number_names_the_key() {
        let text = "- { name: a, key: { integer: '{n}' }, values: { n: ['42'] } }\n\
                    - { name: b, key: { integer: '{n}' }, values: { n: ['42'] } }\n";
        assert_eq!(keys_of_conflicts(text), ["42"]);
        let with_number = |rest: &str| format!("{text}- {{ name: c, key: 42{rest} }}\n");
        assert!(keys_of_conflicts(&with_number("")).is_empty());
        assert_eq!(keys_of_conflicts(&with_number(", servers: [db-9]")), ["42"]);
    }

    #[test]
    fn values_of_one_name_that_hash_alike_are_no_conflict_and_all_told() {
        let text = |label: &str| {
            format!(
                "presets: none\nlocks:\n- {{ name: bucket, key: {{ integer: '{{n}}', modulo: 2 }}, \
                 values: {{ n: ['1', '2', '3'] }}{label} }}\n"
            )
        };
        let plain = registry(&text(""));
        let resolution = resolve(&plain, "db-1", APP, Key::bigint(1));
        assert_eq!((resolution.label(), resolution.is_conflict()), ("bucket", false));
        assert_eq!(resolution.display_name(), "bucket (n 1 or 3)");
        assert!(plain.conflicts().is_empty());

        let labelled = registry(&text(", label: value"));
        let resolution = resolve(&labelled, "db-1", APP, Key::bigint(1));
        assert_eq!((resolution.label(), resolution.is_conflict()), ("bucket (n 1 or 3)", true));
        assert_eq!(labelled.conflicts().len(), 1, "these are two names");
    }

    #[test]
    fn very_many_claims_on_one_key_are_told_in_one_line_of_bounded_length() {
        let list = (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join("','");
        let registry = registry(&format!(
            "presets: none\nlocks:\n\
             - {{ name: a, key: {{ integer: '{{n}}', modulo: 1 }}, values: {{ n: ['{list}'] }} }}\n\
             - {{ name: b, key: {{ integer: '{{n}}', modulo: 1 }}, values: {{ n: ['0'] }} }}\n"
        ));
        let [conflict] = &conflicts(&registry)[..] else { panic!("{:?}", conflicts(&registry)) };
        assert_eq!(
            conflict,
            "key 0 has more than one name: \
             \"a (n 0)\" (integer(\"{n}\", base 10) mod 1 at locks.yaml:3), \
             \"a (n 1)\" (integer(\"{n}\", base 10) mod 1 at locks.yaml:3), \
             \"a (n 10)\" (integer(\"{n}\", base 10) mod 1 at locks.yaml:3), \
             \"b (n 0)\" (integer(\"{n}\", base 10) mod 1 at locks.yaml:4)"
        );
        let resolution = resolve(&registry, "db-1", APP, Key::bigint(0));
        assert_eq!((resolution.label(), resolution.candidates.len()), ("a | b", 4));
        assert!(!registry.is_news(&resolution));
    }
}
