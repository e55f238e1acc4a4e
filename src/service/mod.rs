//! `netbox proxy serve`: the explicit door without a sandbox, for programs that are told of a proxy.

#[cfg(test)]
mod cases;
mod control;
mod grants;
mod lanes;
mod listen;
mod socket;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use netbox_config::Policy;
use netbox_config::service::ListenAddress;
use netbox_proxy::events::{Events, SessionId, Start};
use netbox_proxy::facts::Facts;
use netbox_proxy::service::registry::Registry;
use netbox_proxy::{Listeners, Session, serve_until};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::ServeArguments;
use crate::event_sink::{self, EventSink};
use crate::policy::{self, Asking, Effective};
use crate::say::{self, Voice};
use crate::{FAILED, USAGE, outer, session, summary};

use control::Control;
use grants::Grants;
use socket::ControlSocket;

/// Who may connect to a control socket: its owner, and root.
const SOCKET_MODE: u32 = 0o600;
/// The same where other users may have something: everybody, to be told what that is. Who it is the kernel says.
const OPEN_SOCKET_MODE: u32 = 0o666;

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
    let settings = effective.layers.settings();
    let mut paths: Vec<_> =
        settings.into_iter().flat_map(|settings| &settings.control).map(|(path, _)| path.clone()).collect();
    let mut addresses = Vec::new();
    for listen in &arguments.listen {
        match listen {
            ListenAddress::Unix(path) if paths.contains(path) => {}
            ListenAddress::Unix(path) => paths.push(path.clone()),
            ListenAddress::Tcp(address) => addresses.push(*address),
        }
    }
    if let Some(address) = addresses.iter().find(|address| !listen::is_loopback(address) && !arguments.listen_any) {
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
    // Whoever attaches brings a policy.
    if !addresses.is_empty() {
        effective.warn(voice);
    }
    match hold(arguments, (&paths, &addresses), voice, effective, sink) {
        Ok(()) => 0,
        Err((why, hint)) => refuse(FAILED, &why, hint.as_deref()),
    }
}

/// Why nothing was served, and what to do.
type Fault = (String, Option<String>);

/// From here on, an error means that nothing was served.
fn hold(
    arguments: &ServeArguments,
    (paths, addresses): (&[PathBuf], &[SocketAddr]),
    voice: Voice,
    effective: Effective,
    sink: Option<EventSink>,
) -> Result<(), Fault> {
    let plain = |text: String| (text, None);
    let id = SessionId::random().map_err(|error| plain(format!("cannot draw a session number: {error}")))?;
    // Both before any thread exists.
    netbox_launcher::look_names_up_as_written();
    netbox_launcher::become_carrier();
    let events = Events::new(id, sink.map(|sink| sink.file));
    let grants = Grants::new(effective.layers);
    let mode = if grants.are_for_others() { OPEN_SOCKET_MODE } else { SOCKET_MODE };
    let policy = Arc::new(effective.compiled.into_policy());
    let runtime = runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| plain(format!("cannot start the proxy: {error}")))?;
    runtime.block_on(async {
        let listeners = listen::listen(addresses).map_err(plain)?;
        let sockets = paths.iter().map(|path| socket::bind(path, mode)).collect::<Result<Vec<_>, _>>()?;
        serve_on(listeners, sockets, grants, &policy, &events, voice).await.map_err(plain)
    })?;
    // Lookups may still sit on their threads; nobody waits for them.
    runtime.shutdown_background();
    summary::conclude(&events, 0, arguments.summary, voice);
    Ok(())
}

/// Until a signal comes.
async fn serve_on(
    listeners: Vec<TcpListener>,
    sockets: Vec<(UnixListener, ControlSocket)>,
    grants: Grants,
    policy: &Arc<Policy>,
    events: &Events,
    voice: Voice,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot start the proxy: {error}");
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?);
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let addresses: Vec<_> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let outer = netbox_launcher::is_nested().then(outer::around);
    let own = [addresses.clone(), outer::doors(outer)].concat();
    let mut session = Session::new(Arc::new(session::names(Arc::clone(policy))), events.clone(), Facts::new(own));
    session.outer = outer;
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
    let registry = Registry::new();
    let mut controls = JoinSet::new();
    let mut listening: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    // Held until the end.
    let mut held = Vec::new();
    if !sockets.is_empty() {
        let control = Control::new(registry, grants, addresses, voice)?;
        for (listener, socket) in sockets {
            listening.push(format!("unix:{}", socket.path().display()));
            held.push(socket);
            listener.set_nonblocking(true).map_err(failed)?;
            let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
            controls.spawn(Arc::clone(&control).serve(listener));
        }
    }
    let listening = listening.join(" ");
    say::note(format_args!("listening on {listening}"));
    voice.detail(format_args!("session {}", events.session()));
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    let served = serve_until(Arc::new(session), Listeners { explicit: listeners, ..Listeners::default() }, stop).await;
    // New ones find nobody, before those that are attached are let go.
    drop(held);
    controls.shutdown().await;
    served.map_err(failed)
}
