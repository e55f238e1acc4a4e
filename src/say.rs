//! What is said to the person: on stderr, lower case, literals in backticks, a hint after it.
//!
//! While the command has the terminal, what would be said there is kept until it has it no more ([`keep`]): it would be
//! written over the command's screen, and the modes are the command's too. Where stderr leads somewhere else, nothing waits.

use std::collections::VecDeque;
use std::env;
use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nix::sys::stat::fstat;

/// How much is said.
#[derive(Clone, Copy, Debug)]
pub struct Voice {
    pub quiet: bool,
    pub verbose: bool,
}

impl Voice {
    /// Something that the person should know, unless they want quiet.
    pub fn warn(self, text: impl Display) {
        if !self.quiet {
            line(Priority::Warning, "warning: ", text);
        }
    }

    /// Something that the person asked to know.
    pub fn detail(self, text: impl Display) {
        if self.verbose {
            line(Priority::Notice, "", text);
        }
    }
}

/// Something that the person must know before they go on. Said in any case.
pub fn alarm(text: impl Display) {
    line(Priority::Warning, "warning: ", text);
}

/// Something that others wait for. Said in any case.
pub fn note(text: impl Display) {
    line(Priority::Notice, "", text);
}

/// A text of several lines, as it is. In one piece, so that nothing comes between.
pub fn plain(text: &str) {
    put(for_journal(Priority::Notice, text.to_owned()));
}

/// Why it did not work, and what to do. Said in any case.
pub fn error(text: impl Display, hint: Option<&str>) {
    line(Priority::Error, "error: ", text);
    if let Some(hint) = hint {
        line(Priority::Error, "hint: ", hint);
    }
}

fn line(priority: Priority, kind: &str, text: impl Display) {
    put(for_journal(priority, format!("netbox: {kind}{text}\n")));
}

/// Says it, or keeps it.
fn put(text: String) {
    match &mut *kept() {
        Some(kept) => kept.add(text),
        // A closed stderr is not a reason to fail.
        None => drop(stderr().write_all(text.as_bytes())),
    }
}

/// As much as a person reads afterwards. The last are the ones that still matter.
const MOST_KEPT: usize = 32;

/// What waits, where something has to.
static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Kept {
    texts: VecDeque<String>,
    left_out: usize,
}

impl Kept {
    fn add(&mut self, text: String) {
        if self.texts.len() == MOST_KEPT {
            self.texts.pop_front();
            self.left_out += 1;
        }
        self.texts.push_back(text);
    }

    fn told(self) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            many => format!("netbox: {many} earlier lines, from while the command ran, are left out\n"),
        };
        left_out + &self.texts.into_iter().collect::<String>()
    }
}

/// Has what is said wait from now on, if it would be said at a terminal, until the value is dropped.
#[must_use]
pub fn keep() -> Keeping {
    if stderr().is_terminal() {
        *kept() = Some(Kept::default());
    }
    Keeping(())
}

/// See [`keep`].
pub struct Keeping(());

impl Drop for Keeping {
    fn drop(&mut self) {
        let Some(kept) = kept().take() else { return };
        let _ = stderr().write_all(kept.told().as_bytes());
    }
}

/// How much a line matters, as syslog(3) numbers it.
#[derive(Clone, Copy, Debug)]
enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 6,
}

/// For the journal, with its priority before each line (sd-daemon(3)); for anybody else as it is.
fn for_journal(priority: Priority, text: String) -> String {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    match IS_JOURNAL.get_or_init(is_journal) {
        true => with_priority(priority, &text),
        false => text,
    }
}

fn with_priority(priority: Priority, text: &str) -> String {
    text.split_inclusive('\n').map(|line| format!("<{}>{line}", priority as u8)).collect()
}

/// Whether stderr leads to the journal: systemd says which socket does (systemd.exec(5)). One that was redirected since is
/// another.
fn is_journal() -> bool {
    let Some(stream) = env::var_os("JOURNAL_STREAM") else { return false };
    fstat(stderr()).is_ok_and(|file| stream == *format!("{}:{}", file.st_dev, file.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_for_the_journal_has_its_priority() {
        let text = with_priority(Priority::Error, "netbox: error: one\ntwo\n");
        assert_eq!(text, "<3>netbox: error: one\n<3>two\n");
        assert_eq!(with_priority(Priority::Warning, "x"), "<4>x");
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let mut kept = Kept::default();
        for number in 0..MOST_KEPT + 3 {
            kept.add(format!("netbox: {number}\n"));
        }
        let told = kept.told();
        assert!(
            told.starts_with("netbox: 3 earlier lines, from while the command ran, are left out\nnetbox: 3\n"),
            "{told}"
        );
        assert_eq!(told.lines().count(), MOST_KEPT + 1);
    }
}
