//! The sandbox's network: interfaces that lead nowhere, rules that capture, listeners that netbox holds.
//!
//! Stages, in order: [`interfaces::set_up`], [`capture_rules::load`], [`Listeners::open`],
//! [`self_test::run`]. All of them run in pid 1 of the sandbox, which has CAP_NET_ADMIN in a network namespace of its
//! own; none needs a privilege on the host.

mod capture_rules;
mod interfaces;
mod listeners;
pub(crate) mod log;
pub(crate) mod netlink;
mod self_test;

use std::fs;

pub(crate) use interfaces::{ADDRESS4, ADDRESS6};
pub use listeners::{EXPLICIT_PORT, Listeners, MAX_HOST_PORTS, OWN_PORTS};
pub use log::read_refused;

use crate::costs::Stopwatch;
use crate::error::{At, Failure, Step};

/// The sandbox's network, standing and proved.
pub(crate) struct Network {
    pub(crate) listeners: Listeners,
    /// The mechanisms in force, for the `start` event: "nft", the stub's kind, "ipv6" where it is there.
    pub(crate) walls: Vec<&'static str>,
}

/// Sets the network up in the calling process's namespace. `resolver_of_last_resort`: see [`Listeners::open`].
pub(crate) fn set_up(
    resolver_of_last_resort: bool,
    host_ports: &[u16],
    watch: &mut Stopwatch,
) -> Result<Network, Failure> {
    let interfaces = interfaces::set_up()?;
    watch.lap("interfaces");
    capture_rules::load()?;
    watch.lap("capture rules");
    let listeners = Listeners::open(interfaces.ipv6, resolver_of_last_resort, host_ports)?;
    watch.lap("listeners");
    self_test::run(&listeners)?;
    watch.lap("proof of the capture");
    let mut walls = vec!["netns", "nft", interfaces.stub];
    if interfaces.ipv6 {
        walls.push("ipv6");
    }
    Ok(Network { listeners, walls })
}

/// Lets programs inside bind ports below 1024: they are the sandbox's own.
///
/// Needs the fresh `/proc`: in a container the old one's `sys` is often read-only.
pub(crate) fn allow_low_ports() -> Result<(), Failure> {
    let path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    fs::write(path, "0").at(Step::LowPorts, path)
}
