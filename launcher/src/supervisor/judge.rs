//! The question whether a TCP connect may go on, asked before it is performed.
//!
//! A connection that is refused after it was accepted looks like an outage. Where nothing is answered in the protocol
//! of the connection, the refusal is better told by connect(2) itself: EACCES is what it documents for a firewall.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::caller::{Caller, Identity};
use crate::network::{ADDRESS4, ADDRESS6};
use crate::sys;

/// The port of queries for names, which are captured by themselves.
const DNS: u16 = 53;

/// Judges a TCP connect by its destination: to somewhere outside, or to a listener of netbox's on the loopback inside.
/// `Err`: the error number that `connect(2)` fails with. The second argument says who connects, if that matters.
///
/// It is called from several threads at once, and the program waits for it.
pub type Judge = dyn Fn(SocketAddr, &dyn Fn() -> Option<Identity>) -> Result<Option<Made>, i32> + Send + Sync;

/// Is told where a connect that was made comes from, and whose it is. Dropped: it could not be made.
pub type Made = Box<dyn FnOnce(SocketAddr, Caller)>;

/// The destination of a connect of this socket to this address, if it is one that netbox will see again: TCP that is
/// captured, since it is not for the sandbox itself and no query for names; and what is for one of `doors`, netbox's own
/// listeners on the loopback.
pub(super) fn followed(socket: BorrowedFd, domain: i32, address: &[u8], doors: &[SocketAddr]) -> Option<SocketAddr> {
    let destination = destination(domain, address)?;
    let is_captured = !is_own(destination.ip()) && destination.port() != DNS && destination.port() != 0;
    ((is_captured || doors.contains(&destination)) && is_stream(socket)).then_some(destination)
}

/// Whether a connect of this socket to this address is for the sandbox itself, on a port on which netbox alone can listen
/// since it does so on every address ([`Listeners::caught_ports`](crate::Listeners::caught_ports)).
pub(super) fn is_for_nobody(socket: BorrowedFd, domain: i32, address: &[u8], caught_ports: &[u16]) -> bool {
    let is_caught = |destination: &SocketAddr| is_own(destination.ip()) && caught_ports.contains(&destination.port());
    destination(domain, address).as_ref().is_some_and(is_caught) && is_stream(socket)
}

fn is_own(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || ip == ADDRESS4 || ip == ADDRESS6
}

fn is_stream(socket: BorrowedFd) -> bool {
    sys::socket::option(socket, libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
}

/// Whether it is an address of a link (RFC 4291, section 2.5.6). The only link leads nowhere.
pub(super) fn is_link_local(destination: SocketAddr) -> bool {
    matches!(destination.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The address in the bytes of a `sockaddr_in` or `sockaddr_in6`, as the kernel reads it for a socket of this domain.
fn destination(domain: i32, bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match (domain, family) {
        // An IPv6 socket takes IPv4 addresses too.
        (libc::AF_INET | libc::AF_INET6, libc::AF_INET) => {
            IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?))
        }
        (libc::AF_INET6, libc::AF_INET6) => {
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Asks.
pub(super) fn ask(
    judge: &Judge,
    destination: SocketAddr,
    who: &dyn Fn() -> Option<Identity>,
) -> nix::Result<Option<Made>> {
    judge(destination, who).map_err(Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(port: u16, ip: [u8; 4]) -> Vec<u8> {
        let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend(ip);
        bytes.extend([0; 8]);
        bytes
    }

    fn v6(port: u16, ip: &str) -> Vec<u8> {
        let mut bytes = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(ip.parse::<Ipv6Addr>().unwrap().octets());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let expected = Some("203.0.113.7:5432".parse().unwrap());
        assert_eq!(destination(libc::AF_INET, &v4(5432, [203, 0, 113, 7])), expected);
        assert_eq!(destination(libc::AF_INET6, &v6(5432, "::ffff:203.0.113.7")), expected);
        let expected = Some("[2001:db8::1]:22".parse().unwrap());
        assert_eq!(destination(libc::AF_INET6, &v6(22, "2001:db8::1")), expected);
        assert_eq!(destination(libc::AF_INET, &v6(22, "2001:db8::1")), None);
        for length in 0..8 {
            assert_eq!(destination(libc::AF_INET, &v4(1, [1, 2, 3, 4])[..length]), None);
        }
    }

    #[test]
    fn only_tcp_connects_that_leave_the_sandbox_or_are_for_netbox_are_asked_about() {
        use std::os::fd::AsFd;
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let door = [SocketAddr::from(([127, 0, 0, 1], 61003))];
        let asked = |socket: BorrowedFd, port, ip| followed(socket, libc::AF_INET, &v4(port, ip), &door).is_some();
        assert!(asked(tcp.as_fd(), 5432, [203, 0, 113, 7]));
        assert!(!asked(udp.as_fd(), 5432, [203, 0, 113, 7]));
        assert!(!asked(tcp.as_fd(), 53, [203, 0, 113, 7]));
        let nobodys = |socket: BorrowedFd, port, ip| is_for_nobody(socket, libc::AF_INET, &v4(port, ip), &[443]);
        assert!(nobodys(tcp.as_fd(), 443, [127, 0, 0, 1]) && nobodys(tcp.as_fd(), 443, ADDRESS4.octets()));
        assert!(!nobodys(tcp.as_fd(), 443, [203, 0, 113, 7]) && !nobodys(tcp.as_fd(), 8080, [127, 0, 0, 1]));
        assert!(!nobodys(udp.as_fd(), 443, [127, 0, 0, 1]));
        assert!(asked(tcp.as_fd(), 61003, [127, 0, 0, 1]) && !asked(tcp.as_fd(), 61004, [127, 0, 0, 1]));
        for own in [[127, 0, 0, 1], [127, 9, 9, 9], [0, 0, 0, 0], ADDRESS4.octets()] {
            assert!(!asked(tcp.as_fd(), 5432, own), "{own:?}");
        }
    }
}
