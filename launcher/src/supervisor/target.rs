//! The thread that made a trapped call, as seen from outside: its descriptors and its memory.
//!
//! Netbox owns the user namespace above the command's, so it may look into every process of the sandbox, those that are
//! not dumpable included. Where it may not (a program that its user may execute and not read, a hardened ptrace scope),
//! the call fails with EACCES.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::Notification;
use super::caller::{self, Caller, Identity};
use crate::id_maps;
use crate::sys;
use crate::sys::credentials::User;

/// Whoever waits for an answer.
pub(super) struct Target {
    thread: Pid,
    handle: OwnedFd,
    /// The number of what the handle is for.
    number: i32,
}

impl Target {
    pub(super) fn of(notification: &Notification) -> nix::Result<Self> {
        let thread = notification.request().thread;
        let (number, handle) = match sys::socket::open_thread(thread) {
            // Before Linux 6.9 only processes have handles. A thread whose descriptors are not its process's is rare.
            Err(Errno::EINVAL) => {
                let process = process_of(thread)?;
                (process, sys::socket::open_thread(process))
            }
            other => (thread, other),
        };
        Ok(Self { thread: Pid::from_raw(thread), handle: handle.map_err(forbidden)?, number })
    }

    pub(super) fn thread(&self) -> Pid {
        self.thread
    }

    /// Which process it is.
    pub(super) fn identify(&self) -> Option<Identity> {
        caller::identify(self.number, &self.handle)
    }

    /// The same, to be asked later.
    pub(super) fn into_caller(self) -> Caller {
        Caller { number: self.number, handle: self.handle }
    }

    /// The user as whom a connect is to be made, where that is another one than netbox's: root's command may have become
    /// somebody else, who may open less, and whom the peer of the connection is to see.
    pub(super) fn other_user(&self) -> nix::Result<Option<User>> {
        if !id_maps::is_root() {
            return Ok(None);
        }
        let user = user(&status(self.thread.as_raw())?).ok_or(Errno::EACCES)?;
        Ok((user.uid != 0).then_some(user))
    }

    /// Whether this is its number, or its process's, as it knows it.
    pub(super) fn is_called(&self, number: i32) -> nix::Result<bool> {
        Ok(own_numbers(&status(self.thread.as_raw())?).contains(&number))
    }

    /// A copy of the descriptor that an argument names; the kernel looks at the low half alone.
    pub(super) fn descriptor(&self, argument: u64) -> nix::Result<OwnedFd> {
        let number = argument as u32 as RawFd;
        if number < 0 {
            return Err(Errno::EBADF);
        }
        sys::socket::take_descriptor(self.handle.as_fd(), number).map_err(forbidden)
    }

    /// Reads all of `buffer` from its memory.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> nix::Result<()> {
        let length = buffer.len();
        let remote = [RemoteIoVec { base: address as usize, len: length }];
        match process_vm_readv(self.thread, &mut [IoSliceMut::new(buffer)], &remote) {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(Errno::EFAULT),
            Err(errno) => Err(forbidden(errno)),
        }
    }

    /// Its memory, to be written to. It stays this process's, whatever its number comes to mean: but whose it was when it
    /// was opened is only known when the caller is seen to wait afterwards.
    pub(super) fn memory(&self) -> nix::Result<Memory> {
        Memory::open(self.thread).map_err(forbidden)
    }
}

/// The memory of a process, by handle (proc(5): `mem`). After its end nothing is read or written.
pub(super) struct Memory(File);

impl Memory {
    fn open(thread: Pid) -> nix::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{thread}/mem"));
        file.map(Self).map_err(|error| super::io_to_errno(&error))
    }

    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> nix::Result<()> {
        self.0.read_exact_at(buffer, address).map_err(|_| Errno::EFAULT)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> nix::Result<()> {
        self.0.write_all_at(bytes, address).map_err(|_| Errno::EFAULT)
    }
}

/// Who a process acts as, from the text of its `status` (proc(5)): the last of the four numbers of a kind is what files are
/// opened with.
fn user(status: &str) -> Option<User> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect()
    };
    let (uid, gid) = (*numbers("Uid:")?.get(3)?, *numbers("Gid:")?.get(3)?);
    Some(User { uid, gid, groups: numbers("Groups:")? })
}

/// What a thread and its process are called in the pid namespace that they are in, from the text of `status`: the last of
/// the numbers (proc(5)).
fn own_numbers(status: &str) -> Vec<i32> {
    let numbers = ["NStgid:", "NSpid:"].into_iter().filter_map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().last()?.parse().ok()
    });
    numbers.collect()
}

/// connect(2) and its like never fail with EPERM for what they document; EACCES is the word for a wall.
fn forbidden(errno: Errno) -> Errno {
    if errno == Errno::EPERM { Errno::EACCES } else { errno }
}

fn status(thread: i32) -> nix::Result<String> {
    std::fs::read_to_string(format!("/proc/{thread}/status")).map_err(|error| super::io_to_errno(&error))
}

/// The process of a thread (proc(5): `Tgid`).
fn process_of(thread: i32) -> nix::Result<i32> {
    let status = status(thread)?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.ok_or(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_belongs_to_a_process_and_not_to_its_number() {
        let own = Memory::open(nix::unistd::getpid()).unwrap();
        let mut word = [7u8; 8];
        let place = std::ptr::from_mut(&mut word) as u64;
        own.write(place, &[9; 8]).unwrap();
        let mut read = [0; 8];
        own.read(place, &mut read).unwrap();
        assert_eq!(read, [9; 8]);
        assert_eq!(own.write(8, &[0; 8]), Err(Errno::EFAULT));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let memory = Memory::open(Pid::from_raw(child.id() as i32)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(memory.read(place, &mut read), Err(Errno::EFAULT), "whoever has the number now");
    }

    #[test]
    fn a_thread_is_known_by_its_innermost_numbers() {
        assert_eq!(own_numbers("Tgid:\t70\nNStgid:\t70\t5\t2\nNSpid:\t71\t6\t3\n"), [2, 3]);
        assert_eq!(own_numbers(""), []);
    }

    #[test]
    fn the_user_is_who_opens_files() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t9 10 \n";
        assert_eq!(user(status), Some(User { uid: 4, gid: 8, groups: vec![9, 10] }));
        assert_eq!(user("Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t\n").map(|user| user.groups), Some(vec![]));
        assert_eq!(user("Uid:\t1\t2\n"), None);
    }
}
