//! A rate: so many units in a second, of which a second's worth may be used at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What a rate counts back to after a rest.
const CREDIT: Duration = Duration::from_secs(1);

/// Stands for no bound.
const UNBOUNDED: u64 = u64::MAX;

/// A rate that may be changed while it is used. Without a bound it costs a look at a number.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: AtomicU64,
    /// When what was used so far is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { per_second: AtomicU64::new(UNBOUNDED), paid: Mutex::new(None) }
    }
}

impl Pace {
    /// From now on this many.
    pub(crate) fn set(&self, per_second: Option<u64>) {
        self.per_second.store(per_second.map_or(UNBOUNDED, |rate| rate.max(1)), Ordering::Relaxed);
    }

    /// The bound.
    pub(crate) fn per_second(&self) -> Option<u64> {
        Some(self.per_second.load(Ordering::Relaxed)).filter(|rate| *rate != UNBOUNDED)
    }

    /// Uses `units`, which have been used already. How long whoever used them is to wait before the next.
    pub(crate) fn spend(&self, units: u64) -> Option<Duration> {
        let cost = cost(units, self.per_second()?);
        let now = Instant::now();
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let next = begin(*paid, now) + cost;
        *paid = Some(next);
        Some(next.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Uses one, if one may be used now.
    pub(crate) fn take(&self) -> bool {
        let Some(rate) = self.per_second() else { return true };
        let now = Instant::now();
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let next = begin(*paid, now) + cost(1, rate);
        if next > now {
            return false;
        }
        *paid = Some(next);
        true
    }
}

/// From when on the next unit is paid for: a rest counts, though no longer than [`CREDIT`].
fn begin(paid: Option<Instant>, now: Instant) -> Instant {
    let earliest = now.checked_sub(CREDIT).unwrap_or(now);
    paid.map_or(earliest, |paid| paid.max(earliest))
}

fn cost(units: u64, rate: u64) -> Duration {
    Duration::from_nanos(u64::try_from(u128::from(units) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seconds_worth_may_be_used_at_once_and_then_as_it_comes() {
        advance(Duration::from_secs(10)).await;
        let pace = Pace::default();
        pace.set(Some(100));
        assert_eq!((0..200).filter(|_| pace.take()).count(), 100);
        advance(Duration::from_millis(50)).await;
        assert_eq!((0..200).filter(|_| pace.take()).count(), 5);
        advance(Duration::from_secs(1 << 20)).await;
        assert_eq!((0..200).filter(|_| pace.take()).count(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_beyond_is_waited_for_by_all_who_share_it() {
        advance(Duration::from_secs(10)).await;
        let pace = Pace::default();
        pace.set(Some(1000));
        assert_eq!(pace.spend(1000), None);
        assert_eq!(pace.spend(500), Some(Duration::from_millis(500)));
        assert_eq!(pace.spend(500), Some(Duration::from_secs(1)));
        advance(Duration::from_secs(1)).await;
        assert_eq!(pace.spend(1), Some(Duration::from_millis(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bound_nobody_waits_and_a_bound_may_come_and_go() {
        advance(Duration::from_secs(10)).await;
        let pace = Pace::default();
        assert_eq!((pace.spend(u64::MAX), pace.take()), (None, true));
        pace.set(Some(1));
        assert_eq!((pace.take(), pace.take()), (true, false));
        pace.set(None);
        assert_eq!((pace.take(), pace.spend(5)), (true, None));
        pace.set(Some(0));
        assert_eq!(pace.per_second(), Some(1), "nobody is held for ever");
    }
}
