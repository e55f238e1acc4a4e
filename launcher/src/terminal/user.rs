//! The terminal that netbox was started from.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::termios::{
    OutputFlags, SetArg, SpecialCharacterIndices, Termios, cfmakeraw, tcgetattr, tcgetsid, tcsetattr,
};
use nix::unistd::{getpgrp, getsid, tcgetpgrp};

use crate::sys;

/// Copies of the descriptors that are terminals. Their open file is shared with the shell and with whoever else has it, so
/// no flag of it may be changed: reading and writing here can block.
#[derive(Debug)]
pub(crate) struct User {
    any: OwnedFd,
    /// None where every descriptor is open for writing alone, and there is no `/dev/tty` to open.
    reading: Option<OwnedFd>,
    /// The same the other way.
    writing: Option<OwnedFd>,
    /// Whether it is the controlling terminal of this process, whose foreground group alone may read from it.
    is_own: bool,
    /// Whether output goes past the terminal, to programs that may write to it while it is in raw mode.
    is_shared: bool,
}

impl User {
    /// The terminal behind the standard descriptors that `numbers` says are terminals; `None` if none is.
    pub(crate) fn find(numbers: [bool; 3]) -> nix::Result<Option<Self>> {
        // Of several terminals the one that the person types at, and for output the one that they most likely look at.
        let open = |order: [usize; 3], refused: Option<OFlag>| -> nix::Result<Option<OwnedFd>> {
            for number in order.into_iter().filter(|number| numbers[*number]) {
                let fd = sys::duplicate(number as i32)?;
                let access = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
                if refused != Some(access) {
                    return Ok(Some(fd));
                }
            }
            Ok(None)
        };
        let Some(any) = open([0, 1, 2], None)? else { return Ok(None) };
        let is_own = tcgetsid(&any).is_ok_and(|session| getsid(None) == Ok(session));
        let reading = open([0, 1, 2], Some(OFlag::O_WRONLY))?;
        let writing = open([1, 2, 0], Some(OFlag::O_RDONLY))?;
        let (reading, writing) = (reading.or_else(|| own_terminal(is_own)), writing.or_else(|| own_terminal(is_own)));
        Ok(Some(Self { any, reading, writing, is_own, is_shared: !numbers[1] }))
    }

    pub(super) fn reading(&self) -> Option<BorrowedFd<'_>> {
        self.reading.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn writing(&self) -> Option<BorrowedFd<'_>> {
        self.writing.as_ref().map(AsFd::as_fd)
    }

    /// Whether it is the controlling terminal of this process.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether netbox may read from it and change its modes. A terminal that is nobody's own is everybody's.
    pub(super) fn is_foreground(&self) -> bool {
        !self.is_own || tcgetpgrp(&self.any) == Ok(getpgrp())
    }

    pub(super) fn size(&self) -> nix::Result<sys::terminal::Size> {
        sys::terminal::size(&self.any)
    }

    pub(super) fn modes(&self) -> nix::Result<Termios> {
        tcgetattr(&self.any)
    }

    /// Sets its modes, without waiting for output that is held up, and losing nothing that was typed.
    pub(super) fn set_modes(&self, modes: &Termios) -> nix::Result<()> {
        // From the background it would stop this process. Callers look where they are, but that may just have changed.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTTOU);
        let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let result = tcsetattr(&self.any, SetArg::TCSANOW, modes);
        before.thread_set_mask()?;
        result
    }

    /// Modes in which everything that is typed arrives at once and as it is, and nothing is echoed: that is up to the
    /// pseudo-terminal.
    pub(super) fn raw(&self, modes: &Termios) -> Termios {
        let mut raw = modes.clone();
        cfmakeraw(&mut raw);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        if self.is_shared {
            // `netbox run -- CMD | tee log`: the lines that tee writes are to begin at the left.
            raw.output_flags = modes.output_flags;
        }
        raw
    }

    /// Whether it makes a carriage return and a newline of each newline.
    pub(super) fn returns_carriages(&self) -> bool {
        returns_carriages(&self.any)
    }
}

pub(super) fn returns_carriages(terminal: impl AsFd) -> bool {
    let both = OutputFlags::OPOST | OutputFlags::ONLCR;
    tcgetattr(terminal).is_ok_and(|modes| modes.output_flags.contains(both))
}

/// The controlling terminal, by its general name.
fn own_terminal(there_is_one: bool) -> Option<OwnedFd> {
    let open =
        || -> io::Result<File> { File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty") };
    there_is_one.then(open).and_then(Result::ok).map(OwnedFd::from)
}
