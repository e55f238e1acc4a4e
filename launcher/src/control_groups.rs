//! Control groups: the command reaches none that processes of the host are in.
//!
//! Theory of operation. Whoever may write to a group can kill, freeze and move what is in it, and netbox runs in the same
//! groups as the shell that it was started from. The mounts that are there are read-only (`mounts`). But in a cgroup
//! namespace of its own the command could mount a hierarchy afresh, writable, with netbox's group at its top
//! (cgroup_namespaces(7)). Three cases:
//!
//! * The group is not this user's: the kernel refuses.
//! * The hierarchy was mounted with `nsdelegate`, as systemd does: the kernel refuses what concerns the top of it.
//! * Else nothing does, and [`protect`] leaves the command no cgroup namespace to make. Sandboxes that insist on one, as
//!   `bwrap --unshare-all` does, fail there; so it is done there alone.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::exit;

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, geteuid};

use crate::error::{At, Failure, Step};
use crate::mount_table::unescape;
use crate::sys;

/// Forbids cgroup namespaces below pid 1's user namespace, where one would lead to a group of this user's.
pub(crate) fn protect() -> Result<(), Failure> {
    let step = Step::ReadOnlyKernelFiles;
    let groups = match fs::read_to_string("/proc/self/cgroup") {
        // A kernel without control groups.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.at(step, "`/proc/self/cgroup`")?,
    };
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").at(step, "`/proc/self/mountinfo`")?;
    if !is_exposed(&groups, &mountinfo, is_own) {
        return Ok(());
    }
    let path = "/proc/sys/user/max_cgroup_namespaces";
    match fs::write(path, "0") {
        // Where `/proc` is not the sandbox's own it may be read-only; and whoever is around may have seen to it already, as a
        // netbox does. A limit holds for every user namespace below.
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem && none_can_be_made().at(step, "fork")? => Ok(()),
        other => other.at(step, &format!("`{path}`")),
    }
}

/// Whether a process of this user namespace can make no cgroup namespace, found by trying in a child.
fn none_can_be_made() -> nix::Result<bool> {
    match sys::fork()? {
        ForkResult::Child => exit(unshare(CloneFlags::CLONE_NEWCGROUP).is_err().into()),
        ForkResult::Parent { child } => Ok(waitpid(child, None)? == WaitStatus::Exited(child, true.into())),
    }
}

/// Whether one of this process's groups could be written through a fresh mount. A group that cannot be seen could be.
fn is_exposed(groups: &str, mountinfo: &str, is_own: impl Fn(&Path) -> bool) -> bool {
    groups.lines().any(|line| match find(line, mountinfo) {
        Some(group) => !group.delegated && is_own(&group.path),
        None => true,
    })
}

struct Group {
    path: PathBuf,
    delegated: bool,
}

/// Where the group of a line of `/proc/PID/cgroup` is mounted (cgroups(7), proc(5)).
fn find(line: &str, mountinfo: &str) -> Option<Group> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = fields.next().zip(fields.next())?;
    mountinfo.lines().find_map(|mount| {
        let (mount, file_system) = mount.split_once(" - ")?;
        let mut file_system = file_system.splitn(3, ' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1)?);
        let options: Vec<&str> = options.split(',').collect();
        let is_it = match controllers {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && controllers.split(',').all(|controller| options.contains(&controller)),
        };
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| is_it)?;
        Some(Group { path: Path::new(&point).join(below), delegated: options.contains(&"nsdelegate") })
    })
}

/// Whether this user may change what is in the directory: as its owner, as root, or because many may.
fn is_own(directory: &Path) -> bool {
    fs::metadata(directory)
        .map_or(true, |found| geteuid().is_root() || found.uid() == geteuid().as_raw() || found.mode() & 0o022 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEMD: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";
    const BARE: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
    const HYBRID: &str = "31 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
                          32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                          33 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";

    #[test]
    fn a_group_of_the_users_own_is_exposed_unless_the_kernel_keeps_its_top() {
        let own = |path: &Path| path == Path::new("/sys/fs/cgroup/user.slice/mine");
        assert!(is_exposed("0::/user.slice/mine\n", BARE, own));
        assert!(!is_exposed("0::/user.slice/mine\n", SYSTEMD, own));
        assert!(!is_exposed("0::/system.slice\n", BARE, own));
    }

    #[test]
    fn each_hierarchy_counts() {
        let groups = "3:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n";
        let only = |path: &'static str| move |found: &Path| found == Path::new(path);
        assert!(is_exposed(groups, HYBRID, only("/sys/fs/cgroup/cpu,cpuacct/a")));
        assert!(is_exposed(groups, HYBRID, only("/sys/fs/cgroup/systemd/b")));
        assert!(!is_exposed(groups, HYBRID, only("/sys/fs/cgroup/unified/c")));
    }

    #[test]
    fn a_group_out_of_sight_is_exposed() {
        assert!(is_exposed("4:freezer:/\n", HYBRID, |_| false));
        let part = "30 23 0:26 /pod/one /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert!(is_exposed("0::/elsewhere\n", part, |_| false));
        assert!(!is_exposed("0::/pod/one/two\n", part, |_| false));
        assert!(is_exposed("0::/pod/one/two\n", part, |path| path == Path::new("/sys/fs/cgroup/two")));
        assert!(!is_exposed("", "", |_| true), "no control groups at all");
    }
}
