//! What attached sandboxes have of the service.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netbox_config::{AskedPolicy, Granted, Policy};
use netbox_launcher::peer::Namespace;
use netbox_proxy::events::{Events, Outlet, Relay, SessionId, Start};
use netbox_proxy::facts::Facts;
use netbox_proxy::quota::Quota;
use netbox_proxy::service::handed::Networks;
use netbox_proxy::service::host::{Host, Lane, Peer};
use netbox_proxy::service::registry::{Asking, Registry, Tenant};
use netbox_proxy::service::wire::{Refused, RefusedFor};
use netbox_proxy::{Listeners, Session};
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::Control;
use crate::{outer, session};

/// Of all descriptors, one sandbox's connections may take this part.
const PART_OF_A_SANDBOX: u64 = 8;

impl Host for Control {
    fn networks(&self) -> Networks {
        self.networks
    }

    fn registry(&self) -> &Registry {
        self.service.registry()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn joined(&self, tenant: &Tenant, generation: u64) {
        if self.generation() != generation {
            self.grant_again(tenant);
        }
        let Tenant { asked: Some(Asking { peer, .. }), session, name, .. } = tenant else { return };
        // Here alone: the client tells its own beginning.
        let policy = session.policy();
        let start = Start {
            argv0: name.clone(),
            mode: policy.mode(),
            policy: policy.digest(),
            walls: vec!["proxy".to_owned()],
            doors: Vec::new(),
            pid: peer.pid.unsigned_abs(),
        };
        let here = self.outlets(peer, session.events.session());
        Events::told_to(here, session.events.session(), 0).attached(&start, peer.uid);
        if self.service.is_draining() {
            session.drain();
        }
    }

    fn is_own_user_namespace(&self, handle: &OwnedFd) -> bool {
        Namespace::of_handle(handle).is_ok_and(|namespace| namespace == self.user_namespace)
    }

    fn grant(&self, peer: &Peer, asked: &AskedPolicy) -> Result<Granted, Refused> {
        // Names may have to be looked up in a directory.
        let held = block_in_place(|| self.grants().held(peer))?;
        let granted = asked.grant(std::slice::from_ref(&held.bound));
        granted.map_err(|error| Refused::new(RefusedFor::Malformed, error.to_string()))
    }

    fn session(&self, peer: &Peer, policy: Arc<Policy>, events: Events, listeners: &Listeners) -> Session {
        let caught_ports = listeners.caught_ports();
        let inside = netbox_launcher::own_addresses(caught_ports.as_deref().unwrap_or_default());
        let facts = Facts::new([listeners.addresses(), inside, outer::doors(self.outer)].concat())
            .beside(self.listening.clone());
        let (mut names, user) = (session::names(policy), self.service.registry().user(peer.uid));
        names.quota = Arc::new(Quota::within(Arc::clone(&user)));
        let mut session = Session::new(Arc::new(names), events, facts);
        session.caught_ports = caught_ports;
        session.outer = self.outer;
        let descriptors = netbox_launcher::descriptor_limit() / PART_OF_A_SANDBOX;
        session.limits = session.limits.with_room_for(session.limits.connections, descriptors);
        if let Ok(held) = self.grants().held(peer) {
            session.quota().set(&held.limits);
            user.set(&held.user_limits);
        }
        session
    }

    fn outlets(&self, _peer: &Peer, _session: SessionId) -> Vec<Arc<dyn Outlet>> {
        match self.events.are_written() {
            true => vec![Arc::new(Relay::new(&self.events))],
            false => Vec::new(),
        }
    }

    fn ends(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn lane(&self, peer: &Peer) -> Result<Lane, Refused> {
        self.lanes.of(peer.uid, self.own_uid)
    }
}
