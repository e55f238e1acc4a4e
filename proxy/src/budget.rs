//! An allowance that refills: how often something may happen that a program can make happen without end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How much there is at most, and in how much time one more is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How much.
    pub most: u32,
    /// In how much time.
    pub refill: Duration,
}

/// What is left of an allowance.
#[derive(Debug)]
pub struct Budget {
    allowance: Allowance,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u32,
    /// Up to when the refill has been counted.
    since: Instant,
}

impl Budget {
    /// A whole one.
    #[must_use]
    pub fn new(allowance: Allowance) -> Self {
        Self { allowance, state: Mutex::new(State { left: allowance.most, since: Instant::now() }) }
    }

    /// Takes one, if one is left.
    pub fn take(&self) -> bool {
        let Allowance { most, refill } = self.allowance;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let refilled = u32::try_from(state.since.elapsed().as_nanos() / refill.as_nanos().max(1)).unwrap_or(u32::MAX);
        if state.left.saturating_add(refilled) < most {
            state.left += refilled;
            state.since += refill * refilled;
        } else {
            // Beyond the most, time counts for nothing.
            *state = State { left: most, since: Instant::now() };
        }
        let left = state.left.checked_sub(1);
        state.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_spent_and_refills_up_to_its_most() {
        let budget = Budget::new(Allowance { most: 1000, refill: Duration::from_millis(50) });
        let spend = || (0..2000).filter(|_| budget.take()).count();
        assert_eq!(spend(), 1000);
        tokio::time::advance(Duration::from_millis(49)).await;
        assert!(!budget.take());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(spend(), 20);
        tokio::time::advance(Duration::from_secs(1 << 30)).await;
        assert_eq!(spend(), 1000);
    }
}
