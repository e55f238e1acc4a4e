//! One run: the sandbox on one side, the proxy on the other, until either ends.

use std::net::{SocketAddr, TcpListener, UdpSocket};
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

use crate::interrupted::Interrupted;
use crate::ports::Ports;
use crate::published::{self, Door};
use crate::say;
use crate::signals::Signals;
use crate::via::judge::Word;
use crate::via::lease::Lease;
use crate::via::{self, NotCarried};
use crate::{connects, outer};

/// How long a command whose time is over has between SIGTERM and the end.
const GRACE: Duration = Duration::from_secs(5);

/// Which side ended first.
pub enum Ended {
    /// The sandbox, as it should.
    Sandbox(Outcome),
    /// The sandbox, by Ctrl-C at the terminal.
    Interrupted(Interrupted),
    /// The time that the command was given. The sandbox has been ended.
    TimedOut,
    /// The proxy. The sandbox has been ended: it would have no network, but its command might go on for ever.
    Proxy(io::Error),
    /// The shared service, which carries it no more. The sandbox has been ended likewise.
    Service(NotCarried),
}

/// Why holding both sides failed.
enum Failed {
    Proxy(io::Error),
    Service(NotCarried),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Proxy(error)
    }
}

/// The ports that lead from one side to the other.
pub struct Doors<'a> {
    pub host: &'a Ports,
    pub published: Vec<Door>,
}

/// Starts the command and holds both sides until the end, or until `timeout` is over.
pub async fn hold(
    sandbox: &mut Sandbox,
    listeners: Listeners,
    doors: Doors<'_>,
    carrier: Carrier,
    events: Events,
    timeout: Option<Duration>,
) -> Ended {
    match join(sandbox, listeners, doors, carrier, events, timeout).await {
        Ok(ended) => ended,
        Err(failed) => {
            sandbox.kill();
            sandbox.outcome();
            match failed {
                Failed::Proxy(error) => Ended::Proxy(error),
                Failed::Service(why) => Ended::Service(why),
            }
        }
    }
}

/// Who carries the connections of the sandbox.
pub struct Carrier {
    /// The policy, as it was asked for here, and how names are looked up.
    pub names: Names,
    /// The shared service's lease, where it is that one. The ports of the two loopbacks are this process's in any case.
    pub lease: Option<Lease>,
}

/// Until the sandbox has ended and what it sent before is delivered, or the proxy fails.
async fn join(
    sandbox: &mut Sandbox,
    listeners: Listeners,
    doors: Doors<'_>,
    Carrier { names, lease }: Carrier,
    events: Events,
    timeout: Option<Duration>,
) -> Result<Ended, Failed> {
    let mut signals = Signals::listen()?;
    let outer = sandbox.is_nested().then(outer::around);
    let own = [listeners.addresses(), published::addresses(&doors.published), outer::doors(outer)].concat();
    let facts = Facts::new(own);
    let mut session = Session::new(Arc::new(names), events, facts);
    session.limits = session.limits.with_room_for(session.limits.connections, netbox_launcher::descriptor_limit());
    session.callers = connects::callers(&session.events);
    session.caught_ports = listeners.caught_ports();
    session.outer = outer;
    let session = Arc::new(session);
    let log = listeners.log.map(watch).transpose()?;
    let host_port = |listener: TcpListener| {
        let door = doors.host.behind(listener.local_addr().ok()?.port())?;
        Some((listener, door))
    };
    let carried = netbox_proxy::Listeners {
        capture: listeners.capture,
        dns_udp: listeners.dns_udp,
        dns_tcp: listeners.dns_tcp,
        explicit: listeners.explicit,
        ..netbox_proxy::Listeners::default()
    };
    // Those are the service's, where it has them.
    let carried = if lease.is_some() { netbox_proxy::Listeners::default() } else { carried };
    let entrances = netbox_proxy::Listeners {
        host_ports: listeners.host_ports.into_iter().filter_map(host_port).collect(),
        published: published::listeners(doors.published, sandbox.sockets()),
        ..carried
    };
    let (departed, departure) = oneshot::channel::<()>();
    let departure = async {
        // Dropped without a word, which no path does, it has departed too.
        let _ = departure.await;
    };
    let mut proxy = pin!(serve_until(Arc::clone(&session), entrances, departure));
    let words = lease.as_ref().map(Lease::words);
    let judge = match &words {
        Some(words) => via::judge::judge(words.clone(), &session, session.events.are_written()),
        None => connects::judge(&session),
    };
    let note_udp_refused = |destination| match &words {
        Some(words) => drop(words.send(Word::RefusedUdp { destination })),
        None => session.note_udp_refused(destination),
    };
    let (left, leaving) = oneshot::channel::<()>();
    let mut held = pin!(hold_lease(lease, &session.events, leaving));
    // What can fail comes before the command runs.
    let report = watch(sandbox.as_fd().try_clone_to_owned()?)?;
    if let Err(failure) = sandbox.start(judge) {
        sandbox.kill();
        sandbox.outcome();
        return Ok(Ended::Sandbox(Outcome::Failed(failure)));
    }
    let mut patience = pin!(run_out(timeout));
    let mut timed_out = false;
    let outcome = 'running: loop {
        tokio::select! {
            // In this order, so that what happened before the end is told before it.
            biased;
            ended = &mut proxy => {
                return Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()).into());
            }
            ended = &mut held => return Err(Failed::Service(ended.err().unwrap_or_else(unasked))),
            () = tell_refused(log.as_ref(), &note_udp_refused) => {}
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
        read_refused(log.get_ref(), note_udp_refused);
    }
    let (_, _) = (departed.send(()), left.send(()));
    let (served, told) = tokio::join!(proxy, held);
    served?;
    // The command has run to its end, whatever the service says now.
    if let Err(why) = told {
        say::error(&why.text, why.hint.as_deref());
    }
    Ok(match outcome {
        _ if timed_out => Ended::TimedOut,
        Outcome::Lost if signals.have_killed() => Ended::Sandbox(Outcome::Killed(libc::SIGINT)),
        outcome => match Interrupted::find(&outcome, sandbox, &signals) {
            Some(interrupted) => Ended::Interrupted(interrupted),
            None => Ended::Sandbox(outcome),
        },
    })
}

/// The lease was over before the sandbox was.
fn unasked() -> NotCarried {
    NotCarried::new("the service's lease ended without a word")
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

/// Other descriptors for the listeners that a shared service carries.
///
/// # Errors
/// No descriptor is left.
pub fn carried(listeners: &Listeners) -> io::Result<netbox_proxy::Listeners> {
    let tcp = |listeners: &[TcpListener]| listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
    Ok(netbox_proxy::Listeners {
        capture: tcp(&listeners.capture)?,
        dns_udp: listeners.dns_udp.iter().map(UdpSocket::try_clone).collect::<io::Result<_>>()?,
        dns_tcp: tcp(&listeners.dns_tcp)?,
        explicit: tcp(&listeners.explicit)?,
        ..netbox_proxy::Listeners::default()
    })
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

/// Holds the shared service's lease until the sandbox has left; for ever, where there is none and it has not.
async fn hold_lease(lease: Option<Lease>, events: &Events, leaving: oneshot::Receiver<()>) -> Result<(), NotCarried> {
    let leaving = async {
        // Dropped without a word, which no path does, it has left too.
        let _ = leaving.await;
    };
    match lease {
        Some(lease) => lease.hold(events, leaving).await,
        None => {
            leaving.await;
            Ok(())
        }
    }
}

/// Waits for datagrams that the capture rules refused, and tells of them. For ever, where the kernel has no log.
async fn tell_refused(log: Option<&AsyncFd<OwnedFd>>, tell: impl FnMut(SocketAddr)) {
    let Some(log) = log else { return future::pending().await };
    let Ok(mut ready) = log.readable().await else { return future::pending().await };
    read_refused(log.get_ref(), tell);
    ready.clear_ready();
}
