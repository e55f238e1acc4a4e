//! Dialling: Happy Eyeballs version 2 (RFC 8305) over addresses that were vetted.
//!
//! The addresses come in the order in which the host's resolver prefers them (RFC 6724). They are tried in turns of the
//! two families, each [`ATTEMPT_DELAY`] after the one before or as soon as that one has failed; the first to connect
//! wins, and the others are closed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use netbox_config::{Reason, VettedAddr};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::resolve::Pending;

/// How long an attempt has before the next one is started beside it (RFC 8305 §8).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// How long all attempts together may take.
pub const DIAL_DEADLINE: Duration = Duration::from_secs(10);

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
        Box::pin(async { timeout(DIAL_DEADLINE, race(queue)).await.unwrap_or(Err(DialError::Timeout)) })
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

async fn race(mut queue: VecDeque<SocketAddr>) -> Result<Dialed, DialError> {
    if let (Some(&address), 1) = (queue.front(), queue.len()) {
        // There is nothing to race.
        return Ok(Dialed { stream: TcpStream::connect(address).await?, address });
    }
    // Dropping the set aborts the attempts that lost.
    let mut attempts = JoinSet::new();
    let mut failure = None;
    let mut next_at = Instant::now();
    // Not by a timer that is due: those are as coarse as a millisecond, and every connection would pay for it.
    let mut due = true;
    loop {
        if due && let Some(address) = queue.pop_front() {
            attempts.spawn(async move { (address, TcpStream::connect(address).await) });
            next_at = Instant::now() + ATTEMPT_DELAY;
            due = false;
        }
        tokio::select! {
            biased;
            Some(ended) = attempts.join_next() => match ended {
                Ok((address, Ok(stream))) => return Ok(Dialed { stream, address }),
                Ok((_, Err(error))) => {
                    failure = failure.max(Some(Telling(DialError::from(error))));
                    due = true;
                }
                // An attempt neither panics nor is aborted while the set lives.
                Err(_) => {}
            },
            () = sleep_until(next_at), if !queue.is_empty() => due = true,
            else => return Err(failure.map_or(DialError::Unreachable, |Telling(error)| error)),
        }
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
