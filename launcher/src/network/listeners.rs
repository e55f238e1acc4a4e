//! The sandbox's listeners: sockets made inside, on which netbox accepts outside.
//!
//! A socket belongs for life to the network namespace that it was made in. These are handed to netbox over the control
//! socket, so that no process inside relays anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};

use super::interfaces::{ADDRESS4, ADDRESS6};
use super::log;
use crate::error::{At, Failure, Step};
use crate::resolver_files::NAME_SERVER;

/// Where captured TCP connections are redirected to, on 127.0.0.1 and ::1. Above the ports that the kernel hands out
/// by itself (`ip_local_port_range`), so that no program meets it by chance.
pub(crate) const CAPTURE_PORT: u16 = 61001;
/// Where queries to port 53 of any address are redirected to, UDP and TCP.
pub(crate) const DNS_PORT: u16 = 61002;
/// Where a program that knows of proxies finds one, on 127.0.0.1: HTTP and SOCKS5.
pub const EXPLICIT_PORT: u16 = 61003;
/// The ports above: nothing else can be listened on there.
pub const OWN_PORTS: [u16; 3] = [CAPTURE_PORT, DNS_PORT, EXPLICIT_PORT];
/// How many ports of the host's loopback one sandbox may have. Each is a listener for IPv4 and one for IPv6.
pub const MAX_HOST_PORTS: usize = 40;
/// The port of queries for names. On loopback, the resolver of a program without `/etc/resolv.conf` asks there
/// (resolv.conf(5)).
pub(crate) const DNS: u16 = 53;

/// The listeners, in the form that they travel in.
#[derive(Debug)]
pub struct Listeners {
    /// Captured TCP connections. On loopback, where they are redirected to, the original destination is `SO_ORIGINAL_DST`;
    /// on every address, where the kernel has no nf_tables, it is the accepted socket's own address.
    pub capture: Vec<TcpListener>,
    /// DNS over UDP.
    pub dns_udp: Vec<UdpSocket>,
    /// DNS over TCP.
    pub dns_tcp: Vec<TcpListener>,
    /// Proxy requests of programs that are told of a proxy: one listener, on 127.0.0.1 and [`EXPLICIT_PORT`].
    pub explicit: Vec<TcpListener>,
    /// For each of [`Spec::host_ports`](crate::Spec::host_ports), which it has for its own port: on 127.0.0.1, and ::1 where
    /// there is IPv6.
    pub host_ports: Vec<TcpListener>,
    /// Datagrams that were refused: a netlink socket for [`log::Refused`]. Missing where the kernel has no log.
    pub log: Option<OwnedFd>,
}

/// How connections come to the listeners.
pub(crate) enum Capture {
    /// Redirected, from every port.
    Rules,
    /// By their address, on these ports.
    Routes(Vec<u16>),
}

impl Listeners {
    /// Opens them in the calling process's network namespace.
    ///
    /// With `last_resort` also on port 53 of loopback, for programs that find no `/etc/resolv.conf`.
    pub(crate) fn open(capture: &Capture, ipv6: bool, last_resort: bool, host_ports: &[u16]) -> Result<Self, Failure> {
        let mut addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        if ipv6 {
            addresses.push(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
        }
        let at = |port| {
            addresses.iter().map(move |address| {
                let mut address = *address;
                address.set_port(port);
                address
            })
        };
        let (captured, mut dns): (Vec<SocketAddr>, Vec<SocketAddr>) = match capture {
            Capture::Rules => (at(CAPTURE_PORT).collect(), at(DNS_PORT).collect()),
            Capture::Routes(ports) => {
                let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                let everywhere = ports.iter().map(|port| SocketAddr::new(any, *port)).collect();
                (everywhere, vec![SocketAddr::from((NAME_SERVER, DNS))])
            }
        };
        if last_resort {
            dns.push(SocketAddr::from((Ipv4Addr::LOCALHOST, DNS)));
        }
        Ok(Listeners {
            capture: captured.into_iter().map(tcp).collect::<Result<_, _>>()?,
            dns_udp: dns.iter().copied().map(udp).collect::<Result<_, _>>()?,
            dns_tcp: dns.iter().copied().map(tcp).collect::<Result<_, _>>()?,
            explicit: vec![tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, EXPLICIT_PORT)))?],
            host_ports: host_ports.iter().copied().flat_map(at).map(tcp).collect::<Result<_, _>>()?,
            log: log::open().ok(),
        })
    }

    /// The addresses that the proxy listens on inside: no connection may lead to them. The ports of the host's loopback are
    /// not among them, since outside they are others'.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let redirected = self.capture.iter().filter(|listener| !is_everywhere(listener));
        let listeners =
            redirected.chain(&self.dns_tcp).chain(&self.explicit).filter_map(|socket| socket.local_addr().ok());
        listeners.chain(own_addresses(&self.caught_ports().unwrap_or_default())).collect()
    }

    /// The ports on which connections are captured, where the kernel has no nf_tables; `None`: on every port.
    pub fn caught_ports(&self) -> Option<Vec<u16>> {
        let everywhere = self.capture.iter().filter(|listener| is_everywhere(listener));
        let ports: Vec<u16> = everywhere.filter_map(|listener| Some(listener.local_addr().ok()?.port())).collect();
        (!ports.is_empty()).then_some(ports)
    }

    /// Where programs inside connect to netbox by intention: the proxy, and the ports of the host's loopback.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        self.explicit.iter().chain(&self.host_ports).filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// How many of each there are, as text, and the descriptors in that order.
    pub(crate) fn to_descriptors(&self) -> (String, Vec<RawFd>) {
        let counts = format!(
            "{} {} {} {} {} {}",
            self.capture.len(),
            self.dns_udp.len(),
            self.dns_tcp.len(),
            self.explicit.len(),
            self.host_ports.len(),
            usize::from(self.log.is_some())
        );
        let capture = self.capture.iter().map(AsRawFd::as_raw_fd);
        let dns_udp = self.dns_udp.iter().map(AsRawFd::as_raw_fd);
        let dns_tcp = self.dns_tcp.iter().map(AsRawFd::as_raw_fd);
        let explicit = self.explicit.iter().map(AsRawFd::as_raw_fd);
        let host_ports = self.host_ports.iter().map(AsRawFd::as_raw_fd);
        let log = self.log.iter().map(AsRawFd::as_raw_fd);
        (counts, capture.chain(dns_udp).chain(dns_tcp).chain(explicit).chain(host_ports).chain(log).collect())
    }

    /// The other way round; `None` when counts and descriptors do not match.
    pub(crate) fn from_descriptors(counts: &str, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let counts: Vec<usize> = counts.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[capture, dns_udp, dns_tcp, explicit, host_ports, _log] = counts.as_slice() else { return None };
        let total = counts.iter().try_fold(0usize, |total, count| total.checked_add(*count))?;
        if [capture, dns_udp, dns_tcp, explicit].contains(&0) || descriptors.len() != total {
            return None;
        }
        let mut descriptors = descriptors.into_iter();
        Some(Listeners {
            capture: descriptors.by_ref().take(capture).map(TcpListener::from).collect(),
            dns_udp: descriptors.by_ref().take(dns_udp).map(UdpSocket::from).collect(),
            dns_tcp: descriptors.by_ref().take(dns_tcp).map(TcpListener::from).collect(),
            explicit: descriptors.by_ref().take(explicit).map(TcpListener::from).collect(),
            host_ports: descriptors.by_ref().take(host_ports).map(TcpListener::from).collect(),
            log: descriptors.next(),
        })
    }
}

/// The sandbox's own addresses with these ports: where netbox listens on every address ([`Listeners::caught_ports`]), no
/// connection may lead to them.
pub fn own_addresses(ports: &[u16]) -> Vec<SocketAddr> {
    let own = [IpAddr::from(ADDRESS4), IpAddr::from(ADDRESS6)];
    ports.iter().flat_map(|port| own.map(|address| SocketAddr::new(address, *port))).collect()
}

fn is_everywhere(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address| address.ip().is_unspecified())
}

fn tcp(address: SocketAddr) -> Result<TcpListener, Failure> {
    let what = format!("TCP {address}");
    let socket = open(address, SockType::Stream).at(Step::Listeners, &what)?;
    listen(&socket, Backlog::MAXALLOWABLE).at(Step::Listeners, &what)?;
    Ok(TcpListener::from(socket))
}

fn udp(address: SocketAddr) -> Result<UdpSocket, Failure> {
    open(address, SockType::Datagram).map(UdpSocket::from).at(Step::Listeners, &format!("UDP {address}"))
}

fn open(address: SocketAddr, kind: SockType) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    if address.is_ipv6() {
        // An IPv4 listener of the same port stands beside it; but one on every address is for both.
        setsockopt(&socket, sockopt::Ipv6V6Only, &!address.ip().is_unspecified())?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MAX_DESCRIPTORS;
    use crate::network::MAX_CAUGHT_PORTS;

    #[test]
    fn all_listeners_that_there_can_be_travel_at_once() {
        // Two families, the resolver of last resort, the explicit one, the log, and the command's terminal.
        let most = 2 + 3 + 3 + 1 + 2 * MAX_HOST_PORTS + 1 + 1;
        assert!(most <= MAX_DESCRIPTORS, "{most}");
        let most = (MAX_CAUGHT_PORTS + 1) + 2 + 2 + 1 + 2 * MAX_HOST_PORTS + 1;
        assert!(most <= MAX_DESCRIPTORS, "{most}");
    }

    #[test]
    fn listeners_arrive_in_their_places() {
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let sent = Listeners {
            capture: vec![tcp(), tcp()],
            dns_udp: vec![udp()],
            dns_tcp: vec![tcp()],
            explicit: vec![tcp()],
            host_ports: vec![tcp(), tcp(), tcp()],
            log: None,
        };
        let (counts, descriptors) = sent.to_descriptors();
        let copies = || descriptors.iter().map(|fd| crate::sys::duplicate(*fd).unwrap()).collect::<Vec<_>>();
        let ports = |listeners: &[TcpListener]| -> Vec<u16> {
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
        };
        let received = Listeners::from_descriptors(&counts, copies()).unwrap();
        assert_eq!(ports(&received.host_ports), ports(&sent.host_ports));
        assert_eq!(ports(&received.explicit), ports(&sent.explicit));
        assert!(!received.addresses().contains(&sent.host_ports[0].local_addr().unwrap()));
        for wrong in ["2 1 1 1 3 1", "2 1 1 1 2 0", "2 1 1 0 4 0", "2 1 1 1 3", "", "18446744073709551615 1 1 1 1 0"] {
            assert!(Listeners::from_descriptors(wrong, copies()).is_none(), "{wrong}");
        }
    }
}
