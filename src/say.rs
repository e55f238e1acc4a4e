//! What is said to the person: on stderr, lower case, literals in backticks, a hint after it.

use std::fmt::Display;
use std::io::{Write, stderr};

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
            line("warning: ", text);
        }
    }

    /// Something that the person asked to know.
    pub fn detail(self, text: impl Display) {
        if self.verbose {
            line("", text);
        }
    }
}

/// Something that others wait for. Said in any case.
pub fn note(text: impl Display) {
    line("", text);
}

/// A text of several lines, as it is. In one piece, so that nothing comes between.
pub fn plain(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// Why it did not work, and what to do. Said in any case.
pub fn error(text: impl Display, hint: Option<&str>) {
    line("error: ", text);
    if let Some(hint) = hint {
        line("hint: ", hint);
    }
}

fn line(kind: &str, text: impl Display) {
    // A closed stderr is not a reason to fail.
    let _ = writeln!(stderr(), "netbox: {kind}{text}");
}
