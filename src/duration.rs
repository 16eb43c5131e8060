//! Durations as Prometheus writes them: `500ms`, `15m`, `1h30m`, `1d`.
//!
//! The same grammar serves flags, the configuration and the registry, so that what people copy
//! from their rules works here. A bare number is refused: nobody remembers its unit at night.

use std::time::Duration;

/// Units from the largest to the smallest, which is also the order they must be written in.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Why a text is not a duration, with the mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// A number without a unit.
    #[error("{0:?} has no unit: write {0}s for seconds, or another of ms, s, m, h, d, w, y")]
    NoUnit(String),
    /// Anything else.
    #[error(
        "{0:?} is not a duration: write numbers with units, largest first, as in 500ms, 15m, 1h30m, 1d"
    )]
    Syntax(String),
}

/// Parses one duration. `0` alone needs no unit, as in Prometheus.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let syntax = || ParseDurationError::Syntax(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(ParseDurationError::NoUnit(text.to_owned()));
    }
    let mut rest = text;
    let mut next_unit = 0;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(syntax)?;
        let number: u64 = rest[..digits].parse().map_err(|_| syntax())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let position = UNITS[next_unit..]
            .iter()
            .position(|(unit, _)| *unit == &rest[..letters])
            .ok_or_else(syntax)?;
        let (_, millis) = UNITS[next_unit + position];
        total = number.checked_mul(millis).and_then(|n| total.checked_add(n)).ok_or_else(syntax)?;
        next_unit += position + 1;
        rest = &rest[letters..];
    }
    if text.is_empty() { Err(syntax()) } else { Ok(Duration::from_millis(total)) }
}

/// Writes a duration as [`parse_duration`] reads it, to the millisecond, in days at most.
pub fn render_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, millis) in UNITS.into_iter().filter(|(unit, _)| !["y", "w"].contains(unit)) {
        let number = rest / millis;
        if number > 0 {
            text += &format!("{number}{unit}");
        }
        rest %= millis;
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_prometheus_reads_them() {
        let expected =
            [("500ms", 500), ("15m", 900_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("0", 0)];
        for (text, millis) in expected {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_duration_that_is_written_is_read_back() {
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (5_400_000, "1h30m"),
            (691_200_000, "8d"),
            (61_001, "1m1s1ms"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(render_duration(duration), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }

    #[test]
    fn a_bare_number_is_refused_with_the_mend() {
        let error = parse_duration("15").unwrap_err().to_string();
        assert!(error.contains("write 15s for seconds"), "{error}");
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        for text in ["", "s", "-1s", "1.5s", "30m1h", "1h1h", "1 h", "1H", "99999999999999999999s"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
