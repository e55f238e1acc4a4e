//! A refusal: why, by which rule, and the rule that would allow it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::address::{AddressClass, classify};
use crate::host::Host;
use crate::near_miss::NearMiss;
use crate::port::Port;
use crate::reason::Reason;
use crate::rule::RuleRef;
use crate::target::Target;

/// Why a connection does not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    rule: Option<RuleRef>,
    /// Whether `rule` stands for a ceiling that leaves the target out.
    by_ceiling: bool,
    /// Whether another netbox refused what this one permits.
    by_outer: bool,
    /// Whether it is permitted, and would not arrive at netbox.
    uncaught: bool,
    address: Option<IpAddr>,
    near: Option<NearMiss>,
}

impl Refusal {
    /// A refusal for a reason, without a rule. Also for those that the proxy makes: `sni-mismatch`, `limit`, …
    pub fn new(reason: Reason) -> Self {
        Self { reason, rule: None, by_ceiling: false, by_outer: false, uncaught: false, address: None, near: None }
    }

    /// Of a connection that the policy permits, to a port on which netbox catches none: where the kernel has no nf_tables, it
    /// does not listen on as many ports as a rule may cover.
    pub fn uncaught() -> Self {
        Self { uncaught: true, ..Self::new(Reason::Unsupported) }
    }

    /// The same, by the rule that decided.
    #[must_use]
    pub fn with_rule(self, rule: RuleRef) -> Self {
        Self { rule: Some(rule), ..self }
    }

    /// The same, by the ceiling that leaves the target out.
    #[must_use]
    pub(crate) fn with_ceiling(self, ceiling: RuleRef) -> Self {
        Self { rule: Some(ceiling), by_ceiling: true, ..self }
    }

    /// The same, by the netbox that this one is inside of. No rule here changes that, so there is no hint.
    #[must_use]
    pub fn by_outer(self) -> Self {
        let rule = RuleRef { text: "outer".into(), source: "the netbox around this one".into() };
        Self { rule: Some(rule), by_outer: true, ..self }
    }

    /// The same, about this address of the target's name.
    #[must_use]
    pub fn with_address(self, address: IpAddr) -> Self {
        Self { address: Some(address.to_canonical()), ..self }
    }

    /// The same, with what almost allowed it, as [`Policy::near_miss`](crate::Policy::near_miss) knows it.
    #[must_use]
    pub fn with_near_miss(self, near: Option<NearMiss>) -> Self {
        Self { near, ..self }
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The deny rule that decided, if one did. For a ceiling the text is `ceiling`, and the source its place; for another
    /// netbox the text is `outer`.
    pub fn rule(&self) -> Option<RuleRef> {
        self.rule.clone()
    }

    /// What almost allowed it, if somebody asked for that.
    pub fn near_miss(&self) -> Option<&NearMiss> {
        self.near.as_ref()
    }

    /// The place of the ceiling that leaves the target out, if one does: "outside the ceiling of …".
    pub fn ceiling(&self) -> Option<Arc<str>> {
        self.rule.as_ref().filter(|_| self.by_ceiling).map(|ceiling| Arc::clone(&ceiling.source))
    }

    /// Whether another netbox refused what this one permits.
    pub fn is_by_outer(&self) -> bool {
        self.by_outer
    }

    /// See [`uncaught`](Self::uncaught).
    pub fn is_uncaught(&self) -> bool {
        self.uncaught
    }

    /// The address that was judged, if it was [`Policy::vet`](crate::Policy::vet) that refused.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The allow rule that would let the target pass, as narrow as it can be written: `example.com`, `example.com:8443`,
    /// `10.1.2.3:5432`, `tcp://example.com:443`. It parses.
    ///
    /// `None` where no allow rule can (`denied`, `self`, `mode-none`, `udp`, `malformed`, …) or where one would be no way
    /// out: a name that is not what was judged, an address that nothing can be reached at.
    pub fn hint(&self, target: &Target) -> Option<String> {
        if self.by_outer {
            return None;
        }
        let port = target.port();
        if self.uncaught {
            // The port of a rule that has no other is caught.
            return match target.host() {
                Host::Name(name) => Some(format!("{name}:{port}")),
                Host::Address(address) => address_rule(*address, port),
            };
        }
        match self.reason {
            Reason::NotListed | Reason::PortNotListed | Reason::AddressNotListed => match target.host() {
                Host::Name(name) if self.reason == Reason::NotListed && is_default(port) => Some(name.to_string()),
                Host::Name(name) => Some(format!("{name}:{port}")),
                Host::Address(address) => address_rule(*address, port),
            },
            Reason::NonPublic => match target.host() {
                Host::Address(address) => address_rule(*address, port),
                // Whoever answers for the name chose the address, and nobody is to open the machine or its credentials
                // at that word.
                Host::Name(_) => match classify(self.address?) {
                    AddressClass::Loopback | AddressClass::Metadata => None,
                    _ => address_rule(self.address?, port),
                },
            },
            Reason::NotTls | Reason::SniMissing | Reason::NotHttp | Reason::Unsupported => {
                Some(format!("tcp://{target}"))
            }
            _ => None,
        }
    }
}

fn is_default(port: Port) -> bool {
    port == Port::HTTPS || port == Port::HTTP
}

fn address_rule(address: IpAddr, port: Port) -> Option<String> {
    match classify(address) {
        // Nothing listens there: netbox's own synthetic addresses, groups, and "any".
        AddressClass::Synthetic | AddressClass::Multicast | AddressClass::Unspecified => None,
        _ => Some(SocketAddr::new(address, port.get()).to_string()),
    }
}
