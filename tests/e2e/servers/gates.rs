//! Gates: a server stops in the middle of an answer until the test says go on. So a test can show that bytes arrive
//! while the answer is still being made, without measuring time.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use super::PATIENCE;

/// All gates, by name; each is shut at first.
#[derive(Debug, Default)]
pub struct Gates {
    open: Mutex<HashSet<String>>,
    opened: Condvar,
}

impl Gates {
    /// Lets through whoever waits at the gate, and all who come later.
    pub fn open(&self, name: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.opened.notify_all();
    }

    /// Waits until the gate is open; `false` when nobody opens it in a minute.
    pub fn pass(&self, name: &str) -> bool {
        let shut = |open: &mut HashSet<String>| !open.contains(name);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_timeout_while(open, PATIENCE, shut).unwrap_or_else(PoisonError::into_inner).1;
        !waited.timed_out()
    }
}
