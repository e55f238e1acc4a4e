//! The names of the test's internet and their addresses.
//!
//! Every test publishes names of its own, and unless it says otherwise each name has addresses of its own, one IPv4
//! and one IPv6: what reached an address is then known to belong to one test, and tests can run side by side.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The domain below which every name lives.
pub const DOMAIN: &str = "example.com";

/// The name server of the test host.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 65);
/// A public resolver as a program would write it into its source; it is here too.
pub const PUBLIC_RESOLVER: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
/// No test uses this address: fences connect to it.
pub const FENCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);
/// The same on the test host.
pub const HOST_FENCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// Where datagrams are echoed, port 4433.
pub const UDP_ECHO: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 67);
/// The same over IPv6.
pub const UDP_ECHO_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0x80, 0, 0, 0, 0x67);
/// A name that stands in the test host's `/etc/hosts` alone.
pub const IN_HOSTS_FILE: (&str, Ipv4Addr) = ("in-hosts-file.example.com", Ipv4Addr::new(203, 0, 113, 68));
/// The cloud's metadata service.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The test host's own address.
pub const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// Below this name, nothing is ever answered.
pub const SILENT: &str = "silent.example.com";
/// A published name.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name, `label.example.com`.
    pub name: String,
    /// Its addresses, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

impl Host {
    /// Its IPv4 address.
    ///
    /// # Panics
    ///
    /// When it has none.
    pub fn v4(&self) -> Ipv4Addr {
        let found = self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        found.expect("the name has an IPv4 address")
    }

    /// Its IPv6 address.
    ///
    /// # Panics
    ///
    /// When it has none.
    pub fn v6(&self) -> Ipv6Addr {
        let found = self.addresses.iter().find_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        found.expect("the name has an IPv6 address")
    }

    /// `http://name/path`.
    pub fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.name)
    }

    /// `https://name/path`.
    pub fn https(&self, path: &str) -> String {
        format!("https://{}{path}", self.name)
    }

    /// `name:port`, as a rule or a target.
    pub fn port(&self, port: u16) -> String {
        format!("{}:{port}", self.name)
    }
}

/// What the name server knows of a name.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These addresses; an empty list of a family is an empty answer.
    Addresses(Vec<IpAddr>),
    /// The lookup fails (SERVFAIL).
    Failure,
    /// No such name (NXDOMAIN).
    NoSuchName,
    /// None.
    Silence,
}

/// All names. A name that was never published does not exist.
#[derive(Debug, Default)]
pub struct Zone {
    published: Mutex<Published>,
}

#[derive(Debug, Default)]
struct Published {
    answers: HashMap<String, Answer>,
    addresses_given: u16,
}

impl Zone {
    /// Publishes `label.example.com` with an IPv4 and an IPv6 address of its own.
    pub fn host(&self, label: &str) -> Host {
        let (v4, v6) = self.fresh_addresses();
        self.host_at(label, &[v4.into(), v6.into()])
    }

    /// Publishes a name that has an A record only.
    pub fn host_v4(&self, label: &str) -> Host {
        let (v4, _) = self.fresh_addresses();
        self.host_at(label, &[v4.into()])
    }

    /// Publishes a name that has an AAAA record only.
    pub fn host_v6(&self, label: &str) -> Host {
        let (_, v6) = self.fresh_addresses();
        self.host_at(label, &[v6.into()])
    }

    /// Publishes a name with the given addresses, which other names may share.
    pub fn host_at(&self, label: &str, addresses: &[IpAddr]) -> Host {
        let host = Host { name: format!("{label}.{DOMAIN}"), addresses: addresses.to_vec() };
        self.publish(&host, Answer::Addresses(host.addresses.clone()));
        host
    }

    /// Publishes a name outside of the tests' domain.
    pub fn host_named(&self, name: &str, addresses: &[IpAddr]) -> Host {
        let host = Host { name: name.to_owned(), addresses: addresses.to_vec() };
        self.publish(&host, Answer::Addresses(host.addresses.clone()));
        host
    }

    /// Publishes other addresses for a host.
    pub fn rebind(&self, host: &Host, addresses: &[IpAddr]) {
        self.lock().answers.insert(host.name.clone(), Answer::Addresses(addresses.to_vec()));
    }

    /// Publishes a name whose lookup fails.
    pub fn host_failing(&self, label: &str) -> Host {
        let host = Host { name: format!("{label}.{DOMAIN}"), addresses: Vec::new() };
        self.publish(&host, Answer::Failure);
        host
    }

    /// Names a host that does not exist.
    pub fn host_missing(&self, label: &str) -> Host {
        let host = Host { name: format!("{label}.{DOMAIN}"), addresses: Vec::new() };
        self.publish(&host, Answer::NoSuchName);
        host
    }

    /// What the name server answers for `name`, which is compared in lower case and without a trailing dot.
    pub fn answer(&self, name: &str) -> Answer {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if name.strip_suffix(SILENT).is_some_and(|rest| rest.ends_with('.')) {
            return Answer::Silence;
        }
        self.lock().answers.get(&name).cloned().unwrap_or(Answer::NoSuchName)
    }

    fn publish(&self, host: &Host, answer: Answer) {
        let earlier = self.lock().answers.insert(host.name.clone(), answer);
        assert!(earlier.is_none(), "two tests use the name {}: what reached it could belong to either", host.name);
    }

    fn fresh_addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        let mut published = self.lock();
        published.addresses_given += 1;
        let number = published.addresses_given;
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 1, 0x80, 0, 0, 1, number);
        (nth(number), v6)
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The addresses that tests have for themselves, from 1 on: those of one network after the other (`network`).
fn nth(number: u16) -> Ipv4Addr {
    const NETWORKS: [([u8; 3], u8, u8); 3] =
        [([198, 51, 100], 1, 250), ([203, 0, 113], 129, 254), ([192, 0, 2], 129, 254)];
    let all = NETWORKS
        .into_iter()
        .flat_map(|([a, b, c], first, last)| (first..=last).map(move |host| Ipv4Addr::new(a, b, c, host)));
    all.into_iter().nth(usize::from(number) - 1).expect("the networks of the tests are used up")
}
