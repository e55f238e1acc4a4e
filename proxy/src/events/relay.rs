//! The events of several tenants in one sink: that of the service which carries them.

use std::time::Duration;

use super::{Events, Outlet};
use crate::budget::{Allowance, Budget};

/// How many lines of one tenant are passed on: so many at once, and then 2,000 a second. Who has more to tell must not take
/// the place of the others; what is beyond counts among its own that were dropped.
const LINES: Allowance = Allowance { most: 10_000, refill: Duration::from_micros(500) };

/// Passes the lines of one tenant on.
pub struct Relay {
    to: Events,
    lines: Budget,
}

impl Relay {
    /// To whoever these are written to.
    #[must_use]
    pub fn new(to: &Events) -> Self {
        Self { to: to.clone(), lines: Budget::new(LINES) }
    }
}

impl Outlet for Relay {
    fn wants_lines(&self) -> bool {
        self.to.are_written()
    }

    fn line(&self, line: &[u8]) -> bool {
        self.lines.take() && std::str::from_utf8(line).is_ok_and(|line| self.to.relay(line))
    }

    fn counted(&self) {}
}
