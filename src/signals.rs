//! Signals that reach netbox are meant for the command.
//!
//! A terminal sends its keys to the whole foreground group, so those go to the command's whole group; others go to the
//! command alone, as they would have gone to the process that netbox stands for.

use std::io;

use netbox_launcher::Sandbox;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are passed on.
pub struct Signals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    window: Signal,
    stop: Signal,
    cont: Signal,
}

impl Signals {
    /// Takes them over from their defaults.
    ///
    /// # Errors
    /// Those of sigaction(2), which leave the defaults in place.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            window: signal(SignalKind::from_raw(libc::SIGWINCH))?,
            stop: signal(SignalKind::from_raw(libc::SIGTSTP))?,
            cont: signal(SignalKind::from_raw(libc::SIGCONT))?,
        })
    }

    /// Waits for the next one and passes it on.
    pub async fn pass_one_on(&mut self, sandbox: &Sandbox) {
        let (number, group) = tokio::select! {
            _ = self.interrupt.recv() => (SignalKind::interrupt().as_raw_value(), true),
            _ = self.quit.recv() => (SignalKind::quit().as_raw_value(), true),
            _ = self.window.recv() => (libc::SIGWINCH, true),
            _ = self.terminate.recv() => (SignalKind::terminate().as_raw_value(), false),
            _ = self.hangup.recv() => (SignalKind::hangup().as_raw_value(), false),
            _ = self.user1.recv() => (SignalKind::user_defined1().as_raw_value(), false),
            _ = self.user2.recv() => (SignalKind::user_defined2().as_raw_value(), false),
            _ = self.cont.recv() => (libc::SIGCONT, true),
            // The command's group is orphaned, and the kernel does not stop such a group by SIGTSTP.
            _ = self.stop.recv() => (libc::SIGSTOP, true),
        };
        sandbox.signal(number, group);
        if number == libc::SIGSTOP {
            netbox_launcher::stop_this_process();
        }
    }
}
