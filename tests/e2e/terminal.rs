//! A terminal window: what a person sees there and types there, played by a test.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, tcgetpgrp, ttyname};

use crate::run::Captured;

/// A pseudo-terminal, wide enough that no line is broken.
#[derive(Debug)]
pub struct Terminal {
    outer: OwnedFd,
    inner: OwnedFd,
    screen: Option<Captured>,
    /// How much of the screen has been looked at.
    seen: Mutex<usize>,
}

impl Terminal {
    /// A new one, at which somebody looks.
    pub fn new() -> Self {
        let mut terminal = Self::unseen();
        terminal.look();
        terminal
    }

    /// A new one whose output nobody takes, so that it is held up before long.
    pub fn unseen() -> Self {
        let size = Winsize { ws_row: 40, ws_col: 400, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("a descriptor has flags");
        }
        Self { outer: pair.master, inner: pair.slave, screen: None, seen: Mutex::new(0) }
    }

    /// Begins to take the output.
    pub fn look(&mut self) {
        let outer = self.outer.try_clone().expect("a descriptor can be copied");
        self.screen = Some(Captured::start(File::from(outer)));
    }

    /// The programs' end.
    pub fn inner(&self) -> OwnedFd {
        self.inner.try_clone().expect("a descriptor can be copied")
    }

    /// Its name, such as `/dev/pts/3`.
    pub fn path(&self) -> PathBuf {
        ttyname(&self.inner).expect("it has a name")
    }

    /// Its modes now.
    pub fn modes(&self) -> Termios {
        tcgetattr(&self.inner).expect("a terminal has modes")
    }

    /// The group in its foreground.
    pub fn foreground(&self) -> Option<Pid> {
        // Only of a terminal that is one's own; but its other end may be asked.
        tcgetpgrp(&self.outer).ok()
    }

    /// Changes the size of the window.
    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the kernel reads the size.
        let result = unsafe { libc::ioctl(self.outer.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Types.
    pub fn enter(&self, keys: &str) {
        let mut outer = File::from(self.outer.try_clone().expect("a descriptor can be copied"));
        outer.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Types a line.
    pub fn enter_line(&self, line: &str) {
        self.enter(&format!("{line}\r"));
    }

    /// Waits until `text` is there, behind whatever was waited for before, and gives what comes before it.
    ///
    /// # Panics
    ///
    /// When it does not come.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        let screen = self.screen.as_ref().expect("somebody looks");
        let mut seen = self.seen.lock().expect("no test goes on after a panic");
        let find = |bytes: &[u8]| bytes[*seen..].windows(text.len()).position(|window| window == text.as_bytes());
        screen.wait_for(|bytes| find(bytes).is_some());
        let bytes = screen.bytes();
        let Some(at) = find(&bytes) else {
            panic!("`{text}` never came, but `{}`", String::from_utf8_lossy(&bytes[*seen..]).escape_debug());
        };
        let before = String::from_utf8_lossy(&bytes[*seen..*seen + at]).into_owned();
        *seen += at + text.len();
        before
    }

    /// All that was ever written.
    pub fn all(&self) -> Vec<u8> {
        self.screen.as_ref().expect("somebody looks").bytes()
    }

    /// Closes the window, as far as a test can: all that it holds.
    pub fn close(self) {
        drop(self);
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.outer.as_fd()
    }
}
