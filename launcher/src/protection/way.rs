//! The names that lead to a file, one by one, as the kernel would follow them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat, lstat};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use crate::inode::{Inode, kind};

/// The kernel follows no more links than that (path_resolution(7)).
const MAX_LINKS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Link,
    File,
}

/// A name, and what has it.
#[derive(Clone, Debug)]
pub(super) struct Name {
    /// Absolute; nothing before the last component is a link.
    pub(super) path: PathBuf,
    pub(super) inode: Inode,
    pub(super) kind: Kind,
    pub(super) owner: u32,
    /// Its permissions.
    pub(super) mode: u32,
    /// How many names the file has.
    pub(super) links: libc::nlink_t,
    /// Whether this user could put something else in its place.
    pub(super) is_movable: bool,
    /// Keeps the inode's number its own, and knows where it is.
    pub(super) handle: Arc<OwnedFd>,
}

impl Name {
    fn of(place: &Place, name: &OsStr) -> nix::Result<Self> {
        let path = place.path.join(name);
        let handle = open(&path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
        let stat = fstat(&handle)?;
        let kind = match kind(&stat) {
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFLNK => Kind::Link,
            _ => Kind::File,
        };
        let (inode, owner, mode, links) = (Inode::of(&stat), stat.st_uid, stat.st_mode & 0o7777, stat.st_nlink);
        let is_movable = place.is_changeable && !place.protects(owner);
        Ok(Self { path, inode, kind, owner, mode, links, is_movable, handle: Arc::new(handle) })
    }
}

/// A directory on the way, as far as it decides about the names in it.
struct Place {
    path: PathBuf,
    owner: u32,
    mode: u32,
    is_changeable: bool,
}

impl Place {
    fn at(path: PathBuf) -> nix::Result<Self> {
        let stat = lstat(&path)?;
        Ok(Self { is_changeable: is_changeable(&path, stat.st_uid), owner: stat.st_uid, mode: stat.st_mode, path })
    }

    fn of(name: &Name) -> Self {
        let is_changeable = is_changeable(&name.path, name.owner);
        Self { path: name.path.clone(), owner: name.owner, mode: name.mode, is_changeable }
    }

    /// Whether what belongs to `owner` stays here whoever may write: in a sticky directory nobody but its owner and that
    /// of the file renames or removes it (inode(7)).
    fn protects(&self, owner: u32) -> bool {
        let own = geteuid().as_raw();
        self.mode & libc::S_ISVTX != 0 && own != 0 && self.owner != own && owner != own
    }
}

/// The way that a path means.
#[derive(Debug)]
pub(super) struct Way {
    /// From the root's entry on. Each name comes once.
    pub(super) names: Vec<Name>,
    /// Why it ends before the path does.
    pub(super) end: Option<Errno>,
}

impl Way {
    /// Follows an absolute path.
    ///
    /// # Errors
    /// It is not absolute, leads through too many links, or a file system failed.
    pub(super) fn follow(path: &Path) -> io::Result<Self> {
        if !path.is_absolute() {
            return Err(Errno::EINVAL.into());
        }
        let mut way = Way { names: Vec::new(), end: None };
        let mut ahead = components(path);
        let mut place = Place::at("/".into())?;
        let mut links = 0;
        while let Some(component) = ahead.pop_front() {
            if component == OsStr::new("..") {
                let above = place.path.parent().unwrap_or(&place.path).to_owned();
                place = Place::at(above)?;
                continue;
            }
            let name = match Name::of(&place, &component) {
                Ok(found) => found,
                Err(errno @ (Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES)) => {
                    way.end = Some(errno);
                    break;
                }
                Err(errno) => return Err(errno.into()),
            };
            match name.kind {
                Kind::Directory => place = Place::of(&name),
                Kind::Link => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::ELOOP.into());
                    }
                    let target = PathBuf::from(readlinkat(&*name.handle, "")?);
                    if target.is_absolute() {
                        place = Place::at("/".into())?;
                    }
                    for component in components(&target).into_iter().rev() {
                        ahead.push_front(component);
                    }
                }
                Kind::File => way.end = (!ahead.is_empty()).then_some(Errno::ENOTDIR),
            }
            if !way.names.iter().any(|known| known.path == name.path) {
                way.names.push(name);
            }
            if way.end.is_some() {
                break;
            }
        }
        Ok(way)
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// Whether this user can change the entries of a directory, or a file: now, or after giving themselves the permission.
pub(super) fn is_changeable(path: &Path, owner: u32) -> bool {
    match faccessat(AT_FDCWD, path, AccessFlags::W_OK, AtFlags::AT_EACCESS) {
        Ok(()) => true,
        Err(Errno::EROFS) => false,
        Err(_) => geteuid().as_raw() == owner,
    }
}
