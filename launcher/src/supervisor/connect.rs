//! `connect(2)`, performed for the sandbox on copies of what it was given.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockaddrStorage, getsockname};
use nix::sys::stat::fstat;

use super::inodes::is_socket;
use super::{Network, Notification, Supervisor, Target, judge, proof, resolve};
use crate::inode::Inode;
use crate::sys;
use crate::sys::credentials::User;

/// The size of `struct sockaddr_storage`: the kernel takes no longer address.
const LONGEST: usize = 128;
/// Where the path begins in `struct sockaddr_un`, and how long it may be.
const PATH: usize = 2;
const LONGEST_PATH: usize = 108;

impl Supervisor {
    /// Performs the call. `crowded`: no thread is left to answer another one.
    pub(super) fn connect(&self, notification: &Notification, crowded: bool) -> nix::Result<()> {
        let [descriptor, address, length, ..] = notification.request().arguments;
        let target = Target::of(notification)?;
        let socket = target.descriptor(descriptor)?;
        let length = usize::try_from(length as u32 as i32).ok().filter(|length| *length <= LONGEST);
        let mut buffer = [0; LONGEST];
        let bytes = buffer.get_mut(..length.ok_or(Errno::EINVAL)?).ok_or(Errno::EINVAL)?;
        if !bytes.is_empty() {
            target.read(address, bytes)?;
        }
        let domain = sys::socket::option(socket.as_fd(), libc::SO_DOMAIN)?;
        if bytes == proof::QUESTION {
            return Err(proof::ANSWER);
        }
        if bytes == proof::WALL {
            return self.walls.raise(target.thread(), || notification.is_waiting()).and(Err(proof::ANSWER));
        }
        let network = self.networks.of(socket.as_fd());
        if network == Network::Outside {
            return Err(Errno::EACCES);
        }
        match domain {
            // In the queue of a unix listener it may wait for ever, and then nobody answers any other call.
            libc::AF_UNIX if crowded => Err(Errno::EAGAIN),
            libc::AF_UNIX => {
                let user = target.other_user()?;
                match path(bytes) {
                    Some(path) => self.connect_to_path(notification, &target, user.as_ref(), &socket, path),
                    // An abstract name, which the network namespace cuts, or no valid address.
                    None => act_as(user.as_ref(), || self.perform(notification, &socket, bytes)),
                }
            }
            libc::AF_INET | libc::AF_INET6 => {
                let mut made = None;
                if network == Network::Sandbox
                    && judge::is_for_nobody(socket.as_fd(), domain, bytes, &self.caught_ports)
                {
                    return Err(Errno::ECONNREFUSED);
                }
                if network == Network::Sandbox
                    && let Some(destination) = judge::followed(socket.as_fd(), domain, bytes, &self.doors)
                {
                    made = judge::ask(&*self.judge, destination, &|| target.identify())?;
                    if judge::is_link_local(destination) {
                        // Its zone binds the socket to the stub, where the SYN is lost: it would fail by a timeout.
                        return Err(Errno::ENETUNREACH);
                    }
                }
                let result = self.perform(notification, &socket, bytes);
                if let (Some(made), Ok(()) | Err(Errno::EINPROGRESS)) = (made, result)
                    && let Some(source) = own_address(&socket)
                {
                    made(source, target.into_caller());
                }
                result
            }
            // The kernel allows this to netbox where it would not to the caller: a group, or another process.
            libc::AF_NETLINK if bytes.get(4..12).is_some_and(|peer| peer.iter().any(|byte| *byte != 0)) => {
                Err(Errno::EPERM)
            }
            libc::AF_NETLINK => self.perform(notification, &socket, bytes),
            _ => Err(Errno::EACCES),
        }
    }

    fn connect_to_path(
        &self,
        notification: &Notification,
        target: &Target,
        user: Option<&User>,
        socket: &OwnedFd,
        path: &[u8],
    ) -> nix::Result<()> {
        let file = resolve::open(target.thread(), path, user)?;
        let stat = fstat(&file)?;
        let inode = Inode::of(&stat);
        // Nobody can listen on any other kind of file; the kernel knows with what error that fails.
        if is_socket(&stat) {
            // Programs take the one for a wall, and the other for a file that somebody left behind.
            match self.inodes.may_reach(inode, &self.walls.around(target.thread())?) {
                Some(true) => {}
                Some(false) => return Err(Errno::EACCES),
                None if self.host.listens_on(inode) => return Err(Errno::EACCES),
                None => return Err(Errno::ECONNREFUSED),
            }
        }
        // A refusal says nothing about the place in the set: a client may come between a server's trapped `listen` and the
        // kernel's.
        act_as(user, || self.perform(notification, socket, &address_of(file.as_fd())))
    }

    /// The call itself. It may wait, as the caller would.
    fn perform(&self, notification: &Notification, socket: &OwnedFd, address: &[u8]) -> nix::Result<()> {
        loop {
            // Only now is it certain that the thread was the caller's while its things were taken.
            if !notification.is_waiting() {
                return Err(Errno::EINTR);
            }
            match sys::socket::connect(socket.as_fd(), address) {
                // Not by a signal of the caller's: somebody saw that it is gone, or the sandbox is.
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }
}

/// Where a connection comes from, be it still in the making.
fn own_address(socket: &OwnedFd) -> Option<SocketAddr> {
    let address: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
    let v4 = address.as_sockaddr_in().map(|address| SocketAddr::from(SocketAddrV4::from(*address)));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::from(SocketAddrV6::from(*address))))
}

/// Does something as another user, if there is one.
pub(super) fn act_as<T>(user: Option<&User>, act: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    match user {
        Some(user) => sys::credentials::act_as(user, act),
        None => act(),
    }
}

/// The path in the bytes of a `sockaddr_un`, as the kernel reads it; `None` where there is none.
fn path(bytes: &[u8]) -> Option<&[u8]> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let path = bytes.get(PATH..)?;
    if i32::from(family) != libc::AF_UNIX || path.len() > LONGEST_PATH || *path.first()? == 0 {
        return None;
    }
    path.split(|byte| *byte == 0).next()
}

/// An address that means the file of a handle of this process.
fn address_of(file: BorrowedFd) -> Vec<u8> {
    let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    bytes.extend(format!("/proc/self/fd/{}\0", file.as_raw_fd()).as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &[u8]) -> Vec<u8> {
        [&(libc::AF_UNIX as u16).to_ne_bytes(), path].concat()
    }

    #[test]
    fn a_path_ends_at_its_zero_byte_or_at_the_length() {
        assert_eq!(path(&unix(b"/run/a\0junk")), Some(&b"/run/a"[..]));
        assert_eq!(path(&unix(b"/run/a")), Some(&b"/run/a"[..]));
        let longest = [b'a'; LONGEST_PATH];
        assert_eq!(path(&unix(&longest)), Some(&longest[..]));
        assert_eq!(path(&unix(&[b'a'; LONGEST_PATH + 1])), None, "the kernel says EINVAL");
    }

    #[test]
    fn abstract_unnamed_and_foreign_addresses_have_no_path() {
        assert_eq!(path(&unix(b"\0abstract")), None);
        assert_eq!(path(&unix(b"")), None);
        assert_eq!(path(b""), None);
        assert_eq!(path(b"\x01"), None);
        assert_eq!(path(&[libc::AF_INET as u8, 0, b'/', b'a']), None);
    }
}
