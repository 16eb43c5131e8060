//! A moment on some clock, to the microsecond, as the server keeps it.
//!
//! Equality matters more than arithmetic: `waitstart` and `state_change` are compared between
//! polls to tell that nothing happened meanwhile, so they are kept exactly as the server sent them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Microseconds since the Unix epoch. Which clock it belongs to, the server's or ours, is said
/// where it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// Microseconds between the Unix epoch and PostgreSQL's, 2000-01-01.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From a `timestamptz` on the wire: microseconds since 2000-01-01. The infinities saturate.
    pub const fn from_postgres_micros(micros: i64) -> Self {
        Self(micros.saturating_add(POSTGRES_EPOCH))
    }

    /// Microseconds since the Unix epoch.
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch, the unit of every timestamp metric.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a double holds microseconds until the year 2255"
    )]
    pub fn unix_seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time from `earlier` until this moment; zero if it lies later, never negative.
    pub const fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        if micros > 0 { Duration::from_micros(micros.cast_unsigned()) } else { Duration::ZERO }
    }

    /// This moment and `duration`.
    pub fn after(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// This moment less `duration`.
    pub fn before(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)),
            Err(error) => Self(0).before(error.duration()),
        }
    }
}

/// RFC 3339 in UTC, to the microsecond, or as many digits of a second as `{:.0}` asks for.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time:.0$}", f.precision().unwrap_or(6)),
            Err(_) => f.write_str(if self.0 < 0 { "-infinity" } else { "infinity" }),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As it is serialized; the infinities included.
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "infinity" => Ok(Self(i64::MAX)),
            "-infinity" => Ok(Self(i64::MIN)),
            text => text
                .parse()
                .map(|time: jiff::Timestamp| Self(time.as_microsecond()))
                .map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamptz_of_the_wire_is_shown_in_utc() {
        let moment = Timestamp::from_postgres_micros(0);
        assert_eq!(moment.to_string(), "2000-01-01T00:00:00.000000Z");
        assert_eq!(moment.unix_seconds(), 946_684_800.0);
    }

    #[test]
    fn infinities_are_words_and_not_a_panic() {
        assert_eq!(Timestamp::from_postgres_micros(i64::MAX).to_string(), "infinity");
        assert_eq!(Timestamp::from_postgres_micros(i64::MIN).to_string(), "-infinity");
    }

    #[test]
    fn what_is_serialized_is_read_back() {
        for micros in [0, -1, 1_796_040_000_000_001, i64::MAX, i64::MIN] {
            let moment = Timestamp(micros);
            let json = serde_json::to_string(&moment).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), moment, "{json}");
        }
        assert!(serde_json::from_str::<Timestamp>("\"soon\"").is_err());
    }

    #[test]
    fn an_age_is_never_below_zero() {
        let (early, late) = (Timestamp::from_unix_micros(5), Timestamp::from_unix_micros(9));
        assert_eq!(late.since(early), Duration::from_micros(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
