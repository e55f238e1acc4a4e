//! Acting as another user for a moment, on one thread.
//!
//! glibc's functions change every thread of the process; the system calls change the calling one (credentials(7)).

use nix::errno::Errno;

/// Who somebody is, as files are opened and as the peer of a connection is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

const KEEP: u32 = u32::MAX;

/// Does something with the effective ids and groups of `user`, and without the capabilities of root. For root.
///
/// # Errors
/// Those of becoming it. Where root cannot be become again the process ends: nothing could be trusted then.
pub(crate) fn act_as<T>(user: &User, act: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    let own = User {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        groups: nix::unistd::getgroups()?.into_iter().map(nix::unistd::Gid::as_raw).collect(),
    };
    if user.groups != own.groups {
        set_groups(&user.groups)?;
    }
    let result = set_effective(libc::SYS_setresgid, user.gid)
        .and_then(|()| set_effective(libc::SYS_setresuid, user.uid))
        .and_then(|()| act());
    // The user first: it brings back the right to change the others.
    let back = set_effective(libc::SYS_setresuid, own.uid)
        .and_then(|()| set_effective(libc::SYS_setresgid, own.gid))
        .and_then(|()| if user.groups == own.groups { Ok(()) } else { set_groups(&own.groups) });
    if back.is_err() {
        std::process::abort();
    }
    result
}

fn set_effective(call: libc::c_long, id: u32) -> nix::Result<()> {
    // SAFETY: no pointers. The ids of the other threads stay what they are; nothing here relies on them being the same.
    Errno::result(unsafe { libc::syscall(call, KEEP, id, KEEP) }).map(drop)
}

fn set_groups(groups: &[u32]) -> nix::Result<()> {
    // SAFETY: the kernel reads `groups.len()` numbers from `groups`.
    Errno::result(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}
