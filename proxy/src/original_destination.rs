//! Where a captured connection was meant to go: conntrack remembers it for a redirected connection, and the kernel
//! tells it by `SO_ORIGINAL_DST` (IPv4, `linux/netfilter_ipv4.h`) and `IP6T_SO_ORIGINAL_DST` (IPv6,
//! `linux/netfilter_ipv6/ip6_tables.h`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::net::TcpStream;

/// The address and port that the program connected to.
///
/// # Errors
///
/// Where the kernel does not know: the connection was never redirected (`ENOENT`), or it has ended already.
pub(crate) fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
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
