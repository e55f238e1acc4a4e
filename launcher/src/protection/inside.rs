//! Pid 1's part: the mounts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, lstat};

use super::Protected;
use super::way::{Kind, Name, Way};
use crate::error::{At, Failure, Step};
use crate::inode::Inode;
use crate::mount_table::{self, Mount};
use crate::sys::mount::make_read_only_below;

/// Holds all of it, and the names that lead to each of `hidden`, which will be covered by a mask. The value is what is
/// mounted then.
///
/// # Errors
/// A mount fails, or something is no longer what it was when netbox looked.
pub(crate) fn hold(protected: &[Protected], hidden: &[PathBuf]) -> Result<Vec<Mount>, Failure> {
    let step = Step::Protection;
    let mut above_hidden = Vec::new();
    for path in hidden {
        let mut names = Way::follow(path).at(step, &shown(path))?.names;
        names.pop();
        above_hidden.extend(names.into_iter().filter(|name| name.is_movable));
    }
    let all = protected.iter().flat_map(|protected| &protected.pins).chain(&above_hidden);
    // In the order of paths: what is inside is looked up on the mount outside.
    let pins: BTreeMap<&Path, &Name> = all.map(|name| (name.path.as_path(), name)).collect();
    for name in pins.values() {
        pin(name).at(step, &shown(&name.path))?;
    }
    let ends = protected.iter().filter(|protected| protected.is_read_only).filter_map(|one| one.pins.last());
    let ends: BTreeMap<&Path, &Name> = ends.map(|name| (name.path.as_path(), name)).collect();
    for path in ends.keys() {
        make_read_only_below(path).at(step, &shown(path))?;
    }
    for name in pins.values() {
        if Inode::of(&lstat(&name.path).at(step, &shown(&name.path))?) != name.inode {
            return Err(Failure::outcome(step, format!("{} was replaced meanwhile", shown(&name.path))));
        }
    }
    let table = fs::read_to_string("/proc/self/mountinfo").at(step, "`/proc/self/mountinfo`")?;
    let table = mount_table::parse(&table);
    for end in ends.values() {
        for place in elsewhere(&table, &end.path) {
            hold_elsewhere(&place, end).at(step, &shown(&place))?;
        }
        for place in parts_elsewhere(&table, &end.path) {
            // Where it is out of sight there is nothing to hold.
            if lstat(&place).is_ok() {
                bind(&place).and_then(|()| make_read_only_below(&place)).at(step, &shown(&place))?;
            }
        }
    }
    Ok(table)
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// Makes a name a mount point, of what has it.
fn pin(name: &Name) -> nix::Result<()> {
    match name.kind {
        Kind::Directory => bind(&name.path),
        Kind::File => bind(&name.path),
        // By handle: a path would be followed.
        Kind::Link => {
            let link = open(&name.path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
            bind(Path::new(&format!("/proc/self/fd/{}", link.as_raw_fd())))
        }
    }
}

fn bind(path: &Path) -> nix::Result<()> {
    mount(Some(path), path, None::<&OsStr>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&OsStr>)
}

/// The same at another place where it is mounted.
fn hold_elsewhere(place: &Path, what: &Name) -> nix::Result<()> {
    match lstat(place) {
        // Covered by another mount, or closed to this user and so to the command.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => return Ok(()),
        Ok(stat) if Inode::of(&stat) != what.inode => return Ok(()),
        other => other?,
    };
    bind(place)?;
    make_read_only_below(place)
}

/// Where the file at `path`, which is a mount of its own, can be found besides: its file system may be mounted at many
/// places, as a whole or in part, and a read-only mount is about one of them.
fn elsewhere(table: &[Mount], path: &Path) -> BTreeSet<PathBuf> {
    let Some(own) = table.iter().rev().find(|mount| mount.point == path) else { return BTreeSet::new() };
    let same = table.iter().filter(|mount| mount.device == own.device);
    let places = same.filter_map(|mount| {
        let below = own.root.strip_prefix(&mount.root).ok()?;
        Some(if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
    });
    places.filter(|place| place != path).collect()
}

/// Where parts of the directory at `path` are mounted by themselves.
fn parts_elsewhere(table: &[Mount], path: &Path) -> BTreeSet<PathBuf> {
    let Some(own) = table.iter().rev().find(|mount| mount.point == path) else { return BTreeSet::new() };
    let same = table.iter().filter(|mount| mount.device == own.device);
    let parts = same.filter(|mount| mount.root != own.root && mount.root.starts_with(&own.root));
    parts.map(|mount| mount.point.clone()).filter(|point| !point.starts_with(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_mounted_twice_shows_a_directory_at_two_places() {
        let table = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     22 21 8:2 /@home /home rw - btrfs /dev/sda2 rw\n\
                     23 21 8:2 / /mnt/whole rw - btrfs /dev/sda2 rw\n\
                     24 21 8:2 /@home/a/.config /srv/shared rw - btrfs /dev/sda2 rw\n\
                     25 21 8:3 / /other rw - ext4 /dev/sda3 rw\n\
                     26 22 8:2 /@home/a/.config /home/a/.config rw - btrfs /dev/sda2 rw\n\
                     27 26 8:2 /@home/a/.config/netbox /home/a/.config/netbox ro - btrfs /dev/sda2 rw\n\
                     28 27 8:2 /@home/a/.config/netbox/d /home/a/.config/netbox/d ro - btrfs /dev/sda2 rw\n\
                     29 21 8:2 /@home/a/.config/netbox/d /part rw - btrfs /dev/sda2 rw\n";
        let (table, path) = (mount_table::parse(table), Path::new("/home/a/.config/netbox"));
        let places = elsewhere(&table, path);
        let expected = ["/mnt/whole/@home/a/.config/netbox", "/srv/shared/netbox"].map(PathBuf::from);
        assert_eq!(places, expected.into());
        assert_eq!(parts_elsewhere(&table, path), [PathBuf::from("/part")].into());
        assert!(elsewhere(&table, Path::new("/nowhere")).is_empty());
    }
}
