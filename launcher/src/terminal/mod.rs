//! The command's terminal.
//!
//! # Theory of operation
//!
//! A program that has the user's terminal can do more than read and write there: it may keep it open, and read what is
//! typed into it later. So where any of the descriptors 0, 1 and 2 is a terminal, the command gets another one in its place:
//! a pseudo-terminal on the sandbox's own `/dev/pts` ([`Inside`]). Its other end is netbox's, which copies what is written
//! to the user's terminal ([`output`]), and what is typed to the pseudo-terminal ([`input`]).
//!
//! The user is to notice nothing. So the pseudo-terminal begins with the modes and the size of the user's, and does from
//! then on what a terminal does: it echoes, makes signals of keys, and stops what reads from the background. For job
//! control, pid 1 leads the session, and the command is in a process group of its own: as a job of a shell is, which can be
//! stopped since its parent is there to continue it.
//!
//! Netbox for its part is a job of the user's shell, and stands for the command:
//!
//! * *Attending*: the command is in the foreground of its terminal, netbox is in the foreground of the user's, which is
//!   in raw mode, so that keys arrive unseen, and netbox reads them.
//! * Else everyone inside is in the background of the pseudo-terminal, and netbox neither reads nor changes modes. What
//!   reads or changes modes inside is stopped by SIGTTIN or SIGTTOU, pid 1 tells, and netbox attends if it is in the
//!   foreground ([`Terminal::attend`]), or else stops, as the command would have.
//!
//! Netbox attends from the start, unless the command is part of a pipeline or its input is not the terminal: then another
//! program may be waiting for the keys (a pager behind, a password prompt before), and they are left to it until the
//! command wants one. (sudo does the same where it makes a pseudo-terminal.)
//!
//! When the command stops, by Ctrl-Z for one, netbox writes what is left to write, restores the terminal's modes, and stops
//! its own process group by the same signal, so that the shell sees a stopped job. Continued, it looks whether it is in the
//! foreground, and continues the command there or in the background.
//!
//! At the end the modes are restored, whatever ended the run but SIGKILL, and if the command was killed, so is what it did
//! to the screen ([`screen`]).
//!
//! What differs from a terminal shared with the shell: what was typed ahead and not read by the command is gone with it,
//! and modes that the command leaves behind are not kept. Of several different terminals one is used for all.

mod input;
mod inside;
mod output;
mod screen;
mod user;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use crate::error::{At, Failure, Step};
use crate::sys;
use input::{Input, Interrupt};
use output::Output;
use user::User;

pub(crate) use inside::Inside;

/// How long a stop, or an end that nobody waits for, waits for the user's terminal to take what there is for it.
const DELIVERY: Duration = Duration::from_secs(2);

/// What the pseudo-terminal is to be like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Which of the standard descriptors are terminals.
    numbers: [bool; 3],
    modes: Termios,
    size: sys::terminal::Size,
    /// Whether netbox attends from the start.
    attend: bool,
}

impl Settings {
    /// Those of the terminal that some of the standard descriptors are. `None`: none is. `attend`: unless the command
    /// wants it, the terminal is left alone.
    pub(crate) fn read(numbers: [bool; 3], attend: bool) -> Result<Option<Self>, Failure> {
        let step = Step::Terminal;
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let Some(terminal) = (0..3).find(|number| numbers[*number]).map(|number| descriptors[number]) else {
            return Ok(None);
        };
        let modes = tcgetattr(terminal).at(step, "its modes")?;
        let size = sys::terminal::size(terminal).at(step, "its size")?;
        let kind = fstat(stdout.as_fd()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let is_pipeline = matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK));
        Ok(Some(Self { numbers, modes, size, attend: attend && numbers[0] && !is_pipeline }))
    }
}

/// Netbox's part: the user's terminal on one side, and netbox's end of the pseudo-terminal on the other.
pub(crate) struct Terminal {
    user: Arc<User>,
    /// Gone when the threads are.
    master: Weak<OwnedFd>,
    input: UnixStream,
    output: UnixStream,
    /// The last errand of [`hold_output`](Self::hold_output).
    catch_ups: u8,
    /// Whether anything can have been written.
    is_begun: bool,
    /// Whether the command is to have the terminal back after a stop.
    wanted: bool,
    is_attending: bool,
    /// While the terminal is in raw mode.
    raw: Option<Raw>,
    interrupt: Interrupt,
    /// The modes of the pseudo-terminal, as long as they are those that it was given.
    given: Option<Termios>,
    is_finished: bool,
}

struct Raw {
    before: Termios,
    /// As the terminal took them.
    set: Termios,
}

impl Terminal {
    /// Begins to copy from and to `master`. Nobody is attended yet.
    pub(crate) fn begin(settings: &Settings, master: OwnedFd) -> Result<Self, Failure> {
        let step = Step::Terminal;
        let missing = || Failure::outcome(step, "it is gone");
        let user = Arc::new(User::find(settings.numbers).at(step, "a descriptor")?.ok_or_else(missing)?);
        let given = tcgetattr(&master).ok();
        let master = Arc::new(master);
        let (input, input_control) = UnixStream::pair().at(step, "a socket pair")?;
        let (output, output_control) = UnixStream::pair().at(step, "a socket pair")?;
        let (input_end, output_end) = (input.try_clone().at(step, "")?, output.try_clone().at(step, "")?);
        let writer = Output::new(Arc::clone(&master), Arc::clone(&user), output_control, input_end);
        let interrupt = Interrupt::new(&settings.modes);
        let reader = Input::new(Arc::clone(&master), Arc::clone(&user), input_control, output_end, interrupt.clone());
        let spawn = |name: &str| thread::Builder::new().name(name.into());
        spawn("output").spawn(move || writer.run()).at(step, "a thread")?;
        spawn("input").spawn(move || reader.run()).at(step, "a thread")?;
        Ok(Self {
            user,
            master: Arc::downgrade(&master),
            input,
            output,
            catch_ups: output::CATCH_UP,
            is_begun: false,
            wanted: settings.attend,
            is_attending: false,
            raw: None,
            interrupt,
            given,
            is_finished: false,
        })
    }

    /// Attends if netbox is in the foreground and the command is to have the terminal. Called at the start, and whenever
    /// netbox is continued. The value: whether the command may come into its foreground.
    pub(crate) fn resume(&mut self) -> bool {
        self.resize();
        if self.wanted && self.user.is_foreground() {
            self.attend();
        } else if self.is_attending {
            // Somebody else has the terminal now, and it is theirs to set.
            self.raw = None;
            self.ignore_keys();
        }
        self.is_begun = true;
        self.is_attending
    }

    /// Whether what is typed is the command's.
    pub(crate) fn is_attending(&self) -> bool {
        self.is_attending
    }

    /// Whether this process is in the foreground of the terminal that it is controlled by, and that is the user's.
    pub(crate) fn is_foreground(&self) -> bool {
        self.user.is_own() && self.user.is_foreground()
    }

    /// Whether the last that was typed for the command was the key that interrupts.
    pub(crate) fn is_interrupt_typed(&self) -> bool {
        self.interrupt.is_last()
    }

    /// Attends if netbox is in the foreground and does not already: the command wants the terminal.
    pub(crate) fn attend_on_demand(&mut self) -> bool {
        if self.is_attending || !self.user.is_foreground() {
            return false;
        }
        self.wanted = true;
        self.attend();
        true
    }

    fn attend(&mut self) {
        // A terminal that is gone is told by the threads.
        let Ok(current) = self.user.modes() else { return };
        if self.raw.as_ref().is_none_or(|raw| raw.set != current) {
            self.give(&current);
            self.hold_output();
            if self.user.set_modes(&self.user.raw(&current)).is_ok() {
                let set = self.user.modes().unwrap_or_else(|_| current.clone());
                self.raw = Some(Raw { before: current, set });
            }
            self.release_output();
        }
        self.is_attending = true;
    }

    /// Somebody is in the foreground inside, so that a key which is a signal has somebody to go to: the keys are read from
    /// now on. Until then they wait in the user's terminal.
    pub(crate) fn has_foreground(&mut self) {
        if self.is_attending {
            let _ = self.input.write_all(&[input::READ]);
        }
    }

    /// Gives the pseudo-terminal the modes of the user's, unless it has got others inside: at the start of a background job
    /// the user's were those of the shell, which was reading a line.
    fn give(&mut self, modes: &Termios) {
        let Some(master) = self.master.upgrade() else { return };
        if self.given.is_some() && tcgetattr(&master).ok() == self.given {
            let _ = tcsetattr(&master, SetArg::TCSANOW, modes);
            self.given = tcgetattr(&master).ok();
        } else {
            self.given = None;
        }
    }

    /// Leaves the user's terminal as it was. For a stop: what the command wrote before it is on the screen then.
    pub(crate) fn leave(&mut self) {
        self.ignore_keys();
        self.hold_output();
        self.restore_modes();
        self.release_output();
    }

    fn ignore_keys(&mut self) {
        self.is_attending = false;
        let _ = self.input.write_all(&[input::PAUSE]);
    }

    fn restore_modes(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        // Not where somebody else has the terminal, or has set it.
        if self.user.is_foreground() && self.user.modes().is_ok_and(|modes| modes == raw.set) {
            let _ = self.user.set_modes(&raw.before);
        }
    }

    /// Has the size of the user's terminal be that of the command's.
    pub(crate) fn resize(&self) {
        if let (Ok(size), Some(master)) = (self.user.size(), self.master.upgrade()) {
            let _ = sys::terminal::set_size(&master, size);
        }
    }

    /// Waits until what has been written inside is written outside, though not for ever, and has the rest wait.
    fn hold_output(&mut self) {
        if !self.is_begun {
            return;
        }
        self.catch_ups = self.catch_ups.checked_add(1).unwrap_or(output::CATCH_UP);
        let asked = self.catch_ups;
        let _ = self.output.set_read_timeout(Some(DELIVERY));
        let mut answer = [0];
        if self.output.write_all(&[asked]).is_ok() {
            // One that an earlier call did not wait for may come first.
            while self.output.read_exact(&mut answer).is_ok() && answer[0] != asked {}
        }
    }

    fn release_output(&mut self) {
        if self.is_begun {
            let _ = self.output.write_all(&[output::GO_ON]);
        }
    }

    /// Has the rest be written, once every process of the sandbox has ended. `was_killed`: what the command did to the
    /// screen is undone then.
    pub(crate) fn finish(&mut self, was_killed: bool) {
        if !std::mem::replace(&mut self.is_finished, true) {
            if was_killed {
                let _ = self.output.write_all(&[output::RESTORE]);
            }
            let _ = self.output.shutdown(Shutdown::Write);
            let _ = self.input.shutdown(Shutdown::Write);
        }
    }

    /// Readable when [`is_written`](Self::is_written) is to be asked again.
    pub(crate) fn progress(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Whether everything is written, after [`finish`](Self::finish).
    pub(crate) fn is_written(&mut self) -> bool {
        let _ = self.output.set_nonblocking(true);
        let mut answers = [0; 16];
        loop {
            match self.output.read(&mut answers) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if !self.is_finished {
            // Not the usual end.
            self.finish(true);
            let patience = PollTimeout::try_from(DELIVERY).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(self.progress(), PollFlags::POLLIN)], patience);
        }
        self.restore_modes();
    }
}
