//! Lock modes and which of them conflict.
//!
//! Advisory locks know two, exclusive and share, but extensions take tags of their own in any of
//! the server's eight modes, and chains run through every type of lock. A mode this table does not
//! know is passed through by the server's own word.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A mode as `pg_locks.mode` names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// `AccessShareLock`
    AccessShare,
    /// `RowShareLock`
    RowShare,
    /// `RowExclusiveLock`
    RowExclusive,
    /// `ShareUpdateExclusiveLock`
    ShareUpdateExclusive,
    /// `ShareLock`: `pg_advisory_lock_shared`
    Share,
    /// `ShareRowExclusiveLock`
    ShareRowExclusive,
    /// `ExclusiveLock`: `pg_advisory_lock`
    Exclusive,
    /// `AccessExclusiveLock`
    AccessExclusive,
    /// A word of the server that this table does not know.
    Other(Arc<str>),
}

impl Mode {
    /// The server's eight modes, from the weakest to the strongest.
    pub const KNOWN: [Self; 8] = [
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// From the server's word.
    pub fn from_server(word: &str) -> Self {
        match word {
            "AccessShareLock" => Self::AccessShare,
            "RowShareLock" => Self::RowShare,
            "RowExclusiveLock" => Self::RowExclusive,
            "ShareUpdateExclusiveLock" => Self::ShareUpdateExclusive,
            "ShareLock" => Self::Share,
            "ShareRowExclusiveLock" => Self::ShareRowExclusive,
            "ExclusiveLock" => Self::Exclusive,
            "AccessExclusiveLock" => Self::AccessExclusive,
            other => Self::Other(other.into()),
        }
    }

    /// `exclusive` and `share` for the two modes of advisory locks, else the server's own word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::AccessShare => "AccessShareLock",
            Self::RowShare => "RowShareLock",
            Self::RowExclusive => "RowExclusiveLock",
            Self::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
            Self::Share => "share",
            Self::ShareRowExclusive => "ShareRowExclusiveLock",
            Self::Exclusive => "exclusive",
            Self::AccessExclusive => "AccessExclusiveLock",
            Self::Other(word) => word,
        }
    }

    /// How much a mode excludes, to name one mode for a session that holds several: the larger
    /// number conflicts with more. A mode that is not known stands lowest.
    pub fn strength(&self) -> u8 {
        self.number().unwrap_or(0)
    }

    /// Whether two sessions cannot hold these modes of one lock at once: the server's table
    /// (`LockConflicts` in `lock.c`). An unknown mode conflicts with nothing: no block is invented.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        ModeSet::from(self).conflicts().intersects(other.into())
    }

    /// The number of the mode in the server's source (`lockdefs.h`).
    fn number(&self) -> Option<u8> {
        match self {
            Self::AccessShare => Some(1),
            Self::RowShare => Some(2),
            Self::RowExclusive => Some(3),
            Self::ShareUpdateExclusive => Some(4),
            Self::Share => Some(5),
            Self::ShareRowExclusive => Some(6),
            Self::Exclusive => Some(7),
            Self::AccessExclusive => Some(8),
            Self::Other(_) => None,
        }
    }
}

/// Some of the server's eight modes. A mode that is not known is in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModeSet(u8);

impl ModeSet {
    /// The server's `LockConflicts`. Bit n is the mode with number n + 1.
    const CONFLICTS: [u8; 8] = [
        0b1000_0000, // access share
        0b1100_0000, // row share
        0b1111_0000, // row exclusive
        0b1111_1000, // share update exclusive
        0b1110_1100, // share
        0b1111_1100, // share row exclusive
        0b1111_1110, // exclusive
        0b1111_1111, // access exclusive
    ];

    /// The modes of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether there is a mode that is in both.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Every mode that nobody else may hold beside these.
    #[must_use]
    pub fn conflicts(self) -> Self {
        Self(self.places().fold(0, |all, place| all | Self::CONFLICTS[place]))
    }

    /// Its modes, the weakest first.
    pub fn modes(self) -> impl Iterator<Item = &'static Mode> {
        self.places().map(|place| &Mode::KNOWN[place])
    }

    /// The places of its modes in [`Mode::KNOWN`], from the weakest.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..Mode::KNOWN.len()).filter(move |place| self.0 & (1 << place) != 0)
    }
}

impl From<&Mode> for ModeSet {
    fn from(mode: &Mode) -> Self {
        Self(mode.number().map_or(0, |number| 1 << (number - 1)))
    }
}

impl FromIterator<ModeSet> for ModeSet {
    fn from_iter<T: IntoIterator<Item = ModeSet>>(sets: T) -> Self {
        sets.into_iter().fold(Self::default(), Self::union)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Mode {
    /// The words of [`Mode::as_str`] read back.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let ours = Self::KNOWN.into_iter().find(|mode| mode.as_str() == word);
        Ok(ours.unwrap_or_else(|| Self::Other(word.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_symmetric() {
        for a in &Mode::KNOWN {
            for b in &Mode::KNOWN {
                assert_eq!(a.conflicts_with(b), b.conflicts_with(a), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_conflict_table_is_the_one_of_the_manual() {
        let conflicts: Vec<String> = Mode::KNOWN
            .iter()
            .map(|a| {
                Mode::KNOWN.iter().map(|b| if a.conflicts_with(b) { 'x' } else { '.' }).collect()
            })
            .collect();
        assert_eq!(
            conflicts,
            [
                ".......x", "......xx", "....xxxx", "...xxxxx", "..xx.xxx", "..xxxxxx", ".xxxxxxx",
                "xxxxxxxx"
            ]
        );
    }

    #[test]
    fn a_set_has_the_modes_it_was_made_of() {
        let modes: ModeSet =
            [&Mode::Exclusive, &Mode::Share].map(ModeSet::from).into_iter().collect();
        assert_eq!(modes.modes().collect::<Vec<_>>(), [&Mode::Share, &Mode::Exclusive]);
    }

    #[test]
    fn a_mode_that_is_not_known_passes_through_and_conflicts_with_nothing() {
        let mode = Mode::from_server("FancyLock");
        assert_eq!(mode.as_str(), "FancyLock");
        assert!(!Mode::KNOWN.iter().any(|other| mode.conflicts_with(other)));
    }
}
