//! The policy once more, slow and by other means: every rule is asked, names are lists of labels, addresses are numbers,
//! and what class an address or a range has is written down by hand.

use std::net::IpAddr;

use netbox_config::{HostFacts, Mode, Reason};

/// An address with its class and the IPv4 addresses that it carries.
pub struct Address {
    pub text: &'static str,
    pub class: &'static str,
    pub carries: &'static [&'static str],
}

/// A range with the class that all of it lies in, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub text: &'static str,
    pub class: &'static str,
}

const fn address(text: &'static str, class: &'static str, carries: &'static [&'static str]) -> Address {
    Address { text, class, carries }
}

const fn range(text: &'static str, class: &'static str) -> Range {
    Range { text, class }
}

pub const ADDRESSES: &[Address] = &[
    address("203.0.113.10", "public", &[]),
    address("203.0.113.11", "public", &[]),
    address("198.51.100.1", "public", &[]),
    address("10.0.0.7", "private", &[]),
    address("10.9.9.9", "private", &[]),
    address("192.168.0.7", "private", &[]),
    address("127.0.0.1", "loopback", &[]),
    address("169.254.1.1", "link", &[]),
    address("169.254.169.254", "metadata", &[]),
    address("168.63.129.16", "metadata", &[]),
    address("2001:db8::1", "public", &[]),
    address("fd00::1", "unique-local", &[]),
    address("fd00:ec2::254", "metadata", &[]),
    address("::1", "loopback", &[]),
    address("64:ff9b::a00:7", "private", &["10.0.0.7"]),
    address("64:ff9b::cb00:710a", "public", &["203.0.113.10"]),
    address("2002:a00:7::1", "private", &["10.0.0.7"]),
    address("::ffff:0:a00:7", "private", &["10.0.0.7"]),
];

pub const RANGES: &[Range] = &[
    range("0.0.0.0/0", "none"),
    range("203.0.113.0/24", "none"),
    range("203.0.113.10/32", "none"),
    range("198.51.100.0/25", "none"),
    range("10.0.0.0/8", "private"),
    range("10.0.0.7/32", "private"),
    range("192.168.0.0/15", "none"),
    range("192.168.0.0/16", "private"),
    range("127.0.0.0/8", "loopback"),
    range("169.254.0.0/16", "link"),
    range("169.254.169.254/32", "metadata"),
    range("168.0.0.0/8", "none"),
    range("::/0", "none"),
    range("2001:db8::/32", "none"),
    range("fd00::/8", "unique-local"),
    range("fd00:ec2::254/128", "metadata"),
    range("64:ff9b::/96", "none"),
    range("64:ff9b::a00:0/104", "private"),
    range("2002:a00::/24", "private"),
    range("2002:a00:7::1/128", "private"),
];

#[derive(Clone, Debug)]
pub enum Pattern {
    Every,
    Exact(Vec<&'static str>),
    Below(Vec<&'static str>),
    AtOrBelow(Vec<&'static str>),
    Range(Range),
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub pattern: Pattern,
    pub ports: Option<Vec<(u16, u16)>>,
}

pub struct World<'a> {
    pub mode: Mode,
    pub allow: &'a [Spec],
    pub deny: &'a [Spec],
    pub ceilings: &'a [Vec<Spec>],
    pub facts: &'a HostFacts,
}

impl Spec {
    pub fn text(&self) -> String {
        let host = match &self.pattern {
            Pattern::Every => "*".to_owned(),
            Pattern::Exact(labels) => labels.join("."),
            Pattern::Below(labels) => format!("*.{}", labels.join(".")),
            Pattern::AtOrBelow(labels) => format!(".{}", labels.join(".")),
            Pattern::Range(range) if range.text.contains(':') => format!("[{}]", range.text),
            Pattern::Range(range) => range.text.to_owned(),
        };
        match &self.ports {
            None => host,
            Some(ports) => {
                let ports: Vec<_> = ports.iter().map(|(low, high)| format!("{low}-{high}")).collect();
                format!("{host}:{}", ports.join(","))
            }
        }
    }

    fn has_name(&self, name: &[&str]) -> bool {
        match &self.pattern {
            Pattern::Every => true,
            Pattern::Exact(labels) => name == labels,
            Pattern::Below(labels) => name.len() > labels.len() && name.ends_with(labels),
            Pattern::AtOrBelow(labels) => name.ends_with(labels),
            Pattern::Range(_) => false,
        }
    }

    fn has_address(&self, address: &str) -> bool {
        matches!(&self.pattern, Pattern::Range(range) if is_in(address, range.text))
    }

    fn has_port(&self, port: u16, unwritten: &[(u16, u16)]) -> bool {
        self.ports.as_deref().unwrap_or(unwritten).iter().any(|(low, high)| *low <= port && port <= *high)
    }

    fn allows_port(&self, port: u16) -> bool {
        self.has_port(port, &[(80, 80), (443, 443)])
    }

    fn denies_port(&self, port: u16) -> bool {
        self.has_port(port, &[(1, 65535)])
    }
}

impl World<'_> {
    /// The reason of the decision about a name.
    pub fn name(&self, name: &[&str], port: u16) -> Reason {
        if self.mode == Mode::None {
            return Reason::ModeNone;
        }
        if self.deny.iter().any(|spec| spec.has_name(name) && spec.denies_port(port)) {
            return Reason::Denied;
        }
        if !self.is_name_inside(name, port) {
            return Reason::Denied;
        }
        let covering: Vec<_> = self.allow.iter().filter(|spec| spec.has_name(name)).collect();
        match self.mode {
            Mode::Open => Reason::Open,
            _ if covering.iter().any(|spec| spec.allows_port(port)) => Reason::Listed,
            Mode::Audit => Reason::Audit,
            _ if covering.is_empty() => Reason::NotListed,
            _ => Reason::PortNotListed,
        }
    }

    /// The reason of the decision about an address.
    pub fn address(&self, address: &Address, port: u16) -> Reason {
        if self.mode == Mode::None {
            return Reason::ModeNone;
        }
        if let Some(reason) = self.never(address, port) {
            return reason;
        }
        if !self.is_address_inside(address, port) {
            return Reason::Denied;
        }
        let covering: Vec<_> = self.allow.iter().filter(|spec| spec.has_address(address.text)).collect();
        let on_port: Vec<_> = covering.iter().filter(|spec| spec.allows_port(port)).collect();
        let public = self.is_public(address);
        match self.mode {
            Mode::Open => self.guard(address, port).unwrap_or(Reason::Open),
            _ if public && !on_port.is_empty() => Reason::Listed,
            _ if on_port.iter().any(|spec| self.names(spec, address)) => Reason::Listed,
            _ if !on_port.is_empty() => Reason::NonPublic,
            Mode::Audit if public => Reason::Audit,
            Mode::Audit => Reason::NonPublic,
            _ if covering.is_empty() => Reason::AddressNotListed,
            _ => Reason::PortNotListed,
        }
    }

    /// Why an address of a permitted name is refused.
    pub fn vet(&self, address: &Address, port: u16) -> Option<Reason> {
        let opened = !self.is_public(address) || self.is_own(address);
        let outside = || (opened && !self.is_address_inside(address, port)).then_some(Reason::Denied);
        self.never(address, port).or_else(outside).or_else(|| self.guard(address, port))
    }

    /// Whether some port of a name may be allowed.
    pub fn may_resolve(&self, name: &[&str]) -> bool {
        // What holds at one port holds up to the next at which some rule begins or has ended.
        let lists = [self.allow, self.deny].into_iter().chain(self.ceilings.iter().map(Vec::as_slice));
        let ranges = lists.flatten().filter_map(|spec| spec.ports.as_ref()).flatten();
        let ports = ranges.flat_map(|(low, high)| [*low, high.saturating_add(1)]).chain([1, 80, 81, 443, 444]);
        let is_good = |reason| matches!(reason, Reason::Listed | Reason::Open | Reason::Audit);
        ports.into_iter().any(|port| is_good(self.name(name, port)))
    }

    pub fn is_name_inside(&self, name: &[&str], port: u16) -> bool {
        let inside = |spec: &Spec| spec.has_name(name) && spec.allows_port(port);
        self.ceilings.iter().all(|ceiling| ceiling.iter().any(inside))
    }

    pub fn is_address_inside(&self, address: &Address, port: u16) -> bool {
        let inside = |spec: &Spec| spec.has_address(address.text) && spec.allows_port(port);
        self.ceilings.iter().all(|ceiling| ceiling.iter().any(inside))
    }

    fn guard(&self, address: &Address, port: u16) -> Option<Reason> {
        let named = || self.allow.iter().any(|spec| spec.allows_port(port) && self.names(spec, address));
        if self.is_public(address) || named() {
            return None;
        }
        match self.mode {
            Mode::Open if ["loopback", "unspecified"].contains(&address.class) => Some(Reason::SelfAddress),
            Mode::Open => None,
            _ => Some(Reason::NonPublic),
        }
    }

    fn never(&self, address: &Address, port: u16) -> Option<Reason> {
        let forms: Vec<_> = std::iter::once(&address.text).chain(address.carries).copied().collect();
        if self.facts.listeners.iter().any(|at| forms.contains(&at.ip().to_string().as_str()) && at.port() == port) {
            return Some(Reason::SelfAddress);
        }
        let denied = |spec: &Spec| {
            spec.denies_port(port)
                && (matches!(spec.pattern, Pattern::Every) || forms.iter().any(|form| spec.has_address(form)))
        };
        if self.deny.iter().any(denied) {
            return Some(Reason::Denied);
        }
        let exactly = |spec: &Spec| {
            let one = matches!(&spec.pattern, Pattern::Range(range) if range.text.ends_with(if range.text.contains(':') { "/128" } else { "/32" }));
            one && spec.has_address(address.text) && spec.allows_port(port)
        };
        (self.is_own(address) && !self.allow.iter().any(exactly)).then_some(Reason::SelfAddress)
    }

    fn is_own(&self, address: &Address) -> bool {
        let mut forms = std::iter::once(&address.text).chain(address.carries);
        address.class != "loopback" && forms.any(|form| self.facts.own.iter().any(|own| own.to_string() == *form))
    }

    fn is_public(&self, address: &Address) -> bool {
        address.class == "public" && self.on_link(address).is_empty()
    }

    fn on_link(&self, address: &Address) -> Vec<String> {
        let prefixes = self.facts.on_link.iter().map(|prefix| prefix.to_string());
        prefixes
            .filter(|prefix| is_in(address.text, prefix) || address.carries.iter().any(|v4| is_in(v4, prefix)))
            .collect()
    }

    fn names(&self, spec: &Spec, address: &Address) -> bool {
        let Pattern::Range(range) = &spec.pattern else { return false };
        if !spec.has_address(address.text) {
            return false;
        }
        if address.class != "public" {
            return range.class == address.class;
        }
        // Of the ranges above, those with a length of at least that of the prefix and an address in it lie within it.
        let (base, length) = range.text.split_once('/').unwrap();
        let within = |prefix: &String| {
            is_in(base, prefix) && length.parse::<u8>().unwrap() >= prefix.split_once('/').unwrap().1.parse().unwrap()
        };
        self.on_link(address).iter().any(within)
    }
}

/// Whether an address lies in a range of its own family, bit by bit.
fn is_in(address: &str, range: &str) -> bool {
    let (base, length) = range.split_once('/').unwrap();
    let bits = |text: &str| -> Vec<bool> {
        let octets = match text.parse().unwrap() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 == 1)).collect()
    };
    let (address, base, length) = (bits(address), bits(base), length.parse::<usize>().unwrap());
    address.len() == base.len() && address[..length] == base[..length]
}

/// Whether an IPv4 address is not public, by what the standard library and the RFCs say, without the crate's table.
pub fn is_special(address: std::net::Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || [a, b, c] == [192, 0, 0]
        || [a, b, c] == [192, 88, 99]
        || address.octets() == [168, 63, 129, 16]
}
