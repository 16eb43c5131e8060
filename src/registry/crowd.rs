//! Where keys without a name crowd: counted ids, among which the number of a preset proves little.
//!
//! Remembered for the life of the process, since ids come and go and the doubt stays. Bounded by the
//! numbers of presets: around each, no more is kept than is needed to be sure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::key::Key;

/// So many different keys so near are no chance.
const CROWD: usize = 5;
const NEAR: i64 = 1000;

/// Keys without a name that were seen around the numbers of presets, by database.
#[derive(Debug)]
pub struct Crowd<D> {
    around: HashMap<(D, i64), BTreeSet<i64>>,
}

impl<D> Default for Crowd<D> {
    fn default() -> Self {
        Self { around: HashMap::new() }
    }
}

impl<D: Copy + Eq + Hash> Crowd<D> {
    /// Whether the key is worth to be observed. `numbers` are those of presets, in order.
    pub fn is_near(key: Key, numbers: &[i64]) -> bool {
        key.as_bigint().is_some_and(|number| !near(number, numbers).is_empty())
    }

    /// A key without a name was seen. `numbers` are those of presets, in order.
    pub fn observe(&mut self, database: D, key: Key, numbers: &[i64]) {
        let Some(seen) = key.as_bigint() else { return };
        for number in near(seen, numbers) {
            let around = self.around.entry((database, *number)).or_default();
            if seen != *number && around.len() < CROWD {
                around.insert(seen);
            }
        }
    }

    /// Whether the key lies in a crowd.
    pub fn surrounds(&self, database: D, key: Key) -> bool {
        key.as_bigint()
            .and_then(|number| self.around.get(&(database, number)))
            .is_some_and(|around| around.len() >= CROWD)
    }
}

/// Those of the numbers that are near another.
fn near(number: i64, numbers: &[i64]) -> &[i64] {
    let first = numbers.partition_point(|it| *it < number.saturating_sub(NEAR));
    let end = numbers.partition_point(|it| *it <= number.saturating_add(NEAR));
    &numbers[first..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_different_keys_within_a_thousand_are_a_crowd_in_their_database_only() {
        let mut crowd = Crowd::default();
        let numbers = [72_707_369, 75_474_063];
        for id in [1, 2, 3, 4, 4, 1] {
            crowd.observe("app", Key::bigint(72_707_369 + 990 + id), &numbers);
        }
        crowd.observe("app", Key::bigint(72_707_369 + 1001), &numbers);
        crowd.observe("app", Key::bigint(72_707_369), &numbers);
        crowd.observe("app", Key::pair(0, 72_707_370), &numbers);
        assert!(!crowd.surrounds("app", Key::bigint(72_707_369)), "four are none");
        crowd.observe("app", Key::bigint(72_707_369 - 1000), &numbers);
        assert!(crowd.surrounds("app", Key::bigint(72_707_369)));
        assert!(!crowd.surrounds("app", Key::bigint(75_474_063)));
        assert!(!crowd.surrounds("other", Key::bigint(72_707_369)));
    }

    #[test]
    fn the_ends_of_the_numbers_are_no_trap() {
        let mut crowd = Crowd::default();
        crowd.observe((), Key::bigint(i64::MIN), &[i64::MIN + 1, i64::MAX]);
        crowd.observe((), Key::bigint(i64::MAX), &[i64::MIN + 1, i64::MAX - 1]);
        assert!(!crowd.surrounds((), Key::bigint(i64::MIN + 1)));
    }
}
