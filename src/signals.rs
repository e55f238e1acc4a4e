//! Signals that reach netbox are meant for the command.
//!
//! A terminal sends its keys to the whole foreground group, so those go to the command's whole group; others go to the
//! command alone, as they would have gone to the process that netbox stands for. What the caller has netbox ignore, as
//! nohup(1) and shells do for what runs in the background, it goes on to ignore: the command ignores it too.
//!
//! While the command has a terminal of its own and the person's keys, these are no signals: what is typed arrives there.

use std::future;
use std::io;
use std::time::Instant;

use netbox_launcher::Sandbox;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::interruptions::{Act, Interruptions};

/// The signals that are passed on.
pub struct Signals {
    interrupt: Option<Signal>,
    quit: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    user1: Option<Signal>,
    user2: Option<Signal>,
    window: Option<Signal>,
    stop: Option<Signal>,
    cont: Option<Signal>,
    interruptions: Interruptions,
    have_interrupted: bool,
    have_killed: bool,
}

impl Signals {
    /// Takes them over from their defaults.
    ///
    /// # Errors
    /// Those of sigaction(2), which leave the defaults in place.
    pub fn listen() -> io::Result<Self> {
        let take = |number| match netbox_launcher::is_ignored(number) {
            true => Ok(None),
            false => signal(SignalKind::from_raw(number)).map(Some),
        };
        Ok(Self {
            interrupt: take(libc::SIGINT)?,
            quit: take(libc::SIGQUIT)?,
            terminate: take(libc::SIGTERM)?,
            hangup: take(libc::SIGHUP)?,
            user1: take(libc::SIGUSR1)?,
            user2: take(libc::SIGUSR2)?,
            window: take(libc::SIGWINCH)?,
            stop: take(libc::SIGTSTP)?,
            cont: take(libc::SIGCONT)?,
            interruptions: Interruptions::default(),
            have_interrupted: false,
            have_killed: false,
        })
    }

    /// Waits for the next one and passes it on.
    pub async fn pass_one_on(&mut self, sandbox: &mut Sandbox) {
        let (number, group) = tokio::select! {
            () = next(&mut self.interrupt) => return self.interrupt(sandbox),
            () = next(&mut self.quit) => (libc::SIGQUIT, true),
            () = next(&mut self.terminate) => (libc::SIGTERM, false),
            () = next(&mut self.hangup) => (libc::SIGHUP, false),
            () = next(&mut self.user1) => (libc::SIGUSR1, false),
            () = next(&mut self.user2) => (libc::SIGUSR2, false),
            () = next(&mut self.window) => match sandbox.resize() {
                true => return,
                false => (libc::SIGWINCH, true),
            },
            () = next(&mut self.cont) => return sandbox.go_on(),
            // If the command stops, pid 1 tells so, and netbox stops as well.
            () = next(&mut self.stop) => (libc::SIGTSTP, true),
        };
        sandbox.signal(number, group);
    }

    fn interrupt(&mut self, sandbox: &mut Sandbox) {
        self.have_interrupted = true;
        // At a terminal there are other ways than Ctrl-C, and the command decides about them.
        let act = if sandbox.has_terminal() { Act::PassOn } else { self.interruptions.come(Instant::now()) };
        if act == Act::Kill {
            self.have_killed = true;
            return sandbox.kill();
        }
        sandbox.signal(libc::SIGINT, true);
        if act == Act::Terminate {
            sandbox.signal(libc::SIGTERM, true);
        }
    }

    /// Whether any of them was SIGINT.
    pub fn have_interrupted(&self) -> bool {
        self.have_interrupted
    }

    /// Whether the person's insistence has ended the sandbox.
    pub fn have_killed(&self) -> bool {
        self.have_killed
    }

    /// Waits for one that asks netbox to end, when there is no command any more to pass it on to.
    pub async fn end(&mut self) {
        tokio::select! {
            () = next(&mut self.interrupt) => {}
            () = next(&mut self.quit) => {}
            () = next(&mut self.terminate) => {}
            () = next(&mut self.hangup) => {}
        }
    }
}

async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => future::pending().await,
    }
}
