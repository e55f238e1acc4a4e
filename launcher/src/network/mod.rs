//! The sandbox's network: interfaces that lead nowhere, rules that capture, listeners that netbox holds.
//!
//! Stages, in order: [`interfaces::set_up`], [`capture_rules::load`] or else [`local_routes::add`], [`Listeners::open`],
//! [`self_test::run`]. All of them run in pid 1 of the sandbox, which has CAP_NET_ADMIN in a network namespace of its
//! own; none needs a privilege on the host.

mod capture_rules;
mod interfaces;
mod listeners;
mod local_routes;
pub(crate) mod log;
pub(crate) mod netlink;
mod self_test;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

pub(crate) use interfaces::{ADDRESS4, ADDRESS6};
pub use listeners::{EXPLICIT_PORT, Listeners, MAX_HOST_PORTS, OWN_PORTS, own_addresses};
pub use local_routes::MAX_CAUGHT_PORTS;
pub use log::read_refused;

use crate::costs::Stopwatch;
use crate::error::Failure;
use capture_rules::Loaded;
use listeners::Capture;

/// The sandbox's network, standing and proved.
pub(crate) struct Network {
    pub(crate) listeners: Listeners,
    /// The mechanisms in force, for the `start` event: "nft" or "routes", the stub's kind, "nflog" and "ipv6" where they are
    /// there.
    pub(crate) walls: Vec<&'static str>,
}

/// Sets the network up in the calling process's namespace. `resolver_of_last_resort`: see [`Listeners::open`]; `ports`: see
/// [`Spec::caught_ports`](crate::Spec::caught_ports).
pub(crate) fn set_up(
    resolver_of_last_resort: bool,
    host_ports: &[u16],
    ports: &[u16],
    watch: &mut Stopwatch,
) -> Result<Network, Failure> {
    let interfaces = interfaces::set_up()?;
    watch.lap("interfaces");
    let ipv6 = interfaces.ipv6 && has_sockets6();
    let loaded = capture_rules::load()?;
    let capture = if loaded == Loaded::Nothing {
        local_routes::add(ipv6)?;
        Capture::Routes(local_routes::caught(ports, host_ports))
    } else {
        Capture::Rules
    };
    watch.lap("capture rules");
    let listeners = Listeners::open(&capture, ipv6, resolver_of_last_resort, host_ports)?;
    watch.lap("listeners");
    self_test::run(&listeners, &capture, ipv6)?;
    watch.lap("proof of the capture");
    let wall = if matches!(capture, Capture::Rules) { "nft" } else { "routes" };
    let mut walls = vec!["netns", wall, interfaces.stub];
    if loaded == Loaded::All && listeners.log.is_some() {
        walls.push("nflog");
    }
    if ipv6 {
        walls.push("ipv6");
    }
    Ok(Network { listeners, walls })
}

/// Whether there are sockets for IPv6. A kernel that has it may still be told to have none, by `ipv6.disable` or by the
/// system-call filter of a container: then programs inside have none either.
fn has_sockets6() -> bool {
    socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).is_ok()
}
