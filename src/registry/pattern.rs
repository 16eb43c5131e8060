//! The key of an entry: the grammar of `key` and `keys`, and which keys it stands for.
//!
//! What a file computes here (hashes) is computed once, at load; a look-up compares numbers only.
//! Every refusal says what to write instead. Which databases and servers a key is named in, and
//! who else claims it, is not known here.

use std::fmt;
use std::sync::Arc;

use super::document::{Node, Position, Value};
use super::fault::Faults;
use super::fields::Fields;
use super::hash::{hashtext, hashtextextended};
use super::number::{IntegerError, parse_bigint, parse_int4};
use super::template::{parse_template, unquoted_placeholder};
use crate::key::Key;

/// One key of an entry.
#[derive(Debug)]
pub(super) struct KeyPattern {
    pub(super) keys: Keys,
    /// As the file means it: `42`, `hashtext("jobs")`, `(7,*)`.
    pub(super) written: Arc<str>,
    /// The `key` label of the one series that stands for many keys.
    pub(super) series: Option<Arc<str>>,
    /// The hashes it was computed from.
    pub(super) hashes: Vec<HashCheck>,
    pub(super) at: Position,
}

/// The keys that a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keys {
    One(Key),
    /// All pairs with this first half.
    PairsFrom(i32),
    /// All pairs with this second half.
    PairsTo(i32),
}

impl KeyPattern {
    fn new(keys: Keys, written: String, hashes: Vec<HashCheck>, at: Position) -> Self {
        let series = match keys {
            Keys::One(_) => None,
            Keys::PairsFrom(_) | Keys::PairsTo(_) => Some(keys.to_string().into()),
        };
        Self { keys, written: written.into(), series, hashes, at }
    }

    /// A hash of other than ASCII text: only databases in UTF8 hash the same bytes.
    pub(super) fn needs_utf8(&self) -> bool {
        self.hashes.iter().any(HashCheck::needs_utf8)
    }

    /// The half of `key` that the pattern leaves free.
    pub(super) fn free_half(&self, key: Key) -> Option<i32> {
        let (first, second) = key.as_pair()?;
        match self.keys {
            Keys::One(_) => None,
            Keys::PairsFrom(_) => Some(second),
            Keys::PairsTo(_) => Some(first),
        }
    }
}

impl Keys {
    /// The patterns that `key` may be one of, the most precise rank first.
    pub(super) fn ranks_of(key: Key) -> [[Option<Self>; 2]; 2] {
        let pair = key.as_pair();
        [
            [Some(Self::One(key)), None],
            [
                pair.map(|(first, _)| Self::PairsFrom(first)),
                pair.map(|(_, second)| Self::PairsTo(second)),
            ],
        ]
    }
}

/// As the `key` label writes it: `42`, `(7,*)`.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(key) => key.fmt(f),
            Self::PairsFrom(first) => write!(f, "({first},*)"),
            Self::PairsTo(second) => write!(f, "(*,{second})"),
        }
    }
}

/// A hash function of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashFunction {
    /// `hashtext(text)`
    Hashtext,
    /// `hashtextextended(text, bigint)`
    Hashtextextended,
}

impl HashFunction {
    /// Its name in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hashtext => "hashtext",
            Self::Hashtextextended => "hashtextextended",
        }
    }
}

/// One hash that the registry relies on, to be compared with what the server says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashCheck {
    /// The function.
    pub function: HashFunction,
    /// The text that is hashed.
    pub text: Arc<str>,
    /// The second argument of `hashtextextended`, else 0.
    pub seed: i64,
    /// What this program computed; an `int4` for `hashtext`.
    pub value: i64,
}

impl HashCheck {
    fn new(function: HashFunction, text: &str, seed: i64) -> Self {
        let value = match function {
            HashFunction::Hashtext => hashtext(text.as_bytes()).into(),
            HashFunction::Hashtextextended => hashtextextended(text.as_bytes(), seed),
        };
        Self { function, text: text.into(), seed, value }
    }

    /// Whether the value holds only in databases whose encoding is UTF8: the server hashes the
    /// bytes of the database's own encoding, and beyond ASCII they differ.
    pub fn needs_utf8(&self) -> bool {
        !self.text.is_ascii()
    }
}

/// As a call in SQL, with the text in double quotes: `hashtext("jobs")`.
impl fmt::Display for HashCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.function {
            HashFunction::Hashtext => write!(f, "hashtext({:?})", self.text),
            HashFunction::Hashtextextended => {
                write!(f, "hashtextextended({:?}, {})", self.text, self.seed)
            }
        }
    }
}

/// The fields that say which form a key has.
const FORMS: [&str; 4] = ["bigint", "pair", "hashtext", "hashtextextended"];
/// The fields of a hash, wherever one may stand.
const HASH_FIELDS: [&str; 3] = ["hashtext", "hashtextextended", "seed"];
/// All fields of a key.
const KEY_FIELDS: [&str; 5] = ["bigint", "pair", "hashtext", "hashtextextended", "seed"];

/// One key.
pub(super) fn parse_key(node: &Node, faults: &mut Faults<'_>) -> Option<KeyPattern> {
    match &node.value {
        Value::Scalar { .. } => {
            let word = parse_word(node, Place::Bigint, faults)?;
            bigint_pattern(&word, node.at, faults)
        }
        Value::Sequence(_) => {
            faults.add(
                node.at,
                "expected one key, found a list: several keys go under keys, \
                 the halves of a pair into { pair: [7, 9] }",
            );
            None
        }
        Value::Mapping(_) => {
            let fields = Fields::read(node, "a key", &KEY_FIELDS, faults)?;
            match fields.only_one_of(&FORMS, faults)? {
                ("pair", halves) => {
                    fields.refuse_beside("pair", &["seed"], faults);
                    parse_pair(halves, node.at, faults)
                }
                ("bigint", value) => {
                    fields.refuse_beside("bigint", &["seed"], faults);
                    let word = parse_word(value, Place::Bigint, faults)?;
                    bigint_pattern(&word, node.at, faults)
                }
                _ => {
                    let word = Word::Hash(parse_hash(&fields, faults)?);
                    bigint_pattern(&word, node.at, faults)
                }
            }
        }
    }
}

fn bigint_pattern(word: &Word, at: Position, faults: &mut Faults<'_>) -> Option<KeyPattern> {
    let value = match word {
        Word::Number(number) => *number,
        Word::Hash(hash) => hash.value,
        Word::Any => {
            faults.add(
                at,
                "a bigint key cannot be free: for a half-free pair write { pair: [7, \"*\"] }",
            );
            return None;
        }
    };
    let hashes = word.hash().into_iter().collect();
    Some(KeyPattern::new(Keys::One(Key::bigint(value)), word.to_string(), hashes, at))
}

fn parse_pair(node: &Node, at: Position, faults: &mut Faults<'_>) -> Option<KeyPattern> {
    let halves = match &node.value {
        Value::Sequence(halves) => halves.as_slice(),
        Value::Scalar { .. } | Value::Mapping(_) => &[],
    };
    let [first, second] = halves else {
        faults.add(node.at, "a pair has two halves in a list, as in { pair: [7, 9] }");
        return None;
    };
    let first = parse_word(first, Place::Half, faults);
    let second = parse_word(second, Place::Half, faults);
    let (first, second) = (first?, second?);
    let keys = match (first.half(), second.half()) {
        (Some(first), Some(second)) => Keys::One(Key::pair(first, second)),
        (Some(first), None) => Keys::PairsFrom(first),
        (None, Some(second)) => Keys::PairsTo(second),
        (None, None) => {
            faults.add(
                node.at,
                "both halves of the pair are free, which would name every pair: fix one of them",
            );
            return None;
        }
    };
    let hashes = [first.hash(), second.hash()].into_iter().flatten().collect();
    Some(KeyPattern::new(keys, format!("({first},{second})"), hashes, at))
}

/// Where a word stands, which decides its width and what may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The whole key.
    Bigint,
    /// In a pair.
    Half,
}

/// What fills a place.
enum Word {
    Number(i64),
    Hash(HashCheck),
    Any,
}

impl Word {
    /// As one half of a pair; `None` when it is free. Literals were read as `int4`; a computed
    /// value of more width wraps, as a cast to a narrower integer does in most languages.
    fn half(&self) -> Option<i32> {
        #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are what is meant")]
        let low = |value: i64| value as i32;
        match self {
            Self::Number(number) => Some(low(*number)),
            Self::Hash(hash) => Some(low(hash.value)),
            Self::Any => None,
        }
    }

    fn hash(&self) -> Option<HashCheck> {
        match self {
            Self::Hash(hash) => Some(hash.clone()),
            Self::Number(_) | Self::Any => None,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hash(hash) => hash.fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

fn parse_word(node: &Node, place: Place, faults: &mut Faults<'_>) -> Option<Word> {
    match &node.value {
        Value::Scalar { .. } if node.is_null() => {
            faults.add(node.at, "expected a number or a hash, found nothing");
            None
        }
        Value::Scalar { text, plain: false } if text == "*" => Some(Word::Any),
        Value::Scalar { text, plain: false } => {
            faults.add(node.at, quoted_text(text, place));
            None
        }
        Value::Scalar { text, plain: true } => {
            let number = match place {
                Place::Bigint => parse_bigint(text),
                Place::Half => parse_int4(text).map(i64::from),
            };
            match number {
                Ok(number) => Some(Word::Number(number)),
                Err(IntegerError::NotAnInteger(text)) => {
                    faults
                        .add(node.at, format!("{text:?} is not a number: {}", for_its_hash(&text)));
                    None
                }
                Err(error) => {
                    faults.add(node.at, error.to_string());
                    None
                }
            }
        }
        Value::Sequence(_) => {
            faults.add(node.at, "expected a number or a hash, found a list");
            None
        }
        Value::Mapping(_) => {
            let fields = Fields::read(node, "a hash", &HASH_FIELDS, faults)?;
            parse_hash(&fields, faults).map(Word::Hash)
        }
    }
}

fn quoted_text(text: &str, place: Place) -> String {
    let number = match place {
        Place::Bigint => parse_bigint(text).is_ok(),
        Place::Half => parse_int4(text).is_ok(),
    };
    let or_the_number =
        if number { format!("write {text} for the number, or ") } else { String::new() };
    format!("{text:?} in quotes is a text: {or_the_number}{}", for_its_hash(text))
}

fn for_its_hash(text: &str) -> String {
    format!("write {{ hashtext: {text:?} }} or {{ hashtextextended: {text:?} }} for its hash")
}

fn parse_hash(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Option<HashCheck> {
    let (name, input) = fields.only_one_of(&["hashtext", "hashtextextended"], faults)?;
    let text = parse_hashed_text(name, input, faults);
    if name == "hashtext" {
        if let Some(seed) = fields.get("seed") {
            faults.add(seed.at, "hashtext takes no seed: use hashtextextended, or remove the seed");
        }
        return Some(HashCheck::new(HashFunction::Hashtext, &text?, 0));
    }
    let seed = match fields.get("seed") {
        Some(seed) => parse_seed(seed, faults),
        None => Some(0),
    };
    Some(HashCheck::new(HashFunction::Hashtextextended, &text?, seed?))
}

fn parse_seed(node: &Node, faults: &mut Faults<'_>) -> Option<i64> {
    match &node.value {
        Value::Scalar { text, plain: true } if !node.is_null() => {
            parse_bigint(text).map_err(|error| faults.add(node.at, error.to_string())).ok()
        }
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => {
            faults.add(node.at, "the seed is a number without quotes");
            None
        }
    }
}

fn parse_hashed_text(function: &str, node: &Node, faults: &mut Faults<'_>) -> Option<String> {
    if let Some(message) = unquoted_placeholder(node) {
        faults.add(node.at, message);
        return None;
    }
    let Value::Scalar { text, .. } = &node.value else {
        faults.add(node.at, format!("{function} takes a text, found {}", node.kind()));
        return None;
    };
    if node.is_null() {
        let meant = if text == "~" { "" } else { text };
        faults.add(
            node.at,
            format!("{function} takes a text, found nothing: write {meant:?} if that is the text"),
        );
        return None;
    }
    let text = parse_template(text).map_err(|error| faults.add(node.at, error.to_string())).ok()?;
    if text.contains('\0') {
        faults.add(
            node.at,
            format!(
                "no text in PostgreSQL contains NUL, so no server can compute this {function}: \
                 remove \\0"
            ),
        );
        return None;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::document::parse_document;
    use super::*;

    fn parse(text: &str) -> Result<KeyPattern, Vec<String>> {
        let source = Source { name: "f".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        let pattern =
            parse_document(&source, &mut faults).and_then(|root| parse_key(&root, &mut faults));
        let faults = faults.finish();
        match pattern {
            Some(pattern) if faults.is_empty() => Ok(pattern),
            _ => Err(faults
                .iter()
                .map(|f| format!("{}:{}: {}", f.line, f.column, f.message))
                .collect()),
        }
    }

    #[test]
    fn each_form_stands_for_its_keys() {
        let one = |key| Keys::One(key);
        let cases = [
            ("42", one(Key::bigint(42)), "42"),
            ("0x2a", one(Key::bigint(42)), "42"),
            ("{ bigint: -1 }", one(Key::bigint(-1)), "-1"),
            ("{ hashtext: jobs }", one(Key::bigint(-1_679_774_495)), "hashtext(\"jobs\")"),
            (
                "{ bigint: { hashtext: jobs } }",
                one(Key::bigint(-1_679_774_495)),
                "hashtext(\"jobs\")",
            ),
            (
                "{ hashtextextended: \"cron:recalc-reward-points\" }",
                one(Key::bigint(6_110_350_855_857_795_459)),
                "hashtextextended(\"cron:recalc-reward-points\", 0)",
            ),
            (
                "{ hashtextextended: jobs, seed: -1 }",
                one(Key::bigint(-7_996_330_531_658_456_789)),
                "hashtextextended(\"jobs\", -1)",
            ),
            ("{ pair: [7, 9] }", one(Key::pair(7, 9)), "(7,9)"),
            ("{ pair: [7, \"*\"] }", Keys::PairsFrom(7), "(7,*)"),
            ("{ pair: ['*', -9] }", Keys::PairsTo(-9), "(*,-9)"),
            (
                "{ pair: [{ hashtext: jobs }, { hashtext: \"job:nightly\" }] }",
                one(Key::pair(-1_679_774_495, 1_973_311_789)),
                "(hashtext(\"jobs\"),hashtext(\"job:nightly\"))",
            ),
            // Under seed 0 the low half of the long hash is the short one.
            (
                "{ pair: [{ hashtextextended: jobs }, \"*\"] }",
                Keys::PairsFrom(-1_679_774_495),
                "(hashtextextended(\"jobs\", 0),*)",
            ),
            // Scalars are texts where a text is asked for, whatever else YAML may see in them.
            ("{ hashtext: 010 }", one(Key::bigint(hashtext(b"010").into())), "hashtext(\"010\")"),
            ("{ hashtext: yes }", one(Key::bigint(hashtext(b"yes").into())), "hashtext(\"yes\")"),
            ("{ hashtext: \"\" }", one(Key::bigint(hashtext(b"").into())), "hashtext(\"\")"),
            (
                "{ hashtext: 'a{{b}}' }",
                one(Key::bigint(hashtext(b"a{b}").into())),
                "hashtext(\"a{b}\")",
            ),
        ];
        for (text, keys, written) in cases {
            let pattern = parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
            assert_eq!((pattern.keys, &*pattern.written), (keys, written), "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_mend() {
        let cases = [
            (
                "010",
                "1:1: 010 begins with a zero, which some read as octal: write 10, or 8 if octal was meant",
            ),
            ("1e3", "1:1: 1e3 is in a notation that is not read here: write 1000"),
            (
                "18446744073709551615",
                "1:1: 18446744073709551615 is above 9223372036854775807, the largest bigint: \
                 write its signed form -1",
            ),
            (
                "{ pair: [3048471620, 1] }",
                "1:10: 3048471620 is above 2147483647, the largest int4: write its signed form \
                 -1246495676 (OIDs and the columns of pg_locks are unsigned)",
            ),
            (
                "cron:nightly",
                "1:1: \"cron:nightly\" is not a number: write { hashtext: \"cron:nightly\" } or \
                 { hashtextextended: \"cron:nightly\" } for its hash",
            ),
            (
                "\"42\"",
                "1:1: \"42\" in quotes is a text: write 42 for the number, or \
                 write { hashtext: \"42\" } or { hashtextextended: \"42\" } for its hash",
            ),
            (
                "'jobs'",
                "1:1: \"jobs\" in quotes is a text: write { hashtext: \"jobs\" } or \
                 { hashtextextended: \"jobs\" } for its hash",
            ),
            ("~", "1:1: expected a number or a hash, found nothing"),
            (
                "[1, 2]",
                "1:1: expected one key, found a list: several keys go under keys, \
                 the halves of a pair into { pair: [7, 9] }",
            ),
            (
                "\"*\"",
                "1:1: a bigint key cannot be free: for a half-free pair write { pair: [7, \"*\"] }",
            ),
            ("{ pair: [1, *] }", "1:13: a bare * begins a YAML alias: write \"*\" in quotes"),
            (
                "{ pair: ['*', \"*\"] }",
                "1:9: both halves of the pair are free, which would name every pair: fix one of them",
            ),
            ("{ pair: [1] }", "1:9: a pair has two halves in a list, as in { pair: [7, 9] }"),
            ("{ pair: 7 }", "1:9: a pair has two halves in a list, as in { pair: [7, 9] }"),
            ("{ pair: [1, [2]] }", "1:13: expected a number or a hash, found a list"),
            ("{ pair: [1, 2], seed: 3 }", "1:23: seed has no meaning beside pair: remove it"),
            ("{ bigint: 1, seed: 3 }", "1:20: seed has no meaning beside bigint: remove it"),
            (
                "{ hashtext: a, seed: 3 }",
                "1:22: hashtext takes no seed: use hashtextextended, or remove the seed",
            ),
            ("{ hashtextextended: a, seed: \"3\" }", "1:30: the seed is a number without quotes"),
            (
                "{ hashtext: a, hashtextextended: b }",
                "1:34: hashtext and hashtextextended exclude each other: keep one",
            ),
            ("{ seed: 3 }", "1:1: one of bigint, pair, hashtext, hashtextextended is needed here"),
            (
                "{ crc32: a }",
                "1:3: unknown field \"crc32\" in a key: \
                 the known ones are bigint, pair, hashtext, hashtextextended, seed",
            ),
            (
                "{ pair: [{ pair: [1, 2] }, 3] }",
                "1:12: unknown field \"pair\" in a hash: \
                 the known ones are hashtext, hashtextextended, seed",
            ),
            (
                "{ hashtext: a, hashtext: b }",
                "1:16: hashtext is given twice, first on line 1: keep one",
            ),
            ("{ [1]: a }", "1:3: the name of a field is a word, found a list"),
            ("{ hashtext: [a] }", "1:13: hashtext takes a text, found a list"),
            (
                "{ hashtext: }",
                "1:11: hashtext takes a text, found nothing: write \"\" if that is the text",
            ),
            (
                "{ hashtext: null }",
                "1:13: hashtext takes a text, found nothing: write \"null\" if that is the text",
            ),
            (
                "{ hashtext: \"a\\0b\" }",
                "1:13: no text in PostgreSQL contains NUL, so no server can compute this hashtext: \
                 remove \\0",
            ),
            (
                "{ hashtext: {database} }",
                "1:13: {database} without quotes is a mapping to YAML: write \"{database}\"",
            ),
            (
                "{database}",
                "1:2: {database} without quotes is a mapping to YAML: write \"{database}\"",
            ),
            (
                "{ hashtext: \"cron:{database}\" }",
                "1:13: placeholder {database} has no values: \
                 write {{database}} if the braces belong to the text",
            ),
        ];
        for (text, message) in cases {
            match parse(text) {
                Ok(pattern) => panic!("{text} was taken as {}", pattern.written),
                Err(faults) => assert_eq!(faults, [message], "{text}"),
            }
        }
    }

    #[test]
    fn both_halves_of_a_pair_are_told_when_both_are_wrong() {
        assert_eq!(parse("{ pair: [08, 4294967296] }").unwrap_err().len(), 2);
    }
}
