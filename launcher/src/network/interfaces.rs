//! The interfaces of the sandbox: loopback, and a stub that leads nowhere.
//!
//! Programs ask for an address that is not loopback before they look names up (AI_ADDRCONFIG), browsers ask for an
//! interface that is up before they call themselves online. So there is one that looks ordinary, with an ordinary
//! address and a default route. A packet that reached it would be dropped; the capture rules see to it that none does.
//!
//! Kinds, by preference: dummy, ifb (the same for this purpose), veth whose peer stays inside, and last the loopback
//! interface itself. Which of them a kernel has is found by trying.

use std::net::{Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{Attributes, Batch, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, Socket};
use crate::error::{At, Failure, Step};

/// The sandbox's own IPv4 address.
pub(crate) const ADDRESS4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
/// The length of its network's prefix, whole bytes.
pub(super) const PREFIX4: u8 = 24;
/// See there.
pub(super) const PREFIX6: u8 = 64;
/// The sandbox's own IPv6 address: unique local (RFC 4193), `6e6574626f78` spells "netbox".
pub(crate) const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x6574, 0x626f, 0x7800, 0, 0, 0, 0x100);

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_NEWROUTE: u16 = 24;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_PREFSRC: u16 = 7;
pub(super) const LOOPBACK_INDEX: u32 = 1;
const STUB_INDEX: u32 = 2;
const PEER_INDEX: u32 = 3;

/// What the sandbox's network looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interfaces {
    /// Which kind of stub the kernel gave.
    pub(crate) stub: &'static str,
    /// Whether IPv6 could be set up; where not, no IPv6 connect can succeed inside.
    pub(crate) ipv6: bool,
}

/// Brings up loopback and the stub, in one datagram per kind tried.
pub(crate) fn set_up() -> Result<Interfaces, Failure> {
    let socket = Socket::open(SockProtocol::NetlinkRoute).at(Step::Interfaces, "the route socket")?;
    for stub in ["dummy", "ifb", "veth", "lo"] {
        let mut batch = Batch::default();
        let loopback = link(&mut batch, LOOPBACK_INDEX, 0, true, |_| {});
        let device = if stub == "lo" { LOOPBACK_INDEX } else { STUB_INDEX };
        let created = if stub == "lo" { loopback } else { create(&mut batch, stub) };
        let address4 = address(&mut batch, device, libc::AF_INET, &ADDRESS4.octets(), PREFIX4);
        let route4 = default_route(&mut batch, device, libc::AF_INET, Some(&ADDRESS4.octets()));
        let address6 = address(&mut batch, device, libc::AF_INET6, &ADDRESS6.octets(), PREFIX6);
        let local6 = local_route6(&mut batch, device);
        let route6 = default_route(&mut batch, device, libc::AF_INET6, None);
        let awaited = [loopback, created, address4, route4, address6, local6, route6];
        let answers = socket.transact(&batch, &awaited).at(Step::Interfaces, "the route socket")?;
        let &[loopback, created, address4, route4, address6, local6, route6] = answers.as_slice() else {
            return Err(Failure::outcome(Step::Interfaces, "the kernel's answers do not match the requests"));
        };
        loopback.at(Step::Interfaces, "`lo`")?;
        match created {
            // EINVAL: the kind is there and wants parameters that it should not.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV) if stub != "lo" => continue,
            other => other.at(Step::Interfaces, &format!("a stub interface of kind {stub}"))?,
        }
        address4.at(Step::Interfaces, "the IPv4 address")?;
        route4.at(Step::Interfaces, "the IPv4 default route")?;
        // Without IPv6 (`disable_ipv6`, or a kernel built without it) the sandbox has none either.
        let ipv6 = address6.is_ok();
        if ipv6 {
            match local6 {
                Err(Errno::EEXIST) => {}
                other => other.at(Step::Interfaces, "the route to the IPv6 address")?,
            }
            route6.at(Step::Interfaces, "the IPv6 default route")?;
        }
        return Ok(Interfaces { stub, ipv6 });
    }
    Err(Failure::outcome(Step::Interfaces, "no kind of stub interface is available"))
}

fn create(batch: &mut Batch, kind: &str) -> u32 {
    let created = link(batch, STUB_INDEX, NLM_F_CREATE | NLM_F_EXCL, true, |attributes| {
        attributes.text(IFLA_IFNAME, "eth0");
        attributes.nested(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, kind);
            if kind == "veth" {
                info.nested(IFLA_INFO_DATA, |data| {
                    data.open(VETH_INFO_PEER, &interface_header(PEER_INDEX, false), |peer| {
                        peer.text(IFLA_IFNAME, "eth0p");
                    });
                });
            }
        });
    });
    if kind == "veth" {
        // The peer cannot be brought up by the message that makes it (ENOTCONN).
        link(batch, PEER_INDEX, 0, true, |_| {});
    }
    created
}

/// `struct ifinfomsg` of rtnetlink(7).
fn interface_header(index: u32, up: bool) -> [u8; 16] {
    let flags = if up { libc::IFF_UP as u32 } else { 0 };
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

fn link(batch: &mut Batch, index: u32, flags: u16, up: bool, fill: impl FnOnce(&mut Attributes)) -> u32 {
    batch.request(RTM_NEWLINK, NLM_F_ACK | flags, &interface_header(index, up), fill)
}

/// `struct ifaddrmsg` of rtnetlink(7). Without duplicate address detection: nobody else is there.
fn address(batch: &mut Batch, index: u32, family: i32, octets: &[u8], prefix: u8) -> u32 {
    let mut header = [0; 8];
    header[0] = family as u8;
    header[1] = prefix;
    header[2] = libc::IFA_F_NODAD as u8;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    batch.request(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &header, |attributes| {
        attributes.bytes(IFA_LOCAL, octets);
        attributes.bytes(IFA_ADDRESS, octets);
    })
}

/// `struct rtmsg` of rtnetlink(7): `local ADDRESS6 dev INDEX table local`.
///
/// The kernel adds this route itself, but from a work queue, some time after it has acknowledged the address. A reply that
/// is sent before is not to a local destination, and the filter drops it: seen as a first IPv6 connect that takes a second.
fn local_route6(batch: &mut Batch, index: u32) -> u32 {
    let family = libc::AF_INET6 as u8;
    let (table, protocol) = (libc::RT_TABLE_LOCAL, libc::RTPROT_KERNEL);
    let header = [family, 128, 0, 0, table, protocol, libc::RT_SCOPE_UNIVERSE, libc::RTN_LOCAL, 0, 0, 0, 0];
    batch.request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &header, |attributes| {
        attributes.bytes(RTA_DST, &ADDRESS6.octets());
        attributes.bytes(RTA_OIF, &index.to_ne_bytes());
    })
}

/// `struct rtmsg` of rtnetlink(7): `default dev INDEX [src OCTETS]`.
fn default_route(batch: &mut Batch, index: u32, family: i32, source: Option<&[u8]>) -> u32 {
    let header = [
        family as u8,
        0,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_BOOT,
        if family == libc::AF_INET { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE },
        libc::RTN_UNICAST,
        0,
        0,
        0,
        0,
    ];
    batch.request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &header, |attributes| {
        attributes.bytes(RTA_OIF, &index.to_ne_bytes());
        if let Some(source) = source {
            attributes.bytes(RTA_PREFSRC, source);
        }
    })
}
