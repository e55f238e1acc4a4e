//! What happened, for harnesses: one JSON object a line, and the sums for the summary at the end.
//!
//! # Theory of operation
//!
//! Whoever has something to tell makes the line at once (so that its time is right) and puts it into a queue that never
//! makes it wait. One thread takes lines out and writes them. The queue is bounded in bytes; a line that finds no room,
//! or that the sink does not take (a full disk, a closed pipe), is dropped and counted, and the count stands in the
//! `exit` event. So is a refusal beyond [`REFUSALS`]: a program can have itself refused as often as it likes, and is not
//! to fill the disk, nor the queue that its allowed connections are told through. Counting for the summary happens before the queue, so that it is right whatever the sink does.
//!
//! Everything that comes from inside the sandbox is hostile text: [`line`] cuts and escapes it, so that a line is valid
//! JSON, one line and at most [`MAX_LINE`] bytes whatever stands in it.
//!
//! # What is counted
//!
//! `allowed` and `denied` count by verdict ([`Verdict::of`]): what was allowed and then failed on the far side
//! (`dns-not-found`, `refused`, …) is an `error` and neither of the two, and so is malformed input. Malformed input is
//! refused by netbox all the same, so it is among the refusals of the [`Summary`]; upstream failures are not, since a
//! refusal is never to be mistaken for an outage.

mod counters;
mod line;
mod summary;
mod timestamp;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netbox_config::{Mode, Reason, RuleRef, Via};

pub use line::MAX_LINE;
pub use summary::{MAX_AUDITED, MAX_GROUPS, Reached, Refused, Summary};

use crate::budget::{Allowance, Budget};
use counters::Counters;
use line::Line;
use summary::Sums;
use writer::Writer;

/// How many refusals (and failures) of one sandbox are written: so many at once, and then 1,000 a second. What is
/// allowed is always written.
const REFUSALS: Allowance = Allowance { most: 10_000, refill: Duration::from_millis(1) };

/// 128 random bits that name one run of a sandbox; shown as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// A new one, from the kernel's random numbers.
    ///
    /// # Errors
    /// Where the kernel gives none, which no supported one does.
    pub fn random() -> io::Result<Self> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        Ok(Self(bits))
    }
}

impl From<[u8; 16]> for SessionId {
    fn from(bits: [u8; 16]) -> Self {
        Self(bits)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SessionId({self})")
    }
}

/// The three verdicts of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The policy let it through.
    Allow,
    /// The policy, or a check that goes with it, refused it.
    Deny,
    /// The input was malformed, or it was allowed and the far side failed.
    Error,
}

impl Verdict {
    /// The verdict that goes with a reason.
    #[must_use]
    pub fn of(reason: Reason) -> Self {
        match reason {
            Reason::Listed | Reason::Open | Reason::Audit => Self::Allow,
            Reason::Malformed
            | Reason::DnsNotFound
            | Reason::DnsFailed
            | Reason::Refused
            | Reason::Unreachable
            | Reason::Timeout
            | Reason::UpstreamProxy => Self::Error,
            // Everything else, also what may be added: a reason is a refusal unless it is known not to be.
            _ => Self::Deny,
        }
    }

    /// The word in the event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// The `start` event: the sandbox stands and the command is about to run.
#[derive(Clone, Debug)]
pub struct Start {
    /// The command's first word, as typed.
    pub argv0: String,
    /// The mode of the policy.
    pub mode: Mode,
    /// `Policy::digest`.
    pub policy: String,
    /// Which mechanisms are in force.
    pub walls: Vec<String>,
    /// What was opened beside the policy, as flags.
    pub doors: Vec<String>,
    /// The command's process, as the host numbers it.
    pub pid: u32,
}

/// The process that opened a connection, where it is known.
#[derive(Clone, Debug)]
pub struct Process {
    /// As the host numbers it.
    pub pid: u32,
    /// The path of its executable.
    pub exe: Option<String>,
}

/// The `decision` event: one per connection, or per request on HTTP, after every check that comes before bytes are
/// moved. The verdict follows from `reason`.
#[derive(Clone, Debug)]
pub struct DecisionEvent {
    /// [`Events::next_id`]; ties the `close` event to it.
    pub id: u64,
    /// The name or address that was asked for, as far as it is known; any text.
    pub host: String,
    /// Its port, as far as it is known.
    pub port: Option<u16>,
    /// How it arrived.
    pub via: Via,
    /// Why it was decided so.
    pub reason: Reason,
    /// The rule that decided, if one did.
    pub rule: Option<RuleRef>,
    /// In audit mode: the reason it would have been refused for.
    pub would: Option<Reason>,
    /// The name in the TLS ClientHello.
    pub sni: Option<String>,
    /// The HTTP method.
    pub method: Option<String>,
    /// The URL that was asked for.
    pub url: Option<String>,
    /// Who asked.
    pub process: Option<Process>,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
    /// What almost allowed it.
    pub near: Option<String>,
}

impl DecisionEvent {
    /// A decision of which no more is known than this; the other fields are there to be set.
    #[must_use]
    pub fn new(id: u64, host: impl Into<String>, port: Option<u16>, via: Via, reason: Reason) -> Self {
        Self {
            id,
            host: host.into(),
            port,
            via,
            reason,
            rule: None,
            would: None,
            sni: None,
            method: None,
            url: None,
            process: None,
            hint: None,
            near: None,
        }
    }
}

/// The `close` event: an allowed connection, or request, has ended.
#[derive(Clone, Debug)]
pub struct CloseEvent {
    /// The id of its `decision`.
    pub id: u64,
    /// The `host` of its decision, for the sums.
    pub host: String,
    /// Likewise.
    pub port: Option<u16>,
    /// The address that was dialled; none where nothing was.
    pub addr: Option<SocketAddr>,
    /// Bytes that the sandbox sent.
    pub sent: u64,
    /// Bytes that the sandbox received.
    pub received: u64,
    /// Since it was accepted.
    pub duration: Duration,
    /// How it ended.
    pub end: End,
    /// The name in a TLS ClientHello that came after the decision.
    pub sni: Option<String>,
    /// What the mode let pass after the decision.
    pub passed_late: Option<LatePass>,
}

/// What came after the decision and passed because of the mode.
#[derive(Clone, Debug)]
pub struct LatePass {
    /// Why it would have been refused.
    pub would: Reason,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Both sides were done.
    Done,
    /// One side reset it.
    Reset,
    /// Nothing moved for too long.
    Timeout,
    /// A limit was reached.
    Limit,
    /// The policy changed, and no longer allows it.
    Revoked,
    /// A check after the decision failed. It counts as a refusal like any other.
    Refused(LateRefusal),
    /// The far side failed.
    Upstream,
}

impl End {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Revoked => "revoked",
            Self::Refused(_) => "refused",
            Self::Upstream => "upstream",
        }
    }
}

/// A refusal that came after the decision, with what the summary must know of it.
#[derive(Clone, Debug)]
pub struct LateRefusal {
    /// Why.
    pub reason: Reason,
    /// The decision's `host`.
    pub host: String,
    /// The decision's `port`.
    pub port: Option<u16>,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
}

/// The events of one sandbox. A clone is another handle on the same.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

struct Shared {
    session: SessionId,
    next_id: AtomicU64,
    sums: Mutex<Sums>,
    counters: Counters,
    /// How many refusals may still be written.
    refusals: Budget,
    writer: Option<Writer>,
}

impl Events {
    /// Events that are written to `sink`, or only counted where there is none.
    #[must_use]
    pub fn new(session: SessionId, sink: Option<File>) -> Self {
        Self::with_flush_deadline(session, sink, writer::FLUSH_DEADLINE)
    }

    fn with_flush_deadline(session: SessionId, sink: Option<File>, flush_deadline: Duration) -> Self {
        let writer = sink.map(|sink| Writer::new(sink, flush_deadline));
        let refusals = Budget::new(REFUSALS);
        let next_id = AtomicU64::new(1);
        Self {
            shared: Arc::new(Shared {
                session,
                next_id,
                sums: Mutex::default(),
                counters: Counters::default(),
                refusals,
                writer,
            }),
        }
    }

    /// The sandbox that these events are about.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.shared.session
    }

    /// A number for the next connection or request: 1, 2, 3, …
    pub fn next_id(&self) -> u64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells that the sandbox starts.
    pub fn start(&self, start: Start) {
        self.write(|line| {
            line.text("argv0", &start.argv0, line::ARGV0);
            line.word("mode", &start.mode.to_string());
            line.text("policy", &start.policy, line::DIGEST);
            line.list("walls", &start.walls, line::WALLS);
            if !start.doors.is_empty() {
                line.list("doors", &start.doors, line::DOORS);
            }
            line.number("pid", start.pid.into());
            "start"
        });
    }

    /// Whether they are written anywhere.
    #[must_use]
    pub fn are_written(&self) -> bool {
        self.shared.writer.is_some()
    }

    /// Counts a decision and tells it.
    pub fn decision(&self, decision: DecisionEvent) {
        self.decision_of(decision, || None);
    }

    /// The same, written only while there is some of this budget.
    pub(crate) fn decision_within(&self, budget: &Budget, decision: DecisionEvent) {
        if budget.take() {
            return self.decision(decision);
        }
        if let Some(writer) = &self.shared.writer {
            writer.drop_one();
        }
        self.sums().decision(decision);
    }

    /// The same, about whoever `who` says, which is asked if the event is written.
    pub(crate) fn decision_of(&self, mut decision: DecisionEvent, who: impl FnOnce() -> Option<Process>) {
        if Verdict::of(decision.reason) == Verdict::Allow || self.shared.refusals.take() {
            self.write(|line| {
                decision.process = decision.process.take().or_else(who);
                line.decision(&decision);
                "decision"
            });
        } else if let Some(writer) = &self.shared.writer {
            writer.drop_one();
        }
        self.shared.counters.decided(decision.reason);
        self.sums().decision(decision);
    }

    /// Tells that a connection ended, and counts it if it was refused late.
    pub fn close(&self, close: CloseEvent) {
        self.write(|line| {
            line.close(&close);
            "close"
        });
        self.shared.counters.ended(&close.end);
        self.sums().close(close);
    }

    /// Tells that the sandbox has ended, and waits until everything is written, though not for ever: a sink that takes
    /// nothing more for two seconds is given up. Nothing is written afterwards.
    pub fn exit(&self, code: i32) {
        let Some(writer) = &self.shared.writer else { return };
        let (allowed, denied) = self.sums().counts();
        let session = self.shared.session;
        writer.finish(Box::new(move |dropped| {
            let mut line = Line::new();
            line.number("code", code.into());
            line.number("allowed", allowed.into());
            line.number("denied", denied.into());
            line.number("events_dropped", dropped.into());
            line.finish(session, "exit")
        }));
    }

    /// How many events could not be written so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.writer.as_ref().map_or(0, Writer::dropped)
    }

    /// How often each thing happened.
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The sums so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.sums().summary()
    }

    /// Makes a line, if there is someone to read it; `fill` adds the fields and returns the event's name.
    fn write(&self, fill: impl FnOnce(&mut Line) -> &'static str) {
        if let Some(writer) = &self.shared.writer {
            let mut line = Line::new();
            let event = fill(&mut line);
            writer.send(line.finish(self.shared.session, event));
        }
    }

    /// The sums, also after a panic elsewhere: at worst one of them lacks one.
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.shared.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
