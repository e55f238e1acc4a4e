//! Sockets of another process: taken from it, asked what they are, connected for it.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// `linux/un.h`: a path handle of the file that a unix socket is bound to (Linux 4.12).
const SIOCUNIXFILE: libc::Ioctl = 0x89e0;
/// `linux/sockios.h`: the network namespace of a socket.
const SIOCGSKNS: libc::Ioctl = 0x894c;
/// `asm-generic/socket.h`: a handle of the process at the other end of a unix socket (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;
/// `asm-generic/socket.h`: its supplementary groups (Linux 4.13).
const SO_PEERGROUPS: libc::c_int = 59;
/// `asm-generic/socket.h`: a number for the network namespace, unlike every other since the machine started (Linux 5.14).
const SO_NETNS_COOKIE: libc::c_int = 71;

/// `pidfd_open(2)` for one thread; before Linux 6.9 for the process whose first thread it is (`EINVAL` for others).
pub(crate) fn open_thread(thread: i32) -> nix::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    match open_process(thread, PIDFD_THREAD) {
        Err(Errno::EINVAL) => open_process(thread, 0),
        other => other,
    }
}

pub(crate) fn open_process(pid: i32, flags: libc::c_int) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, flags))? as RawFd)) }
}

/// `pidfd_getfd(2)`: a descriptor of our own, close-on-exec, for what the process has open as `number`.
pub(crate) fn take_descriptor(process: BorrowedFd, number: RawFd) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor that nothing else owns.
    unsafe {
        let result = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0);
        Ok(OwnedFd::from_raw_fd(Errno::result(result)? as RawFd))
    }
}

/// `connect(2)` with an address of any bytes.
pub(crate) fn connect(socket: BorrowedFd, address: &[u8]) -> nix::Result<()> {
    // SAFETY: the kernel reads `address.len()` bytes from `address`.
    let result =
        unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as libc::socklen_t) };
    Errno::result(result).map(drop)
}

/// An option of level SOL_SOCKET that is an int, such as SO_DOMAIN.
pub(crate) fn option(socket: BorrowedFd, name: libc::c_int) -> nix::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
    };
    Errno::result(result).map(|_| value)
}

/// The number of the network namespace that the socket was made in, and belongs to for life.
pub(crate) fn network_namespace(socket: BorrowedFd) -> nix::Result<u64> {
    let mut value: u64 = 0;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).map(|_| value)
}

/// A handle (pidfd) of the process at the other end of a unix socket.
pub(crate) fn peer_handle(socket: BorrowedFd) -> nix::Result<OwnedFd> {
    let handle = option(socket, SO_PEERPIDFD)?;
    // SAFETY: the kernel has just made the descriptor for this process, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

/// The supplementary groups of the process at the other end of a unix socket.
pub(crate) fn peer_groups(socket: BorrowedFd) -> nix::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `groups`, and to `length` how many it has.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<libc::gid_t>();
        match Errno::result(result) {
            Err(Errno::ERANGE) if count > groups.len() => groups.resize(count, 0),
            result => {
                result?;
                groups.truncate(count);
                return Ok(groups);
            }
        }
    }
}

/// Whether this process has CAP_NET_ADMIN over the socket's network namespace.
pub(crate) fn is_administered(socket: BorrowedFd) -> bool {
    // SAFETY: no pointers; the result, if it is one, is a new descriptor that nothing else owns, closed at once.
    unsafe {
        let result = libc::ioctl(socket.as_raw_fd(), SIOCGSKNS, 0);
        result >= 0 && {
            drop(OwnedFd::from_raw_fd(result));
            true
        }
    }
}

/// A path handle of the file that the unix socket is bound to. Needs CAP_NET_ADMIN over its network namespace.
///
/// # Errors
/// `ENOENT`: it is bound to none.
pub(crate) fn bound_file(socket: BorrowedFd) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; the result is a new descriptor, close-on-exec, that nothing else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::ioctl(socket.as_raw_fd(), SIOCUNIXFILE, 0))?)) }
}
