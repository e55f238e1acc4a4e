//! Asks the person at the terminal.
//!
//! There is one where standard error is a terminal, for the question, and an answer can come: from standard input if that
//! is a terminal too, else from the controlling one, so that `curl … | netbox run -- sh` can be asked about. A run in the
//! background would be stopped by its reading (SIGTTIN), and a machine answers nothing, so these are not asked.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, tcgetpgrp};

/// How long an answer is waited for. None is a no.
const PATIENCE: Duration = Duration::from_secs(300);

/// More than this is no answer.
const LONGEST_ANSWER: usize = 1000;

/// Where the person is.
#[derive(Debug)]
pub struct Terminal {
    input: File,
}

impl Terminal {
    /// The terminal, if a person is there to answer.
    pub fn find() -> Option<Self> {
        let is_machine = std::env::var_os("CI").is_some_and(|value| !["", "0", "false"].iter().any(|no| value == *no));
        if is_machine || !io::stderr().is_terminal() {
            return None;
        }
        let input = if io::stdin().is_terminal() {
            File::from(io::stdin().as_fd().try_clone_to_owned().ok()?)
        } else {
            let flags = libc::O_NOCTTY;
            OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?
        };
        match tcgetpgrp(&input) {
            Ok(group) => (group == getpgrp()).then_some(Self { input }),
            // Not the controlling terminal, so no keys and no job control come from it.
            Err(Errno::ENOTTY) => Some(Self { input }),
            Err(_) => None,
        }
    }

    /// Shows a text, asks, and waits for the answer. Whatever is not a yes is a no.
    pub fn agrees(&mut self, text: &str, question: &str) -> bool {
        // What was typed before, or pasted with the command line, is no answer to what nobody has seen.
        if tcflush(&self.input, FlushArg::TCIFLUSH).is_err() {
            return false;
        }
        // In one piece, so that nothing comes between. Whoever sees no question cannot answer it.
        let shown = format!("{text}{question} [y/N] ");
        if io::stderr().write_all(shown.as_bytes()).is_err() {
            return false;
        }
        let answer = read_line(&mut self.input, PATIENCE);
        if answer.is_none() {
            // The line of the question has no end yet.
            let _ = io::stderr().write_all(b"\n");
        }
        answer.is_some_and(|answer| is_yes(&answer))
    }
}

fn is_yes(answer: &[u8]) -> bool {
    let answer = answer.trim_ascii();
    answer.eq_ignore_ascii_case(b"y") || answer.eq_ignore_ascii_case(b"yes")
}

/// One line, byte by byte: what comes behind it is for the command. Nothing, where none comes in time.
fn read_line(input: &mut (impl Read + AsFd), patience: Duration) -> Option<Vec<u8>> {
    let deadline = Instant::now() + patience;
    let mut line = Vec::new();
    while line.len() <= LONGEST_ANSWER {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return None,
            Err(Errno::EINTR) => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => return None,
            Ok(_) if byte == *b"\n" => return Some(line),
            Ok(_) => line.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for yes in ["y", "Y", "yes", "YES", " y \r"] {
            assert!(is_yes(yes.as_bytes()), "{yes}");
        }
        for no in ["", "n", "no", "yy", "y n", "\u{ff59}", "ja", "y\0"] {
            assert!(!is_yes(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn one_line_is_read_and_what_is_behind_it_is_left() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"yes\nls\n").expect("a pair");
        assert_eq!(read_line(&mut ours, PATIENCE).as_deref(), Some(b"yes".as_slice()));
        let mut rest = [0; 3];
        ours.read_exact(&mut rest).expect("left");
        assert_eq!(&rest, b"ls\n");
    }

    #[test]
    fn no_line_is_no_answer() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        assert_eq!(read_line(&mut ours, Duration::ZERO), None);
        theirs.write_all(b"y").expect("a pair");
        drop(theirs);
        assert_eq!(read_line(&mut ours, PATIENCE), None, "the end came before the line's");
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(&vec![b'y'; LONGEST_ANSWER + 2]).expect("a pair");
        assert_eq!(read_line(&mut ours, PATIENCE), None);
    }
}
