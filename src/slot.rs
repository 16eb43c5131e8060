//! A fixed number of slots for values that nobody chose: keys without a name, application names.
//!
//! Prometheus keeps every label value it ever saw, so a bound per scrape bounds nothing: what
//! counts is how many different values a process gives out in its life. A slot is taken by the
//! first that come, given back when its value was not seen for a while, and may be given out only
//! so many times a day. Pure: time is an argument.

use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use crate::map::HashMap;
use crate::timestamp::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Slots for values of one kind.
#[derive(Debug)]
pub struct Slots<K> {
    size: usize,
    idle_limit: Duration,
    per_day: usize,
    last_seen: HashMap<K, Timestamp>,
    given: VecDeque<Timestamp>,
}

impl<K: Clone + Eq + Hash> Slots<K> {
    /// `size` slots that come back after `idle_limit` without a sight, and are given out at most
    /// `per_day` times in any 24 hours.
    pub fn new(size: usize, idle_limit: Duration, per_day: usize) -> Self {
        Self { size, idle_limit, per_day, last_seen: HashMap::default(), given: VecDeque::new() }
    }

    /// Whether `value` has a slot; if so it was seen now.
    pub fn keep(&mut self, value: &K, now: Timestamp) -> bool {
        match self.last_seen.get_mut(value) {
            Some(seen) => {
                *seen = now;
                true
            }
            None => false,
        }
    }

    /// Whether `value` has a slot, after giving it one if one is free.
    pub fn take(&mut self, value: &K, now: Timestamp) -> bool {
        if self.keep(value, now) {
            return true;
        }
        while self.given.front().is_some_and(|given| now.since(*given) > DAY) {
            self.given.pop_front();
        }
        if self.last_seen.len() >= self.size || self.given.len() >= self.per_day {
            return false;
        }
        self.given.push_back(now);
        self.last_seen.insert(value.clone(), now);
        true
    }

    /// Whether `value` has a slot; it need not be seen now.
    pub fn has(&self, value: &K) -> bool {
        self.last_seen.contains_key(value)
    }

    /// Takes back all slots but those of the values to keep.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.last_seen.retain(|value, _| keep(value));
    }

    /// Takes back the slots of values that were not seen for too long.
    pub fn release_idle(&mut self, now: Timestamp) -> Vec<K> {
        let limit = self.idle_limit;
        self.last_seen
            .extract_if(|_, seen| now.since(*seen) > limit)
            .map(|(value, _)| value)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_first_to_come_keep_their_slots() {
        let mut slots = Slots::new(2, HOUR, 4);
        assert!(slots.take(&"a", at(0)) && slots.take(&"b", at(0)));
        assert!(!slots.take(&"c", at(1)));
        assert!(slots.take(&"a", at(2)));
    }

    #[test]
    fn a_slot_comes_back_when_its_value_was_not_seen_for_the_limit() {
        let mut slots = Slots::new(1, HOUR, 4);
        assert!(slots.take(&"a", at(0)));
        assert!(slots.release_idle(at(3600)).is_empty());
        assert_eq!(slots.release_idle(at(3601)), ["a"]);
        assert!(slots.take(&"b", at(3602)));
    }

    #[test]
    fn no_more_are_given_out_in_a_day_than_the_bound_says() {
        let mut slots = Slots::new(1, HOUR, 2);
        assert!(slots.take(&"a", at(0)));
        slots.release_idle(at(4000));
        assert!(slots.take(&"b", at(4000)));
        slots.release_idle(at(8000));
        assert!(!slots.take(&"c", at(8000)), "the third within a day");
        assert!(slots.take(&"c", at(86_401)), "a day after the first");
    }
}
