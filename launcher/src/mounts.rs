//! What the sandbox sees of the file system where the network is concerned.
//!
//! Netbox leaves files alone: that is the work of bwrap and Seatbelt. It changes what decides how names are looked up,
//! and what the kernel shows and takes through file systems of its own:
//!
//! 1. [`make_private`]: nothing mounted here shows outside, nothing mounted outside later shows here.
//! 2. [`put_resolver_files`]: `/etc/resolv.conf`, `/etc/hosts`, `/etc/nsswitch.conf` that lead to netbox alone, and
//!    masks over the sockets of well-known services of the host. The supervisor is the wall (`supervisor`); a mask before it makes
//!    programs see nothing there at all.
//! 3. [`protect_kernel_files`]: `/sys` read-only, and so a `/proc` that is not the sandbox's own (`proc_mount`); for root
//!    also `/proc/sys` and its like.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::error::{At, Failure, Step};
use crate::mount_table::Mount;
use crate::resolver_files;
use crate::supervisor::AllowedSocket;
use crate::sys;

/// A directory that exists everywhere and is about to be covered anyway. The new files are made in a tmpfs mounted
/// here for a moment; no directory of the user's is needed for it.
const STAGING: &str = "/proc";

/// Services of the host that would look names up, open connections or start programs for the sandbox.
const MASKED: [&str; 19] = [
    "/run/nscd",
    "/var/run/nscd",
    "/run/avahi-daemon/socket",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
    "/run/systemd/userdb",
    "/run/systemd/io.systemd.Hostname",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/libvirt",
    "/run/acpid.socket",
    "/run/cups/cups.sock",
    "/run/pcscd/pcscd.comm",
];

/// The same for the user's own runtime directory, `/run/user/UID`.
const MASKED_OF_USER: [&str; 8] = ["bus", "systemd", "docker.sock", "podman", "gnupg", "keyring", "pulse", "at-spi"];

/// Cuts mount propagation in both directions.
pub(crate) fn make_private() -> Result<(), Failure> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .at(Step::PrivateMounts, "`/`")
}

/// Puts the sandbox's resolver files over the host's, and masks over its services and over the files in `hidden`.
pub(crate) fn put_resolver_files(
    hidden: &[PathBuf],
    allowed: &[AllowedSocket],
    table: &[Mount],
) -> Result<(), Failure> {
    let step = Step::ResolverFiles;
    let files = resolver_files::compose()?;
    let masks = masks(allowed, table);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), STAGING, Some("tmpfs"), flags, Some("size=1m,mode=755")).at(step, "a tmpfs")?;
    let staging = Path::new(STAGING);
    let empty_directory = staging.join("empty-directory");
    let empty_file = staging.join("empty-file");
    fs::create_dir(&empty_directory)
        .and_then(|()| fs::set_permissions(&empty_directory, Permissions::from_mode(0o755)))
        .at(step, "an empty directory")?;
    write(&empty_file, "").at(step, "an empty file")?;
    for (name, target, text) in &files {
        let source = staging.join(name);
        write(&source, text).at(step, &format!("`{}`", target.display()))?;
        bind(&source, target).at(step, &format!("`{}`", target.display()))?;
    }
    for (target, directory) in &masks {
        let source = if *directory { &empty_directory } else { &empty_file };
        match bind(source, target) {
            // A directory that this user may not enter is closed to the command too.
            Err(Errno::EACCES | Errno::ENOENT) => {}
            other => other.at(step, &format!("a mask over `{}`", target.display()))?,
        }
    }
    for target in hidden {
        bind(&empty_file, target).at(step, &format!("a mask over `{}`", target.display()))?;
    }
    // The command has the owner's uid: without this it could write its own resolv.conf. That would open nothing, but
    // it would break every name for the programs beside it.
    mount(None::<&str>, STAGING, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | flags, Some("size=1m"))
        .at(step, "the tmpfs, read-only")?;
    umount2(STAGING, MntFlags::MNT_DETACH).at(step, "the tmpfs")
}

/// Writes a file that everyone may read, whatever the caller's umask: root's command may become another user.
fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// The masked paths that exist here, without links, and whether each is a directory. Not those that lead to a socket which
/// is allowed: what lies beside it is still out of reach.
fn masks(allowed: &[AllowedSocket], table: &[Mount]) -> BTreeSet<(PathBuf, bool)> {
    let user = Path::new("/run/user").join(nix::unistd::geteuid().to_string());
    let of_user = MASKED_OF_USER.iter().map(|name| user.join(name));
    let services = MASKED.iter().map(PathBuf::from).chain(of_user).filter_map(|path| {
        let path = fs::canonicalize(path).ok()?;
        let kind = fs::metadata(&path).ok()?.file_type();
        let is_wanted = allowed.iter().any(|socket| socket.path().starts_with(&path));
        (!is_wanted && (kind.is_dir() || kind.is_socket())).then_some((path, kind.is_dir()))
    });
    let others = kernel_file_systems(table);
    services.chain(others.into_iter().map(|path| (path, true))).collect()
}

/// Where the kernel's own file systems are mounted besides `/proc` and `/sys`, as in a chroot that lies on this machine.
/// There the host's processes and settings would be in view.
fn kernel_file_systems(table: &[Mount]) -> Vec<PathBuf> {
    const KINDS: [&str; 9] =
        ["proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf"];
    let found = table.iter().filter(|mount| {
        let is_covered = mount.point.starts_with("/proc") || mount.point.starts_with("/sys");
        KINDS.contains(&mount.kind.as_str()) && !is_covered
    });
    found.map(|mount| mount.point.clone()).collect()
}

fn bind(source: &Path, target: &Path) -> nix::Result<()> {
    mount(Some(source), target, None::<&OsStr>, MsFlags::MS_BIND, None::<&OsStr>)
}

/// Makes the kernel's own files read-only.
///
/// `/sys` for everyone: a user may own control groups there, and leave the run through them. `/proc/sys` and the rest
/// for root alone, whose uid 0 is the host's: writing `core_pattern` would run a program outside, with no capability
/// needed. For a user they stay as they are, since a masked `/proc` could not be mounted afresh by a sandbox inside.
pub(crate) fn protect_kernel_files(root: bool, proc_is_fresh: bool) -> Result<(), Failure> {
    const OF_ROOT: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
    let foreign = (!proc_is_fresh).then_some("/proc");
    let paths = std::iter::once("/sys").chain(foreign).chain(OF_ROOT.into_iter().filter(|_| root));
    for path in paths {
        let what = format!("`{path}`");
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        match mount(Some(path), path, None::<&str>, flags, None::<&str>) {
            Err(Errno::ENOENT) => continue,
            other => other.at(Step::ReadOnlyKernelFiles, &what)?,
        }
        sys::mount::make_read_only_below(Path::new(path)).at(Step::ReadOnlyKernelFiles, &what)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table;

    #[test]
    fn file_systems_of_the_kernel_elsewhere_are_found() {
        let mountinfo = "21 1 0:20 / /proc rw - proc proc rw\n\
                         22 1 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
                         23 22 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                         24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                         25 1 0:20 / /srv/my\\040root/proc rw - proc proc rw\n\
                         26 1 0:30 / /proc2 rw - tmpfs none rw\n";
        assert_eq!(kernel_file_systems(&mount_table::parse(mountinfo)), [PathBuf::from("/srv/my root/proc")]);
    }
}
