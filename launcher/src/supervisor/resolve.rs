//! The file that a path means to a process inside, opened outside as a path handle (O_PATH).
//!
//! That the right file is found is a matter of compatibility alone: whatever is found is what is judged, and what is
//! connected to. `..` and symbolic links are resolved by the kernel within the root of the process
//! (openat2(2), RESOLVE_IN_ROOT).

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open as open_path, openat, openat2, readlink};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::Pid;

use super::connect::act_as;
use crate::inode::Inode;
use crate::sys::credentials::User;

const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// How often a resolution is tried that the kernel gives up because something was renamed meanwhile.
const ATTEMPTS: usize = 8;

/// Names of a process for itself, which mean another one to us, and what follows them there.
const OWN: [(&[u8], &str); 3] = [(b"/proc/self", ""), (b"/proc/thread-self", ""), (b"/dev/fd", "fd")];

/// Whether the kernel resolves paths for somebody (Linux 5.6): an error number, else.
pub(super) fn is_available() -> nix::Result<()> {
    let root = open_path("/", HANDLE | OFlag::O_DIRECTORY, Mode::empty())?;
    resolve(&root, b".", ResolveFlag::RESOLVE_IN_ROOT).map(drop)
}

/// Opens it, with the rights of `user`, if the process has other ones than netbox. Errors are those that the process would
/// see.
pub(super) fn open(thread: Pid, path: &[u8], user: Option<&User>) -> nix::Result<OwnedFd> {
    let process = PathBuf::from(format!("/proc/{thread}"));
    if let Some(own) = rewrite(&process, path) {
        // Its own descriptors it may open, as it could use them. Further on it would be netbox who opens.
        let is_descriptor = own.parent().is_some_and(|folder| folder == process.join("fd"));
        return if user.is_none() || is_descriptor {
            open_path(&own, HANDLE, Mode::empty())
        } else {
            Err(Errno::EACCES)
        };
    }
    if path.first() == Some(&b'/') {
        let root = handle(&process, "root")?;
        return act_as(user, || below(&root, path));
    }
    let folder = handle(&process, "cwd")?;
    match act_as(user, || resolve(&folder, path, ResolveFlag::RESOLVE_NO_SYMLINKS)) {
        Err(Errno::ELOOP) => {}
        other => return other,
    }
    // A symbolic link may be absolute, and then it matters where the root is: say the folder's name from there.
    let root = handle(&process, "root")?;
    let mut absolute = readlink(&process.join("cwd"))?.into_vec();
    let is_same = below(&root, &absolute).is_ok_and(|found| same(&found, &folder).unwrap_or(false));
    if !is_same {
        return act_as(user, || openat(&folder, OsStr::from_bytes(path), HANDLE, Mode::empty()));
    }
    absolute.push(b'/');
    absolute.extend_from_slice(path);
    act_as(user, || below(&root, &absolute))
}

fn handle(process: &Path, name: &str) -> nix::Result<OwnedFd> {
    open_path(&process.join(name), HANDLE | OFlag::O_DIRECTORY, Mode::empty())
}

fn same(one: &OwnedFd, other: &OwnedFd) -> nix::Result<bool> {
    Ok(Inode::of(&fstat(one)?) == Inode::of(&fstat(other)?))
}

/// The path of what the process calls its own, as seen from here.
fn rewrite(process: &Path, path: &[u8]) -> Option<PathBuf> {
    OWN.iter().find_map(|(name, place)| {
        let rest = path.strip_prefix(*name)?.strip_prefix(b"/")?;
        let rest = rest.iter().position(|byte| *byte != b'/').map_or(&[][..], |start| &rest[start..]);
        Some(process.join(place).join(OsStr::from_bytes(rest)))
    })
}

/// Opens an absolute path of somebody with this root.
fn below(root: &OwnedFd, path: &[u8]) -> nix::Result<OwnedFd> {
    match resolve(root, path, ResolveFlag::RESOLVE_IN_ROOT) {
        // The links of /proc lead out of every root by design, and are refused there: such as /proc/7/fd/3.
        Err(Errno::ELOOP | Errno::EXDEV) => {
            let relative = path.iter().position(|byte| *byte != b'/').map_or(&b"."[..], |start| &path[start..]);
            openat(root, OsStr::from_bytes(relative), HANDLE, Mode::empty())
        }
        other => other,
    }
}

fn resolve(folder: &OwnedFd, path: &[u8], how: ResolveFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(HANDLE).resolve(how);
    let mut result = Err(Errno::EAGAIN);
    for _ in 0..ATTEMPTS {
        result = openat2(folder.as_fd(), OsStr::from_bytes(path), how);
        if !matches!(result, Err(Errno::EAGAIN | Errno::EINTR)) {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn number(path: &[u8]) -> nix::Result<u64> {
        Ok(fstat(open(nix::unistd::gettid(), path, None)?)?.st_ino)
    }

    #[test]
    fn links_dots_and_descriptors_lead_to_the_same_file() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(at("socket")).unwrap();
        symlink(at("socket"), at("absolute")).unwrap();
        symlink("socket", at("relative")).unwrap();
        fs::create_dir(at("below")).unwrap();
        symlink(folder.path(), at("folder")).unwrap();
        fs::hard_link(at("socket"), at("hard")).unwrap();
        let expected = fs::metadata(at("socket")).unwrap().ino();
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        for name in ["socket", "absolute", "relative", "folder/socket", "./below/../socket", "hard", "/socket"] {
            assert_eq!(number(&[&bytes(at("")), name.as_bytes()].concat()), Ok(expected), "{name}");
        }
        let handle = open_path(&at("socket"), HANDLE, Mode::empty()).unwrap();
        use std::os::fd::AsRawFd;
        for place in ["/proc/self/fd", "/proc/thread-self/fd", "/dev/fd", "/proc/self//fd"] {
            assert_eq!(number(format!("{place}/{}", handle.as_raw_fd()).as_bytes()), Ok(expected), "{place}");
        }
        let by_number = format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd());
        assert_eq!(number(by_number.as_bytes()), Ok(expected));
        assert_eq!(number(&bytes(at("missing"))), Err(Errno::ENOENT));
        assert_eq!(number(&bytes(at("socket/below"))), Err(Errno::ENOTDIR));
    }

    #[test]
    fn what_only_begins_like_a_name_of_its_own_is_not_rewritten() {
        let process = Path::new("/proc/7");
        assert_eq!(rewrite(process, b"/proc/self/fd/3"), Some("/proc/7/fd/3".into()));
        assert_eq!(rewrite(process, b"/dev/fd/3"), Some("/proc/7/fd/3".into()));
        for path in [&b"/proc/selfish/a"[..], b"/proc/self", b"/proc/8/fd/3", b"proc/self/fd/3", b"/dev/fdx"] {
            assert_eq!(rewrite(process, path), None);
        }
    }
}
