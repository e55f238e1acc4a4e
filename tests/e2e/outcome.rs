//! What came of a run: exit code, output and events, with assertions that show all of it when they fail.

use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The end of a program.
#[derive(Debug)]
pub struct Outcome {
    /// What was started.
    pub line: String,
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it wrote on standard error.
    pub stderr: Vec<u8>,
    /// netbox's events; empty for a bare run.
    pub events: Vec<Value>,
}

impl Outcome {
    /// Asserts that netbox says it was there, unless it has an exit code for a run that did not begin: no test may
    /// pass because netbox was missing.
    pub fn assert_begun(&self) {
        // Each role of a service has one of its own.
        let begun = self.events_of("start").iter().filter(|event| event["role"].is_null()).count() == 1;
        assert!(begun || matches!(self.code, None | Some(2 | 125..=127)), "no `start` event of {self}");
    }

    /// Standard output as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exits_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "the exit code of {self}");
        self
    }

    /// Asserts that standard output has `text` in it.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(self.stdout().contains(text), "no `{text}` in the output of {self}");
        self
    }

    /// Asserts that standard output has no `text` in it.
    #[track_caller]
    pub fn does_not_say(&self, text: &str) -> &Self {
        assert!(!self.stdout().contains(text), "`{text}` in the output of {self}");
        self
    }

    /// Asserts that standard error has `text` in it.
    #[track_caller]
    pub fn complains(&self, text: &str) -> &Self {
        assert!(self.stderr().contains(text), "no `{text}` in the standard error of {self}");
        self
    }

    /// The events of one kind.
    pub fn events_of(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|value| value["event"] == event).collect()
    }

    /// The one event of a kind.
    ///
    /// # Panics
    ///
    /// When there is none, or more than one.
    #[track_caller]
    pub fn event(&self, event: &str) -> &Value {
        match self.events_of(event).as_slice() {
            [one] => one,
            others => panic!("{} `{event}` events of {self}", others.len()),
        }
    }

    /// The decisions about a host, which is a name or an address.
    pub fn decisions(&self, host: &str) -> Vec<&Value> {
        self.events_of("decision").into_iter().filter(|value| value["host"] == host).collect()
    }

    /// Asserts that a connection to `host` and `port` was allowed, because of `reason`.
    #[track_caller]
    pub fn allowed(&self, host: &str, port: u16, reason: &str) -> &Value {
        self.decided("allow", host, port, reason)
    }

    /// Asserts that a connection to `host` and `port` was refused for `reason`, and that none was allowed.
    #[track_caller]
    pub fn refused(&self, host: &str, port: u16, reason: &str) -> &Value {
        let allowed = |value: &&&Value| value["verdict"] == "allow" && value["port"] == port;
        let allowed = self.decisions(host).iter().filter(allowed).count();
        assert_eq!(allowed, 0, "{host}:{port} was allowed: {self}");
        self.decided("deny", host, port, reason)
    }

    /// Asserts that a connection to `host` and `port` was judged like this.
    #[track_caller]
    pub fn decided(&self, verdict: &str, host: &str, port: u16, reason: &str) -> &Value {
        let wanted = |value: &&Value| value["port"] == port && value["verdict"] == verdict && value["reason"] == reason;
        let found = self.decisions(host).into_iter().find(wanted);
        found.unwrap_or_else(|| panic!("no `{verdict}` for `{host}:{port}` with the reason `{reason}` in {self}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "`{}`", self.line)?;
        writeln!(formatter, "code {:?}, signal {:?}", self.code, self.signal)?;
        writeln!(formatter, "--- stdout\n{}--- stderr\n{}--- events", cut(&self.stdout()), cut(&self.stderr()))?;
        self.events.iter().try_for_each(|event| writeln!(formatter, "{event}"))
    }
}

fn cut(text: &str) -> String {
    text.chars().take(4000).collect()
}

/// Reads a file of events; there is none when netbox ended before it began.
///
/// # Panics
///
/// When a line is not a JSON object.
pub fn read_events(path: &Path) -> Vec<Value> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let parse = |line| match serde_json::from_str(line) {
        Ok(value @ Value::Object(_)) => value,
        _ => panic!("not an event: `{line}`"),
    };
    text.lines().map(parse).collect()
}
