//! How a program under test comes into being: as an ordinary user without capabilities, with the descriptors it is
//! to inherit, and, where a test wants that, in other surroundings (`surroundings`) or with a kernel that refuses something.
//!
//! The test process is root in its user namespace. A child leaves that for a namespace in which it has the user's own
//! number; the `exec` that follows then takes its capabilities away, as it does for any user.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W, sock_filter};

use crate::identity::Identity;
use crate::surroundings::Surroundings;
use crate::system_files;

/// What the kernel refuses the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Nothing out of the ordinary.
    Willing,
    /// Namespaces, by a system call filter as container engines have it: EPERM from `unshare` and `clone`, ENOSYS
    /// from `clone3`.
    RefusesNamespaces,
    /// Further user namespaces: `user.max_user_namespaces` is 0.
    NoUserNamespaceLeft,
    /// Further network namespaces: `user.max_net_namespaces` is 0.
    NoNetworkNamespaceLeft,
    /// The packet filter: there is no netlink family of that name, as in a kernel without it.
    HasNoPacketFilter,
    /// To do what it says: `connect` succeeds and connects nothing, as if rules that were taken had no effect.
    ConnectsNothing,
    /// A user namespace in a user namespace: `user.max_user_namespaces` is 1.
    OneUserNamespaceLeft,
    /// Each of these calls.
    Refuses(&'static [Refusal]),
}

/// A system call that fails, as in a kernel that does not have it or under a filter that forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its number.
    pub call: libc::c_long,
    /// Only with these arguments, by their place. The low half of each is looked at.
    pub with: &'static [(u32, u32)],
    /// The error number.
    pub errno: i32,
}

const RESET: [libc::c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// What a child gets besides its arguments.
#[derive(Debug)]
pub struct Birth {
    /// The descriptors to inherit, each under a number of its own.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// See there.
    pub kernel: Kernel,
    /// The terminal of the session that it leads; without one it is in that of the tests.
    pub terminal: Option<OwnedFd>,
    /// The folder that is its `/etc/netbox`.
    pub system: Option<CString>,
    /// How its machine differs from the test host.
    pub surroundings: Surroundings,
    /// The user namespace that it shares with others, in place of one of its own.
    pub user_namespace: Option<OwnedFd>,
}

impl Birth {
    /// Makes `command` start its program like this.
    pub fn prepare(self, command: &mut Command, identity: &Identity) {
        let limit = match self.kernel {
            Kernel::NoUserNamespaceLeft => Some((c"/proc/sys/user/max_user_namespaces", b"0")),
            Kernel::OneUserNamespaceLeft => Some((c"/proc/sys/user/max_user_namespaces", b"1")),
            Kernel::NoNetworkNamespaceLeft => Some((c"/proc/sys/user/max_net_namespaces", b"0")),
            _ => None,
        };
        // A limit is set on a user namespace of the child's own; the machine's must not be touched.
        let own_user_namespace = !identity.real_root || limit.is_some();
        let uid_map = format!("{} {} 1", identity.uid, nix::unistd::getuid());
        let gid_map = format!("{} {} 1", identity.gid, nix::unistd::getgid());
        let filter = match self.kernel {
            Kernel::RefusesNamespaces => Some(refuse_namespaces()),
            Kernel::HasNoPacketFilter => Some(have_no_packet_filter()),
            Kernel::ConnectsNothing => Some(connect_nothing()),
            Kernel::Refuses(refusals) => Some(refuse(refusals)),
            _ => None,
        };
        let born = move || {
            for signal in RESET {
                // Whoever started the tests in the background may have had these ignored, and that is inherited.
                // SAFETY: SIG_DFL is no handler of ours.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            if let Some(terminal) = &self.terminal {
                // SAFETY: neither takes a pointer.
                unsafe {
                    check(libc::setsid())?;
                    check(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0))?;
                }
            }
            if let Some(system) = &self.system {
                let (target, none) = (system_files::TARGET.as_ptr(), std::ptr::null());
                // SAFETY: both paths end in a zero byte and live throughout, and the kernel only reads them.
                unsafe {
                    check(libc::unshare(libc::CLONE_NEWNS))?;
                    check(libc::mount(system.as_ptr(), target, none, libc::MS_BIND, none.cast()))?;
                }
            }
            if let Some(shared) = &self.user_namespace {
                // SAFETY: setns takes no pointers, and the child has one thread.
                check(unsafe { libc::setns(shared.as_raw_fd(), libc::CLONE_NEWUSER) })?;
            } else if own_user_namespace {
                // SAFETY: unshare takes no pointers, and the child has one thread.
                check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
                write(c"/proc/self/setgroups", b"deny")?;
                write(c"/proc/self/uid_map", uid_map.as_bytes())?;
                write(c"/proc/self/gid_map", gid_map.as_bytes())?;
            }
            self.surroundings.enter()?;
            if let Some((limit, number)) = limit {
                write(limit, number)?;
            }
            for (descriptor, number) in &self.descriptors {
                // SAFETY: dup2 takes no pointers; the number it replaces is nobody's in a child about to exec.
                check(unsafe { libc::dup2(descriptor.as_raw_fd(), *number) })?;
                // One that had this number already is still close-on-exec.
                // SAFETY: F_SETFD takes a number.
                check(unsafe { libc::fcntl(*number, libc::F_SETFD, 0) })?;
            }
            filter.as_deref().map_or(Ok(()), load)
        };
        // SAFETY: the closure runs between fork and exec in a process that had several threads. It makes system calls
        // and nothing else: all that it writes was formatted before, and it allocates nothing.
        unsafe { command.pre_exec(born) };
    }
}

/// `open`, `write` and `close` without the allocation that `std::fs` makes for the path.
pub fn write(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends in a zero byte; the descriptor is open between the calls, and `text` lives throughout.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(file)?;
        let written = libc::write(file, text.as_ptr().cast(), text.len());
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(file);
        result
    }
}

/// The error of a call that failed.
pub fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

// Offsets in `struct seccomp_data`; the low half of an argument is at the lower address on the machines that netbox
// runs on.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = 16;
const THIRD_ARGUMENT: u32 = 32;

fn word(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn equal(value: u32, yes: u8, no: u8) -> sock_filter {
    jump(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
}

fn answer(errno: i32) -> sock_filter {
    statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32)
}

fn allow() -> sock_filter {
    statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW)
}

/// `clone3` takes its flags from memory, which a filter cannot see: it is said not to exist, and callers fall back.
fn refuse_namespaces() -> Vec<sock_filter> {
    vec![
        word(NUMBER),
        equal(libc::SYS_clone3 as u32, 4, 0),
        equal(libc::SYS_unshare as u32, 1, 0),
        equal(libc::SYS_clone as u32, 0, 4),
        word(FIRST_ARGUMENT),
        jump(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES as u32, 1, 2),
        answer(libc::ENOSYS),
        answer(libc::EPERM),
        allow(),
    ]
}

fn have_no_packet_filter() -> Vec<sock_filter> {
    vec![
        word(NUMBER),
        equal(libc::SYS_socket as u32, 0, 5),
        word(FIRST_ARGUMENT),
        equal(libc::AF_NETLINK as u32, 0, 3),
        word(THIRD_ARGUMENT),
        equal(libc::NETLINK_NETFILTER as u32, 0, 1),
        answer(libc::EPROTONOSUPPORT),
        allow(),
    ]
}

fn connect_nothing() -> Vec<sock_filter> {
    vec![word(NUMBER), equal(libc::SYS_connect as u32, 0, 1), answer(0), allow()]
}

/// In the order in which they are listed.
fn refuse(refusals: &[Refusal]) -> Vec<sock_filter> {
    let mut filter = Vec::new();
    for refusal in refusals {
        // Two instructions for each argument, and the answer.
        let rest =
            |place: usize| u8::try_from(2 * (refusal.with.len() - place) + 1).expect("six arguments at the most");
        filter.extend([word(NUMBER), equal(refusal.call as u32, 0, rest(0))]);
        for (place, (argument, value)) in refusal.with.iter().enumerate() {
            filter.extend([word(FIRST_ARGUMENT + 8 * argument), equal(*value, 0, rest(place + 1))]);
        }
        filter.push(answer(refusal.errno));
    }
    filter.push(allow());
    filter
}

fn statement(code: u32, value: u32) -> sock_filter {
    // SAFETY: it builds a value.
    unsafe { BPF_STMT(code as u16, value) }
}

fn jump(code: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    // SAFETY: it builds a value.
    unsafe { BPF_JUMP(code as u16, value, yes, no) }
}

fn load(filter: &[sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: `program` and the filter it points to live until the calls return, and the kernel only reads them.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))
    }
}
