//! What a service is to be: by what was typed, and by its files. It is made when the service starts, and anew at every
//! reload.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use netbox_config::service::{EventsTarget, ListenAddress, Listener, TenantLimits};
use netbox_config::{Policy, Source};

use super::clients::ClientPlan;
use super::grants::Grants;
use crate::cli::ServeArguments;
use crate::policy::{self, Asking, Refused};
use crate::say::Voice;

/// How long what is open has to finish, if nothing else is said.
const DRAIN: Duration = Duration::from_secs(30);

/// What a service is to be.
#[derive(Debug)]
pub struct Plan {
    /// The policy of clients without a role.
    pub policy: Arc<Policy>,
    /// What other tenants may have.
    pub grants: Arc<Grants>,
    /// The control sockets.
    pub control: Vec<PathBuf>,
    /// Where plain clients come in.
    pub listeners: Vec<Listener>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where events go, if nothing else was typed.
    pub events: Option<EventsTarget>,
    /// How long what is open has to finish, once the service is told to end.
    pub drain: Duration,
    /// Roles of plain clients, and the files of their listeners. Taken out when it is put in force.
    pub clients: ClientPlan,
    /// What a tenant may use where nothing else is said.
    pub limits: TenantLimits,
}

impl Plan {
    /// Reads the files, and says what there is to be said about them.
    ///
    /// # Errors
    /// A flag or a file is wrong.
    pub fn make(arguments: &ServeArguments, voice: Voice) -> Result<Self, Refused> {
        let effective = policy::load(&arguments.policy, None, Asking::NoProject)?;
        let settings = effective.layers.settings().cloned().unwrap_or_default();
        if let Some(error) = settings.exposed().first() {
            return Err(Refused::new(error.to_string()));
        }
        let mut control: Vec<_> = settings.control.iter().map(|(path, _)| path.clone()).collect();
        let mut listeners = settings.listeners.clone();
        for listen in &arguments.listen {
            match listen {
                ListenAddress::Unix(path) if control.contains(path) => {}
                ListenAddress::Unix(path) => control.push(path.clone()),
                ListenAddress::Tcp(address) if is_there(&listeners, *address) => {}
                ListenAddress::Tcp(address) => {
                    let any = arguments.listen_any;
                    listeners.push(Listener { address: *address, role: None, tls: None, any, source: FLAG });
                }
            }
        }
        let asks = |listener: &Listener| settings.asks_for_token(listener.role.as_deref());
        if let Some(open) = listeners.iter().find(|open| !open.is_loopback() && !open.any && !asks(open)) {
            let text =
                format!("`--listen {}`: other machines could use the proxy, which asks for no token", open.address);
            let hint = "listen on `127.0.0.1`, give a role a token (`netbox proxy token new ROLE --write`), or add \
                        `--listen-any` if that is meant";
            return Err(Refused::usage(text).hint(hint));
        }
        // Whoever attaches brings a policy, and so does whoever has a role.
        if listeners.iter().any(|listener| listener.role.is_none()) && !settings.asks_for_token(None) {
            effective.warn(voice);
        }
        let clients = ClientPlan::read(&effective.layers, voice)?;
        Ok(Self {
            clients,
            control,
            listeners,
            metrics: arguments.metrics.or(settings.metrics.as_ref().map(|(address, _)| *address)),
            events: settings.events.as_ref().map(|(target, _)| target.clone()),
            drain: arguments.drain_timeout.or(settings.drain).unwrap_or(DRAIN),
            limits: settings.limits,
            policy: Arc::new(effective.compiled.into_policy()),
            grants: Arc::new(Grants::new(effective.layers)),
        })
    }
}

/// Where a listener comes from that was typed.
const FLAG: Source = Source::Flag("--listen");

/// Whether that address has a listener. Of port 0 there may be any number.
fn is_there(listeners: &[Listener], address: SocketAddr) -> bool {
    address.port() != 0 && listeners.iter().any(|listener| listener.address == address)
}
