//! The explicit listener: for programs that are told of a proxy, inside a sandbox or on the host.
//!
//! # Theory of operation
//!
//! 1. One port speaks three protocols, told apart by the first byte: 5 is SOCKS5 ([`socks5`], RFC 1928), a character of a
//!    token is HTTP/1 ([`requests`] and [`connect`], RFC 9110). Nothing else is answered: not SOCKS4, and not TLS, since
//!    this is no HTTPS proxy.
//! 2. Each names its target, which travels the one way of all targets: judged, looked up, vetted, dialled (`pipeline`).
//!    Nothing is answered before: a program that is told `200` or reply 0 has its connection.
//! 3. What a tunnel carries is judged by its first bytes as on any other connection (`judged`).
//! 4. In the absolute form every request is judged on its own.
//!
//! A loopback address behind this door is the host's, which the guard refuses unless a rule names it. An address that
//! stands for a name in this sandbox becomes that name, so a program may resolve before it asks.

mod connect;
mod opened;
mod requests;
pub(crate) mod socks5;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use netbox_config::{Reason, Via};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::callers::Origin;
use crate::events::DecisionEvent;
use crate::first_bytes::is_token;
use crate::service::credentials::Entrance;
use crate::session::Session;
use crate::settled;
use crate::socket::{self, Connection};
use crate::stream::Stream;
use crate::tls::{Identity, TlsStream};

/// The most of a malformed target that events get to see.
const MAX_EXCERPT: usize = 512;

/// Carries one connection to its end. Dropping it ends the connection and writes its events. It counts as undelivered
/// before the future is first polled.
///
/// `entrance`: what is asked of whoever comes in, at a listener of the shared service.
pub(crate) fn handle(
    session: Arc<Session>,
    entrance: Option<Arc<Entrance>>,
    stream: TcpStream,
) -> impl Future<Output = ()> + Send {
    socket::no_delay(&stream);
    // On this machine nobody vanishes without a word.
    if stream.peer_addr().is_ok_and(|peer| !peer.ip().to_canonical().is_loopback()) {
        socket::keep_alive(&stream);
    }
    let (origin, flow) = (Origin::at_listener(&session.callers, &stream), session.enter());
    let mut client = Connection::of_client(&session, stream, origin, Arc::clone(&flow));
    settled::carry(async move {
        if let Some(identity) = entrance.as_ref().and_then(|entrance| entrance.tls.as_ref()) {
            // Few listeners have it, and all would pay for its size.
            client = match Box::pin(behind_tls(&session, client, identity)).await {
                Some(client) => client,
                None => return None,
            };
        }
        let door = entrance.as_ref().map(|entrance| &entrance.door);
        let first = tokio::select! {
            biased;
            first = session.while_half_open(timeout(session.limits.silence, client.fill())) => first,
            () = session.drained_in_silence() => return None,
        };
        match first {
            Some(Ok(Ok(1..))) => {}
            // Nothing was asked for: there is nothing to judge.
            _ => return None,
        }
        match client.buffer.first() {
            // In boxes, so that a connection that has said nothing yet does not pay for their size.
            Some(&socks5::VERSION) => Box::pin(socks5::serve(session, door, client, flow)).await,
            // Servers skip empty lines before a request (RFC 9112 §2.2).
            Some(&byte) if is_token(byte) || byte == b'\r' => {
                Box::pin(requests::serve(session, door, client, flow)).await
            }
            first => {
                let foreign = matches!(first, Some(&(SOCKS4 | TLS)));
                refused(
                    &session,
                    &client.origin,
                    Via::Http,
                    b"",
                    if foreign { Reason::Unsupported } else { Reason::Malformed },
                );
                socket::reset(client.stream);
                None
            }
        }
    })
}

/// The same connection behind TLS. `None`: there was no handshake, or none in time. That counts as half a head.
async fn behind_tls(session: &Session, client: Connection, identity: &Identity) -> Option<Connection> {
    let Connection { stream: Stream::Plain(socket), .. } = client else { return None };
    let shaken = timeout(session.limits.first_bytes, TlsStream::accept(socket, identity));
    let shaken = tokio::select! {
        biased;
        shaken = session.while_half_open(shaken) => shaken,
        () = session.drained_in_silence() => None,
    };
    match shaken {
        Some(Ok(Ok(stream))) => return Some(Connection { stream: Stream::Tls(Box::new(stream)), ..client }),
        Some(Ok(Err(error))) if error.kind() == io::ErrorKind::InvalidData => {
            refused(session, &client.origin, Via::Http, b"", Reason::Malformed);
        }
        // Nothing was asked for.
        _ => {}
    }
    None
}

/// The first bytes of SOCKS4, and of a TLS record with a handshake.
const SOCKS4: u8 = 4;
const TLS: u8 = 22;

/// Refuses a connection that there is no room for.
pub(crate) fn refuse_over_limit(session: &Session, stream: TcpStream) {
    refused(session, &Origin::at_listener(&session.callers, &stream), Via::Http, b"", Reason::Limit);
    socket::reset(stream);
}

/// Tells of what was refused before there was a target. `text` is what stands where it should.
fn refused(session: &Session, origin: &Origin, via: Via, text: &[u8], reason: Reason) {
    let text = without_userinfo(text);
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_EXCERPT)]).into_owned();
    let event = DecisionEvent::new(session.events.next_id(), text, None, via, reason);
    session.events.decision_of(event, || origin.process());
}

/// What stands before the `@` of an authority may be a password or a token, and is for nobody's eyes.
fn without_userinfo(text: &[u8]) -> Cow<'_, [u8]> {
    let begin = text.windows(3).position(|bytes| bytes == b"://").map_or(0, |at| at + 3);
    let end = text[begin..].iter().position(|byte| b"/?#".contains(byte)).map_or(text.len(), |length| begin + length);
    match text[begin..end].iter().rposition(|byte| *byte == b'@') {
        Some(at) => [&text[..begin], "…".as_bytes(), &text[begin + at..]].concat().into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
