//! The system calls that the command and its children cannot make: a seccomp filter, assembled here.
//!
//! The network namespace is the wall; this filter closes the ways that do not pass through it. It is a deny list, since
//! netbox runs anything. Written by hand rather than by a library's rule tables, because two checks come before any
//! rule: another ABI's numbers mean other calls (`int 0x80` on x86-64), and x32 numbers come with the native
//! architecture. Both answer ENOSYS, as on a kernel without them.
//!
//! * `ENOSYS` for io_uring: it makes sockets and connects them without passing any filter.
//! * `EAFNOSUPPORT` for every socket family but unix, inet, inet6 and netlink: vsock reaches the host past every
//!   network namespace, and others open paths of their own. `socketpair` likewise.
//! * `EACCES` for unix sockets of type DGRAM and RAW (which is another name for it): they take a path with each message.
//! * To the supervisor (`supervisor`), which is netbox outside: `connect`, `listen`, `landlock_create_ruleset`,
//!   `socketpair` of those types, and `setrlimit` and `prlimit` of RLIMIT_CORE.
//! * `EPERM` for the kernel's keyrings (`keyctl`, `add_key`, `request_key`: upcalls run outside), and for what a
//!   program under confinement has no use for and an attacker has: bpf, perf, userfaultfd, kexec, modules.
//! * `EPERM` for `SO_BINDTODEVICE` and `SO_BINDTOIFINDEX`: never an escape, but a connect bound to the stub hangs.
//! * `EPERM` for the ioctls TIOCSTI and TIOCLINUX: typing into the terminal that netbox was started from.
//!
//! User namespaces and mounts stay open: browsers and bwrap build their own sandboxes with them.

use std::os::fd::OwnedFd;

use libc::sock_filter;
use nix::errno::Errno;

use crate::error::{At, Failure, Step};
use crate::sys;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64

/// Numbers from here up are x32's, on x86-64. No 64-bit ABI reaches it.
const X32: u32 = 0x4000_0000;

const MISSING: [libc::c_long; 3] = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

const FORBIDDEN: [libc::c_long; 13] = [
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_vhangup,
];

/// Besides unix, which is looked at more closely.
const FAMILIES: [libc::c_int; 3] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
const SO_BINDTOIFINDEX: u32 = 62;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

// Offsets in `struct seccomp_data`; the low half of an argument comes first on both little-endian architectures. The
// kernel looks at the low half alone where an argument is an int, so nothing is hidden in the high one.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENT: [u32; 3] = [16, 24, 32];

/// The bits of a socket's type that are not flags (`linux/net.h`).
const TYPE: u32 = 0xf;

/// Loads the filter for the calling process and all that it starts. Needs `no_new_privs`. The value is the listener for
/// the calls that go to the supervisor.
pub(crate) fn load() -> Result<OwnedFd, Failure> {
    sys::seccomp::load(&program(SUPERVISE)).map_err(|errno| {
        // There is a second filter in force with a listener: the wall is what cannot be put up.
        let step = if errno == Errno::EBUSY { Step::UnixSockets } else { Step::SystemCallFilter };
        Failure::new(step, errno, "")
    })
}

/// The same below a netbox that supervises this process. Its filter is in force too, and where this one lets a call pass, the
/// kernel does what that one says.
pub(crate) fn load_below_another() -> Result<(), Failure> {
    sys::seccomp::load_alone(&program(ALLOW)).at(Step::SystemCallFilter, "")
}

/// `supervise`: what becomes of the calls that are the supervisor's.
fn program(supervise: sock_filter) -> Vec<sock_filter> {
    let mut p = Program::default();
    p.load(ARCHITECTURE);
    p.unless_equal(NATIVE, &[refuse(Errno::ENOSYS)]);
    p.load(NUMBER);
    p.if_at_least(X32, refuse(Errno::ENOSYS));
    for number in MISSING {
        p.if_equal(number as u32, &[refuse(Errno::ENOSYS)]);
    }
    for number in FORBIDDEN {
        p.if_equal(number as u32, &[refuse(Errno::EPERM)]);
    }
    for number in [libc::SYS_connect, libc::SYS_listen, libc::SYS_landlock_create_ruleset] {
        p.if_equal(number as u32, &[supervise]);
    }
    for (number, resource) in [(libc::SYS_setrlimit, 0), (libc::SYS_prlimit64, 1)] {
        let mut resources = Program::default();
        resources.load(ARGUMENT[resource]);
        resources.if_equal(libc::RLIMIT_CORE, &[supervise]);
        resources.0.push(ALLOW);
        p.if_equal(number as u32, &resources.0);
    }
    for (number, datagrams) in [(libc::SYS_socket, refuse(Errno::EACCES)), (libc::SYS_socketpair, supervise)] {
        let mut kinds = Program::default();
        kinds.load(ARGUMENT[1]);
        kinds.and(TYPE);
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
            kinds.if_equal(kind as u32, &[datagrams]);
        }
        kinds.0.push(ALLOW);
        let mut families = Program::default();
        families.load(ARGUMENT[0]);
        families.if_equal(libc::AF_UNIX as u32, &kinds.0);
        for family in FAMILIES {
            families.if_equal(family as u32, &[ALLOW]);
        }
        families.0.push(refuse(Errno::EAFNOSUPPORT));
        p.if_equal(number as u32, &families.0);
    }
    let mut option = Program::default();
    option.load(ARGUMENT[1]);
    option.unless_equal(libc::SOL_SOCKET as u32, &[ALLOW]);
    option.load(ARGUMENT[2]);
    option.if_equal(libc::SO_BINDTODEVICE as u32, &[refuse(Errno::EPERM)]);
    option.if_equal(SO_BINDTOIFINDEX, &[refuse(Errno::EPERM)]);
    option.0.push(ALLOW);
    p.if_equal(libc::SYS_setsockopt as u32, &option.0);
    let mut request = Program::default();
    request.load(ARGUMENT[1]);
    request.if_equal(TIOCSTI, &[refuse(Errno::EPERM)]);
    request.if_equal(TIOCLINUX, &[refuse(Errno::EPERM)]);
    request.0.push(ALLOW);
    p.if_equal(libc::SYS_ioctl as u32, &request.0);
    p.0.push(ALLOW);
    p.0
}

const ALLOW: sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW);
const SUPERVISE: sock_filter = instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF);

const fn refuse(errno: Errno) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32)
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Instructions of classic BPF, with forward jumps over short blocks only.
#[derive(Default)]
struct Program(Vec<sock_filter>);

impl Program {
    /// Loads a word of `struct seccomp_data` into the accumulator.
    fn load(&mut self, offset: u32) {
        self.0.push(instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset));
    }

    fn and(&mut self, mask: u32) {
        self.0.push(instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, mask));
    }

    fn if_equal(&mut self, value: u32, block: &[sock_filter]) {
        // Blocks have two dozen instructions at the most.
        self.0.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, block.len() as u8, value));
        self.0.extend_from_slice(block);
    }

    fn unless_equal(&mut self, value: u32, block: &[sock_filter]) {
        self.0.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, block.len() as u8, 0, value));
        self.0.extend_from_slice(block);
    }

    fn if_at_least(&mut self, value: u32, then: sock_filter) {
        self.0.push(instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, value));
        self.0.push(then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on one call, as the kernel would.
    fn verdict(architecture: u32, number: u32, arguments: [u32; 3]) -> u32 {
        run(&program(SUPERVISE), architecture, number, arguments)
    }

    fn run(program: &[sock_filter], architecture: u32, number: u32, arguments: [u32; 3]) -> u32 {
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    accumulator = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => arguments[ARGUMENT.iter().position(|known| *known == offset).unwrap()],
                    }
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => accumulator &= step.k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if accumulator == step.k { step.jt } else { step.jf });
                }
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => {
                    at += usize::from(if accumulator >= step.k { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
        }
    }

    const PASS: u32 = libc::SECCOMP_RET_ALLOW;
    const TRAP: u32 = libc::SECCOMP_RET_USER_NOTIF;
    fn errno(errno: Errno) -> u32 {
        libc::SECCOMP_RET_ERRNO | errno as u32
    }

    #[test]
    fn below_another_netbox_the_same_calls_are_refused_and_none_is_taken_from_its_supervisor() {
        let below = program(ALLOW);
        let unix = libc::AF_UNIX as u32;
        for (call, arguments) in [
            (libc::SYS_connect, [3, 0, 16]),
            (libc::SYS_listen, [3, 16, 0]),
            (libc::SYS_socketpair, [unix, libc::SOCK_DGRAM as u32, 0]),
            (libc::SYS_setrlimit, [libc::RLIMIT_CORE, 1, 0]),
            (libc::SYS_socket, [unix, libc::SOCK_DGRAM as u32, 0]),
            (libc::SYS_io_uring_setup, [0; 3]),
            (libc::SYS_add_key, [0; 3]),
        ] {
            let alone = verdict(NATIVE, call as u32, arguments);
            let expected = if alone == TRAP { PASS } else { alone };
            assert_eq!(run(&below, NATIVE, call as u32, arguments), expected, "{call}");
        }
    }

    #[test]
    fn another_abi_finds_no_system_call() {
        assert_eq!(verdict(0x4000_0003, 102, [0; 3]), errno(Errno::ENOSYS), "i386 socketcall");
        assert_eq!(verdict(NATIVE, X32 | 41, [1, 1, 0]), errno(Errno::ENOSYS), "x32 socket");
    }

    #[test]
    fn only_the_listed_families_make_sockets() {
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            for family in 0..48 {
                let known = family == libc::AF_UNIX || FAMILIES.contains(&family);
                let expected = if known { PASS } else { errno(Errno::EAFNOSUPPORT) };
                assert_eq!(verdict(NATIVE, call as u32, [family as u32, 1, 0]), expected, "family {family}");
            }
        }
    }

    #[test]
    fn unix_datagram_sockets_are_refused_and_their_pairs_supervised_whatever_the_flags() {
        let unix = libc::AF_UNIX as u32;
        for flags in
            [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0x10, 1 << 31]
        {
            for kind in 0..16 {
                let is_datagram = kind == libc::SOCK_DGRAM || kind == libc::SOCK_RAW;
                let arguments = [unix, (kind | flags) as u32, 0];
                let socket = if is_datagram { errno(Errno::EACCES) } else { PASS };
                assert_eq!(verdict(NATIVE, libc::SYS_socket as u32, arguments), socket, "{arguments:?}");
                let pair = if is_datagram { TRAP } else { PASS };
                assert_eq!(verdict(NATIVE, libc::SYS_socketpair as u32, arguments), pair, "{arguments:?}");
            }
        }
        let udp = [libc::AF_INET as u32, libc::SOCK_DGRAM as u32, 0];
        assert_eq!(verdict(NATIVE, libc::SYS_socket as u32, udp), PASS);
    }

    #[test]
    fn connect_and_listen_are_supervised_on_every_socket() {
        for call in [libc::SYS_connect, libc::SYS_listen, libc::SYS_landlock_create_ruleset] {
            assert_eq!(verdict(NATIVE, call as u32, [3, 0, 16]), TRAP);
        }
        for call in [libc::SYS_bind, libc::SYS_accept4, libc::SYS_sendmsg, libc::SYS_sendto] {
            assert_eq!(verdict(NATIVE, call as u32, [3, 0, 16]), PASS);
        }
    }

    #[test]
    fn the_limit_of_core_dumps_is_supervised_and_no_other() {
        let (set, get_and_set) = (libc::SYS_setrlimit as u32, libc::SYS_prlimit64 as u32);
        assert_eq!(verdict(NATIVE, set, [libc::RLIMIT_CORE, 1, 0]), TRAP);
        assert_eq!(verdict(NATIVE, get_and_set, [0, libc::RLIMIT_CORE, 1]), TRAP);
        for other in (0..16).filter(|other| *other != libc::RLIMIT_CORE) {
            assert_eq!(verdict(NATIVE, set, [other, libc::RLIMIT_CORE, 0]), PASS);
            assert_eq!(verdict(NATIVE, get_and_set, [libc::RLIMIT_CORE, other, 1]), PASS);
        }
    }

    #[test]
    fn io_uring_is_missing_and_keyrings_are_forbidden() {
        assert_eq!(verdict(NATIVE, libc::SYS_io_uring_setup as u32, [0; 3]), errno(Errno::ENOSYS));
        assert_eq!(verdict(NATIVE, libc::SYS_add_key as u32, [0; 3]), errno(Errno::EPERM));
    }

    #[test]
    fn binding_to_a_device_and_typing_into_the_terminal_are_forbidden_and_the_rest_is_not() {
        let setsockopt = libc::SYS_setsockopt as u32;
        let socket = libc::SOL_SOCKET as u32;
        assert_eq!(verdict(NATIVE, setsockopt, [3, socket, libc::SO_BINDTODEVICE as u32]), errno(Errno::EPERM));
        assert_eq!(verdict(NATIVE, setsockopt, [3, socket, SO_BINDTOIFINDEX]), errno(Errno::EPERM));
        assert_eq!(verdict(NATIVE, setsockopt, [3, socket, libc::SO_REUSEADDR as u32]), PASS);
        assert_eq!(verdict(NATIVE, setsockopt, [3, 6, libc::SO_BINDTODEVICE as u32]), PASS, "another level");
        assert_eq!(verdict(NATIVE, libc::SYS_ioctl as u32, [0, TIOCSTI, 0]), errno(Errno::EPERM));
        assert_eq!(verdict(NATIVE, libc::SYS_ioctl as u32, [0, TIOCLINUX, 0]), errno(Errno::EPERM));
        assert_eq!(verdict(NATIVE, libc::SYS_ioctl as u32, [0, 0x5401, 0]), PASS, "TCGETS");
        assert_eq!(verdict(NATIVE, libc::SYS_clone as u32, [0; 3]), PASS);
        assert_eq!(verdict(NATIVE, libc::SYS_mount as u32, [0; 3]), PASS);
    }
}
