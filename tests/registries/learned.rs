//! What a client needs, as the events of a run in audit mode tell it.

use std::collections::BTreeSet;

use crate::course::Outcome;

/// A host, which is a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// As events have it.
    pub host: String,
    /// See there.
    pub port: u64,
}

impl Destination {
    /// The rule that allows it and nothing else.
    pub fn rule(&self) -> String {
        let is_ipv6 = self.host.contains(':') && !self.host.starts_with('[');
        if is_ipv6 { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

/// The destinations of a client, and the rules that let the guard pass where they are.
#[derive(Debug, Default)]
pub struct Learned {
    /// What it was seen to take.
    pub destinations: BTreeSet<Destination>,
    /// Rules for addresses that are not public. The guard holds in audit mode too, so each takes one more run.
    pub addresses: BTreeSet<String>,
}

impl Learned {
    /// Takes in what a run in audit mode tells. Whether that was all, and nothing was refused any more.
    ///
    /// # Panics
    ///
    /// When something was refused for which there is no rule.
    pub fn learn(&mut self, outcome: &Outcome) -> bool {
        let known = self.addresses.len();
        let mut complete = true;
        for decision in outcome.decisions() {
            if decision.verdict == "allow" {
                self.destinations.insert(decision.destination);
                continue;
            }
            complete = false;
            let rule = decision.hint.filter(|_| decision.reason == "non-public");
            self.addresses.insert(rule.unwrap_or_else(|| panic!("refused, and no address is to blame: {outcome}")));
        }
        assert!(complete || self.addresses.len() > known, "refused although its address is allowed: {outcome}");
        complete
    }

    /// The rules that allow everything but `without`.
    pub fn rules(&self, without: Option<&Destination>) -> Vec<String> {
        let destinations = self.destinations.iter().filter(|&destination| Some(destination) != without);
        destinations.map(Destination::rule).chain(self.addresses.iter().cloned()).collect()
    }
}
