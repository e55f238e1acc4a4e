//! A host: a name or an address, never in doubt which.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::HostName;
use crate::name::NameError;

/// What stands before the port: a name or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name, to be looked up once it is permitted.
    Name(HostName),
    /// An address in its canonical form: an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) is the IPv4 address, since that
    /// is what the kernel dials. Made by [`Host::from_ip`] and [`Host::parse_wire`]; [`Target::new`](crate::Target::new)
    /// makes sure.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It is no address, and not a name either.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Square brackets hold an IPv6 address (RFC 3986 §3.2.2), nothing else: no name, no IPv4 address, no IPvFuture.
    #[error("square brackets hold an IPv6 address, and this is none")]
    Brackets,
    /// `fe80::1%eth0`: an address that means something on one machine only (RFC 6874, RFC 9844).
    #[error("an address with a zone (`%`) is not supported")]
    Zone,
    /// An IPv6 address without square brackets, where a port may follow.
    #[error("an IPv6 address stands in square brackets")]
    BareIpv6,
}

impl Host {
    /// Parses what a program sent: a name ([`HostName::parse_wire`]), a dotted quad in its one usual spelling
    /// (`127.0.0.1`, not `127.1`, `0177.0.0.1` or `2130706433`), or an IPv6 address in square brackets, without a zone.
    ///
    /// # Errors
    ///
    /// [`HostError`] says what is wrong.
    pub fn parse_wire(bytes: &[u8]) -> Result<Self, HostError> {
        if let Some(inside) = bytes.strip_prefix(b"[") {
            let inside = inside.strip_suffix(b"]").ok_or(HostError::Brackets)?;
            if inside.contains(&b'%') {
                return Err(HostError::Zone);
            }
            return parse_ipv6(inside).map(|ip| Self::from_ip(ip.into())).ok_or(HostError::Brackets);
        }
        if let Some(address) = parse_ipv4(bytes) {
            return Ok(Self::Address(address.into()));
        }
        if parse_ipv6(bytes).is_some() {
            return Err(HostError::BareIpv6);
        }
        Ok(Self::Name(HostName::parse_wire(bytes)?))
    }

    /// The host of an address, in its canonical form.
    pub fn from_ip(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Host {
    /// The name or the address. An IPv6 address stands without brackets; [`Target`](crate::Target) adds them where a port
    /// follows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A dotted quad of four decimal numbers without leading zeros. The standard library's parser is as strict (measured:
/// it refuses `0177.0.0.1`, `127.1`, `0x7f.1` and spaces), unlike `getaddrinfo`.
pub(crate) fn parse_ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

pub(crate) fn parse_ipv6(bytes: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_of_an_address_is_an_address_and_the_others_are_nothing() {
        for text in ["127.0.0.1", "0.0.0.0", "255.255.255.255"] {
            assert_eq!(Host::parse_wire(text.as_bytes()), Ok(Host::Address(text.parse().unwrap())), "{text}");
        }
        for text in [
            "127.1",
            "0",
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "0x7f.0.0.1",
            "127.0.0.0x1",
            "0177.0.0.1",
            "017700000001",
            "256.0.0.1",
            "127.0.0.1.",
            "1.2.3.4.5",
            "4294967297",
            "foo.0x",
            "+127.0.0.1",
        ] {
            assert!(Host::parse_wire(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn ipv6_stands_in_brackets_without_a_zone() {
        let ip = |text: &str| Ok(Host::Address(text.parse().unwrap()));
        for (text, expected) in [
            ("[::1]", ip("::1")),
            ("[2001:DB8::1]", ip("2001:db8::1")),
            ("[::ffff:10.0.0.1]", ip("10.0.0.1")),
            ("[::ffff:a00:1]", ip("10.0.0.1")),
            ("[64:ff9b::a00:1]", ip("64:ff9b::a00:1")),
            ("::1", Err(HostError::BareIpv6)),
            ("[fe80::1%eth0]", Err(HostError::Zone)),
            ("[::1%25.github.com]", Err(HostError::Zone)),
            ("[github.com]", Err(HostError::Brackets)),
            ("[127.0.0.1]", Err(HostError::Brackets)),
            ("[v1.fe80::a]", Err(HostError::Brackets)),
            ("[2001:db8:::1]", Err(HostError::Brackets)),
            ("[::1", Err(HostError::Brackets)),
            ("[::1].github.com", Err(HostError::Brackets)),
            ("[]", Err(HostError::Brackets)),
            ("[[::1]]", Err(HostError::Brackets)),
        ] {
            assert_eq!(Host::parse_wire(text.as_bytes()), expected, "{text}");
        }
    }
}
