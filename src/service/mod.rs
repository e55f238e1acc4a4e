//! `netbox proxy serve`: the explicit door without a sandbox, for programs that are told of a proxy.

mod listen;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use netbox_config::Policy;
use netbox_proxy::events::{Events, SessionId, Start};
use netbox_proxy::facts::Facts;
use netbox_proxy::{Listeners, Session, serve_until};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArguments;
use crate::event_sink::{self, EventSink};
use crate::policy::{self, Asking, Effective};
use crate::say::{self, Voice};
use crate::{FAILED, USAGE, session, summary};

/// Serves until a signal ends it. The value is the exit code.
pub fn serve(arguments: &ServeArguments) -> u8 {
    let voice = Voice { quiet: arguments.quiet, verbose: arguments.verbose };
    let refuse = |code, why: &str, hint| {
        say::error(why, hint);
        code
    };
    let effective = match policy::load(&arguments.policy, None, Asking::NoProject) {
        Ok(effective) => effective,
        Err(why) => return refuse(if why.is_usage { USAGE } else { FAILED }, &why.text, why.hint.as_deref()),
    };
    if let Some(address) =
        arguments.listen.iter().find(|address| !listen::is_loopback(address) && !arguments.listen_any)
    {
        let why = format!("`--listen {address}`: other machines could use the proxy, which has no authentication");
        return refuse(USAGE, &why, Some("listen on `127.0.0.1`, or add `--listen-any` if that is meant"));
    }
    let destination = match event_sink::destination(arguments.events.as_ref()) {
        Ok(destination) => destination,
        Err(why) => return refuse(USAGE, &why, None),
    };
    let sink = match destination.as_ref().map(EventSink::open).transpose() {
        Ok(sink) => sink,
        Err(why) => return refuse(FAILED, &why, None),
    };
    effective.warn(voice);
    match hold(arguments, voice, effective, sink) {
        Ok(()) => 0,
        Err(why) => refuse(FAILED, &why, None),
    }
}

/// From here on, an error means that nothing was served.
fn hold(arguments: &ServeArguments, voice: Voice, effective: Effective, sink: Option<EventSink>) -> Result<(), String> {
    let id = SessionId::random().map_err(|error| format!("cannot draw a session number: {error}"))?;
    // Both before any thread exists.
    netbox_launcher::look_names_up_as_written();
    netbox_launcher::become_carrier();
    let events = Events::new(id, sink.map(|sink| sink.file));
    let policy = Arc::new(effective.compiled.into_policy());
    let runtime = runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the proxy: {error}"))?;
    runtime.block_on(async {
        let listeners = listen::listen(&arguments.listen)?;
        serve_on(listeners, &policy, &events, voice).await
    })?;
    // Lookups may still sit on their threads; nobody waits for them.
    runtime.shutdown_background();
    summary::conclude(&events, 0, arguments.summary, voice);
    Ok(())
}

/// Until a signal comes.
async fn serve_on(
    listeners: Vec<TcpListener>,
    policy: &Arc<Policy>,
    events: &Events,
    voice: Voice,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot start the proxy: {error}");
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?);
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let mut session =
        Session::new(Arc::new(session::names(Arc::clone(policy))), events.clone(), Facts::new(addresses.clone()));
    // Its clients live on, so what is open when it ends is ended.
    session.limits.delivery = Duration::ZERO;
    session.limits = session.limits.with_room_for(usize::MAX, netbox_launcher::descriptor_limit());
    events.start(Start {
        argv0: std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned(),
        mode: policy.mode(),
        policy: policy.digest(),
        walls: vec!["proxy".to_owned()],
        doors: Vec::new(),
        pid: std::process::id(),
    });
    let listening = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    say::note(format_args!("listening on {listening}"));
    voice.detail(format_args!("session {}", events.session()));
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    serve_until(Arc::new(session), Listeners { explicit: listeners, ..Listeners::default() }, stop)
        .await
        .map_err(failed)
}
