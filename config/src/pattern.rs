//! The host part of a rule: one name, the names below one, every name, or a range of addresses.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::host::{parse_ipv4, parse_ipv6};
use crate::name::{HostName, NameError};
use crate::port::Port;
use crate::rule_error::{RuleFault, Wrong};
use crate::suffix::{self, SuffixKind};

/// Which hosts a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// `*`
    Every,
    /// `example.com`
    Exact(HostName),
    /// `*.example.com`: one label or more before it, not the name itself.
    Below(HostName),
    /// `.example.com`: the name itself and everything below.
    AtOrBelow(HostName),
    /// `10.0.0.0/8`, or one address as a range of one. Never IPv4-mapped; no bits beyond the prefix length.
    Range(IpNet),
}

impl HostPattern {
    /// Parses the host part of a rule, without scheme and ports. An IPv6 address may stand in brackets; its prefix length
    /// then stands inside or behind them.
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        if text == "*" {
            return Ok(Self::Every);
        }
        if let Some(inside) = text.strip_prefix('[') {
            return parse_bracketed(inside).map_err(|wrong| wrong.shift(1)).map(Self::Range);
        }
        if let Some((before, length)) = text.split_once('/') {
            if let Some(address) = parse_ip(before) {
                return parse_range(address, Some((length, before.len() + 1))).map(Self::Range);
            }
            Self::parse(before)?;
            return Err(Wrong::new(before.len(), RuleFault::Path).hint(format!("write `{before}`")));
        }
        if let Some(base) = text.strip_prefix("*.") {
            return parse_base(base).map_err(|wrong| wrong.shift(2)).map(Self::Below);
        }
        if let Some(base) = text.strip_prefix('.') {
            return parse_base(base).map_err(|wrong| wrong.shift(1)).map(Self::AtOrBelow);
        }
        if let Some(at) = text.find('*') {
            return Err(misplaced_star(text, at));
        }
        match parse_ip(text) {
            Some(address) => parse_range(address, None).map(Self::Range),
            None => parse_name(text).map(Self::Exact),
        }
    }
}

impl fmt::Display for HostPattern {
    /// As in a rule, in canonical form; an IPv6 address or range in brackets, a range of one as the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("*"),
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::AtOrBelow(name) => write!(f, ".{name}"),
            Self::Range(range) => match (range, range.prefix_len() == range.max_prefix_len()) {
                (IpNet::V4(range), true) => write!(f, "{}", range.addr()),
                (IpNet::V4(range), false) => write!(f, "{range}"),
                (IpNet::V6(range), true) => write!(f, "[{}]", range.addr()),
                (IpNet::V6(range), false) => write!(f, "[{range}]"),
            },
        }
    }
}

pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    parse_ipv4(text.as_bytes()).map(IpAddr::V4).or_else(|| parse_ipv6(text.as_bytes()).map(IpAddr::V6))
}

/// What a wildcard is over.
fn parse_base(base: &str) -> Result<HostName, Wrong> {
    if base.is_empty() || base == "." {
        return Err(Wrong::new(0, RuleFault::NoBase).hint("write `*.example.com`, or `*` for every host".to_owned()));
    }
    if let Some(at) = base.find('*') {
        return Err(misplaced_star(base, at));
    }
    let name = HostName::parse_rule(base);
    if parse_ip(base).is_some() || base.starts_with('[') || matches!(name, Err(NameError::Numeric)) {
        let hint = "write a range with a prefix length: `10.0.0.0/8`";
        return Err(Wrong::new(0, RuleFault::WildcardAddress).hint(hint.to_owned()));
    }
    name.map_err(|error| wrong_name(base, error))
}

fn misplaced_star(text: &str, at: usize) -> Wrong {
    let behind = text[at + 1..].trim_start_matches('.');
    let hint = match HostName::parse_rule(behind) {
        // Not a hint that would be refused in turn: `*.*.com`.
        Ok(name) if at == 0 && suffix::kind(name.as_str()) != SuffixKind::Icann => {
            format!("write `*.{name}` for the names below it, `.{name}` for it and the names below it")
        }
        _ => "write it at the beginning only, and a dot behind it: `*.example.com`".to_owned(),
    };
    Wrong::new(at, RuleFault::Wildcard).hint(hint)
}

fn parse_name(text: &str) -> Result<HostName, Wrong> {
    HostName::parse_rule(text).map_err(|error| wrong_name(text, error))
}

fn wrong_name(text: &str, error: NameError) -> Wrong {
    let at = error.at();
    match error {
        NameError::Numeric => numeric(text),
        NameError::Lookalike { ref plain, .. } => {
            let hint = format!("write `{plain}`");
            Wrong::new(at, error.into()).hint(hint)
        }
        NameError::Character { character: ',', .. } => {
            Wrong::new(at, RuleFault::List).hint("write a rule for each host".to_owned())
        }
        NameError::Character { character: '%', .. } if text.contains(':') => Wrong::new(at, RuleFault::Zone),
        NameError::Character { character: '[' | ']', .. } => Wrong::new(at, RuleFault::Brackets),
        _ => Wrong::new(at, error.into()),
    }
}

/// What is neither an address nor a name because it ends in a number.
fn numeric(text: &str) -> Wrong {
    if let Some((low, high)) = text.split_once('-')
        && parse_ip(low).is_some()
        && parse_ip(high).is_some()
    {
        return Wrong::new(0, RuleFault::AddressRange).hint("write `10.0.0.0/24`, or each address alone".to_owned());
    }
    let hint = match Port::parse(text.as_bytes()) {
        Ok(port) => format!("write a port behind its host: `example.com:{port}`"),
        Err(_) => "write four decimal numbers without leading zeros: `127.0.0.1`".to_owned(),
    };
    Wrong::new(0, RuleFault::NumericHost).hint(hint)
}

/// What follows an opening bracket: `v6]`, `v6/len]` or `v6]/len`.
fn parse_bracketed(inside: &str) -> Result<IpNet, Wrong> {
    let brackets = || Wrong::new(0, RuleFault::Brackets);
    let (inside, behind) = inside.split_once(']').ok_or_else(brackets)?;
    let (address, length) = match (inside.split_once('/'), behind.strip_prefix('/')) {
        (None, None) if behind.is_empty() => (inside, None),
        (Some((address, length)), None) if behind.is_empty() => (address, Some((length, address.len() + 1))),
        (None, Some(length)) => (inside, Some((length, inside.len() + 2))),
        _ => return Err(brackets()),
    };
    if let Some(at) = address.find('%') {
        return Err(Wrong::new(at, RuleFault::Zone).hint("write the address without it".to_owned()));
    }
    let Some(ip) = parse_ipv6(address.as_bytes()) else {
        let bare = HostName::parse_rule(address).is_ok() || parse_ip(address).is_some();
        return Err(brackets().hint(bare.then(|| format!("write `{address}`"))));
    };
    parse_range(ip.into(), length)
}

/// The range of an address and, if one is written, a prefix length with its place.
fn parse_range(address: IpAddr, length: Option<(&str, usize)>) -> Result<IpNet, Wrong> {
    let (max, example) = if address.is_ipv4() { (32, "10.0.0.0/8") } else { (128, "[2001:db8::/32]") };
    let (length, at) = match length {
        None => (max, 0),
        Some((text, at)) => match parse_length(text, max) {
            Some(length) => (length, at),
            None => {
                let fault = RuleFault::PrefixLength { text: text.to_owned(), max };
                return Err(Wrong::new(at, fault).hint(format!("write a number: `{example}`")));
            }
        },
    };
    // The length is at most that of the family.
    let range = IpNet::new(address, length).map_or(IpNet::from(address), |range| range);
    if let Some(ipv4) = mapped(range) {
        let shown = HostPattern::Range(ipv4.into());
        return Err(Wrong::new(0, RuleFault::Mapped).hint(format!("write `{shown}`")));
    }
    if range.addr() != range.network() {
        let (shown, one) = (HostPattern::Range(range.trunc()), HostPattern::Range(address.into()));
        let hint = format!("write `{shown}` for the range, `{one}` for the address");
        return Err(Wrong::new(at, RuleFault::HostBits).hint(hint));
    }
    Ok(range)
}

/// Decimal digits without sign or leading zero.
fn parse_length(text: &str, max: u8) -> Option<u8> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|length| plain && *length <= max)
}

/// The IPv4 range that an IPv4-mapped range is.
fn mapped(range: IpNet) -> Option<Ipv4Net> {
    let IpNet::V6(range) = range else { return None };
    let length = range.prefix_len().checked_sub(96)?;
    let ipv4 = Ipv6Net::trunc(&range).addr().to_ipv4_mapped()?;
    Ipv4Net::new(ipv4, length).ok()
}
