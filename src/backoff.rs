//! How long to wait before the next attempt to reach a server.
//!
//! Exponential between two bounds, with equal jitter: half of the step is certain, half is drawn,
//! so that a fleet of exporters does not come back in one beat and yet none waits long after the
//! server is up again. Pure: it owns neither a clock nor a source of chance, both are the poller's.

use std::time::Duration;

/// The bounds within which attempts are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    min: Duration,
    max: Duration,
}

/// Why two durations do not bound a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackoffError {
    /// Attempts would follow each other without a pause.
    #[error("the shortest back-off is 0: attempts would not pause; give a duration above 0")]
    ZeroMin,
    /// The bounds are the wrong way round.
    #[error("the shortest back-off {min:?} is longer than the longest {max:?}; swap them")]
    Crossed {
        /// The bound given as the shorter one.
        min: Duration,
        /// The bound given as the longer one.
        max: Duration,
    },
}

impl Backoff {
    /// Bounds for every delay, both included.
    pub const fn new(min: Duration, max: Duration) -> Result<Self, BackoffError> {
        if min.is_zero() {
            return Err(BackoffError::ZeroMin);
        }
        if min.as_nanos() > max.as_nanos() {
            return Err(BackoffError::Crossed { min, max });
        }
        Ok(Self { min, max })
    }

    /// The pause after failure number `attempt`, counted from 0, for a `random` drawn evenly from
    /// 0..1. The step doubles with each attempt until it reaches the upper bound. Any number is
    /// safe to pass: one outside of 0..1 counts as the nearer end, and what is no
    /// number as 0.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        // 2^32 times the shortest pause is beyond every sensible bound, and saturates anyway.
        let step = self.min.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX));
        let half = step.min(self.max) / 2;
        let drawn = half.mul_f64(if random.is_nan() { 0.0 } else { random.clamp(0.0, 1.0) });
        (half + drawn).clamp(self.min, self.max)
    }
}

/// From half a second, so that `up` returns soon after a restart, to half a minute.
impl Default for Backoff {
    fn default() -> Self {
        Self { min: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_double_from_the_lower_bound_to_the_upper_one() {
        let backoff = Backoff::default();
        let longest: Vec<u128> =
            (0..9).map(|attempt| backoff.delay(attempt, 1.0).as_millis()).collect();
        assert_eq!(longest, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
    }

    #[test]
    fn chance_moves_a_delay_by_half_of_its_step() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay(4, 0.0), Duration::from_secs(4));
        assert_eq!(backoff.delay(4, 0.5), Duration::from_secs(6));
        assert_eq!(backoff.delay(4, 1.0), Duration::from_secs(8));
    }

    #[test]
    fn bounds_that_bound_nothing_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(Backoff::new(Duration::ZERO, second), Err(BackoffError::ZeroMin));
        assert!(matches!(Backoff::new(second * 2, second), Err(BackoffError::Crossed { .. })));
        assert!(Backoff::new(second, second).is_ok());
    }

    proptest! {
        #[test]
        fn every_delay_lies_within_the_bounds(
            min in 1_u64..1 << 50,
            more in 0_u64..1 << 50,
            attempt: u32,
            random in proptest::num::f64::ANY,
        ) {
            let (min, max) = (Duration::from_nanos(min), Duration::from_nanos(min + more));
            let delay = Backoff::new(min, max).unwrap().delay(attempt, random);
            prop_assert!(min <= delay && delay <= max, "{:?}", delay);
        }

        #[test]
        fn the_same_chance_never_shortens_a_later_delay(attempt in 0_u32..100, random in 0.0..1.0) {
            let backoff = Backoff::default();
            prop_assert!(backoff.delay(attempt, random) <= backoff.delay(attempt + 1, random));
        }
    }
}
