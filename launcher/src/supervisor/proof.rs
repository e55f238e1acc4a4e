//! The proof that the supervision works, before the command may run: the command's process makes a connect that the
//! kernel would refuse in one way, and that the supervisor refuses in another.
//!
//! It takes the whole way: the filter traps, netbox receives, may take the socket and read the memory, and answers.
//!
//! The same question tells a netbox that starts that it is inside another one, which has the only supervision there can
//! be. It then asks that one for a wall around its command ([`walls`](super::walls)), and the answer is the proof.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{At, Failure, Step};
use crate::sys;

/// An address of no family that there is.
pub(super) const QUESTION: &[u8] = b"\xff\xffnetbox";
/// The same, of a netbox inside: a wall around the asking process and all that it starts.
pub(super) const WALL: &[u8] = b"\xff\xffnetbox wall";
/// An error that no connect has.
pub(super) const ANSWER: Errno = Errno::EBADE;

/// Makes that connect.
pub(crate) fn prove() -> Result<(), Failure> {
    answered(QUESTION, "a connect of the command's process was not answered by netbox")
}

/// Has the netbox around this one put up a wall.
pub(crate) fn ask_for_a_wall() -> Result<(), Failure> {
    answered(WALL, "the netbox around this one put up no wall")
}

/// Whether a netbox supervises this process.
pub(crate) fn is_supervised() -> bool {
    prove().is_ok()
}

fn answered(question: &[u8], complaint: &str) -> Result<(), Failure> {
    let step = Step::UnixSockets;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).at(step, "socket")?;
    match sys::socket::connect(socket.as_fd(), question) {
        Err(ANSWER) => Ok(()),
        Err(errno) => Err(Failure::new(step, errno, complaint)),
        Ok(()) => Err(Failure::outcome(step, "a connect to nowhere succeeded")),
    }
}
