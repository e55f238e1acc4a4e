//! Netlink, as much as the launcher needs: build requests, send them in one datagram, read every answer.
//!
//! Formats: netlink(7), rtnetlink(7), `linux/netlink.h`. Headers and attributes are in host byte order; values are what
//! each protocol says they are.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;

/// Several requests, back to back, as they go into one datagram.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    count: u32,
}

impl Batch {
    /// Adds a request with this fixed header, and lets `fill` add its attributes. Returns its sequence number.
    pub(crate) fn request(&mut self, kind: u16, flags: u16, fixed: &[u8], fill: impl FnOnce(&mut Attributes)) -> u32 {
        let start = self.bytes.len();
        self.count += 1;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        self.bytes.extend_from_slice(&self.count.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(fixed);
        pad(&mut self.bytes);
        fill(&mut Attributes(&mut self.bytes));
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.count
    }
}

/// The attributes of a request under construction.
pub(crate) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        pad(self.0);
    }

    /// A NUL-terminated string.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    /// A 32-bit number in network byte order, as nf_tables wants them.
    pub(crate) fn be32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes)) {
        self.open(kind | NLA_F_NESTED, &[], fill);
    }

    /// An attribute that begins with a fixed header (VETH_INFO_PEER).
    pub(crate) fn open(&mut self, kind: u16, fixed: &[u8], fill: impl FnOnce(&mut Attributes)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(fixed);
        pad(self.0);
        fill(&mut Attributes(self.0));
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

fn pad(bytes: &mut Vec<u8>) {
    while !bytes.len().is_multiple_of(4) {
        bytes.push(0);
    }
}

/// A netlink socket of the network namespace that it was opened in.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn open(protocol: SockProtocol) -> nix::Result<Self> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        // The kernel answers within the send; a missing answer is a fault of ours and must not hang the start.
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(2, 0))?;
        Ok(Socket(fd))
    }

    pub(crate) fn send(&self, batch: &Batch) -> nix::Result<()> {
        sendto(self.0.as_raw_fd(), &batch.bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty()).map(drop)
    }

    /// Sends the batch and waits for one acknowledgement for each of `awaited`. Answers in the order of `awaited`.
    pub(crate) fn transact(&self, batch: &Batch, awaited: &[u32]) -> nix::Result<Vec<Result<(), Errno>>> {
        self.send(batch)?;
        let mut answers = vec![None; awaited.len()];
        while answers.iter().any(Option::is_none) {
            self.read(MsgFlags::empty(), |message| {
                if message.kind == NLMSG_ERROR
                    && let Some(at) = awaited.iter().position(|sequence| *sequence == message.sequence)
                {
                    answers[at] = Some(message.error());
                }
            })?;
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Sends a batch that succeeds or fails as a whole, and whose `last` request asks for an acknowledgement.
    /// Answers with the errors: the number of the request and what was wrong with it.
    pub(crate) fn transact_whole(&self, batch: &Batch, last: u32) -> nix::Result<Vec<(u32, Errno)>> {
        self.send(batch)?;
        let mut errors = Vec::new();
        let mut ended = false;
        // The kernel has queued every answer before the send returned: wait for one that ends it, then take the rest.
        let mut flags = MsgFlags::empty();
        loop {
            let read = self.read(flags, |message| {
                if message.kind == NLMSG_ERROR {
                    ended |= message.sequence == last;
                    if let Err(errno) = message.error() {
                        ended = true;
                        errors.push((message.sequence, errno));
                    }
                }
            });
            match read {
                Err(Errno::EAGAIN) if ended => return Ok(errors),
                other => other?,
            }
            if ended {
                flags = MsgFlags::MSG_DONTWAIT;
            }
        }
    }

    /// Sends a dump request and hands every message of the answer to `each`.
    pub(crate) fn dump(&self, batch: &Batch, mut each: impl FnMut(&[u8])) -> nix::Result<()> {
        self.send(batch)?;
        let mut end = None;
        while end.is_none() {
            self.read(MsgFlags::empty(), |message| match message.kind {
                NLMSG_DONE => end = Some(Ok(())),
                NLMSG_ERROR => end = Some(message.error()),
                _ => each(message.body),
            })?;
        }
        end.unwrap_or(Ok(()))
    }

    /// Reads one datagram and hands over its messages.
    fn read(&self, flags: MsgFlags, mut each: impl FnMut(Message)) -> nix::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let length = recv(self.0.as_raw_fd(), &mut buffer, flags)?;
        for message in messages(&buffer[..length]) {
            each(message);
        }
        Ok(())
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }
}

/// One message of a datagram.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    sequence: u32,
    /// What follows the netlink header.
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// The error number of an NLMSG_ERROR; 0 is the acknowledgement.
    fn error(&self) -> Result<(), Errno> {
        match self.body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
            Some(0) => Ok(()),
            Some(code) => Err(Errno::from_raw(-code)),
            None => Err(Errno::EBADMSG),
        }
    }
}

/// The messages of one datagram. Ends at the first that does not fit.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER)?;
        let length = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
        let body = bytes.get(HEADER..length)?;
        let message = Message {
            kind: u16::from_ne_bytes(header[4..6].try_into().ok()?),
            sequence: u32::from_ne_bytes(header[8..12].try_into().ok()?),
            body,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in `bytes`: their kinds without flags, and their values. Ends at the first that does not fit.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut batch = Batch::default();
        batch.request(16, NLM_F_ACK, &[0; 4], |attributes| {
            attributes.text(3, "eth0");
            attributes.nested(18, |inner| inner.be32(1, 7));
        });
        let all: Vec<_> = messages(&batch.bytes).collect();
        assert_eq!(all.len(), 1);
        let attributes: Vec<_> = attributes(&all[0].body[4..]).collect();
        assert_eq!(attributes[0], (3, &b"eth0\0"[..]));
        assert_eq!(attributes[1].0, 18);
        assert_eq!(super::attributes(attributes[1].1).next(), Some((1, &[0, 0, 0, 7][..])));
    }

    #[test]
    fn truncated_bytes_end_the_iteration() {
        let mut batch = Batch::default();
        batch.request(16, 0, &[1, 2, 3, 4], |attributes| attributes.bytes(1, &[9; 5]));
        for length in 0..batch.bytes.len() {
            for message in messages(&batch.bytes[..length]) {
                assert!(attributes(message.body).count() <= 2);
            }
        }
        assert_eq!(attributes(&[1, 0, 0, 0]).count(), 0, "a length below the header's own");
    }
}
