//! What was moved or replaced gets its name back, when nobody is left in the sandbox who could stand against it.
//!
//! Whoever did it was prepared: directories are closed, names are taken, room is used up, and what had the name lies deep
//! below what has it now. Other programs of the user's may still be at it. So there is more than one way, and each is looked
//! at afterwards; and where all fail, what has the name is closed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, readlinkat, renameat2};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{fstat, lstat};
use nix::unistd::geteuid;

use super::watch::random;
use super::way::{Kind, Name};
use crate::inode::Inode;

/// Whether the name means what it meant.
pub(super) fn is_in_place(name: &Name) -> bool {
    lstat(&name.path).is_ok_and(|stat| Inode::of(&stat) == name.inode)
}

/// Makes the name mean again what it meant. The value is where the other thing is, if there was one in its place. After an
/// error, what has the name is closed.
pub(super) fn put_back(name: &Name) -> io::Result<Option<PathBuf>> {
    let is_whole = |restored: &Option<PathBuf>| match fstat(&*name.handle)?.st_nlink {
        // It has been made anew.
        0 => Ok(()),
        _ if is_in_place(name) => Ok(()),
        // Somebody was faster, once more.
        _ => Err(io::Error::other(format!("{restored:?} came back"))),
    };
    if is_anothers_place(name) {
        return Err(Errno::EPERM.into());
    }
    // Whoever moved it may have closed the directory.
    let opened = name.path.parent().map_or(Ok(()), open_up);
    if is_in_place(name) {
        return Ok(None);
    }
    let restored = opened.and_then(|()| restore(name)).and_then(|other| is_whole(&other).map(|()| other));
    if restored.is_err() && !is_in_place(name) {
        close(&name.path)?;
    }
    restored
}

/// Root does nothing in a directory that is a user's: that one is nowhere in a sandbox, and may lead it elsewhere meanwhile.
fn is_anothers_place(name: &Name) -> bool {
    let owner = name.path.parent().and_then(|parent| lstat(parent).ok()).map(|stat| stat.st_uid);
    geteuid().is_root() && owner != Some(0)
}

/// While it is held, no other run of this user's puts anything back: each would undo what the other does. Others can bind
/// such a name, so it is not waited for for long.
pub(super) fn take_turns() -> Option<OwnedFd> {
    let name = format!("netbox-restore:{}", geteuid());
    let own = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let address = UnixAddr::new_abstract(name.as_bytes()).ok()?;
    for _ in 0..LONGEST_TURN.as_millis() {
        match bind(own.as_raw_fd(), &address) {
            Ok(()) => return Some(own),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

const LONGEST_TURN: Duration = Duration::from_secs(1);

fn restore(name: &Name) -> io::Result<Option<PathBuf>> {
    let aside = set_aside(&name.path);
    if fstat(&*name.handle)?.st_nlink > 0 {
        return match aside {
            Ok(aside) => bring_back(name).map(|()| aside.clone()).inspect_err(|_| {
                // Something has to be there that can be closed.
                let _ = aside.iter().try_for_each(|aside| fs::rename(aside, &name.path));
            }),
            // Names and room can be used up. For this, neither is needed.
            Err(_) => exchange(name).map(Some),
        };
    }
    let aside = aside?;
    if name.kind == Kind::Link {
        symlink(PathBuf::from(readlinkat(&*name.handle, "").map_err(io::Error::from)?), &name.path)?;
    } else {
        // Only an empty one can be removed: what is in it is read-only.
        DirBuilder::new().mode(name.mode).create(&name.path)?;
    }
    Ok(aside)
}

/// Moves what has this name to another one beside it. The value is that name, if there was something.
fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let aside = free_name(path)?;
    fs::rename(path, &aside)?;
    Ok(Some(aside))
}

/// Has what had the name and what has it now change places. The value is where the other one is then.
fn exchange(name: &Name) -> io::Result<PathBuf> {
    let now = place_of(name)?;
    renameat2(AT_FDCWD, &now, AT_FDCWD, &name.path, RenameFlags::RENAME_EXCHANGE)?;
    Ok(now)
}

/// Later runs fail on what has this name, rather than believe it: a directory that nobody may enter, or else an empty file.
fn close(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => return fs::set_permissions(path, Permissions::from_mode(0o000)),
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    fs::File::create_new(path).map(drop)
}

/// Gives the user a directory of theirs back, where somebody has closed it.
fn open_up(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let mode = metadata.mode() & 0o7777;
    if metadata.is_dir() && metadata.uid() == geteuid().as_raw() && mode & 0o700 != 0o700 {
        fs::set_permissions(directory, Permissions::from_mode(mode | 0o700))?;
    }
    Ok(())
}

/// Moves what had the name back to it, from wherever it is.
fn bring_back(name: &Name) -> io::Result<()> {
    fs::rename(place_of(name)?, &name.path)
}

/// Where it is now, which can be reached.
fn place_of(name: &Name) -> io::Result<PathBuf> {
    let now = fs::read_link(format!("/proc/self/fd/{}", name.handle.as_raw_fd()))?;
    let mut above: Vec<_> = now.ancestors().skip(1).collect();
    above.reverse();
    // Whoever moved it may have closed the directories there.
    above.into_iter().try_for_each(open_up)?;
    if Inode::of(&lstat(&now)?) != name.inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(now)
}

/// A name beside this one that nothing has.
fn free_name(path: &Path) -> io::Result<PathBuf> {
    // Somebody may have taken those that are easily guessed.
    for number in (1..100).chain((0..100).map(|_| random())) {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(format!(".replaced-{number}"));
        match fs::symlink_metadata(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name.into()),
            _ => {}
        }
    }
    Err(Errno::EEXIST.into())
}
