//! The environments that netbox was tried in, and what it did: the rows of the table in `docs/platforms.md`, which is made
//! from them. Each is tried by the theme `platforms`.
//!
//! To add one: a row here, and `NETBOX_WRITE_REFERENCE=1 cargo test --test e2e -- platforms`.

use std::fmt::Write as _;
use std::fs::{self, create_dir_all};
use std::path::Path;

use netbox_launcher::{Failure, Step};

use crate::child::{Kernel, Refusal};
use crate::run::Run;
use crate::surroundings::Surroundings;
use crate::system_files;
use crate::themes::steps;
use crate::world::World;

/// One environment.
pub struct Row {
    /// As the table calls it.
    pub environment: &'static str,
    /// Puts a run into it.
    pub enter: for<'w> fn(&World, Run<'w>) -> Run<'w>,
    /// What comes of it.
    pub says: Says,
}

/// What netbox does.
pub enum Says {
    /// It runs, and nothing is less than elsewhere.
    Works,
    /// It runs, and `doctor` has these words about what is less.
    Weaker(&'static str),
    /// It does not: this step fails with this error number.
    Refuses(Step, i32),
}

use Says::{Refuses, Weaker, Works};

/// A kernel in which this call fails, with these arguments if there are any.
macro_rules! without {
    ($call:ident $([$($place:literal = $value:expr),*])?, $errno:ident) => {
        |_, run| {
            const REFUSALS: &[Refusal] =
                &[Refusal { call: libc::$call, with: &[$($(($place, $value as u32)),*)?], errno: libc::$errno }];
            run.kernel(Kernel::Refuses(REFUSALS))
        }
    };
}

/// All of them.
pub const ROWS: &[Row] = &[
    Row { environment: "Linux 5.14 or newer, user namespaces for users, nf_tables", enter: |_, run| run, says: Works },
    Row {
        environment: "no nf_tables, or none for this user",
        enter: |_, run| run.kernel(Kernel::HasNoPacketFilter),
        says: Weaker("connections are caught by routes, on the ports of the policy's rules, 80 and 443"),
    },
    Row {
        environment: "no IPv6 (`ipv6.disable=1`)",
        enter: without!(SYS_socket[0 = libc::AF_INET6], EAFNOSUPPORT),
        says: Weaker("IPv6 is off in this kernel, so programs inside have IPv4 alone"),
    },
    Row {
        environment: "`net.ipv6.conf.all.disable_ipv6=1`",
        enter: |_, run| {
            let settings: [(&_, &[u8]); 2] = [
                (c"/proc/sys/net/ipv6/conf/all/disable_ipv6", b"1"),
                (c"/proc/sys/net/ipv6/conf/default/disable_ipv6", b"1"),
            ];
            run.surroundings(Surroundings::default().alone(&settings))
        },
        says: Works,
    },
    Row {
        environment: "a machine without a network",
        enter: |_, run| run.surroundings(Surroundings::default().alone(&[])),
        says: Works,
    },
    Row { environment: "no Landlock", enter: without!(SYS_landlock_create_ruleset, ENOSYS), says: Works },
    Row { environment: "no keyrings, as in containers", enter: without!(SYS_keyctl, ENOSYS), says: Works },
    Row { environment: "no home directory", enter: |_, run| run.env("HOME", "/nonexistent"), says: Works },
    Row {
        environment: "a read-only root file system",
        enter: |_, run| run.surroundings(Surroundings::default().read_only("/")),
        says: Works,
    },
    Row {
        environment: "no `/etc/resolv.conf`",
        enter: |world, run| run.surroundings(etc(world, "etc-without-resolver")),
        says: Weaker("there is none; netbox answers on 127.0.0.1:53 inside"),
    },
    Row {
        environment: "`/etc/resolv.conf` a link into `/run`",
        enter: |world, run| run.surroundings(etc(world, "etc-with-a-link")),
        says: Works,
    },
    Row {
        environment: "`/etc/resolv.conf` a link to nothing",
        enter: |world, run| run.surroundings(etc(world, "etc-with-a-dangling-link")),
        says: Weaker("there is none; netbox answers on 127.0.0.1:53 inside"),
    },
    Row {
        environment: "`/proc` with `hidepid=2`",
        enter: |_, run| {
            let fresh = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
            let namespaces = ["unshare", "--user", "--map-current-user", "--keep-caps", "--pid", "--mount", "--fork"];
            run.under(&[&namespaces[..], &["sh", "-c", fresh, "sh"]].concat())
        },
        says: Works,
    },
    Row {
        environment: "`user.max_user_namespaces=0`",
        enter: |_, run| run.kernel(Kernel::NoUserNamespaceLeft),
        says: Refuses(Step::Namespaces, libc::ENOSPC),
    },
    Row {
        environment: "`user.max_net_namespaces=0`",
        enter: |_, run| run.kernel(Kernel::NoNetworkNamespaceLeft),
        says: Refuses(Step::Namespaces, libc::ENOSPC),
    },
    Row {
        environment: "one user namespace, and none in it",
        enter: |_, run| run.kernel(Kernel::OneUserNamespaceLeft),
        says: Refuses(Step::NestedUserNamespace, libc::ENOSPC),
    },
    Row {
        environment: "a container's default seccomp profile",
        enter: |_, run| run.kernel(Kernel::RefusesNamespaces),
        says: Refuses(Step::Namespaces, libc::ENOSYS),
    },
    Row {
        environment: "`kernel.unprivileged_userns_clone=0`",
        enter: without!(SYS_clone3, EPERM),
        says: Refuses(Step::Namespaces, libc::EPERM),
    },
    Row {
        environment: "Ubuntu 24.04: AppArmor's limit on user namespaces, and no profile",
        enter: without!(SYS_mount, EACCES),
        says: Refuses(Step::PrivateMounts, libc::EACCES),
    },
    Row {
        environment: "a container that masks parts of `/proc`",
        enter: |_, run| run.under(&MASKED),
        says: Refuses(Step::Proc, libc::EPERM),
    },
    Row {
        environment: "the same, with `--allow-weaker proc`",
        enter: |_, run| run.env("NETBOX_ALLOW_WEAKER", "proc").under(&MASKED),
        says: Weaker("the command sees the processes around it, by name and command line"),
    },
    Row {
        environment: "`no_new_privs`, as `--security-opt no-new-privileges`",
        enter: |_, run| run.under(&["setpriv", "--no-new-privs"]),
        says: Works,
    },
    Row { environment: "in bwrap", enter: |_, run| boxed(run, "--unshare-pid"), says: Works },
    Row {
        environment: "in bwrap without a network",
        enter: |_, run| boxed(run, "--unshare-net"),
        says: Weaker("there is no network here, but loopback alone"),
    },
    Row {
        environment: "in a netbox",
        enter: |world, run| {
            let netbox = world.netbox_path().to_string_lossy();
            // Which root needs in there.
            run.under(&[&netbox, "run", "--mode", "none", "--", "env", "NETBOX_ALLOW_WEAKER=proc"])
        },
        says: Weaker("this is inside another netbox, which supervises connects and makes every connection"),
    },
    Row {
        environment: "no further process (`ulimit -u`, `pids.max`)",
        enter: without!(SYS_clone3, EAGAIN),
        says: Refuses(Step::Namespaces, libc::EAGAIN),
    },
    Row {
        environment: "`/proc` read-only",
        enter: |_, run| run.surroundings(Surroundings::default().read_only("/proc")),
        says: Refuses(Step::IdMaps, libc::EROFS),
    },
    Row {
        environment: "`kernel.yama.ptrace_scope=3`",
        enter: without!(SYS_pidfd_getfd, EPERM),
        says: Refuses(Step::UnixSockets, libc::EACCES),
    },
    Row {
        environment: "connections redirected by somebody else",
        enter: |_, run| run.kernel(Kernel::ConnectsNothing),
        says: Refuses(Step::SelfTest, 0),
    },
    Row {
        environment: "Linux before 5.0: no seccomp listener",
        enter: without!(SYS_seccomp, EINVAL),
        says: Refuses(Step::SystemCallFilter, libc::EINVAL),
    },
    Row {
        environment: "Linux before 5.2: no `open_tree`",
        enter: without!(SYS_open_tree, ENOSYS),
        says: Refuses(Step::Devices, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.3: no `clone3`",
        enter: without!(SYS_clone3, ENOSYS),
        says: Refuses(Step::Namespaces, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.3: no `pidfd_open`",
        enter: without!(SYS_pidfd_open, ENOSYS),
        says: Refuses(Step::Protection, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.6: no `pidfd_getfd`",
        enter: without!(SYS_pidfd_getfd, ENOSYS),
        says: Refuses(Step::UnixSockets, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.6: no `openat2`",
        enter: without!(SYS_openat2, ENOSYS),
        says: Refuses(Step::UnixSockets, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.9: no `close_range`",
        enter: without!(SYS_close_range, ENOSYS),
        says: Refuses(Step::Descriptors, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.11: `close_range` takes no flags",
        enter: without!(SYS_close_range[2 = libc::CLOSE_RANGE_CLOEXEC], EINVAL),
        says: Refuses(Step::Privileges, libc::EINVAL),
    },
    Row {
        environment: "Linux before 5.12: no `mount_setattr`",
        enter: without!(SYS_mount_setattr, ENOSYS),
        says: Refuses(Step::Protection, libc::ENOSYS),
    },
    Row {
        environment: "Linux before 5.14: no `SO_NETNS_COOKIE`",
        enter: without!(SYS_getsockopt[1 = libc::SOL_SOCKET, 2 = libc::SO_NETNS_COOKIE], ENOPROTOOPT),
        says: Refuses(Step::UnixSockets, libc::ENOPROTOOPT),
    },
    Row {
        environment: "Linux before 5.19: a signal interrupts a trapped call",
        enter: without!(
            SYS_seccomp[1 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV],
            EINVAL
        ),
        says: Works,
    },
    Row {
        environment: "Linux before 6.9: no handles of threads",
        // PIDFD_THREAD.
        enter: without!(SYS_pidfd_open[1 = libc::O_EXCL], EINVAL),
        says: Works,
    },
];

/// A container as engines make them, as far as `/proc` is concerned.
const MASKED: [&str; 11] = [
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--unshare-pid",
    "--proc",
    "/proc",
    "--ro-bind",
    "/dev/null",
    "/proc/cmdline",
    "--",
];

/// In bwrap, with one more namespace of its own. Root's masks what could be written in `/proc`.
fn boxed<'w>(run: Run<'w>, flag: &str) -> Run<'w> {
    let run = run.env("NETBOX_ALLOW_WEAKER", "proc");
    run.under(&["bwrap", "--dev-bind", "/", "/", flag, "--proc", "/proc"])
}

/// This `/etc` of root's (`system_files`), and a `/run` with a resolver's file in it.
fn etc(world: &World, name: &str) -> Surroundings {
    let run = world.fresh_path("home");
    create_dir_all(run.join("resolver")).expect("own folder");
    fs::copy("/etc/resolv.conf", run.join("resolver/resolv.conf")).expect("own folder");
    let etc = system_files::folder(name);
    Surroundings::default().bound(&run, "/run").bound(Path::new(etc.to_str().expect("plain characters")), "/etc")
}

/// The document, as it was when the tests were built.
const DOCUMENT: &str = include_str!("../../docs/platforms.md");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/platforms.md");
const RENEW: &str = "NETBOX_WRITE_REFERENCE=1 cargo test --test e2e -- platforms";

/// Whether the document is to be written anew: before the tests give up the right to.
pub fn is_to_be_written() -> bool {
    std::env::var_os("NETBOX_WRITE_REFERENCE").is_some_and(|value| value == "1")
}

/// Writes its tables anew.
///
/// # Panics
///
/// When it cannot be written.
pub fn write() {
    fs::write(PATH, renewed()).expect("docs/platforms.md can be written to");
}

/// Asserts that its tables are those of the tests.
///
/// # Panics
///
/// When they are not.
pub fn assert_current() {
    let wanted = renewed();
    let differs = DOCUMENT.lines().zip(wanted.lines()).find(|(present, wanted)| present != wanted);
    assert!(DOCUMENT == wanted, "docs/platforms.md is stale; renew it with `{RENEW}`: {differs:#?}");
}

fn renewed() -> String {
    let text = replaced(DOCUMENT, "environments", &environments());
    replaced(&text, "steps", &step_table())
}

/// The text with what stands between two marks replaced.
fn replaced(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: made by `{RENEW}` -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("no `{begin}` in docs/platforms.md"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no `{end}` in docs/platforms.md"));
    format!("{before}{begin}{table}{end}{after}")
}

fn environments() -> String {
    let mut table = String::from("| environment | | what it says, and what to do |\n| --- | --- | --- |\n");
    for row in ROWS {
        let (verdict, words) = match &row.says {
            Works => ("works", String::new()),
            Weaker(words) => ("works, weaker", (*words).to_owned()),
            Refuses(step, errno) => ("refuses", told(*step, *errno)),
        };
        let _ = writeln!(table, "| {} | {verdict} | {words} |", row.environment);
    }
    table
}

fn step_table() -> String {
    let mut table = String::from("| what it says, and what to do |\n| --- |\n");
    for step in Step::ALL {
        let _ = writeln!(table, "| {} |", told(step, steps::cause(step).1));
    }
    table
}

/// The error and its hint. Between what could not be done and the kernel's answer stands what it is about.
fn told(step: Step, errno: i32) -> String {
    let failure = Failure { step, errno, detail: String::new() };
    let hint = failure.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{failure}{hint}").replace('|', "\\|")
}
