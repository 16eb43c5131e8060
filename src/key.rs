//! The key of an advisory lock, as `pg_locks` stores it and as people write it.
//!
//! `pg_locks` has three columns for it. `objsubid` tells the key space: 1 is one `bigint`, 2 is a
//! pair of `int4`, and extensions use other numbers for tags of their own, which are passed
//! through undecoded. `classid` and `objid` are unsigned there, so signs are restored here. Every
//! key can be shown and read back without loss; what a key *means* is the registry's business.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// `objsubid` of `pg_advisory_lock(bigint)`.
const BIGINT_CLASS: u16 = 1;
/// `objsubid` of `pg_advisory_lock(int4, int4)`.
const PAIR_CLASS: u16 = 2;

/// One advisory key within a database: `pg_locks.classid`, `objid` and `objsubid`.
///
/// Ordered by key space, then by the unsigned 64-bit word, so that listings are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    class: u16,
    word: u64,
}

/// The key space a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// One signed 64-bit number.
    Bigint,
    /// Two signed 32-bit numbers.
    Pair,
    /// A tag of some extension; its halves are unsigned and mean what the extension says.
    Other,
}

impl Key {
    /// The key that `pg_advisory_lock(value)` takes.
    pub const fn bigint(value: i64) -> Self {
        Self { class: BIGINT_CLASS, word: value.cast_unsigned() }
    }

    /// The key that `pg_advisory_lock(first, second)` takes.
    pub const fn pair(first: i32, second: i32) -> Self {
        Self::from_columns(first.cast_unsigned(), second.cast_unsigned(), PAIR_CLASS)
    }

    /// A key from the three columns of `pg_locks`.
    pub const fn from_columns(classid: u32, objid: u32, objsubid: u16) -> Self {
        Self { class: objsubid, word: ((classid as u64) << 32) | objid as u64 }
    }

    /// A key from the word `classid << 32 | objid` and `objsubid`.
    pub const fn from_word(word: u64, objsubid: u16) -> Self {
        Self { class: objsubid, word }
    }

    /// Which key space it belongs to.
    pub const fn kind(self) -> KeyKind {
        match self.class {
            BIGINT_CLASS => KeyKind::Bigint,
            PAIR_CLASS => KeyKind::Pair,
            _ => KeyKind::Other,
        }
    }

    /// `pg_locks.classid`: the high half, unsigned.
    pub const fn classid(self) -> u32 {
        (self.word >> 32) as u32
    }

    /// `pg_locks.objid`: the low half, unsigned.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    pub const fn objid(self) -> u32 {
        self.word as u32
    }

    /// `pg_locks.objsubid`.
    pub const fn objsubid(self) -> u16 {
        self.class
    }

    /// The number of a bigint key, `None` for any other kind.
    pub const fn as_bigint(self) -> Option<i64> {
        match self.kind() {
            KeyKind::Bigint => Some(self.word.cast_signed()),
            KeyKind::Pair | KeyKind::Other => None,
        }
    }

    /// The two numbers of a pair, `None` for any other kind.
    pub const fn as_pair(self) -> Option<(i32, i32)> {
        match self.kind() {
            KeyKind::Pair => Some((self.classid().cast_signed(), self.objid().cast_signed())),
            KeyKind::Bigint | KeyKind::Other => None,
        }
    }
}

/// As people write it: `42`, `(7,9)`, `class 5: 0/102747`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            KeyKind::Bigint => write!(f, "{}", self.word.cast_signed()),
            KeyKind::Pair => {
                write!(f, "({},{})", self.classid().cast_signed(), self.objid().cast_signed())
            }
            KeyKind::Other => {
                write!(f, "class {}: {}/{}", self.class, self.classid(), self.objid())
            }
        }
    }
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a key: write a bigint (42), a pair of int4 ((7,9)) or another class (class 5: 0/102747)"
)]
pub struct ParseKeyError;

/// The inverse of `Display`; blanks around the numbers of a pair are allowed.
impl FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse_key(text.trim()).ok_or(ParseKeyError)
    }
}

fn parse_key(text: &str) -> Option<Key> {
    if let Some(rest) = text.strip_prefix("class ") {
        let (class, halves) = rest.split_once(':')?;
        let (classid, objid) = halves.trim_start().split_once('/')?;
        let key =
            Key::from_columns(classid.parse().ok()?, objid.parse().ok()?, class.parse().ok()?);
        return (key.kind() == KeyKind::Other).then_some(key);
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let (first, second) = inner.split_once(',')?;
        return Some(Key::pair(first.trim().parse().ok()?, second.trim().parse().ok()?));
    }
    text.parse().ok().map(Key::bigint)
}

/// Its fields in JSON: `text`, `kind`, `classid`, `objid`, `objsubid`.
impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            text: String,
            kind: KeyKind,
            classid: u32,
            objid: u32,
            objsubid: u16,
        }
        Fields {
            text: self.to_string(),
            kind: self.kind(),
            classid: self.classid(),
            objid: self.objid(),
            objsubid: self.objsubid(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_columns_of_pg_locks_decode_to_the_number_the_application_used() {
        let columns = [
            (4_294_967_295, 4_294_967_295, 1, "-1"),
            (0, 42, 1, "42"),
            (2_147_483_648, 0, 1, "-9223372036854775808"),
            (2_147_483_647, 4_294_967_295, 1, "9223372036854775807"),
            (4_294_967_295, 2_147_483_648, 1, "-2147483648"),
            (1, 0, 1, "4294967296"),
            (0, 5432, 1, "5432"),
            (1, 5432, 1, "4294972728"),
            (999_125, 0, 2, "(999125,0)"),
            (2_615_192_801, 1_973_311_789, 2, "(-1679774495,1973311789)"),
            (2_147_483_648, 2_147_483_647, 2, "(-2147483648,2147483647)"),
            (0, 102_747, 5, "class 5: 0/102747"),
            (1000, 0, 29749, "class 29749: 1000/0"),
        ];
        for (classid, objid, objsubid, text) in columns {
            assert_eq!(Key::from_columns(classid, objid, objsubid).to_string(), text);
        }
    }

    #[test]
    fn one_number_in_two_key_spaces_is_two_keys() {
        assert_ne!(Key::bigint(42), Key::pair(0, 42));
        assert_ne!(Key::bigint(-1), Key::pair(-1, -1));
    }

    #[test]
    fn text_that_is_no_key_is_refused() {
        for text in [
            "",
            "four",
            "1.5",
            "(1)",
            "(1,2,3)",
            "(1,2",
            "(2147483648,0)",
            "9223372036854775808",
            "class 1: 0/42",
            "class 2: 0/42",
            "class 65536: 0/1",
            "class 5: -1/0",
            "0x10",
        ] {
            assert_eq!(text.parse::<Key>(), Err(ParseKeyError), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn decode_display_and_parse_return_the_key(word: u64, class: u16) {
            let key = Key::from_word(word, class);
            prop_assert_eq!(key.to_string().parse::<Key>(), Ok(key));
            prop_assert_eq!(Key::from_columns(key.classid(), key.objid(), key.objsubid()), key);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            let _ = text.parse::<Key>();
        }
    }
}
