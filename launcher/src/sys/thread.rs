//! Interrupting a thread of our own that waits in a system call.

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// What nobody sends for any other purpose: its default is to be ignored, and urgent data are announced to who asks.
const INTERRUPTION: Signal = Signal::SIGURG;

extern "C" fn interrupted(_: libc::c_int) {}

/// Makes [`interrupt`] end a system call with EINTR, in the whole process.
pub(crate) fn make_interruptible() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(interrupted), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing. Without SA_RESTART the call that it comes into fails with EINTR.
    unsafe { sigaction(INTERRUPTION, &action) }.map(drop)
}

/// The calling thread's number (gettid(2)).
pub(crate) fn own_number() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Interrupts the thread of this process that has this number. One that is gone is not found; another one of ours that
/// has got its number repeats its call.
pub(crate) fn interrupt(thread: i32) {
    let process = nix::unistd::getpid().as_raw();
    // SAFETY: no pointers, and the kernel looks in this process alone.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPTION as libc::c_int) };
    let _ = Errno::result(result);
}
