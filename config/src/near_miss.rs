//! What almost allowed a target that is refused, for the person who wonders why.
//!
//! Nothing here decides. [`Policy::decide`] does not come by, so that a decision costs the same with and without; whoever
//! shows a refusal asks [`Policy::near_miss`] for it.
//!
//! A near miss tells a fact about one allow rule. It proposes another rule only where that would allow nothing beyond
//! what was asked for; a name that merely looks like a listed one is called that.

use std::fmt;
use std::net::IpAddr;

use crate::embedded;
use crate::host::Host;
use crate::index::parent;
use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::policy::Policy;
use crate::port::Port;
use crate::quote;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::rule::{Rule, RuleRef};
use crate::suffix::{self, SuffixKind};
use crate::target::Target;

/// With more rules than this, names are not compared one by one: every refusal of a program that tries out names would
/// pay for it.
const COMPARED: usize = 1000;

/// A shorter name resembles too many others.
const SHORTEST: usize = 8;

/// An allow rule that almost covers a target, and what is missing. Displays as a sentence without a full stop:
/// "`*.github.com` (netbox.toml:3:10) does not cover `github.com` itself; `.github.com` would".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    rule: RuleRef,
    text: String,
}

impl NearMiss {
    fn new(rule: &Rule, says: impl fmt::Display) -> Self {
        let text = format!("{} ({}) {says}", quote(rule.text().as_bytes()), rule.source());
        Self { rule: rule.reference(), text }
    }

    /// The allow rule.
    pub fn rule(&self) -> &RuleRef {
        &self.rule
    }
}

impl fmt::Display for NearMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Policy {
    /// The allow rule that comes nearest to a target which [`Policy::decide`] refused, if one comes near: it covers other
    /// ports, or another depth of names, or a name of the same owner, or one that is spelled almost alike.
    ///
    /// Costs some microseconds, with a thousand rules some tens; with more, names are no longer compared by spelling.
    pub fn near_miss(&self, target: &Target, refusal: &Refusal) -> Option<NearMiss> {
        let port = target.port();
        match (refusal.reason(), target.host()) {
            (Reason::PortNotListed, Host::Name(name)) => self.on_other_ports(self.allow_index.of_name(name), port),
            (Reason::PortNotListed, Host::Address(address)) => {
                self.on_other_ports(self.allow_index.of_address(*address), port)
            }
            (Reason::NotListed, Host::Name(name)) => self.near_name(name, port),
            (Reason::AddressNotListed, Host::Address(address)) => self.near_address(*address),
            (Reason::NonPublic, Host::Address(address)) => self.unnamed(*address, port),
            _ => None,
        }
    }

    fn on_other_ports(&self, mut found: impl Iterator<Item = usize>, port: Port) -> Option<NearMiss> {
        let rule = &self.allow()[found.next()?];
        let listed = rule.allowed_ports().to_string().replace(',', ", ");
        let noun = if listed.contains([',', '-']) { "ports" } else { "port" };
        Some(NearMiss::new(rule, format_args!("is for {noun} {listed}, not for {port}")))
    }

    fn near_name(&self, name: &HostName, port: Port) -> Option<NearMiss> {
        self.apex(name, port)
            .or_else(|| self.below_listed(name))
            .or_else(|| self.begins_like_listed(name))
            .or_else(|| self.spelled_alike(name))
            .or_else(|| self.of_same_owner(name))
    }

    /// `*.github.com`, and `github.com` is asked for.
    fn apex(&self, name: &HostName, port: Port) -> Option<NearMiss> {
        let rules = || self.allow_index.below(name.as_str()).map(|place| &self.allow()[place]);
        let rule = rules().find(|rule| rule.allowed_ports().contains(port)).or_else(|| rules().next())?;
        // On its own ports `.github.com` adds the apex and nothing else, and the hint's `github.com` is for 443 and 80.
        let same_ports = rule.written_ports().is_none() && rule.allowed_ports().contains(port);
        let instead = if same_ports { format!("; `.{name}` would") } else { String::new() };
        Some(NearMiss::new(rule, format_args!("does not cover `{name}` itself{instead}")))
    }

    /// `github.com`, and `api.github.com` is asked for.
    fn below_listed(&self, name: &HostName) -> Option<NearMiss> {
        let parents = std::iter::successors(parent(name.as_str()), |name| parent(name));
        // Below a public suffix (`github.io`) strangers have their names.
        let owned = parents.filter(|parent| suffix::kind(parent) == SuffixKind::Ordinary);
        let place = owned.filter_map(|parent| self.allow_index.exactly(parent).next()).next()?;
        Some(NearMiss::new(&self.allow()[place], format_args!("does not cover names below it, such as `{name}`")))
    }

    /// `github.com`, and `github.com.evil.example` is asked for.
    fn begins_like_listed(&self, name: &HostName) -> Option<NearMiss> {
        let dots = name.as_str().match_indices('.').map(|(at, _)| &name.as_str()[..at]);
        let place =
            dots.filter(|start| start.contains('.')).find_map(|start| self.allow_index.exactly(start).next())?;
        let owner = owner(name);
        let says = format_args!("is another host: `{name}` only begins like it, and belongs to `{owner}`");
        Some(NearMiss::new(&self.allow()[place], says))
    }

    /// `github.com`, and `githib.com` is asked for.
    fn spelled_alike(&self, name: &HostName) -> Option<NearMiss> {
        let near = |rule: &&Rule| match rule.pattern() {
            HostPattern::Exact(listed) => is_one_edit_away(name.as_str(), listed.as_str()),
            HostPattern::Below(base) | HostPattern::AtOrBelow(base) => {
                is_one_edit_away(tail(name.as_str(), base.as_str()), base.as_str())
            }
            HostPattern::Every | HostPattern::Range(_) => false,
        };
        let rule = self.compared().find(near)?;
        let says = format_args!("differs from `{name}` in one character; make sure which of the two is meant");
        Some(NearMiss::new(rule, says))
    }

    /// `api.github.com`, and `raw.github.com` is asked for.
    fn of_same_owner(&self, name: &HostName) -> Option<NearMiss> {
        let owner = owner(name);
        if suffix::kind(owner) != SuffixKind::Ordinary {
            return None;
        }
        let shared = |rule: &Rule| match rule.pattern() {
            HostPattern::Exact(listed) | HostPattern::Below(listed) | HostPattern::AtOrBelow(listed) => {
                // Most rules are done with here.
                let common = listed.as_str().ends_with(owner).then(|| common_labels(name.as_str(), listed.as_str()))?;
                (common.len() >= owner.len()).then_some(common.len())
            }
            HostPattern::Every | HostPattern::Range(_) => None,
        };
        let best = self.compared().filter_map(|rule| Some((shared(rule)?, rule)));
        // The first of those that share most.
        let (_, rule) = best.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        Some(NearMiss::new(rule, format_args!("is of the same domain and does not cover `{name}`")))
    }

    fn near_address(&self, address: IpAddr) -> Option<NearMiss> {
        // The first form is the address itself.
        let carried = embedded::forms(address).skip(1).find_map(|form| {
            let place = self.allow_index.of_address(form).next()?;
            let says = format_args!("is for {form}, and not for the IPv6 address that carries it").to_string();
            Some(NearMiss::new(&self.allow()[place], says))
        });
        carried.or_else(|| {
            let place = self.allow_index.of_every().next()?;
            Some(NearMiss::new(&self.allow()[place], "is for names, and not for addresses"))
        })
    }

    /// A range that covers an address which is not public, and does not open it.
    fn unnamed(&self, address: IpAddr, port: Port) -> Option<NearMiss> {
        let rules = self.allow_index.of_address(address).map(|place| &self.allow()[place]);
        let rule =
            rules.filter(|rule| rule.allowed_ports().contains(port)).max_by_key(|rule| match rule.pattern() {
                HostPattern::Range(range) => range.prefix_len(),
                _ => 0,
            })?;
        let says = "does not open it: what is not public takes a rule for a range of its kind alone";
        Some(NearMiss::new(rule, says))
    }

    fn compared(&self) -> impl Iterator<Item = &Rule> {
        let few = self.allow().len() <= COMPARED;
        self.allow().iter().filter(move |_| few)
    }
}

/// The name that its owner has registered.
fn owner(name: &HostName) -> &str {
    psl::domain_str(name.as_str()).unwrap_or(name.as_str())
}

/// As many of the last labels of `name` as `base` has.
fn tail<'n>(name: &'n str, base: &str) -> &'n str {
    let labels = base.matches('.').count();
    name.rmatch_indices('.').nth(labels).map_or(name, |(at, _)| &name[at + 1..])
}

/// The last labels that both have.
fn common_labels<'n>(name: &'n str, other: &str) -> &'n str {
    let pairs = name.rsplit('.').zip(other.rsplit('.'));
    let bytes: usize = pairs.take_while(|(one, two)| one == two).map(|(label, _)| label.len() + 1).sum();
    &name[name.len() - bytes.saturating_sub(1).min(name.len())..]
}

/// Whether one character more, less, other, or swapped with its neighbour makes one name the other. Digits do not count:
/// names that differ in a number are numbered, not misspelt.
fn is_one_edit_away(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len().min(other.len()) < SHORTEST || one.len().abs_diff(other.len()) > 1 {
        return false;
    }
    let before = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[before..], &other[before..]);
    let behind = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[..one.len() - behind], &other[..other.len() - behind]);
    let edited = match (one, other) {
        ([_], [] | [_]) | ([], [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    };
    edited && !one.iter().chain(other).any(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_edit_is_one_character() {
        for (one, other, expected) in [
            ("githib.com", "github.com", true),
            ("gihub.com", "github.com", true),
            ("githubb.com", "github.com", true),
            ("gihtub.com", "github.com", true),
            ("github.con", "github.com", true),
            ("github.com", "github.com", false),
            ("gothib.com", "github.com", false),
            ("gtihbu.com", "github.com", false),
            ("a1.example.com", "a2.example.com", false),
            ("git.hub.com", "github.com", false),
            ("x.co", "t.co", false),
            ("", "", false),
        ] {
            assert_eq!(is_one_edit_away(one, other), expected, "{one} {other}");
            assert_eq!(is_one_edit_away(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn labels_are_compared_from_the_end() {
        for (one, other, common) in [
            ("raw.github.com", "api.github.com", "github.com"),
            ("github.com", "api.github.com", "github.com"),
            ("evilgithub.com", "github.com", "com"),
            ("a.example", "b.test", ""),
        ] {
            assert_eq!(common_labels(one, other), common, "{one} {other}");
        }
        assert_eq!(tail("api.githib.com", "github.com"), "githib.com");
        assert_eq!(tail("github.com", "github.com"), "github.com");
        assert_eq!(tail("com", "github.com"), "com");
    }
}
