//! A program that runs: what a test does with it in the meantime, and its end.

use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::LIMIT;
use super::captured::Captured;
use crate::outcome::{Outcome, read_events};

/// A program that was started. One that is dropped is killed.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    /// Readable when the program ended.
    exit: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<Captured>,
    stderr: Option<Captured>,
    events: Option<PathBuf>,
}

impl Running {
    /// One that has just been started, by this line.
    pub(super) fn new(line: String, mut child: Child, events: Option<PathBuf>) -> Self {
        Self {
            line,
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(Captured::start),
            stderr: child.stderr.take().map(Captured::start),
            exit: open_pidfd(&child),
            child,
            events,
        }
    }

    /// Its process: netbox, when it is around the program.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The events that are written by now.
    pub fn events_so_far(&self) -> Vec<Value> {
        self.events.as_deref().map_or_else(Vec::new, read_events)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it has not been waited for");
    }

    /// Writes to its standard input.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes).expect("the program reads its input");
    }

    /// Ends its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until it has written `text`.
    ///
    /// # Panics
    ///
    /// When it ends without, or does not for a long time.
    pub fn wait_for_stdout(&self, text: &str) {
        let stdout = self.stdout.as_ref().expect("stdout is captured");
        if !stdout.wait_for(|bytes| find(bytes, text.as_bytes())) {
            let stderr = self.stderr.as_ref().expect("stderr is captured");
            panic!("`{}` never wrote `{text}` but {stdout}, and on stderr {stderr}", self.line);
        }
    }

    /// Waits until it has written a whole line with `text` in it on standard error, and gives what comes behind that.
    ///
    /// # Panics
    ///
    /// When it ends without, or does not for a long time.
    pub fn wait_for_stderr(&self, text: &str) -> String {
        let stderr = self.stderr.as_ref().expect("stderr is captured");
        let found = |bytes: &[u8]| {
            let said = String::from_utf8_lossy(bytes).into_owned();
            let (_, behind) = said.split_once(text)?;
            Some(behind.split_once('\n')?.0.to_owned())
        };
        if !stderr.wait_for(|bytes| found(bytes).is_some()) {
            panic!("`{}` never wrote `{text}` but {stderr}", self.line);
        }
        found(&stderr.bytes()).expect("it was there")
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        readable(&self.exit, Duration::ZERO)
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it does not end in time, or when it has ended but somebody it started still has its output open.
    pub fn finish(mut self) -> Outcome {
        self.stdin = None;
        let ended = readable(&self.exit, LIMIT);
        if !ended {
            self.child.kill().expect("a child can be killed");
        }
        let status = self.child.wait().expect("a child can be waited for");
        let (stdout, out_ended) = self.stdout.take().map_or((Vec::new(), true), Captured::finish);
        let (stderr, err_ended) = self.stderr.take().map_or((Vec::new(), true), Captured::finish);
        let outcome = Outcome {
            line: self.line.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            events: self.events.as_deref().map_or_else(Vec::new, read_events),
        };
        if self.events.is_some() && !self.line.contains(" --dry-run ") {
            outcome.assert_begun();
        }
        assert!(ended, "it did not end in {LIMIT:?}: {outcome}");
        assert!(out_ended && err_ended, "it ended, and something that it started still has its output open: {outcome}");
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether `text` is in `bytes`.
fn find(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn open_pidfd(child: &Child) -> OwnedFd {
    // SAFETY: pidfd_open takes no pointers, and the child has not been waited for.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    assert!(descriptor >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}

fn readable(descriptor: &OwnedFd, limit: Duration) -> bool {
    let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).expect("a limit below a day");
    poll(&mut polled, limit).expect("a descriptor can be polled") > 0
}
