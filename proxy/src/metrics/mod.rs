//! What a service has done and does, as numbers for whoever watches it: OpenMetrics text.
//!
//! The number of labels is bounded: sandboxes come and go, and count under their user; roles are in the configuration; and
//! what is beyond [`MOST_LABELS`] counts under one label together. No label is made of what a program in a sandbox says.

mod serve;
mod text;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::events::Verdict;
use crate::tally::Tally;
use text::{Kind, Text};

pub use serve::{Observed, serve_metrics};

/// How many users and roles are told apart.
pub const MOST_LABELS: usize = 256;

/// Under what a tenant counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The clients of no role.
    Default,
    /// The clients of a role.
    Role(String),
    /// The sandboxes of a user.
    User(u32),
    /// Those that are not told apart.
    Others,
}

/// Who looks at the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Somebody without a token, who sees sums.
    Anybody,
    /// A bearer of a role, who sees its own.
    Role(String),
    /// A bearer of an admin role, who sees each tenant by itself.
    Admin,
}

/// The numbers of all tenants with one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// See there.
    pub label: Label,
    /// How many there are at the moment.
    pub tenants: usize,
    /// How many connections they have open.
    pub open: usize,
    /// What they have done, and those that have ended.
    pub tally: Tally,
}

/// The numbers of a service at one moment.
#[derive(Clone, Debug)]
pub struct Readings {
    /// The version of the program.
    pub version: &'static str,
    /// When it started.
    pub started: SystemTime,
    /// Whether it takes new connections.
    pub is_ready: bool,
    /// How often its files were read anew, and how often that failed.
    pub reloads: (u64, u64),
    /// Those of the tenants.
    pub tenants: Vec<Reading>,
    /// Those of the process.
    pub process: ProcessReading,
}

/// The numbers of a process, as far as it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessReading {
    /// Memory that it holds, in bytes.
    pub resident: Option<u64>,
    /// Descriptors that it has open.
    pub descriptors: Option<u64>,
    /// How many it may have.
    pub most_descriptors: Option<u64>,
    /// Seconds of processor time.
    pub processor: Option<f64>,
}

/// A number that a tally holds.
type Counter = (&'static str, &'static str, fn(&Tally) -> u64);

/// Plain counters: name, help, number.
const COUNTERS: [Counter; 3] = [
    ("netbox_connections", "Connections that were accepted.", |tally| tally.connections),
    ("netbox_dns_queries", "DNS queries.", |tally| tally.dns_queries),
    ("netbox_events_dropped", "Events that could not be written.", |tally| tally.events_dropped),
];

impl Readings {
    /// OpenMetrics text, as far as that one may see.
    #[must_use]
    pub fn text(&self, viewer: &Viewer) -> String {
        let mut text = Text::default();
        text.family("netbox_build", Kind::Info, "The version of netbox.");
        text.sample("netbox_build_info", &[("version", self.version)], "1");
        text.family("netbox_start_time_seconds", Kind::Gauge, "When the service started, since 1970.");
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        text.sample("netbox_start_time_seconds", &[], format_args!("{:.3}", started.as_secs_f64()));
        text.family("netbox_ready", Kind::Gauge, "Whether new connections are taken.");
        text.sample("netbox_ready", &[], u8::from(self.is_ready));
        text.family("netbox_reloads", Kind::Counter, "How often the files were read anew.");
        text.sample("netbox_reloads_total", &[("result", "done")], self.reloads.0);
        text.sample("netbox_reloads_total", &[("result", "failed")], self.reloads.1);
        self.process.write(&mut text);
        match viewer {
            Viewer::Admin => write(&mut text, &self.tenants, Label::labels),
            Viewer::Role(name) => {
                let is_own = |reading: &&Reading| matches!(&reading.label, Label::Role(role) if role == name);
                let own: Vec<_> = self.tenants.iter().filter(is_own).cloned().collect();
                write(&mut text, &own, Label::labels);
            }
            Viewer::Anybody => write(&mut text, &[self.sum()], |_| Vec::new()),
        }
        text.end()
    }

    fn sum(&self) -> Reading {
        let mut sum = Reading { label: Label::Others, tenants: 0, open: 0, tally: Tally::default() };
        for one in &self.tenants {
            sum.tenants += one.tenants;
            sum.open += one.open;
            sum.tally.add(&one.tally);
        }
        sum
    }
}

impl Label {
    fn labels(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Default => vec![("kind", "default".into())],
            Self::Role(name) => vec![("kind", "role".into()), ("role", name.clone())],
            Self::User(uid) => vec![("kind", "sandbox".into()), ("uid", uid.to_string())],
            Self::Others => vec![("kind", "others".into())],
        }
    }
}

impl ProcessReading {
    fn write(&self, text: &mut Text) {
        let mut gauge = |name, help, value: Option<u64>| {
            if let Some(value) = value {
                text.family(name, Kind::Gauge, help);
                text.sample(name, &[], value);
            }
        };
        gauge("process_resident_memory_bytes", "Memory that the process holds.", self.resident);
        gauge("process_open_fds", "Descriptors that are open.", self.descriptors);
        gauge("process_max_fds", "Descriptors that may be open.", self.most_descriptors);
        if let Some(processor) = self.processor {
            text.family("process_cpu_seconds", Kind::Counter, "Processor time.");
            text.sample("process_cpu_seconds_total", &[], format_args!("{processor:.2}"));
        }
    }
}

/// The families of tenants, each with the samples of all readings. `labels` says how they are told apart.
fn write(text: &mut Text, readings: &[Reading], labels: fn(&Label) -> Vec<(&'static str, String)>) {
    let owned: Vec<_> = readings.iter().map(|reading| labels(&reading.label)).collect();
    let labels = owned.iter().map(|labels| labels.iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>());
    let each: Vec<_> = readings.iter().zip(labels).collect();
    text.family("netbox_tenants", Kind::Gauge, "Sandboxes and roles that are carried.");
    each.iter().for_each(|(reading, labels)| text.sample("netbox_tenants", labels, reading.tenants));
    text.family("netbox_open_connections", Kind::Gauge, "Connections that are open.");
    each.iter().for_each(|(reading, labels)| text.sample("netbox_open_connections", labels, reading.open));
    for (name, help, number) in COUNTERS {
        text.family(name, Kind::Counter, help);
        let total = format!("{name}_total");
        each.iter().for_each(|(reading, labels)| text.sample(&total, labels, number(&reading.tally)));
    }
    text.family("netbox_bytes", Kind::Counter, "Bytes that were moved, from the tenant's side.");
    for (reading, labels) in &each {
        for (direction, bytes) in [("sent", reading.tally.sent), ("received", reading.tally.received)] {
            text.sample("netbox_bytes_total", &[labels, &[("direction", direction)][..]].concat(), bytes);
        }
    }
    text.family("netbox_decisions", Kind::Counter, "Decisions about connections, and about HTTP requests.");
    for (reading, labels) in &each {
        for (reason, count) in &reading.tally.decisions {
            let own = [("verdict", Verdict::of(*reason).as_str()), ("reason", reason.as_str())];
            text.sample("netbox_decisions_total", &[labels, &own[..]].concat(), count);
        }
    }
    text.family("netbox_ends", Kind::Counter, "Ends of what was allowed.");
    for (reading, labels) in &each {
        for (end, count) in &reading.tally.ends {
            text.sample("netbox_ends_total", &[labels, &[("end", *end)][..]].concat(), count);
        }
    }
    text.family("netbox_limits", Kind::Counter, "How often a tenant reached one of its limits.");
    for (reading, labels) in &each {
        for (bound, count) in &reading.tally.bounds {
            text.sample("netbox_limits_total", &[labels, &[("limit", *bound)][..]].concat(), count);
        }
    }
}

#[cfg(test)]
mod tests;
