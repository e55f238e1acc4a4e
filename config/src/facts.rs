//! What a judgement has to know about the machine, gathered by the caller: this crate asks no kernel.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::embedded;

/// The host's own addresses and networks. The default is empty: nothing is known to be the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The addresses of the host's interfaces. Loopback addresses among them are left to the guard's loopback class.
    pub own: Vec<IpAddr>,
    /// The prefixes that are on-link at the host's interfaces. Addresses in them are neighbours, not the public Internet,
    /// whatever their class.
    pub on_link: Vec<IpNet>,
    /// netbox's own listeners. Unspecified addresses mean every address of the host.
    pub listeners: Vec<SocketAddr>,
}

impl HostFacts {
    /// Whether a connection to this address and port would reach one of netbox's own listeners.
    pub(crate) fn is_own_listener(&self, address: IpAddr, port: u16) -> bool {
        embedded::forms(address).any(|form| {
            // Linux takes a connect to the unspecified address as one to loopback.
            let any_of_ours = form.is_unspecified();
            let local = any_of_ours || form.is_loopback() || self.own.iter().any(|own| own.to_canonical() == form);
            self.listeners.iter().filter(|listener| listener.port() == port).any(|listener| {
                let at = listener.ip().to_canonical();
                at == form || (at.is_unspecified() && local) || any_of_ours
            })
        })
    }

    /// Whether it is an address of one of the host's interfaces, loopback left aside.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        embedded::forms(address)
            .any(|form| !form.is_loopback() && self.own.iter().any(|own| own.to_canonical() == form))
    }

    /// The on-link prefixes that the address, or one that it carries, lies in.
    pub(crate) fn on_link_prefixes(&self, address: IpAddr) -> impl Iterator<Item = &IpNet> {
        self.on_link.iter().filter(move |prefix| embedded::forms(address).any(|form| prefix.contains(&form)))
    }
}
