//! A `/dev` of the sandbox's own.
//!
//! Theory of operation. The host's `/dev` leads out in many ways: to the user's other terminals by way of `/dev/pts`, to
//! shared memory of host programs, to whatever devices the user may open. So a new tmpfs covers it, with nothing in it
//! but:
//!
//! * the devices that every program counts on, which lead nowhere ([`USUAL`]): mounts of the host's nodes, since a user
//!   cannot make any;
//! * those that were asked for ([`Device`]);
//! * `pts`, a new instance of devpts, `shm`, a new tmpfs, and `mqueue`, that of the new ipc namespace;
//! * the customary links.
//!
//! The nodes are picked up while the host's `/dev` is still in view ([`pick_up`]), and put down in the new one
//! ([`put_down`]). Then all of it is made read-only, since as real root the command could else change the host's nodes
//! (their mode, their owner) through these mounts; a device is as open for writing as it was. The three file systems
//! follow last, and are writable.
//!
//! A node need not lie in `/dev` to lead to a device: root's `chroot`s and container images are full of them. So those of
//! every other mount lead nowhere.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, major, minor, mkdirat, mknodat, stat};
use nix::unistd::symlinkat;

use crate::error::{At, Failure, Step};
use crate::sys;

const DEV: &str = "/dev";

/// Devices that lead nowhere, with their numbers in Linux's `devices.txt`. The last one is the terminal that the process
/// has, if it has one.
const USUAL: [(&str, u64, u64); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// A file system of the sandbox's own below `/dev`.
struct Own {
    name: &'static str,
    kind: &'static str,
    flags: MsFlags,
    options: Option<&'static str>,
}

const OWN: [Own; 3] = [
    Own {
        name: "pts",
        kind: "devpts",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC),
        options: Some("newinstance,ptmxmode=0666,mode=620"),
    },
    // Programs map code from here, so without MS_NOEXEC, as on the host.
    Own { name: "shm", kind: "tmpfs", flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV), options: Some("mode=1777") },
    Own {
        name: "mqueue",
        kind: "mqueue",
        flags: MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC),
        options: None,
    },
];

/// A device of the host, or a directory of them, that the command is to have.
#[derive(Clone, Debug)]
pub struct Device {
    /// Below `/dev`, without `.` and `..`, and relative to it.
    place: PathBuf,
    device: u64,
    inode: u64,
    /// Whether it is a block device.
    is_block: bool,
}

/// Why a path is no [`Device`].
#[derive(Debug, thiserror::Error)]
pub enum NoDevice {
    /// It is not an absolute path below `/dev`, or leads elsewhere.
    #[error("it does not lie below `/dev`")]
    Elsewhere,
    /// The sandbox has its own.
    #[error("the sandbox has a `/dev/{0}` of its own, and that of the host would lead out of it")]
    Own(String),
    /// It is something else.
    #[error("it is neither a device nor a directory")]
    Another,
    /// It is not there, or not to be reached by this user.
    #[error(transparent)]
    Missing(#[from] io::Error),
}

impl Device {
    /// The device that has this path now.
    ///
    /// # Errors
    /// Why it is none that a sandbox can have.
    pub fn find(path: &Path) -> Result<Self, NoDevice> {
        let place = below_dev(path).ok_or(NoDevice::Elsewhere)?;
        // It may be a link, as those in `/dev/disk`; but then to another device.
        let target = fs::canonicalize(path)?;
        for place in [Some(place.as_path()), below_dev(&target).as_deref()] {
            let first = place.and_then(|place| place.iter().next()).ok_or(NoDevice::Elsewhere)?;
            let own = OWN.iter().map(|own| own.name).chain(LINKS.iter().map(|(name, _)| *name));
            let usual = USUAL.iter().map(|(name, ..)| *name);
            if own.chain(usual).any(|name| first == name) {
                return Err(NoDevice::Own(first.to_string_lossy().into_owned()));
            }
        }
        let stat = stat(path).map_err(io::Error::from)?;
        let kind = kind(&stat);
        if ![SFlag::S_IFCHR, SFlag::S_IFBLK, SFlag::S_IFDIR].contains(&kind) {
            return Err(NoDevice::Another);
        }
        Ok(Self { place, device: stat.st_dev, inode: stat.st_ino, is_block: kind == SFlag::S_IFBLK })
    }

    /// Whether it is a disk or its like.
    pub fn is_block(&self) -> bool {
        self.is_block
    }
}

/// The part of an absolute path that follows `/dev/`.
fn below_dev(path: &Path) -> Option<PathBuf> {
    let place = path.strip_prefix(DEV).ok()?;
    let is_plain = place.components().all(|part| matches!(part, Component::Normal(_)));
    // Made of its components, so that `//` and `/./` are gone.
    (is_plain && place.components().next().is_some()).then(|| place.components().collect())
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Puts the new `/dev` over the old one.
pub(crate) fn put(asked_for: &[Device]) -> Result<(), Failure> {
    let step = Step::Devices;
    let picked = pick_up(asked_for)?;
    sys::mount::forbid_devices_below(Path::new("/")).at(step, "the nodes that lie elsewhere")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), DEV, Some("tmpfs"), flags, Some("mode=755,size=256k")).at(step, "a tmpfs")?;
    let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dev = open(DEV, directory, Mode::empty()).at(step, "`/dev`")?;
    for picked in &picked {
        put_down(picked, dev.as_fd()).at(step, &what(&picked.place))?;
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name).at(step, &what(Path::new(name)))?;
    }
    for own in &OWN {
        mkdirat(&dev, own.name, Mode::from_bits_truncate(0o755)).at(step, &what(Path::new(own.name)))?;
    }
    sys::mount::make_read_only_below(Path::new(DEV)).at(step, "`/dev`, read-only")?;
    for own in &OWN {
        let point = Path::new(DEV).join(own.name);
        match mount(Some(own.kind), &point, Some(own.kind), own.flags, own.options) {
            // The kernel was built without. The host then has none either.
            Err(Errno::ENODEV) => {}
            other => other.at(step, &what(Path::new(own.name)))?,
        }
    }
    Ok(())
}

fn what(place: &Path) -> String {
    format!("`{}`", Path::new(DEV).join(place).display())
}

/// A mount that is about to have its place in the new `/dev`.
struct Picked {
    place: PathBuf,
    tree: OwnedFd,
    is_directory: bool,
}

/// The usual devices that are there, and all that were asked for.
fn pick_up(asked_for: &[Device]) -> Result<Vec<Picked>, Failure> {
    let step = Step::Devices;
    let mut picked = Vec::new();
    for (name, major_number, minor_number) in USUAL {
        let tree = match sys::mount::clone_tree(&Path::new(DEV).join(name)) {
            // As in some containers.
            Err(Errno::ENOENT) => continue,
            other => other.at(step, &what(Path::new(name)))?,
        };
        let stat = fstat(&tree).at(step, &what(Path::new(name)))?;
        if kind(&stat) == SFlag::S_IFCHR && (major(stat.st_rdev), minor(stat.st_rdev)) == (major_number, minor_number) {
            picked.push(Picked { place: name.into(), tree, is_directory: false });
        }
    }
    for device in asked_for {
        let tree = sys::mount::clone_tree(&Path::new(DEV).join(&device.place)).at(step, &what(&device.place))?;
        let stat = fstat(&tree).at(step, &what(&device.place))?;
        if (stat.st_dev, stat.st_ino) != (device.device, device.inode) {
            return Err(Failure::outcome(step, format!("{} is another one now", what(&device.place))));
        }
        picked.push(Picked { place: device.place.clone(), tree, is_directory: kind(&stat) == SFlag::S_IFDIR });
    }
    Ok(picked)
}

/// Mounts it in the new `/dev`.
fn put_down(picked: &Picked, dev: BorrowedFd) -> nix::Result<()> {
    let mut above: Vec<&Path> = picked.place.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
    above.reverse();
    for directory in above.into_iter().chain(picked.is_directory.then_some(picked.place.as_path())) {
        match mkdirat(dev, directory, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    if !picked.is_directory {
        match mknodat(dev, &picked.place, SFlag::S_IFREG, Mode::from_bits_truncate(0o444), 0) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    sys::mount::attach(&picked.tree, dev, &picked.place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_lies_below_dev() {
        assert_eq!(below_dev(Path::new("/dev/net/tun")), Some("net/tun".into()));
        assert_eq!(below_dev(Path::new("/dev//net/./tun")).as_deref(), Some(Path::new("net/tun")));
        for elsewhere in ["/dev", "/dev/", "/dev/../etc/passwd", "dev/kvm", "/devices/kvm", "/", ""] {
            assert_eq!(below_dev(Path::new(elsewhere)), None, "{elsewhere}");
        }
    }

    #[test]
    fn what_the_sandbox_has_of_its_own_is_not_to_be_had_from_the_host() {
        for own in ["/dev/pts", "/dev/shm", "/dev/ptmx", "/dev/null", "/dev/stdin"] {
            assert!(matches!(Device::find(Path::new(own)), Err(NoDevice::Own(_))), "{own}");
        }
    }

    #[test]
    fn what_is_no_device_is_told_from_what_is_missing() {
        assert!(matches!(Device::find(Path::new("/etc/passwd")), Err(NoDevice::Elsewhere)));
        assert!(matches!(Device::find(Path::new("/dev/no-such-device")), Err(NoDevice::Missing(_))));
    }
}
