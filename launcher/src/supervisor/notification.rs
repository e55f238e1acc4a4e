//! One trapped call, which is answered exactly once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::seccomp::{self, Answer, Request};

/// Where the trapped calls arrive.
pub(super) struct Listener(OwnedFd);

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Waits for the next call. `Err`: there will be none, or, with EINTR, somebody wants to be looked at.
    pub(super) fn next(&self) -> nix::Result<Notification<'_>> {
        loop {
            match seccomp::receive(self.0.as_fd()) {
                Ok(request) => return Ok(Notification { listener: self, request, answered: false }),
                // One caller was killed before its call was read; or everyone is gone, which reads as a hang-up.
                Err(Errno::ENOENT) if !self.is_abandoned() => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether the caller still waits for the answer.
    pub(super) fn is_waiting(&self, id: u64) -> bool {
        seccomp::is_waiting(self.0.as_fd(), id)
    }

    fn is_abandoned(&self) -> bool {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let hung_up = |polled: &PollFd| polled.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        poll(&mut polled, PollTimeout::ZERO).is_err() || hung_up(&polled[0])
    }
}

/// A trapped call. Dropped without an answer, it fails with EACCES: nobody waits for ever, nothing passes by a fault.
pub(super) struct Notification<'a> {
    listener: &'a Listener,
    request: Request,
    answered: bool,
}

impl Notification<'_> {
    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Whether the caller still waits. Then all that was read of it until now was its own.
    pub(super) fn is_waiting(&self) -> bool {
        self.listener.is_waiting(self.request.id)
    }

    /// Gives the caller a copy of this descriptor. The value is its number there.
    pub(super) fn add_descriptor(&self, descriptor: BorrowedFd, close_on_exec: bool) -> nix::Result<RawFd> {
        seccomp::add_descriptor(self.listener.0.as_fd(), self.request.id, descriptor, close_on_exec)
    }

    pub(super) fn answer(self, result: nix::Result<u32>) {
        self.send(match result {
            Ok(value) => Answer::Done(value),
            Err(errno) => Answer::Fail(errno),
        });
    }

    /// Lets the kernel perform the call.
    pub(super) fn go_on(self) {
        self.send(Answer::Continue);
    }

    fn send(mut self, answer: Answer) {
        self.answered = true;
        // ENOENT: the caller was killed meanwhile.
        let _ = seccomp::answer(self.listener.0.as_fd(), self.request.id, answer);
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let _ = seccomp::answer(self.listener.0.as_fd(), self.request.id, Answer::Fail(Errno::EACCES));
        }
    }
}
