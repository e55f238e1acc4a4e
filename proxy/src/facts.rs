//! What the host's own addresses are, for the judgement of addresses.
//!
//! The policy is pure; what it must know of this machine is gathered here with `getifaddrs(3)` and handed over as [`HostFacts`]: the
//! host's own addresses, the prefixes that lie on-link at its interfaces, and netbox's own listeners. Interfaces come and go (a VPN,
//! a container bridge), so the facts are gathered again once they are older than [`MAX_AGE`].

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use netbox_config::HostFacts;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// How old the facts may be when they are used.
pub const MAX_AGE: Duration = Duration::from_secs(1);

/// The facts about this host, kept fresh.
pub struct Facts {
    listeners: Vec<SocketAddr>,
    latest: Mutex<Snapshot>,
}

struct Snapshot {
    gathered: Instant,
    facts: Arc<HostFacts>,
}

impl Facts {
    /// Gathers the facts for the first time. `listeners` are netbox's own, which no connection may reach.
    #[must_use]
    pub fn new(listeners: Vec<SocketAddr>) -> Self {
        let facts = gather(&listeners).unwrap_or_else(|_| nothing_known(&listeners));
        Self { listeners, latest: Mutex::new(Snapshot { gathered: Instant::now(), facts: Arc::new(facts) }) }
    }

    /// The facts, at most [`MAX_AGE`] old. Where the kernel cannot be asked (no descriptor left), the last ones stay in force.
    pub fn current(&self) -> Arc<HostFacts> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.gathered.elapsed() >= MAX_AGE {
            if let Ok(facts) = gather(&self.listeners) {
                latest.facts = Arc::new(facts);
            }
            latest.gathered = Instant::now();
        }
        Arc::clone(&latest.facts)
    }
}

fn gather(listeners: &[SocketAddr]) -> nix::Result<HostFacts> {
    Ok(facts_of(getifaddrs()?.filter_map(|interface| Entry::new(&interface)), listeners))
}

/// The facts of a host that could never be asked: every address counts as on-link, so that only what a rule names is reached.
fn nothing_known(listeners: &[SocketAddr]) -> HostFacts {
    let everywhere = [IpAddr::from([0; 4]), IpAddr::from([0; 16])].map(|any| IpNet::new_assert(any, 0));
    HostFacts { own: Vec::new(), on_link: everywhere.to_vec(), listeners: listeners.to_vec() }
}

/// One address of one interface.
struct Entry {
    up: bool,
    address: IpAddr,
    /// The other end of a point-to-point link.
    peer: Option<IpAddr>,
    netmask: Option<IpAddr>,
}

impl Entry {
    fn new(interface: &InterfaceAddress) -> Option<Self> {
        let point_to_point = interface.flags.contains(InterfaceFlags::IFF_POINTOPOINT);
        Some(Self {
            up: interface.flags.contains(InterfaceFlags::IFF_UP),
            address: ip(interface.address.as_ref()?)?,
            peer: interface.destination.as_ref().filter(|_| point_to_point).and_then(ip),
            netmask: interface.netmask.as_ref().and_then(ip),
        })
    }

    /// What the kernel reaches through the interface without a gateway. A prefix of length 0 is none: the kernel makes no route of
    /// it. A single address is `own` already, unless it is the peer's.
    fn on_link(&self) -> Option<IpNet> {
        let network = IpNet::with_netmask(self.peer.unwrap_or(self.address), self.netmask?).ok()?.trunc();
        let single = network.prefix_len() == network.max_prefix_len() && self.peer.is_none_or(|peer| peer == self.address);
        (self.up && !single && network.prefix_len() > 0).then_some(network)
    }
}

/// `getifaddrs` gives what an interface has; loopback and link-local prefixes are non-public by class and left out. Further
/// addresses of `lo` count like any other interface's: they are this host.
fn facts_of(entries: impl Iterator<Item = Entry>, listeners: &[SocketAddr]) -> HostFacts {
    let mut facts = HostFacts { own: Vec::new(), on_link: Vec::new(), listeners: listeners.to_vec() };
    for entry in entries.filter(|entry| !entry.address.is_loopback()) {
        if !facts.own.contains(&entry.address) {
            facts.own.push(entry.address);
        }
        if let Some(network) = entry.on_link().filter(|network| !is_link_local(network.addr()))
            && !facts.on_link.contains(&network)
        {
            facts.on_link.push(network);
        }
    }
    facts
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
}
