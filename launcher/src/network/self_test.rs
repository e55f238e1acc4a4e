//! The proof that the capture works, before the command may run.
//!
//! Rules that were loaded and read back could still not do what they say: a missing conntrack, a kernel's fault, a hook
//! that someone else registered. So pid 1 does what the command will do and looks where it ends up: a connect must
//! arrive at the capture listener with its destination intact, a query must arrive at the DNS listener, and any other
//! datagram must be refused. Where there are no rules, so must be a connect to a port that is not caught. All of it stays on
//! the loopback interface, because that is what is being proved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt};

use super::listeners::{Capture, DNS, Listeners};
use super::log::read_refused;
use crate::error::{At, Failure, Step};
use crate::resolver_files::NAME_SERVER;

/// Destinations that the synthetic addresses never use, so that no name is ever behind them.
const PROBE4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PROBE6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const PROBE_PORT: u16 = 9;
/// Generous: on an idle machine all of this takes microseconds.
const PATIENCE_MS: u16 = 5_000;

/// Proves capture, names and refusal, for each address family that there is.
pub(crate) fn run(listeners: &Listeners, means: &Capture, ipv6: bool) -> Result<(), Failure> {
    let probes = [Some(IpAddr::from(PROBE4)), ipv6.then_some(PROBE6.into())];
    let missing = || Failure::outcome(Step::SelfTest, "there is no listener for it");
    for (at, probe) in probes.into_iter().flatten().enumerate() {
        match means {
            Capture::Rules => {
                capture(listeners.capture.get(at).ok_or_else(missing)?, SocketAddr::new(probe, PROBE_PORT), original)?;
                names(listeners.dns_udp.get(at).ok_or_else(missing)?, SocketAddr::new(probe, DNS))?;
                refusal(SocketAddr::new(probe, PROBE_PORT))?;
            }
            Capture::Routes(ports) => {
                let own_address = |stream: &TcpStream, _| stream.local_addr();
                for (listener, port) in listeners.capture.iter().zip(ports) {
                    capture(listener, SocketAddr::new(probe, *port), own_address)?;
                }
                // There are more ports than can be caught.
                let port = (PROBE_PORT..).find(|port| !ports.contains(port)).unwrap_or(PROBE_PORT);
                refused_by_icmp(SocketAddr::new(probe, port))?;
                refused_connect(SocketAddr::new(probe, port))?;
            }
        }
    }
    if matches!(means, Capture::Routes(_)) {
        names(listeners.dns_udp.first().ok_or_else(missing)?, SocketAddr::from((NAME_SERVER, DNS)))?;
    }
    // The probes' own refusals are nobody's news.
    if let Some(log) = &listeners.log {
        read_refused(log, |_| {});
    }
    Ok(())
}

/// `told`: what the kernel says that an accepted connection was meant for.
fn capture(
    listener: &TcpListener,
    destination: SocketAddr,
    told: impl Fn(&TcpStream, bool) -> std::io::Result<SocketAddr>,
) -> Result<(), Failure> {
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
    let told = told(&stream, destination.is_ipv4()).at(Step::SelfTest, &what)?;
    if (told.ip().to_canonical(), told.port()) != (destination.ip(), destination.port()) {
        return Err(Failure::outcome(Step::SelfTest, format!("{what} arrived as one to {told}")));
    }
    Ok(())
}

/// As conntrack remembers it.
fn original(stream: &TcpStream, v4: bool) -> std::io::Result<SocketAddr> {
    if v4 {
        let address = getsockopt(stream, sockopt::OriginalDst)?;
        let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
        return Ok(SocketAddr::from((ip, u16::from_be(address.sin_port))));
    }
    let address = getsockopt(stream, sockopt::Ip6tOriginalDst)?;
    Ok(SocketAddr::from((Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port))))
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

/// A socket that is connected hears of it.
fn refused_by_icmp(destination: SocketAddr) -> Result<(), Failure> {
    let what = format!("a datagram to {destination}");
    let client = datagram_socket(destination).at(Step::SelfTest, &what)?;
    client.connect(destination).at(Step::SelfTest, &what)?;
    client.send(b"netbox").at(Step::SelfTest, &what)?;
    wait(&client, &format!("{what} was not refused"))?;
    match client.recv(&mut [0; 16]) {
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(()),
        Err(error) => Err(Failure::io(Step::SelfTest, &error, what)),
        Ok(_) => Err(Failure::outcome(Step::SelfTest, format!("{what} was answered"))),
    }
}

fn refused_connect(destination: SocketAddr) -> Result<(), Failure> {
    let what = format!("a connect to {destination}");
    match TcpStream::connect_timeout(&destination, Duration::from_millis(PATIENCE_MS.into())) {
        Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(()),
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
