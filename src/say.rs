//! What is said to the person: on stderr, lower case, literals in backticks, a hint after it.

use std::env;
use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::OnceLock;

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

/// Something that others wait for. Said in any case.
pub fn note(text: impl Display) {
    line(Priority::Notice, "", text);
}

/// A text of several lines, as it is. In one piece, so that nothing comes between.
pub fn plain(text: &str) {
    let _ = stderr().write_all(for_journal(Priority::Notice, text.to_owned()).as_bytes());
}

/// Why it did not work, and what to do. Said in any case.
pub fn error(text: impl Display, hint: Option<&str>) {
    line(Priority::Error, "error: ", text);
    if let Some(hint) = hint {
        line(Priority::Error, "hint: ", hint);
    }
}

fn line(priority: Priority, kind: &str, text: impl Display) {
    let text = for_journal(priority, format!("netbox: {kind}{text}\n"));
    // A closed stderr is not a reason to fail.
    let _ = stderr().write_all(text.as_bytes());
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
}
