//! The names that stand for addresses: `4.3.2.1.in-addr.arpa` (RFC 1035 §3.5) and its like below `ip6.arpa` (RFC 3596
//! §2.5).

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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Reverse> {
        Reverse::of(&HostName::parse_wire(text.as_bytes()).unwrap())
    }

    fn address(text: &str) -> Option<Reverse> {
        Some(Reverse(Some(text.parse().unwrap())))
    }

    #[test]
    fn whole_addresses_are_read() {
        assert_eq!(of("1.1.18.198.in-addr.arpa"), address("198.18.1.1"));
        assert_eq!(of("1.1.18.198.IN-ADDR.ARPA."), address("198.18.1.1"));
        let nibbles = "1.0.1.0.2.1.6.c.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.0.0.0.1.0.0.2.ip6.arpa";
        assert_eq!(of(nibbles), address("2001:2::1:c612:101"));
    }

    #[test]
    fn all_else_below_the_domains_stands_for_no_address() {
        for text in [
            "in-addr.arpa",
            "ip6.arpa",
            "18.198.in-addr.arpa",
            "0.1.1.18.198.in-addr.arpa",
            "01.1.18.198.in-addr.arpa",
            "256.1.18.198.in-addr.arpa",
            "x.1.1.18.198.in-addr.arpa",
            "secret.in-addr.arpa",
            "1.0.0.2.ip6.arpa",
            "10.0.ip6.arpa",
            "g.ip6.arpa",
        ] {
            assert_eq!(of(text), Some(Reverse(None)), "{text}");
        }
        for text in ["a.example", "xin-addr.arpa", "in-addr.arpa.example"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
