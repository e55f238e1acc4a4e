//! Further sockets of the sandbox's network, made while the command runs: netbox connects them from outside, to reach what
//! listens inside (`--publish`).
//!
//! A socket belongs for life to the network namespace that it was made in, so pid 1 makes it and sends it out, on a
//! channel of its own. No process inside has any part in it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::message::{Channel, Order, Report};

/// Has sockets made. A clone asks the same pid 1.
#[derive(Clone, Debug)]
pub struct SocketMaker(Arc<Mutex<Channel>>);

impl SocketMaker {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(Arc::new(Mutex::new(channel)))
    }

    /// A TCP socket of the sandbox's network for IPv4 or IPv6: not connected, nonblocking, close-on-exec.
    ///
    /// Waits for pid 1, which answers at once when the command has been started, and not before.
    ///
    /// # Errors
    /// Those of socket(2) in pid 1; `EPIPE` when pid 1 is gone.
    pub fn tcp(&self, ipv6: bool) -> io::Result<OwnedFd> {
        let channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.order(Order::Socket { ipv6 })?;
        match channel.next_report()? {
            // The message came without its descriptor: this process has no room for it.
            Some((Report::Socket(0), descriptors)) => {
                descriptors.into_iter().next().ok_or_else(|| Errno::EMFILE.into())
            }
            Some((Report::Socket(errno), _)) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(Errno::EPIPE.into()),
        }
    }
}

/// Pid 1's part: takes one order, makes the socket and sends it. `false`: nobody is there to ask any more.
pub(crate) fn serve(channel: &Channel) -> bool {
    let Ok(Some(Order::Socket { ipv6 })) = channel.next_order() else { return false };
    let family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let sent = match socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None) {
        Ok(socket) => channel.report(&Report::Socket(0), &[socket.as_raw_fd()]),
        Err(errno) => channel.report(&Report::Socket(errno as i32), &[]),
    };
    sent.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn a_socket_is_made_by_the_other_side_and_can_be_connected_here() {
        let (ours, theirs) = Channel::pair().unwrap();
        let other = thread::spawn(move || while serve(&theirs) {});
        let maker = SocketMaker::new(ours);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = maker.clone().tcp(false).unwrap();
        let address = nix::sys::socket::SockaddrStorage::from(listener.local_addr().unwrap());
        let begun = nix::sys::socket::connect(socket.as_raw_fd(), &address);
        assert!(matches!(begun, Ok(()) | Err(Errno::EINPROGRESS)), "{begun:?}");
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(TcpStream::from(socket).local_addr().unwrap(), peer);
        assert!(maker.tcp(true).is_ok());
        drop(maker);
        other.join().unwrap();
    }

    #[test]
    fn nobody_there_is_an_error() {
        let (ours, theirs) = Channel::pair().unwrap();
        drop(theirs);
        assert!(SocketMaker::new(ours).tcp(false).is_err());
    }
}
