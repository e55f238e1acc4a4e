//! Descriptors from 3 up that the command was given by number (`--pass-fd`).
//!
//! They are judged like the standard ones ([`descriptors`](crate::descriptors)), and what passes stays under its number
//! from the caller to the command. An internet stream socket stays outside here too, and one end of a pair of unix sockets
//! takes its place, since it can be read and written both. A terminal is refused: what the command has of one is 0, 1
//! and 2.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::descriptors::{Verdict, judge, refusal};
use crate::error::{At, Failure, Step};
use crate::protection::Protected;
use crate::relay::Relay;
use crate::sys;

/// Those that may be passed.
pub(crate) struct Passed {
    numbers: Vec<RawFd>,
    /// What stands in for the number, where it is not passed as it is.
    replacements: Vec<(RawFd, OwnedFd)>,
    relays: Vec<Relay>,
}

impl Passed {
    /// Judges these descriptors of this process, which are open.
    pub(crate) fn judge(numbers: &[RawFd], protected: &[Protected]) -> Result<Self, Failure> {
        let mut passed = Self { numbers: numbers.to_vec(), replacements: Vec::new(), relays: Vec::new() };
        for &number in numbers {
            let what = format!("descriptor {number}");
            let copy = sys::duplicate(number).at(Step::Descriptors, &what)?;
            match judge(copy.as_fd(), protected).at(Step::Descriptors, &what)? {
                Verdict::Pass => {}
                Verdict::Terminal => return Err(refusal(number, "a terminal of the host's")),
                Verdict::Refuse(what) => return Err(refusal(number, what)),
                Verdict::Relay => passed.relay(number, copy).at(Step::Descriptors, &format!("a relay for {what}"))?,
            }
        }
        Ok(passed)
    }

    fn relay(&mut self, number: RawFd, socket: OwnedFd) -> nix::Result<()> {
        let (inside, outside) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|_| nix::Error::last());
        self.relays.push(Relay::new(copy(&socket)?, copy(&outside)?, true).with_half_close());
        self.relays.push(Relay::new(outside, socket, false).with_half_close());
        self.replacements.push((number, inside));
        Ok(())
    }

    /// In pid 1: puts each where the command will have it. They are not close-on-exec. The value: the numbers.
    pub(crate) fn settle(self) -> nix::Result<Vec<RawFd>> {
        for (number, inside) in &self.replacements {
            sys::place_at(inside, *number)?;
        }
        let numbers = self.numbers.clone();
        // The relays' ends are closed with all else that is not passed.
        std::mem::forget(self);
        Ok(numbers)
    }

    /// In netbox: closes what is the command's, so that its peers see the command close it. The relays are left.
    pub(crate) fn into_relays(self) -> nix::Result<Vec<Relay>> {
        close(&self.numbers)?;
        Ok(self.relays)
    }
}

/// Closes these, which nothing else in this process holds.
pub(crate) fn close(numbers: &[RawFd]) -> nix::Result<()> {
    numbers.iter().try_for_each(|number| sys::close_range(*number, *number))
}
