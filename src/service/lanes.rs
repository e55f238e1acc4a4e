//! Where sandboxes are carried: those of the service's own user on its runtime, those of any other user on a thread of that
//! user's alone.
//!
//! A listener that is handed over stays open at its maker's, who can change what both have in common: whether calls on it
//! wait. Then accept(2) may wait for ever on a connection that the maker has taken away, and the thread with it. That must
//! not be another user's thread. Whoever is the service's own user could as well stop the service.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use netbox_proxy::service::host::Lane;
use netbox_proxy::service::wire::{Refused, RefusedFor};
use tokio::runtime::{self, Handle};

/// The lanes, each made when it is first needed and kept.
pub struct Lanes {
    shared: Handle,
    users: Mutex<HashMap<u32, Handle>>,
}

impl Lanes {
    /// The service's own runtime alone.
    pub fn new(shared: Handle) -> Self {
        Self { shared, users: Mutex::default() }
    }

    /// Where that user's are carried.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn of(&self, uid: u32, own: u32) -> Result<Lane, Refused> {
        if uid == own {
            return Ok(Lane { runtime: self.shared.clone(), is_users_own: false });
        }
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = users.get(&uid) {
            return Ok(Lane { runtime: runtime.clone(), is_users_own: true });
        }
        let runtime = start(uid)
            .map_err(|error| Refused::new(RefusedFor::Limit, format!("there is no thread for this user: {error}")))?;
        users.insert(uid, runtime.clone());
        Ok(Lane { runtime, is_users_own: true })
    }
}

fn start(uid: u32) -> io::Result<Handle> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("user-{uid}")).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
