//! The proof that the supervision works, before the command may run: the command's process makes a connect that the
//! kernel would refuse in one way, and that the supervisor refuses in another.
//!
//! It takes the whole way: the filter traps, netbox receives, may take the socket and read the memory, and answers.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{At, Failure, Step};
use crate::sys;

/// An address of no family that there is.
pub(super) const QUESTION: &[u8] = b"\xff\xffnetbox";
/// An error that no connect has.
pub(super) const ANSWER: Errno = Errno::EBADE;

/// Makes that connect.
pub(crate) fn prove() -> Result<(), Failure> {
    let step = Step::UnixSockets;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).at(step, "socket")?;
    match sys::socket::connect(socket.as_fd(), QUESTION) {
        Err(ANSWER) => Ok(()),
        Err(errno) => Err(Failure::new(step, errno, "a connect of the command's process was not answered by netbox")),
        Ok(()) => Err(Failure::outcome(step, "a connect to nowhere succeeded")),
    }
}
