//! IPv4 addresses inside IPv6 addresses.
//!
//! A translator or tunnel on the way may take a packet to the IPv4 address that an IPv6 address carries. So whatever is
//! refused for the IPv4 address is refused for the IPv6 address as well. It never works the other way round: a rule for
//! an IPv4 address allows no IPv6 address that carries it, since where the packet ends depends on the network.
//!
//! | form | prefix | where the IPv4 address is | source |
//! | --- | --- | --- | --- |
//! | IPv4-mapped | `::ffff:0:0/96` | it *is* the IPv4 address: made canonical, not judged as embedded | RFC 4291 §2.5.5.2 |
//! | IPv4-compatible | `::/96` | last 32 bits | RFC 4291 §2.5.5.1 |
//! | IPv4-translated | `::ffff:0:0:0/96` | last 32 bits | RFC 2765 §2.1 |
//! | NAT64 | `64:ff9b::/96` | last 32 bits | RFC 6052 §2.1 |
//! | NAT64, local use | `64:ff9b:1::/48` | by a prefix length that only the network knows: 48, 56, 64 or 96 | RFC 8215 |
//! | 6to4 | `2002::/16` | bits 16 to 48 | RFC 3056 §2 |
//! | Teredo | `2001::/32` | the server in bits 32 to 64, the client in the last 32 bits, inverted | RFC 4380 §4 |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const TRANSLATED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96);
const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
const NAT64_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48);
const COMPATIBLE: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96);
const SIX_TO_FOUR: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
const TEREDO: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32);

/// The IPv4 ranges that the addresses of an IPv6 range carry, in the forms where the place of the IPv4 address is known.
/// A range that leaves the IPv4 address open gives `0.0.0.0/0`.
pub(crate) fn ranges(range: Ipv6Net) -> impl Iterator<Item = Ipv4Net> {
    let at = |first: u8| Some(slice(range, first));
    let [one, two] = if NAT64.contains(&range) || TRANSLATED.contains(&range) {
        [at(96), None]
    } else if SIX_TO_FOUR.contains(&range) {
        [at(16), None]
    } else if TEREDO.contains(&range) {
        // The flipped bits beyond the prefix are cut off by `trunc`.
        let client = slice(range, 96);
        let inverted = Ipv4Addr::from_bits(!client.addr().to_bits());
        [Some(Ipv4Net::new(inverted, client.prefix_len()).map_or(client, |net| net.trunc())), at(32)]
    } else {
        [None, None]
    };
    one.into_iter().chain(two)
}

/// The address in its canonical form, and each IPv4 address that it may carry.
pub(crate) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> + Clone {
    let address = address.to_canonical();
    let mut carried: [Option<Ipv4Addr>; 4] = [None; 4];
    if let IpAddr::V6(v6) = address {
        let range = Ipv6Net::from(v6);
        if NAT64_LOCAL.contains(&v6) {
            let octets = v6.octets();
            // RFC 6052 §2.2: bits 64 to 71 stay out.
            for (slot, [a, b, c, d]) in
                carried.iter_mut().zip([[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]])
            {
                *slot = Some(Ipv4Addr::new(octets[a], octets[b], octets[c], octets[d]));
            }
        } else if COMPATIBLE.contains(&v6) && !v6.is_loopback() && !v6.is_unspecified() {
            carried[0] = Some(slice(range, 96).addr());
        } else {
            for (slot, net) in carried.iter_mut().zip(ranges(range)) {
                *slot = Some(net.addr());
            }
        }
    }
    std::iter::once(address).chain(carried.into_iter().flatten().map(IpAddr::V4))
}

/// The range as it is, and each IPv4 range that all its addresses carry.
pub(crate) fn range_forms(range: IpNet) -> impl Iterator<Item = IpNet> {
    let v6 = match range {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => Some(v6),
    };
    std::iter::once(range).chain(v6.into_iter().flat_map(ranges).map(IpNet::V4))
}

/// The 32 bits of a range from bit `first` on, as an IPv4 range.
fn slice(range: Ipv6Net, first: u8) -> Ipv4Net {
    // A mask of 32 bits after a shift always fits.
    let bits = (range.network().to_bits() >> (96 - first) & u128::from(u32::MAX)) as u32;
    let length = range.prefix_len().saturating_sub(first).min(32);
    Ipv4Net::new(Ipv4Addr::from_bits(bits), length).unwrap_or_default().trunc()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_gives_up_its_ipv4_address() {
        for (address, carried) in [
            ("10.0.0.1", vec![]),
            ("::ffff:0:127.0.0.1", vec!["127.0.0.1"]),
            ("64:ff9b::7f00:1", vec!["127.0.0.1"]),
            ("2002:7f00:1::", vec!["127.0.0.1"]),
            ("2002:a00:7::1", vec!["10.0.0.7"]),
            ("2001:0:0:0:0:0:80ff:fffe", vec!["127.0.0.1", "0.0.0.0"]),
            ("2001:0:a00:1::", vec!["255.255.255.255", "10.0.0.1"]),
            ("64:ff9b:1:a00:7::", vec!["10.0.7.0", "0.7.0.0", "7.0.0.0", "0.0.0.0"]),
            ("64:ff9b:1:a00:0:700::", vec!["10.0.0.7", "0.0.7.0", "0.7.0.0", "0.0.0.0"]),
            ("64:ff9b:1::a00:7", vec!["0.0.0.0", "0.0.0.0", "0.0.0.10", "10.0.0.7"]),
            ("::127.0.0.1", vec!["127.0.0.1"]),
            ("::1", vec![]),
            ("::", vec![]),
            ("2001:db8::7f00:1", vec![]),
        ] {
            let found: Vec<_> = forms(address.parse().unwrap()).skip(1).map(|form| form.to_string()).collect();
            assert_eq!(found, carried, "{address}");
        }
    }

    #[test]
    fn a_mapped_address_has_one_form_the_ipv4_address() {
        let found: Vec<_> = forms("::ffff:10.0.0.1".parse().unwrap()).map(|form| form.to_string()).collect();
        assert_eq!(found, ["10.0.0.1"]);
    }

    #[test]
    fn ranges_are_unembedded_with_their_length() {
        for (range, carried) in [
            ("64:ff9b::a00:0/104", vec!["10.0.0.0/8"]),
            ("64:ff9b::/96", vec!["0.0.0.0/0"]),
            ("2002:a00::/24", vec!["10.0.0.0/8"]),
            ("2002::/16", vec!["0.0.0.0/0"]),
            ("2002:a00:7::/64", vec!["10.0.0.7/32"]),
            ("2001:0:a00:1::/64", vec!["0.0.0.0/0", "10.0.0.1/32"]),
            ("2001::f5ff:ff00/120", vec!["10.0.0.0/24", "0.0.0.0/32"]),
            ("::/0", vec![]),
            ("2001:db8::/32", vec![]),
        ] {
            let found: Vec<_> = ranges(range.parse().unwrap()).map(|net| net.to_string()).collect();
            assert_eq!(found, carried, "{range}");
        }
    }
}
