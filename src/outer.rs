//! The netbox that this one is inside of, if it is.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use netbox_launcher::{EXPLICIT_PORT, OWN_PORTS};
use netbox_proxy::Outer;

/// Where a resolver asks that knows no other place.
const DNS: u16 = 53;

/// The one that this process is inside of, found by asking.
pub fn here() -> Option<Outer> {
    netbox_launcher::is_nested().then(around)
}

/// How it is asked: as programs beside this one may.
pub fn around() -> Outer {
    Outer::at(SocketAddr::from((Ipv4Addr::LOCALHOST, EXPLICIT_PORT)))
}

/// Where it listens. No rule of this one's leads there past its own judgement.
pub fn doors(outer: Option<Outer>) -> Vec<SocketAddr> {
    let ports = outer.map(|_| OWN_PORTS.into_iter().chain([DNS])).into_iter().flatten();
    let both = |port| [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
    ports.flat_map(both).collect()
}
