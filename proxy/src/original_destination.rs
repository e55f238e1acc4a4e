//! Where a captured connection was meant to go. Conntrack remembers it for a redirected connection, and the kernel
//! tells it by `SO_ORIGINAL_DST` (IPv4, `linux/netfilter_ipv4.h`) and `IP6T_SO_ORIGINAL_DST` (IPv6,
//! `linux/netfilter_ipv6/ip6_tables.h`). One that nobody redirected, since the listener is on every address and every
//! address leads there, is at the address that it was meant for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::TcpStream;

/// What a connection was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Original {
    /// The address and port that the program connected to.
    pub(crate) address: SocketAddr,
    /// Whether that is the listener itself: nobody redirected the connection, or it was made to loopback.
    pub(crate) is_listener: bool,
}

/// How connections come to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// They are redirected.
    Redirected,
    /// Every address is the listener's.
    Everywhere,
}

impl Capture {
    /// That of the listener at this address.
    pub(crate) fn at(listener: SocketAddr) -> Self {
        if listener.ip().is_unspecified() { Self::Everywhere } else { Self::Redirected }
    }
}

/// The original destination of an accepted connection.
///
/// # Errors
///
/// Where the kernel does not know: the connection was never redirected (`ENOENT`), or it has ended already.
pub(crate) fn original_destination(stream: &TcpStream, capture: Capture) -> io::Result<Original> {
    let local = stream.local_addr()?;
    if capture == Capture::Everywhere {
        let address = SocketAddr::new(local.ip().to_canonical(), local.port());
        let is_listener = address.ip().is_loopback() || address.ip().is_unspecified();
        return Ok(Original { address, is_listener });
    }
    let address = redirected_from(stream)?;
    Ok(Original { address, is_listener: address == local })
}

fn redirected_from(stream: &TcpStream) -> io::Result<SocketAddr> {
    // On a socket that takes IPv4 as well, the family is that of the peer.
    match stream.local_addr()?.ip().to_canonical() {
        IpAddr::V4(_) => {
            let address = getsockopt(stream, sockopt::OriginalDst)?;
            // Both are in network order in memory, whatever the machine's is.
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddr::new(ip.into(), u16::from_be(address.sin_port)))
        }
        IpAddr::V6(_) => {
            let address = getsockopt(stream, sockopt::Ip6tOriginalDst)?;
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Ok(SocketAddr::new(ip.into(), u16::from_be(address.sin6_port)))
        }
    }
}
