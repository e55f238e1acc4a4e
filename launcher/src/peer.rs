//! The other end of a unix socket, and namespaces, as the kernel tells of them. Nothing here is what a program says.

use std::fs::{self, Metadata};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use crate::sys;

/// The process at the other end of a connected unix socket: who connected, or for a client who began to listen.
#[derive(Debug)]
pub struct Peer {
    /// Its effective user id at that moment. One that this user namespace does not know is the overflow user's.
    pub uid: u32,
    /// Its group ids at that moment, the effective one first.
    pub groups: Vec<u32>,
    /// Its process id. 0: it is in a pid namespace that is not seen from here.
    pub pid: i32,
    handle: Option<OwnedFd>,
}

/// A namespace, by the device and the number of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace(u64, u64);

impl Peer {
    /// Who is at the other end.
    ///
    /// # Errors
    /// It is no unix socket, or is not connected.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd();
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
        let mut groups = vec![credentials.gid()];
        groups.extend(sys::socket::peer_groups(socket)?.into_iter().filter(|group| *group != credentials.gid()));
        let pid = credentials.pid();
        // Linux 6.5 has a handle of the very process. Before, its number may have come to mean another one.
        let handle = sys::socket::peer_handle(socket).or_else(|_| sys::socket::open_process(pid, 0)).ok();
        Ok(Self { uid: credentials.uid(), groups, pid, handle })
    }

    /// The user namespace that it is in. `None`: it is gone, or this process may not look.
    #[must_use]
    pub fn user_namespace(&self) -> Option<Namespace> {
        self.namespace("user")
    }

    /// The network namespace that it is in; likewise.
    #[must_use]
    pub fn network_namespace(&self) -> Option<Namespace> {
        self.namespace("net")
    }

    fn namespace(&self, kind: &str) -> Option<Namespace> {
        let namespace = Namespace::of(&fs::metadata(format!("/proc/{}/ns/{kind}", self.pid)).ok()?);
        // What is still there has been there all the time, and the number was its own.
        self.is_there().then_some(namespace)
    }

    fn is_there(&self) -> bool {
        let readable =
            |handle: &OwnedFd| poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        self.handle.as_ref().is_some_and(|handle| readable(handle) == Ok(0))
    }
}

impl Namespace {
    fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }

    /// This process's user namespace.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn own_user() -> io::Result<Self> {
        Ok(Self::of(&fs::metadata("/proc/self/ns/user")?))
    }

    /// This process's network namespace.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn own_network() -> io::Result<Self> {
        Ok(Self::of(&fs::metadata("/proc/self/ns/net")?))
    }

    /// The namespace that a descriptor is a handle of; of any other file, something that no namespace is equal to.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of_handle(handle: &OwnedFd) -> io::Result<Self> {
        Ok(Self::of(&fs::File::from(handle.try_clone()?).metadata()?))
    }
}

/// The number of the network namespace that a socket was made in, and belongs to for life (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// It is no socket, or the kernel does not tell.
pub fn network_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(sys::socket::network_namespace(socket)?)
}

/// That of this process.
///
/// # Errors
/// No socket can be made, or the kernel does not tell.
pub fn own_network() -> io::Result<u64> {
    network_of(
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?.as_fd(),
    )
}

/// A handle of this process's user namespace, to be shown to whoever may not look it up.
///
/// # Errors
/// There is no `/proc`.
pub fn own_user_namespace() -> io::Result<OwnedFd> {
    Ok(fs::File::open("/proc/self/ns/user")?.into())
}

/// Whether that user namespace knows this user at all: the others are all the same in it.
#[must_use]
pub fn is_known(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok().and_then(|text| text.trim().parse().ok());
    if overflow.unwrap_or(65534) != uid {
        return true;
    }
    // Somebody may really have that number.
    let maps = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    maps.lines().any(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (words.next().unwrap_or(0), words.next(), words.next().unwrap_or(0));
        (first..first.saturating_add(count)).contains(&uid.into())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn the_other_end_is_this_process_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for socket in [client.as_fd(), accepted.as_fd()] {
            let peer = Peer::of(socket).unwrap();
            assert_eq!((peer.uid, peer.pid), (nix::unistd::geteuid().as_raw(), std::process::id() as i32));
            assert_eq!(peer.groups[0], nix::unistd::getegid().as_raw());
            let own = nix::unistd::getgroups().unwrap();
            assert!(own.iter().all(|group| peer.groups.contains(&group.as_raw())), "{peer:?}");
            assert_eq!(peer.user_namespace(), Some(Namespace::own_user().unwrap()));
            assert_eq!(peer.network_namespace(), Some(Namespace::own_network().unwrap()));
        }
        assert_eq!(Namespace::of_handle(&own_user_namespace().unwrap()).unwrap(), Namespace::own_user().unwrap());
        let file = fs::File::open("/dev/null").unwrap().into();
        assert_ne!(Namespace::of_handle(&file).unwrap(), Namespace::own_user().unwrap());
    }

    #[test]
    fn a_socket_is_of_the_network_that_it_was_made_in() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(network_of(socket.as_fd()).unwrap(), own_network().unwrap());
        let file = fs::File::open("/dev/null").unwrap();
        assert!(network_of(file.as_fd()).is_err());
    }
}
