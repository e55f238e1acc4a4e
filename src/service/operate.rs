//! The life of a service: what it does when it is told to read its files anew, or to end.
//!
//! * **SIGHUP**, `netbox proxy reload`: the files are read anew. What is wrong with them is told, and then everything stays as
//!   it is. Else what is added is opened, then policies and bounds are replaced, and then what is gone is closed.
//! * **SIGUSR1**: the file of events is opened anew ([`audit`]).
//! * **SIGTERM, SIGINT**, `netbox proxy drain`: no more connections are taken. When those that are open have finished, or the
//!   time for that is over, or one of the two signals comes again, the service ends.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use netbox_config::service::TenantLimits;
use netbox_proxy::Session;
use netbox_proxy::events::Events;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::control::Control;
use super::doors::Doors;
use super::notify::Notify;
use super::plan::Plan;
use super::service::{Request, Service};
use super::{Fault, audit};
use crate::cli::ServeArguments;
use crate::policy::Refused;
use crate::say::{self, Voice};

/// How often memory that is free is given back to the kernel.
const LULL: Duration = Duration::from_secs(30);

/// The signals that a service acts on.
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
    rotate: Signal,
}

impl Signals {
    /// Takes them over from their defaults.
    ///
    /// # Errors
    /// Those of sigaction(2).
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            rotate: signal(SignalKind::user_defined1())?,
        })
    }

    /// The next one.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.interrupt.recv() => Told::End,
            _ = self.terminate.recv() => Told::End,
            _ = self.rotate.recv() => Told::Rotate,
        }
    }
}

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Reload,
    End,
    Rotate,
}

/// A service that runs.
pub struct Operation<'a> {
    pub arguments: &'a ServeArguments,
    pub voice: Voice,
    pub plan: Plan,
    pub doors: Doors,
    pub service: Arc<Service>,
    pub control: Option<Arc<Control>>,
    pub events: &'a Events,
    pub notify: Notify,
    pub requests: mpsc::Receiver<Request>,
}

impl Operation<'_> {
    /// Until it is told to end.
    pub async fn run(mut self, mut signals: Signals) {
        let mut watchdog = self.notify.watchdog().map(|time| {
            let mut watchdog = interval(time);
            watchdog.set_missed_tick_behavior(MissedTickBehavior::Skip);
            watchdog
        });
        let mut lull = interval(LULL);
        loop {
            tokio::select! {
                told = signals.next() => match told {
                    Told::Reload => drop(self.reload().await),
                    Told::End => break,
                    Told::Rotate => self.rotate(),
                },
                () = tick(&mut watchdog) => self.notify.alive(&self.service.line()),
                // What a rush of connections has taken: the allocator would keep it for ever.
                _ = lull.tick() => netbox_launcher::give_back_free_memory(),
                Some(request) = self.requests.recv() => match request {
                    Request::Reload(reply) => drop(reply.send(self.reload().await)),
                    Request::Drain(reply) => {
                        let _ = reply.send(self.begin_to_end());
                        break;
                    }
                },
            }
        }
        self.drain(signals, watchdog).await;
    }

    /// Goes on in a new file of events, where the old one was moved away.
    fn rotate(&self) {
        match audit::sink(self.arguments, &self.plan) {
            Ok(Some(sink)) => self.events.redirect(sink),
            Ok(None) => {}
            Err((why, _)) => say::error(format_args!("events go on where they went: {why}"), None),
        }
    }

    /// Reads the files anew. What is wrong with them changes nothing.
    async fn reload(&mut self) -> Result<String, String> {
        self.notify.reloading();
        let result = self.read_anew().await.map_err(|(text, hint)| match hint {
            Some(hint) => format!("{text}\nhint: {hint}"),
            None => text,
        });
        self.service.reloaded(&result);
        match &result {
            Ok(done) => say::note(done),
            Err(why) => say::error(format_args!("nothing has changed: {why}"), None),
        }
        self.notify.ready(&self.service.line());
        result
    }

    async fn read_anew(&mut self) -> Result<String, Fault> {
        let (arguments, voice) = (self.arguments.clone(), self.voice);
        // Files may be slow, and tools may be asked.
        let plan = spawn_blocking(move || Plan::make(&arguments, voice)).await;
        let plan = plan.map_err(|error| (error.to_string(), None))?;
        let mut plan = plan.map_err(|Refused { text, hint, .. }| (text, hint))?;
        let opened = self.doors.prepare(&plan, Vec::new())?;
        let mut ended = replace(self.service.clients_of_no_role(), &plan);
        let clients = std::mem::take(&mut plan.clients);
        ended += self.service.clients().replace(clients).map_err(|error| (error.to_string(), None))?;
        ended += self.control.as_ref().map_or(0, |control| control.grant_anew(Arc::clone(&plan.grants)));
        self.doors.serve(opened).map_err(|error| (format!("cannot listen: {error}"), None))?;
        self.doors.close_others(&plan);
        self.plan = plan;
        Ok(match ended {
            0 => format!("read anew; listening on {}", self.service.listening()),
            1 => format!("read anew, 1 connection revoked; listening on {}", self.service.listening()),
            ended => format!("read anew, {ended} connections revoked; listening on {}", self.service.listening()),
        })
    }

    /// Takes no more connections. How much is left to be done, in words.
    fn begin_to_end(&mut self) -> String {
        if !self.service.is_draining() {
            self.service.drains();
            self.doors.drain();
        }
        let text = match self.service.open() {
            0 => "no connection is open".to_owned(),
            1 => "1 connection is open".to_owned(),
            open => format!("{open} connections are open"),
        };
        format!("taking no more connections; {text}")
    }

    /// Ends, when what is open has finished or may not take longer.
    async fn drain(mut self, mut signals: Signals, mut watchdog: Option<Interval>) {
        let text = self.begin_to_end();
        self.notify.stopping(&text);
        if self.service.open() > 0 {
            say::note(format_args!("{text}; they have {} to finish", shown(self.plan.drain)));
        }
        let deadline = Instant::now() + self.plan.drain;
        let service = Arc::clone(&self.service);
        let mut idle = pin!(service.idle());
        loop {
            tokio::select! {
                () = &mut idle => break,
                () = sleep_until(deadline) => {
                    let open = self.service.open();
                    say::note(format_args!("the time is over; connections that are still open: {open}"));
                    break;
                }
                told = signals.next() => match told {
                    Told::End => break,
                    Told::Rotate => self.rotate(),
                    Told::Reload => {}
                },
                () = tick(&mut watchdog) => self.notify.alive(&self.service.line()),
                Some(request) = self.requests.recv() => match request {
                    Request::Reload(reply) => drop(reply.send(Err("the service ends".to_owned()))),
                    Request::Drain(reply) => drop(reply.send(self.begin_to_end())),
                },
            }
        }
        self.doors.end().await;
    }
}

/// Puts the policy and the bounds of clients without a role in the place of those that they had. How many connections that
/// ends.
fn replace(clients: &Session, plan: &Plan) -> usize {
    bound(clients, plan.limits);
    clients.replace_policy(Arc::clone(&plan.policy))
}

/// Sets what a tenant may use.
pub fn bound(session: &Session, limits: TenantLimits) {
    session.quota().set(&limits);
}

async fn tick(watchdog: &mut Option<Interval>) {
    match watchdog {
        Some(watchdog) => drop(watchdog.tick().await),
        None => std::future::pending().await,
    }
}

fn shown(time: std::time::Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    }
}
