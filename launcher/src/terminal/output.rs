//! What the command writes, on its way to the user's terminal.
//!
//! A thread of its own, since a write to a terminal may block for as long as the person likes, and the terminal's open file
//! is shared with others, so that it cannot be made not to. It takes errands over a socket pair, and closes its end when it
//! is done.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};

use super::screen::Screen;
use super::user::{User, returns_carriages};

/// An errand: at the end, make the screen usual again.
pub(super) const RESTORE: u8 = 0;
/// An errand: go on, after a [`CATCH_UP`].
pub(super) const GO_ON: u8 = 1;
/// The first of the errands to write what there is to write now, send that same byte back, and wait: the terminal is about to
/// get other modes, and what is written depends on them.
pub(super) const CATCH_UP: u8 = 2;

/// As much as a terminal gives at once (N_TTY_BUF_SIZE).
const CHUNK: usize = 4096;
const BUFFER: usize = 16 * CHUNK;
/// How much an errand waits for at most: some program may go on writing for ever.
const AT_ONCE: usize = 16 * BUFFER;

/// The thread's things. It ends when the other end of `control` is closed and everything is written, or when the user's
/// terminal is gone.
pub(super) struct Output {
    master: Arc<OwnedFd>,
    user: Arc<User>,
    control: UnixStream,
    /// The other end of the control of the input's thread, which ends with this one: then the pseudo-terminal hangs up.
    input: UnixStream,
    screen: Screen,
    /// What was read and is not written yet.
    buffer: Vec<u8>,
    /// Whether nobody is left who could write more.
    is_complete: bool,
    /// Whether it waits to go on.
    is_held: bool,
    restore: bool,
}

/// Why reading stopped.
#[derive(PartialEq, Eq)]
enum Stop {
    Full,
    Empty,
}

impl Output {
    pub(super) fn new(master: Arc<OwnedFd>, user: Arc<User>, control: UnixStream, input: UnixStream) -> Self {
        let (screen, buffer) = (Screen::default(), Vec::with_capacity(BUFFER));
        Self { master, user, control, input, screen, buffer, is_complete: false, is_held: false, restore: false }
    }

    pub(super) fn run(mut self) {
        // An error means that the terminal is gone. The command is told by the end of the pseudo-terminal.
        while let Ok(true) = self.turn() {}
        let _ = self.input.shutdown(Shutdown::Write);
    }

    /// Waits for something to do, and does it. `false`: that was all.
    fn turn(&mut self) -> nix::Result<bool> {
        match self.wait()? {
            false => self.copy(BUFFER)?,
            true => {
                let mut errand = [0];
                match self.control.read(&mut errand) {
                    Ok(1) if errand[0] == RESTORE => self.restore = true,
                    Ok(1) if errand[0] == GO_ON => self.is_held = false,
                    Ok(1) => {
                        self.is_held = true;
                        self.copy(AT_ONCE)?;
                        // Nobody waits for it if this fails, and the next read tells so.
                        let _ = self.control.write_all(&errand);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Closed: the sandbox has ended, so that there is an end to what there is.
                    _ => {
                        self.copy(usize::MAX)?;
                        if self.restore && self.user.is_foreground() {
                            self.write(&self.screen.restoration())?;
                        }
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Waits until there is something to do: an errand, or else something to copy.
    fn wait(&self) -> nix::Result<bool> {
        let mut polled = vec![PollFd::new(self.control.as_fd(), PollFlags::POLLIN)];
        // Asked for nothing, it tells of a hang-up.
        let user = self.user.writing().map(|fd| PollFd::new(fd, PollFlags::empty()));
        let user_at = user.map(|fd| polled.push(fd)).map(|()| polled.len() - 1);
        if !self.is_complete && !self.is_held {
            polled.push(PollFd::new(self.master.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |at: usize| polled.get(at).and_then(PollFd::any).unwrap_or_default();
        if user_at.is_some_and(is_ready) { Err(Errno::EIO) } else { Ok(is_ready(0)) }
    }

    /// Copies until there is nothing more, or until it was as much as `limit`.
    fn copy(&mut self, limit: usize) -> nix::Result<()> {
        let mut copied = 0;
        loop {
            let held = self.buffer.len();
            let stop = self.fill()?;
            copied += self.buffer.len() - held;
            self.screen.see(&self.buffer[held..]);
            let last = (stop == Stop::Full).then(|| self.buffer.pop_if(|byte| *byte == b'\r')).flatten();
            if self.user.returns_carriages() && returns_carriages(self.master.as_fd()) {
                // The user's terminal does it again.
                leave_carriages(&mut self.buffer);
            }
            self.write(&self.buffer)?;
            self.buffer.clear();
            // What follows it may be a newline.
            self.buffer.extend(last);
            if stop == Stop::Empty || (copied >= limit && self.buffer.is_empty()) {
                return Ok(());
            }
        }
    }

    /// Reads until there is nothing more, or no more room.
    fn fill(&mut self) -> nix::Result<Stop> {
        let mut chunk = [0; CHUNK];
        while self.buffer.len() + CHUNK <= BUFFER {
            match read(&self.master, &mut chunk) {
                // Every process that could write has ended.
                Ok(0) | Err(Errno::EIO) => {
                    self.is_complete = true;
                    return Ok(Stop::Empty);
                }
                Ok(length) => self.buffer.extend_from_slice(&chunk[..length]),
                Err(Errno::EAGAIN) => return Ok(Stop::Empty),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Stop::Full)
    }

    /// Writes all of it, however long that takes. Nowhere, where there is no terminal that can be written to.
    fn write(&self, mut bytes: &[u8]) -> nix::Result<()> {
        let Some(terminal) = self.user.writing() else { return Ok(()) };
        while !bytes.is_empty() {
            match write(terminal, bytes) {
                Ok(length) => bytes = &bytes[length..],
                // Somebody who shares its open file has made it non-blocking.
                Err(Errno::EAGAIN) => wait_for_room(terminal)?,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

fn wait_for_room(terminal: BorrowedFd) -> nix::Result<()> {
    match poll(&mut [PollFd::new(terminal, PollFlags::POLLOUT)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Makes each carriage return and newline a newline alone.
fn leave_carriages(bytes: &mut Vec<u8>) {
    let is_kept = |at: usize| bytes[at] != b'\r' || bytes.get(at + 1) != Some(&b'\n');
    *bytes = (0..bytes.len()).filter(|at| is_kept(*at)).map(|at| bytes[at]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newline_loses_one_carriage_return() {
        for (before, after) in [
            ("a\r\nb\r\n", "a\nb\n"),
            ("\r\r\n", "\r\n"),
            ("50%\r100%\r\n", "50%\r100%\n"),
            ("a\nb\r", "a\nb\r"),
            ("", ""),
        ] {
            let mut bytes = before.as_bytes().to_vec();
            leave_carriages(&mut bytes);
            assert_eq!(bytes, after.as_bytes(), "{before:?}");
        }
    }
}
