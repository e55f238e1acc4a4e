//! The command's `/proc`.
//!
//! Theory of operation. A fresh one belongs to the pid namespace that it is mounted in, so nothing of the host is in it.
//! The kernel refuses to mount one where parts of the one that is there are covered, as container engines do: what is
//! covered would be in view again. Netbox then does not run, unless the person allows this one wall to be missing
//! (`--allow-weaker proc`). Then the `/proc` that is there stays, that of the container:
//!
//! * The command sees the processes around it, with what every process shows to all: its name, its command line, its user,
//!   what it uses. Their environment, memory, root and working directories, descriptors and namespaces the kernel keeps
//!   closed: who is in a user namespace may not look into a process of the one above (ptrace(2), "Ptrace access mode
//!   checking").
//! * It is read-only, all of it: a process of the same user could else be made the first to be killed when memory runs
//!   out, or have its memory's marks reset (`oom_score_adj`, `clear_refs`). So a sandbox that a program inside would make
//!   fails, since it maps its users there.
//! * No signal, trace or handle follows from a number that is seen there: in the command's pid namespace it means another
//!   process, or none.
//!
//! Pid 1 still has to write there, and does it by a handle from before ([`Proc::directory_of`]).

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use crate::error::{At, Failure, Step};

/// The wall's word.
pub(crate) const PROC: &str = "proc";

/// `/proc`, as it was found or made.
#[derive(Debug)]
pub(crate) struct Proc {
    /// Where it can be written.
    handle: OwnedFd,
    /// Whether it is the pid namespace's own.
    pub(crate) is_fresh: bool,
}

impl Proc {
    /// Mounts the new pid namespace's over the old one. Where the kernel refuses, and with `allow_weaker`, the old one stays.
    pub(crate) fn mount(allow_weaker: bool) -> Result<Self, Failure> {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let is_fresh = match mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
            Err(Errno::EPERM) if allow_weaker => false,
            other => other.at(Step::Proc, "`/proc`").map(|()| true)?,
        };
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self { handle: open("/proc", directory, Mode::empty()).at(Step::Proc, "`/proc`")?, is_fresh })
    }

    /// Lets programs inside bind ports below 1024: they are the sandbox's own.
    pub(crate) fn allow_low_ports(&self) -> Result<(), Failure> {
        let name = "sys/net/ipv4/ip_unprivileged_port_start";
        // Only what is there: in an odd `/proc` nothing is to be made.
        let write = |mut file: File| file.write_all(b"0");
        match File::options().write(true).open(self.path().join(name)).and_then(write) {
            // The container's settings are read-only, and its programs cannot bind such ports either.
            Err(error) if !self.is_fresh && matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES)) => Ok(()),
            other => other.at(Step::LowPorts, &format!("/proc/{name}")),
        }
    }

    /// The directory of a child, to write to. `own`: its number as it reads it in `/proc/self`.
    pub(crate) fn directory_of(&self, child: Pid, own: &str) -> Option<PathBuf> {
        // In a fresh one there is no doubt.
        let number = if self.is_fresh { child.as_raw() } else { own.parse().ok()? };
        Some(self.path().join(number.to_string()))
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.handle.as_raw_fd().to_string())
    }
}
