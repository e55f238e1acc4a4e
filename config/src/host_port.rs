//! A port of the host's loopback that a person opened for one sandbox (`--host-port`).
//!
//! It is a door of its own beside the rules: no mode closes it, and the guard is lifted for it. What holds in every mode
//! holds here too: deny rules, ceilings, and that netbox's own listeners are out of reach.

use std::net::{IpAddr, Ipv4Addr};

use crate::facts::HostFacts;
use crate::host::Host;
use crate::judge::{Decision, Permit};
use crate::policy::Policy;
use crate::port::Port;
use crate::rule::RuleRef;
use crate::target::{Target, Via};

/// A port on the host's 127.0.0.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The port on the host.
    pub port: Port,
    /// What was typed, in the place of a rule: `3000:8000`, from `--host-port`.
    pub rule: RuleRef,
}

impl HostPort {
    /// What is reached through it.
    pub fn target(&self) -> Target {
        Target::new(Host::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)), self.port, Via::Capture)
    }
}

impl Policy {
    /// Judges a connection to a port that was opened.
    pub fn decide_host_port(&self, door: &HostPort, facts: &HostFacts) -> Decision {
        let (target, address) = (door.target(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let checked = self
            .check_never(address, door.port, facts)
            .and_then(|()| self.check_ceilings_of_address(address, door.port));
        match checked {
            Ok(()) => {
                let raw = self.ceilings_admit_raw(target.host(), door.port);
                Decision::Allow(Permit::of_host_port(target, door.rule.clone(), raw))
            }
            Err(refusal) => Decision::Refuse(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::Ceiling;
    use crate::{Mode, Reason, Rule, Source};

    fn door(port: u16) -> HostPort {
        HostPort {
            port: Port::new(port).unwrap(),
            rule: RuleRef { text: port.to_string().into(), source: "--host-port".into() },
        }
    }

    fn reason(policy: &Policy, port: u16, facts: &HostFacts) -> Reason {
        match policy.decide_host_port(&door(port), facts) {
            Decision::Allow(permit) => permit.reason(),
            Decision::Refuse(refusal) => refusal.reason(),
        }
    }

    #[test]
    fn no_mode_closes_it_and_the_address_passes() {
        for mode in [Mode::Allowlist, Mode::None, Mode::Audit, Mode::Open] {
            let policy = Policy::new(mode, Vec::new(), Vec::new()).unwrap();
            let Decision::Allow(permit) = policy.decide_host_port(&door(8000), &HostFacts::default()) else {
                panic!("closed in mode {mode}");
            };
            assert!(permit.is_raw());
            assert_eq!(permit.rule().unwrap().source.as_ref(), "--host-port");
            let vet = |address: &str| policy.vet(&permit, address.parse().unwrap(), &HostFacts::default());
            assert_eq!(vet("127.0.0.1").unwrap().socket_addr(), "127.0.0.1:8000".parse().unwrap());
            for other in ["127.0.0.2", "::1", "10.0.0.1", "203.0.113.1"] {
                assert_eq!(vet(other).unwrap_err().reason(), Reason::AddressNotListed, "{other}");
            }
        }
    }

    #[test]
    fn deny_rules_and_netboxs_own_listeners_hold() {
        let deny = vec![Rule::parse_deny("127.0.0.0/8:8000", Source::Flag("--deny")).unwrap()];
        let policy = Policy::new(Mode::Open, Vec::new(), deny).unwrap();
        let facts = HostFacts { listeners: vec!["127.0.0.1:9000".parse().unwrap()], ..HostFacts::default() };
        assert_eq!(reason(&policy, 8000, &facts), Reason::Denied);
        assert_eq!(reason(&policy, 8001, &facts), Reason::Listed);
        assert_eq!(reason(&policy, 9000, &facts), Reason::SelfAddress);
    }

    #[test]
    fn a_ceiling_holds_in_every_mode() {
        for (rules, expected, raw) in [
            (&["*"][..], Reason::Denied, false),
            (&["127.0.0.1:8001"], Reason::Denied, false),
            (&["127.0.0.0/8:8000"], Reason::Listed, false),
            (&["tcp://127.0.0.0/8:8000"], Reason::Listed, true),
        ] {
            let rules = rules.iter().map(|rule| Rule::parse(rule, Source::Flag("ceiling")).unwrap()).collect();
            let ceiling = Ceiling::new(Source::Flag("ceiling"), rules);
            let policy = Policy::new(Mode::None, Vec::new(), Vec::new()).unwrap().within(vec![ceiling]);
            assert_eq!(reason(&policy, 8000, &HostFacts::default()), expected);
            if let Decision::Allow(permit) = policy.decide_host_port(&door(8000), &HostFacts::default()) {
                assert_eq!(permit.is_raw(), raw, "bytes go unseen where every ceiling says so");
                let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
                assert!(policy.vet(&permit, address, &HostFacts::default()).is_ok());
            }
        }
    }
}
