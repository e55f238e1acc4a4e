//! The synthetic addresses: which name an address stands for in this sandbox.
//!
//! Every name that is asked for gets a pair of addresses that stands for it and for nothing else (198.18.0.0/15 and
//! 2001:2::/48, set aside for benchmarks by RFC 2544 and RFC 5180, so that no real host is hidden by them). A connect
//! to one of the two brings the name back, and the name is what is judged.
//!
//! Listed and refused names have regions of their own. A program can ask for as many unlisted names as it likes: it
//! fills the region of the refused ones, and neither takes an address from a listed name nor makes one mean something
//! else. An address is never given to a second name while the sandbox lives. When a region is full, further names get
//! none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use netbox_config::HostName;

/// How many listed names get addresses: 198.18.1.1 to 198.18.255.254 without the .0 and .255 of each /24.
pub const LISTED_CAPACITY: usize = 255 * 254;

/// How many refused names get addresses. Fewer than would fit, since anybody inside can make them up: with names of the
/// greatest length this is some 8 MiB.
pub const REFUSED_CAPACITY: usize = 64 * 254;

/// The names of one sandbox and their addresses.
pub struct SyntheticTable {
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    listed: Region,
    refused: Region,
}

/// The names of one region: the address follows from the place in `order`.
#[derive(Default)]
struct Region {
    /// The place of the first name.
    first: usize,
    order: Vec<HostName>,
    places: HashMap<HostName, usize>,
}

/// Which region an address lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Listed,
    Refused,
}

impl SyntheticTable {
    /// A table without names.
    #[must_use]
    pub fn new() -> Self {
        Self { names: Mutex::default() }
    }

    /// A table that leaves the first places of each region out: they stood for other names before, which are known no more.
    #[must_use]
    pub fn beginning_after(listed: usize, refused: usize) -> Self {
        let region = |first| Region { first, ..Region::default() };
        let names = Names { listed: region(listed), refused: region(refused) };
        Self { names: Mutex::new(names) }
    }

    /// How many places of the regions for listed and for refused names are taken, those that were left out among them.
    pub fn used(&self) -> (usize, usize) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        (names.listed.end(), names.refused.end())
    }

    /// The addresses that stand for `name`, the same at every call; `None` when the region is full.
    ///
    /// `listed` says which region a new name goes to. A name that is known as refused and asked for as listed (the
    /// policy was widened) gets listed addresses from then on, and its old ones go on standing for it.
    pub fn assign(&self, name: &HostName, listed: bool) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&place) = names.listed.places.get(name) {
            return Some(Kind::Listed.addresses(place));
        }
        if listed {
            return names.listed.place(name, LISTED_CAPACITY).map(|place| Kind::Listed.addresses(place));
        }
        names.refused.place(name, REFUSED_CAPACITY).map(|place| Kind::Refused.addresses(place))
    }

    /// Whether `name` has addresses as a listed one.
    pub fn knows(&self, name: &HostName) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).listed.places.contains_key(name)
    }

    /// The name that `address` stands for; `None` for any address that was not handed out.
    pub fn name_of(&self, address: IpAddr) -> Option<HostName> {
        let (kind, place) = place_of(address)?;
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let region = match kind {
            Kind::Listed => &names.listed,
            Kind::Refused => &names.refused,
        };
        region.order.get(place.checked_sub(region.first)?).cloned()
    }

    /// Whether `address` lies in the synthetic ranges, handed out or not.
    #[must_use]
    pub fn is_synthetic(address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => v4.octets()[0] == 198 && v4.octets()[1] & 0xfe == 18,
            IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 2, 0],
        }
    }
}

impl Default for SyntheticTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Region {
    /// The first place that is free.
    fn end(&self) -> usize {
        self.first.saturating_add(self.order.len())
    }

    fn place(&mut self, name: &HostName, capacity: usize) -> Option<usize> {
        if let Some(&place) = self.places.get(name) {
            return Some(place);
        }
        let place = self.end();
        if place >= capacity {
            return None;
        }
        self.order.push(name.clone());
        self.places.insert(name.clone(), place);
        Some(place)
    }
}

impl Kind {
    /// The first two octets of the region's IPv4 addresses, and the first third octet that is handed out. 198.18.0.0/24
    /// is left for netbox's own use.
    fn region(self) -> ([u8; 2], usize) {
        match self {
            Self::Listed => ([198, 18], 1),
            Self::Refused => ([198, 19], 1),
        }
    }

    /// The pair of a place: `a.b.c.d`, and `2001:2::1:` before the same 32 bits.
    fn addresses(self, place: usize) -> (Ipv4Addr, Ipv6Addr) {
        let ([a, b], first) = self.region();
        let (third, fourth) = (first + place / 254, 1 + place % 254);
        // Both fit an octet: `place` is below a capacity of at most 255 times 254.
        let v4 = Ipv4Addr::new(a, b, third as u8, fourth as u8);
        let [a, b, c, d] = v4.octets().map(u16::from);
        (v4, Ipv6Addr::new(0x2001, 2, 0, 0, 0, 1, a << 8 | b, c << 8 | d))
    }
}

/// The inverse of [`Kind::addresses`], for what may be an address of ours.
fn place_of(address: IpAddr) -> Option<(Kind, usize)> {
    let v4 = match address.to_canonical() {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(v6) => match v6.segments() {
            [0x2001, 2, 0, 0, 0, 1, high, low] => Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)),
            _ => return None,
        },
    };
    let [a, b, third, fourth] = v4.octets();
    let kind = [Kind::Listed, Kind::Refused].into_iter().find(|kind| kind.region().0 == [a, b])?;
    let row = usize::from(third).checked_sub(kind.region().1)?;
    let column = usize::from(fourth).checked_sub(1).filter(|&column| column < 254)?;
    Some((kind, row * 254 + column))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse_wire(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_address_brings_its_name_back() {
        let table = SyntheticTable::new();
        for (text, listed) in [("a.example", true), ("b.example", true), ("a.refused.example", false)] {
            let (v4, v6) = table.assign(&name(text), listed).unwrap();
            assert_eq!(table.name_of(v4.into()), Some(name(text)));
            assert_eq!(table.name_of(v6.into()), Some(name(text)));
            assert!(SyntheticTable::is_synthetic(v4.into()) && SyntheticTable::is_synthetic(v6.into()));
            assert_eq!(table.assign(&name(text), listed), Some((v4, v6)), "the same at every call");
        }
        assert_eq!(table.assign(&name("a.example"), true).unwrap().0, Ipv4Addr::new(198, 18, 1, 1));
        assert_eq!(
            table.assign(&name("a.example"), true).unwrap().1,
            "2001:2::1:c612:101".parse::<Ipv6Addr>().unwrap()
        );
    }

    /// D056: 198.18.77.77 was handed out to nobody.
    #[test]
    fn an_address_that_was_not_handed_out_has_no_name() {
        let table = SyntheticTable::new();
        table.assign(&name("a.example"), true).unwrap();
        table.assign(&name("a.refused.example"), false).unwrap();
        for address in [
            "198.18.77.77",
            "198.18.0.1",
            "198.18.0.0",
            "198.18.1.0",
            "198.18.1.2",
            "198.18.1.255",
            "198.19.0.1",
            "198.19.1.2",
            "198.19.255.255",
            "203.0.113.1",
            "198.17.1.1",
            "198.20.1.1",
            "2001:2::1",
            "2001:2::",
            "2001:2::1:c612:102",
            "2001:2::2:c612:101",
            "2001:2:0:1::c612:101",
            "2001:3::1:c612:101",
            "::c612:101",
        ] {
            assert_eq!(table.name_of(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn the_ranges_are_those_of_the_benchmarks() {
        for (address, synthetic) in [
            ("198.17.255.255", false),
            ("198.18.0.0", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
            ("2001:1:ffff::", false),
            ("2001:2::", true),
            ("2001:2:0:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:2:1::", false),
            ("::ffff:198.18.1.1", true),
            ("::ffff:203.0.113.1", false),
        ] {
            assert_eq!(SyntheticTable::is_synthetic(address.parse().unwrap()), synthetic, "{address}");
        }
    }

    #[test]
    fn refused_names_never_take_an_address_from_a_listed_one() {
        let table = SyntheticTable::new();
        let first = table.assign(&name("first.example"), true).unwrap();
        let refused =
            (0..70_000).filter_map(|number| table.assign(&name(&format!("n{number}.refused.example")), false));
        assert_eq!(refused.count(), REFUSED_CAPACITY);
        assert_eq!(table.assign(&name("one-more.refused.example"), false), None);
        assert_eq!(table.name_of(first.0.into()), Some(name("first.example")));
        assert!(table.assign(&name("second.example"), true).is_some());
        assert!(table.assign(&name("n0.refused.example"), false).is_some(), "those that have one keep it");
    }

    #[test]
    fn listed_names_keep_their_addresses_until_they_run_out() {
        let table = SyntheticTable::new();
        let pairs: Vec<_> =
            (0..70_000).map(|number| table.assign(&name(&format!("n{number}.example")), true)).collect();
        assert!(pairs[..LISTED_CAPACITY].iter().all(Option::is_some));
        assert!(pairs[LISTED_CAPACITY..].iter().all(Option::is_none));
        let given: HashSet<_> = pairs.iter().flatten().collect();
        assert_eq!(given.len(), LISTED_CAPACITY);
        assert!(given.iter().all(|(v4, _)| !matches!(v4.octets(), [.., 0 | 255] | [_, _, 0, _])));
        for (number, pair) in pairs.iter().enumerate().take(LISTED_CAPACITY) {
            let asked = name(&format!("n{number}.example"));
            assert_eq!(table.assign(&asked, true), *pair);
            assert_eq!(table.name_of(pair.unwrap().0.into()).as_ref(), Some(&asked));
        }
        assert!(table.assign(&name("refused.example"), false).is_some());
    }

    #[test]
    fn a_name_that_becomes_listed_moves_and_its_old_address_still_means_it() {
        let table = SyntheticTable::new();
        let before = table.assign(&name("a.example"), false).unwrap();
        let after = table.assign(&name("a.example"), true).unwrap();
        assert_ne!(before, after);
        assert_eq!(table.assign(&name("a.example"), false), Some(after));
        assert_eq!(table.name_of(before.0.into()), Some(name("a.example")));
        assert_eq!(table.name_of(after.1.into()), Some(name("a.example")));
    }

    proptest! {
        #[test]
        fn a_place_survives_the_way_to_an_address_and_back(place in 0..LISTED_CAPACITY, listed: bool) {
            let (kind, place) = if listed { (Kind::Listed, place) } else { (Kind::Refused, place % REFUSED_CAPACITY) };
            let (v4, v6) = kind.addresses(place);
            prop_assert!(place_of(v4.into()) == Some((kind, place)));
            prop_assert!(place_of(v6.into()) == Some((kind, place)));
        }

        #[test]
        fn an_empty_table_knows_no_address(v4: u32, v6: u128) {
            let table = SyntheticTable::new();
            prop_assert_eq!(table.name_of(Ipv4Addr::from(v4).into()), None);
            prop_assert_eq!(table.name_of(Ipv6Addr::from(v6).into()), None);
        }
    }
}
