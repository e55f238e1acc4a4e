//! What the host's own addresses are, for the judgement of addresses.
//!
//! The policy is pure; what it must know of this machine is gathered here with `getifaddrs(3)` and handed over as
//! [`HostFacts`]: the host's own addresses, the prefixes that lie on-link at its interfaces, and netbox's own
//! listeners. Interfaces come and go (a VPN, a container bridge), so the facts are gathered again once they are older
//! than [`MAX_AGE`].

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use netbox_config::{HostFacts, IpNet};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// How old the facts may be when they are used.
pub const MAX_AGE: Duration = Duration::from_secs(1);

/// Where a process listens at the moment. A clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Listening(Arc<RwLock<Arc<Vec<SocketAddr>>>>);

impl Listening {
    /// From now on it listens there. Before anything is accepted there, so that no connection that was allowed leads to it.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(addresses);
    }

    fn now(&self) -> Arc<Vec<SocketAddr>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The facts about this host, kept fresh.
pub struct Facts {
    listeners: Vec<SocketAddr>,
    listening: Listening,
    /// None until they are asked for: a sandbox that connects to nothing need not wait for them.
    latest: Mutex<Option<Snapshot>>,
}

struct Snapshot {
    gathered: Instant,
    listening: Arc<Vec<SocketAddr>>,
    facts: Arc<HostFacts>,
}

impl Facts {
    /// The facts of this host. `listeners` are netbox's own, which no connection may reach.
    #[must_use]
    pub fn new(listeners: Vec<SocketAddr>) -> Self {
        Self { listeners, listening: Listening::default(), latest: Mutex::new(None) }
    }

    /// The same for a process that may listen elsewhere later.
    #[must_use]
    pub fn beside(self, listening: Listening) -> Self {
        Self { listening, ..self }
    }

    /// These facts, for ever.
    #[cfg(test)]
    pub(crate) fn fixed(facts: HostFacts) -> Self {
        // Gathered in the future, so never old.
        let gathered = Instant::now() + Duration::from_secs(1 << 30);
        let listeners = facts.listeners.clone();
        let listening = Listening::default();
        let snapshot = Snapshot { gathered, listening: listening.now(), facts: Arc::new(facts) };
        Self { listeners, listening, latest: Mutex::new(Some(snapshot)) }
    }

    /// The facts, at most [`MAX_AGE`] old. Where the kernel cannot be asked (no descriptor left), the last ones stay in
    /// force.
    pub fn current(&self) -> Arc<HostFacts> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let listening = self.listening.now();
        let is_fresh = |last: &&Snapshot| last.gathered.elapsed() < MAX_AGE && Arc::ptr_eq(&last.listening, &listening);
        if let Some(last) = latest.as_ref().filter(is_fresh) {
            return Arc::clone(&last.facts);
        }
        let listeners = [&self.listeners[..], &listening[..]].concat();
        let facts = Arc::new(match (gather(&listeners), latest.as_ref()) {
            (Ok(facts), _) => facts,
            (Err(_), Some(last)) => HostFacts { listeners, ..(*last.facts).clone() },
            (Err(_), None) => nothing_known(&listeners),
        });
        *latest = Some(Snapshot { gathered: Instant::now(), listening, facts: Arc::clone(&facts) });
        facts
    }
}

/// Whether this host has an address besides loopback. Without one nothing can be reached from it. Where the kernel cannot
/// be asked, it is taken to have one.
#[must_use]
pub fn has_network() -> bool {
    gather(&[]).map_or(true, |facts| !facts.own.is_empty())
}

fn gather(listeners: &[SocketAddr]) -> nix::Result<HostFacts> {
    Ok(facts_of(getifaddrs()?.filter_map(|interface| Entry::new(&interface)), listeners))
}

/// The facts of a host that could never be asked: every address counts as on-link, so that only what a rule names is
/// reached.
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

    /// What the kernel reaches through the interface without a gateway. A prefix of length 0 is none: the kernel makes
    /// no route of it. A single address is `own` already, unless it is the peer's.
    fn on_link(&self) -> Option<IpNet> {
        let network = IpNet::with_netmask(self.peer.unwrap_or(self.address), self.netmask?).ok()?.trunc();
        let single =
            network.prefix_len() == network.max_prefix_len() && self.peer.is_none_or(|peer| peer == self.address);
        (self.up && !single && network.prefix_len() > 0).then_some(network)
    }
}

/// `getifaddrs` gives what an interface has; loopback and link-local prefixes are non-public by class and left out.
/// Further addresses of `lo` count like any other interface's: they are this host.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// An interface that is up, with an address and its prefix length.
    fn entry(text: &str, prefix: u8) -> Entry {
        let address = address(text);
        let netmask = IpNet::new(address, prefix).unwrap().netmask();
        Entry { up: true, address, peer: None, netmask: Some(netmask) }
    }

    fn facts(entries: impl IntoIterator<Item = Entry>) -> HostFacts {
        facts_of(entries.into_iter(), &[])
    }

    fn shown(prefixes: &[IpNet]) -> Vec<String> {
        prefixes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn own_addresses_and_their_prefixes() {
        let facts = facts([
            entry("127.0.0.1", 8),
            entry("::1", 128),
            entry("203.0.113.9", 24),
            entry("203.0.113.10", 24),
            entry("2001:db8::9", 64),
            entry("fe80::1", 64),
            entry("169.254.7.7", 16),
        ]);
        let own = ["203.0.113.9", "203.0.113.10", "2001:db8::9", "fe80::1", "169.254.7.7"].map(address);
        assert_eq!(facts.own, own);
        assert_eq!(shown(&facts.on_link), ["203.0.113.0/24", "2001:db8::/64"]);
    }

    #[test]
    fn single_addresses_and_length_zero_are_no_prefix() {
        let facts = facts([entry("203.0.113.9", 32), entry("2001:db8::9", 128), entry("203.0.113.77", 0)]);
        assert_eq!(facts.own.len(), 3);
        assert!(facts.on_link.is_empty());
    }

    #[test]
    fn an_interface_that_is_down_reaches_nothing_but_its_address_is_ours() {
        let facts = facts([Entry { up: false, ..entry("203.0.113.9", 24) }]);
        assert_eq!(facts.own, [address("203.0.113.9")]);
        assert!(facts.on_link.is_empty());
    }

    #[test]
    fn the_peer_of_a_point_to_point_link_is_on_link() {
        let facts = facts([Entry { peer: Some(address("203.0.113.77")), ..entry("198.51.100.1", 32) }]);
        assert_eq!(facts.own, [address("198.51.100.1")]);
        assert_eq!(shown(&facts.on_link), ["203.0.113.77/32"]);
    }

    #[test]
    fn further_addresses_of_the_loopback_interface_are_the_host() {
        let facts = facts([entry("127.0.0.1", 8), entry("203.0.113.9", 24)]);
        assert_eq!(facts.own, [address("203.0.113.9")]);
        assert_eq!(shown(&facts.on_link), ["203.0.113.0/24"]);
    }

    /// Makes the latest facts this old.
    fn age(facts: &Facts, age: Duration) {
        facts.latest.lock().unwrap().as_mut().unwrap().gathered = Instant::now() - age;
    }

    #[test]
    fn the_kernel_is_not_asked_each_time() {
        let listener = "127.0.0.1:8080".parse().unwrap();
        let facts = Facts::new(vec![listener]);
        let current = facts.current();
        assert_eq!(current.listeners, [listener]);
        assert!(current.own.iter().all(|address| !address.is_loopback()));
        age(&facts, Duration::ZERO);
        assert!(Arc::ptr_eq(&facts.current(), &current));
        age(&facts, MAX_AGE);
        assert!(!Arc::ptr_eq(&facts.current(), &current));
    }

    #[test]
    fn a_new_listener_counts_at_once() {
        let (one, other) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 1], 2)));
        let listening = Listening::default();
        let facts = Facts::new(vec![one]).beside(listening.clone());
        assert_eq!(facts.current().listeners, [one]);
        listening.set(vec![other]);
        assert_eq!(facts.current().listeners, [one, other]);
        listening.set(Vec::new());
        assert_eq!(facts.current().listeners, [one]);
    }

    #[test]
    fn a_host_that_cannot_be_asked_has_neighbours_everywhere() {
        assert_eq!(shown(&nothing_known(&[]).on_link), ["0.0.0.0/0", "::/0"]);
    }
}
