//! The accept loops of one sandbox.
//!
//! The listeners were made inside the sandbox's network namespace, and stay there; the connections that they accept are
//! the sandbox's. One loop accepts from all of them and keeps the connections as its children: when it ends, they end.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use netbox_config::HostPort;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::flow::Accepting;
use crate::original_destination::{Capture, original_destination};
use crate::published::Published;
use crate::service::credentials::Entrance;
use crate::session::Session;
use crate::{capture, dns, explicit, host_port, published, socket};

/// How long nothing is accepted after a failure that would come again at once, such as no descriptor left. Doubles with
/// each failure in a row, up to the second.
const FIRST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How long a connection for which there is no place waits for that of one that is given up.
const DEPARTURE: Duration = Duration::from_millis(50);

/// Which part of the connections may come in by published ports: whoever is on this machine can make those, and is not to
/// keep the sandbox's own programs out.
const PUBLISHED_PART: usize = 4;

/// The listeners of a sandbox, made inside of it but for the published ones: for each kind one for IPv4 and one for IPv6.
#[derive(Default)]
pub struct Listeners {
    /// Where captured TCP connections arrive: redirected ones, or, with a listener on every address, those to its port.
    pub capture: Vec<TcpListener>,
    /// Where DNS queries arrive.
    pub dns_udp: Vec<UdpSocket>,
    /// Where DNS connections arrive.
    pub dns_tcp: Vec<TcpListener>,
    /// Where programs find a proxy that are told of one: HTTP and SOCKS5.
    pub explicit: Vec<TcpListener>,
    /// Where plain clients of the shared service come in, and what is asked of them.
    pub clients: Vec<(TcpListener, Arc<Entrance>)>,
    /// Where programs find a port of the host's loopback, and which.
    pub host_ports: Vec<(TcpListener, HostPort)>,
    /// Sockets of the host's, where its programs find a port of the sandbox's, and which.
    pub published: Vec<(TcpListener, Published)>,
    /// Whether somebody else holds them too, and will go on accepting: then what connects after [`Session::drain`] is left
    /// to them.
    pub shared: bool,
}

impl Listeners {
    /// The addresses of TCP listeners that no connection may lead to. The ports of the host's loopback are not among them,
    /// since outside they are others'.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let own = self.capture.iter().chain(&self.dns_tcp).chain(&self.explicit);
        let addresses = own.filter_map(|listener| listener.local_addr().ok());
        // One on every address is where connections are caught, not a place of its own.
        addresses.filter(|address| !address.ip().is_unspecified()).collect()
    }

    /// For [`Session::caught_ports`]: the ports on which there is a listener on every address. `None`: there is none.
    #[must_use]
    pub fn caught_ports(&self) -> Option<Vec<u16>> {
        let addresses = self.capture.iter().filter_map(|listener| listener.local_addr().ok());
        let everywhere = addresses.filter(|address| Capture::at(*address) == Capture::Everywhere);
        let ports: Vec<u16> = everywhere.map(|address| address.port()).collect();
        (!ports.is_empty()).then_some(ports)
    }

    /// Another descriptor for each that was made inside.
    pub(crate) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let host_ports = self.host_ports.iter().map(|(listener, _)| listener);
        let tcp = self.capture.iter().chain(&self.dns_tcp).chain(&self.explicit).chain(host_ports).map(AsFd::as_fd);
        tcp.chain(self.dns_udp.iter().map(AsFd::as_fd)).map(|fd| fd.try_clone_to_owned()).collect()
    }
}

/// Serves a sandbox until dropped, which ends all of its connections.
///
/// Connections are tasks of the runtime. Dropping this aborts them, and their events are written once the runtime has
/// let go of them: to be sure, use [`serve_until`].
///
/// # Errors
///
/// Where a listener cannot be used with the runtime. Nothing that happens later is an error.
pub async fn serve(session: Arc<Session>, listeners: Listeners) -> io::Result<()> {
    serve_until(session, listeners, pending()).await
}

/// Serves a sandbox until `stop` is done: the sandbox has ended. Then what it sent before is delivered, for as long as
/// [`Limits::delivery`](crate::Limits) says, its connections are ended, and their events are written.
///
/// After [`Session::drain`] it goes on with the connections that there are until `stop`.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_until(
    session: Arc<Session>,
    listeners: Listeners,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = io::Result<()>> {
    serve_while_open(session, listeners, pending(), stop)
}

/// The same for listeners that may be closed while the session goes on: once `closed` is done, no more is accepted, and the
/// connections that there are live on until `stop`.
///
/// # Errors
///
/// As [`serve`].
pub fn serve_while_open(
    session: Arc<Session>,
    listeners: Listeners,
    closed: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = io::Result<()>> {
    // From before anything is accepted, and before this is polled: whoever waits until nothing is open, or until nothing more
    // is accepted, shall not miss what waits here.
    let accepting = session.flows.accepting();
    carry(session, listeners, accepting, closed, stop)
}

async fn carry(
    session: Arc<Session>,
    listeners: Listeners,
    accepting: Accepting,
    closed: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut names = JoinSet::new();
    for socket in listeners.dns_udp {
        socket.set_nonblocking(true)?;
        names.spawn(dns::serve_udp(Arc::clone(&session.names), tokio::net::UdpSocket::from_std(socket)?));
    }
    for listener in listeners.dns_tcp {
        names.spawn(dns::serve_tcp(Arc::clone(&session.names), into_tokio(listener)?));
    }
    let captured = |listener: TcpListener| Ok((Way::Captured(Capture::at(listener.local_addr()?)), listener));
    let capture = listeners.capture.into_iter().map(captured).collect::<io::Result<Vec<_>>>()?;
    let explicit = listeners.explicit.into_iter().map(|listener| (Way::Explicit(None), listener));
    let clients = listeners.clients.into_iter();
    let clients = clients.map(|(listener, entrance)| (Way::Explicit(Some(entrance)), listener));
    let host_ports = listeners.host_ports.into_iter().map(|(listener, door)| (Way::HostPort(Arc::new(door)), listener));
    let places = Arc::new(Semaphore::new((session.limits.connections / PUBLISHED_PART).max(1)));
    let published = |port| Way::Published(Arc::new(port), Arc::clone(&places));
    let published = listeners.published.into_iter().map(|(listener, port)| (published(port), listener));
    let shared = listeners.shared;
    let listeners = capture.into_iter().chain(explicit).chain(clients).chain(host_ports).chain(published);
    let listeners = listeners.map(|(way, listener)| Ok((way, into_tokio(listener)?)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let drained = tokio::select! {
        biased;
        () = session.drained() => true,
        () = closed => true,
        () = &mut stop => false,
        () = accept_all(&session, &listeners, &mut connections) => false,
    };
    let listeners = if drained {
        if !shared {
            for (way, listener) in listeners {
                accept_the_rest(&session, &way, listener.into_std()?, &mut connections);
            }
        }
        drop(accepting);
        tokio::select! {
            () = &mut stop => {}
            () = outlive(&mut connections) => {}
        }
        Vec::new()
    } else {
        listeners
    };
    for (way, listener) in listeners {
        // Where nothing is to be delivered, or nobody listens inside any more, those that still wait are ended with the
        // listener.
        if !session.limits.delivery.is_zero() && !matches!(way, Way::Published(..)) {
            accept_the_rest(&session, &way, listener.into_std()?, &mut connections);
        }
    }
    let _ = timeout(session.limits.delivery, session.deliveries.all()).await;
    names.shutdown().await;
    connections.shutdown().await;
    Ok(())
}

/// Keeps connections that go on without a listener.
async fn outlive(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
    pending().await
}

/// On which way a listener's connections come in.
#[derive(Clone)]
enum Way {
    Captured(Capture),
    /// With what is asked of clients, if anything.
    Explicit(Option<Arc<Entrance>>),
    HostPort(Arc<HostPort>),
    /// With the places that all of them share.
    Published(Arc<Published>, Arc<Semaphore>),
}

pub(crate) fn into_tokio(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Accepts for ever.
async fn accept_all(
    session: &Arc<Session>,
    listeners: &[(Way, tokio::net::TcpListener)],
    connections: &mut JoinSet<()>,
) {
    let mut rest = FIRST_REST;
    let mut turn = 0;
    // Once in vain is enough until there is a place again: those who are refused wait behind each other.
    let mut may_wait = true;
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|context| poll_accept(listeners, &mut turn, context)) => accepted,
            // A connection that panicked has been unwound, and its record is written.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((way, stream)) => {
                rest = FIRST_REST;
                // Many of those that came just now may make room for each other as soon as they run.
                while connections.len() >= session.most_connections() && may_wait {
                    may_wait = matches!(timeout(DEPARTURE, connections.join_next()).await, Ok(Some(_)));
                }
                may_wait |= connections.len() < session.most_connections();
                accept(session, &way, stream, connections);
                if let Some(wait) = session.quota().connected() {
                    tokio::time::sleep(wait).await;
                }
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "nothing can be accepted");
                tokio::time::sleep(rest).await;
                rest = (rest * 2).min(LONGEST_REST);
            }
        }
    }
}

/// As many as a listener lets wait, at the most: whoever connects all the while must not hold up the end.
const MOST_WAITING: usize = 4096;

/// Accepts the connections that were made before the sandbox ended, and waits for no other.
fn accept_the_rest(session: &Arc<Session>, way: &Way, listener: TcpListener, connections: &mut JoinSet<()>) {
    for _ in 0..MOST_WAITING {
        let Ok((stream, _)) = listener.accept() else { return };
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            accept(session, way, stream, connections);
        }
    }
}

fn accept(session: &Arc<Session>, way: &Way, stream: TcpStream, connections: &mut JoinSet<()>) {
    // Those that have ended count no more.
    while connections.try_join_next().is_some() {}
    let open = connections.len().max(session.connections());
    let full = !session.quota().has_room_beside(open, session.limits.connections);
    match way {
        Way::Captured(capture) => match original_destination(&stream, *capture) {
            Ok(original) if full => capture::refuse_over_limit(session, stream, original.address),
            Ok(original) => {
                connections.spawn(capture::handle(Arc::clone(session), stream, original));
            }
            // Without an original destination there is nothing to judge.
            Err(_) => socket::reset(stream),
        },
        Way::Explicit(_) if full => explicit::refuse_over_limit(session, stream),
        Way::Explicit(entrance) => {
            connections.spawn(explicit::handle(Arc::clone(session), entrance.clone(), stream));
        }
        Way::HostPort(door) if full => host_port::refuse_over_limit(session, stream, door),
        Way::HostPort(door) => {
            connections.spawn(host_port::handle(Arc::clone(session), stream, door));
        }
        Way::Published(port, places) => match Arc::clone(places).try_acquire_owned() {
            Ok(place) if !full => {
                let carried = published::handle(session, stream, port);
                connections.spawn(async move {
                    carried.await;
                    drop(place);
                });
            }
            _ => socket::reset(stream),
        },
    }
}

/// Accepts from whichever listener has a connection, in turns.
fn poll_accept(
    listeners: &[(Way, tokio::net::TcpListener)],
    turn: &mut usize,
    context: &mut Context<'_>,
) -> Poll<io::Result<(Way, TcpStream)>> {
    for _ in listeners {
        *turn = (*turn + 1) % listeners.len();
        let (way, listener) = &listeners[*turn];
        if let Poll::Ready(accepted) = listener.poll_accept(context) {
            return Poll::Ready(accepted.map(|(stream, _)| (way.clone(), stream)));
        }
    }
    Poll::Pending
}

/// accept(2) passes on errors of the connection that it would have accepted; the next one may be fine.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
