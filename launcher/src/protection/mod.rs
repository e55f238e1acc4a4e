//! What decides later runs: read-only for the command, and where it is.
//!
//! # Theory of operation
//!
//! The policy files, what is trusted, and netbox itself belong to the user, and so the command could write them. A
//! read-only mount over a directory holds what lies below it, and not its name: the directory can be renamed, or one
//! above it, and another one put in its place. So every name on the way that the user could change ([`way`]) becomes a
//! mount point as well, by a bind of the directory on itself ([`inside`]): the kernel does not rename or remove what is a
//! mount point in the namespace of the caller (EBUSY). Symbolic links on the way are names like all others. Nor can these
//! mounts be taken off one by one: in a mount namespace of the command's own they are locked together
//! (mount_namespaces(7)).
//!
//! All together they can: a program changes the root of a namespace of its own, unmounts the old one, and is where these
//! mounts are not. Through a directory that it has kept open it can then rename what is in there, if not change what lies
//! below the read-only mount, which stays where it was in the tree. Sandboxes that programs bring along do the same, so it
//! cannot be forbidden. Therefore netbox also watches the directories and links ([`watch`]): if one is moved all the same,
//! the run ends, and it is put back ([`restore`]). Between the two, for as long as it takes to kill the sandbox, a run that
//! starts would find something else: so every run tells the others what it has found ([`claims`]), and none starts that has
//! found another thing. A file is not watched, nor is netbox itself: that it is replaced by its user is nothing unusual. It is
//! looked at when the run ends.
//!
//! What that costs: between two mounts nothing is renamed or hard-linked (EXDEV). Programs that move files copy them
//! instead; so there are only the mounts that must be, and what is protected by its content alone, as a project's file
//! is, has no mounts above.

mod claims;
mod inside;
mod restore;
mod watch;
mod way;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;

use crate::inode::Inode;
pub(crate) use inside::hold;
pub use watch::Replaced;
pub(crate) use watch::Watch;
use way::{Kind, Name, Way, is_changeable};

/// A file or directory that decides later runs.
#[derive(Clone, Debug)]
pub struct Protected {
    /// Names that become mount points, from the outermost in.
    pins: Vec<Name>,
    /// What is read-only: the last of the pins.
    is_read_only: bool,
}

impl Protected {
    /// What has this path now, absolute; it stays there.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn in_place(path: &Path) -> io::Result<Self> {
        let way = Way::follow(path)?;
        let Some(end) = way.end else { return Ok(Self::of_place(way.names)) };
        Err(end.into())
    }

    /// What has this path now, absolute. It may be moved away with a directory above it: it is known by its content.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn by_content(path: &Path) -> io::Result<Self> {
        let mut protected = Self::in_place(path)?;
        if protected.is_read_only {
            protected.pins.drain(..protected.pins.len() - 1);
        } else {
            protected.pins.clear();
        }
        Ok(protected)
    }

    /// The directory with this path, absolute. It is made where it is missing, and so are those above it, with these
    /// permissions: else the command could make it. Where the command could not make it either, there is none, and what
    /// is on the way there stays as it is.
    ///
    /// # Errors
    /// It cannot be made, and still the command might be able to.
    pub fn directory(path: &Path, mode: u32) -> io::Result<Self> {
        let way = Way::follow(path)?;
        if way.end.is_none() {
            return Ok(Self::of_place(way.names));
        }
        let above = way.names.last().filter(|name| name.kind == Kind::Directory);
        // Root makes nothing in what is a user's: HOME may be another one's.
        let is_another_ones = nix::unistd::geteuid().is_root() && above.is_some_and(|above| above.owner != 0);
        let made = if is_another_ones {
            Err(Errno::EPERM.into())
        } else {
            DirBuilder::new().recursive(true).mode(mode).create(path)
        };
        let way = Way::follow(path)?;
        let (Some(_), Err(error)) = (way.end, made) else { return Ok(Self::of_place(way.names)) };
        let is_open = match way.names.last() {
            // A file in the way is held like everything that has a name.
            Some(last) => last.kind == Kind::Directory && is_changeable(&last.path, last.owner),
            None => is_changeable(Path::new("/"), 0),
        };
        if is_open && !is_another_ones {
            return Err(error);
        }
        let pins = way.names.into_iter().filter(|name| name.is_movable).collect();
        Ok(Self { pins, is_read_only: false })
    }

    /// Whether it is a file that has another name (a hard link), under which it is not protected.
    pub fn has_other_names(&self) -> bool {
        self.is_read_only && self.pins.last().is_some_and(|name| name.kind == Kind::File && name.links > 1)
    }

    /// Whether an open file is this one, or lies in this directory.
    pub(crate) fn holds(&self, fd: BorrowedFd, inode: Inode) -> bool {
        let Some(end) = self.pins.last().filter(|_| self.is_read_only) else { return false };
        let is_below =
            || fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).is_ok_and(|path| path.starts_with(&end.path));
        end.inode == inode || (end.kind == Kind::Directory && is_below())
    }

    /// All that the way leads through, and its end read-only, unless nobody could change it anyway.
    fn of_place(names: Vec<Name>) -> Self {
        let is_read_only =
            names.last().is_some_and(|last| last.kind == Kind::Directory || is_changeable(&last.path, last.owner));
        let last = names.len().saturating_sub(1);
        let is_pin = |(at, name): &(usize, Name)| name.is_movable || (is_read_only && *at == last);
        let pins = names.into_iter().enumerate().filter(is_pin).map(|(_, name)| name).collect();
        Self { pins, is_read_only }
    }
}

#[cfg(test)]
mod tests;
