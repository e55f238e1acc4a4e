//! Every step of the set-up that fails: netbox says which one, what the kernel answered and what to do, ends with 125, and
//! the command has not run.
//!
//! [`cause`] has a way to make each step fail. It is told by the step, so that a new one does not compile without.

use std::fs;

use libc::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC, SIGCHLD,
    SOL_SOCKET,
};
use netbox_launcher::{Failure, Step};

use crate::child::{Kernel, Refusal};
use crate::outcome::Outcome;
use crate::programs::{PRLIMIT, STRACE};
use crate::run::{Run, open};
use crate::surroundings::Surroundings;
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

tests![
    a_step_that_fails_is_told_and_the_command_does_not_run needs [],
    what_failed_first_is_told needs [],
    without_core_dumps_for_good_it_runs_where_they_are_files needs [PRLIMIT],
    each_mount_that_fails_gives_125 needs [STRACE],
    each_limit_on_descriptors_gives_125 needs [PRLIMIT],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// What makes a step fail.
pub enum Means {
    /// The kernel.
    Kernel(Kernel),
    /// Other mounts.
    Mounts(fn() -> Surroundings),
    /// A working directory on a file system that is another one inside.
    Directory(&'static str),
    /// A folder as standard input.
    Input,
    /// A terminal as standard input, and a kernel that refuses.
    Terminal(&'static [Refusal]),
    /// What no filter can tell from others, or only real root can have: see the test of this name.
    Elsewhere(&'static str),
}

/// The call with this number, with these arguments.
const fn refusal(call: libc::c_long, with: &'static [(u32, u32)], errno: i32) -> Refusal {
    Refusal { call, with, errno }
}

const BIND_BELOW: u32 = (MS_BIND | MS_REC) as u32;
const PLAIN: u32 = (MS_NOSUID | MS_NODEV | MS_NOEXEC) as u32;
const FORK: u32 = (CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD) as u32;
const NEW_TERMINAL: u32 = (libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u32;

/// A way to make a step fail, and the error number then; 0 where no call fails.
pub fn cause(step: Step) -> (Means, i32) {
    use Means::{Directory, Elsewhere, Input, Mounts, Terminal};
    let refuses = |refusals: &'static [Refusal]| (Means::Kernel(Kernel::Refuses(refusals)), refusals[0].errno);
    match step {
        Step::Descriptors => (Input, 0),
        Step::ControlSocket => refuses(const { &[refusal(libc::SYS_socketpair, &[], libc::EMFILE)] }),
        Step::Namespaces => (Means::Kernel(Kernel::NoUserNamespaceLeft), libc::ENOSPC),
        Step::IdMaps => (Mounts(|| Surroundings::default().read_only("/proc")), libc::EROFS),
        Step::Handshake => {
            refuses(const { &[refusal(libc::SYS_prctl, &[(0, libc::PR_SET_DUMPABLE as u32)], libc::EPERM)] })
        }
        Step::Interfaces => {
            refuses(const { &[refusal(libc::SYS_socket, &[(0, libc::AF_NETLINK as u32), (2, 0)], libc::EPERM)] })
        }
        Step::CaptureRules => {
            const NETFILTER: u32 = libc::NETLINK_NETFILTER as u32;
            refuses(
                const { &[refusal(libc::SYS_socket, &[(0, libc::AF_NETLINK as u32), (2, NETFILTER)], libc::ENOMEM)] },
            )
        }
        // Elsewhere files are made where they are missing.
        Step::LowPorts => refuses(
            const { &[refusal(libc::SYS_openat, &[(2, (libc::O_WRONLY | libc::O_CLOEXEC) as u32)], libc::EACCES)] },
        ),
        // As many as the kernel lets wait: those of the sandbox's network.
        Step::Listeners => refuses(const { &[refusal(libc::SYS_listen, &[(1, u32::MAX)], libc::ENOMEM)] }),
        Step::SelfTest => (Means::Kernel(Kernel::ConnectsNothing), 0),
        Step::PrivateMounts => {
            refuses(const { &[refusal(libc::SYS_mount, &[(3, (MS_REC | MS_PRIVATE) as u32)], libc::EPERM)] })
        }
        Step::Protection => refuses(const { &[refusal(libc::SYS_mount, &[(3, BIND_BELOW)], libc::EACCES)] }),
        Step::Automounts => (Elsewhere("automounts::a_point_that_cannot_be_covered_gives_125"), libc::EPERM),
        Step::ResolverFiles => refuses(const { &[refusal(libc::SYS_mount, &[(3, PLAIN)], libc::EPERM)] }),
        // As container engines do.
        Step::Proc => (Mounts(|| Surroundings::default().mounted(c"tmpfs", "/proc/fs", c"")), libc::EPERM),
        Step::ReadOnlyKernelFiles => (Elsewhere("steps::each_mount_that_fails_gives_125"), libc::EPERM),
        Step::Devices => {
            refuses(const { &[refusal(libc::SYS_mount, &[(3, (MS_NOSUID | MS_NOEXEC) as u32)], libc::EPERM)] })
        }
        Step::Terminal => {
            (Terminal(const { &[refusal(libc::SYS_openat, &[(2, NEW_TERMINAL)], libc::ENOSPC)] }), libc::ENOSPC)
        }
        Step::HandOver => (Elsewhere("steps::each_limit_on_descriptors_gives_125"), libc::EMFILE),
        Step::Fork => refuses(const { &[refusal(libc::SYS_clone, &[(0, FORK)], libc::EAGAIN)] }),
        Step::NestedUserNamespace => (Means::Kernel(Kernel::OneUserNamespaceLeft), libc::ENOSPC),
        Step::Privileges => refuses(const { &[refusal(libc::SYS_prlimit64, &[(1, libc::RLIMIT_CORE)], libc::EPERM)] }),
        Step::SystemCallFilter => refuses(const { &[refusal(libc::SYS_seccomp, &[], libc::EINVAL)] }),
        Step::WorkingDirectory => (Directory("/dev/shm"), libc::ENOENT),
        Step::UnixSockets => refuses(
            const {
                &[refusal(
                    libc::SYS_getsockopt,
                    &[(1, SOL_SOCKET as u32), (2, libc::SO_NETNS_COOKIE as u32)],
                    libc::ENOPROTOOPT,
                )]
            },
        ),
    }
}

fn a_step_that_fails_is_told_and_the_command_does_not_run(world: &World) {
    for step in Step::ALL {
        let (means, errno) = cause(step);
        let run = world.netbox(&FLAGS);
        // It has to be there for as long as the run.
        let terminal = Terminal::new();
        let mut folder = None;
        let run = match means {
            Means::Kernel(kernel) => run.kernel(kernel),
            Means::Mounts(surroundings) => run.surroundings(surroundings()),
            Means::Directory(place) => {
                let made = tempfile::tempdir_in(place).expect("everybody may");
                run.folder(folder.insert(made).path())
            }
            Means::Input => run.stdin_from(open(&world.path("home"))),
            Means::Terminal(refusals) => run.stdin_from(terminal.inner()).kernel(Kernel::Refuses(refusals)),
            Means::Elsewhere(test) => {
                let (theme, name) = test.split_once("::").expect("the name of a test");
                let is_it = |test: &&crate::Test| test.theme.ends_with(theme) && test.name == name;
                assert!(super::all().any(|test| is_it(&test)), "there is no test `{test}` of {step:?}");
                continue;
            }
        };
        fails(world, run, step, errno);
    }
}

/// A limit of 0 that cannot be raised is as good as one of 1 where a core dump is no more than a file.
fn without_core_dumps_for_good_it_runs_where_they_are_files(world: &World) {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("there is one");
    let outcome = world.netbox(&FLAGS).under(&["prlimit", "--core=0:0"]).exec(&["sh", "-c", "echo ran; ulimit -Hc"]);
    if pattern.starts_with(['|', '@']) {
        outcome.exits_with(125).complains("raise the hard limit");
        assert!(outcome.stdout().is_empty(), "{outcome}");
    } else {
        outcome.exits_with(0).says("ran\n0\n");
    }
}

/// Also where netbox notices something else as well: its first process is gone before it is mapped.
fn what_failed_first_is_told(world: &World) {
    const NO_DEATH_SIGNAL: &[Refusal] = &[refusal(libc::SYS_prctl, &[(0, libc::PR_SET_PDEATHSIG as u32)], libc::EPERM)];
    for _ in 0..20 {
        fails(world, world.netbox(&FLAGS).kernel(Kernel::Refuses(NO_DEATH_SIGNAL)), Step::Handshake, libc::EPERM);
    }
}

/// One after the other, whatever it is for: strace(1) lets the call of that number fail.
fn each_mount_that_fails_gives_125(world: &World) {
    let failing = |number: u64| {
        let inject = format!("inject=mount:error=EPERM:when={number}");
        world.netbox(&FLAGS).under(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=mount", "-e", &inject])
    };
    let steps = until_it_runs(world, 1, failing, "(EPERM)");
    for step in [Step::PrivateMounts, Step::ResolverFiles, Step::Proc, Step::ReadOnlyKernelFiles, Step::Devices] {
        assert!(steps.contains(&step), "no mount of {step:?} failed: {steps:?}");
    }
}

/// From what a program needs to be loaded at all. Some steps need more where there is more to hand over.
fn each_limit_on_descriptors_gives_125(world: &World) {
    until_it_runs(world, 8, |limit| world.netbox(&FLAGS).descriptor_limit(limit), "ulimit -n");
    let ports: Vec<String> = (9000..9020).map(|port| port.to_string()).collect();
    let flags: Vec<&str> = ports.iter().flat_map(|port| ["--host-port", port]).collect();
    let steps = until_it_runs(world, 60, |limit| world.netbox(&flags).descriptor_limit(limit), "ulimit -n");
    assert!(steps.contains(&Step::HandOver), "it never failed for want of room for the sockets: {steps:?}");
}

/// With one number after the other the command does not run, and that is told; until it does. The steps that failed.
fn until_it_runs<'w>(world: &World, first: u64, with: impl Fn(u64) -> Run<'w>, complaint: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for number in first..first + 200 {
        let file = world.fresh_path("home");
        let outcome = with(number).exec(&["sh", "-c", "touch \"$0\"", &file.to_string_lossy()]);
        if outcome.code == Some(0) && file.exists() {
            return steps;
        }
        outcome.exits_with(125).complains("netbox: error: ").complains(complaint);
        assert!(!file.exists(), "the command ran: {outcome}");
        let is_it = |step: &Step| {
            outcome.stderr().contains(&Failure { step: *step, errno: 0, detail: String::new() }.to_string())
        };
        steps.extend(Step::ALL.into_iter().find(is_it));
    }
    panic!("it never ran: {steps:?}");
}

/// Runs something that would leave a file and a line behind, and sees netbox fail at this step.
pub fn fails(world: &World, run: Run<'_>, step: Step, errno: i32) -> Outcome {
    let file = world.fresh_path("home");
    let outcome = run.exec(&["sh", "-c", "echo it ran; touch \"$0\"", &file.to_string_lossy()]);
    let failure = |errno| Failure { step, errno, detail: String::new() };
    let why = format!("netbox: error: {}", failure(0));
    assert!(outcome.code == Some(125) && outcome.stderr().contains(&why), "{step:?} did not fail: {outcome}");
    outcome.does_not_say("it ran");
    assert!(fs::symlink_metadata(&file).is_err(), "the command ran: {outcome}");
    if errno != 0 {
        outcome.complains(&format!("({:?})", nix::Error::from_raw(errno)));
    }
    let hint = failure(errno).hint().unwrap_or_else(|| panic!("no remedy for {step:?}: {outcome}"));
    outcome.complains(&format!("netbox: hint: {hint}"));
    outcome
}
