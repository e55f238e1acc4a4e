//! Carries bytes between a socket of the host's, which stays outside, and what the command has in its place.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};

/// How long the end of a run waits for a peer to take what the command wrote.
const DELIVERY: Duration = Duration::from_secs(5);

/// One direction.
pub(crate) struct Relay {
    from: File,
    to: File,
    inward: bool,
    half_close: bool,
}

impl Relay {
    /// `inward`: to the command.
    pub(crate) fn new(from: OwnedFd, to: OwnedFd, inward: bool) -> Self {
        Self { from: File::from(from), to: File::from(to), inward, half_close: false }
    }

    /// The same, and the end of what is read is passed on as the end of that direction: `to` is a socket, which somebody
    /// else holds too.
    pub(crate) fn with_half_close(self) -> Self {
        Self { half_close: true, ..self }
    }

    fn run(mut self) {
        // An error ends it, as it would end the command's own use of the socket: what was copied is copied.
        let _ = self.copy();
        if self.half_close {
            let _ = shutdown(self.to.as_raw_fd(), Shutdown::Write);
        }
    }

    /// By reading and writing, not by `io::copy`: that splices, and splice(2) from a silent socket holds the pipe's lock.
    /// The command at the other end would then wait for it where no signal reaches it.
    fn copy(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = patiently(PollFlags::POLLIN, &mut self.from, |from| from.read(&mut buffer))?;
            let mut rest = &buffer[..length];
            if rest.is_empty() {
                return Ok(());
            }
            while !rest.is_empty() {
                let written = patiently(PollFlags::POLLOUT, &mut self.to, |to| to.write(rest))?;
                rest = &rest[written..];
            }
        }
    }
}

/// Calls it until it neither was interrupted nor would have had to wait. Whoever made the socket may have made it
/// nonblocking, and that is a property of the socket and not of this descriptor.
fn patiently(
    wanted: PollFlags,
    file: &mut File,
    mut call: impl FnMut(&mut File) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match call(file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(file.as_fd(), wanted)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn wait(fd: BorrowedFd, wanted: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(fd, wanted)], PollTimeout::NONE) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The threads that run relays. Nothing is ever sent here: each thread that carries outward drops its end when it is done.
pub(crate) struct Relays(Receiver<()>);

impl Relays {
    pub(crate) fn start(relays: Vec<Relay>) -> Self {
        let (done, all_done) = mpsc::channel();
        for relay in relays {
            // One that reads for the command waits on its peer, and nobody is left at the end to read what it brings.
            let done = (!relay.inward).then(|| done.clone());
            thread::spawn(move || {
                relay.run();
                drop(done);
            });
        }
        Self(all_done)
    }

    /// Waits until all that the command wrote is delivered, though not for ever on a peer that does not read. The
    /// command's ends are closed by now.
    pub(crate) fn drain(self) {
        let _ = self.0.recv_timeout(DELIVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_nonblocking_socket_is_waited_for_and_its_end_is_passed_on() {
        let ((mut near, from), (to, mut far)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        from.set_nonblocking(true).unwrap();
        to.set_nonblocking(true).unwrap();
        let kept = to.try_clone().unwrap();
        let relays = Relays::start(vec![Relay::new(from.into(), to.into(), false).with_half_close()]);
        // More than the sockets hold, so that the relay has to wait both ways.
        let sent = vec![7; 1 << 20];
        let writer = thread::spawn(move || near.write_all(&sent));
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), 1 << 20);
        writer.join().unwrap().unwrap();
        relays.drain();
        drop(kept);
    }
}
