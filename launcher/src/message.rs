//! The few words that netbox and pid 1 of the sandbox say to each other.
//!
//! They go over a socket pair of type SOCK_SEQPACKET: one message a packet, a peer that is gone reads as end of file.
//! Format: one byte of kind, four bytes of number (little-endian), then text. Neither side trusts the other's bytes to
//! be well formed, although both are netbox: pid 1 lives beside the hostile program.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};

use crate::error::{Failure, Step};
use crate::sys;

/// What netbox says to pid 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The id maps are written: go on with the set-up.
    Mapped,
    /// The proxy is listening: start the command.
    Go {
        /// In the foreground of its terminal, if it has one.
        foreground: bool,
    },
    /// Send this signal to the command, or to its process group.
    Signal {
        /// The signal's number.
        number: i32,
        /// To the whole group, as a terminal does.
        group: bool,
    },
    /// Put the command's process group into the foreground of its terminal, or pid 1's own.
    Foreground(bool),
    /// Continue the command's process group.
    Continue {
        /// How often that has been ordered. A stop is told with the last number that came before it.
        turn: u16,
        /// With [`Order::Foreground`] before it. Keys come when that is told, and one that stops the command would be undone by
        /// going on after it.
        foreground: Option<bool>,
    },
    /// Make a pair of SEQPACKET sockets. It is the supervisor that asks, on a channel of its own.
    Pair {
        /// With O_NONBLOCK.
        nonblocking: bool,
    },
    /// Make a TCP socket, on the channel for further sockets.
    Socket {
        /// For IPv6, else for IPv4.
        ipv6: bool,
    },
}

/// What pid 1 says to netbox.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// The sandbox stands and has proved itself. The sockets come with it; the text lists the walls in force.
    Ready(String),
    /// A step failed; the command did not run.
    Failed(Failure),
    /// The command's program could not be executed: this error number.
    NotExecuted(i32),
    /// The command ended with this wait status (`waitpid(2)`), or was never executed and is gone.
    Ended(i32),
    /// The command was stopped. Netbox disregards it where it has ordered a further turn since.
    Stopped {
        /// By this signal.
        signal: u8,
        /// The number of the last [`Order::Continue`].
        turn: u16,
    },
    /// The command's terminal has a process group in its foreground: its keys are signals to somebody now.
    Foreground,
    /// The system-call filter is loaded, and its listener comes along. For the supervisor. The text: what the command's
    /// process took for its own walls ([`Costs`](crate::Costs)).
    Listener(String),
    /// The pair comes along; or else this error number. For the supervisor.
    Pair(i32),
    /// The socket comes along; or else this error number.
    Socket(i32),
}

/// At most this many sockets come with [`Report::Ready`]. The kernel lets 253 come at once (`SCM_MAX_FD`).
pub(crate) const MAX_DESCRIPTORS: usize = 240;
const MAX_TEXT: usize = 1024;

/// One end of the conversation.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Both ends: netbox's and pid 1's.
    pub(crate) fn pair() -> nix::Result<(Channel, Channel)> {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Channel(ours), Channel(theirs)))
    }

    /// The descriptor, to wait on.
    pub(crate) fn as_fd(&self) -> &OwnedFd {
        &self.0
    }

    pub(crate) fn order(&self, order: Order) -> nix::Result<()> {
        let (kind, number) = match order {
            Order::Mapped => (1, 0),
            Order::Go { foreground } => (2, foreground.into()),
            Order::Signal { number, group: false } => (3, number),
            Order::Signal { number, group: true } => (4, number),
            Order::Pair { nonblocking } => (5, nonblocking.into()),
            Order::Socket { ipv6 } => (6, ipv6.into()),
            Order::Foreground(command) => (8, command.into()),
            Order::Continue { turn, foreground: None } => (7, turn.into()),
            Order::Continue { turn, foreground: Some(false) } => (9, turn.into()),
            Order::Continue { turn, foreground: Some(true) } => (10, turn.into()),
        };
        self.send(kind, number, "", &[])
    }

    /// The next order; `None` when netbox is gone or does not speak our language.
    pub(crate) fn next_order(&self) -> nix::Result<Option<Order>> {
        let Some(packet) = self.receive()? else { return Ok(None) };
        Ok(match packet.kind {
            1 => Some(Order::Mapped),
            2 => Some(Order::Go { foreground: packet.number != 0 }),
            3 => Some(Order::Signal { number: packet.number, group: false }),
            4 => Some(Order::Signal { number: packet.number, group: true }),
            5 => Some(Order::Pair { nonblocking: packet.number != 0 }),
            6 => Some(Order::Socket { ipv6: packet.number != 0 }),
            8 => Some(Order::Foreground(packet.number != 0)),
            // The low half is the whole of it.
            7 => Some(Order::Continue { turn: packet.number as u16, foreground: None }),
            9 => Some(Order::Continue { turn: packet.number as u16, foreground: Some(false) }),
            10 => Some(Order::Continue { turn: packet.number as u16, foreground: Some(true) }),
            _ => None,
        })
    }

    pub(crate) fn report(&self, report: &Report, descriptors: &[RawFd]) -> nix::Result<()> {
        match report {
            Report::Ready(walls) => self.send(11, 0, walls, descriptors),
            // The step travels as the text's first character.
            Report::Failed(failure) => {
                let text = format!("{}{}", char::from(failure.step as u8), failure.detail);
                self.send(12, failure.errno, &text, &[])
            }
            Report::NotExecuted(errno) => self.send(13, *errno, "", &[]),
            Report::Ended(status) => self.send(14, *status, "", &[]),
            Report::Stopped { signal, turn } => self.send(18, i32::from(*signal) << 16 | i32::from(*turn), "", &[]),
            Report::Foreground => self.send(19, 0, "", &[]),
            Report::Listener(costs) => self.send(15, 0, costs, descriptors),
            Report::Pair(errno) => self.send(16, *errno, "", descriptors),
            Report::Socket(errno) => self.send(17, *errno, "", descriptors),
        }
    }

    /// The next report and the sockets that came with it; `None` when pid 1 is gone or speaks nonsense.
    pub(crate) fn next_report(&self) -> nix::Result<Option<(Report, Vec<OwnedFd>)>> {
        let Some(packet) = self.receive()? else { return Ok(None) };
        let report = match packet.kind {
            11 => Report::Ready(packet.text),
            12 => {
                let mut text = packet.text.chars();
                let step = text.next().and_then(|c| u8::try_from(c).ok()).and_then(Step::from_number);
                let Some(step) = step else { return Ok(None) };
                Report::Failed(Failure { step, errno: packet.number, detail: text.collect() })
            }
            13 => Report::NotExecuted(packet.number),
            14 => Report::Ended(packet.number),
            18 => Report::Stopped { signal: (packet.number >> 16) as u8, turn: packet.number as u16 },
            19 => Report::Foreground,
            15 => Report::Listener(packet.text),
            16 => Report::Pair(packet.number),
            17 => Report::Socket(packet.number),
            _ => return Ok(None),
        };
        Ok(Some((report, packet.descriptors)))
    }

    fn send(&self, kind: u8, number: i32, text: &str, descriptors: &[RawFd]) -> nix::Result<()> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&text.as_bytes()[..text.len().min(MAX_TEXT)]);
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        loop {
            match sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None) {
                Err(Errno::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    fn receive(&self) -> nix::Result<Option<Packet>> {
        let mut bytes = [0; 5 + MAX_TEXT];
        let mut control = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let (length, descriptors) = loop {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            match recvmsg::<()>(self.0.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC) {
                // The peer has ended while packets of ours were unread. That is told once, and before its last ones.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(errno) => return Err(errno),
                Ok(message) => {
                    let mut descriptors = Vec::new();
                    // There is room in the buffer; what is cut short are descriptors that this process may not have.
                    for part in message.cmsgs().map_err(|_| Errno::EMFILE)? {
                        if let ControlMessageOwned::ScmRights(fds) = part {
                            descriptors.extend(fds.into_iter().map(sys::adopt));
                        }
                    }
                    break (message.bytes, descriptors);
                }
            }
        };
        if length < 5 {
            return Ok(None);
        }
        let number = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let text = String::from_utf8_lossy(&bytes[5..length]).into_owned();
        Ok(Some(Packet { kind: bytes[0], number, text, descriptors }))
    }
}

struct Packet {
    kind: u8,
    number: i32,
    text: String,
    descriptors: Vec<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let (ours, theirs) = Channel::pair().unwrap();
        let orders = [
            Order::Mapped,
            Order::Go { foreground: true },
            Order::Go { foreground: false },
            Order::Foreground(true),
            Order::Foreground(false),
            Order::Continue { turn: u16::MAX, foreground: None },
            Order::Continue { turn: 0, foreground: Some(false) },
            Order::Continue { turn: 1, foreground: Some(true) },
            Order::Signal { number: 15, group: false },
            Order::Signal { number: 2, group: true },
            Order::Pair { nonblocking: true },
            Order::Pair { nonblocking: false },
            Order::Socket { ipv6: true },
            Order::Socket { ipv6: false },
        ];
        for order in orders {
            ours.order(order).unwrap();
            assert_eq!(theirs.next_order().unwrap(), Some(order));
        }
        drop(ours);
        assert_eq!(theirs.next_order().unwrap(), None);
    }

    #[test]
    fn a_failure_arrives_with_its_step_and_errno() {
        let (ours, theirs) = Channel::pair().unwrap();
        theirs.report(&Report::Failed(Failure::new(Step::Proc, Errno::EPERM, "`/proc`")), &[]).unwrap();
        let Some((Report::Failed(failure), descriptors)) = ours.next_report().unwrap() else { panic!("no failure") };
        assert_eq!((failure.step, failure.errno, failure.detail.as_str()), (Step::Proc, libc::EPERM, "`/proc`"));
        assert!(descriptors.is_empty());
    }

    #[test]
    fn a_stop_arrives_with_its_signal_and_its_turn() {
        let (ours, theirs) = Channel::pair().unwrap();
        for told in [(19, 0), (20, 1), (22, u16::MAX)] {
            theirs.report(&Report::Stopped { signal: told.0, turn: told.1 }, &[]).unwrap();
            let Some((Report::Stopped { signal, turn }, _)) = ours.next_report().unwrap() else { panic!("no stop") };
            assert_eq!((signal, turn), told);
        }
    }

    #[test]
    fn last_words_arrive_although_orders_were_unread() {
        let (ours, theirs) = Channel::pair().unwrap();
        theirs.report(&Report::Ended(42), &[]).unwrap();
        ours.order(Order::Go { foreground: true }).unwrap();
        drop(theirs);
        assert!(matches!(ours.next_report().unwrap(), Some((Report::Ended(42), _))));
        assert!(ours.next_report().unwrap().is_none());
    }

    #[test]
    fn sockets_come_with_ready() {
        let (ours, theirs) = Channel::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        theirs.report(&Report::Ready("nft".into()), &[listener.as_raw_fd()]).unwrap();
        let Some((Report::Ready(walls), descriptors)) = ours.next_report().unwrap() else { panic!("not ready") };
        assert_eq!(walls, "nft");
        let received = std::net::TcpListener::from(descriptors.into_iter().next().unwrap());
        assert_eq!(received.local_addr().unwrap(), listener.local_addr().unwrap());
    }

    #[test]
    fn an_unknown_kind_reads_as_a_peer_that_is_gone() {
        let (ours, theirs) = Channel::pair().unwrap();
        theirs.send(99, 0, "", &[]).unwrap();
        assert!(ours.next_report().unwrap().is_none());
        theirs.send(12, 1, "\u{ff}", &[]).unwrap();
        assert!(ours.next_report().unwrap().is_none());
    }
}
