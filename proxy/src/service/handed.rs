//! The descriptors that a client hands over, and whether they are what they are said to be.
//!
//! A descriptor may be anything that its sender could open. The kernel says what it is: a listening TCP socket, or a bound
//! UDP socket that is not connected; and in which network namespace it was made, which is its own for life. One that was
//! made in the service's own network would have the service accept what others connect to, and one of a network that is
//! carried already would mix two sandboxes.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockaddrLike, SockaddrStorage, getpeername, getsockname};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketType, ipproto};

use super::wire::{Handed, Refused, RefusedFor};
use crate::serve::Listeners;

/// Network namespaces, as the kernel tells them apart.
#[derive(Clone, Copy, Debug)]
pub struct Networks {
    /// The service's own.
    pub own: u64,
    /// The one that a socket was made in.
    pub of: fn(BorrowedFd<'_>) -> io::Result<u64>,
}

/// What was handed over, each in its place.
pub struct HandedOver {
    /// The listeners of one sandbox, at least one.
    pub listeners: Listeners,
    /// The network namespace that all of them were made in.
    pub network: u64,
    /// What should be a handle of the client's user namespace.
    pub user_namespace: Option<OwnedFd>,
}

/// Looks at each.
///
/// # Errors
/// One is something else than it is said to be, or is no socket of a sandbox.
pub fn check(handed: Vec<(Handed, OwnedFd)>, networks: &Networks) -> Result<HandedOver, Refused> {
    // Whoever handed them over goes on holding them.
    let mut listeners = Listeners::default();
    let (mut network, mut user_namespace) = (None, None);
    for (place, (kind, descriptor)) in handed.into_iter().enumerate() {
        let refused = |what: String| Refused::new(RefusedFor::Descriptors, format!("descriptor {place} {what}"));
        if kind == Handed::UserNamespace {
            user_namespace = Some(descriptor);
            continue;
        }
        let cannot = |error: io::Error| refused(format!("cannot be looked at: {error}"));
        let wanted = if kind == Handed::DnsUdp { "a bound UDP socket" } else { "a listening TCP socket" };
        if !is(kind, descriptor.as_fd()).map_err(cannot)? {
            return Err(refused(format!("is not {wanted}")));
        }
        let made_in = (networks.of)(descriptor.as_fd()).map_err(cannot)?;
        if made_in == networks.own {
            return Err(refused("is a socket of the service's own network, not of a sandbox's".to_owned()));
        }
        if *network.get_or_insert(made_in) != made_in {
            return Err(refused("is of another network than those before it".to_owned()));
        }
        match kind {
            Handed::Capture => listeners.capture.push(TcpListener::from(descriptor)),
            Handed::DnsUdp => listeners.dns_udp.push(UdpSocket::from(descriptor)),
            Handed::DnsTcp => listeners.dns_tcp.push(TcpListener::from(descriptor)),
            Handed::Explicit => listeners.explicit.push(TcpListener::from(descriptor)),
            Handed::UserNamespace => {}
        }
    }
    match network {
        Some(network) => Ok(HandedOver { listeners, network, user_namespace }),
        None => Err(Refused::new(RefusedFor::Descriptors, "no listener was handed over")),
    }
}

/// Whether a descriptor is such a socket.
fn is(kind: Handed, descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let domain = match socket_domain(descriptor) {
        Err(rustix::io::Errno::NOTSOCK) => return Ok(false),
        domain => domain?,
    };
    if domain != AddressFamily::INET && domain != AddressFamily::INET6 {
        return Ok(false);
    }
    let (kind_of_socket, protocol) = (socket_type(descriptor)?, socket_protocol(descriptor)?);
    if kind != Handed::DnsUdp {
        let is_tcp = kind_of_socket == SocketType::STREAM && protocol == Some(ipproto::TCP);
        return Ok(is_tcp && socket_acceptconn(descriptor)?);
    }
    if kind_of_socket != SocketType::DGRAM || protocol != Some(ipproto::UDP) {
        return Ok(false);
    }
    let bound: SockaddrStorage = getsockname(descriptor.as_raw_fd())?;
    let port = bound.as_sockaddr_in().map(|address| address.port());
    let port = port.or_else(|| bound.as_sockaddr_in6().map(|address| address.port()));
    let is_connected = match getpeername::<SockaddrStorage>(descriptor.as_raw_fd()) {
        Ok(peer) => peer.family().is_some(),
        Err(Errno::ENOTCONN) => false,
        Err(errno) => return Err(errno.into()),
    };
    Ok(port.is_some_and(|port| port != 0) && !is_connected)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpStream;
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::sys::socket::{SockFlag, SockType, socket};

    use super::*;

    /// Sockets of this process count as made in a sandbox.
    fn elsewhere() -> Networks {
        Networks { own: 1, of: |_| Ok(2) }
    }

    fn refused(kind: Handed, descriptor: impl Into<OwnedFd>) -> String {
        refusal(vec![(kind, descriptor.into())], &elsewhere())
    }

    fn refusal(handed: Vec<(Handed, OwnedFd)>, networks: &Networks) -> String {
        let Err(refused) = check(handed, networks) else { panic!("it is not refused") };
        assert_eq!(refused.reason, RefusedFor::Descriptors);
        refused.text
    }

    #[test]
    fn listeners_find_their_places() {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let namespace = File::open("/proc/self/ns/user").unwrap();
        let handed = vec![
            (Handed::Capture, tcp()),
            (Handed::Explicit, tcp()),
            (Handed::DnsTcp, tcp()),
            (Handed::Capture, tcp()),
            (Handed::DnsUdp, udp.into()),
            (Handed::UserNamespace, namespace.into()),
        ];
        let Ok(checked) = check(handed, &elsewhere()) else { panic!("it is refused") };
        let HandedOver { listeners, network, user_namespace } = checked;
        let counts =
            [listeners.capture.len(), listeners.explicit.len(), listeners.dns_tcp.len(), listeners.dns_udp.len()];
        assert_eq!((counts, network, user_namespace.is_some()), ([2, 1, 1, 1], 2, true));
    }

    #[test]
    fn what_is_no_listening_tcp_socket_is_no_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let unbound =
            socket(nix::sys::socket::AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let others: [OwnedFd; 8] = [
            connected.into(),
            unbound,
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            UnixListener::bind(folder.path().join("socket")).unwrap().into(),
            UnixStream::pair().unwrap().0.into(),
            File::open("/dev/null").unwrap().into(),
            File::open("/proc/self/ns/net").unwrap().into(),
            File::open(folder.path()).unwrap().into(),
        ];
        for other in others {
            for kind in [Handed::Capture, Handed::DnsTcp, Handed::Explicit] {
                assert_eq!(refused(kind, other.try_clone().unwrap()), "descriptor 0 is not a listening TCP socket");
            }
        }
    }

    #[test]
    fn a_datagram_socket_is_bound_and_not_connected() {
        let unbound = socket(nix::sys::socket::AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect("127.0.0.1:9").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for other in [unbound.unwrap(), connected.into(), listener.into()] {
            assert_eq!(refused(Handed::DnsUdp, other), "descriptor 0 is not a bound UDP socket");
        }
    }

    #[test]
    fn sockets_of_the_services_network_or_of_two_networks_are_refused() {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let own = Networks { own: 2, of: |_| Ok(2) };
        let text = refusal(vec![(Handed::Capture, tcp())], &own);
        assert_eq!(text, "descriptor 0 is a socket of the service's own network, not of a sandbox's");
        let each_another = Networks { own: 0, of: |descriptor| Ok(descriptor.as_raw_fd() as u64) };
        let handed = vec![(Handed::Capture, tcp()), (Handed::Capture, tcp())];
        let text = refusal(handed, &each_another);
        assert_eq!(text, "descriptor 1 is of another network than those before it");
        let unknown = Networks { own: 0, of: |_| Err(io::ErrorKind::Unsupported.into()) };
        assert!(refusal(vec![(Handed::Capture, tcp())], &unknown).contains("cannot be looked at"));
    }

    #[test]
    fn nothing_is_no_sandbox() {
        let namespace = File::open("/proc/self/ns/user").unwrap();
        for handed in [vec![], vec![(Handed::UserNamespace, namespace.into())]] {
            assert_eq!(refusal(handed, &elsewhere()), "no listener was handed over");
        }
    }
}
