//! `socketpair(2)` of unix datagram sockets: a SEQPACKET pair takes its place.
//!
//! An end of a datagram pair can send to any other datagram socket that has a path. A SEQPACKET pair keeps the
//! boundaries of messages as well, and looks no address up. It is made by pid 1, in the sandbox's network namespace:
//! one made here would belong to the host's.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::{Notification, Supervisor, Target};
use crate::message::{Channel, Order, Report};

const TYPE: i32 = 0xf;

impl Supervisor {
    /// Gives the caller such a pair.
    pub(super) fn make_pair(&self, notification: &Notification) -> nix::Result<()> {
        let [_, kind, protocol, place, ..] = notification.request().arguments;
        let flags = kind as u32 as i32 & !TYPE;
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }
        if !matches!(protocol as u32 as i32, 0 | libc::PF_UNIX) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        // By handle and never by number: a read may wait on a page for as long as the program likes (a file system of
        // its own can serve the page), and its number may be a process of the host's by the time of the write.
        let memory = Target::of(notification)?.memory()?;
        if !notification.is_waiting() {
            return Err(Errno::EINTR);
        }
        // See that the place can be written to before anything is put into the process.
        let mut numbers = [0; 8];
        memory.read(place, &mut numbers)?;
        memory.write(place, &numbers)?;
        let (one, other) = self.ask_for_pair(flags & libc::SOCK_NONBLOCK != 0)?;
        if !notification.is_waiting() {
            return Err(Errno::EINTR);
        }
        let close_on_exec = flags & libc::SOCK_CLOEXEC != 0;
        for (number, end) in numbers.chunks_exact_mut(4).zip([one, other]) {
            number.copy_from_slice(&notification.add_descriptor(end.as_fd(), close_on_exec)?.to_ne_bytes());
        }
        memory.write(place, &numbers)
    }

    fn ask_for_pair(&self, nonblocking: bool) -> nix::Result<(OwnedFd, OwnedFd)> {
        let channel = self.pairs();
        channel.order(Order::Pair { nonblocking })?;
        match channel.next_report()? {
            Some((Report::Pair(0), descriptors)) => match <[OwnedFd; 2]>::try_from(descriptors) {
                Ok([one, other]) => Ok((one, other)),
                // The message came and the descriptors did not: this process has no room for them.
                Err(_) => Err(Errno::EMFILE),
            },
            Some((Report::Pair(errno), _)) => Err(Errno::from_raw(errno)),
            _ => Err(Errno::EACCES),
        }
    }
}

/// Pid 1's part: takes one order, makes the pair and sends it. `false`: nobody is there to ask any more.
pub(crate) fn serve(channel: &Channel) -> bool {
    match channel.next_order() {
        Ok(Some(Order::Pair { nonblocking })) => send_pair(channel, nonblocking).is_ok(),
        _ => false,
    }
}

fn send_pair(channel: &Channel, nonblocking: bool) -> nix::Result<()> {
    let mut flags = SockFlag::SOCK_CLOEXEC;
    flags.set(SockFlag::SOCK_NONBLOCK, nonblocking);
    match socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags) {
        Ok((one, other)) => channel.report(&Report::Pair(0), &[one.as_raw_fd(), other.as_raw_fd()]),
        Err(errno) => channel.report(&Report::Pair(errno as i32), &[]),
    }
}
