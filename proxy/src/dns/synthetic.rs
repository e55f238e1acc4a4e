//! The synthetic addresses: which name an address stands for in this sandbox.
//!
//! Every name that is asked for gets a pair of addresses that stands for it and for nothing else (198.18.0.0/15 and 2001:2::/48, set
//! aside for benchmarks by RFC 2544 and RFC 5180, so that no real host is hidden by them). A connect to one of the two brings the
//! name back, and the name is what is judged.
//!
//! Listed and refused names have regions of their own. A program can ask for as many unlisted names as it likes: it fills the region
//! of the refused ones, and neither takes an address from a listed name nor makes one mean something else. An address is never given
//! to a second name while the sandbox lives. When a region is full, further names get none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use netbox_config::HostName;

/// How many listed names get addresses: 198.18.1.1 to 198.18.255.254 without the .0 and .255 of each /24.
pub const LISTED_CAPACITY: usize = 255 * 254;

/// How many refused names get addresses. Fewer than would fit, since anybody inside can make them up: with names of the greatest
/// length this is some 8 MiB.
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

    /// The addresses that stand for `name`, the same at every call; `None` when the region is full.
    ///
    /// `listed` says which region a new name goes to. A name that is known as refused and asked for as listed (the policy was
    /// widened) gets listed addresses from then on, and its old ones go on standing for it.
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

    /// The name that `address` stands for; `None` for any address that was not handed out.
    pub fn name_of(&self, address: IpAddr) -> Option<HostName> {
        let (kind, place) = place_of(address)?;
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let region = match kind {
            Kind::Listed => &names.listed,
            Kind::Refused => &names.refused,
        };
        region.order.get(place).cloned()
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
    fn place(&mut self, name: &HostName, capacity: usize) -> Option<usize> {
        if let Some(&place) = self.places.get(name) {
            return Some(place);
        }
        let place = self.order.len();
        if place >= capacity {
            return None;
        }
        self.order.push(name.clone());
        self.places.insert(name.clone(), place);
        Some(place)
    }
}

impl Kind {
    /// The first two octets of the region's IPv4 addresses, and the first third octet that is handed out. 198.18.0.0/24 is left for
    /// netbox's own use.
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
