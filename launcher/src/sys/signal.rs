//! What signals do to this process.

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction, signal};
use nix::unistd::Pid;

/// Sets what a signal does to this process: its default, or nothing.
pub(crate) fn set_disposition(which: Signal, ignore: bool) -> nix::Result<()> {
    let handler = if ignore { SigHandler::SigIgn } else { SigHandler::SigDfl };
    // SAFETY: neither disposition runs code of ours in a signal's context.
    unsafe { signal(which, handler) }.map(drop)
}

/// Whether a signal of this number does nothing to this process.
pub(crate) fn is_ignored(number: i32) -> bool {
    // SAFETY: all-zero is a valid `sigaction`, and a null pointer for the new one changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(number, std::ptr::null(), &raw mut action);
        Errno::result(result).is_ok() && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Stops this process as `which`, a stop signal, does by default, and returns when it has been continued; with `group`, its
/// whole process group. For the thread that the process began with.
///
/// Where nobody is there to continue it (an orphaned process group) the kernel does not stop it, but for SIGSTOP.
pub(crate) fn stop_by(which: Signal, group: bool) -> nix::Result<()> {
    if which == Signal::SIGSTOP {
        return raise(which);
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default runs no code of ours in a signal's context.
    let before = unsafe { sigaction(which, &default)? };
    let mut mask = SigSet::empty();
    mask.add(which);
    let masked = mask.thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
    // One signal for all: if this process stopped by itself after the others, who continues the others could come between.
    // It is taken when the call returns at the latest, as it is sent to the first thread and unblocked there, so the default
    // is in force for it.
    let result = if group { kill(Pid::from_raw(0), which) } else { raise(which) };
    masked.thread_set_mask()?;
    // SAFETY: what was in force before, so it is as sound as it was then.
    unsafe { sigaction(which, &before)? };
    result
}

/// Ends this process as `which`, a deadly signal, does by default; with `group`, its whole process group is sent it. Returns
/// where it does not end.
pub(crate) fn end_by(which: Signal, group: bool) {
    let _ = set_disposition(which, false);
    let mut mask = SigSet::empty();
    mask.add(which);
    let _ = mask.thread_unblock();
    let _ = if group { kill(Pid::from_raw(0), which) } else { raise(which) };
}
