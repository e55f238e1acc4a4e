//! Who may have what of the service.
//!
//! The tables of `[service]` speak of users and groups by name or number; who a client is the kernel says by number. What a
//! user is held to is compiled once for each user and set of groups, and kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use netbox_config::Bound;
use netbox_config::service::{Member, Principal, TenantLimits};
use netbox_proxy::service::host::Peer;
use netbox_proxy::service::wire::{Refused, RefusedFor};
use nix::unistd::{Gid, Group, Uid, User};

use crate::policy::Layers;

/// How many users are kept.
const KEPT: usize = 256;

/// A user's number, and those of its groups.
type Ids = (u32, Vec<u32>);

/// What the owner of the service has set for its clients.
#[derive(Debug)]
pub struct Grants {
    own_uid: u32,
    layers: Layers,
    known: Mutex<HashMap<Ids, Arc<Held>>>,
}

/// What a user's sandboxes are held to.
#[derive(Debug)]
pub struct Held {
    /// What binds whatever is asked for.
    pub bound: Bound,
    /// How much each may use, as far as that is set.
    pub limits: TenantLimits,
    /// How much all of them may use together, as far as that is set.
    pub user_limits: TenantLimits,
}

impl Grants {
    /// Those of a service with these policy files.
    pub fn new(layers: Layers) -> Self {
        Self { own_uid: netbox_launcher::effective_uid(), layers, known: Mutex::default() }
    }

    /// Whether other users than the service's own may have something.
    pub fn are_for_others(&self) -> bool {
        let nobody = Member { id: u32::MAX, name: None };
        let settings = self.layers.settings();
        settings.is_some_and(|settings| {
            settings.named_principals().next().is_some() || settings.principal(&nobody, &[]).is_some()
        })
    }

    /// What that user is held to. It may ask the system for names, and wait for them.
    ///
    /// # Errors
    /// The user may have nothing.
    pub fn held(&self, peer: &Peer) -> Result<Arc<Held>, Refused> {
        let key = (peer.uid, peer.groups.clone());
        if let Some(held) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(held));
        }
        let held = Arc::new(self.find(peer)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, Arc::clone(&held));
        Ok(held)
    }

    fn find(&self, peer: &Peer) -> Result<Held, Refused> {
        let settings = self.layers.settings().filter(|_| self.are_for_others());
        let principal = settings.and_then(|settings| {
            let groups: Vec<_> = peer.groups.iter().map(|id| Member { id: *id, name: name_of_group(*id) }).collect();
            settings.principal(&Member { id: peer.uid, name: name_of_user(peer.uid) }, &groups)
        });
        if principal.is_none() && peer.uid != self.own_uid {
            let text = format!("the service has nothing for uid {}", peer.uid);
            let hint =
                "whoever runs the service can give that user a table: `[service.user.NAME]` in its configuration";
            return Err(Refused::new(RefusedFor::User, text).hint(hint));
        }
        let compiled = self.layers.bounds(principal.as_ref()).map_err(|why| {
            // Its owner learns it when the service starts or reads its configuration anew.
            Refused::new(RefusedFor::User, format!("what the service has for uid {} is wrong: {why}", peer.uid))
        })?;
        let defaults = self.layers.settings().map(|settings| (settings.limits, settings.user_limits));
        let (limits, user_limits) = defaults.unwrap_or_default();
        let limits_of = |own: Option<TenantLimits>, defaults| own.unwrap_or_default().or(defaults);
        Ok(Held {
            bound: Bound::of(&compiled),
            limits: limits_of(principal.as_ref().map(Principal::limits), limits),
            user_limits: limits_of(principal.as_ref().map(Principal::user_limits), user_limits),
        })
    }
}

fn name_of_user(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

fn name_of_group(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}
