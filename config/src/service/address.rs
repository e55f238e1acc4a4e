//! Where a service listens, as it is written.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::fault::ServiceFault;

/// The longest path of a unix socket, in bytes (unix(7): 108 with the NUL behind it).
const LONGEST_PATH: usize = 107;

/// An address to listen on: `127.0.0.1:3128`, `[::1]:3128`, or `unix:/run/netbox/control.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A control socket.
    Unix(PathBuf),
    /// A TCP address. With port 0 the system chooses one.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// Parses it.
    ///
    /// # Errors
    ///
    /// [`ServiceFault`], and what to write instead is [`ListenAddress::remedy`].
    pub fn parse(text: &str) -> Result<Self, ServiceFault> {
        match text.strip_prefix("unix:") {
            Some(path) => socket_path(path).map(Self::Unix),
            None => text.parse().map(Self::Tcp).map_err(|_| ServiceFault::Address(text.to_owned())),
        }
    }

    /// What to write instead of a text that is none.
    pub fn remedy(text: &str) -> String {
        match tcp_remedy(text) {
            Some(remedy) => remedy,
            None => "write `127.0.0.1:3128`, `[::1]:3128` or `unix:/run/netbox/control.sock`".to_owned(),
        }
    }

    /// The same where only a TCP address can stand, such as this one.
    pub fn remedy_of_tcp(text: &str, example: SocketAddr) -> String {
        let port = example.port();
        tcp_remedy(text).unwrap_or_else(|| format!("write `127.0.0.1:{port}` or `[::1]:{port}`"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// What to write instead of a port with a name, or with nothing: which of the addresses of a name would be meant, or whether
/// those of every machine would, is not guessed.
fn tcp_remedy(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse::<u16>().ok()?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    host.chars().all(is_word).then(|| format!("write an address: `127.0.0.1:{port}` or `[::1]:{port}`"))
}

/// The path of a unix socket.
pub(super) fn socket_path(text: &str) -> Result<PathBuf, ServiceFault> {
    match path(text) {
        Some(path) if text.len() <= LONGEST_PATH => Ok(path),
        _ => Err(ServiceFault::Path { path: text.to_owned(), limit: " of at most 107 bytes" }),
    }
}

/// The path of a file.
pub(super) fn file_path(text: &str) -> Result<PathBuf, ServiceFault> {
    path(text).ok_or_else(|| ServiceFault::Path { path: text.to_owned(), limit: "" })
}

/// A path that means the same wherever the service was started.
fn path(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let is_whole = path.is_absolute() && path.file_name().is_some() && !text.ends_with('/') && !text.contains('\0');
    is_whole.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_write_has_the_port_that_was_written() {
        for (text, port) in [("localhost:8080", 8080), ("3128", 3128), (":80", 80), ("proxy.example.com:1", 1)] {
            let remedy = format!("write an address: `127.0.0.1:{port}` or `[::1]:{port}`");
            assert_eq!(ListenAddress::remedy(text), remedy);
            assert_eq!(ListenAddress::remedy_of_tcp(text, ([127, 0, 0, 1], 9464).into()), remedy);
        }
        for text in ["", "localhost", "localhost:http", "::1:3128", "unix:x", "a b:1"] {
            assert!(ListenAddress::remedy(text).contains("unix:/run/netbox/control.sock"), "{text}");
            let remedy = ListenAddress::remedy_of_tcp(text, ([127, 0, 0, 1], 9464).into());
            assert_eq!(remedy, "write `127.0.0.1:9464` or `[::1]:9464`");
        }
    }

    #[test]
    fn an_address_is_tcp_or_a_unix_socket() {
        for text in ["127.0.0.1:3128", "[::1]:0", "0.0.0.0:1", "unix:/run/netbox/control.sock"] {
            assert_eq!(ListenAddress::parse(text).unwrap().to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST_PATH));
        for text in [
            "",
            "3128",
            ":3128",
            "localhost:3128",
            "127.0.0.1",
            "::1:3128",
            "127.0.0.1:65536",
            "127.1:80",
            "tcp://127.0.0.1:1",
            "unix:",
            "unix:/",
            "unix:/run/",
            "unix:/run/..",
            "unix:control.sock",
            "unix:@abstract",
            "unix:/a\0b",
            &long,
        ] {
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
        assert!(ListenAddress::parse(&long[..long.len() - 1]).is_ok());
    }
}
