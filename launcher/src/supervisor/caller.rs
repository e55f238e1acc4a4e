//! Who made a connect, for whoever asks: at once, or later.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A process of the sandbox, as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// The path of its executable, where that can be told; text of any kind.
    pub exe: Option<PathBuf>,
}

/// A thread that made a connect. Costs a descriptor.
#[derive(Debug)]
pub struct Caller {
    /// The number of what the handle is for: the thread, or before Linux 6.9 its process.
    pub(super) number: i32,
    pub(super) handle: OwnedFd,
}

impl Caller {
    /// Which process that is. `None`: it is gone.
    pub fn identify(&self) -> Option<Identity> {
        identify(self.number, &self.handle)
    }
}

/// Looks by number. What is still there afterwards has been there all the time, and the number was its own.
pub(super) fn identify(number: i32, handle: &OwnedFd) -> Option<Identity> {
    let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())?;
    let exe = fs::read_link(format!("/proc/{number}/exe")).ok();
    is_there(handle).then_some(Identity { pid, exe })
}

/// A handle is readable when what it is for has ended (pidfd_open(2)).
fn is_there(handle: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use std::process::Command;

    #[test]
    fn a_process_is_known_as_long_as_it_is_there() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let number = child.id() as i32;
        let caller = Caller { number, handle: sys::socket::open_thread(number).unwrap() };
        let wanted = Identity { pid: child.id(), exe: fs::read_link(format!("/proc/{number}/exe")).ok() };
        assert_eq!(caller.identify(), Some(wanted));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(caller.identify(), None);
        let own = std::process::id() as i32;
        let somebody_elses = Caller { number: own, handle: caller.handle };
        assert_eq!(somebody_elses.identify(), None, "whoever has the number now");
    }
}
