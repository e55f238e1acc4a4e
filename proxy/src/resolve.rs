//! Names to addresses, as the host resolves them.
//!
//! [`HostResolver`] asks `getaddrinfo(3)`, so that `/etc/hosts`, `nsswitch.conf`, split DNS and a local cache count just as they do
//! for every other program of the user. `getaddrinfo` blocks, and may block for long: each lookup has a thread of its own (not one
//! of the runtime's, whose shutdown would wait for it), at most [`CONCURRENT_LOOKUPS`] at once, and nobody waits for one longer than
//! [`LOOKUP_DEADLINE`]. Those who ask for the same name while it is being looked up share one lookup. Nothing else is cached here:
//! that is the host's business.
//!
//! Only a [`HostName`] can be looked up. `getaddrinfo` takes `127.1`, `0x7f000001` and `2130706433` for addresses; a `HostName`
//! cannot hold them. That no search list is applied is for the process to arrange (`LOCALDOMAIN=.` before its threads start).

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use netbox_config::HostName;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// How many lookups one resolver has under way at once; further ones wait their turn, within their deadline.
pub const CONCURRENT_LOOKUPS: usize = 64;

/// How long a lookup may take, waiting for its turn included.
pub const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);

/// How many addresses of one name are kept: the first ones, in the order of the answer.
pub const MAX_ADDRESSES: usize = 64;

/// A boxed future, as the object-safe traits of this room return it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Turns names into addresses. Tests put a scripted one in its place.
pub trait Resolver: Send + Sync {
    /// The addresses of `name`, at least one and at most [`MAX_ADDRESSES`], in the order in which they should be tried.
    fn addresses<'a>(&'a self, name: &'a HostName) -> Pending<'a, Result<Vec<IpAddr>, LookupError>>;
}

/// Why a lookup gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// There is no such name (NXDOMAIN).
    #[error("no such name")]
    NotFound,
    /// The name exists and has no record of the kind asked for (NODATA).
    #[error("no address for this name")]
    NoAddress,
    /// The question could not be answered: a failing server, no server, a timeout. With the reason as text.
    #[error("lookup failed: {0}")]
    Failed(String),
}

/// What one lookup gave; shared by all who waited for it.
type Outcome = Result<Vec<IpAddr>, LookupError>;

/// The lookups that are under way, by name.
type Flights = HashMap<HostName, watch::Receiver<Option<Outcome>>>;

/// The blocking call that does the work; a parameter, so that tests can drive the rest.
type Blocking = dyn Fn(&HostName) -> Outcome + Send + Sync;

/// The host's own resolution, by `getaddrinfo(3)`.
pub struct HostResolver {
    shared: Arc<Shared>,
}

struct Shared {
    flights: Mutex<Flights>,
    turns: Arc<Semaphore>,
    deadline: Duration,
    blocking: Box<Blocking>,
}

impl HostResolver {
    /// A resolver with nothing under way. It must be used from within a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::with(CONCURRENT_LOOKUPS, LOOKUP_DEADLINE, Box::new(host_addresses))
    }

    fn with(concurrent: usize, deadline: Duration, blocking: Box<Blocking>) -> Self {
        let turns = Arc::new(Semaphore::new(concurrent));
        Self { shared: Arc::new(Shared { flights: Mutex::default(), turns, deadline, blocking }) }
    }

    /// Joins the lookup of `name` that is under way, or starts one.
    fn join(&self, name: &HostName) -> watch::Receiver<Option<Outcome>> {
        let mut flights = self.shared.flights();
        if let Some(flight) = flights.get(name) {
            return flight.clone();
        }
        let (landed, flight) = watch::channel(None);
        flights.insert(name.clone(), flight.clone());
        // A task of its own, so that the lookup goes on for the others when the one who asked first has gone away.
        tokio::spawn(Arc::clone(&self.shared).fly(name.clone(), landed));
        flight
    }
}

impl Default for HostResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver for HostResolver {
    fn addresses<'a>(&'a self, name: &'a HostName) -> Pending<'a, Outcome> {
        Box::pin(async move {
            let mut flight = self.join(name);
            match flight.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(abandoned())),
                Err(_) => Err(abandoned()),
            }
        })
    }
}

impl Shared {
    /// The map, also after a panic elsewhere: it holds no invariant that a panic could break.
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One lookup from its turn to its outcome.
    async fn fly(self: Arc<Self>, name: HostName, landed: watch::Sender<Option<Outcome>>) {
        let outcome = self.look_up(&name).await;
        // Out of the map first: who comes now must not be given an outcome from before.
        self.flights().remove(&name);
        landed.send_replace(Some(outcome));
    }

    async fn look_up(self: &Arc<Self>, name: &HostName) -> Outcome {
        let deadline = Instant::now() + self.deadline;
        let turn = match timeout_at(deadline, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) => return Err(abandoned()),
            Err(_) => return Err(LookupError::Failed("too many lookups at once".to_owned())),
        };
        let (report, reported) = oneshot::channel();
        let (shared, asked) = (Arc::clone(self), name.clone());
        let spawned = std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
            // The turn ends with the thread, not with those who wait for it: a lookup that hangs still counts.
            let _turn = turn;
            let _ = report.send((shared.blocking)(&asked));
        });
        if let Err(error) = spawned {
            return Err(LookupError::Failed(format!("no thread for the lookup: {error}")));
        }
        match timeout_at(deadline, reported).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(abandoned()),
            Err(_) => Err(LookupError::Failed("timed out".to_owned())),
        }
    }
}

/// The lookup's task or thread ended without an answer: the runtime is shutting down, or it panicked.
fn abandoned() -> LookupError {
    LookupError::Failed("the lookup was abandoned".to_owned())
}

/// `getaddrinfo(3)` for both families. Without `AI_ADDRCONFIG`: which families work is found out by dialling, and a host whose only
/// interface is down should still tell "no such name" from "no network".
fn host_addresses(name: &HostName) -> Outcome {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let answers = dns_lookup::getaddrinfo(Some(name.as_str()), None, Some(hints)).map_err(|error| match error.kind() {
        LookupErrorKind::NoName => LookupError::NotFound,
        LookupErrorKind::NoData => LookupError::NoAddress,
        _ => LookupError::Failed(std::io::Error::from(error).to_string()),
    })?;
    kept(answers.filter_map(Result::ok).map(|answer| answer.sockaddr.ip()))
}

/// The addresses worth trying: each once, the first [`MAX_ADDRESSES`], in their order.
fn kept(answers: impl Iterator<Item = IpAddr>) -> Outcome {
    let mut addresses = Vec::new();
    for address in answers {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        if addresses.len() == MAX_ADDRESSES {
            break;
        }
    }
    if addresses.is_empty() { Err(LookupError::NoAddress) } else { Ok(addresses) }
}
