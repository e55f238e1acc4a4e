//! Whether somebody on the host listens on a file (sock_diag(7)).
//!
//! It decides between two errors for a connect that is refused in any case. Programs meet sockets that a dead process
//! left behind, and know them by ECONNREFUSED; a socket that works and is out of reach gives EACCES.

use std::sync::{Mutex, PoisonError};

use nix::sys::socket::SockProtocol;

use crate::inode::Inode;
use crate::network::netlink::{Batch, NLM_F_DUMP, Socket, attributes};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_LISTEN: u32 = 10;
const UDIAG_SHOW_VFS: u32 = 2;
const UNIX_DIAG_VFS: u16 = 1;
/// The size of `struct unix_diag_msg`.
const HEADER: usize = 16;

/// The unix sockets of netbox's own network namespace.
#[derive(Default)]
pub(super) struct Sockets(Mutex<Option<Socket>>);

impl Sockets {
    /// Whether one of them listens on this file. Where the kernel does not say, it is taken for one that does.
    pub(super) fn listens_on(&self, inode: Inode) -> bool {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match find(&mut socket, inode) {
            Ok(found) => found,
            Err(_) => {
                // What is left of its answer would be taken for the next one's.
                *socket = None;
                true
            }
        }
    }
}

fn find(socket: &mut Option<Socket>, inode: Inode) -> nix::Result<bool> {
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(Socket::open(SockProtocol::NetlinkSockDiag)?),
    };
    // `struct unix_diag_req`: family, protocol, states, inode, what to show, cookie.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    request.extend((1_u32 << TCP_LISTEN).to_ne_bytes());
    request.extend([0; 4]);
    request.extend(UDIAG_SHOW_VFS.to_ne_bytes());
    request.extend([0; 8]);
    let mut batch = Batch::default();
    batch.request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |_| {});
    let mut found = false;
    socket.dump(&batch, |body| {
        let attributes = attributes(body.get(HEADER..).unwrap_or_default());
        found |= attributes.filter(|(kind, _)| *kind == UNIX_DIAG_VFS).any(|(_, value)| is(value, inode));
    })?;
    Ok(found)
}

/// `struct unix_diag_vfs`: the low half of the inode's number, and the device. Devices that a file system shares among
/// its parts are told differently to stat(2), so only the numbers are compared: a coincidence costs a better error.
fn is(value: &[u8], inode: Inode) -> bool {
    value.first_chunk().is_some_and(|number| u32::from_ne_bytes(*number) == inode.number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_listener_is_found_and_a_file_that_it_left_behind_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let file = std::fs::metadata(&path).unwrap();
        let inode = Inode { device: file.dev(), number: file.ino() };
        let sockets = Sockets::default();
        assert!(sockets.listens_on(inode));
        drop(listener);
        assert!(UnixStream::connect(&path).is_err());
        assert!(!sockets.listens_on(inode));
    }
}
