//! Pid 1's part: the pseudo-terminal, and which process group of the sandbox is in its foreground.

use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, open};
use nix::pty::{posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::Mode;
use nix::sys::termios::{SetArg, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::Settings;
use crate::error::{At, Failure, Step};
use crate::sys;

/// The command's end of the pseudo-terminal, which is the controlling terminal of pid 1's session. It is held open for
/// as long as pid 1 lives, as a shell outside would hold it: the last close would take the terminal from the session.
pub(crate) struct Inside {
    terminal: OwnedFd,
    /// What was in the foreground until everyone was put into the background.
    before: Option<Pid>,
}

impl Inside {
    /// Makes the pseudo-terminal on the sandbox's `/dev/pts`, and puts it in the place of each standard descriptor that is
    /// a terminal. Pid 1 must lead a session. The other value is netbox's end.
    pub(crate) fn make(settings: &Settings) -> Result<(Self, OwnedFd), Failure> {
        let step = Step::Terminal;
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        // Netbox must not wait on it; its own end has flags of its own.
        let outer = posix_openpt(flags | OFlag::O_NONBLOCK).at(step, "`/dev/ptmx`")?;
        unlockpt(&outer).at(step, "`/dev/ptmx`")?;
        let name = ptsname_r(&outer).at(step, "`/dev/ptmx`")?;
        let inner = open(name.as_str(), flags, Mode::empty()).at(step, &format!("`{name}`"))?;
        tcsetattr(&inner, SetArg::TCSANOW, &settings.modes).at(step, "its modes")?;
        sys::terminal::set_size(&inner, settings.size).at(step, "its size")?;
        sys::terminal::take_as_controlling(&inner).at(step, "TIOCSCTTY")?;
        for (number, is_terminal) in settings.numbers.into_iter().enumerate() {
            if is_terminal {
                sys::place_at(&inner, number as i32).at(step, "descriptor")?;
            }
        }
        Ok((Self { terminal: inner, before: None }, outer.into()))
    }

    /// Puts the command's process group into the terminal's foreground, or the one that was there before: the command may be
    /// a shell, with a job of its own in the foreground. `is_stopped`: it is the command that is to go on.
    pub(crate) fn bring_forward(&mut self, command: Pid, is_stopped: bool) {
        let before = self.before.take().filter(|_| !is_stopped);
        if is_stopped || tcgetpgrp(&self.terminal) == Ok(getpgrp()) {
            // A group may be gone by now.
            let _ = self.set_foreground(before.unwrap_or(command)).or_else(|_| self.set_foreground(command));
        }
    }

    /// Puts everyone into the background.
    pub(crate) fn clear_foreground(&mut self) {
        if let Ok(group) = tcgetpgrp(&self.terminal)
            && group != getpgrp()
        {
            self.before = Some(group);
            let _ = self.set_foreground(getpgrp());
        }
    }

    /// Every signal is blocked here, or SIGTTOU would come for a change from the background.
    fn set_foreground(&self, group: Pid) -> nix::Result<()> {
        tcsetpgrp(&self.terminal, group)
    }
}
