//! The proof that one policy allows nothing that another refuses.
//!
//! It is a proof by rules, not by targets: each thing that could let something pass is held against what lets it pass in the
//! other policy. What takes more than that (three rules that together cover a fourth, a range that no rule has) is not
//! proved, and a file that is not proved to narrow needs trust, which is no harm.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::address::{AddressClass, class_of_range};
use crate::ceiling::Ceiling;
use crate::compiled::Compiled;
use crate::ech::Ech;
use crate::mode::Mode;
use crate::pattern::HostPattern;
use crate::policy::Policy;
use crate::rule::Rule;

impl Compiled {
    /// Whether it is proved that this policy allows nothing which `outer` refuses. Where that is not plain to see, it is
    /// not proved.
    pub fn narrows(&self, outer: &Compiled) -> bool {
        self.policy().narrows(outer.policy())
    }
}

impl Policy {
    /// See [`Compiled::narrows`].
    pub(crate) fn narrows(&self, outer: &Policy) -> bool {
        let denied: HashSet<_> = self.deny().iter().map(denies).collect();
        let ceilings: HashSet<_> = self.ceilings().iter().map(admits).collect();
        self.mode() == Mode::None
            || !self.mode().is_wider_than(outer.mode())
                && outer.deny().iter().all(|rule| denied.contains(&denies(rule)))
                && (outer.ech() == Ech::Allow || self.ech() == Ech::Refuse)
                && outer.ceilings().iter().all(|ceiling| ceilings.contains(&admits(ceiling)))
                && self.allow().iter().all(|rule| outer.covers(rule))
    }

    /// Whether whatever this allow rule does, rules of this policy do as well: let its hosts pass on its ports, with their
    /// first bytes unseen, and lift the guard.
    fn covers(&self, rule: &Rule) -> bool {
        let is_name = !matches!(rule.pattern(), HostPattern::Range(_));
        if is_name && !rule.is_raw() && matches!(self.mode(), Mode::Audit | Mode::Open) {
            // Every name passes there, and a rule for names does nothing else.
            return true;
        }
        let around = |place: &usize| {
            let own = &self.allow()[*place];
            is_around(own.pattern(), rule.pattern()) && (own.is_raw() || !rule.is_raw())
        };
        let places: Vec<_> = match rule.pattern() {
            HostPattern::Every => self.allow_index.of_every().filter(around).collect(),
            HostPattern::Exact(name) => self.allow_index.of_name(name).filter(around).collect(),
            HostPattern::Below(base) | HostPattern::AtOrBelow(base) => {
                self.allow_index.of_names_below(base).filter(around).collect()
            }
            HostPattern::Range(range) => self.allow_index.of_address(range.addr()).filter(around).collect(),
        };
        rule.allowed_ports().is_covered_by(places.into_iter().map(|place| self.allow()[place].allowed_ports()))
    }
}

/// Whether a rule for `outer` does for every host of `inner` what a rule for that does.
fn is_around(outer: &HostPattern, inner: &HostPattern) -> bool {
    let below = |name: &str, base: &str| name.strip_suffix(base).is_some_and(|rest| rest.ends_with('.'));
    match (outer, inner) {
        (HostPattern::Every, inner) => !matches!(inner, HostPattern::Range(_)),
        (HostPattern::Exact(outer), HostPattern::Exact(inner)) => outer == inner,
        (HostPattern::Below(base), HostPattern::Exact(name) | HostPattern::AtOrBelow(name)) => {
            below(name.as_str(), base.as_str())
        }
        (HostPattern::Below(base), HostPattern::Below(name))
        | (
            HostPattern::AtOrBelow(base),
            HostPattern::Exact(name) | HostPattern::Below(name) | HostPattern::AtOrBelow(name),
        ) => name == base || below(name.as_str(), base.as_str()),
        (HostPattern::Range(outer), HostPattern::Range(inner)) => is_range_around(*outer, *inner),
        _ => false,
    }
}

/// A rule for a range also lifts the guard, which depends on the whole range: on its class, on whether it lies in a network
/// of the host's, and on whether it is one address. So only the same range does the same, and of IPv4 ranges that are not
/// public, which no network of the host's makes another class of, one that is around it and of its class.
fn is_range_around(outer: IpNet, inner: IpNet) -> bool {
    let is_one = inner.prefix_len() == inner.max_prefix_len();
    let class = class_of_range(inner);
    outer == inner
        || matches!((outer.addr(), is_one), (IpAddr::V4(_), false))
            && outer.contains(&inner)
            && class != AddressClass::Public
            && class == class_of_range(outer)
}

/// What a deny rule does, without regard to how and where it is written.
fn denies(rule: &Rule) -> String {
    format!("{}:{}", rule.pattern(), rule.denied_ports())
}

/// What a ceiling leaves, likewise.
fn admits(ceiling: &Ceiling) -> Vec<String> {
    let admits = |rule: &Rule| {
        let raw = if rule.is_raw() { "tcp://" } else { "" };
        format!("{raw}{}:{}", rule.pattern(), rule.allowed_ports())
    };
    let mut rules: Vec<_> = ceiling.rules().iter().map(admits).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}
