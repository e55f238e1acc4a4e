//! OpenMetrics text (version 1.0): families, and the samples of each.

use std::fmt::{Display, Write as _};

/// What the text is, for `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the numbers of a family are.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// They only grow. Their samples are named `…_total`.
    Counter,
    /// They may go up and down.
    Gauge,
    /// Always 1; the labels say something.
    Info,
}

/// A text in the making.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// What the samples that follow are. The name is without `_total` and `_info`.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        // Writing to a string does not fail, here and below.
        let _ = write!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}\n");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            self.0.push(if place == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            value.chars().for_each(|character| match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                character => self.0.push(character),
            });
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// The whole text.
    pub fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}
