//! The proof that the capture works, before the command may run.
//!
//! Rules that were loaded and read back could still not do what they say: a missing conntrack, a kernel's fault, a hook
//! that someone else registered. So pid 1 does what the command will do and looks where it ends up: a connect must
//! arrive at the capture listener with its destination intact, a query must arrive at the DNS listener, and any other
//! datagram must be refused. All of it stays on the loopback interface, because that is what is being proved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt};

use super::listeners::Listeners;
use super::log::read_refused;
use crate::error::{At, Failure, Step};

/// Destinations that the synthetic addresses never use, so that no name is ever behind them.
const PROBE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PROBE6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const PROBE_PORT: u16 = 9;
/// Generous: on an idle machine all of this takes microseconds.
const PATIENCE_MS: u16 = 5_000;

/// Proves capture, names and refusal, for each address family that has a listener.
pub(crate) fn run(listeners: &Listeners) -> Result<(), Failure> {
    for (tcp, udp) in listeners.capture.iter().zip(&listeners.dns_udp) {
        let v4 = tcp.local_addr().at(Step::SelfTest, "the capture listener")?.is_ipv4();
        let probe: IpAddr = if v4 { PROBE4.into() } else { PROBE6.into() };
        capture(tcp, SocketAddr::new(probe, PROBE_PORT))?;
        names(udp, SocketAddr::new(probe, 53))?;
        refusal(SocketAddr::new(probe, PROBE_PORT))?;
    }
    // The probes' own refusals are nobody's news.
    if let Some(log) = &listeners.log {
        read_refused(log, |_| {});
    }
    Ok(())
}

fn capture(listener: &TcpListener, destination: SocketAddr) -> Result<(), Failure> {
    let what = format!("a connect to {destination}");
    let family = if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let client = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
        .at(Step::SelfTest, &what)?;
    match connect(client.as_raw_fd(), &SockaddrStorage::from(destination)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(Failure::new(Step::SelfTest, errno, what)),
    }
    wait(listener, &format!("{what} did not arrive at the capture listener"))?;
    let (stream, _) = listener.accept().at(Step::SelfTest, &what)?;
    let original = if destination.is_ipv4() {
        getsockopt(&stream, sockopt::OriginalDst).at(Step::SelfTest, &what).map(|address| {
            SocketAddr::from((Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)), u16::from_be(address.sin_port)))
        })?
    } else {
        getsockopt(&stream, sockopt::Ip6tOriginalDst).at(Step::SelfTest, &what).map(|address| {
            SocketAddr::from((Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port)))
        })?
    };
    if original != destination {
        return Err(Failure::outcome(Step::SelfTest, format!("{what} arrived as one to {original}")));
    }
    Ok(())
}

fn names(listener: &UdpSocket, resolver: SocketAddr) -> Result<(), Failure> {
    let what = format!("a query to {resolver}");
    let client = datagram_socket(resolver).at(Step::SelfTest, &what)?;
    client.send_to(b"netbox", resolver).at(Step::SelfTest, &what)?;
    wait(listener, &format!("{what} did not arrive at the DNS listener"))?;
    let mut buffer = [0; 16];
    let (length, _) = listener.recv_from(&mut buffer).at(Step::SelfTest, &what)?;
    if &buffer[..length] != b"netbox" {
        return Err(Failure::outcome(Step::SelfTest, format!("{what} arrived changed")));
    }
    Ok(())
}

fn refusal(destination: SocketAddr) -> Result<(), Failure> {
    let what = format!("a datagram to {destination}");
    let client = datagram_socket(destination).at(Step::SelfTest, &what)?;
    match client.send_to(b"netbox", destination) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => Ok(()),
        Err(error) => Err(Failure::io(Step::SelfTest, &error, what)),
        Ok(_) => Err(Failure::outcome(Step::SelfTest, format!("{what} was not refused"))),
    }
}

fn datagram_socket(peer: SocketAddr) -> std::io::Result<UdpSocket> {
    UdpSocket::bind(SocketAddr::new(
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() },
        0,
    ))
}

fn wait(socket: &impl AsFd, complaint: &str) -> Result<(), Failure> {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::from(PATIENCE_MS)).at(Step::SelfTest, "poll")? {
        0 => Err(Failure::outcome(Step::SelfTest, complaint)),
        _ => Ok(()),
    }
}
