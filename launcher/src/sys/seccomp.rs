//! seccomp(2): loading a filter with a listener, and speaking with the kernel about the calls that the filter traps
//! (seccomp_unotify(2)).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The kernel's number for this call of this thread; never used again while the listener lives.
    pub(crate) id: u64,
    /// The thread that makes it, as numbered where the listener is read.
    pub(crate) thread: i32,
    /// The system call's number, of the native ABI.
    pub(crate) call: i64,
    pub(crate) arguments: [u64; 6],
}

/// What becomes of a trapped call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The kernel performs it, with whatever its arguments point to by then.
    Continue,
    /// It was performed, and succeeded with this value.
    Done(u32),
    /// It fails.
    Fail(Errno),
}

/// Loads a filter for the calling thread, which must be the only one, and all that it will start. Needs `no_new_privs`.
///
/// The value is the listener for the calls that the filter traps. From Linux 5.19 on, a signal that does not kill waits
/// until a call that was received is answered, so that a call cannot be performed and interrupted both.
///
/// # Errors
/// `EBUSY`: a filter with a listener is in force already, and there can be one only.
pub(crate) fn load(program: &[libc::sock_filter]) -> nix::Result<OwnedFd> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let number = match set_filter(program, listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(Errno::EINVAL) => set_filter(program, listener)?,
        other => other?,
    };
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec; nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// The same, with a filter that traps nothing, and so without a listener.
pub(crate) fn load_alone(program: &[libc::sock_filter]) -> nix::Result<()> {
    set_filter(program, 0).map(drop)
}

fn set_filter(program: &[libc::sock_filter], flags: libc::c_ulong) -> nix::Result<libc::c_long> {
    // A program has at most BPF_MAXINSNS, 4096, instructions; the kernel refuses longer ones.
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: `program` and the instructions that it points to outlive the call, and the kernel only reads them.
    Errno::result(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) })
}

/// Waits for the next call.
///
/// # Errors
/// `EINTR`: a signal came. `ENOENT`: the thread whose call it was is gone, or nobody is left who could make one.
pub(crate) fn receive(listener: BorrowedFd) -> nix::Result<Request> {
    // SAFETY: all-zero is a valid value, and the one that the kernel wants to find.
    let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `request`, whose size is part of the ioctl's number.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut request) };
    Errno::result(result)?;
    Ok(Request {
        id: request.id,
        thread: request.pid as i32,
        call: request.data.nr.into(),
        arguments: request.data.args,
    })
}

/// Answers a call.
///
/// # Errors
/// `ENOENT`: the thread is gone, or was answered before.
pub(crate) fn answer(listener: BorrowedFd, id: u64, answer: Answer) -> nix::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Done(value) => (i64::from(value), 0, 0),
        Answer::Fail(errno) => (0, -(errno as i32), 0),
    };
    let response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the kernel reads `response`, whose size is part of the ioctl's number.
    let result = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
    Errno::result(result).map(drop)
}

/// `linux/landlock.h` has it; libc does not.
pub(crate) const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;

/// The version of the kernel's Landlock (landlock_create_ruleset(2)).
pub(crate) fn landlock_version() -> nix::Result<u32> {
    let (none, nothing) = (std::ptr::null::<libc::c_void>(), 0usize);
    // SAFETY: a question about the version, which reads no memory.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, nothing, LANDLOCK_CREATE_RULESET_VERSION) };
    // Versions are small numbers.
    Ok(u32::try_from(Errno::result(result)?).unwrap_or_default())
}

/// Whether the thread still waits for the answer to this call. If it does, then it did all along, and its number has
/// meant no other thread.
pub(crate) fn is_waiting(listener: BorrowedFd, id: u64) -> bool {
    // SAFETY: the kernel reads the number.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Puts `descriptor` into the process that waits for this answer (Linux 5.9). The value is its number there.
pub(crate) fn add_descriptor(
    listener: BorrowedFd,
    id: u64,
    descriptor: BorrowedFd,
    close_on_exec: bool,
) -> nix::Result<RawFd> {
    let addition = libc::seccomp_notif_addfd {
        id,
        flags: 0,
        srcfd: descriptor.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the kernel reads `addition`, whose size is part of the ioctl's number.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const addition) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::prctl::set_no_new_privs;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::ForkResult;

    /// Runs it in a child, since a filter stays for life. The value is what it gives back.
    fn in_child(act: impl FnOnce() -> u8) -> i32 {
        match crate::sys::fork().unwrap() {
            // SAFETY: `_exit` ends the child without running what belongs to the parent.
            ForkResult::Child => unsafe { libc::_exit(act().into()) },
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, code) => code,
                status => panic!("{status:?}"),
            },
        }
    }

    /// Traps connect(2) alone.
    fn trap_connect() -> nix::Result<OwnedFd> {
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        set_no_new_privs()?;
        load(&[
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_connect as u32),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ])
    }

    #[test]
    fn without_a_supervisor_a_trapped_call_fails() {
        let errno = in_child(|| {
            let Ok(listener) = trap_connect() else { return 0 };
            drop(listener);
            // SAFETY: no pointers but null.
            let result = unsafe { libc::connect(0, std::ptr::null(), 0) };
            Errno::result(result).err().map_or(0, |errno| errno as u8)
        });
        assert_eq!(errno, libc::ENOSYS);
    }

    #[test]
    fn there_can_be_one_supervisor() {
        let errno = in_child(|| {
            let Ok(_listener) = trap_connect() else { return 0 };
            trap_connect().err().map_or(0, |errno| errno as u8)
        });
        assert_eq!(errno, libc::EBUSY);
    }
}
