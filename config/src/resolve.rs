//! Judgements about names alone: which may be looked up, which may not be named.

use crate::mode::Mode;
use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::policy::Policy;
use crate::port::Port;
use crate::ports::Ports;
use crate::rule::{Rule, RuleRef};

impl Policy {
    /// Whether a DNS query for the name may leave: some port of it may be allowed.
    ///
    /// In mode `allowlist` an allow rule's host covers the name, and ceilings and deny rules leave one of the rule's ports;
    /// in modes `open` and `audit` they leave some port; in mode `none` never.
    pub fn may_resolve(&self, name: &HostName) -> bool {
        let ports_left = |ports: &Ports| {
            let mut ceilings = self.ceilings().iter();
            let inside = ceilings.try_fold(ports.clone(), |left, ceiling| left.within(ceiling.ports_of(name)));
            let denies = self.deny_index.of_name(name).map(|place| self.deny()[place].denied_ports());
            inside.is_some_and(|ports| !ports.is_covered_by(denies))
        };
        match self.mode() {
            Mode::None => false,
            Mode::Open | Mode::Audit => ports_left(&Ports::ALL),
            Mode::Allowlist => {
                self.allow_index.of_name(name).any(|place| ports_left(self.allow()[place].allowed_ports()))
            }
        }
    }

    /// Whether the name is listed by nothing but rules for all that is below a name, so that whoever asks for it may have
    /// made its labels up to say something by them. Not where every name is open anyway, under no ceiling.
    pub fn lists_by_wildcard_alone(&self, name: &HostName) -> bool {
        let below = |rule: &Rule| matches!(rule.pattern(), HostPattern::Below(_) | HostPattern::AtOrBelow(_));
        self.mode() == Mode::Allowlist && self.allow_index.of_name(name).all(|place| below(&self.allow()[place]))
            || self.ceilings().iter().any(|ceiling| ceiling.covering_name(name).all(below))
    }

    /// The deny rule that covers the name on this port, the one written first. Also for a name that is found in the bytes
    /// of a connection to an address.
    pub fn denies_name(&self, name: &HostName, port: Port) -> Option<RuleRef> {
        self.first_deny(self.deny_index.of_name(name), port)
    }
}
