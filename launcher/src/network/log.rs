//! What the filter chain refused, as the kernel tells it: nfnetlink_log.
//!
//! Best effort: it feeds events and summaries, never a decision. Format: `linux/netfilter/nfnetlink_log.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockProtocol, recv, setsockopt, sockopt};

use super::capture_rules::LOG_GROUP;
use super::netlink::{Batch, Message, NLM_F_ACK, Socket, attributes, messages};

const SUBSYSTEM: u16 = 4;
const PACKET: u16 = SUBSYSTEM << 8;
const CONFIGURE: u16 = (SUBSYSTEM << 8) | 1;
const PAYLOAD: u16 = 9;

/// A socket, made in this network namespace, that hears of every logged packet at once.
pub(crate) fn open() -> nix::Result<OwnedFd> {
    let socket = Socket::open(SockProtocol::NetlinkNetFilter)?;
    // A burst of refused datagrams is bounded by the rule's rate limit.
    let [high, low] = LOG_GROUP.to_be_bytes();
    let header = [libc::AF_UNSPEC as u8, 0, high, low];
    let mut batch = Batch::default();
    let bind = batch.request(CONFIGURE, NLM_F_ACK, &header, |config| config.bytes(1, &[1])); // NFULNL_CFG_CMD_BIND
    let mode = batch.request(CONFIGURE, NLM_F_ACK, &header, |config| {
        config.bytes(2, &[0, 0, 0, 64, 2, 0]); // 64 bytes, NFULNL_COPY_PACKET
        config.be32(5, 1); // NFULNL_CFG_QTHRESH: do not hold back
    });
    for answer in socket.transact(&batch, &[bind, mode])? {
        answer?;
    }
    let fd = socket.into_fd();
    // The time limit was for the configuration; from here on the reader waits on its own terms.
    setsockopt(&fd, sockopt::ReceiveTimeout, &nix::sys::time::TimeVal::new(0, 0))?;
    Ok(fd)
}

/// Reads all that has arrived on the log socket, without waiting, and tells `each` where a refused UDP datagram was
/// meant to go. The rule's rate limit bounds how much that can be.
pub fn read_refused(log: &OwnedFd, mut each: impl FnMut(SocketAddr)) {
    let mut buffer = [0; 8 * 1024];
    loop {
        match recv(log.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(length) => messages(&buffer[..length]).filter_map(|message| refused(&message)).for_each(&mut each),
            // ENOBUFS: some were lost. Those that follow are there.
            Err(Errno::EINTR | Errno::ENOBUFS) => {}
            Err(_) => return,
        }
    }
}

fn refused(message: &Message) -> Option<SocketAddr> {
    if message.kind != PACKET {
        return None;
    }
    let (_, packet) = attributes(message.body.get(4..)?).find(|(kind, _)| *kind == PAYLOAD)?;
    destination(packet)
}

/// The destination of a UDP datagram, from its first bytes (RFC 791, RFC 8200, RFC 768).
fn destination(packet: &[u8]) -> Option<SocketAddr> {
    let (address, transport) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (packet.get(9) == Some(&17)).then_some((IpAddr::from(Ipv4Addr::from(octets)), packet.get(header..)?))?
        }
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (packet.get(6) == Some(&17)).then_some((IpAddr::from(Ipv6Addr::from(octets)), packet.get(40..)?))?
        }
        _ => return None,
    };
    let port = u16::from_be_bytes(transport.get(2..4)?.try_into().ok()?);
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_read_from_both_families() {
        let mut v4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 2, 100, 8, 8, 4, 4];
        v4.extend([0x30, 0x39, 0x01, 0xbb, 0, 8, 0, 0]);
        assert_eq!(destination(&v4), Some("8.8.4.4:443".parse().unwrap()));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        v6.extend([0; 16]);
        v6.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend([0x30, 0x39, 0x01, 0xbb, 0, 8, 0, 0]);
        assert_eq!(destination(&v6), Some("[2001:db8::1]:443".parse().unwrap()));
        for packet in [&v4, &v6] {
            for length in 0..packet.len() - 4 {
                assert_eq!(destination(&packet[..length]), None, "{length} bytes");
            }
        }
    }

    #[test]
    fn other_protocols_are_not_datagrams() {
        assert_eq!(destination(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 53]), None);
        assert_eq!(destination(&[0x10; 60]), None);
    }
}
