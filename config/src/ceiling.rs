//! Ceilings: the bound that a system's or a user's file sets to whatever is allowed, in every mode.

use std::net::IpAddr;

use crate::host::Host;
use crate::index::Index;
use crate::name::HostName;
use crate::policy::Policy;
use crate::port::Port;
use crate::ports::Ports;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::rule::{Rule, RuleRef};
use crate::source::Source;

/// A list of rules outside of which nothing is allowed, whoever allows it and in whatever mode. It allows nothing itself.
///
/// Its rules read as allow rules do: without ports they mean 443 and 80, and `*` is every name and no address. An empty
/// ceiling leaves nothing. Of several ceilings a target has to be inside each.
#[derive(Clone, Debug)]
pub struct Ceiling {
    reference: RuleRef,
    source: Source,
    rules: Vec<Rule>,
    index: Index,
}

impl Ceiling {
    /// The ceiling that is written there.
    pub fn new(source: Source, rules: Vec<Rule>) -> Self {
        let reference = RuleRef { text: "ceiling".into(), source: source.to_string().into() };
        let index = Index::new(&rules);
        Self { reference, source, rules, index }
    }

    /// Where it was written.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Its rules, as given.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that the name is inside of.
    pub(crate) fn covering_name<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = &'a Rule> {
        self.index.of_name(name).map(|place| &self.rules[place])
    }

    /// The ports on which the name is inside.
    pub(crate) fn ports_of<'a>(&'a self, name: &'a HostName) -> impl Iterator<Item = &'a Ports> {
        self.covering_name(name).map(Rule::allowed_ports)
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    fn admits(&self, host: &Host, port: Port) -> bool {
        self.covering(host, port).next().is_some()
    }

    fn admits_raw(&self, host: &Host, port: Port) -> bool {
        self.covering(host, port).any(Rule::is_raw)
    }

    fn covering<'a>(&'a self, host: &'a Host, port: Port) -> impl Iterator<Item = &'a Rule> {
        let (by_name, by_address) = match host {
            Host::Name(name) => (Some(self.index.of_name(name)), None),
            Host::Address(address) => (None, Some(self.index.of_address(*address))),
        };
        let places = by_name.into_iter().flatten().chain(by_address.into_iter().flatten());
        places.map(|place| &self.rules[place]).filter(move |rule| rule.allowed_ports().contains(port))
    }

    fn refusal(&self) -> Refusal {
        Refusal::new(Reason::Denied).with_ceiling(self.reference.clone())
    }
}

impl Policy {
    /// Whether a target is inside every ceiling; else the refusal by the outermost that leaves it out.
    pub(crate) fn check_ceilings(&self, host: &Host, port: Port) -> Result<(), Refusal> {
        match self.ceilings().iter().find(|ceiling| !ceiling.admits(host, port)) {
            Some(ceiling) => Err(ceiling.refusal()),
            None => Ok(()),
        }
    }

    /// The same for an address that something has to lift the guard for: a rule that lies outside a ceiling lifts nothing.
    pub(crate) fn check_ceilings_of_address(&self, address: IpAddr, port: Port) -> Result<(), Refusal> {
        self.check_ceilings(&Host::from_ip(address), port)
    }

    /// Whether every ceiling lets the first bytes go unseen.
    pub(crate) fn ceilings_admit_raw(&self, host: &Host, port: Port) -> bool {
        self.ceilings().iter().all(|ceiling| ceiling.admits_raw(host, port))
    }

    /// The refusal of a name that is found in the bytes of a connection which was judged by another name: a deny rule or a
    /// ceiling says no to it.
    pub fn forbids_name(&self, name: &HostName, port: Port) -> Option<Refusal> {
        match self.denies_name(name, port) {
            Some(rule) => Some(Refusal::new(Reason::Denied).with_rule(rule)),
            None => self.check_ceilings(&Host::Name(name.clone()), port).err(),
        }
    }
}
