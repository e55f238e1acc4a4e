//! A connection to a port of the host's loopback that was opened for the sandbox (`--host-port`).
//!
//! It arrives on a listener of its own inside, so there is no original destination: the listener says what is meant. It is
//! judged ([`Policy::decide_host_port`](netbox_config::Policy::decide_host_port)), vetted and dialled like any other, and
//! nothing looks at its bytes.

use std::sync::Arc;
use std::time::Instant;

use netbox_config::{HostPort, Reason, Refusal};
use tokio::net::TcpStream;

use crate::callers::Origin;
use crate::flow::Asked;
use crate::judged::Judged;
use crate::pipeline;
use crate::record::Record;
use crate::session::Session;
use crate::settled;
use crate::socket::{self, Connection};

/// Carries one connection to its end. Dropping it ends the connection and writes its events. It is judged, and counts as
/// undelivered, before the future is first polled.
pub(crate) fn handle(
    session: Arc<Session>,
    stream: TcpStream,
    door: &Arc<HostPort>,
) -> impl Future<Output = ()> + Send + use<> {
    socket::no_delay(&stream);
    let flow = session.enter();
    let decision = pipeline::admit(&session, &flow, &Asked::HostPort(Arc::clone(door)));
    let target = door.target();
    let origin = Origin::at_listener(&session.callers, &stream);
    let record = Record::of(&session.events, &origin, &flow, &target, &decision, Instant::now());
    let client = Connection::of_client(&session, stream, origin, Arc::clone(&flow));
    settled::carry(Judged::new(session, client, flow, target, record).follow(decision))
}

/// Refuses a connection that there is no room for.
pub(crate) fn refuse_over_limit(session: &Session, stream: TcpStream, door: &HostPort) {
    let (refusal, origin) = (Refusal::new(Reason::Limit), Origin::at_listener(&session.callers, &stream));
    Record::refused(&session.events, &origin, &door.target(), &refusal, Instant::now()).refuse(&refusal);
    socket::reset(stream);
}

#[cfg(test)]
mod tests;
