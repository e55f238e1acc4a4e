//! Requests and responses of one client connection, relayed one after the other.
//!
//! # Theory of operation
//!
//! 1. The head of a request is read and parsed. Nothing of it has gone anywhere yet, and what the client pipelines
//!    behind it stays in our buffer until the exchange before it has ended.
//! 2. The [`Door`] judges it and says which upstream connection it travels on. A refusal is answered, and the connection
//!    ends.
//! 3. The request is written from what was parsed, its body as it arrives; at the same time the responses are read,
//!    parsed and passed on, so that a server may answer before the body has ended, and streams are never held back.
//! 4. Only where both are whole and both sides want to go on does the next request follow. A server that has answered a
//!    request whose body is unfinished might take the rest for a request that nobody judged.
//! 5. A 101 that was asked for turns the connection into a tunnel. Any other 101 ends it.
//!
//! The upstream connection belongs to this client connection alone; it is never pooled.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use netbox_config::{Reason, Refusal};
use tokio::time::timeout;

use super::answer::Answer;
use super::body::BodyError;
use super::framing::Framing;
use super::head::{HeadError, HeadScan, Lines};
use super::relay::{self, RelayError, Sink, Source};
use super::request::RequestHead;
use super::response::ResponseHead;
use crate::delivery::Undelivered;
use crate::events::End;
use crate::flow::Revocation;
use crate::record::Record;
use crate::refuse::{Telling, refuse};
use crate::session::Session;
use crate::settled::Tunnel;
use crate::socket::{self, Connection};
use crate::stream::Stream;

/// How much of the next request is read while an answer is awaited, to see that the client is still there.
const READ_AHEAD: usize = 16 * 1024;

/// How much of a body is read and thrown away, so that the connection goes on after a request that was turned away.
const MOST_DISCARDED: usize = 64 * 1024;

/// After how many requests that were turned away a connection ends. A client asks without a token once, and with one then.
const MOST_TURNED_AWAY: usize = 16;

/// How many interim responses may precede a final one.
const MAX_INTERIM: usize = 32;

/// Judges requests: what differs between the ways on which HTTP comes in.
pub(crate) trait Door: Send {
    /// Judges one request, before a byte of it goes anywhere. On `Ok` the connection that it travels on is in
    /// `upstream`, which holds that of the last request; the record has been told.
    fn admit(
        &mut self,
        request: &RequestHead,
        upstream: &mut Option<Connection>,
    ) -> impl Future<Output = Result<Record, Telling>> + Send;

    /// Says who asks, before anything else is made of the request. What is turned away is answered, and the next request of
    /// the connection may be let in.
    fn identify(
        &mut self,
        _client: &mut Connection,
        _request: &RequestHead,
    ) -> impl Future<Output = Result<(), Answer>> + Send {
        async { Ok(()) }
    }

    /// Waits until whoever asked last may no longer ask.
    fn revocation(&self) -> Revocation {
        Revocation::never()
    }

    /// Whether this request is none to be relayed: the exchange ends, and gives it back.
    fn leaves(&self, _request: &RequestHead) -> bool {
        false
    }

    /// Records a request that cannot be parsed, and says how that is told. `bytes` is what there is of it.
    fn unreadable(&mut self, error: &HeadError, bytes: &[u8]) -> Telling;

    /// Records that a connection was given up before its request was whole.
    fn given_up(&mut self);

    /// How it is told that an admitted request failed upstream before anything of a response was passed on.
    fn failed(&self) -> Telling;
}

/// What an exchange leaves.
pub(crate) enum Left {
    /// It has ended.
    Nothing,
    /// A request that is none to be relayed ([`Door::leaves`]), and its connection, in whose buffer is what came behind it.
    Request(Connection, Box<RequestHead>),
    /// The protocol was changed, and it is a tunnel now.
    Tunnel(Box<Tunnel>),
}

/// Relays until one of the sides ends it, or it becomes something else. `upstream` is a connection that was made already.
pub(crate) async fn exchange(
    mut client: Connection,
    upstream: Option<Connection>,
    door: &mut impl Door,
    session: &Session,
) -> Left {
    let revocation = client.revocation();
    let ending = tokio::select! {
        biased;
        () = revocation => Ending::Reset,
        ending = relay_all(&mut client, upstream, door, session) => ending,
    };
    match ending {
        Ending::Left(request) => return Left::Request(client, Box::new(request)),
        Ending::Finish => socket::finish(client.stream).await,
        Ending::Refuse(telling) => refuse(client, telling).await,
        Ending::Reset => socket::reset(client.stream),
        Ending::Tunnel(upstream, record) => {
            return Left::Tunnel(Box::new(Tunnel { client, upstream, gate: None, record: *record }));
        }
    }
    Left::Nothing
}

/// What is done with the client's connection when no request of it is relayed any more. The upstream one has ended.
enum Ending {
    /// It goes on elsewhere, with this request.
    Left(RequestHead),
    /// It ends such that what was written arrives.
    Finish,
    /// It ends with this answer.
    Refuse(Telling),
    /// It ends with a reset.
    Reset,
    /// It becomes a tunnel to this upstream connection, which has not ended.
    Tunnel(Connection, Box<Record>),
}

async fn relay_all(
    client: &mut Connection,
    mut upstream: Option<Connection>,
    door: &mut impl Door,
    session: &Session,
) -> Ending {
    let mut turned_away = 0;
    loop {
        let (bytes, request) = match next_head(client, upstream.as_mut(), session).await {
            Next::Head(head) => {
                let request = RequestHead::parse(&head);
                (head, request)
            }
            Next::Unreadable(error) => (client.buffer.split().freeze(), Err(error)),
            Next::GivenUp => {
                door.given_up();
                return reset(upstream);
            }
            Next::Ended => return Ending::Finish,
            Next::Reset => return reset(upstream),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return Ending::Refuse(door.unreadable(&error, &bytes)),
        };
        drop(bytes);
        if let Err(answer) = door.identify(client, &request).await {
            turned_away += 1;
            let goes_on = answer.asks_for_a_token() && turned_away < MOST_TURNED_AWAY && request.wants_to_persist();
            let Some(body) = bounded_body(client, &request).filter(|_| goes_on) else {
                return Ending::Refuse(Telling::Http(answer, Some(request.method)));
            };
            let bytes = answer.bytes_and_on(Some(&request.method));
            let is_told = socket::write_all(&client.stream, &bytes).await.is_ok();
            if is_told && discard(client, body, session).await {
                continue;
            }
            return Ending::Finish;
        }
        if door.leaves(&request) {
            return Ending::Left(request);
        }
        let revocation = door.revocation();
        let mut record = match door.admit(&request, &mut upstream).await {
            Ok(record) => record,
            Err(telling) => return Ending::Refuse(telling),
        };
        let Some(server) = &mut upstream else { return Ending::Refuse(door.failed()) };
        let ended = tokio::select! {
            biased;
            () = revocation => return reset(upstream),
            ended = relay_one(client, server, &request, &mut record, session) => ended,
        };
        match ended {
            Ended::Whole => record.end(End::Done),
            Ended::Last(end) => {
                record.end(end);
                return Ending::Finish;
            }
            Ended::Unanswered => {
                record.end(End::Upstream);
                return Ending::Refuse(door.failed());
            }
            Ended::UnreadableBody { error, begun } => {
                record.refuse(&Refusal::new(Reason::Malformed));
                // What the server has of it must not look like a whole request.
                upstream.into_iter().for_each(|upstream| socket::reset(upstream.stream));
                let answer = Answer::unreadable(&HeadError::Malformed(error.0));
                return Ending::Refuse(if begun {
                    Telling::Reset
                } else {
                    Telling::Http(answer, Some(request.method))
                });
            }
            Ended::Broken(end) => {
                record.end(end);
                return reset(upstream);
            }
            Ended::Switched => {
                return upstream.map_or(Ending::Reset, |upstream| Ending::Tunnel(upstream, Box::new(record)));
            }
        }
        drop(record);
        // What an idle connection holds is given back.
        socket::release(&mut client.buffer);
    }
}

/// How long the body of a request is that was turned away, where another request can follow it. `None`: it cannot be told
/// where that would begin, or only after too much of this one.
fn bounded_body(client: &Connection, request: &RequestHead) -> Option<usize> {
    match request.framing {
        // What came behind CONNECT is meant for a tunnel, and must not be taken for a request.
        Framing::Length(0) if request.method == "CONNECT" => client.buffer.is_empty().then_some(0),
        // Whoever waits for a word may leave the body out, or not.
        Framing::Length(1..) if request.expects_a_word() => None,
        Framing::Length(length) => usize::try_from(length).ok().filter(|length| *length <= MOST_DISCARDED),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

/// Reads so much of a body and throws it away. Whether all of it came.
async fn discard(client: &mut Connection, mut left: usize, session: &Session) -> bool {
    let discard = async {
        loop {
            let here = left.min(client.buffer.len());
            client.buffer.advance(here);
            left -= here;
            if left == 0 || !matches!(client.fill().await, Ok(1..)) {
                return left == 0;
            }
        }
    };
    session.while_half_open(timeout(session.limits.head, discard)).await.is_some_and(|all| all.unwrap_or(false))
}

fn reset(upstream: Option<Connection>) -> Ending {
    upstream.into_iter().for_each(|upstream| socket::reset(upstream.stream));
    Ending::Reset
}

/// What the client did next.
enum Next {
    Head(Bytes),
    Unreadable(HeadError),
    /// It has half a head at most, and others need its place.
    GivenUp,
    /// The client, or the server meanwhile, ended the connection.
    Ended,
    /// One of them reset it.
    Reset,
}

/// Reads the next head. Between two requests there is no deadline, but the end of the upstream connection; before the first
/// one, the client has not said yet what it wants, however many empty lines it sends.
async fn next_head(client: &mut Connection, upstream: Option<&mut Connection>, session: &Session) -> Next {
    let mut scan = HeadScan::new(Lines::Strict);
    let first = async {
        loop {
            match scan.take(&mut client.buffer) {
                Err(error) => return Some(Next::Unreadable(error)),
                Ok(Some(head)) => return Some(Next::Head(head)),
                Ok(None) if !client.buffer.is_empty() => return None,
                Ok(None) => {}
            }
            match client.fill().await {
                Ok(0) => return Some(Next::Ended),
                Ok(_) => {}
                Err(_) => return Some(Next::Reset),
            }
        }
    };
    let first = match upstream {
        None => tokio::select! {
            biased;
            first = session.while_half_open(timeout(session.limits.silence, first)) => match first {
                Some(Ok(first)) => first,
                Some(Err(_)) => return Next::Ended,
                None => return Next::GivenUp,
            },
            () = session.drained_in_silence() => return Next::Ended,
        },
        Some(upstream) => tokio::select! {
            biased;
            first = first => first,
            next = idle_end(upstream) => return next,
            () = session.drained() => return Next::Ended,
        },
    };
    if let Some(next) = first {
        return next;
    }
    let rest = async {
        loop {
            match client.fill().await {
                Ok(0) => return Next::Unreadable(HeadError::Malformed("the head ends early")),
                Err(_) => return Next::Reset,
                Ok(_) => {}
            }
            match scan.take(&mut client.buffer) {
                Err(error) => return Next::Unreadable(error),
                Ok(Some(head)) => return Next::Head(head),
                Ok(None) => {}
            }
        }
    };
    match session.while_half_open(timeout(session.limits.head, rest)).await {
        Some(Ok(next)) => next,
        Some(Err(_)) => Next::Unreadable(HeadError::Malformed("the head did not arrive in time")),
        None => Next::GivenUp,
    }
}

/// Waits until the server ends an idle connection, or sends what nobody asked for, which ends it too.
async fn idle_end(upstream: &mut Connection) -> Next {
    match upstream.fill().await {
        Ok(_) => Next::Ended,
        Err(_) => Next::Reset,
    }
}

/// How one exchange ended.
enum Ended {
    /// Both messages are whole, and the connection goes on.
    Whole,
    /// All that there is has been passed on, and the connection ends.
    Last(End),
    /// The server failed before anything was passed on.
    Unanswered,
    /// The request's body is malformed. `begun`: some of a response was passed on before.
    UnreadableBody { error: BodyError, begun: bool },
    /// It cannot be ended in order.
    Broken(End),
    /// The protocol changes.
    Switched,
}

/// How the side of the responses ended.
enum Answered {
    /// A final response has been passed on; whether both sides want to go on.
    Final { persists: bool },
    /// A 101 that was asked for.
    Switched,
}

/// Why it did not.
enum Unanswered {
    /// The server ended the connection early, or what it sent is malformed.
    Server,
    /// The server reset the connection.
    ServerReset,
    /// The client takes no more.
    Client,
    /// No more may be moved.
    Limit,
}

/// Relays one request and its responses.
async fn relay_one(
    client: &mut Connection,
    upstream: &mut Connection,
    request: &RequestHead,
    record: &mut Record,
    session: &Session,
) -> Ended {
    if !upstream.buffer.is_empty() {
        return Ended::Broken(End::Upstream);
    }
    let (whole, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts = &record.counts;
    let outcome = {
        let to_server = Sink { stream: &upstream.stream, moved: &counts.sent };
        let to_client = Sink { stream: &client.stream, moved: &counts.received };
        let from_client = Source { stream: &client.stream, buffer: &mut client.buffer };
        let from_server = Source { stream: &upstream.stream, buffer: &mut upstream.buffer };
        let mut ask = pin!(send_request(request, from_client, &mut client.undelivered, &to_server, &whole));
        let mut answer = pin!(pass_responses(request, from_server, &to_client, &begun, session));
        tokio::select! {
            biased;
            answered = &mut answer => answered,
            failed = &mut ask => match failed {
                RelayError::Read => return Ended::Broken(End::Reset),
                RelayError::Limit => return Ended::Broken(End::Limit),
                RelayError::Malformed(error) => return Ended::UnreadableBody { error, begun: begun.load(Ordering::Relaxed) },
                // The server takes no more: it may have answered all the same.
                RelayError::Write => answer.await,
                RelayError::Truncated => {
                    upstream.stream.half_close().await;
                    answer.await
                }
            },
        }
    };
    match outcome {
        Ok(Answered::Switched) if whole.load(Ordering::Relaxed) => Ended::Switched,
        Ok(Answered::Switched) => Ended::Broken(End::Upstream),
        Ok(Answered::Final { persists }) => {
            if persists && whole.load(Ordering::Relaxed) && upstream.buffer.is_empty() {
                Ended::Whole
            } else {
                Ended::Last(End::Done)
            }
        }
        Err(Unanswered::Client) => Ended::Broken(End::Reset),
        Err(Unanswered::Limit) => Ended::Broken(End::Limit),
        Err(_) if !begun.load(Ordering::Relaxed) => Ended::Unanswered,
        Err(Unanswered::ServerReset) => Ended::Broken(End::Upstream),
        Err(Unanswered::Server) => Ended::Last(End::Upstream),
    }
}

/// Sends the request, then watches the client while the answer is awaited. Returns only when something fails; `whole`
/// says when the request has been sent.
async fn send_request(
    request: &RequestHead,
    from: Source<'_>,
    undelivered: &mut Option<Undelivered>,
    to: &Sink<'_>,
    whole: &AtomicBool,
) -> RelayError {
    let mut head = BytesMut::new();
    request.write(&mut head);
    let Source { stream, buffer } = from;
    if let Err(error) = relay::message(head, request.framing, Source { stream, buffer: &mut *buffer }, to).await {
        return error;
    }
    whole.store(true, Ordering::Relaxed);
    // What comes now is the next request, and waits in the buffer.
    while buffer.len() < READ_AHEAD {
        match socket::read(stream, buffer).await {
            Ok(0) => {
                if buffer.is_empty() {
                    to.stream.half_close().await;
                    drop(undelivered.take());
                }
                return pending().await;
            }
            Ok(_) => {}
            Err(_) => return RelayError::Read,
        }
    }
    pending().await
}

/// Passes on interim responses and the final one with its body. `begun` says when something has been passed on.
async fn pass_responses(
    request: &RequestHead,
    from: Source<'_>,
    to: &Sink<'_>,
    begun: &AtomicBool,
    session: &Session,
) -> Result<Answered, Unanswered> {
    let Source { stream, buffer } = from;
    for _ in 0..=MAX_INTERIM {
        let head = response_head(stream, buffer).await?;
        let response = ResponseHead::parse(&head, &request.method).map_err(|_| Unanswered::Server)?;
        let switched = response.status == 101;
        if switched && !request.upgrade().is_some_and(|asked| response.switches_to(&asked)) {
            return Err(Unanswered::Server);
        }
        let persists = request.wants_to_persist() && response.persists() && !session.is_draining();
        let mut out = BytesMut::new();
        response.write(!persists, &mut out);
        begun.store(true, Ordering::Relaxed);
        if switched || response.is_interim() {
            to.write(&out).await.map_err(|_| Unanswered::Client)?;
            if switched {
                return Ok(Answered::Switched);
            }
            continue;
        }
        return match relay::message(out, response.framing, Source { stream, buffer }, to).await {
            Ok(()) => Ok(Answered::Final { persists }),
            Err(RelayError::Read) => Err(Unanswered::ServerReset),
            Err(RelayError::Write) => Err(Unanswered::Client),
            Err(RelayError::Limit) => Err(Unanswered::Limit),
            Err(RelayError::Truncated | RelayError::Malformed(_)) => Err(Unanswered::Server),
        };
    }
    Err(Unanswered::Server)
}

async fn response_head(stream: &Stream, buffer: &mut BytesMut) -> Result<Bytes, Unanswered> {
    let mut scan = HeadScan::new(Lines::Lenient);
    loop {
        match scan.take(buffer) {
            Err(_) => return Err(Unanswered::Server),
            Ok(Some(head)) => return Ok(head),
            Ok(None) => {}
        }
        match socket::read(stream, buffer).await {
            Ok(0) => return Err(Unanswered::Server),
            Ok(_) => {}
            Err(_) => return Err(Unanswered::ServerReset),
        }
    }
}

#[cfg(test)]
mod tests;
