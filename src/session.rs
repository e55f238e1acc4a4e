//! One run: the sandbox on one side, the proxy on the other, until either ends.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, future, io};

use netbox_config::Policy;
use netbox_launcher::{Listeners, News, Outcome, Sandbox, read_refused};
use netbox_proxy::dns::{HostRecords, Names, search_domains};
use netbox_proxy::events::Events;
use netbox_proxy::facts::Facts;
use netbox_proxy::resolve::HostResolver;
use netbox_proxy::{Session, serve_until};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::connects;
use crate::ports::Ports;
use crate::published::{self, Door};
use crate::signals::Signals;

/// How long a command whose time is over has between SIGTERM and the end.
const GRACE: Duration = Duration::from_secs(5);

/// Which side ended first.
pub enum Ended {
    /// The sandbox, as it should.
    Sandbox(Outcome),
    /// The time that the command was given. The sandbox has been ended.
    TimedOut,
    /// The proxy. The sandbox has been ended: it would have no network, but its command might go on for ever.
    Proxy(io::Error),
}

/// The ports that lead from one side to the other.
pub struct Doors<'a> {
    pub host: &'a Ports,
    pub published: Vec<Door>,
}

/// Starts the command and holds both sides until the end, or until `timeout` is over.
pub async fn hold(
    mut sandbox: Sandbox,
    listeners: Listeners,
    doors: Doors<'_>,
    policy: Arc<Policy>,
    events: Events,
    timeout: Option<Duration>,
) -> Ended {
    match join(&mut sandbox, listeners, doors, policy, events, timeout).await {
        Ok(ended) => ended,
        Err(error) => {
            sandbox.kill();
            sandbox.outcome();
            Ended::Proxy(error)
        }
    }
}

/// Until the sandbox has ended and what it sent before is delivered, or the proxy fails.
async fn join(
    sandbox: &mut Sandbox,
    listeners: Listeners,
    doors: Doors<'_>,
    policy: Arc<Policy>,
    events: Events,
    timeout: Option<Duration>,
) -> io::Result<Ended> {
    let mut signals = Signals::listen()?;
    let own = [listeners.addresses(), published::addresses(&doors.published)].concat();
    let facts = Facts::new(own);
    let mut session = Session::new(Arc::new(names(policy)), events, facts);
    session.limits = session.limits.with_room_for(session.limits.connections, netbox_launcher::descriptor_limit());
    session.callers = connects::callers(&session.events);
    session.caught_ports = listeners.caught_ports();
    let session = Arc::new(session);
    let log = listeners.log.map(watch).transpose()?;
    let host_port = |listener: TcpListener| {
        let door = doors.host.behind(listener.local_addr().ok()?.port())?;
        Some((listener, door))
    };
    let entrances = netbox_proxy::Listeners {
        capture: listeners.capture,
        dns_udp: listeners.dns_udp,
        dns_tcp: listeners.dns_tcp,
        explicit: listeners.explicit,
        host_ports: listeners.host_ports.into_iter().filter_map(host_port).collect(),
        published: published::listeners(doors.published, sandbox.sockets()),
        ..netbox_proxy::Listeners::default()
    };
    let (departed, departure) = oneshot::channel::<()>();
    let departure = async {
        // Dropped without a word, which no path does, it has departed too.
        let _ = departure.await;
    };
    let mut proxy = pin!(serve_until(Arc::clone(&session), entrances, departure));
    if let Err(failure) = sandbox.start(connects::judge(&session)) {
        sandbox.kill();
        sandbox.outcome();
        return Ok(Ended::Sandbox(Outcome::Failed(failure)));
    }
    let report = watch(sandbox.as_fd().try_clone_to_owned()?)?;
    let mut patience = pin!(run_out(timeout));
    let mut timed_out = false;
    let outcome = 'running: loop {
        tokio::select! {
            // In this order, so that what happened before the end is told before it.
            biased;
            ended = &mut proxy => return Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
            () = tell_refused(log.as_ref(), &session) => {}
            () = signals.pass_one_on(sandbox) => {}
            () = &mut patience => {
                if timed_out {
                    sandbox.kill();
                } else {
                    sandbox.signal(libc::SIGTERM, false);
                }
                patience.set(run_out((!timed_out).then_some(GRACE)));
                timed_out = true;
            }
            ready = report.readable() => {
                let mut ready = ready?;
                while let Some(news) = sandbox.news() {
                    match news {
                        News::Stopped(signal) => sandbox.stop_along(signal),
                        News::Ended(outcome) => break 'running outcome,
                    }
                }
                ready.clear_ready();
            }
        }
    };
    written(sandbox, &mut signals).await?;
    if let Some(log) = &log {
        read_refused(log.get_ref(), |destination| session.note_udp_refused(destination));
    }
    let _ = departed.send(());
    proxy.await?;
    Ok(match outcome {
        _ if timed_out => Ended::TimedOut,
        Outcome::Lost if signals.have_killed() => Ended::Sandbox(Outcome::Killed(libc::SIGINT)),
        outcome => Ended::Sandbox(outcome),
    })
}

/// Waits until all that the command wrote to its terminal is on the user's, which takes as long as that one is held up, or
/// until a signal asks netbox to end.
async fn written(sandbox: &mut Sandbox, signals: &mut Signals) -> io::Result<()> {
    let Some(progress) = sandbox.progress().map(|fd| fd.try_clone_to_owned()).transpose()? else { return Ok(()) };
    let progress = watch(progress)?;
    while !sandbox.is_written() {
        tokio::select! {
            ready = progress.readable() => ready?.clear_ready(),
            () = signals.end() => break,
        }
    }
    Ok(())
}

/// Ends after this time; never, without one.
async fn run_out(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => future::pending().await,
    }
}

/// Waits on a descriptor together with the rest.
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // Deprecated since a type could close its descriptor behind the reactor's back. `OwnedFd` holds its own to its end,
    // which is what the unsafe replacement asks its caller to promise.
    #[allow(deprecated)]
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// How this machine looks names up.
pub fn names(policy: Arc<Policy>) -> Names {
    let search = fs::read_to_string("/etc/resolv.conf").map(|text| search_domains(&text)).unwrap_or_default();
    Names::new(policy, Arc::new(HostResolver::new()), Arc::new(HostRecords::new()), search)
}

/// Waits for datagrams that the capture rules refused, and tells of them. For ever, where the kernel has no log.
async fn tell_refused(log: Option<&AsyncFd<OwnedFd>>, session: &Session) {
    let Some(log) = log else { return future::pending().await };
    let Ok(mut ready) = log.readable().await else { return future::pending().await };
    read_refused(log.get_ref(), |destination| session.note_udp_refused(destination));
    ready.clear_ready();
}
