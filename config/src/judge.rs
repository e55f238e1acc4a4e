//! The judgement of a target, before anything is looked up or dialled.
//!
//! # Theory of operation
//!
//! [`Policy::decide`] is the only maker of a [`Permit`]. For a name:
//!
//! 1. Mode `none` refuses.
//! 2. A deny rule whose host and ports cover the target refuses.
//! 3. A ceiling none of whose rules covers the target refuses.
//! 4. Mode `open` permits.
//! 5. An allow rule whose host and ports cover the target permits.
//! 6. Mode `audit` permits, and says what the refusal would have been.
//! 7. All else is refused.
//!
//! For an address the same, and in between: netbox's own listeners and the host's own addresses are refused; an address
//! that is not public needs a rule that names it ([`Policy::names`]) in every mode but `open`. `*` allows names only.
//!
//! Deny rules are asked about each IPv4 address that an IPv6 address carries as well, allow rules never.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::address::{AddressClass, class_of_range, classify};
use crate::embedded;
use crate::facts::HostFacts;
use crate::host::Host;
use crate::mode::Mode;
use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::policy::Policy;
use crate::port::Port;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::rule::{Rule, RuleRef};
use crate::target::Target;

/// The outcome of [`Policy::decide`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The target may be looked up, and the addresses vetted.
    Allow(Permit),
    /// It may not.
    Refuse(Refusal),
}

/// The leave to look up a target's name and to have its addresses vetted. Only [`Policy::decide`] and
/// [`Policy::decide_host_port`] make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    target: Target,
    reason: Reason,
    rule: Option<RuleRef>,
    would: Option<Reason>,
    raw: bool,
    /// The guard is lifted: the target is this address and port of the host's, and was opened by hand.
    unguarded: bool,
}

impl Permit {
    /// For a port of the host's loopback.
    pub(crate) fn of_host_port(target: Target, rule: RuleRef, raw: bool) -> Self {
        Self { target, reason: Reason::Listed, rule: Some(rule), would: None, raw, unguarded: true }
    }
    /// What is permitted, and nothing else.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// [`Reason::Listed`], [`Reason::Open`] or [`Reason::Audit`].
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The allow rule that covers the target: a raw one if there is one, else the one written first.
    pub fn rule(&self) -> Option<RuleRef> {
        self.rule.clone()
    }

    /// In mode `audit`, the reason for which the target would be refused in mode `allowlist`.
    pub fn would(&self) -> Option<Reason> {
        self.would
    }

    /// Whether the first bytes are not to be looked at: an allow rule with `tcp://` covers the target, and so does a rule
    /// with `tcp://` of every ceiling.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    pub(crate) fn is_unguarded(&self) -> bool {
        self.unguarded
    }
}

/// What the allow rules say of a target.
#[derive(Default)]
struct Verdict<'a> {
    /// The rule that allows it.
    allowing: Option<&'a Rule>,
    /// A rule covers the host and the port, but the address is not public and the rule does not name it.
    unnamed: bool,
    /// A rule covers the host, on other ports.
    other_port: bool,
}

impl Policy {
    /// Judges a target. Pure: nothing is looked up.
    pub fn decide(&self, target: &Target, facts: &HostFacts) -> Decision {
        let permit = |reason, rule: Option<&Rule>, would| {
            let raw = rule.is_some_and(Rule::is_raw) && self.ceilings_admit_raw(target.host(), target.port());
            let rule = rule.map(Rule::reference);
            Decision::Allow(Permit { target: target.clone(), reason, rule, would, raw, unguarded: false })
        };
        if self.mode() == Mode::None {
            return Decision::Refuse(Refusal::new(Reason::ModeNone));
        }
        let port = target.port();
        let (verdict, unlisted, public) = match target.host() {
            Host::Name(name) => {
                if let Some(rule) = self.denies_name(name, port) {
                    return Decision::Refuse(Refusal::new(Reason::Denied).with_rule(rule));
                }
                if let Err(refusal) = self.check_ceilings(target.host(), port) {
                    return Decision::Refuse(refusal);
                }
                (self.weigh_name(name, port), Reason::NotListed, true)
            }
            Host::Address(address) => {
                let never = self.check_never(*address, port, facts);
                if let Err(refusal) = never.and_then(|()| self.check_ceilings(target.host(), port)) {
                    return Decision::Refuse(refusal);
                }
                let public = class_on_host(*address, facts) == AddressClass::Public;
                (self.weigh_address(*address, port, facts), Reason::AddressNotListed, public)
            }
        };
        if self.mode() == Mode::Open {
            if let Host::Address(address) = target.host()
                && let Err(refusal) = self.check_guard(*address, port, facts)
            {
                return Decision::Refuse(refusal);
            }
            return permit(Reason::Open, verdict.allowing, None);
        }
        if verdict.allowing.is_some() {
            return permit(Reason::Listed, verdict.allowing, None);
        }
        let unlisted = if verdict.other_port { Reason::PortNotListed } else { unlisted };
        match self.mode() {
            _ if verdict.unnamed => Decision::Refuse(Refusal::new(Reason::NonPublic)),
            Mode::Audit if public => permit(Reason::Audit, None, Some(unlisted)),
            Mode::Audit => Decision::Refuse(Refusal::new(Reason::NonPublic)),
            _ => Decision::Refuse(Refusal::new(unlisted)),
        }
    }

    fn weigh_name(&self, name: &HostName, port: Port) -> Verdict<'_> {
        self.weigh(self.allow_index.of_name(name), port, |_| true)
    }

    fn weigh_address(&self, address: IpAddr, port: Port, facts: &HostFacts) -> Verdict<'_> {
        let public = class_on_host(address, facts) == AddressClass::Public || self.mode() == Mode::Open;
        self.weigh(self.allow_index.of_address(address), port, |rule| public || names(rule, address, facts))
    }

    fn weigh(&self, found: impl Iterator<Item = usize>, port: Port, may: impl Fn(&Rule) -> bool) -> Verdict<'_> {
        let mut verdict = Verdict::default();
        let mut best = None;
        for place in found {
            let rule = &self.allow()[place];
            if !rule.allowed_ports().contains(port) {
                verdict.other_port = true;
            } else if !may(rule) {
                verdict.unnamed = true;
            } else if best.is_none_or(|best| (!rule.is_raw(), place) < best) {
                best = Some((!rule.is_raw(), place));
            }
        }
        verdict.allowing = best.map(|(_, place)| &self.allow()[place]);
        verdict
    }

    /// What no allow rule and no mode lifts: netbox's own listeners, deny rules, and the host's own addresses unless an
    /// allow rule is about exactly that one.
    pub(crate) fn check_never(&self, address: IpAddr, port: Port, facts: &HostFacts) -> Result<(), Refusal> {
        if facts.is_own_listener(address, port.get()) {
            return Err(Refusal::new(Reason::SelfAddress));
        }
        let denied = embedded::forms(address).flat_map(|form| self.deny_index.of_address(form));
        if let Some(rule) = self.first_deny(denied.chain(self.deny_index.of_every()), port) {
            return Err(Refusal::new(Reason::Denied).with_rule(rule));
        }
        if facts.is_own(address) && !self.allow_on(address, port).any(|(range, _)| is_one_address(range)) {
            return Err(Refusal::new(Reason::SelfAddress));
        }
        Ok(())
    }

    /// The guard: whether the address is public, or a rule names it on this port. Off in mode `open`, but for loopback:
    /// there the machine itself answers, under an address that no interface has, and what is its own stays `self`.
    pub(crate) fn check_guard(&self, address: IpAddr, port: Port, facts: &HostFacts) -> Result<(), Refusal> {
        let class = class_on_host(address, facts);
        if class == AddressClass::Public || self.allow_on(address, port).any(|(_, rule)| names(rule, address, facts)) {
            return Ok(());
        }
        match (self.mode(), class) {
            (Mode::Open, AddressClass::Loopback | AddressClass::Unspecified) => Err(Refusal::new(Reason::SelfAddress)),
            (Mode::Open, _) => Ok(()),
            _ => Err(Refusal::new(Reason::NonPublic)),
        }
    }

    /// The allow rules about ranges that this address and port lie in.
    fn allow_on(&self, address: IpAddr, port: Port) -> impl Iterator<Item = (&IpNet, &Rule)> {
        let rules = self.allow_index.of_address(address).map(|place| &self.allow()[place]);
        rules.filter(move |rule| rule.allowed_ports().contains(port)).filter_map(|rule| match rule.pattern() {
            HostPattern::Range(range) => Some((range, rule)),
            _ => None,
        })
    }

    pub(crate) fn first_deny(&self, found: impl Iterator<Item = usize>, port: Port) -> Option<RuleRef> {
        let first = found.filter(|place| self.deny()[*place].denied_ports().contains(port)).min();
        first.map(|place| self.deny()[place].reference())
    }
}

/// The class of an address on this host: [`classify`], and [`AddressClass::OnLink`] for a neighbour.
pub(crate) fn class_on_host(address: IpAddr, facts: &HostFacts) -> AddressClass {
    match classify(address) {
        AddressClass::Public if facts.on_link_prefixes(address).next().is_some() => AddressClass::OnLink,
        class => class,
    }
}

/// Whether a rule that covers the address also names it, so that the guard is lifted: all of the rule's range lies in one
/// class, which is that of the address, or in the on-link prefix that the address lies in.
///
/// So `0.0.0.0/0` names nothing, `169.254.0.0/16` names link-local addresses and not the metadata service among them.
fn names(rule: &Rule, address: IpAddr, facts: &HostFacts) -> bool {
    let HostPattern::Range(range) = rule.pattern() else { return false };
    match class_on_host(address, facts) {
        AddressClass::Public => true,
        AddressClass::OnLink => {
            // A prefix of length 0 would be no neighbourhood.
            range.prefix_len() > 0
                && facts
                    .on_link_prefixes(address)
                    .any(|prefix| embedded::range_forms(*range).any(|form| prefix.contains(&form)))
        }
        class => class_of_range(*range) == class,
    }
}

fn is_one_address(range: &IpNet) -> bool {
    range.prefix_len() == range.max_prefix_len()
}
