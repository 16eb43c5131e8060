//! What text a number may be the hash of: a small dictionary, looked up backwards.
//!
//! Only texts that were seen, their parts, and words that programs like to lock on are tried, and
//! only exact hits count. With 32 bits a hit by chance is about one in a million for a server with
//! a hundred keys; it is a guess all the same.

use std::collections::HashMap;

use crate::key::Key;
use crate::registry::HashFunction;
use crate::registry::hash::{hashtext, hashtextextended};

/// What programs call the one lock they take.
const WORDS: [&str; 44] = [
    "advisory_lock",
    "backup",
    "batch",
    "billing",
    "bootstrap",
    "cache",
    "cleanup",
    "cron",
    "daily",
    "default",
    "deploy",
    "election",
    "global",
    "hourly",
    "import",
    "init",
    "invoices",
    "job",
    "jobs",
    "leader",
    "leader_election",
    "leader-election",
    "lock",
    "maintenance",
    "master",
    "migrate",
    "migration",
    "migrations",
    "mutex",
    "nightly",
    "orders",
    "outbox",
    "payments",
    "primary",
    "queue",
    "refresh",
    "reports",
    "scheduler",
    "schema_migrations",
    "schema_version",
    "setup",
    "singleton",
    "sync",
    "worker",
];

/// Texts by their hashes.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    plain: HashMap<i32, String>,
    extended: HashMap<i64, String>,
}

/// A text and the function that makes a number of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guess<'a> {
    pub(super) function: HashFunction,
    pub(super) text: &'a str,
}

impl Dictionary {
    /// The words, and these texts with their parts.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut dictionary = Self::default();
        for word in WORDS {
            dictionary.learn(word);
        }
        for text in texts {
            dictionary.learn_with_parts(text);
        }
        dictionary
    }

    fn learn_with_parts(&mut self, text: &str) {
        // Other texts have other bytes in other encodings.
        if !text.is_ascii() {
            return;
        }
        self.learn(text);
        self.learn(&text.to_ascii_lowercase());
        let separators = text.match_indices(|c: char| !c.is_ascii_alphanumeric());
        for (at, separator) in separators {
            // `billing` and `7f9c` of `billing-7f9c`.
            self.learn(&text[..at]);
            self.learn(&text[at + separator.len()..]);
        }
    }

    fn learn(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.plain.entry(hashtext(text.as_bytes())).or_insert_with(|| text.to_owned());
        let extended = hashtextextended(text.as_bytes(), 0);
        self.extended.entry(extended).or_insert_with(|| text.to_owned());
    }

    /// Half of a pair.
    pub(super) fn guess_half(&self, half: i32) -> Option<Guess<'_>> {
        let text = self.plain.get(&half)?;
        Some(Guess { function: HashFunction::Hashtext, text })
    }

    /// A bigint: a 64-bit hash, or one of 32 bits widened with its sign.
    pub(super) fn guess_bigint(&self, key: Key) -> Option<Guess<'_>> {
        let number = key.as_bigint()?;
        match self.extended.get(&number) {
            Some(text) => Some(Guess { function: HashFunction::Hashtextextended, text }),
            None => self.guess_half(i32::try_from(number).ok()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_are_found_by_their_hashes() {
        let dictionary = Dictionary::new(["billing-7f9c", "ünï"].into_iter());
        let found = |key| dictionary.guess_bigint(key).map(|guess| (guess.function, guess.text));
        // As the server computes them.
        assert_eq!(
            found(Key::bigint(7_259_640_204_928_003_297)),
            Some((HashFunction::Hashtextextended, "jobs"))
        );
        assert_eq!(found(Key::bigint(-1_679_774_495)), Some((HashFunction::Hashtext, "jobs")));
        assert_eq!(dictionary.guess_half(-1_679_774_495).map(|guess| guess.text), Some("jobs"));
        for part in ["billing-7f9c", "billing", "7f9c"] {
            assert!(dictionary.guess_half(hashtext(part.as_bytes())).is_some(), "{part}");
        }
        assert_eq!(dictionary.guess_half(hashtext("ünï".as_bytes())), None);
        assert_eq!(found(Key::bigint(42)), None);
        assert_eq!(found(Key::pair(0, -1_679_774_495)), None);
    }
}
