//! Automount points: places at which a look makes a program of the host mount something.
//!
//! Theory of operation. Under `/net`, say, the name of a machine is enough for the host's automounter to look it up and to
//! connect to it (autofs(5)): a query that no policy has judged. So an empty directory covers each such point. What is
//! mounted below it already, a home directory perhaps, comes back at its place; what is not yet mounted cannot be from
//! inside. A point on which something is mounted is none any more.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use crate::error::{At, Failure, Step};
use crate::mount_table::Mount;
use crate::sys::mount::{attach, clone_tree};

/// Covers every one of them.
pub(crate) fn cover(table: &[Mount]) -> Result<(), Failure> {
    let step = Step::Automounts;
    for point in points(table) {
        let what = format!("`{}`", point.display());
        let mut kept = Vec::new();
        for place in below(table, point) {
            match clone_tree(place) {
                Ok(tree) => kept.push((place.strip_prefix(point).unwrap_or(place), tree)),
                // Covered by something else, or closed to this user.
                Err(Errno::ENOENT | Errno::EACCES) => {}
                Err(errno) => return Err(Failure::new(step, errno, what)),
            }
        }
        cover_one(point, &kept).at(step, &what)?;
    }
    Ok(())
}

fn cover_one(point: &Path, kept: &[(&Path, OwnedFd)]) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // To open it as a handle is no look (open(2), O_PATH); to mount by its name would be one.
    let handle = open(point, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let target = format!("/proc/self/fd/{}", handle.as_raw_fd());
    mount(Some("tmpfs"), target.as_str(), Some("tmpfs"), flags, Some("size=1m,mode=755"))?;
    let cover = open(point, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    for (name, tree) in kept {
        // A mount of a single file is not what automounters do.
        fs::create_dir_all(point.join(name))
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        attach(tree, &cover, name)?;
    }
    // The cover, and not what came back.
    mount(
        None::<&str>,
        point,
        None::<&str>,
        flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY,
        None::<&str>,
    )
}

/// The points that are not covered, from the outermost in.
fn points(table: &[Mount]) -> Vec<&Path> {
    let is_covered = |at: usize, point: &Path| table[at + 1..].iter().any(|later| later.point == point);
    let points = table.iter().enumerate().filter(|(at, mount)| {
        // Those of `/proc` are covered with it.
        mount.kind == "autofs" && !mount.point.starts_with("/proc") && !is_covered(*at, &mount.point)
    });
    let mut points: Vec<&Path> = points.map(|(_, mount)| mount.point.as_path()).collect();
    points.sort();
    points
}

/// What is mounted below a point, each with all that is below it in turn.
fn below<'a>(table: &'a [Mount], point: &Path) -> Vec<&'a Path> {
    let mut places: Vec<&PathBuf> =
        table.iter().map(|mount| &mount.point).filter(|place| *place != point && place.starts_with(point)).collect();
    places.sort();
    let mut outermost: Vec<&Path> = Vec::new();
    for place in places {
        if !outermost.last().is_some_and(|above| place.starts_with(above)) {
            outermost.push(place);
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table;

    #[test]
    fn open_points_are_found_with_what_is_mounted_below() {
        let table = mount_table::parse(
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
             2 1 0:5 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
             3 1 0:6 / /net rw - autofs -hosts rw\n\
             4 1 0:7 / /home rw - autofs auto.home rw\n\
             5 4 0:8 / /home/a rw - nfs4 server:/a rw\n\
             6 5 0:9 / /home/a/b rw - tmpfs none rw\n\
             7 4 0:8 / /home/c rw - nfs4 server:/c rw\n\
             8 1 0:10 / /efi rw - autofs systemd-1 rw\n\
             9 8 8:2 / /efi rw - vfat /dev/sda2 rw\n",
        );
        assert_eq!(points(&table), [Path::new("/home"), Path::new("/net")]);
        assert_eq!(below(&table, Path::new("/home")), [Path::new("/home/a"), Path::new("/home/c")]);
        assert!(below(&table, Path::new("/net")).is_empty());
    }

    /// Not every kernel has automount points to show it with.
    #[test]
    fn a_point_that_cannot_be_covered_is_a_failure() {
        let table = mount_table::parse("3 1 0:6 / /no/such/point rw - autofs -hosts rw\n");
        let failure = cover(&table).unwrap_err();
        assert_eq!((failure.step, failure.errno), (Step::Automounts, libc::ENOENT));
        assert_eq!(failure.detail, "`/no/such/point`");
    }
}
