//! What is typed at the user's terminal, on its way to the command.
//!
//! A thread of its own, for the same reason as the output's. It reads only while it is told to: what is typed while the
//! command does not have the terminal is for others.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, Termios, tcgetattr};
use nix::unistd::{read, write};

use super::user::User;

/// What the thread is told: to read, or not to.
pub(super) const READ: u8 = 1;
pub(super) const PAUSE: u8 = 0;

/// How long it waits until it looks again, where netbox is not in the foreground or the terminal not in raw mode: both change
/// without a word when this process is stopped and continued by others, and most often a word follows.
const ANOTHER_LOOK: u16 = 1000;

/// The thread's things. It ends when the other end of `control` is closed, or when either terminal is gone: where that is
/// the user's, so does the output's thread, and then the pseudo-terminal hangs up as well.
pub(super) struct Input {
    master: Arc<OwnedFd>,
    user: Arc<User>,
    control: UnixStream,
    /// The other end of the control of the output's thread.
    output: UnixStream,
    interrupt: Interrupt,
    is_reading: bool,
    /// Whether it is to wait before the next look.
    is_behind: bool,
    /// Whether it waits for raw mode, which netbox is about to set when it was continued: read before, the end of the input
    /// would be told from a line no more. Once, since others may have set other modes for good.
    is_patient: bool,
    /// What was read and is not written yet.
    pending: Vec<u8>,
}

impl Input {
    pub(super) fn new(
        master: Arc<OwnedFd>,
        user: Arc<User>,
        control: UnixStream,
        output: UnixStream,
        interrupt: Interrupt,
    ) -> Self {
        Self {
            master,
            user,
            control,
            output,
            interrupt,
            is_reading: false,
            is_behind: false,
            is_patient: true,
            pending: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        // With SIGTTIN blocked, a read from the background fails, where else the whole process would be stopped. The
        // signals that netbox handles are for its other threads.
        let _ = SigSet::all().thread_block();
        let Some(reading) = self.user.reading().and_then(|fd| fd.try_clone_to_owned().ok()) else { return };
        loop {
            match self.turn(reading.as_fd()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => break,
            }
        }
        let _ = self.output.shutdown(Shutdown::Write);
    }

    /// Waits for something to do, and does it. `false`: that was all. An error: the user's terminal is gone.
    fn turn(&mut self, terminal: BorrowedFd) -> nix::Result<bool> {
        let wanted = self.is_reading && !self.is_behind && self.pending.is_empty();
        let when = |condition: bool, flag: PollFlags| if condition { flag } else { PollFlags::empty() };
        let mut polled = [
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
            // Asked for nothing, they tell of a hang-up.
            PollFd::new(terminal, when(wanted, PollFlags::POLLIN)),
            PollFd::new(self.master.as_fd(), when(!self.pending.is_empty(), PollFlags::POLLOUT)),
        ];
        let patience = if self.is_reading && self.is_behind { ANOTHER_LOOK.into() } else { PollTimeout::NONE };
        match poll(&mut polled, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [control, terminal_is, master] = polled.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        self.is_behind = false;
        if !control.is_empty() {
            return Ok(self.take_order());
        }
        if wanted && terminal_is.contains(PollFlags::POLLIN) {
            self.take_in(terminal)?;
        }
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        if terminal_is.intersects(gone) {
            return Err(Errno::EIO);
        }
        let is_heard = !master.intersects(gone);
        Ok(is_heard && (!master.contains(PollFlags::POLLOUT) || self.pass_on()))
    }

    /// `false`: there will be no further one.
    fn take_order(&mut self) -> bool {
        let mut order = [0];
        match self.control.read(&mut order) {
            Ok(1) => self.is_reading = order[0] == READ,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
        true
    }

    fn take_in(&mut self, terminal: BorrowedFd) -> nix::Result<()> {
        let is_raw = !self.user.modes().is_ok_and(|modes| modes.local_flags.contains(LocalFlags::ICANON));
        let was_patient = std::mem::replace(&mut self.is_patient, is_raw);
        if !is_raw && was_patient {
            self.is_behind = true;
            return Ok(());
        }
        let mut chunk = [0; 4096];
        match read(terminal, &mut chunk) {
            // The key for the end of the input, pressed while the terminal was not raw. A hang-up looks the same, and is told by
            // poll as well.
            Ok(0) => self
                .pending
                .extend(tcgetattr(&self.master).ok().and_then(|modes| key(&modes, SpecialCharacterIndices::VEOF))),
            Ok(length) => {
                self.interrupt.see(&chunk[..length]);
                self.pending.extend_from_slice(&chunk[..length]);
            }
            Err(Errno::EIO) if !self.user.is_foreground() => self.is_behind = true,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Where the command does not read, its terminal takes no more at some time, and then nothing more is read here.
    /// `false`: every process of the sandbox is gone.
    fn pass_on(&mut self) -> bool {
        match write(&self.master, &self.pending) {
            Ok(length) => drop(self.pending.drain(..length)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => return false,
        }
        true
    }
}

/// A key with a meaning of its own, where the terminal has one for that.
fn key(modes: &Termios, which: SpecialCharacterIndices) -> Option<u8> {
    // 0 means that it has none (`_POSIX_VDISABLE`).
    Some(modes.control_chars[which as usize]).filter(|key| *key != 0)
}

/// Whether the last that was typed for the command was the key that interrupts. A clone is another handle on the same.
///
/// The user's key, whatever the command has made of its own terminal: that is what would have interrupted others out here,
/// had the terminal been theirs. And the last, since whoever goes on typing has not given up.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    key: Option<u8>,
    is_last: Arc<AtomicBool>,
}

impl Interrupt {
    /// With the user's own modes.
    pub(super) fn new(modes: &Termios) -> Self {
        let key = key(modes, SpecialCharacterIndices::VINTR).filter(|_| modes.local_flags.contains(LocalFlags::ISIG));
        Self { key, is_last: Arc::default() }
    }

    fn see(&self, typed: &[u8]) {
        let is_last = typed.last().is_some_and(|last| Some(*last) == self.key);
        self.is_last.store(is_last, Ordering::Relaxed);
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }
}
