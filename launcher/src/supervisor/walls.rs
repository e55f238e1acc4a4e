//! Walls around sandboxes inside this one, which keep their unix sockets apart from what is around them.
//!
//! The kernel has room for one supervision. A netbox inside leans on this one: its command's process asks for a wall
//! before it becomes the command, from the user namespace that it and all that it starts stay in (user_namespaces(7):
//! nobody gets out of one, and those made inside are below it). From then on what is inside connects only to sockets that
//! were made inside, and neither to other programs of this sandbox, which may reach more, nor to sockets of the host that
//! this sandbox is allowed.
//!
//! A wall is taken down when nobody is left behind it: with the parent of whoever asked, which is the first process of a
//! pid namespace and ends last.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::Pid;

use super::io_to_errno;
use crate::inode::Inode;
use crate::sys;

/// How many sandboxes may be inside at once. Each costs two descriptors.
const CAPACITY: usize = 256;
/// The kernel nests user namespaces no deeper.
const DEEPEST: usize = 33;

/// The walls that something is behind, from the innermost one out. Their numbers are never used again.
pub(super) type Within = Box<[u64]>;

#[derive(Default)]
pub(super) struct Walls {
    up: RwLock<Vec<Wall>>,
    last: AtomicU64,
}

struct Wall {
    number: u64,
    namespace: Inode,
    /// Keeps the namespace's inode its own.
    _handle: OwnedFd,
    last_to_leave: OwnedFd,
}

impl Walls {
    /// Puts one up around the user namespace of this thread. `is_waiting`: it still waits, so that all that was read of it
    /// until then was its own.
    pub(super) fn raise(&self, thread: Pid, is_waiting: impl Fn() -> bool) -> nix::Result<()> {
        let handle = user_namespace(thread)?;
        let namespace = Inode::of(&fstat(&handle)?);
        let last_to_leave = parent(thread)?;
        if !is_waiting() {
            return Err(Errno::EINTR);
        }
        let mut up = self.up.write().unwrap_or_else(PoisonError::into_inner);
        if up.iter().any(|wall| wall.namespace == namespace) {
            return Ok(());
        }
        up.retain(|wall| !has_ended(&wall.last_to_leave));
        if up.len() >= CAPACITY {
            return Err(Errno::ENOSPC);
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        up.push(Wall { number, namespace, _handle: handle, last_to_leave });
        Ok(())
    }

    /// Those that this thread is behind.
    pub(super) fn around(&self, thread: Pid) -> nix::Result<Within> {
        let up = self.up.read().unwrap_or_else(PoisonError::into_inner);
        let mut within = Vec::new();
        if up.is_empty() {
            return Ok(within.into());
        }
        let mut namespace = user_namespace(thread)?;
        for _ in 0..DEEPEST {
            let inode = Inode::of(&fstat(&namespace)?);
            within.extend(up.iter().find(|wall| wall.namespace == inode).map(|wall| wall.number));
            namespace = match sys::process::parent_namespace(namespace.as_fd()) {
                // Netbox's own, or one that it cannot see: no wall is further out.
                Err(Errno::EPERM) => break,
                other => other?,
            };
        }
        Ok(within.into())
    }
}

/// Whether who is behind these walls may connect to what was made behind those.
pub(super) fn admit(caller: &[u64], made: &[u64]) -> bool {
    // Who is behind the innermost is behind all of them.
    caller.first().is_none_or(|innermost| made.contains(innermost))
}

fn user_namespace(thread: Pid) -> nix::Result<OwnedFd> {
    let file = File::open(Path::new("/proc").join(thread.to_string()).join("ns/user"));
    file.map(OwnedFd::from).map_err(|error| io_to_errno(&error))
}

/// A handle for the parent of a thread.
fn parent(thread: Pid) -> nix::Result<OwnedFd> {
    let number = || -> nix::Result<i32> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).map_err(|error| io_to_errno(&error))?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).ok_or(Errno::ESRCH)
    };
    let parent = number()?;
    let handle = sys::socket::open_thread(parent)?;
    // It has not changed meanwhile, so that the number was the parent's.
    if number()? == parent { Ok(handle) } else { Err(Errno::ESRCH) }
}

/// A handle is readable when what it is for has ended (pidfd_open(2)).
fn has_ended(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_further_in_is_reached_and_what_is_beside_or_around_is_not() {
        for (caller, made, expected) in [
            (&[][..], &[][..], true),
            (&[], &[1], true),
            (&[1], &[1], true),
            (&[1], &[2, 1], true),
            (&[1], &[], false),
            (&[2, 1], &[1], false),
            (&[2, 1], &[3, 1], false),
            (&[2, 1], &[2, 1], true),
        ] {
            assert_eq!(admit(caller, made), expected, "{caller:?} to {made:?}");
        }
    }

    #[test]
    fn a_wall_is_around_the_whole_user_namespace_and_comes_down_with_its_last_process() {
        let walls = Walls::default();
        let own = nix::unistd::gettid();
        assert!(walls.around(own).unwrap().is_empty());
        assert_eq!(walls.raise(own, || false), Err(Errno::EINTR));
        walls.raise(own, || true).unwrap();
        walls.raise(own, || true).unwrap();
        assert_eq!(*walls.around(own).unwrap(), [0]);
        assert_eq!(walls.up.read().unwrap().len(), 1, "one is enough");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = sys::socket::open_thread(child.id() as i32).unwrap();
        child.wait().unwrap();
        {
            let mut up = walls.up.write().unwrap();
            let other = Inode { device: 0, number: 0 };
            up[0].namespace = other;
            up[0].last_to_leave = gone;
        }
        walls.raise(own, || true).unwrap();
        assert_eq!(*walls.around(own).unwrap(), [1]);
        assert_eq!(walls.up.read().unwrap().len(), 1);
    }
}
