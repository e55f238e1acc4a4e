//! One sandbox, as the proxy knows it: its policy and names, whom to tell, how to dial, and what is too much.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netbox_config::{Decision, Host, Policy, Reason, Refusal, Via};
use tokio::sync::watch;

use crate::agreement::{self, Agreement};
use crate::callers::Callers;
use crate::capture;
use crate::delivery::Deliveries;
use crate::dial::{Dialer, HappyEyeballs};
use crate::dns::Names;
use crate::events::{DecisionEvent, Events, Process};
use crate::facts::Facts;
use crate::first_bytes::FirstBytes;
use crate::flow::{Flow, Flows, Seen};
use crate::half_open::{self, HalfOpen};
use crate::nesting::Outer;
use crate::pipeline::{self, Grant};
use crate::quota::Quota;
use crate::share::OF_A_CONNECTION;

/// How many different destinations of refused UDP are told of. A program can make up any number.
const UDP_DESTINATIONS: usize = 4096;

/// One sandbox. Shared by all of its connections.
pub struct Session {
    /// The policy, and the names that the sandbox was given addresses for.
    pub names: Arc<Names>,
    /// Where decisions are told.
    pub events: Events,
    /// What is known about this host.
    pub facts: Facts,
    /// How connections are made.
    pub dialer: Arc<dyn Dialer>,
    /// The netbox that this one is inside of, which then makes the connections.
    pub outer: Option<Outer>,
    /// Deadlines and bounds.
    pub limits: Limits,
    /// Who opened the connections that are still to be judged.
    pub callers: Callers,
    /// The ports on which connections arrive, where the sandbox's kernel has no nf_tables. `None`: from every port.
    pub caught_ports: Option<Vec<u16>>,
    /// What must be delivered before the session may end.
    pub(crate) deliveries: Deliveries,
    /// Who has not said yet what it wants.
    pub(crate) half_open: HalfOpen,
    /// Its connections.
    pub(crate) flows: Flows,
    draining: watch::Sender<bool>,
    /// Held by whoever replaces the policy: one after the other.
    replacing: Mutex<()>,
    udp: Mutex<HashSet<SocketAddr>>,
}

/// Deadlines and bounds of a sandbox's connections. [`Limits::default`] gives the documented values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many connections are open at once; further ones are reset. 4096.
    pub connections: usize,
    /// How many of them may not have said yet what they want: no first bytes, or half a head. The one that has waited
    /// longest is ended for the next. 1024.
    pub half_open: usize,
    /// How long a refused connection to port 80, 443, 8080 or 8443 has for its first bytes, so that it can be answered in
    /// its own protocol. 5 seconds.
    pub refused: Duration,
    /// The same for any other port. 50 milliseconds.
    pub refused_other: Duration,
    /// How long a permitted connection to port 80 or 443 may stay silent, and one to the explicit listener: browsers open
    /// some ahead. 2 minutes.
    pub silence: Duration,
    /// How long first bytes may take from the first one until it is known what they are. 10 seconds.
    pub first_bytes: Duration,
    /// How long a first word that is no known HTTP method is held for the rest of its line, before it is let go and the
    /// rest is watched. 100 milliseconds.
    pub word: Duration,
    /// How long the head of an HTTP request may take from its first byte, or a SOCKS5 greeting and request. 30 seconds.
    pub head: Duration,
    /// How long what a sandbox sent before its end is delivered for. 5 seconds.
    pub delivery: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            half_open: 1024,
            refused: Duration::from_secs(5),
            refused_other: Duration::from_millis(50),
            silence: Duration::from_secs(120),
            first_bytes: Duration::from_secs(10),
            word: Duration::from_millis(100),
            head: Duration::from_secs(30),
            delivery: Duration::from_secs(5),
        }
    }
}

/// The most connections that may be half open, whatever the descriptors: as many as of all sandboxes together. One that is
/// not half open holds what it could not write yet, which is some 100 KiB at the most, and an idle one nothing.
const MOST_HALF_OPEN: usize = half_open::MOST_IN_ALL;

/// Descriptors that are left for everything that is no connection: listeners, events, pipes, lookups.
const SPARE_DESCRIPTORS: u64 = 200;

/// How long a connection that has not asked for anything may go on once no more are taken: a round trip, even a long one.
const FIRST_WORD: Duration = Duration::from_millis(500);

impl Limits {
    /// As many connections, of `most` at most, as a process can hold that may open so many descriptors: each takes two. A
    /// quarter of them may be half open, 4096 at most.
    #[must_use]
    pub fn with_room_for(self, most: usize, descriptors: u64) -> Self {
        let pairs = spare(descriptors) / OF_A_CONNECTION;
        let connections = usize::try_from(pairs).unwrap_or(usize::MAX).min(most).max(1);
        Self { connections, half_open: (connections / 4).clamp(1, MOST_HALF_OPEN), ..self }
    }
}

/// How many of a process's descriptors are there for connections.
pub(crate) fn spare(descriptors: u64) -> u64 {
    descriptors.saturating_sub(SPARE_DESCRIPTORS).max(descriptors / 4)
}

impl Session {
    /// A sandbox that dials from this host, with the default limits, and does not care who connects. All of that is
    /// there to be set.
    #[must_use]
    pub fn new(names: Arc<Names>, events: Events, facts: Facts) -> Self {
        Self {
            names,
            events,
            facts,
            dialer: Arc::new(HappyEyeballs),
            outer: None,
            limits: Limits::default(),
            callers: Callers::default(),
            caught_ports: None,
            deliveries: Deliveries::default(),
            half_open: HalfOpen::default(),
            flows: Flows::default(),
            draining: watch::Sender::new(false),
            replacing: Mutex::default(),
            udp: Mutex::default(),
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.names.policy.now()
    }

    /// How many connections of the sandbox are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.flows.count()
    }

    /// How many connections there have ever been.
    #[must_use]
    pub fn connections_taken(&self) -> u64 {
        self.flows.total()
    }

    /// What the sandbox may use, and has used.
    #[must_use]
    pub fn quota(&self) -> &Arc<Quota> {
        &self.names.quota
    }

    /// How many connections may be open at once, at this moment.
    pub(crate) fn most_connections(&self) -> usize {
        self.quota().connections(self.limits.connections)
    }

    /// Takes no more connections. Those that are open may finish; those that carry nothing at the moment end,
    /// and those that have not asked for anything yet half a second later.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Whether no more connections are taken.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Waits until no more connections are taken.
    pub(crate) async fn drained(&self) {
        // An error says that there is no sender left, and `self` holds it.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Waits until no more connections are taken, and those that had connected before have been.
    pub(crate) async fn closed(&self) {
        self.drained().await;
        self.flows.closed().await;
    }

    /// Until no more connections are taken, and a moment more: whoever connected just before may be about to say what it wants.
    pub(crate) async fn drained_in_silence(&self) {
        self.drained().await;
        tokio::time::sleep(FIRST_WORD).await;
    }

    /// Whether none is open, and none may come: after [`drain`](Self::drain), what had connected before has been taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flows.have_ended()
    }

    /// Waits until it [is idle](Self::is_idle).
    pub async fn idle(&self) {
        self.flows.end().await;
    }

    /// Puts another policy in force. Every connection that it does not allow is reset, and ends as `revoked`; the others
    /// are not touched. Gives the number of those that it ends.
    ///
    /// Names that were looked up before keep their addresses; whether one may be reached is judged as ever.
    pub fn replace_policy(&self, policy: Arc<Policy>) -> usize {
        let _one_at_a_time = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        // In this order: see `flow`.
        self.names.policy.replace(Arc::clone(&policy));
        let judged = self.flows.live().into_iter().filter(|flow| !self.allows(&policy, &flow.seen()));
        judged.inspect(|flow| flow.revoke()).count()
    }

    /// Whether what is known of a flow is allowed by this policy.
    fn allows(&self, policy: &Policy, seen: &Seen) -> bool {
        let Some(permitted) = &seen.permitted else { return true };
        let Decision::Allow(permit) = pipeline::judge(self, policy, &permitted.asked) else { return false };
        if let Some(address) = seen.address
            && policy.vet(&permit, address.ip(), &self.facts.current()).is_err()
        {
            return false;
        }
        if permit.is_raw() {
            return true;
        }
        let first = |first| !matches!(agreement::agree(&self.names, policy, &permit, first), Agreement::Refuse(_));
        let authority = |authority| agreement::authority(&self.names, policy, &permit, authority).is_ok();
        // What nobody has looked at may be anything.
        !permitted.raw && seen.first.iter().all(first) && seen.authorities.iter().all(authority)
    }

    /// Judges the first bytes of what was permitted, and notes them in its flow.
    pub(crate) fn agree(&self, flow: &Flow, grant: &Grant, first: &FirstBytes) -> Agreement {
        let agreement = agreement::agree(&self.names, &grant.policy, &grant.permit, first);
        if matches!(agreement, Agreement::Refuse(_)) {
            return agreement;
        }
        flow.said(first.clone());
        self.confirm(flow, &grant.policy).map_or_else(Agreement::Refuse, |()| agreement)
    }

    /// Makes sure that the policy by which a flow was judged is still in force, after something was noted in it; else
    /// judges it again.
    ///
    /// # Errors
    /// It is revoked.
    pub(crate) fn confirm(&self, flow: &Flow, judged_by: &Arc<Policy>) -> Result<(), Refusal> {
        if !self.names.policy.is(judged_by) && !self.allows(&self.policy(), &flow.seen()) {
            flow.revoke();
        }
        if flow.is_revoked() { Err(Refusal::new(Reason::Revoked)) } else { Ok(()) }
    }

    /// Whether a program of the sandbox may connect to `destination` by TCP, asked before it does. A refusal is told here,
    /// once; the program is to see EACCES. Connects to ports 80, 443, 8080 and 8443 may always be made: they are
    /// answered in their own protocol. `who` is asked who connects, if it is told anywhere.
    ///
    /// Fast, and from any thread.
    #[must_use]
    pub fn may_connect(&self, destination: SocketAddr, who: impl FnOnce() -> Option<Process>) -> bool {
        capture::may_be_made(self, destination, who)
    }

    /// Waits for what a connection says, which takes a place among those that have not spoken. `None`: it was given up.
    pub(crate) async fn while_half_open<T>(&self, speech: impl Future<Output = T>) -> Option<T> {
        let said = self.half_open.wait(self.quota().half_open(self.limits.half_open), speech).await;
        if said.is_none() {
            self.quota().gave_one_up();
        }
        said
    }

    /// A connection has been accepted.
    pub(crate) fn enter(&self) -> Arc<Flow> {
        self.flows.enter(self.quota())
    }

    /// Tells that a datagram to `destination` was refused, once for each destination (the first 4096 of them).
    ///
    /// The kernel has refused it already; this is for the events and the summary.
    pub fn note_udp_refused(&self, destination: SocketAddr) {
        let mut told = self.udp.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= UDP_DESTINATIONS || !told.insert(destination) {
            return;
        }
        drop(told);
        let host = match self.names.synthetic.name_of(destination.ip()) {
            Some(name) => Host::Name(name),
            None => Host::from_ip(destination.ip()),
        };
        let (id, port) = (self.events.next_id(), Some(destination.port()));
        self.events.decision(DecisionEvent::new(id, host.to_string(), port, Via::Capture, Reason::Udp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_the_descriptors() {
        let limits = |most, descriptors| {
            let limits = Limits::default().with_room_for(most, descriptors);
            (limits.connections, limits.half_open)
        };
        assert_eq!(limits(4096, 1 << 20), (4096, 1024));
        assert_eq!(limits(usize::MAX, 20_000), (9900, 2475));
        assert_eq!(limits(usize::MAX, 1 << 20), (524_188, 4096));
        assert_eq!(limits(4096, 256), (32, 8));
        assert_eq!(limits(4096, 0), (1, 1));
    }
}
