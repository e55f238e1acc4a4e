//! The path of the control socket: made so that nobody else can take its place, and given back at the end.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::policy::{self, shown};

/// A control socket that is bound, and the name that leads to it.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// Device and number of the socket's file.
    inode: (u64, u64),
    /// The kernel gives it back when this process ends.
    _lock: Flock<File>,
}

/// Makes the socket, with these permissions, and its directory where that is missing.
///
/// # Errors
/// One line with the path, and what to do.
pub fn bind(path: &Path, mode: u32) -> Result<(UnixListener, ControlSocket), (String, Option<String>)> {
    let failed = |what: &str, error: io::Error| (format!("{what} {}: {error}", shown(path)), None);
    if path.is_relative() {
        return Err((format!("`--listen unix:{}`: write a path from `/`", path.display()), None));
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err((format!("{} is a directory", shown(path)), None));
    };
    // Its parent has to be there: a path that is misspelt should not become a tree.
    match DirBuilder::new().mode(if mode & 0o077 == 0 { 0o700 } else { 0o755 }).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let hint = way_to_a_directory(directory, &error);
            return Err((failed("cannot make the directory of", error).0, hint));
        }
        _ => {}
    }
    let directory = policy::directory_of_own(directory).map_err(|refused| (refused.text, refused.hint))?;
    let path = directory.join(name);
    let lock = lock(&path)?;
    check_vacant(&path)?;
    // Bound under another name: under its own it has its permissions from the first moment.
    let scratch = tempfile::Builder::new().prefix(".netbox-").rand_bytes(12).tempdir_in(&directory);
    let scratch = scratch.map_err(|error| failed("cannot make", error))?;
    let made = scratch.path().join("socket");
    let listener = UnixListener::bind(&made).map_err(|error| failed("cannot listen on", error))?;
    fs::set_permissions(&made, Permissions::from_mode(mode)).map_err(|error| failed("cannot listen on", error))?;
    let metadata = fs::symlink_metadata(&made).map_err(|error| failed("cannot look at", error))?;
    fs::rename(&made, &path).map_err(|error| failed("cannot listen on", error))?;
    let inode = (metadata.dev(), metadata.ino());
    Ok((listener, ControlSocket { path, inode, _lock: lock }))
}

/// What to do where the directory cannot be made.
fn way_to_a_directory(directory: &Path, error: &io::Error) -> Option<String> {
    let parent = directory.parent()?;
    let own = "take one of your own, such as `unix:$XDG_RUNTIME_DIR/netbox/control.sock`";
    match error.kind() {
        ErrorKind::NotFound if parent.starts_with("/run/user") => Some(format!(
            "there is no {}, which is made when that user logs in (`loginctl enable-linger` makes it at every start); or take a \
             directory that is there",
            shown(parent)
        )),
        ErrorKind::NotFound => Some(format!("there is no {}: make it (`mkdir -p`), or {own}", shown(parent))),
        ErrorKind::PermissionDenied => {
            Some(format!("{} is somebody else's: have it made by whoever may, or {own}", shown(parent)))
        }
        _ => None,
    }
}

/// The lock of this path, which one service has at a time.
fn lock(path: &Path) -> Result<Flock<File>, (String, Option<String>)> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&name);
    let file = file.map_err(|error| (format!("cannot lock {}: {error}", shown(Path::new(&name))), None))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => (
            format!("another netbox listens on {}", shown(path)),
            Some("end that one first, or take another path".to_owned()),
        ),
        errno => (format!("cannot lock {}: {}", shown(Path::new(&name)), errno.desc()), None),
    })
}

/// Whether the path is free: nothing is there, or a socket that nobody listens on any more.
fn check_vacant(path: &Path) -> Result<(), (String, Option<String>)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err((format!("cannot look at {}: {error}", shown(path)), None)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err((format!("{} is there, and is no socket", shown(path)), Some("take another path".to_owned())))
        }
        Ok(_) => match UnixStream::connect(path) {
            // What somebody left behind. It gives way to the new one.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            _ => {
                let text = format!("somebody listens on {}", shown(path));
                Err((text, Some("end that program first, or take another path".to_owned())))
            }
        },
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Not one that somebody has put there since.
        let is_ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.inode;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("own folder");
        (folder, path)
    }

    fn refused(path: &Path) -> String {
        bind(path, 0o600).expect_err("it cannot be bound").0
    }

    #[test]
    fn the_socket_is_its_owners_alone_and_is_gone_at_the_end() {
        let (_folder, top) = folder();
        let path = top.join("run/control.sock");
        let (listener, socket) = bind(&path, 0o600).expect("it is free");
        let mode = |path: &Path| fs::symlink_metadata(path).expect("it is there").mode() & 0o7777;
        assert_eq!((mode(&path), mode(path.parent().expect("a directory"))), (0o600, 0o700));
        UnixStream::connect(&path).expect("somebody listens");
        let entries: Vec<_> = fs::read_dir(top.join("run")).expect("own folder").flatten().collect();
        assert_eq!(entries.len(), 2, "the socket and its lock: {entries:?}");
        drop((listener, socket));
        assert!(fs::symlink_metadata(&path).is_err());
    }

    #[test]
    fn one_service_listens_at_a_time_and_the_next_takes_the_place_of_what_one_left_behind() {
        let (_folder, top) = folder();
        let path = top.join("control.sock");
        let (listener, socket) = bind(&path, 0o600).expect("it is free");
        assert!(refused(&path).starts_with("another netbox listens on"));
        drop(listener);
        // As after a kill: the file stays.
        std::mem::forget(socket);
        fs::remove_file(top.join("control.sock.lock")).expect("own folder");
        let (_listener, _socket) = bind(&path, 0o600).expect("nobody listens any more");
        UnixStream::connect(&path).expect("somebody listens");
    }

    #[test]
    fn what_is_somebody_elses_stays() {
        let (_folder, top) = folder();
        let path = top.join("control.sock");
        let foreign = UnixListener::bind(&path).expect("own folder");
        assert!(refused(&path).starts_with("somebody listens on"));
        drop(foreign);
        fs::remove_file(&path).expect("own folder");
        fs::write(&path, "text").expect("own folder");
        assert!(refused(&path).ends_with("is there, and is no socket"));
        fs::remove_file(&path).expect("own folder");
        let (listener, socket) = bind(&path, 0o600).expect("it is free");
        fs::remove_file(&path).expect("own folder");
        let _foreign = UnixListener::bind(&path).expect("own folder");
        drop((listener, socket));
        assert!(fs::symlink_metadata(&path).is_ok(), "another one's");
    }

    #[test]
    fn where_others_may_write_there_is_no_control_socket() {
        let (_folder, top) = folder();
        fs::create_dir(top.join("open")).expect("own folder");
        fs::set_permissions(top.join("open"), Permissions::from_mode(0o777)).expect("own folder");
        assert!(refused(&top.join("open/control.sock")).contains("may be written to by others"));
        fs::set_permissions(top.join("open"), Permissions::from_mode(0o1777)).expect("own folder");
        assert!(bind(&top.join("open/control.sock"), 0o600).is_err());
        let (why, hint) = bind(&top.join("absent/below/control.sock"), 0o600).expect_err("it cannot be bound");
        assert!(why.starts_with("cannot make the directory"));
        let hint = hint.expect("there is something to do");
        assert!(hint.starts_with(&format!("there is no {}: make it", shown(&top.join("absent")))), "{hint}");
        let absent = Path::new("/run/user/4294967294/netbox/control.sock");
        let (_, hint) = bind(absent, 0o600).expect_err("nobody has that number");
        assert!(hint.is_some_and(|hint| hint.contains("when that user logs in")));
        assert!(refused(Path::new("control.sock")).contains("from `/`"));
    }
}
