//! A process by handle (pidfd_open(2)): unlike its number, the handle never comes to mean another one.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// A handle for a child that has not been waited for.
pub(crate) fn open(child: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor, close-on-exec, that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0))? as RawFd)) }
}

/// Sends SIGKILL (pidfd_send_signal(2)).
///
/// # Errors
/// `ESRCH`: it is gone.
pub(crate) fn kill(process: &OwnedFd) -> nix::Result<()> {
    let (signal, information, flags) = (libc::SIGKILL, std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: a null pointer asks for what kill(2) would send.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, information, flags) };
    Errno::result(result).map(drop)
}
