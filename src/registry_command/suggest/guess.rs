//! What text a key may be made of: a small dictionary, looked up backwards.
//!
//! Only texts that were seen, their parts, and words that programs like to lock on are tried, in
//! the ways that are common, and only exact hits count. With 32 bits a hit by chance is rarer than
//! one in ten thousand for a server with a hundred keys; it is a guess all the same. The ways are
//! written in the registry's own language and the texts are their values, so a hit is written in
//! the file as it was found.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::render::escape;
use crate::key::Key;
use crate::registry::hash::hashtext;
use crate::registry::{Circumstances, Registry, Resolver, Signs, Source};

/// How programs make keys of texts, the most common first, one way an entry; its `key` is on a line of its own.
const WAYS: &str = include_str!("../../explain/ways.yaml");

/// What is not tried: the first gives small numbers for short texts and would hit constants, the
/// second takes no long texts; other ways leave a half open or need a database.
const NOT_TRIED: [&str; 4] = ["{ java_hash: \"{text}\" }", "ascii7", "\"*\"", "{database}"];

/// Texts that are tried; far more than a server with tidy application names has.
const MAX_TEXTS: usize = 2000;

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

/// Texts by what may be made of them.
#[derive(Debug)]
pub(super) struct Dictionary {
    halves: HashMap<i32, String>,
    /// Its names are the numbers of ways.
    keys: Option<Resolver>,
}

/// A text and what makes the number of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guess {
    pub(super) text: String,
    /// As a registry file writes it.
    pub(super) written: String,
}

impl Dictionary {
    /// The words, and these texts with their parts.
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut known: BTreeSet<String> = WORDS.map(str::to_owned).into();
        for text in texts.filter(|text| is_plain(text)) {
            if known.len() >= MAX_TEXTS {
                break;
            }
            known.extend(parts(text));
        }
        let halves = known.iter().map(|text| (hashtext(text.as_bytes()), text.clone())).collect();
        Self { halves, keys: resolver(&known) }
    }

    /// Half of a pair.
    pub(super) fn guess_half(&self, half: i32) -> Option<Guess> {
        let text = self.halves.get(&half)?.clone();
        Some(Guess { written: fill("{ hashtext: \"{text}\" }", &text), text })
    }

    /// A whole key.
    pub(super) fn guess_key(&self, key: Key) -> Option<Guess> {
        let resolution = self.keys.as_ref()?.resolve(None, key, Signs::default());
        // Two ways to the same key are as good as one.
        let way: usize = resolution.lock?.split(" | ").next()?.parse().ok()?;
        let (_, text) = resolution.parameters.into_iter().next()?;
        Some(Guess { written: fill(ways().nth(way)?, &text), text })
    }
}

/// Keys as a registry file writes them, with `{text}` in them, where text alone makes a whole key.
fn ways() -> impl Iterator<Item = &'static str> {
    let keys = WAYS.lines().filter_map(|line| line.trim_start().strip_prefix("key: "));
    keys.filter(|key| !NOT_TRIED.iter().any(|piece| key.contains(piece)))
}

/// Other texts have other bytes in other encodings.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// The text itself; also `billing` and `7f9c` of `billing-7f9c`.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let separators = text.match_indices(|c: char| !c.is_ascii_alphanumeric());
    separators
        .flat_map(move |(at, separator)| [&text[..at], &text[at + separator.len()..]])
        .chain([text])
        .filter(|part| !part.is_empty())
        .flat_map(|part| [part.to_owned(), part.to_ascii_lowercase()])
}

fn resolver(texts: &BTreeSet<String>) -> Option<Resolver> {
    let values: Vec<String> = texts.iter().map(|text| format!("\"{}\"", escape(text))).collect();
    let values = values.join(", ");
    let mut file = "presets: none\nlocks:\n".to_owned();
    for (number, way) in ways().enumerate() {
        let _ = writeln!(
            file,
            "- {{ name: \"{number:02}\", key: {way}, values: {{ text: [{values}] }} }}"
        );
    }
    let source = Source { name: "ways".into(), text: file };
    let registry = Arc::new(Registry::parse(&[source]).ok()?);
    Some(Resolver::new(registry, "".into(), &Circumstances::default()))
}

fn fill(way: &str, text: &str) -> String {
    // What is filled in is a template, where braces are doubled.
    let template = text.replace('{', "{{").replace('}', "}}");
    way.replace("{text}", &escape(&template))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_that_makes_a_whole_key_is_tried() {
        let entries = WAYS.matches("- name: ").count();
        let keys = WAYS.lines().filter(|line| line.trim_start().starts_with("key: ")).count();
        assert_eq!(keys, entries, "each key on one line");
        assert!(ways().count() >= 20 && ways().all(|way| way.contains("{text}")));
        assert!(resolver(&BTreeSet::from(["jobs".to_owned()])).is_some());
    }

    #[test]
    fn known_texts_are_found_by_what_was_made_of_them() {
        let dictionary = Dictionary::new(["billing-7f9c", "a{b} \"c\"", "ünï"].into_iter());
        let found = |key| dictionary.guess_key(key).map(|guess| guess.written);
        let cases = [
            // As the server computes them.
            (Key::bigint(7_259_640_204_928_003_297), "{ hashtextextended: \"jobs\" }"),
            (Key::bigint(-1_679_774_495), "{ hashtext: \"jobs\" }"),
            // `echo -n billing | md5sum`, `sha256sum`, `python3 -c 'zlib.crc32'`
            (Key::bigint(-8_143_122_721_772_314_982), "{ md5: \"billing\" }"),
            (Key::bigint(3_543_741_826), "{ crc32: \"a{{b}} \\\"c\\\"\" }"),
            (Key::pair(1_814_187_178, 0), "{ pair: [{ crc32: \"billing\", and: 0x7fffffff }, 0] }"),
        ];
        for (key, written) in cases {
            assert_eq!(found(key).as_deref(), Some(written), "{key}");
        }
        for part in ["billing-7f9c", "billing", "7f9c"] {
            assert_eq!(dictionary.guess_half(hashtext(part.as_bytes())).unwrap().text, part);
        }
        assert_eq!(dictionary.guess_half(hashtext("ünï".as_bytes())), None);
        for key in [Key::bigint(42), Key::pair(0, -1_679_774_495)] {
            assert_eq!(found(key), None, "{key}");
        }
    }
}
