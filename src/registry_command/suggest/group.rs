//! Which keys of one database look like one lock: pairs with a shared half, bigints with a shared
//! high half, runs of small numbers.
//!
//! A group is a guess and never more; who shows it must say so. Groups never overlap, since two
//! names for one key would be a conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Sighting;
use crate::key::Key;

/// So many keys with a shared half are more than chance.
const MIN_SHARED: usize = 3;

/// So many small numbers close to each other are rows or the like, not constants.
const MIN_RUN: usize = 10;

/// Numbers of one application are close up to this distance; numbers of several have to be
/// closer, since they may as well be the constants of several programs.
const GAP_OF_ONE: i64 = 1000;
const GAP_OF_SEVERAL: i64 = 16;

/// The keys that an entry is to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pattern {
    One(Key),
    /// All pairs with this first half.
    PairsFrom(i32),
    /// All pairs with this second half.
    PairsTo(i32),
    /// All bigints with this high half.
    Packed(i32),
    /// All bigints from the first to the last, both included.
    Range(i64, i64),
}

/// Every key exactly once.
pub(super) fn group_keys(sightings: &BTreeMap<Key, Sighting>) -> BTreeMap<Pattern, BTreeSet<Key>> {
    let mut groups = group_pairs(sightings.keys().copied());
    groups.extend(group_packed(sightings.keys().copied()));
    let grouped: BTreeSet<Key> = groups.values().flatten().copied().collect();
    let small: Vec<(i64, Key)> = sightings
        .keys()
        .filter(|key| key.classid() == 0 && !grouped.contains(key))
        .filter_map(|key| Some((key.as_bigint()?, *key)))
        .collect();
    groups.extend(find_runs(&small, sightings));
    let grouped: BTreeSet<Key> = groups.values().flatten().copied().collect();
    let alone = sightings.keys().filter(|key| !grouped.contains(key));
    groups.extend(alone.map(|key| (Pattern::One(*key), BTreeSet::from([*key]))));
    groups
}

type Groups = BTreeMap<Pattern, BTreeSet<Key>>;

/// By the first half or by the second, whichever explains more pairs; not by both, since `(7,*)`
/// and `(*,9)` meet in one pair.
fn group_pairs(keys: impl Iterator<Item = Key>) -> Groups {
    let (mut by_first, mut by_second) = (Groups::new(), Groups::new());
    for key in keys {
        if let Some((first, second)) = key.as_pair() {
            by_first.entry(Pattern::PairsFrom(first)).or_default().insert(key);
            by_second.entry(Pattern::PairsTo(second)).or_default().insert(key);
        }
    }
    by_first.retain(|_, keys| keys.len() >= MIN_SHARED);
    by_second.retain(|_, keys| keys.len() >= MIN_SHARED);
    let size = |groups: &Groups| groups.values().map(BTreeSet::len).sum::<usize>();
    if size(&by_first) >= size(&by_second) { by_first } else { by_second }
}

/// High halves 0 and -1 are those of small numbers.
fn group_packed(keys: impl Iterator<Item = Key>) -> Groups {
    let mut groups = Groups::new();
    for key in keys.filter(|key| key.as_bigint().is_some()) {
        let high = key.classid().cast_signed();
        if high != 0 && high != -1 {
            groups.entry(Pattern::Packed(high)).or_default().insert(key);
        }
    }
    groups.retain(|_, keys| keys.len() >= MIN_SHARED);
    groups
}

/// First runs of one application, then what lies densely between them. `small` is in order.
fn find_runs(small: &[(i64, Key)], sightings: &BTreeMap<Key, Sighting>) -> Groups {
    let of_one = |a: &(i64, Key), b: &(i64, Key)| {
        b.0 - a.0 <= GAP_OF_ONE && holders(sightings, a.1).eq(holders(sightings, b.1))
    };
    let mut groups = Groups::new();
    let mut rest: Vec<&[(i64, Key)]> = vec![&[]];
    let mut offset = 0;
    for run in small.chunk_by(of_one) {
        let start = offset;
        offset += run.len();
        if run.len() >= MIN_RUN {
            groups.extend(as_range(run));
            rest.push(&[]);
        } else if let Some(last) = rest.last_mut() {
            // It goes on where the last piece ended, since only a run lies between two pieces.
            *last = &small[start - last.len()..offset];
        }
    }
    let of_several = |a: &(i64, Key), b: &(i64, Key)| b.0 - a.0 <= GAP_OF_SEVERAL;
    for piece in rest {
        for run in piece.chunk_by(of_several).filter(|run| run.len() >= MIN_RUN) {
            groups.extend(as_range(run));
        }
    }
    groups
}

fn as_range(run: &[(i64, Key)]) -> Option<(Pattern, BTreeSet<Key>)> {
    let (first, last) = (run.first()?.0, run.last()?.0);
    Some((Pattern::Range(first, last), run.iter().map(|(_, key)| *key).collect()))
}

fn holders(sightings: &BTreeMap<Key, Sighting>, key: Key) -> impl Iterator<Item = &Arc<str>> {
    sightings.get(&key).into_iter().flat_map(|sighting| sighting.holders.keys())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::registry_command::suggest::Party;

    fn grouped(keys: impl IntoIterator<Item = (Key, &'static str)>) -> Vec<(Pattern, usize)> {
        let sightings = keys
            .into_iter()
            .map(|(key, application)| {
                let holders = BTreeMap::from([(application.into(), Party::default())]);
                (key, Sighting { holders, ..Sighting::default() })
            })
            .collect();
        group_keys(&sightings).into_iter().map(|(pattern, keys)| (pattern, keys.len())).collect()
    }

    #[test]
    fn three_pairs_with_a_shared_half_are_one_lock_and_two_are_two() {
        let pair = |first, second| (Key::pair(first, second), "a");
        assert_eq!(
            grouped([pair(7, 1), pair(7, 2), pair(7, -3), pair(8, 1), pair(8, 2)]),
            [
                (Pattern::One(Key::pair(8, 1)), 1),
                (Pattern::One(Key::pair(8, 2)), 1),
                (Pattern::PairsFrom(7), 3),
            ]
        );
        assert_eq!(grouped([pair(1, 9), pair(2, 9), pair(3, 9)]), [(Pattern::PairsTo(9), 3)]);
    }

    #[test]
    fn pairs_are_grouped_by_one_of_their_halves_only() {
        let keys = [(7, 1), (7, 2), (7, 3), (7, 9), (1, 9), (2, 9)];
        let groups = grouped(keys.map(|(first, second)| (Key::pair(first, second), "a")));
        assert!(groups.contains(&(Pattern::PairsFrom(7), 4)), "{groups:?}");
        assert_eq!(groups.len(), 3, "{groups:?}");
    }

    #[test]
    fn bigints_with_a_high_half_of_their_own_are_packed() {
        let packed = |low: i64| (Key::bigint((5 << 32) | low), "a");
        assert_eq!(grouped([packed(1), packed(2), packed(42)]), [(Pattern::Packed(5), 3)]);
        let negative = |low: i64| (Key::bigint((-5 << 32) | low), "a");
        assert_eq!(grouped([negative(1), negative(2), negative(3)]), [(Pattern::Packed(-5), 3)]);
        // Small numbers of either sign share a high half too.
        assert_eq!(grouped([1, 2, 3, -1, -2, -3].map(|n| (Key::bigint(n), "a"))).len(), 6);
    }

    #[test]
    fn rows_of_one_application_are_a_range_and_constants_are_not() {
        let rows = (100..110).map(|row| (Key::bigint(row * 900), "worker"));
        let constants = [1, 42, 99, 1010, 4242, 5005, 7007, 9001, 9002, 9900]
            .map(|number| (Key::bigint(number), "other"));
        let groups = grouped(rows.chain(constants));
        assert!(groups.contains(&(Pattern::Range(90_000, 98_100), 10)), "{groups:?}");
        assert_eq!(groups.len(), 11, "{groups:?}");
    }

    #[test]
    fn rows_that_several_workers_take_in_turn_are_one_range() {
        let rows = ["a", "b", "c"].into_iter().cycle().zip(0..40);
        let rows = rows.map(|(worker, row)| (Key::bigint(row * 2), worker));
        assert_eq!(grouped(rows), [(Pattern::Range(0, 78), 40)]);
    }

    #[test]
    fn two_runs_side_by_side_stay_apart() {
        let one = (0..300).map(|row| (Key::bigint(1_000_000 + row), "row-worker"));
        let other = (300..400).map(|row| (Key::bigint(1_000_000 + row), "queue-worker"));
        let between = [(Key::bigint(999_999), "x"), (Key::bigint(1_000_400), "x")];
        assert_eq!(
            grouped(one.chain(other).chain(between)),
            [
                (Pattern::One(Key::bigint(999_999)), 1),
                (Pattern::One(Key::bigint(1_000_400)), 1),
                (Pattern::Range(1_000_000, 1_000_299), 300),
                (Pattern::Range(1_000_300, 1_000_399), 100),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_key_is_in_one_group_that_names_it(
            keys in prop::collection::btree_map(
                prop_oneof![
                    (0_i64..300).prop_map(Key::bigint),
                    (0_i64..9, 0_i64..9).prop_map(|(high, low)| Key::bigint((high << 32) | low)),
                    (0_i32..5, 0_i32..5).prop_map(|(first, second)| Key::pair(first, second)),
                    any::<(u64, u16)>().prop_map(|(word, class)| Key::from_word(word, class)),
                ],
                prop::sample::select(vec!["a", "b"]),
                0..60,
            ),
        ) {
            let sightings: BTreeMap<Key, Sighting> = keys
                .iter()
                .map(|(key, application)| {
                    let holders = BTreeMap::from([((*application).into(), Party::default())]);
                    (*key, Sighting { holders, ..Sighting::default() })
                })
                .collect();
            let groups = group_keys(&sightings);
            for key in keys.keys() {
                let claiming: Vec<_> =
                    groups.keys().filter(|pattern| names(**pattern, *key)).collect();
                prop_assert_eq!(claiming.len(), 1, "{:?} {:?}", key, claiming);
                prop_assert!(groups[claiming[0]].contains(key));
            }
        }
    }

    fn names(pattern: Pattern, key: Key) -> bool {
        match pattern {
            Pattern::One(one) => one == key,
            Pattern::PairsFrom(half) => key.as_pair().is_some_and(|(first, _)| first == half),
            Pattern::PairsTo(half) => key.as_pair().is_some_and(|(_, second)| second == half),
            Pattern::Packed(high) => {
                key.as_bigint().is_some() && key.classid().cast_signed() == high
            }
            Pattern::Range(first, last) => {
                key.as_bigint().is_some_and(|number| (first..=last).contains(&number))
            }
        }
    }
}
