//! Names to addresses, as the host resolves them.
//!
//! [`HostResolver`] asks `getaddrinfo(3)`, so that `/etc/hosts`, `nsswitch.conf`, split DNS and a local cache count
//! just as they do for every other program of the user. `getaddrinfo` blocks, and may block for long: each lookup has a
//! thread of its own (not one of the runtime's, whose shutdown would wait for it), at most [`CONCURRENT_LOOKUPS`] at
//! once, and nobody waits for one longer than [`LOOKUP_DEADLINE`]. Those who ask for the same name while it is being
//! looked up share one lookup. Nothing else is cached here: that is the host's business.
//!
//! A resolver is one sandbox's, or one proxy's, and shares no turn with another one. Names that a program makes up have
//! three of four turns at most (`turns`). All resolvers of a process together have [`LOOKUP_THREADS`] threads, and
//! besides, each has [`OWN_LOOKUPS`] for names that nobody made up: what one sandbox asks for holds no other one up.
//!
//! Only a [`HostName`] can be looked up. `getaddrinfo` takes `127.1`, `0x7f000001` and `2130706433` for addresses; a
//! `HostName` cannot hold them. That no search list is applied is for the process to arrange (`LOCALDOMAIN=.` before
//! its threads start).

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use netbox_config::HostName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::turns::{Asked, Turn, Turns};

/// How many lookups one resolver has under way at once; further ones wait their turn, within their deadline.
pub const CONCURRENT_LOOKUPS: usize = 64;

/// How many threads all resolvers of this process have for lookups, besides [`OWN_LOOKUPS`] for each.
pub const LOOKUP_THREADS: usize = 512;

/// How many lookups of names that are not made up a resolver can have under way whatever the others do.
pub const OWN_LOOKUPS: usize = 8;

static THREADS: Semaphore = Semaphore::const_new(LOOKUP_THREADS);

/// How long a lookup may take, waiting for its turn included.
pub const LOOKUP_DEADLINE: Duration = Duration::from_secs(10);

/// How many addresses of one name are kept: the first ones, in the order of the answer.
pub const MAX_ADDRESSES: usize = 64;

/// A boxed future, as the object-safe traits of this room return it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Turns names into addresses. Tests put a scripted one in its place.
pub trait Resolver: Send + Sync {
    /// The addresses of `name`, at least one and at most [`MAX_ADDRESSES`], in the order in which they should be tried.
    /// `asked` says who may have to wait for whom.
    fn addresses<'a>(&'a self, name: &'a HostName, asked: Asked) -> Pending<'a, Result<Vec<IpAddr>, LookupError>>;
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
    turns: Turns,
    own: Arc<Semaphore>,
    threads: &'static Semaphore,
    deadline: Duration,
    blocking: Box<Blocking>,
}

impl HostResolver {
    /// A resolver with nothing under way. It must be used from within a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self::with(CONCURRENT_LOOKUPS, &THREADS, Box::new(host_addresses))
    }

    fn with(concurrent: usize, threads: &'static Semaphore, blocking: Box<Blocking>) -> Self {
        let (turns, own) = (Turns::new(concurrent), Arc::new(Semaphore::new(OWN_LOOKUPS)));
        let shared = Shared { flights: Mutex::default(), turns, own, threads, deadline: LOOKUP_DEADLINE, blocking };
        Self { shared: Arc::new(shared) }
    }

    /// Joins the lookup of `name` that is under way, or starts one.
    fn join(&self, name: &HostName, asked: Asked) -> watch::Receiver<Option<Outcome>> {
        let mut flights = self.shared.flights();
        // One whose task is gone without an outcome (its runtime ended) would never land.
        if let Some(flight) = flights.get(name).filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (landed, flight) = watch::channel(None);
        flights.insert(name.clone(), flight.clone());
        // A task of its own, so that the lookup goes on for the others when the one who asked first has gone away.
        tokio::spawn(Arc::clone(&self.shared).fly(name.clone(), asked, landed));
        flight
    }
}

impl Default for HostResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver for HostResolver {
    fn addresses<'a>(&'a self, name: &'a HostName, asked: Asked) -> Pending<'a, Outcome> {
        Box::pin(async move {
            let mut flight = self.join(name, asked);
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
    async fn fly(self: Arc<Self>, name: HostName, asked: Asked, landed: watch::Sender<Option<Outcome>>) {
        let outcome = self.look_up(&name, asked).await;
        // Out of the map first: who comes now must not be given an outcome from before.
        self.flights().remove(&name);
        landed.send_replace(Some(outcome));
    }

    /// A turn, and a thread.
    async fn place(&self, asked: Asked) -> Option<Place> {
        let turn = self.turns.wait(asked).await?;
        let own = match asked {
            Asked::Known => Arc::clone(&self.own).try_acquire_owned().ok(),
            Asked::MadeUp => None,
        };
        let thread = match own {
            Some(own) => Thread::Own(own),
            None => Thread::Shared(self.threads.acquire().await.ok()?),
        };
        Some(Place { _turn: turn, _thread: thread })
    }

    async fn look_up(self: &Arc<Self>, name: &HostName, asked: Asked) -> Outcome {
        let deadline = Instant::now() + self.deadline;
        let place = match timeout_at(deadline, self.place(asked)).await {
            Ok(Some(place)) => place,
            Ok(None) => return Err(abandoned()),
            Err(_) => return Err(LookupError::Failed("too many lookups at once".to_owned())),
        };
        let (report, reported) = oneshot::channel();
        let (shared, name) = (Arc::clone(self), name.clone());
        let spawned = std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
            // The place ends with the thread, not with those who wait for it: a lookup that hangs still counts.
            let _place = place;
            let _ = report.send((shared.blocking)(&name));
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

/// What a lookup that is under way takes.
struct Place {
    _turn: Turn,
    _thread: Thread,
}

/// Of whose threads it is one. Held for its end alone.
enum Thread {
    Own(#[expect(dead_code, reason = "held until it ends")] OwnedSemaphorePermit),
    Shared(#[expect(dead_code, reason = "held until it ends")] SemaphorePermit<'static>),
}

/// The lookup's task or thread ended without an answer: the runtime is shutting down, or it panicked.
fn abandoned() -> LookupError {
    LookupError::Failed("the lookup was abandoned".to_owned())
}

/// `getaddrinfo(3)` for both families. Without `AI_ADDRCONFIG`: which families work is found out by dialling, and a
/// host whose only interface is down should still tell "no such name" from "no network".
fn host_addresses(name: &HostName) -> Outcome {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let answers = dns_lookup::getaddrinfo(Some(name.as_str()), None, Some(hints)).map_err(failure)?;
    kept(answers.filter_map(Result::ok).map(|answer| answer.sockaddr.ip()))
}

/// The two codes that are answers (`EAI_NONAME`, `EAI_NODATA`), and the others.
fn failure(error: dns_lookup::LookupError) -> LookupError {
    match error.kind() {
        LookupErrorKind::NoName => LookupError::NotFound,
        LookupErrorKind::NoData => LookupError::NoAddress,
        _ => LookupError::Failed(std::io::Error::from(error).to_string()),
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;

    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse_wire(text.as_bytes()).unwrap()
    }

    fn public(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    /// A blocking call that reports each name it is asked for and then waits to be told the outcome.
    fn scripted() -> (Box<Blocking>, mpsc::Receiver<HostName>, mpsc::Sender<Outcome>) {
        let (asked, asking) = mpsc::channel();
        let (answer, answers) = mpsc::channel::<Outcome>();
        let (asked, answers) = (Mutex::new(asked), Mutex::new(answers));
        let blocking = move |name: &HostName| {
            asked.lock().unwrap().send(name.clone()).unwrap();
            answers.lock().unwrap().recv().unwrap_or(Err(LookupError::NotFound))
        };
        (Box::new(blocking), asking, answer)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn those_who_ask_for_the_same_name_share_one_lookup() {
        let (blocking, asking, answer) = scripted();
        let resolver = Arc::new(HostResolver::with(8, &THREADS, blocking));
        let (asked, mut flights) = (name("a.example"), Vec::new());
        flights.extend((0..100).map(|_| resolver.join(&asked, Asked::Known)));
        assert_eq!(asking.recv().unwrap(), asked);
        // Whoever comes while it is under way joins too, and one who goes away takes it from nobody.
        flights.truncate(50);
        flights.push(resolver.join(&asked, Asked::Known));
        answer.send(Ok(vec![public(1)])).unwrap();
        for mut flight in flights {
            assert_eq!(*flight.wait_for(Option::is_some).await.unwrap(), Some(Ok(vec![public(1)])));
        }
        assert!(asking.try_recv().is_err(), "one lookup was enough");
        // Nothing is kept: the next one asks again.
        answer.send(Err(LookupError::NotFound)).unwrap();
        assert_eq!(resolver.addresses(&asked, Asked::Known).await, Err(LookupError::NotFound));
        assert_eq!(asking.recv().unwrap(), asked);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_more_than_so_many_lookups_at_once() {
        let (blocking, asking, answer) = scripted();
        let resolver = HostResolver::with(2, &THREADS, blocking);
        let flights: Vec<_> =
            ["a", "b", "c", "d"].map(|label| resolver.join(&name(label), Asked::Known)).into_iter().collect();
        let mut asked: HashSet<_> = [asking.recv().unwrap(), asking.recv().unwrap()].into();
        assert_eq!(resolver.shared.turns.left(), 0);
        assert!(asking.try_recv().is_err());
        for _ in 0..4 {
            answer.send(Ok(vec![public(1)])).unwrap();
        }
        asked.extend([asking.recv().unwrap(), asking.recv().unwrap()]);
        assert_eq!(asked.len(), 4);
        for mut flight in flights {
            assert!(flight.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().is_ok());
        }
    }

    /// The clock is stopped and moves on as soon as nothing else can happen, which is when the lookup hangs.
    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_hangs_fails_at_the_deadline_and_keeps_its_turn() {
        let (blocking, _asking, _answer) = scripted();
        let resolver = HostResolver::with(1, &THREADS, blocking);
        let start = Instant::now();
        assert_eq!(
            resolver.addresses(&name("a.example"), Asked::Known).await,
            Err(LookupError::Failed("timed out".to_owned()))
        );
        assert_eq!(start.elapsed(), LOOKUP_DEADLINE);
        let busy = Err(LookupError::Failed("too many lookups at once".to_owned()));
        assert_eq!(resolver.addresses(&name("b.example"), Asked::Known).await, busy);
        assert!(resolver.shared.flights().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn made_up_names_that_hang_hold_up_no_known_one() {
        let (blocking, asking, answer) = scripted();
        let resolver = HostResolver::with(4, &THREADS, blocking);
        let mut hanging = Vec::new();
        for label in ["a", "b", "c"] {
            hanging.push(resolver.join(&name(label), Asked::MadeUp));
            asking.recv().unwrap();
        }
        hanging.push(resolver.join(&name("d"), Asked::MadeUp));
        let mut known = resolver.join(&name("known.example"), Asked::Known);
        assert_eq!(asking.recv().unwrap(), name("known.example"), "and not the next one that is made up");
        for _ in 0..5 {
            answer.send(Ok(vec![public(1)])).unwrap();
        }
        assert!(known.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().is_ok());
        for mut flight in hanging {
            assert!(flight.wait_for(Option::is_some).await.unwrap().as_ref().unwrap().is_ok());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_another_sandbox_asks_for_holds_up_no_known_name() {
        static FEW: Semaphore = Semaphore::const_new(2);
        let (blocking, asking, _answer) = scripted();
        let hostile = HostResolver::with(64, &FEW, blocking);
        let made_up: Vec<_> = ["a", "b", "c"].map(|label| hostile.join(&name(label), Asked::MadeUp)).into();
        // Two of them hang, whichever came to a thread first.
        let hanging = [asking.recv().unwrap(), asking.recv().unwrap()];
        assert!(hanging.iter().all(|name| name.as_str().len() == 1) && hanging[0] != hanging[1], "{hanging:?}");
        assert_eq!(FEW.available_permits(), 0);
        let other = HostResolver::with(64, &FEW, Box::new(|_| Ok(vec![public(1)])));
        assert_eq!(other.addresses(&name("known.example"), Asked::Known).await, Ok(vec![public(1)]));
        drop(made_up);
    }

    #[tokio::test]
    async fn a_lookup_that_panics_fails() {
        let resolver = HostResolver::with(1, &THREADS, Box::new(|_| panic!("a fault of the library")));
        for _ in 0..2 {
            assert_eq!(resolver.addresses(&name("a.example"), Asked::Known).await, Err(abandoned()));
        }
        // The turn comes back, if perhaps after the outcome.
        assert!(resolver.shared.turns.wait(Asked::Known).await.is_some());
    }

    /// `/etc/hosts` has it everywhere.
    #[tokio::test]
    async fn the_host_knows_localhost() {
        let addresses = HostResolver::new().addresses(&name("localhost"), Asked::Known).await.unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
        let once: HashSet<_> = addresses.iter().collect();
        assert_eq!(once.len(), addresses.len());
    }

    #[test]
    fn the_codes_of_getaddrinfo_keep_their_meaning() {
        // From <netdb.h>: EAI_NONAME, EAI_NODATA, EAI_AGAIN, EAI_FAIL.
        let of = |code| failure(dns_lookup::LookupError::new(code));
        assert_eq!(of(-2), LookupError::NotFound);
        assert_eq!(of(-5), LookupError::NoAddress);
        for code in [-3, -4] {
            assert!(matches!(of(code), LookupError::Failed(text) if text.contains("name resolution")));
        }
    }

    #[test]
    fn addresses_are_kept_once_in_order_and_not_without_end() {
        let twice = [public(3), public(1), public(3), public(2)];
        assert_eq!(kept(twice.into_iter()), Ok(vec![public(3), public(1), public(2)]));
        let many = (0..500_u32).map(|number| IpAddr::from((0xcb00_7100 + number).to_be_bytes()));
        let first = kept(many.clone()).unwrap();
        assert!(first.len() == MAX_ADDRESSES && first.iter().copied().eq(many.take(MAX_ADDRESSES)));
        assert_eq!(kept(std::iter::empty()), Err(LookupError::NoAddress));
    }
}
