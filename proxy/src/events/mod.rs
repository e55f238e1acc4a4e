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
mod destination;
mod event;
mod line;
mod relay;
mod session_id;
mod summary;
mod timestamp;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use destination::{Collecting, Destination};
pub use event::{CloseEvent, DecisionEvent, End, LatePass, LateRefusal, Process, Start, Verdict};
pub use line::MAX_LINE;
pub use relay::Relay;
pub use session_id::{NoSessionId, SessionId};
pub use summary::{MAX_AUDITED, MAX_GROUPS, Reached, Refused, Summary};

use crate::budget::{Allowance, Budget};
use counters::Counters;
use line::Line;
use summary::Sums;
pub(crate) use summary::Totals;
use writer::Writer;

/// How many refusals (and failures) of one sandbox are written: so many at once, and then 1,000 a second. What is
/// allowed is always written.
const REFUSALS: Allowance = Allowance { most: 10_000, refill: Duration::from_millis(1) };

/// Somebody who is told of the events of a sandbox, and must not be waited for.
pub trait Outlet: Send + Sync {
    /// Whether the lines are wanted.
    fn wants_lines(&self) -> bool;

    /// Takes a line, its newline included. `false`: it has no room for it, and the line is dropped.
    fn line(&self, line: &[u8]) -> bool;

    /// The sums have changed.
    fn counted(&self);
}

/// The events of one sandbox. A clone is another handle on the same.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

struct Shared {
    session: SessionId,
    /// The role of a service that they are about.
    role: Option<Arc<str>>,
    next_id: AtomicU64,
    sums: Mutex<Sums>,
    counters: Counters,
    /// How many refusals may still be written.
    refusals: Budget,
    writer: Option<Writer>,
    outlets: Vec<Arc<dyn Outlet>>,
    /// Lines that an outlet, or somebody who told of them from afar, had no room for.
    dropped: AtomicU64,
}

impl Events {
    /// Events that are written to `sink`, or only counted where there is none.
    #[must_use]
    pub fn new(session: SessionId, sink: Option<Destination>) -> Self {
        Self::with_flush_deadline(session, sink, writer::FLUSH_DEADLINE)
    }

    fn with_flush_deadline(session: SessionId, sink: Option<Destination>, flush_deadline: Duration) -> Self {
        Self::of(session, None, 1, sink.map(|sink| Writer::new(sink, flush_deadline)), Vec::new())
    }

    /// Has what is told from now on written there, if it is written anywhere.
    pub fn redirect(&self, sink: Destination) {
        if let Some(writer) = &self.shared.writer {
            writer.redirect(sink);
        }
    }

    /// Events that `outlets` are told of, numbered from `first_id` on.
    #[must_use]
    pub fn told_to(outlets: Vec<Arc<dyn Outlet>>, session: SessionId, first_id: u64) -> Self {
        Self::of(session, None, first_id, None, outlets)
    }

    /// Events about the clients of a role, told to `outlets`: each line says which role.
    #[must_use]
    pub fn of_role(role: Arc<str>, outlets: Vec<Arc<dyn Outlet>>, session: SessionId) -> Self {
        Self::of(session, Some(role), 1, None, outlets)
    }

    fn of(
        session: SessionId,
        role: Option<Arc<str>>,
        first_id: u64,
        writer: Option<Writer>,
        outlets: Vec<Arc<dyn Outlet>>,
    ) -> Self {
        let (next_id, refusals, dropped) = (AtomicU64::new(first_id), Budget::new(REFUSALS), AtomicU64::new(0));
        Self {
            shared: Arc::new(Shared {
                session,
                role,
                next_id,
                sums: Mutex::default(),
                counters: Counters::default(),
                refusals,
                writer,
                outlets,
                dropped,
            }),
        }
    }

    /// The role that these events are about, if they are about one.
    pub(crate) fn role(&self) -> Option<&str> {
        self.shared.role.as_deref()
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
        self.begin(&start, None);
    }

    /// Tells that a sandbox of this user is carried from now on.
    pub fn attached(&self, start: &Start, uid: u32) {
        self.begin(start, Some(uid));
    }

    fn begin(&self, start: &Start, uid: Option<u32>) {
        self.write(|line| {
            line.text("argv0", &start.argv0, line::ARGV0);
            line.word("mode", &start.mode.to_string());
            line.text("policy", &start.policy, line::DIGEST);
            line.list("walls", &start.walls, line::WALLS);
            if !start.doors.is_empty() {
                line.list("doors", &start.doors, line::DOORS);
            }
            line.number("pid", start.pid.into());
            if let Some(uid) = uid {
                line.number("uid", uid.into());
            }
            "start"
        });
    }

    /// Whether they are written anywhere.
    #[must_use]
    pub fn are_written(&self) -> bool {
        self.shared.writer.is_some() || self.shared.outlets.iter().any(|outlet| outlet.wants_lines())
    }

    /// From now on the numbers of connections begin here: those below are given by somebody else.
    pub fn number_from(&self, id: u64) {
        self.shared.next_id.store(id, Ordering::Relaxed);
    }

    /// Writes a line that was made elsewhere, about this sandbox. `false`: it is none.
    pub fn relay(&self, line: &str) -> bool {
        let is_whole = |line: &str| line.starts_with('{') && !line.contains('\n');
        let is_line = line.len() <= MAX_LINE && line.strip_suffix('\n').is_some_and(is_whole);
        if let (true, Some(writer)) = (is_line, &self.shared.writer) {
            writer.send(line.as_bytes().to_vec());
        }
        is_line
    }

    /// Adds what was counted elsewhere, about this sandbox, and how many lines were dropped there.
    pub fn add(&self, summary: &Summary, dropped: u64) {
        self.sums().add(summary);
        self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
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
        if self.are_written() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.sums().decision(decision);
        self.tell_counted();
    }

    /// The same, about whoever `who` says, which is asked if the event is written.
    pub(crate) fn decision_of(&self, mut decision: DecisionEvent, who: impl FnOnce() -> Option<Process>) {
        if Verdict::of(decision.reason) == Verdict::Allow || self.shared.refusals.take() {
            self.write(|line| {
                decision.process = decision.process.take().or_else(who);
                line.decision(&decision);
                "decision"
            });
        } else if self.are_written() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.counters.decided(decision.reason);
        self.sums().decision(decision);
        self.tell_counted();
    }

    /// Tells that a connection ended, and counts it if it was refused late.
    pub fn close(&self, close: CloseEvent) {
        self.write(|line| {
            line.close(&close);
            "close"
        });
        self.shared.counters.ended(&close.end);
        self.sums().close(close);
        self.tell_counted();
    }

    fn tell_counted(&self) {
        self.shared.outlets.iter().for_each(|outlet| outlet.counted());
    }

    /// Tells that the sandbox has ended, and waits until everything is written, though not for ever: a sink that takes
    /// nothing more for two seconds is given up. Nothing is written afterwards.
    pub fn exit(&self, code: i32) {
        let Some(writer) = &self.shared.writer else { return };
        let (allowed, denied) = self.sums().counts();
        let (session, before) = (self.shared.session, self.shared.dropped.load(Ordering::Relaxed));
        writer.finish(Box::new(move |dropped| {
            let dropped = before + dropped;
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
        self.shared.dropped.load(Ordering::Relaxed) + self.shared.writer.as_ref().map_or(0, Writer::dropped)
    }

    /// The counts so far, without what they are made of.
    pub(crate) fn totals(&self) -> Totals {
        self.sums().totals()
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
        if !self.are_written() {
            return;
        }
        let mut line = Line::new();
        let event = fill(&mut line);
        if let Some(role) = &self.shared.role {
            line.text("role", role, line::ROLE);
        }
        let line = line.finish(self.shared.session, event);
        let full = |outlet: &&Arc<dyn Outlet>| outlet.wants_lines() && !outlet.line(&line);
        let dropped = self.shared.outlets.iter().filter(full).count();
        self.shared.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        if let Some(writer) = &self.shared.writer {
            writer.send(line);
        }
    }

    /// The sums, also after a panic elsewhere: at worst one of them lacks one.
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.shared.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
