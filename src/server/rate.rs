//! The rate limit: a bucket of tokens, one for each request.
//!
//! It owns how many requests may come how fast. Time is an argument, and whose requests they are is
//! not its business: like the format that configures it, it counts all of them together.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Why a limit cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RateError {
    #[error("a limit needs a `burst` of at least 1, else no request is ever answered; add one")]
    NoBurst,
}

/// How many requests may come: `burst` at once, and then one in each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// An interval of zero is no limit.
    pub(super) fn new(interval: Duration, burst: u32) -> Result<Option<Self>, RateError> {
        match (interval.is_zero(), burst) {
            (true, _) => Ok(None),
            (false, 0) => Err(RateError::NoBurst),
            (false, _) => Ok(Some(Self { interval, burst })),
        }
    }
}

/// What is left of a rate. It begins full.
pub(super) struct Bucket {
    rate: Rate,
    /// When it is full again, if nobody takes anything.
    full_at: Mutex<Option<Instant>>,
}

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::default() }
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes a token, or says how long it takes until there is one.
    pub(super) fn take(&self, now: Instant) -> Result<(), Duration> {
        let Rate { interval, burst } = self.rate;
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        match missing.checked_sub(interval.saturating_mul(burst - 1)) {
            Some(excess) if !excess.is_zero() => Err(excess),
            _ => {
                *full_at = now.checked_add(missing.saturating_add(interval));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    #[expect(clippy::disallowed_methods, reason = "some moment to begin at")]
    fn a_burst_is_let_through_and_then_one_in_each_interval() {
        let bucket = Bucket::new(Rate::new(SECOND, 3).unwrap().unwrap());
        let start = Instant::now();
        for _ in 0..3 {
            bucket.take(start).unwrap();
        }
        assert_eq!(bucket.take(start), Err(SECOND));
        assert_eq!(bucket.take(start + SECOND / 4), Err(SECOND * 3 / 4), "asking costs nothing");
        bucket.take(start + SECOND).unwrap();
        assert_eq!(bucket.take(start + SECOND), Err(SECOND));
        let later = start + 100 * SECOND;
        for _ in 0..3 {
            bucket.take(later).unwrap();
        }
        assert_eq!(bucket.take(later), Err(SECOND), "it holds no more than a burst");
    }

    #[test]
    fn an_interval_of_zero_is_no_limit_and_a_burst_of_zero_is_a_mistake() {
        assert_eq!(Rate::new(Duration::ZERO, 0), Ok(None));
        assert_eq!(Rate::new(SECOND, 0), Err(RateError::NoBurst));
    }
}
