//! Ctrl-C, where it reaches netbox and not a terminal of the command's own.
//!
//! The first one is the command's, as every later one that comes when the last was long ago: programs ask for data by it, or
//! clean up. Who presses it again and again wants the command to end, and may not know that it has to be asked in another
//! way; so the second one in a row asks it by SIGTERM as well, and the third one ends the sandbox.

use std::time::{Duration, Instant};

/// Further ones count if they come within this time of the last that counted.
const IN_A_ROW: Duration = Duration::from_secs(2);
/// Closer than that, they are one: the terminal's, and one that a parent passes on, as npm does.
const AT_ONCE: Duration = Duration::from_millis(150);

/// What one of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Pass it on.
    PassOn,
    /// Pass it on, and SIGTERM after it.
    Terminate,
    /// End the sandbox.
    Kill,
}

/// What came so far.
#[derive(Debug, Default)]
pub struct Interruptions {
    last: Option<Instant>,
    count: u32,
}

impl Interruptions {
    /// One came, at this time.
    pub fn come(&mut self, now: Instant) -> Act {
        match self.last.map(|last| now.saturating_duration_since(last)) {
            Some(since) if since < AT_ONCE => return Act::PassOn,
            Some(since) if since < IN_A_ROW => self.count += 1,
            _ => self.count = 1,
        }
        self.last = Some(now);
        match self.count {
            1 => Act::PassOn,
            2 => Act::Terminate,
            _ => Act::Kill,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(milliseconds: &[u64]) -> Vec<Act> {
        let start = Instant::now();
        let mut interruptions = Interruptions::default();
        milliseconds.iter().map(|at| interruptions.come(start + Duration::from_millis(*at))).collect()
    }

    #[test]
    fn three_in_a_row_end_the_sandbox() {
        assert_eq!(acts(&[0, 500, 1500]), [Act::PassOn, Act::Terminate, Act::Kill]);
        assert_eq!(acts(&[0, 1999, 3998]), [Act::PassOn, Act::Terminate, Act::Kill]);
    }

    #[test]
    fn one_from_time_to_time_is_the_commands() {
        assert_eq!(acts(&[0, 2000, 4000, 6000]), [Act::PassOn; 4]);
        assert_eq!(acts(&[0, 500, 3000, 3500]), [Act::PassOn, Act::Terminate, Act::PassOn, Act::Terminate]);
    }

    #[test]
    fn several_at_once_are_one() {
        assert_eq!(acts(&[0, 1, 149, 300, 301]), [Act::PassOn, Act::PassOn, Act::PassOn, Act::Terminate, Act::PassOn]);
    }
}
