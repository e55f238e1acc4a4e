//! The inodes of the unix sockets that the sandbox listens on, and of those of the host that it is allowed.
//!
//! An inode is known by device and number, and each is held open by a path handle for as long as it is in the set: then
//! the number cannot come to mean another file. A file that a unix socket was bound to is never bound to a second one,
//! so what is in the set leads to the socket that was seen to listen, or to nothing.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use super::walls::{self, Within};
use crate::inode::{Inode, kind};

/// How many sockets of the sandbox are known at once. Each costs a descriptor. Further ones cannot be connected to.
const CAPACITY: usize = 4096;
/// How many there are at least before it is looked whether their files are still there.
const FEW: usize = 16;

/// A unix socket of the host that the sandbox may connect to. It is this file, whatever its path comes to mean later.
#[derive(Clone, Debug)]
pub struct AllowedSocket {
    inode: Inode,
    /// Without links.
    path: PathBuf,
    /// Keeps the inode's number its own.
    _handle: Arc<OwnedFd>,
}

impl AllowedSocket {
    /// Opens the file that the path means now.
    ///
    /// # Errors
    /// Those of open(2); `InvalidInput` where it is no socket.
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let stat = fstat(&handle)?;
        if !is_socket(&stat) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a unix socket"));
        }
        Ok(Self { inode: Inode::of(&stat), path: path.canonicalize()?, _handle: Arc::new(handle) })
    }

    /// Where it was found, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether it is the file of a unix socket.
pub(super) fn is_socket(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFSOCK
}

/// The set.
pub(super) struct Inodes {
    allowed: Vec<AllowedSocket>,
    own: Mutex<Own>,
    capacity: usize,
}

#[derive(Default)]
struct Own {
    pins: HashMap<Inode, Pin>,
    /// So many are enough to look.
    many: usize,
}

#[derive(Clone)]
struct Pin {
    handle: Arc<OwnedFd>,
    /// Where it was made.
    within: Arc<Within>,
}

impl Inodes {
    pub(super) fn new(allowed: Vec<AllowedSocket>, descriptors: usize) -> Self {
        // The proxy needs descriptors too.
        Self { allowed, own: Mutex::default(), capacity: CAPACITY.min(descriptors / 4) }
    }

    /// Adds the file that a socket of the sandbox, which is about to listen behind these walls, is bound to.
    pub(super) fn learn(&self, handle: OwnedFd, within: Within) {
        let Ok(stat) = fstat(handle.as_fd()) else { return };
        let crowd = {
            let mut own = self.own();
            let is_crowded = own.pins.len() >= own.many.clamp(FEW, self.capacity);
            if is_crowded {
                own.many = own.pins.len() * 2;
            }
            is_crowded.then(|| own.pins.clone())
        };
        // Without the lock: asking a file system of the sandbox's own may take as long as that likes.
        for (inode, Pin { handle, .. }) in crowd.into_iter().flatten() {
            // Those without a name left can be reached by nobody but through a descriptor of the file.
            if !fstat(handle.as_fd()).is_ok_and(|stat| stat.st_nlink > 0) {
                self.forget(inode);
            }
        }
        let mut own = self.own();
        if own.pins.len() < self.capacity {
            let pin = Pin { handle: Arc::new(handle), within: Arc::new(within) };
            own.pins.entry(Inode::of(&stat)).or_insert(pin);
        }
    }

    /// Removes a file that is gone.
    fn forget(&self, inode: Inode) {
        self.own().pins.remove(&inode);
    }

    /// Whether who is behind these walls may connect to what has this inode. `None`: it is neither the sandbox's nor allowed.
    pub(super) fn may_reach(&self, inode: Inode, caller: &[u64]) -> Option<bool> {
        match self.own().pins.get(&inode) {
            Some(pin) => Some(walls::admit(caller, &pin.within)),
            None => self.allowed.iter().any(|socket| socket.inode == inode).then_some(caller.is_empty()),
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;

    fn handle(path: &Path) -> OwnedFd {
        open(path, OFlag::O_PATH, Mode::empty()).unwrap()
    }

    fn inode(path: &Path) -> Inode {
        Inode::of(&fstat(handle(path)).unwrap())
    }

    #[test]
    fn what_was_learned_is_known_by_every_name_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link, other) = (folder.path().join("own"), folder.path().join("link"), folder.path().join("other"));
        let (_own, _other) = (UnixListener::bind(&path).unwrap(), UnixListener::bind(&other).unwrap());
        let inodes = Inodes::new(Vec::new(), 1024);
        assert!(inodes.may_reach(inode(&path), &[]).is_none());
        inodes.learn(handle(&path), [].into());
        fs::hard_link(&path, &link).unwrap();
        assert!(inodes.may_reach(inode(&path), &[]).is_some() && inodes.may_reach(inode(&link), &[]).is_some());
        assert!(inodes.may_reach(inode(&other), &[]).is_none());
    }

    #[test]
    fn who_is_behind_a_wall_reaches_what_was_made_there_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [own, around, host] = ["own", "around", "host"].map(|name| folder.path().join(name));
        let _listeners = [&own, &around, &host].map(|path| UnixListener::bind(path).unwrap());
        let inodes = Inodes::new(vec![AllowedSocket::open(&host).unwrap()], 1024);
        inodes.learn(handle(&own), [7].into());
        inodes.learn(handle(&around), [].into());
        for path in [&own, &around, &host] {
            assert_eq!(inodes.may_reach(inode(path), &[]), Some(true));
            assert_eq!(inodes.may_reach(inode(path), &[7]), Some(path == &own));
        }
    }

    #[test]
    fn the_set_is_bounded_and_makes_room_where_files_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let file = |number: usize| {
            let path = folder.path().join(number.to_string());
            fs::write(&path, "").unwrap();
            path
        };
        let inodes = Inodes::new(Vec::new(), 4 * 20);
        let files: Vec<_> = (0..21).map(file).collect();
        files.iter().for_each(|file| inodes.learn(handle(file), [].into()));
        assert!(
            inodes.may_reach(inode(&files[19]), &[]).is_some() && inodes.may_reach(inode(&files[20]), &[]).is_none()
        );
        fs::remove_file(&files[0]).unwrap();
        inodes.learn(handle(&files[20]), [].into());
        assert!(inodes.may_reach(inode(&files[20]), &[]).is_some());
    }

    #[test]
    fn an_allowed_socket_is_the_file_and_not_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _first = UnixListener::bind(&path).unwrap();
        let first = inode(&path);
        let inodes = Inodes::new(vec![AllowedSocket::open(&path).unwrap()], 1024);
        fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        assert!(inodes.may_reach(first, &[]).is_some() && inodes.may_reach(inode(&path), &[]).is_none());
        assert_eq!(AllowedSocket::open(folder.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
