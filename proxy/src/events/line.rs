//! One event as one line of JSON: bounded, and safe to show.
//!
//! Each text has a budget in bytes, counted after escaping; the budgets of an event and its fixed parts together stay
//! below [`MAX_LINE`]. What is longer is cut and ends in `…`. Besides what JSON demands, everything that could make a
//! terminal or a reader show something else than what is there is escaped: control characters, characters that turn or
//! hide text, line separators.

use std::fmt::Write as _;

use super::timestamp::Timestamp;
use super::{CloseEvent, DecisionEvent, End, SessionId, Verdict};

/// The greatest length of a line in bytes, its newline included.
pub const MAX_LINE: usize = 4096;

/// Budgets in bytes. A host name has at most 253, an IPv6 address 45; longer ones are malformed input.
pub const HOST: usize = 384;
pub const HINT: usize = 300;
pub const NEAR: usize = 384;
pub const ARGV0: usize = 1024;
pub const DIGEST: usize = 128;
/// For all walls together, quotes and commas included.
pub const WALLS: usize = 1024;
/// For all doors together, likewise.
pub const DOORS: usize = 1024;
const RULE: usize = 384;
const SOURCE: usize = 384;
const SNI: usize = 300;
const METHOD: usize = 48;
const URL: usize = 1024;
const EXE: usize = 384;
/// The name of a role has 64.
pub const ROLE: usize = 64;
/// For words of our own, which are all shorter.
const WORD: usize = 32;

/// The mark of a text that was cut.
const CUT: char = '…';

/// A line in the making: the fields so far, each with the comma before it.
pub struct Line {
    time: Timestamp,
    fields: String,
}

impl Line {
    /// A line of now without fields.
    pub fn new() -> Self {
        Self { time: Timestamp::now(), fields: String::new() }
    }

    /// The whole line, with the fields that every event has first.
    pub fn finish(self, session: SessionId, event: &'static str) -> Vec<u8> {
        let Self { time, fields } = self;
        format!("{{\"v\":1,\"ts\":\"{time}\",\"session\":\"{session}\",\"event\":\"{event}\"{fields}}}\n").into_bytes()
    }

    pub fn number(&mut self, key: &'static str, value: i128) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.fields, ",\"{key}\":{value}");
    }

    /// A word of our own.
    pub fn word(&mut self, key: &'static str, value: &str) {
        self.text(key, value, WORD);
    }

    /// A text of any origin, in at most `budget` bytes.
    pub fn text(&mut self, key: &'static str, value: &str, budget: usize) {
        let _ = write!(self.fields, ",\"{key}\":\"");
        escape(&mut self.fields, value, budget);
        self.fields.push('"');
    }

    /// Texts of any origin; those beyond `budget` are left out, and a last `…` says so.
    pub fn list(&mut self, key: &'static str, values: &[String], budget: usize) {
        let _ = write!(self.fields, ",\"{key}\":[");
        let start = self.fields.len();
        for (place, value) in values.iter().enumerate() {
            let before = self.fields.len();
            self.fields.push_str(if place == 0 { "\"" } else { ",\"" });
            escape(&mut self.fields, value, budget);
            self.fields.push('"');
            // 6 is what `,"…"` takes.
            if self.fields.len() - start + 6 > budget {
                self.fields.truncate(before);
                self.fields.push_str(if place == 0 { "\"…\"" } else { ",\"…\"" });
                break;
            }
        }
        self.fields.push(']');
    }

    pub fn decision(&mut self, decision: &DecisionEvent) {
        self.number("id", decision.id.into());
        self.word("verdict", Verdict::of(decision.reason).as_str());
        self.word("reason", decision.reason.as_str());
        self.text("host", &decision.host, HOST);
        if let Some(port) = decision.port {
            self.number("port", port.into());
        }
        self.word("via", decision.via.as_str());
        if let Some(rule) = &decision.rule {
            self.object("rule", |line| {
                line.text("text", &rule.text, RULE);
                line.text("source", &rule.source, SOURCE);
            });
        }
        if let Some(would) = decision.would {
            self.word("would", would.as_str());
        }
        self.optional("sni", decision.sni.as_deref(), SNI);
        self.optional("method", decision.method.as_deref(), METHOD);
        self.optional("url", decision.url.as_deref(), URL);
        if let Some(process) = &decision.process {
            self.object("process", |line| {
                line.number("pid", process.pid.into());
                line.optional("exe", process.exe.as_deref(), EXE);
            });
        }
        self.optional("hint", decision.hint.as_deref(), HINT);
        self.optional("near", decision.near.as_deref(), NEAR);
    }

    pub fn close(&mut self, close: &CloseEvent) {
        self.number("id", close.id.into());
        if let Some(addr) = close.addr {
            // Long enough for `[v6%zone]:port`.
            self.text("addr", &addr.to_string(), 64);
        }
        self.number("sent", close.sent.into());
        self.number("received", close.received.into());
        self.number("duration_ms", close.duration.as_millis().min(u64::MAX.into()) as i128);
        self.word("end", close.end.as_str());
        if let End::Refused(refusal) = &close.end {
            self.word("reason", refusal.reason.as_str());
        }
        self.optional("sni", close.sni.as_deref(), SNI);
        if let Some(passed) = &close.passed_late {
            self.word("would", passed.would.as_str());
            self.optional("hint", passed.hint.as_deref(), HINT);
        }
    }

    fn optional(&mut self, key: &'static str, value: Option<&str>, budget: usize) {
        if let Some(value) = value {
            self.text(key, value, budget);
        }
    }

    fn object(&mut self, key: &'static str, fill: impl FnOnce(&mut Self)) {
        let _ = write!(self.fields, ",\"{key}\":{{");
        let start = self.fields.len();
        fill(self);
        // Every field brings a comma; the first one of an object must not.
        if self.fields.len() > start {
            self.fields.remove(start);
        }
        self.fields.push('}');
    }
}

/// A text as it stands in a line, for other places where people see it.
pub fn cut(text: &str, budget: usize) -> String {
    let mut out = String::new();
    escape(&mut out, text, budget);
    out
}

/// Appends `text` in at most `budget` bytes, which must be at least the three of [`CUT`]. Reads no more of it than it
/// writes.
fn escape(out: &mut String, text: &str, budget: usize) {
    let start = out.len();
    let mut fits_with_mark = start;
    for character in text.chars() {
        push(out, character);
        let length = out.len() - start;
        if length > budget {
            out.truncate(fits_with_mark);
            out.push(CUT);
            return;
        }
        if length + CUT.len_utf8() <= budget {
            fits_with_mark = out.len();
        }
    }
}

fn push(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        _ if misleads(character) => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
        _ => out.push(character),
    }
}

/// Whether a character can change how the text around it is shown: controls (C0, DEL, C1), joiners and marks without
/// width, bidirectional controls, line and paragraph separators, interlinear annotation, tags.
fn misleads(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}
