//! The class of every address: public, or one of the many kinds that are not.
//!
//! The guard refuses addresses that are not public unless a rule names them. The table below is that list. It is matched
//! by the longest prefix, so an entry may hold exceptions. Sources: the IANA special-purpose registries for IPv4 and
//! IPv6 (RFC 6890 and its updates), the IPv6 address space registry, and for metadata services the providers' manuals.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::embedded;

/// What kind of address it is. All but [`AddressClass::Public`] are refused unless a rule names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressClass {
    /// Reached over the Internet, as far as the address tells. Documentation ranges are routed nowhere and count as
    /// public.
    Public,
    /// `0.0.0.0` and `::`. Linux connects to the host itself.
    Unspecified,
    /// `127.0.0.0/8` and `::1`.
    Loopback,
    /// RFC 1918.
    Private,
    /// Shared address space between a provider and its customers, RFC 6598.
    Cgnat,
    /// `169.254.0.0/16` and `fe80::/10`.
    LinkLocal,
    /// The address of a cloud provider's metadata or credential service, wherever it lies. A range around it does not
    /// name it; a rule for exactly that address does.
    Metadata,
    /// `fc00::/7`, RFC 4193.
    UniqueLocal,
    /// `fec0::/10`, deprecated by RFC 3879.
    SiteLocal,
    /// `224.0.0.0/4` and `ff00::/8`.
    Multicast,
    /// `198.18.0.0/15` and `2001:2::/48`: benchmarks (RFC 2544, RFC 5180), and the addresses that netbox answers inside a
    /// sandbox.
    Synthetic,
    /// Set aside by IANA for other ends, or not assigned yet.
    Reserved,
    /// Public by itself, and in a network that the host is attached to: see
    /// [`HostFacts::on_link`](crate::HostFacts::on_link). [`classify`] never gives this one, since it depends on the host.
    OnLink,
}

/// The class of an address by itself.
///
/// An IPv6 address that carries an IPv4 address (IPv4-mapped, IPv4-translated, NAT64, 6to4, Teredo) has the class of that
/// one if it is not public; `64:ff9b:1::/48` is never public.
pub fn classify(address: IpAddr) -> AddressClass {
    class_of_range(address.to_canonical().into())
}

/// The class of a range: the one class that all of it lies in, exceptions inside left aside, or
/// [`AddressClass::Public`] where it lies in no single one.
pub(crate) fn class_of_range(range: IpNet) -> AddressClass {
    match range {
        IpNet::V4(range) => class_of_ipv4(range),
        IpNet::V6(range) => embedded::ranges(range)
            .map(class_of_ipv4)
            .find(|class| *class != AddressClass::Public)
            .unwrap_or_else(|| longest(IPV6, |entry| entry.contains(&range), Ipv6Net::prefix_len)),
    }
}

/// Whether some address that is not public lies in the range, although the range names no class.
pub(crate) fn is_mixed(range: IpNet) -> bool {
    class_of_range(range) == AddressClass::Public
        && match range {
            IpNet::V4(range) => IPV4.iter().any(|(entry, _)| range.contains(entry)),
            IpNet::V6(range) => {
                IPV6.iter().any(|(entry, class)| *class != AddressClass::Public && range.contains(entry))
            }
        }
}

fn class_of_ipv4(range: Ipv4Net) -> AddressClass {
    longest(IPV4, |entry| entry.contains(&range), Ipv4Net::prefix_len)
}

fn longest<N>(table: &[(N, AddressClass)], covers: impl Fn(&N) -> bool, length: impl Fn(&N) -> u8) -> AddressClass {
    let entry = table.iter().filter(|(entry, _)| covers(entry)).max_by_key(|(entry, _)| length(entry));
    entry.map_or(AddressClass::Public, |(_, class)| *class)
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8, class: AddressClass) -> (Ipv4Net, AddressClass) {
    (Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length), class)
}

const IPV4: &[(Ipv4Net, AddressClass)] = &[
    v4(0, 0, 0, 0, 32, AddressClass::Unspecified),
    // "This network", RFC 791 §3.2.
    v4(0, 0, 0, 0, 8, AddressClass::Reserved),
    v4(10, 0, 0, 0, 8, AddressClass::Private),
    v4(100, 64, 0, 0, 10, AddressClass::Cgnat),
    // Alibaba Cloud.
    v4(100, 100, 100, 200, 32, AddressClass::Metadata),
    v4(127, 0, 0, 0, 8, AddressClass::Loopback),
    v4(169, 254, 0, 0, 16, AddressClass::LinkLocal),
    // Tencent Cloud.
    v4(169, 254, 0, 23, 32, AddressClass::Metadata),
    // Scaleway.
    v4(169, 254, 42, 42, 32, AddressClass::Metadata),
    // Amazon: the resolver and the metadata service's neighbours; most others use .169.254 too.
    v4(169, 254, 169, 253, 32, AddressClass::Metadata),
    v4(169, 254, 169, 254, 32, AddressClass::Metadata),
    // Amazon: credentials of ECS tasks and EKS pods.
    v4(169, 254, 170, 2, 32, AddressClass::Metadata),
    v4(169, 254, 170, 23, 32, AddressClass::Metadata),
    // Azure's WireServer, in public space.
    v4(168, 63, 129, 16, 32, AddressClass::Metadata),
    v4(172, 16, 0, 0, 12, AddressClass::Private),
    // IETF protocol assignments, RFC 6890.
    v4(192, 0, 0, 0, 24, AddressClass::Reserved),
    // Oracle Cloud Classic.
    v4(192, 0, 0, 192, 32, AddressClass::Metadata),
    // 6to4 relays, RFC 7526: whichever relay is nearest.
    v4(192, 88, 99, 0, 24, AddressClass::Reserved),
    v4(192, 168, 0, 0, 16, AddressClass::Private),
    v4(198, 18, 0, 0, 15, AddressClass::Synthetic),
    v4(224, 0, 0, 0, 4, AddressClass::Multicast),
    // RFC 1112 §4, and limited broadcast.
    v4(240, 0, 0, 0, 4, AddressClass::Reserved),
];

const fn v6(segments: [u16; 4], rest: [u16; 4], length: u8, class: AddressClass) -> (Ipv6Net, AddressClass) {
    let ([a, b, c, d], [e, f, g, h]) = (segments, rest);
    (Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length), class)
}

/// Only `2000::/3` is given out as global unicast; each block of the rest is an entry of its own, so that a rule for
/// `::/0` lies in none.
const IPV6: &[(Ipv6Net, AddressClass)] = &[
    v6([0; 4], [0; 4], 8, AddressClass::Reserved),
    v6([0; 4], [0; 4], 128, AddressClass::Unspecified),
    v6([0; 4], [0, 0, 0, 1], 128, AddressClass::Loopback),
    // NAT64: as public as the address that it carries.
    v6([0x64, 0xff9b, 0, 0], [0; 4], 96, AddressClass::Public),
    v6([0x64, 0xff9b, 1, 0], [0; 4], 48, AddressClass::Reserved),
    v6([0x100, 0, 0, 0], [0; 4], 8, AddressClass::Reserved),
    v6([0x200, 0, 0, 0], [0; 4], 7, AddressClass::Reserved),
    v6([0x400, 0, 0, 0], [0; 4], 6, AddressClass::Reserved),
    v6([0x800, 0, 0, 0], [0; 4], 5, AddressClass::Reserved),
    v6([0x1000, 0, 0, 0], [0; 4], 4, AddressClass::Reserved),
    // IETF protocol assignments, RFC 2928: ORCHIDs, anycast services.
    v6([0x2001, 0, 0, 0], [0; 4], 23, AddressClass::Reserved),
    // Teredo: as public as the addresses that it carries.
    v6([0x2001, 0, 0, 0], [0; 4], 32, AddressClass::Public),
    v6([0x2001, 2, 0, 0], [0; 4], 48, AddressClass::Synthetic),
    v6([0x4000, 0, 0, 0], [0; 4], 3, AddressClass::Reserved),
    v6([0x6000, 0, 0, 0], [0; 4], 3, AddressClass::Reserved),
    v6([0x8000, 0, 0, 0], [0; 4], 3, AddressClass::Reserved),
    v6([0xa000, 0, 0, 0], [0; 4], 3, AddressClass::Reserved),
    v6([0xc000, 0, 0, 0], [0; 4], 3, AddressClass::Reserved),
    v6([0xe000, 0, 0, 0], [0; 4], 4, AddressClass::Reserved),
    v6([0xf000, 0, 0, 0], [0; 4], 5, AddressClass::Reserved),
    v6([0xf800, 0, 0, 0], [0; 4], 6, AddressClass::Reserved),
    v6([0xfc00, 0, 0, 0], [0; 4], 7, AddressClass::UniqueLocal),
    // Scaleway.
    v6([0xfd00, 0x42, 0, 0], [0, 0, 0, 0x42], 128, AddressClass::Metadata),
    // Amazon: metadata, the resolver, credentials of EKS pods.
    v6([0xfd00, 0xec2, 0, 0], [0, 0, 0, 0x23], 128, AddressClass::Metadata),
    v6([0xfd00, 0xec2, 0, 0], [0, 0, 0, 0x253], 128, AddressClass::Metadata),
    v6([0xfd00, 0xec2, 0, 0], [0, 0, 0, 0x254], 128, AddressClass::Metadata),
    // Google Cloud.
    v6([0xfd20, 0xce, 0, 0], [0, 0, 0, 0x254], 128, AddressClass::Metadata),
    v6([0xfe00, 0, 0, 0], [0; 4], 9, AddressClass::Reserved),
    v6([0xfe80, 0, 0, 0], [0; 4], 10, AddressClass::LinkLocal),
    // OpenStack.
    v6([0xfe80, 0, 0, 0], [0, 0, 0xa9fe, 0xa9fe], 128, AddressClass::Metadata),
    v6([0xfec0, 0, 0, 0], [0; 4], 10, AddressClass::SiteLocal),
    v6([0xff00, 0, 0, 0], [0; 4], 8, AddressClass::Multicast),
];

#[cfg(test)]
mod tests {
    use super::AddressClass::*;
    use super::*;

    #[test]
    fn every_address_has_its_class() {
        for (address, class) in [
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Reserved),
            ("9.255.255.255", Public),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("11.0.0.0", Public),
            ("100.63.255.255", Public),
            ("100.64.0.0", Cgnat),
            ("100.127.255.255", Cgnat),
            ("100.128.0.0", Public),
            ("100.100.100.200", Metadata),
            ("127.0.0.1", Loopback),
            ("127.255.255.255", Loopback),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("168.63.129.16", Metadata),
            ("168.63.129.17", Public),
            ("172.15.255.255", Public),
            ("172.16.0.0", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.0.0.8", Reserved),
            ("192.0.0.192", Metadata),
            ("192.0.2.1", Public),
            ("192.168.0.1", Private),
            ("198.17.255.255", Public),
            ("198.18.0.1", Synthetic),
            ("198.19.255.255", Synthetic),
            ("198.20.0.0", Public),
            ("198.51.100.1", Public),
            ("203.0.113.10", Public),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Reserved),
            ("::127.0.0.1", Reserved),
            ("100::1", Reserved),
            ("1fff:ffff::", Reserved),
            ("2000::1", Public),
            ("2001:db8::1", Public),
            ("2001:2::1", Synthetic),
            ("2001:2:1::1", Reserved),
            ("2001:20::1", Reserved),
            ("2001:200::1", Public),
            ("2606:4700::1", Public),
            ("3fff::1", Public),
            ("4000::1", Reserved),
            ("5f00::1", Reserved),
            ("fc00::1", UniqueLocal),
            ("fdff::1", UniqueLocal),
            ("fd00:ec2::254", Metadata),
            ("fe80::1", LinkLocal),
            ("fe80::a9fe:a9fe", Metadata),
            ("fec0::1", SiteLocal),
            ("ff02::1", Multicast),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:203.0.113.10", Public),
            ("::ffff:0:127.0.0.1", Loopback),
            ("::ffff:0:203.0.113.10", Reserved),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("64:ff9b::203.0.113.10", Public),
            ("64:ff9b:1::203.0.113.10", Reserved),
            ("64:ff9b:2::1", Reserved),
            ("2002:7f00:1::", Loopback),
            ("2002:a9fe:a9fe::", Metadata),
            ("2002:a00:7::1", Private),
            ("2002:cb00:710a::1", Public),
            ("2001:0:0:0:0:0:80ff:fffe", Loopback),
            ("2001:0:a00:1:0:0:34ff:8ef5", Private),
            ("2001:0:cb00:7101:0:0:34ff:8ef5", Public),
        ] {
            assert_eq!(classify(address.parse().unwrap()), class, "{address}");
        }
    }

    #[test]
    fn the_end_of_every_entry_has_its_class_or_an_exceptions() {
        for (entry, class) in IPV4 {
            assert_eq!(class_of_range(IpNet::V4(*entry)), *class, "{entry}");
        }
        for (entry, class) in IPV6 {
            assert_eq!(class_of_range(IpNet::V6(*entry)), *class, "{entry}");
        }
    }

    #[test]
    fn a_range_has_a_class_only_if_all_of_it_lies_in_one() {
        for (range, class, mixed) in [
            ("10.0.0.0/8", Private, false),
            ("10.1.0.0/16", Private, false),
            ("10.0.0.0/7", Public, true),
            ("0.0.0.0/0", Public, true),
            ("0.0.0.0/8", Reserved, false),
            ("169.254.0.0/16", LinkLocal, false),
            ("169.254.169.254/32", Metadata, false),
            ("168.63.0.0/16", Public, true),
            ("172.16.0.0/11", Public, true),
            ("203.0.113.0/24", Public, false),
            ("::/0", Public, true),
            ("::/8", Reserved, false),
            ("2000::/3", Public, true),
            ("fc00::/6", Public, true),
            ("fd00::/8", UniqueLocal, false),
            ("2002:a00::/24", Private, false),
            ("2002::/16", Public, false),
            ("64:ff9b::a00:0/104", Private, false),
            ("64:ff9b::/96", Public, false),
            ("64:ff9b:1::/48", Reserved, false),
        ] {
            let range: IpNet = range.parse().unwrap();
            assert_eq!((class_of_range(range), is_mixed(range)), (class, mixed), "{range}");
        }
    }
}
