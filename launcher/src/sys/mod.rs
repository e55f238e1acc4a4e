//! The system calls that no safe wrapper covers. All `unsafe` of the launcher is in this folder, each with its reason.

pub(crate) mod credentials;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod seccomp;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod terminal;
pub(crate) mod thread;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// Who returns from [`clone3`].
pub(crate) enum Cloned {
    /// The caller, with the child's pid.
    Parent(Pid),
    /// The child: pid 1 where a pid namespace was asked for.
    Child,
}

/// `clone3(2)` with these namespace flags, otherwise like `fork(2)`.
///
/// Must be called while the process has one thread. Then the child is a plain copy: no lock can be held by a thread
/// that does not exist there. glibc does not know of the child, so its cached thread id is stale; nothing here uses it
/// (`fork(2)` later in the child renews it for the grandchild).
pub(crate) fn clone3(flags: libc::c_int) -> nix::Result<Cloned> {
    // SAFETY: an all-zero `clone_args` is valid: no stack (the child goes on with a copy of ours), no pointers.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: `args` outlives the call and its size is right. Without CLONE_VM the child has memory of its own, so
    // returning twice is the same as with fork(2), under the one-thread condition above.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match Errno::result(result)? {
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent(Pid::from_raw(pid as libc::pid_t))),
    }
}

/// `fork(2)`, for pid 1 of the sandbox, which has one thread for life.
pub(crate) fn fork() -> nix::Result<nix::unistd::ForkResult> {
    // SAFETY: the process has one thread, so the child may do anything that the parent may.
    unsafe { nix::unistd::fork() }
}

/// `waitpid(2)` for any child, as its number and its wait status; `None`: none has ended or stopped.
///
/// The status as it is, since the usual wrappers have no name for a real-time signal.
pub(crate) fn wait_for_any(flags: libc::c_int) -> nix::Result<Option<(Pid, i32)>> {
    let mut status = 0;
    // SAFETY: the kernel writes `status`.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, flags) })?;
    Ok((pid > 0).then_some((Pid::from_raw(pid), status)))
}

/// `close_range(2)` from `first` to `last`, both included.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> nix::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: closing descriptors touches no memory. Callers close only numbers that no `OwnedFd` of theirs holds.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    Errno::result(result).map(drop)
}

/// Clears close-on-exec.
pub(crate) fn keep_on_exec(number: RawFd) -> nix::Result<()> {
    // SAFETY: sets a flag on a descriptor; touches no memory.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }).map(drop)
}

/// Marks every descriptor from `first` up as close-on-exec (Linux 5.11).
pub(crate) fn close_from_on_exec(first: RawFd) -> nix::Result<()> {
    // SAFETY: sets a flag on descriptors; touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, RawFd::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(result).map(drop)
}

/// Joins a fresh, unnamed session keyring, so that the one of the login session is neither read nor written inside.
pub(crate) fn join_fresh_session_keyring() -> nix::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed.
    let result =
        unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    Errno::result(result).map(drop)
}

/// Owns a descriptor that arrived in an SCM_RIGHTS message.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us by recvmsg(2); nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A new descriptor, close-on-exec, for the file that is open as `number` in this process.
pub(crate) fn duplicate(number: RawFd) -> nix::Result<OwnedFd> {
    // SAFETY: fcntl checks the number; the result is a new descriptor that nothing else owns.
    unsafe {
        let result = Errno::result(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3))?;
        Ok(OwnedFd::from_raw_fd(result))
    }
}

/// Whether a descriptor of this number is open in this process.
pub(crate) fn is_open(number: RawFd) -> bool {
    // SAFETY: fcntl checks the number, and F_GETFD takes no argument.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Puts `fd` at the number `at`, without close-on-exec.
pub(crate) fn place_at(fd: &impl AsRawFd, at: RawFd) -> nix::Result<()> {
    // SAFETY: dup2 on the standard descriptors and on inherited ones, which no `OwnedFd` holds.
    let result = unsafe { libc::dup2(fd.as_raw_fd(), at) };
    Errno::result(result).map(drop)
}

/// Sets a variable of this process's environment.
///
/// For `main` alone, before any thread exists: glibc reads `LOCALDOMAIN` when it loads resolv.conf.
pub(crate) fn set_environment_variable(name: &str, value: &str) {
    // SAFETY: called while the process has one thread (the caller's contract), so no one reads the environment now.
    unsafe { std::env::set_var(name, value) }
}
