//! What one connection asks for: a host and a port, parsed once, and how it arrived.

use std::fmt;

use crate::host::{Host, HostError, parse_ipv6};
use crate::port::{Port, PortError};

/// The way on which a connection arrived. It does not change what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// HTTP CONNECT.
    Connect,
    /// HTTP with the absolute form of a request target.
    Http,
    /// SOCKS5.
    Socks5,
    /// A captured connection, by its original destination.
    Capture,
    /// A DNS question.
    Dns,
}

impl Via {
    /// The word in events: `connect`, `http`, `socks5`, `capture`, `dns`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Http => "http",
            Self::Socks5 => "socks5",
            Self::Capture => "capture",
            Self::Dns => "dns",
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What one connection asks for. What was judged is what is dialled: nothing after this reads the bytes again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    host: Host,
    port: Port,
    via: Via,
}

/// Why an authority (`host:port`) is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The host is neither a name nor an address.
    #[error("{text} is no host: {source}", text = crate::quote(.text))]
    Host {
        /// What stands where the host should.
        text: Vec<u8>,
        /// What is wrong with it.
        source: HostError,
    },
    /// The port is no port.
    #[error("{text} is no port: {source}", text = crate::quote(.text))]
    Port {
        /// What stands where the port should.
        text: Vec<u8>,
        /// What is wrong with it.
        source: PortError,
    },
    /// There is no port.
    #[error("{text} has no port, write `host:port`", text = crate::quote(.text))]
    NoPort {
        /// The whole text.
        text: Vec<u8>,
    },
    /// `user@host`: no authority that netbox takes has user information (RFC 9112 §3.2.3).
    #[error("{text} has a `@`, and user information is not part of a target", text = crate::quote(.text))]
    UserInformation {
        /// The whole text.
        text: Vec<u8>,
    },
    /// An IPv6 address without square brackets.
    #[error("{text} is ambiguous, write an IPv6 address in square brackets: `[2001:db8::1]:443`", text = crate::quote(.text))]
    BareIpv6 {
        /// The whole text.
        text: Vec<u8>,
    },
    /// A URL of another scheme than `http` and `https`.
    #[error("{text} has a scheme other than `http` and `https`, write `host:port`", text = crate::quote(.text))]
    Scheme {
        /// The whole text.
        text: Vec<u8>,
    },
}

impl Target {
    /// The target of a host and a port that were parsed. An IPv4-mapped IPv6 address becomes the IPv4 address.
    pub fn new(host: Host, port: Port, via: Via) -> Self {
        let host = match host {
            Host::Name(name) => Host::Name(name),
            Host::Address(address) => Host::from_ip(address),
        };
        Self { host, port, via }
    }

    /// Parses exactly `host:port`, the authority form of RFC 9112 §3.2.3, as a program sent it: a name, a dotted quad or
    /// `[v6]`, a colon and a port. No user information, no scheme, no path, no space.
    ///
    /// # Errors
    ///
    /// [`TargetError`] says what is wrong, with the text that is wrong.
    pub fn parse_authority(bytes: &[u8], via: Via) -> Result<Self, TargetError> {
        let (host, port) = Self::split_authority(bytes)?;
        let Some(port) = port else { return Err(TargetError::NoPort { text: excerpt(bytes) }) };
        Ok(Self { host, port, via })
    }

    /// Parses an authority whose port may be missing.
    pub(crate) fn split_authority(bytes: &[u8]) -> Result<(Host, Option<Port>), TargetError> {
        if bytes.contains(&b'@') {
            return Err(TargetError::UserInformation { text: excerpt(bytes) });
        }
        if parse_ipv6(bytes).is_some() {
            return Err(TargetError::BareIpv6 { text: excerpt(bytes) });
        }
        // The host ends at its closing bracket or at the first colon: a name has none.
        let end = if bytes.starts_with(b"[") {
            bytes.iter().position(|b| *b == b']').map_or(bytes.len(), |at| at + 1)
        } else {
            bytes.iter().position(|b| *b == b':').unwrap_or(bytes.len())
        };
        let (host, port) = match &bytes[end..] {
            [] => (bytes, None),
            [b':'] => return Err(TargetError::NoPort { text: excerpt(bytes) }),
            [b':', port @ ..] => (&bytes[..end], Some(port)),
            // Text after the bracket: the whole is no host, and is said to be none.
            _ => (bytes, None),
        };
        let host = Host::parse_wire(host).map_err(|source| TargetError::Host { text: excerpt(host), source })?;
        let port = match port {
            None => None,
            Some(port) => Some(Port::parse(port).map_err(|source| TargetError::Port { text: excerpt(port), source })?),
        };
        Ok((host, port))
    }

    /// The host: a name or a canonical address.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> Port {
        self.port
    }

    /// How it arrived.
    pub fn via(&self) -> Via {
        self.via
    }
}

impl fmt::Display for Target {
    /// `host:port`, an IPv6 address in square brackets. Parses to the same target.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => write!(f, "{}", std::net::SocketAddr::new(*address, self.port.get())),
        }
    }
}

/// What an error keeps of a text that may be long: more than a message shows, less than would hurt.
pub(crate) fn excerpt(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(512)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_host_colon_port_and_nothing_else() {
        for (text, expected) in [
            ("github.com:443", Some("github.com:443")),
            ("GitHub.Com.:80", Some("github.com:80")),
            ("203.0.113.10:22", Some("203.0.113.10:22")),
            ("[2001:db8::1]:443", Some("[2001:db8::1]:443")),
            ("[::ffff:10.0.0.1]:80", Some("10.0.0.1:80")),
            ("github.com", None),
            ("github.com:", None),
            (":443", None),
            ("", None),
            ("[2001:db8::1]", None),
            ("[2001:db8::1]443", None),
            ("[2001:db8::1].github.com:443", None),
            ("2001:db8::1:443", None),
            ("user@github.com:443", None),
            ("https://github.com:443", None),
            ("github.com:443/", None),
            ("github.com:443:80", None),
            (" github.com:443", None),
            ("github.com\0.evil.example:443", None),
        ] {
            let target = Target::parse_authority(text.as_bytes(), Via::Connect);
            assert_eq!(target.ok().map(|t| t.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn errors_quote_what_is_wrong() {
        for (text, message) in [
            ("github.com:https", "`https` is no port: a service is written by its number"),
            ("git hub.com:443", "`git hub.com` is no host: ` ` is no character of a host name"),
            ("github.com", "`github.com` has no port, write `host:port`"),
            ("github.com:", "`github.com:` has no port, write `host:port`"),
            ("a@b:1", "`a@b:1` has a `@`, and user information is not part of a target"),
            ("::1:443", "`::1:443` is ambiguous, write an IPv6 address in square brackets: `[2001:db8::1]:443`"),
        ] {
            let error = Target::parse_authority(text.as_bytes(), Via::Http).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
