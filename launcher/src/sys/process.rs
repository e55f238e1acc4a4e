//! A process by handle (pidfd_open(2)): unlike its number, the handle never comes to mean another one.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::unistd::Pid;

/// A handle for a child that has not been waited for.
pub(crate) fn open(child: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor, close-on-exec, that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0))? as RawFd)) }
}

/// The user namespace above this one (ioctl_nsfs(2), NS_GET_PARENT).
///
/// # Errors
/// `EPERM`: there is none that this process can see.
pub(crate) fn parent_namespace(namespace: BorrowedFd) -> nix::Result<OwnedFd> {
    /// `linux/nsfs.h`.
    const NS_GET_PARENT: libc::Ioctl = 0xb702;
    // SAFETY: no pointers; the result is a new descriptor, close-on-exec, that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT))?)) }
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

/// Ends this process (_exit(2)), and nothing else: it is a copy of another, whose last acts are not its own.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: runs nothing of this process any more.
    unsafe { libc::_exit(code) }
}
