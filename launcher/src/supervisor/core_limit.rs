//! `setrlimit(2)` and `prlimit(2)` of RLIMIT_CORE: it is 1 inside, and stays 1.
//!
//! What the kernel does with the memory of a process that crashes, the host decides (core(5), `core_pattern`). Where it is a
//! program, the kernel starts that outside of every sandbox, with bytes on its standard input that the command chose. It
//! asks one thing before: a limit of exactly 1 marks a crash of such a program itself, and nothing is started
//! (`coredump_pipe` in fs/coredump.c); 0, which keeps files from being written, does not count here, and that is what
//! anybody may lower the limit to. Where the host has named a socket instead (Linux 6.16), nothing is asked at all.
//!
//! Programs that hold keys lower the limit, and end if they cannot (ssh-agent, gpg-agent). What they want is so already:
//! of 1 byte no file is written either. So the wish to lower it is granted and nothing is done.

use nix::errno::Errno;

use super::{Notification, Target};

/// Soft and hard.
const LIMIT: u64 = 1;

/// What the call returns, or `None`: it changes nothing, and the kernel may go on. It is a call about this limit.
pub(super) fn judge(notification: &Notification) -> Option<nix::Result<u32>> {
    let request = notification.request();
    let [first, second, third, fourth, ..] = request.arguments;
    let (process, new, old) = match request.call {
        libc::SYS_setrlimit => (0, second, 0),
        // Whose, which, the new one, and where the old one is to be put.
        _ => (first as u32 as i32, third, fourth),
    };
    if request.call == libc::SYS_prlimit64 && new == 0 {
        return None;
    }
    Some(pretend(notification, process, new, old).map(|()| 0))
}

fn pretend(notification: &Notification, process: i32, new: u64, old: u64) -> nix::Result<()> {
    let target = Target::of(notification)?;
    if process != 0 && !target.is_called(process)? {
        return Err(Errno::EPERM);
    }
    // `struct rlimit64`, and `struct rlimit` of a 64-bit ABI.
    let mut limits = [0; 16];
    target.read(new, &mut limits)?;
    judge_limits(&limits)?;
    if old == 0 {
        return Ok(());
    }
    let memory = target.memory()?;
    if !notification.is_waiting() {
        return Err(Errno::EINTR);
    }
    let both = LIMIT.to_ne_bytes();
    memory.write(old, &[both, both].concat())
}

/// As the kernel does for who may not raise a hard limit.
fn judge_limits(limits: &[u8; 16]) -> nix::Result<()> {
    let number = |at: usize| limits.get(at..at + 8).and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
    match (number(0), number(8)) {
        (Some(soft), Some(hard)) if soft > hard => Err(Errno::EINVAL),
        (Some(_), Some(hard)) if hard > LIMIT => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_seem_lowered_and_not_raised() {
        let judge = |soft: u64, hard: u64| {
            let mut limits = [0; 16];
            limits[..8].copy_from_slice(&soft.to_ne_bytes());
            limits[8..].copy_from_slice(&hard.to_ne_bytes());
            judge_limits(&limits)
        };
        for (soft, hard) in [(0, 0), (0, 1), (1, 1)] {
            assert_eq!(judge(soft, hard), Ok(()));
        }
        assert_eq!(judge(2, 1), Err(Errno::EINVAL));
        for hard in [2, 1 << 40, u64::MAX] {
            assert_eq!(judge(0, hard), Err(Errno::EPERM));
            assert_eq!(judge(hard, hard), Err(Errno::EPERM));
        }
    }
}
