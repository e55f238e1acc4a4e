//! What can go wrong between the wish for a sandbox and a running command.
//!
//! Every step of the set-up has a name. When one fails, the command does not run, and the person is told the step,
//! the kernel's answer, and the way out. The way out belongs here, beside the step, because it depends on both.

use std::fmt;
use std::io;

use crate::id_maps;

/// One step of building the sandbox, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Looking at the descriptors that the command would inherit: 0, 1, 2 and those that are passed.
    Descriptors = 1,
    /// The socket pair between netbox and pid 1 of the sandbox.
    ControlSocket,
    /// `clone3(2)` with the five namespaces.
    Namespaces,
    /// Writing `uid_map`, `setgroups` and `gid_map` of the outer user namespace.
    IdMaps,
    /// Waiting in pid 1 for the maps, and tying its life to netbox.
    Handshake,
    /// Loopback, the stub interface, its addresses and default routes.
    Interfaces,
    /// The nf_tables batch that captures connections, and reading it back.
    CaptureRules,
    /// `net.ipv4.ip_unprivileged_port_start`.
    LowPorts,
    /// The sockets on which captured connections and queries arrive.
    Listeners,
    /// The proof that a connect, a query and a datagram really go where they should.
    SelfTest,
    /// Making the mount tree private.
    PrivateMounts,
    /// Making what decides later runs read-only and not to be moved.
    Protection,
    /// Covering the places at which a look makes the host's automounter act.
    Automounts,
    /// `/etc/resolv.conf` and its companions.
    ResolverFiles,
    /// A fresh `/proc` of the new pid namespace.
    Proc,
    /// `/sys` (and, for root, `/proc/sys`) read-only.
    ReadOnlyKernelFiles,
    /// A `/dev` of the sandbox's own.
    Devices,
    /// The pseudo-terminal that the command has in the place of the user's.
    Terminal,
    /// Handing the sockets to netbox.
    HandOver,
    /// `fork(2)` of the command's process.
    Fork,
    /// The nested user namespace of the command and its maps.
    NestedUserNamespace,
    /// Session, keyring, limits, capabilities and `no_new_privs` of the command.
    Privileges,
    /// The system-call filter.
    SystemCallFilter,
    /// Returning to the working directory.
    WorkingDirectory,
    /// The supervision of connects, which keeps the host's unix sockets out of reach, and its proof.
    UnixSockets,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 25] = [
        Step::Descriptors,
        Step::ControlSocket,
        Step::Namespaces,
        Step::IdMaps,
        Step::Handshake,
        Step::Interfaces,
        Step::CaptureRules,
        Step::LowPorts,
        Step::Listeners,
        Step::SelfTest,
        Step::PrivateMounts,
        Step::Protection,
        Step::Automounts,
        Step::ResolverFiles,
        Step::Proc,
        Step::ReadOnlyKernelFiles,
        Step::Devices,
        Step::Terminal,
        Step::HandOver,
        Step::Fork,
        Step::NestedUserNamespace,
        Step::Privileges,
        Step::SystemCallFilter,
        Step::WorkingDirectory,
        Step::UnixSockets,
    ];

    /// The step with this number on the control socket.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u8 == number)
    }

    /// What the step does, as the object of "cannot …".
    fn deed(self) -> &'static str {
        match self {
            Step::Descriptors => "hand the descriptors to the command",
            Step::ControlSocket => "make the control socket",
            Step::Namespaces => "create the namespaces",
            Step::IdMaps => "map the user into the sandbox",
            Step::Handshake => "start the sandbox's first process",
            Step::Interfaces => "set up the sandbox's network interfaces",
            Step::CaptureRules => "load the capture rules",
            Step::LowPorts => "open the low ports inside the sandbox",
            Step::Listeners => "open the sandbox's listeners",
            Step::SelfTest => "prove that the capture works",
            Step::Automounts => "cover the automount points",
            Step::Protection => "keep what decides later runs in place",
            Step::PrivateMounts => "make the mounts private",
            Step::ResolverFiles => "put the resolver files in place",
            Step::Proc => "mount a fresh `/proc`",
            Step::Devices => "put a new `/dev` in place",
            Step::ReadOnlyKernelFiles => "make the kernel's files read-only",
            Step::Terminal => "make the command's terminal",
            Step::HandOver => "hand the listeners to the proxy",
            Step::Fork => "start the command's process",
            Step::NestedUserNamespace => "create the command's user namespace",
            Step::Privileges => "drop the command's privileges",
            Step::SystemCallFilter => "load the system-call filter",
            Step::WorkingDirectory => "enter the working directory",
            Step::UnixSockets => "supervise connects, which keeps the host's unix sockets out of reach",
        }
    }

    /// What the person can do about `errno` at this step. The first that fits: what is known of the step comes before what is
    /// known of the error.
    fn remedy(self, errno: i32) -> Option<&'static str> {
        match (self, errno) {
            (Step::Descriptors, 0) => Some(
                "redirect it, as with `< /dev/null`, or leave it out: files, pipes and connected unix sockets can be handed \
                 over, and a terminal as standard input, output or error",
            ),
            (Step::Namespaces | Step::NestedUserNamespace, libc::ENOSPC) => Some(
                "a limit on namespaces is reached or zero: look at `sysctl -a | grep user.max_.*_namespaces`, and raise the one \
                 that is, as with `sudo sysctl -w user.max_user_namespaces=15000`; `netbox doctor` names it",
            ),
            (Step::Namespaces, libc::EPERM | libc::EACCES) => Some(
                "unprivileged user namespaces are refused here: in a container, allow `clone3` and `unshare` with user \
                 namespaces in its seccomp profile (docs/containers.md has one); on older Debian, `sudo sysctl -w kernel.unprivileged_userns_clone=1`; \
                 where SELinux or AppArmor limits them, give netbox a profile that permits `userns`",
            ),
            (Step::Namespaces, libc::ENOSYS) => Some(
                "the kernel, or the container's seccomp profile, has no `clone3`: Linux 5.3 or newer is needed, or a profile \
                     that allows it (docs/containers.md has one)",
            ),
            (Step::Namespaces, libc::EINVAL) => {
                Some("the kernel was built without user, network, mount, pid or ipc namespaces")
            }
            (Step::IdMaps, libc::EROFS) => {
                Some("`/proc` is read-only here: netbox must be able to write to `/proc/PID/uid_map`")
            }
            // Since Linux 5.12 nobody maps root without CAP_SETFCAP (user_namespaces(7)).
            (Step::IdMaps, libc::EPERM) if id_maps::is_root() => Some(
                "root lacks `CAP_SETFCAP`, `CAP_SETUID` or `CAP_SETGID` here, as in a container with `--cap-drop ALL`: add the three \
                 with `--cap-add`, or run as another user, who needs none",
            ),
            (Step::IdMaps, 0) => Some("mount it anew: `mount -t proc proc /proc`"),
            (
                Step::Interfaces | Step::CaptureRules | Step::PrivateMounts | Step::IdMaps,
                libc::EPERM | libc::EACCES,
            ) => Some(
                "the new user namespace has no capabilities: on Ubuntu 24.04 and later AppArmor takes them away from \
                 programs without a profile (`sysctl kernel.apparmor_restrict_unprivileged_userns`); install netbox as \
                 `/usr/local/bin/netbox` with its own: `netbox doctor --apparmor-profile | sudo tee /etc/apparmor.d/netbox`, then \
                 `sudo apparmor_parser --replace /etc/apparmor.d/netbox`",
            ),
            (Step::CaptureRules, libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOENT) => Some(
                "the kernel lacks nf_tables with nat, redirect, fib and reject for the inet family: load them with \
                 `sudo modprobe -a nf_tables nft_redir nft_fib_inet nft_reject_inet nft_log nft_limit nft_ct`",
            ),
            (Step::SelfTest, _) => Some(
                "connections take another way here than netbox has set up: a program on the control group (eBPF, as of a \
                 container network) may redirect those of every process in it, or a system-call filter may answer for the kernel",
            ),
            (Step::Proc, libc::EPERM) => Some(
                "parts of `/proc` are masked here, as in a container: run the container with `--security-opt \
                 systempaths=unconfined` (Docker), `--security-opt unmask=ALL` (Podman) or `procMount: Unmasked` (Kubernetes); or \
                 accept with `--allow-weaker proc` that the command sees the processes around it",
            ),
            (Step::Devices, libc::EPERM | libc::EACCES) => Some(
                "the host's `/dev` cannot be covered here: in a container, let its profile allow `mount`, `open_tree`, \
                 `move_mount` and `mount_setattr`",
            ),
            (Step::WorkingDirectory, libc::ENOENT) => Some(
                "inside, `/dev`, `/proc` and the directories of some services are the sandbox's own: start in another directory",
            ),
            (Step::Protection | Step::Devices | Step::ReadOnlyKernelFiles, libc::ENOSYS) => {
                Some("`mount_setattr`, `open_tree` or `pidfd_open` is missing: Linux 5.12 or newer is needed")
            }
            (Step::Descriptors, libc::ENOSYS) | (Step::Privileges, libc::EINVAL) => {
                Some("`close_range` is missing, or takes no flags: Linux 5.11 or newer is needed")
            }
            (Step::HandOver, 0) => Some("it was killed, by somebody or since memory is short: see `dmesg`"),
            (Step::UnixSockets, libc::EBUSY) => Some(
                "a supervisor of system calls is in force already, which is no netbox, and the kernel has room for one: netbox \
                 cannot run below a container's seccomp agent",
            ),
            (Step::UnixSockets, libc::ENOSPC) => Some(
                "there are as many sandboxes in the netbox around this one as there can be: wait until one has ended",
            ),
            (Step::UnixSockets, libc::EPERM | libc::EACCES) => Some(
                "netbox may not look into the memory of the processes that it starts: see `sysctl kernel.yama.ptrace_scope`, \
                 which 3 forbids to everyone; in a container, allow `pidfd_getfd` in its seccomp profile (docs/containers.md has one)",
            ),
            (Step::UnixSockets | Step::SystemCallFilter, libc::EINVAL | libc::ENOSYS | libc::ENOPROTOOPT) => Some(
                "the kernel, or the system-call filter of a container, lacks seccomp's user notification, `pidfd_getfd`, `openat2` or \
                 `SO_NETNS_COOKIE`: Linux 5.14 or newer is needed",
            ),
            (Step::Terminal, libc::ENOENT | libc::ENXIO | libc::ENODEV) => Some(
                "the kernel has no pseudo-terminals (devpts): run with standard input, output and error redirected, to pipes for one",
            ),
            (Step::Terminal, libc::ENOSPC) => Some("too many pseudo-terminals are in use: see `sysctl kernel.pty`"),
            (_, libc::EMFILE) => Some("too many open files: raise the limit with `ulimit -n`"),
            (_, libc::ENFILE) => Some("too many open files on this machine: see `sysctl fs.file-nr fs.file-max`"),
            (_, libc::EAGAIN) => {
                Some("too many processes and threads: see `ulimit -u`, and `pids.max` of this process's control group")
            }
            (_, libc::ENOMEM) => Some("the machine, or this process's control group, is out of memory"),
            (_, libc::EPERM | libc::EACCES) => Some(
                "a system-call filter, as of a container, or a security module (SELinux, AppArmor) refuses it: its log names the \
                 rule (`dmesg`, `journalctl -k`); `netbox doctor` tells more",
            ),
            (_, libc::ENOSYS) => Some(
                "the kernel, or the system-call filter of a container, does not have it: Linux 5.14 or newer is needed",
            ),
            _ => None,
        }
    }
}

/// A step that failed: the command did not run.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// The kernel's error number; 0 where the kernel said nothing wrong but the outcome was.
    pub errno: i32,
    /// The object of the step: a path, an interface, a rule. May be empty.
    pub detail: String,
}

impl Failure {
    pub(crate) fn new(step: Step, errno: nix::Error, detail: impl Into<String>) -> Self {
        Failure { step, errno: errno as i32, detail: detail.into() }
    }

    pub(crate) fn io(step: Step, error: &io::Error, detail: impl Into<String>) -> Self {
        Failure { step, errno: error.raw_os_error().unwrap_or(0), detail: detail.into() }
    }

    /// The outcome of the step was wrong although no call failed.
    pub(crate) fn outcome(step: Step, detail: impl Into<String>) -> Self {
        Failure { step, errno: 0, detail: detail.into() }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.step.remedy(self.errno)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.step.deed())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if self.errno != 0 {
            let errno = nix::Error::from_raw(self.errno);
            write!(f, ": {} ({errno:?})", errno.desc())?;
        }
        Ok(())
    }
}

/// Names the step and the object of a failing call.
pub(crate) trait At<T> {
    /// The error of this call, as a failure of `step` on `detail`.
    fn at(self, step: Step, detail: &str) -> Result<T, Failure>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, step: Step, detail: &str) -> Result<T, Failure> {
        self.map_err(|errno| Failure::new(step, errno, detail))
    }
}

impl<T> At<T> for io::Result<T> {
    fn at(self, step: Step, detail: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::io(step, &error, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_keeps_its_number() {
        for step in Step::ALL {
            assert_eq!(Step::from_number(step as u8), Some(step));
        }
        assert_eq!(Step::from_number(0), None);
        assert_eq!(Step::from_number(Step::ALL.len() as u8 + 1), None);
    }

    #[test]
    fn a_failure_names_the_step_the_object_and_the_errno() {
        let failure = Failure::new(Step::Namespaces, nix::Error::ENOSPC, "user");
        assert_eq!(failure.to_string(), "cannot create the namespaces: user: No space left on device (ENOSPC)");
        assert!(failure.hint().is_some_and(|hint| hint.contains("max_user_namespaces")));
    }
}
