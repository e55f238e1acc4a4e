//! Dialling: Happy Eyeballs version 2 (RFC 8305) over addresses that were vetted.
//!
//! The addresses come in the order in which the host's resolver prefers them (RFC 6724). They are tried in turns of the
//! two families, each [`ATTEMPT_DELAY`] after the one before or as soon as that one has failed; the first to connect
//! wins, and the others are closed.
//!
//! A name may have any number of addresses at which nothing answers, and a connection counts as two descriptors
//! ([`Limits`](crate::Limits)). So attempts beside the first of a connection are bounded for the whole process
//! ([`ATTEMPTS_BESIDE`]): beyond that, the oldest attempt of a connection gives way to its next one.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use netbox_config::{Reason, VettedAddr};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::resolve::Pending;

/// How long an attempt has before the next one is started beside it (RFC 8305 §8).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How long all attempts together may take.
pub const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// How many attempts this process has under way besides one for each connection.
pub const ATTEMPTS_BESIDE: usize = 64;

static BESIDE: Semaphore = Semaphore::const_new(ATTEMPTS_BESIDE);

/// A connection, and the address that it was made to.
#[derive(Debug)]
pub struct Dialed {
    /// The connection.
    pub stream: TcpStream,
    /// What was dialled.
    pub address: SocketAddr,
}

/// Why no address could be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The far side refused.
    #[error("connection refused")]
    Refused,
    /// No way leads there.
    #[error("unreachable")]
    Unreachable,
    /// Nothing was heard in time.
    #[error("timed out")]
    Timeout,
}

impl DialError {
    /// The word for events.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Refused => Reason::Refused,
            Self::Unreachable => Reason::Unreachable,
            Self::Timeout => Reason::Timeout,
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Refused,
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Unreachable,
        }
    }
}

/// Connects to one of a target's vetted addresses. Tests put one in its place that leads to servers of their own.
pub trait Dialer: Send + Sync {
    /// A connection to one of `addresses`, which are at least one.
    fn dial<'a>(&'a self, addresses: &'a [VettedAddr]) -> Pending<'a, Result<Dialed, DialError>>;
}

/// Dials from this host, directly.
#[derive(Clone, Copy, Debug, Default)]
pub struct HappyEyeballs;

impl Dialer for HappyEyeballs {
    fn dial<'a>(&'a self, addresses: &'a [VettedAddr]) -> Pending<'a, Result<Dialed, DialError>> {
        let queue = interleave(addresses.iter().map(|address| address.socket_addr()).collect());
        Box::pin(async { timeout(DIAL_DEADLINE, race(queue, &BESIDE)).await.unwrap_or(Err(DialError::Timeout)) })
    }
}

/// Alternates between the families, beginning with that of the first address (RFC 8305 §4). The order within each stays.
fn interleave(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let Some(first) = addresses.first().copied() else { return VecDeque::new() };
    let (mut one, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut queue = VecDeque::with_capacity(one.len() + other.len());
    while !one.is_empty() || !other.is_empty() {
        queue.extend(one.pop_front());
        queue.extend(other.pop_front());
    }
    queue
}

async fn race(mut queue: VecDeque<SocketAddr>, beside: &'static Semaphore) -> Result<Dialed, DialError> {
    if let (Some(&address), 1) = (queue.front(), queue.len()) {
        // There is nothing to race.
        return Ok(Dialed { stream: TcpStream::connect(address).await?, address });
    }
    let mut attempts = Attempts::new(beside);
    let mut failure = None;
    let mut next_at = Instant::now();
    // Not by a timer that is due: those are as coarse as a millisecond, and every connection would pay for it.
    let mut due = true;
    loop {
        if due && let Some(address) = queue.pop_front() {
            attempts.begin(address);
            next_at = Instant::now() + ATTEMPT_DELAY;
            due = false;
        }
        tokio::select! {
            biased;
            Some(ended) = attempts.running.join_next() => match ended {
                Ok((address, Ok(stream))) => return Ok(Dialed { stream, address }),
                Ok((_, Err(error))) => {
                    failure = failure.max(Some(Telling(DialError::from(error))));
                    due = true;
                }
                // It gave way to another; an attempt does not panic.
                Err(_) => {}
            },
            () = sleep_until(next_at), if !queue.is_empty() => due = true,
            else => return Err(failure.map_or(DialError::Unreachable, |Telling(error)| error)),
        }
    }
}

/// The attempts of one connection. Dropping them aborts those that lost.
struct Attempts {
    running: JoinSet<(SocketAddr, io::Result<TcpStream>)>,
    /// From the oldest on, each with its place among those that are beside another; one of them needs none.
    handles: VecDeque<(AbortHandle, Option<SemaphorePermit<'static>>)>,
    beside: &'static Semaphore,
}

impl Attempts {
    fn new(beside: &'static Semaphore) -> Self {
        Self { running: JoinSet::new(), handles: VecDeque::new(), beside }
    }

    fn begin(&mut self, address: SocketAddr) {
        self.handles.retain(|(attempt, _)| !attempt.is_finished());
        let place = match (self.handles.front(), self.beside.try_acquire()) {
            (None, _) => None,
            (Some(_), Ok(place)) => Some(place),
            // The oldest gives way, and leaves its place.
            (Some(_), Err(_)) => self.handles.pop_front().and_then(|(oldest, place)| {
                oldest.abort();
                place
            }),
        };
        let attempt = self.running.spawn(async move { (address, TcpStream::connect(address).await) });
        self.handles.push_back((attempt, place));
    }
}

/// Errors of several addresses in the order of what they tell: a far side that refuses is there.
#[derive(PartialEq, Eq)]
struct Telling(DialError);

impl Telling {
    fn rank(&self) -> u8 {
        match self.0 {
            DialError::Unreachable => 0,
            DialError::Timeout => 1,
            DialError::Refused => 2,
        }
    }
}

impl Ord for Telling {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Telling {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests;
