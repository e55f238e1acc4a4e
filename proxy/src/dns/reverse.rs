//! The names that stand for addresses: `4.3.2.1.in-addr.arpa` (RFC 1035 §3.5) and its like below `ip6.arpa` (RFC 3596 §2.5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbox_config::HostName;

/// A name below one of the two domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse(Option<IpAddr>);

impl Reverse {
    /// `None` for a name that lies elsewhere.
    pub fn of(name: &HostName) -> Option<Self> {
        let name = name.as_str();
        if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
            return Some(Self(v4(octets)));
        }
        if let Some(nibbles) = name.strip_suffix(".ip6.arpa") {
            return Some(Self(v6(nibbles)));
        }
        matches!(name, "in-addr.arpa" | "ip6.arpa").then_some(Self(None))
    }

    /// The address, if the name stands for a whole one.
    pub fn address(self) -> Option<IpAddr> {
        self.0
    }
}

fn v4(octets: &str) -> Option<IpAddr> {
    // In their one usual form only: `Ipv4Addr` takes no leading zeros.
    let mut reversed: Vec<&str> = octets.split('.').collect();
    reversed.reverse();
    reversed.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn v6(nibbles: &str) -> Option<IpAddr> {
    let mut bits = 0_u128;
    let mut count = 0;
    for nibble in nibbles.rsplit('.') {
        let digit = nibble.chars().next().filter(|_| nibble.len() == 1)?.to_digit(16)?;
        bits = bits << 4 | u128::from(digit);
        count += 1;
    }
    (count == 32).then(|| IpAddr::V6(Ipv6Addr::from(bits)))
}
