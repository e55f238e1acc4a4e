//! One captured connection, from its original destination to its end.
//!
//! # Theory of operation
//!
//! 1. The original destination becomes the target, a synthetic address by the name that it stands for.
//! 2. The policy decides. A refused connection is told so in its own protocol, for which its first bytes are waited
//!    for, though not for long.
//! 3. What is permitted goes on as every judged connection does (`judged`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Decision, Host, Port, Reason, Refusal, Via};
use tokio::net::TcpStream;

use crate::callers::Origin;
use crate::events::Process;
use crate::flow::Asked;
use crate::judged::{ANSWERED_PORTS, Judged};
use crate::original_destination::Original;
use crate::pipeline;
use crate::record::Record;
use crate::session::Session;
use crate::settled;
use crate::socket::{self, Connection};

/// Carries one captured connection that was meant for `original`, until its end. Dropping it ends the connection and
/// writes its events. It is judged, and counts as undelivered, before the future is first polled.
pub(crate) fn handle(session: Arc<Session>, stream: TcpStream, original: Original) -> impl Future<Output = ()> + Send {
    let since = Instant::now();
    socket::no_delay(&stream);
    let Original { address, is_listener } = original;
    let origin = Origin::of(&session.callers, &stream, address);
    let flow = session.enter();
    let judged = Port::new(address.port()).map(|port| {
        let target = pipeline::target(&session, Host::from_ip(address.ip()), port, Via::Capture);
        let decision = match is_listener {
            true => Err(Refusal::new(Reason::SelfAddress)),
            false => pipeline::admit(&session, &flow, &Asked::Target(target.clone())),
        };
        let record = Record::of(&session.events, &origin, &flow, &target, &decision, since);
        (target, decision, record)
    });
    let client = Connection::of_client(&session, stream, origin, Arc::clone(&flow));
    settled::carry(async move {
        let Some((target, decision, record)) = judged else {
            socket::reset(client.stream);
            return None;
        };
        Judged::new(session, client, flow, target, record).follow(decision).await
    })
}

/// Judges a connection that is about to be made to `destination`, where connects can still be refused. `false`: it is
/// refused, and that has been told; then it is not to be made.
///
/// What would be answered in its own protocol is let through, to be refused when it arrives. What is permitted is
/// judged again then; but it is refused here where it would not arrive ([`Session::caught_ports`]).
pub(crate) fn may_be_made(session: &Session, destination: SocketAddr, who: impl FnOnce() -> Option<Process>) -> bool {
    let Some(port) = Port::new(destination.port()) else { return true };
    let arrives = session.caught_ports.as_ref().is_none_or(|ports| ports.contains(&port.get()));
    if arrives && ANSWERED_PORTS.contains(&port.get()) {
        return true;
    }
    let target = pipeline::target(session, Host::from_ip(destination.ip()), port, Via::Capture);
    let refusal = match pipeline::decide(session, &session.policy(), &target) {
        Decision::Allow(_) if arrives => return true,
        Decision::Allow(_) => Refusal::uncaught(),
        Decision::Refuse(refusal) => refusal,
    };
    let origin = Origin::known(session.events.are_written().then(who).flatten());
    Record::refused(&session.events, &origin, &target, &refusal, Instant::now()).refuse(&refusal);
    false
}

/// Refuses a connection that there is no room for.
pub(crate) fn refuse_over_limit(session: &Session, stream: TcpStream, original: SocketAddr) {
    if let Some(port) = Port::new(original.port()) {
        let target = pipeline::target(session, Host::from_ip(original.ip()), port, Via::Capture);
        let (refusal, origin) = (Refusal::new(Reason::Limit), Origin::of(&session.callers, &stream, original));
        Record::refused(&session.events, &origin, &target, &refusal, Instant::now()).refuse(&refusal);
    }
    socket::reset(stream);
}

#[cfg(test)]
pub(crate) mod tests;
