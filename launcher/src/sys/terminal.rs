//! What terminals are asked and told by ioctl(2) alone (ioctl_tty(2)).

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// How many rows and columns a terminal has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(libc::winsize);

/// # Errors
/// `ENOTTY`: no terminal. `EIO`: one that is gone.
pub(crate) fn size(terminal: impl AsFd) -> nix::Result<Size> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills `size`, whose type is what the request wants.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    Errno::result(result).map(|_| Size(size))
}

/// Where it is another size than before, the terminal's foreground group gets SIGWINCH.
pub(crate) fn set_size(terminal: impl AsFd, size: Size) -> nix::Result<()> {
    // SAFETY: the kernel reads the size, whose type is what the request wants.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size.0) };
    Errno::result(result).map(drop)
}

/// Makes it the controlling terminal of the caller's session, which it must lead.
pub(crate) fn take_as_controlling(terminal: impl AsFd) -> nix::Result<()> {
    // SAFETY: the argument is a number: 0, not to take it from another session.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) };
    Errno::result(result).map(drop)
}
