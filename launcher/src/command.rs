//! The command's process, from `fork` to `exec`.
//!
//! Theory of operation. Pid 1 owns the network namespace and could take the walls down; the command must not. So it
//! goes into a user namespace of its own below, where it has no power over anything that pid 1 set up:
//!
//! 1. [`enter_nested_user_namespace`]: pid 1 writes the maps; every id means what it meant. A mount namespace comes with
//!    it, in which every mount is locked to the one above (mount_namespaces(7)). In pid 1's none is: that namespace comes
//!    apart when pid 1 ends, and pid 1 leaves it before the kernel kills the others; who had a directory of it open would
//!    reach what is below the mounts for that moment.
//! 2. [`leave_the_keyring`]: no keyring of the user's. Pid 1, which leads the session, has put it into a process group of
//!    its own.
//! 3. [`drop_privileges`]: a user's command has no capability and can gain none. Root's keeps those of the nested
//!    namespace, which owns nothing but the copy of the mounts: enough for chown and for changing to another user, not
//!    for networks.
//! 4. [`come_under_supervision`]: the system-call filter, last, since the steps before use what it forbids. Its listener
//!    goes to netbox, and the supervision is proved. Inside another netbox, that one's supervision is asked for a wall
//!    instead.
//! 5. `exec`, at the word. Until then any error is reported to pid 1 over the channel, which `exec` closes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use caps::CapSet;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{AccessFlags, access, chdir};

use crate::costs::Stopwatch;
use crate::devices::Device;
use crate::error::{At, Failure, Step};
use crate::id_maps;
use crate::message::{Channel, Order, Report};
use crate::protection::Protected;
use crate::supervisor::{self, AllowedSocket};
use crate::sys;
use crate::system_call_filter;

/// What to run, and as what.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program: a path, or a name that is looked up in the environment's PATH.
    pub program: OsString,
    /// Its arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory, absolute. It is entered anew inside: the one inherited could be on a mount that the
    /// sandbox covers.
    pub directory: PathBuf,
    /// Files of netbox's own, absolute and without links, that read as empty inside and cannot be written.
    pub hidden: Vec<PathBuf>,
    /// Whether the command is to have the terminal that netbox was started from, if there is one; else it has one that
    /// nobody types at, unless it asks for more.
    pub interactive: bool,
    /// Devices of the host that the command has besides the usual ones.
    pub devices: Vec<Device>,
    /// What decides later runs.
    pub protected: Vec<Protected>,
    /// Unix sockets of the host that may be connected to.
    pub unix_sockets: Vec<AllowedSocket>,
    /// Descriptors from 3 up that the command has under the same numbers: open, each once, not close-on-exec, and nothing
    /// else's. [`Embryo::conceive`](crate::Embryo::conceive) judges them, and closes them here.
    pub passed: Vec<RawFd>,
    /// Whether the `/proc` that is there may stay where the kernel refuses a fresh one.
    pub allow_weaker_proc: bool,
    /// Ports of the sandbox's loopback on which netbox listens, at most [`MAX_HOST_PORTS`](crate::MAX_HOST_PORTS), each
    /// once and none of netbox's own.
    pub host_ports: Vec<u16>,
    /// Ports on which connections of the command's are captured where the kernel has no nf_tables; all others are refused
    /// there. The first [`MAX_CAUGHT_PORTS`](crate::MAX_CAUGHT_PORTS) count, without 53, `host_ports` and netbox's own.
    pub caught_ports: Vec<u16>,
}

/// Becomes the command, or reports why not and returns.
pub(crate) fn become_command(spec: &Spec, nested: bool, mask: &SigSet, channel: &Channel, supervisor: &Channel) {
    let report = match prepare(spec, nested, mask, channel, supervisor) {
        Err(failure) => Report::Failed(failure),
        Ok(errno) => Report::NotExecuted(errno as i32),
    };
    // Pid 1 sees the end of the channel in any case.
    let _ = channel.report(&report, &[]);
}

/// Everything up to `exec`; its error is the value, because all before it went well.
fn prepare(
    spec: &Spec,
    nested: bool,
    mask: &SigSet,
    channel: &Channel,
    supervisor: &Channel,
) -> Result<Errno, Failure> {
    let mut watch = Stopwatch::start();
    enter_nested_user_namespace(channel, &mut watch)?;
    leave_the_keyring()?;
    chdir(&spec.directory).at(Step::WorkingDirectory, &format!("`{}`", spec.directory.display()))?;
    drop_privileges()?;
    watch.lap("its keyring and privileges");
    come_under_supervision(nested, supervisor, watch)?;
    sys::close_from_on_exec(3).at(Step::Privileges, "closing descriptors")?;
    spec.passed.iter().try_for_each(|fd| sys::keep_on_exec(*fd)).at(Step::Privileges, "keeping descriptors")?;
    match channel.next_order().at(Step::Fork, "the channel to pid 1")? {
        Some(Order::Go { .. }) => {}
        _ => return Err(Failure::outcome(Step::Fork, "pid 1 did not give the word")),
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None).at(Step::Privileges, "the signal mask")?;
    Ok(match exec(spec) {
        Err(errno) => errno,
        Ok(never) => match never {},
    })
}

fn exec(spec: &Spec) -> Result<Infallible, Errno> {
    let mut command = Command::new(find(spec)?);
    command
        .arg0(&spec.program)
        .args(&spec.arguments)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)));
    // Also resets SIGPIPE, which Rust's start-up ignores. An empty or NUL-ridden name has no errno of its own.
    Err(command.exec().raw_os_error().map_or(Errno::EINVAL, Errno::from_raw))
}

/// Where the program is. As execvp(3), but a directory of PATH that may not be searched hides nothing: a name that no
/// directory is known to hold is not found, as in a shell.
fn find(spec: &Spec) -> Result<PathBuf, Errno> {
    if spec.program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(&spec.program));
    }
    if spec.program.is_empty() {
        return Err(Errno::ENOENT);
    }
    let path = spec.environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut error = Errno::ENOENT;
    for directory in std::env::split_paths(&path.unwrap_or_else(|| "/bin:/usr/bin".into())) {
        // An empty element is the working directory (execvp(3)).
        let candidate = Path::new(".").join(directory).join(&spec.program);
        if candidate.is_file() {
            match access(&candidate, AccessFlags::X_OK) {
                Ok(()) => return Ok(candidate),
                Err(_) => error = Errno::EACCES,
            }
        }
    }
    Err(error)
}

fn enter_nested_user_namespace(channel: &Channel, watch: &mut Stopwatch) -> Result<(), Failure> {
    let step = Step::NestedUserNamespace;
    // Pid 1 is not dumpable, and neither is its copy; its files in /proc would belong to nobody.
    prctl::set_dumpable(true).at(step, "PR_SET_DUMPABLE")?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).at(step, "unshare")?;
    watch.lap("its user namespace");
    // In a `/proc` that is not this pid namespace's own, pid 1 knows it by another number.
    let number = std::fs::read_link("/proc/self").at(step, "`/proc/self`")?.to_string_lossy().into_owned();
    channel.report(&Report::Ready(number), &[]).at(step, "the channel to pid 1")?;
    match channel.next_order().at(step, "the channel to pid 1")? {
        Some(Order::Mapped) => {}
        _ => return Err(Failure::outcome(step, "pid 1 did not map the user")),
    }
    // Pid 1 had the network to set up before.
    watch.skip();
    Ok(())
}

fn leave_the_keyring() -> Result<(), Failure> {
    match sys::join_fresh_session_keyring() {
        // A kernel or a container without keyrings has none to leak.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EOPNOTSUPP) => Ok(()),
        other => other.at(Step::Privileges, "a fresh session keyring"),
    }
}

fn come_under_supervision(nested: bool, supervisor: &Channel, mut watch: Stopwatch) -> Result<(), Failure> {
    if nested {
        system_call_filter::load_below_another()?;
        return supervisor::ask_for_a_wall();
    }
    let listener = system_call_filter::load()?;
    watch.lap("system-call filter");
    let report = Report::Listener(watch.stop().to_text());
    supervisor.report(&report, &[listener.as_raw_fd()]).at(Step::UnixSockets, "the channel to netbox")?;
    // If netbox went away now, the next call would fail rather than wait.
    drop(listener);
    supervisor::prove()
}

fn drop_privileges() -> Result<(), Failure> {
    let step = Step::Privileges;
    // A core pattern that begins with a pipe starts a program outside, and ignores a limit of 0: but not one of 1. It stays
    // so (`supervisor::core_limit`).
    match setrlimit(Resource::RLIMIT_CORE, 1, 1) {
        // It is 0 for good. Where the pattern names a file, there is just none.
        Err(Errno::EPERM) if getrlimit(Resource::RLIMIT_CORE).is_ok_and(|(_, hard)| hard == 0) => {
            if !dumps_are_files() {
                return Err(Failure::outcome(step, NO_CORE_LIMIT));
            }
        }
        set => set.at(step, "RLIMIT_CORE")?,
    }
    prctl::set_no_new_privs().at(step, "PR_SET_NO_NEW_PRIVS")?;
    if id_maps::is_root() {
        return Ok(());
    }
    // The bounding set stays. It bounds what exec gives, which is nothing by now; and with an empty one, a program whose
    // file has capabilities (a server that may bind port 80) could not be executed at all (capabilities(7)).
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        clear(set).map_err(|error| Failure::outcome(step, format!("clearing the {set:?} capabilities: {error}")))?;
    }
    Ok(())
}

const NO_CORE_LIMIT: &str = "core dumps are limited to 0 for good (`ulimit -Hc`), and of those the kernel tells a program \
                             outside (/proc/sys/kernel/core_pattern), as it would not with a limit of 1: raise the hard limit \
                             to 1 at least";

/// Whether a core dump is no more than a file (core(5)).
fn dumps_are_files() -> bool {
    std::fs::read("/proc/sys/kernel/core_pattern").is_ok_and(|pattern| !matches!(pattern.first(), Some(b'|' | b'@')))
}

fn clear(set: CapSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, set)
}
