//! Rules found by the host that they are about, without asking every rule.
//!
//! A name costs one look per label, an address one per length of prefix that some rule has, whatever the number of rules.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::rule::Rule;

/// Rules by their hosts. What it hands out are places in the slice that it was made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    exact: HashMap<HostName, Vec<usize>>,
    below: HashMap<HostName, Vec<usize>>,
    every: Vec<usize>,
    /// By network, which is in canonical form.
    ranges: HashMap<IpNet, Vec<usize>>,
    /// The lengths of prefix in `ranges`.
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl Index {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        Self::of(rules)
    }

    /// The same for rules that lie elsewhere; a place is one in their order.
    pub(crate) fn of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut index = Self::default();
        for (place, rule) in rules.into_iter().enumerate() {
            match rule.pattern() {
                HostPattern::Every => index.every.push(place),
                HostPattern::Exact(name) => index.exact.entry(name.clone()).or_default().push(place),
                HostPattern::Below(base) => index.below.entry(base.clone()).or_default().push(place),
                HostPattern::AtOrBelow(base) => {
                    index.exact.entry(base.clone()).or_default().push(place);
                    index.below.entry(base.clone()).or_default().push(place);
                }
                HostPattern::Range(range) => {
                    let lengths = if range.addr().is_ipv4() { &mut index.lengths_v4 } else { &mut index.lengths_v6 };
                    if !lengths.contains(&range.prefix_len()) {
                        lengths.push(range.prefix_len());
                    }
                    index.ranges.entry(*range).or_default().push(place);
                }
            }
        }
        index
    }

    /// The rules whose host is this name, `*` among them.
    pub(crate) fn of_name<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = usize> + 'a {
        let exact = self.exact.get(name.as_str());
        let parents = std::iter::successors(parent(name.as_str()), |name| parent(name));
        let below = parents.filter_map(|base| self.below.get(base));
        exact.into_iter().chain(below).flatten().chain(&self.every).copied()
    }

    /// The rules with a wildcard over this name or one above it, and `*`: those that cover every name below it.
    pub(crate) fn of_names_below<'a>(&'a self, base: &'a HostName) -> impl Iterator<Item = usize> + 'a {
        let bases = std::iter::successors(Some(base.as_str()), |name| parent(name));
        bases.filter_map(|base| self.below.get(base)).flatten().chain(&self.every).copied()
    }

    /// The rules whose range this canonical address lies in. `*` is not among them.
    pub(crate) fn of_address(&self, address: IpAddr) -> impl Iterator<Item = usize> + '_ {
        let lengths = if address.is_ipv4() { &self.lengths_v4 } else { &self.lengths_v6 };
        let ranges = lengths.iter().filter_map(move |length| {
            let network = IpNet::new(address, *length).ok()?.trunc();
            self.ranges.get(&network)
        });
        ranges.flatten().copied()
    }

    /// The rules whose host is exactly this name.
    pub(crate) fn exactly(&self, name: &str) -> impl Iterator<Item = usize> + '_ {
        self.exact.get(name).into_iter().flatten().copied()
    }

    /// The rules whose hosts are the names below this one.
    pub(crate) fn below(&self, base: &str) -> impl Iterator<Item = usize> + '_ {
        self.below.get(base).into_iter().flatten().copied()
    }

    /// The rules whose host is `*`.
    pub(crate) fn of_every(&self) -> impl Iterator<Item = usize> + '_ {
        self.every.iter().copied()
    }
}

/// The name without its first label.
pub(crate) fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}
