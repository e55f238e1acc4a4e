//! Mounts as descriptors: open_tree(2), move_mount(2), mount_setattr(2).

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;

/// What lies at `path`, as a mount of its own that is mounted nowhere yet (Linux 5.2). With what is mounted below it.
///
/// # Errors
/// `ENOENT`: nothing lies there.
pub(crate) fn clone_tree(path: &Path) -> nix::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
    let result = path.with_nix_path(|path| {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) }
    })?;
    let number = Errno::result(result)?;
    // SAFETY: the kernel has just made this descriptor for us; nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Mounts what [`clone_tree`] gave at `name` below `directory`, once.
pub(crate) fn attach(tree: &OwnedFd, directory: impl AsFd, name: &Path) -> nix::Result<()> {
    let result = name.with_nix_path(|name| {
        // SAFETY: both paths are NUL-terminated.
        unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                tree.as_raw_fd(),
                c"".as_ptr(),
                directory.as_fd().as_raw_fd(),
                name.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH,
            )
        }
    })?;
    Errno::result(result).map(drop)
}

/// Makes the mount at `path` and every mount below it read-only (Linux 5.12).
pub(crate) fn make_read_only_below(path: &Path) -> nix::Result<()> {
    set_below(path, libc::MOUNT_ATTR_RDONLY)
}

/// Lets no device be opened by a node that lies in the mount at `path` or in one below it (Linux 5.12).
pub(crate) fn forbid_devices_below(path: &Path) -> nix::Result<()> {
    set_below(path, libc::MOUNT_ATTR_NODEV)
}

fn set_below(path: &Path, attribute: u64) -> nix::Result<()> {
    // SAFETY: an all-zero `mount_attr` is valid and changes nothing.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    attr.attr_set = attribute;
    let result = path.with_nix_path(|path| {
        // SAFETY: the path is NUL-terminated and `attr` outlives the call; its size is right.
        unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_RECURSIVE,
                &raw mut attr,
                size_of::<libc::mount_attr>(),
            )
        }
    })?;
    Errno::result(result).map(drop)
}
