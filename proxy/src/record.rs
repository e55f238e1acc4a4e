//! The record of one connection, or of one request on HTTP: exactly one `decision` event, and a `close` event if it was
//! allowed, whatever happens to it.
//!
//! A record knows from the beginning what the policy said. It is told what the checks after that say; where it is
//! dropped before (the sandbox ended, the connection was cancelled), the policy's word stands.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use netbox_config::{Permit, Port, Reason, Refusal, Target};

use crate::callers::Origin;
use crate::events::{CloseEvent, DecisionEvent, End, Events, LatePass, LateRefusal, Verdict};
use crate::flow::Flow;
use crate::meter::Counts;
use crate::pipeline::Grant;
use crate::tunnel::TunnelEnd;

/// One connection or request, for the events.
pub(crate) struct Record {
    events: Events,
    origin: Origin,
    event: DecisionEvent,
    target: Target,
    since: Instant,
    address: Option<SocketAddr>,
    decided: bool,
    end: Option<End>,
    flow: Option<Arc<Flow>>,
    late: Late,
    /// What has been moved for it.
    pub(crate) counts: Arc<Counts>,
}

/// What a program said after its connection was told of, where the server had spoken first. A clone is another handle on the
/// same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late(Arc<(OnceLock<String>, OnceLock<Reason>)>);

impl Late {
    /// The TLS server name that was seen.
    pub(crate) fn saw_sni(&self, sni: &str) {
        // There is one hello.
        let _ = self.0.0.set(sni.to_owned());
    }

    /// It passes although a check would refuse it, because of the mode.
    pub(crate) fn would_be(&self, would: Reason) {
        let _ = self.0.1.set(would);
    }
}

impl Record {
    /// A record of what was decided about a flow.
    pub(crate) fn of(
        events: &Events,
        origin: &Origin,
        flow: &Arc<Flow>,
        target: &Target,
        decision: &Result<Grant, Refusal>,
        since: Instant,
    ) -> Self {
        match decision {
            Ok(grant) => Self::permitted(events, origin, flow, &grant.permit, since),
            Err(refusal) => Self::refused(events, origin, target, refusal, since),
        }
    }

    /// A record of what a flow is permitted.
    pub(crate) fn permitted(
        events: &Events,
        origin: &Origin,
        flow: &Arc<Flow>,
        permit: &Permit,
        since: Instant,
    ) -> Self {
        let mut record = Self::new(events, origin, permit.target(), permit.reason(), since);
        record.counts = flow.count();
        record.flow = Some(Arc::clone(flow));
        record.event.rule = permit.rule();
        record.event.would = permit.would();
        record.event.hint = permit.would().and_then(|would| Refusal::new(would).hint(permit.target()));
        record
    }

    /// A record of what is refused. The event is still to come: what the first bytes say belongs to it.
    pub(crate) fn refused(
        events: &Events,
        origin: &Origin,
        target: &Target,
        refusal: &Refusal,
        since: Instant,
    ) -> Self {
        let mut record = Self::new(events, origin, target, refusal.reason(), since);
        record.will_refuse(refusal);
        record
    }

    fn new(events: &Events, origin: &Origin, target: &Target, reason: Reason, since: Instant) -> Self {
        let (host, port) = (target.host().to_string(), Some(target.port().get()));
        Self {
            events: events.clone(),
            origin: origin.clone(),
            event: DecisionEvent::new(events.next_id(), host, port, target.via(), reason),
            target: target.clone(),
            since,
            address: None,
            decided: false,
            end: None,
            flow: None,
            late: Late::default(),
            counts: Arc::default(),
        }
    }

    /// Who is behind the connection.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Where what comes after the decision is told.
    pub(crate) fn late(&self) -> Late {
        self.late.clone()
    }

    /// The TLS server name that was seen.
    pub(crate) fn saw_sni(&mut self, sni: impl Into<String>) {
        self.event.sni = Some(sni.into());
    }

    /// The request that was seen.
    pub(crate) fn saw_request(&mut self, method: &str, path: &[u8]) {
        self.event.method = Some(method.to_owned());
        // As a person writes it: without the port that `http` has anyway.
        let authority = match self.target.port() {
            Port::HTTP => self.target.to_string().trim_end_matches(":80").to_owned(),
            _ => self.target.to_string(),
        };
        self.event.url = Some(format!("http://{authority}{}", String::from_utf8_lossy(path)));
    }

    /// It passes although a check would refuse it, because of the mode. In mode `open` that is nothing to tell.
    pub(crate) fn would_be(&mut self, would: Reason) {
        if self.event.reason != Reason::Open {
            // The rule that allowed the host is not what lets this through.
            self.event.reason = Reason::Audit;
            self.event.rule = None;
            self.event.would.get_or_insert(would);
            // A rule for the host alone would not let it through.
            self.event.hint = Refusal::new(would).hint(&self.target);
        }
    }

    /// It is allowed and connected to this address.
    pub(crate) fn allow(&mut self, address: SocketAddr) {
        self.address = Some(address);
        self.decide();
    }

    /// It is allowed, and ended before anything was sent; `address` is what was dialled, if something was.
    pub(crate) fn ended_unused(&mut self, address: Option<SocketAddr>, end: End) {
        self.address = address;
        self.end = Some(end);
        self.decide();
    }

    /// It will be refused, and what is still to be seen belongs to the event. Not for one that was decided.
    pub(crate) fn will_refuse(&mut self, refusal: &Refusal) {
        self.event.reason = refusal.reason();
        self.event.rule = refusal.rule();
        self.event.hint = refusal.hint(&self.target);
        self.event.near = refusal.near_miss().map(ToString::to_string);
        self.event.would = None;
    }

    /// It is refused: by the decision, or late, if that was made before.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        if self.decided {
            self.end = Some(match refusal.reason() {
                Reason::Revoked => End::Revoked,
                reason => End::Refused(LateRefusal {
                    reason,
                    host: self.event.host.clone(),
                    port: self.event.port,
                    hint: refusal.hint(&self.target),
                }),
            });
            return;
        }
        self.will_refuse(refusal);
        self.decide();
    }

    /// It was allowed, and the lookup or the far side failed.
    pub(crate) fn fail(&mut self, reason: Reason) {
        self.end = Some(End::Upstream);
        if !self.decided {
            self.event.reason = reason;
            self.decide();
        }
    }

    /// How it ended, if it was allowed.
    pub(crate) fn end(&mut self, end: End) {
        self.end = Some(end);
    }

    /// How the tunnel that it became ended.
    pub(crate) fn tunnel_ended(&mut self, end: TunnelEnd) {
        match end {
            TunnelEnd::Done => self.end(End::Done),
            TunnelEnd::Reset => self.end(End::Reset),
            TunnelEnd::Revoked => self.end(End::Revoked),
            TunnelEnd::Limit => self.end(End::Limit),
            TunnelEnd::Refused(refusal) => self.refuse(&refusal),
        }
    }

    /// What passed late and would have been refused. In mode `open` that is nothing to tell.
    fn passed_late(&self) -> Option<LatePass> {
        let would = *self.late.0.1.get().filter(|_| self.event.reason != Reason::Open)?;
        Some(LatePass { would, hint: Refusal::new(would).hint(&self.target) })
    }

    fn decide(&mut self) {
        if !self.decided {
            self.decided = true;
            self.events.decision_of(self.event.clone(), || self.origin.process());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Whoever knows how it ended has said so.
        if self.end.is_none() && self.flow.as_ref().is_some_and(|flow| flow.is_revoked()) {
            self.refuse(&Refusal::new(Reason::Revoked));
        }
        self.decide();
        if Verdict::of(self.event.reason) == Verdict::Allow {
            self.events.close(CloseEvent {
                id: self.event.id,
                sni: self.late.0.0.get().cloned(),
                passed_late: self.passed_late(),
                host: std::mem::take(&mut self.event.host),
                port: self.event.port,
                addr: self.address,
                sent: self.counts.sent.bytes(),
                received: self.counts.received.bytes(),
                duration: self.since.elapsed(),
                end: self.end.take().unwrap_or(End::Reset),
            });
        }
    }
}
