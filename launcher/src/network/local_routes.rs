//! The capture where the kernel has no nf_tables: every address is the sandbox's own.
//!
//! # Theory of operation
//!
//! ```text
//! local default     dev lo table local src 10.0.2.100
//! local 10.0.2.0/24 dev lo table local src 10.0.2.100
//! ```
//!
//! And likewise for IPv6. The second one is for the network that the stub seems to be on: the kernel keeps both of its tables as
//! one until there are rules about them, and takes the longest prefix. With these routes a connect to any address ends on the loopback interface, at whoever listens on its port on every
//! address. That is netbox, on the ports that the policy's rules speak of and on a few more ([`caught`]); an accepted
//! socket's own address is where the program meant to go. On every other port nobody listens, and the kernel refuses at
//! once. Nothing leaves, as nothing leaves with the rules: no interface leads out of this network namespace.
//!
//! What is less than with [`capture_rules`](super::capture_rules):
//!
//! * Only these ports. A connect to another one is refused, also where a rule of many ports would allow it.
//! * On these ports no program inside can listen. A connect to the sandbox itself there is refused by the supervisor, as
//!   the kernel refuses one where nobody listens.
//! * Queries for names are answered at the address of `resolv.conf` alone.
//! * Datagrams are refused by ICMP: a socket that is not connected does not hear of it, and neither does netbox.
//! * Every address can be bound to, and so a program can be a server that others inside take for one outside.

use nix::sys::socket::SockProtocol;

use super::interfaces::{
    ADDRESS4, ADDRESS6, LOOPBACK_INDEX, PREFIX4, PREFIX6, RTA_DST, RTA_OIF, RTA_PREFSRC, RTM_NEWROUTE,
};
use super::listeners::{CAPTURE_PORT, DNS, OWN_PORTS};
use super::netlink::{Batch, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, Socket};
use crate::error::{At, Failure, Step};

/// On how many ports connections can be caught.
pub const MAX_CAUGHT_PORTS: usize = 128;

/// Makes every address local.
pub(crate) fn add(ipv6: bool) -> Result<(), Failure> {
    let step = Step::CaptureRules;
    let socket = Socket::open(SockProtocol::NetlinkRoute).at(step, "the route socket")?;
    let mut batch = Batch::default();
    let mut awaited = Vec::new();
    for prefix in [0, PREFIX4] {
        awaited.push(local(&mut batch, libc::AF_INET, &ADDRESS4.octets(), prefix));
    }
    for prefix in [0, PREFIX6].into_iter().filter(|_| ipv6) {
        awaited.push(local(&mut batch, libc::AF_INET6, &ADDRESS6.octets(), prefix));
    }
    for answer in socket.transact(&batch, &awaited).at(step, "the route socket")? {
        answer.at(step, "a route that makes every address local")?;
    }
    Ok(())
}

/// `struct rtmsg` of rtnetlink(7): `local OCTETS/PREFIX dev lo table local src OCTETS`. That table is where the kernel looks
/// whether an address is its own, which it must be to be answered from.
fn local(batch: &mut Batch, family: i32, octets: &[u8], prefix: u8) -> u32 {
    let (table, protocol) = (libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT);
    let scope = if family == libc::AF_INET { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_UNIVERSE };
    let header = [family as u8, prefix, 0, 0, table, protocol, scope, libc::RTN_LOCAL, 0, 0, 0, 0];
    batch.request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &header, |attributes| {
        let whole = usize::from(prefix / 8);
        let mut network = octets[..whole].to_vec();
        network.resize(octets.len(), 0);
        attributes.bytes(RTA_DST, &network);
        attributes.bytes(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes());
        if family == libc::AF_INET {
            attributes.bytes(RTA_PREFSRC, octets);
        }
    })
}

/// The ports on which connections are caught: those that were asked for, and one for the proof. Not what netbox listens on
/// for other reasons: queries for names are never captured as connections, and a port of the host's loopback is what it
/// was opened for.
pub(crate) fn caught(wanted: &[u16], host_ports: &[u16]) -> Vec<u16> {
    let mut ports: Vec<u16> = Vec::new();
    for port in wanted {
        let is_taken = OWN_PORTS.contains(port) || *port == DNS || host_ports.contains(port) || ports.contains(port);
        if !is_taken && *port != 0 && ports.len() < MAX_CAUGHT_PORTS {
            ports.push(*port);
        }
    }
    ports.push(CAPTURE_PORT);
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_caught_once_and_none_that_has_another_use() {
        assert_eq!(caught(&[443, 80, 443, 53, 0, 61003, 8080], &[8080]), [443, 80, CAPTURE_PORT]);
        let all: Vec<u16> = (1..=u16::MAX).collect();
        assert_eq!(caught(&all, &[]).len(), MAX_CAUGHT_PORTS + 1);
    }
}
