//! `netbox proxy serve`: one process that carries many, sandboxes and plain clients alike.
//!
//! # Theory of operation
//!
//! 1. **Plan** ([`plan`]): what was typed and what the files say. Made anew at every reload.
//! 2. **Open** ([`doors`]): sockets that the service was started with ([`activation`]) and others ([`socket`], [`listen`]).
//! 3. **Carry**: sandboxes that attach ([`control`]), and plain clients ([`clients`]).
//! 4. **Operate** ([`operate`]): reload and drain, by signals or by whoever asks ([`ask`]); systemd is told ([`notify`]).
//! 5. **Tell** ([`service`]): how it is, as a table and as metrics.

mod activation;
mod ask;
mod audit;
#[cfg(test)]
mod cases;
mod clients;
mod control;
mod doors;
mod grants;
mod lanes;
mod listen;
mod notify;
mod operate;
mod plan;
mod process;
#[allow(clippy::module_inception)]
mod service;
mod socket;
mod table;
mod telling;
mod tls;
mod token;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netbox_proxy::Session;
use netbox_proxy::events::{Destination, Events, SessionId, Start};
use netbox_proxy::facts::{Facts, Listening};
use netbox_proxy::quota::Quota;
use netbox_proxy::service::registry::{Registry, Tenant, TenantKind};
use netbox_proxy::share::Room;
use tokio::runtime;

use crate::cli::ServeArguments;
use crate::say::{self, Voice};
use crate::{FAILED, USAGE, outer, session, summary};

pub use ask::{drain, reload, status};
pub use token::token_new;

use activation::Handed;
use clients::Clients;
use control::Control;
use doors::Doors;
use notify::Notify;
use operate::{Operation, Signals};
use plan::Plan;
use service::Service;

/// Why nothing was served, and what to do.
type Fault = (String, Option<String>);

/// Serves until a signal ends it. The value is the exit code.
pub fn serve(arguments: &ServeArguments) -> u8 {
    let voice = Voice { quiet: arguments.quiet, verbose: arguments.verbose };
    let refuse = |code, why: &str, hint: Option<&str>| {
        say::error(why, hint);
        code
    };
    // Before anything else is open that might have the same numbers.
    let handed = match activation::take() {
        Ok(handed) => handed,
        Err(why) => return refuse(FAILED, &why, None),
    };
    let plan = match Plan::make(arguments, voice) {
        Ok(plan) => plan,
        Err(why) => return refuse(if why.is_usage { USAGE } else { FAILED }, &why.text, why.hint.as_deref()),
    };
    if plan.control.is_empty() && plan.listeners.is_empty() && handed.is_empty() {
        let hint = "say where with `--listen`, or with `listen` in `[service]` of a policy file";
        return refuse(USAGE, "there is nothing to listen on", Some(hint));
    }
    let sink = match audit::sink(arguments, &plan) {
        Ok(sink) => sink,
        Err((why, is_usage)) => return refuse(if is_usage { USAGE } else { FAILED }, &why, None),
    };
    match hold(arguments, voice, plan, handed, sink) {
        Ok(()) => 0,
        Err((why, hint)) => refuse(FAILED, &why, hint.as_deref()),
    }
}

/// From here on, an error means that nothing was served.
fn hold(
    arguments: &ServeArguments,
    voice: Voice,
    plan: Plan,
    handed: Vec<Handed>,
    sink: Option<Destination>,
) -> Result<(), Fault> {
    let plain = |text: String| (text, None);
    let notify = Notify::from_environment().map_err(plain)?;
    let id = SessionId::random().map_err(|error| plain(format!("cannot draw a session number: {error}")))?;
    // Both before any thread exists.
    netbox_launcher::look_names_up_as_written();
    netbox_launcher::become_carrier();
    let events = Events::new(id, sink);
    let runtime = runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| plain(format!("cannot start the proxy: {error}")))?;
    runtime.block_on(carry(arguments, voice, plan, handed, &events, notify))?;
    // Lookups may still sit on their threads; nobody waits for them.
    runtime.shutdown_background();
    summary::conclude(&events, 0, arguments.summary, voice);
    Ok(())
}

/// Until it is told to end.
async fn carry(
    arguments: &ServeArguments,
    voice: Voice,
    mut plan: Plan,
    handed: Vec<Handed>,
    events: &Events,
    notify: Notify,
) -> Result<(), Fault> {
    let failed = |error: io::Error| (format!("cannot start the proxy: {error}"), None);
    // From here on they do not end the process.
    let signals = Signals::listen().map_err(failed)?;
    let room = Room::of_process(netbox_launcher::descriptor_limit());
    let registry = Registry::new(room, netbox_launcher::effective_uid());
    let listening = Listening::default();
    let open = Arc::new(clients_of_no_role(&plan, events, &listening, registry.room()));
    events.start(Start {
        argv0: std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned(),
        mode: plan.policy.mode(),
        policy: plan.policy.digest(),
        walls: vec!["proxy".to_owned()],
        doors: Vec::new(),
        pid: std::process::id(),
    });
    let _registration = registry.enter(Tenant {
        kind: TenantKind::Default,
        uid: None,
        pid: None,
        name: String::new(),
        asked: None,
        session: Arc::clone(&open),
        since: SystemTime::now(),
    });
    let own = listening.clone();
    let clients =
        Clients::new(&open, events, &registry, move || Facts::new(outer::doors(outer::here())).beside(own.clone()));
    clients.replace(std::mem::take(&mut plan.clients)).map_err(failed)?;
    let (service, requests) = Service::new(registry, open, clients);
    let grants = Arc::clone(&plan.grants);
    let control = Control::new(Arc::clone(&service), grants, listening.clone(), events, voice);
    let mut doors = Doors::new(Arc::clone(&service), control.clone(), listening);
    let opened = doors.prepare(&plan, handed)?;
    doors.serve(opened).map_err(failed)?;
    say::note(format_args!("listening on {}", service.listening()));
    voice.detail(format_args!("session {}", events.session()));
    notify.ready(&service.line());
    let control = control.ok();
    let carried = Arc::clone(&service);
    let operation = Operation { arguments, voice, plan, doors, service, control, events, notify, requests };
    operation.run(signals).await;
    carried.clients().conclude();
    Ok(())
}

/// What carries clients without a role.
fn clients_of_no_role(plan: &Plan, events: &Events, listening: &Listening, room: &Arc<Room>) -> Session {
    let outer = outer::here();
    let facts = Facts::new(outer::doors(outer)).beside(listening.clone());
    let mut names = session::names(Arc::clone(&plan.policy));
    names.quota = Arc::new(Quota::of(room.share(1)));
    let mut session = Session::new(Arc::new(names), events.clone(), facts);
    session.outer = outer;
    // They live on, so what is open when it ends is ended.
    session.limits.delivery = Duration::ZERO;
    session.limits = session.limits.with_room_for(usize::MAX, netbox_launcher::descriptor_limit());
    operate::bound(&session, plan.limits);
    session
}
