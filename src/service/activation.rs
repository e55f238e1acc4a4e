//! Listening sockets that the service is started with (sd_listen_fds(3)), so that they outlive it: what connects while it
//! is replaced waits, and is not refused.
//!
//! The descriptors begin at 3. LISTEN_PID says whom they are for, LISTEN_FDS how many there are, LISTEN_FDNAMES what they
//! are called. A socket is known by where it listens; its name is for people.

use std::env;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::sys::socket::{AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt};

/// The number of the first one.
const FIRST: i32 = 3;

/// More than any unit has; what says more is broken.
const MOST: i32 = 1024;

/// A socket that listens.
#[derive(Debug)]
pub enum Handed {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Those that the environment tells of. To be asked once, before anything is opened.
///
/// # Errors
/// One of them is no listening stream socket, or is not open.
pub fn take() -> Result<Vec<Handed>, String> {
    let variable = |name| env::var(name).ok();
    let count = count(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id())?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .map(|number| {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
            let handed = netbox_launcher::take_inherited(number).and_then(Handed::of);
            handed.map_err(|error| format!("descriptor {number} (`{name}`) of LISTEN_FDS: {error}"))
        })
        .collect()
}

fn count(pid: Option<String>, count: Option<String>, own: u32) -> Result<i32, String> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(0) };
    if pid != own.to_string() {
        // They are for a program that came before.
        return Ok(0);
    }
    let wrong = || format!("LISTEN_FDS is `{}`, and no number of descriptors", count.escape_debug());
    count.parse().ok().filter(|count| (0..=MOST).contains(count)).ok_or_else(wrong)
}

impl Handed {
    fn of(fd: OwnedFd) -> io::Result<Self> {
        let listens = getsockopt(&fd, sockopt::SockType)? == SockType::Stream && getsockopt(&fd, sockopt::AcceptConn)?;
        if !listens {
            return Err(io::Error::other("not a stream socket that listens (`ListenStream=`)"));
        }
        match family(&fd)? {
            Some(AddressFamily::Inet | AddressFamily::Inet6) => Ok(Self::Tcp(fd.into())),
            Some(AddressFamily::Unix) => Ok(Self::Unix(fd.into())),
            _ => Err(io::Error::other("neither a TCP nor a unix socket")),
        }
    }
}

fn family(fd: &impl AsFd) -> nix::Result<Option<AddressFamily>> {
    use std::os::fd::AsRawFd;
    Ok(getsockname::<SockaddrStorage>(fd.as_fd().as_raw_fd())?.family())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn descriptors_are_for_the_process_that_is_named() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(count(text("7"), text("2"), 7), Ok(2));
        assert_eq!(count(text("8"), text("2"), 7), Ok(0));
        assert_eq!(count(text(""), text("2"), 7), Ok(0));
        assert_eq!(count(None, text("2"), 7), Ok(0));
        assert_eq!(count(text("7"), None, 7), Ok(0));
        for wrong in ["-1", "1025", "x", "", "99999999999"] {
            assert!(count(text("7"), text(wrong), 7).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_stream_sockets_that_listen_are_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let unix = UnixListener::bind(folder.path().join("control")).expect("own folder");
        assert!(matches!(Handed::of(unix.into()), Ok(Handed::Unix(_))));
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let tcp = TcpListener::bind(address).expect("loopback");
            assert!(matches!(Handed::of(tcp.into()), Ok(Handed::Tcp(_))));
        }
        let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let connected = std::net::TcpStream::connect(tcp.local_addr().expect("bound")).expect("it listens");
        assert!(Handed::of(connected.into()).is_err());
        assert!(Handed::of(UdpSocket::bind("127.0.0.1:0").expect("loopback").into()).is_err());
        assert!(Handed::of(tempfile::tempfile().expect("a file").into()).is_err());
    }
}
