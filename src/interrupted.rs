//! The end of a run by Ctrl-C at the terminal.
//!
//! A shell goes on with a script or a loop after a command that ended with an exit code, 130 too: that one took care of the
//! key itself. What tells a shell to stop as well is a command that died of SIGINT. Netbox stands for its command, so where
//! that has died of it, so does netbox, once everything is cleaned up; `$?` is 130 in either case. Where the key was typed at
//! the command's terminal, nobody out here has seen it: then all who would have, had there been no netbox, are sent the
//! signal as well, which are the processes of netbox's group.
//!
//! Only at a terminal that controls netbox, and in its foreground: other callers are told by the code 130, as documented,
//! and many of them tell a signal from a code. SIGINT alone, since no shell minds the others.

use netbox_launcher::{Outcome, Sandbox};

use crate::signals::Signals;

/// A run that was ended so.
#[derive(Debug)]
pub struct Interrupted {
    /// Whether nobody out here has seen the key.
    is_unseen: bool,
}

impl Interrupted {
    /// Whether this outcome is one. To be asked while the sandbox still has its terminal.
    pub fn find(outcome: &Outcome, sandbox: &Sandbox, signals: &Signals) -> Option<Self> {
        let is_unseen = sandbox.is_interrupt_typed();
        let is_one = matches!(outcome, Outcome::Killed(libc::SIGINT))
            && (is_unseen || signals.have_interrupted())
            && sandbox.is_in_foreground();
        is_one.then_some(Self { is_unseen })
    }

    /// Ends netbox, and has its group interrupted if it was not. Last of all.
    pub fn pass_on(self) {
        netbox_launcher::end_by_interruption(self.is_unseen);
    }
}
