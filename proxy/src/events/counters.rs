//! How often each thing happened: numbers that only grow, for metrics. Counted whether anybody reads them or not, and before
//! any queue, so that they are right whatever a sink does.

use std::sync::atomic::{AtomicU64, Ordering};

use netbox_config::Reason;

use super::End;

/// The numbers of one sandbox.
#[derive(Debug, Default)]
pub struct Counters {
    decisions: [AtomicU64; Reason::ALL.len()],
    ends: [AtomicU64; ENDS.len()],
}

/// The words for the ends of what was allowed.
const ENDS: [&str; 7] = ["done", "reset", "timeout", "limit", "revoked", "refused", "upstream"];

impl Counters {
    pub(super) fn decided(&self, reason: Reason) {
        self.decisions[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, end: &End) {
        if let Some(place) = ENDS.iter().position(|word| *word == end.as_str()) {
            self.ends[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many decisions had this reason.
    pub fn decisions(&self, reason: Reason) -> u64 {
        self.decisions[reason as usize].load(Ordering::Relaxed)
    }

    /// How many of what was allowed ended in which way.
    pub fn ends(&self) -> [(&'static str, u64); ENDS.len()] {
        std::array::from_fn(|place| (ENDS[place], self.ends[place].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::LateRefusal;

    #[test]
    fn every_reason_and_every_end_has_its_place() {
        let counters = Counters::default();
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            (0..=place).for_each(|_| counters.decided(reason));
        }
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(counters.decisions(reason), place as u64 + 1);
        }
        let late = LateRefusal { reason: Reason::NotTls, host: String::new(), port: None, hint: None };
        let ends = [End::Done, End::Reset, End::Timeout, End::Limit, End::Revoked, End::Refused(late), End::Upstream];
        for (place, end) in ends.iter().enumerate() {
            (0..=place).for_each(|_| counters.ended(end));
        }
        for (place, (word, count)) in counters.ends().into_iter().enumerate() {
            assert_eq!((word, count), (ends[place].as_str(), place as u64 + 1));
        }
    }
}
