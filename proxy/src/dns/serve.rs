//! The sockets of name resolution: datagrams, and streams with a length before each message (RFC 1035 §4.2, RFC 7766).
//!
//! They were made inside the sandbox; whatever server a program meant to ask, its query is redirected here, and the
//! answer seems to come from there. What a program can make us hold is bounded: queries that wait for the host by
//! [`LOOKUPS_IN_FLIGHT`] for all servers of a sandbox together, streams by [`MAX_STREAMS`] each with one query at a
//! time, and each by a deadline. Of the streams that have no query to be answered, those that have waited longest make
//! room for new ones.
//!
//! [`LOOKUPS_IN_FLIGHT`]: super::LOOKUPS_IN_FLIGHT

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Names;
use super::answer::{Step, finish, plan};
use super::reply::{Extra, Reply};
use super::wire::{Echo, MAX_QUERY, Parsed, Rcode, parse};
use crate::half_open::HalfOpen;
use crate::turns::Turn;

/// How many streams one server has open; further ones wait to be accepted.
pub const MAX_STREAMS: usize = 512;

/// How many of them may wait for the rest of a query, or for the next one.
pub const MAX_WAITING: usize = 64;

/// How long a stream may take for a query, and for taking an answer.
pub const STREAM_DEADLINE: Duration = Duration::from_secs(10);

/// How long a server rests after an error of its socket (no descriptor left, no memory), which would else come again at
/// once.
const REST: Duration = Duration::from_millis(50);

/// What is done with a query: answered at once, or after the host was asked.
enum Work {
    Reply(Reply),
    Ask(Step, Turn),
}

/// Decides what is done with a message; `None` if it is dropped.
fn work(names: &Names, message: &[u8]) -> Option<(Echo, Work)> {
    let (echo, question): Parsed = parse(message)?;
    let step = match question {
        _ if !names.quota.may_ask() => Step::Done(Reply::new(Rcode::ServFail).because(Extra::BUSY)),
        Ok(question) => plan(names, question),
        Err(rcode) => Step::Done(Reply::new(rcode)),
    };
    let work = match step {
        Step::Done(reply) => Work::Reply(reply),
        Step::Addresses(.., asked) | Step::Records(.., asked) => match names.lookups.try_take(asked) {
            Some(turn) => Work::Ask(step, turn),
            None => Work::Reply(Reply::new(Rcode::ServFail).because(Extra::BUSY)),
        },
    };
    Some((echo, work))
}

/// Answers datagrams until it is dropped, or until somebody who has the socket too has shut it down: then it is readable
/// for ever and gives nothing, and to wait for a datagram would be to try without end.
pub async fn serve_udp(names: Arc<Names>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut asking = JoinSet::new();
    let mut buffer = vec![0; MAX_QUERY + 1];
    loop {
        tokio::select! {
            ready = socket.ready(Interest::READABLE) => match ready.map(|ready| (ready, socket.try_recv_from(&mut buffer))) {
                Ok((_, Ok((length, peer)))) => datagram(&names, &socket, &buffer[..length], peer, &mut asking).await,
                Ok((ready, Err(_))) if ready.is_read_closed() => return,
                Ok((_, Err(error))) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok((_, Err(_))) | Err(_) => sleep(REST).await,
            },
            Some(_) = asking.join_next() => {}
        }
    }
}

async fn datagram(
    names: &Arc<Names>,
    socket: &Arc<UdpSocket>,
    message: &[u8],
    peer: SocketAddr,
    asking: &mut JoinSet<()>,
) {
    match work(names, message) {
        None => {}
        Some((echo, Work::Reply(reply))) => send(socket, &reply, &echo, peer).await,
        Some((echo, Work::Ask(step, turn))) => {
            let (names, socket) = (Arc::clone(names), Arc::clone(socket));
            asking.spawn(async move {
                let reply = finish(&names, step).await;
                drop(turn);
                send(&socket, &reply, &echo, peer).await;
            });
        }
    }
}

/// An answer that cannot be sent is lost, as datagrams are; the asker asks again.
async fn send(socket: &UdpSocket, reply: &Reply, echo: &Echo, peer: SocketAddr) {
    let _ = socket.send_to(&reply.encode(echo, echo.udp_limit()), peer).await;
}

/// Answers streams until it is dropped.
pub async fn serve_tcp(names: Arc<Names>, listener: TcpListener) {
    let mut streams = JoinSet::new();
    let waiting = Arc::new(HalfOpen::default());
    loop {
        tokio::select! {
            accepted = listener.accept(), if streams.len() < MAX_STREAMS => match accepted {
                Ok((stream, _)) => {
                    let (names, waiting) = (Arc::clone(&names), Arc::clone(&waiting));
                    streams.spawn(async move { answer_stream(&names, &waiting, stream).await });
                }
                Err(_) => sleep(REST).await,
            },
            Some(_) = streams.join_next() => {}
        }
    }
}

/// Answers the queries of one stream, one after the other, until its end or a deadline or a message that is none.
async fn answer_stream(names: &Names, waiting: &HalfOpen, mut stream: TcpStream) -> io::Result<()> {
    loop {
        let message = waiting.wait(MAX_WAITING, timeout(STREAM_DEADLINE, read_message(&mut stream))).await;
        let Some(message) = message else { return Ok(()) };
        let message = message??;
        let Some((echo, work)) = work(names, &message) else { return Ok(()) };
        let reply = match work {
            Work::Reply(reply) => reply,
            Work::Ask(step, _turn) => finish(names, step).await,
        };
        let answer = reply.encode(&echo, usize::from(u16::MAX));
        timeout(STREAM_DEADLINE, write_message(&mut stream, &answer)).await??;
    }
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_QUERY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    // In one call, so that the length does not travel alone.
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}
