//! Who is carried at the moment.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::session::Session;

/// Everybody who is carried. A clone is another handle on the same.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    next: u64,
    tenants: BTreeMap<u64, Arc<Tenant>>,
    /// The network namespaces of attached sandboxes.
    networks: HashSet<u64>,
}

/// One that is carried, by a session of its own.
pub struct Tenant {
    /// Which kind.
    pub kind: TenantKind,
    /// The user, as the kernel says.
    pub uid: Option<u32>,
    /// The process that attached, as the kernel says.
    pub pid: Option<i32>,
    /// What it calls itself: the first word of a sandbox's command, the name of a role. Text of any kind.
    pub name: String,
    /// See there.
    pub session: Arc<Session>,
    /// When it came.
    pub since: SystemTime,
}

/// Which kind of tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TenantKind {
    /// A sandbox that attached.
    Sandbox,
    /// The plain clients of one role.
    Role,
    /// The plain clients of no role.
    Default,
}

/// A place among those who are carried, until it is dropped.
#[must_use = "dropped, the tenant is carried no more"]
pub struct Registration {
    number: u64,
    registry: Registry,
}

/// The right to carry a network namespace, until it is dropped.
#[must_use = "dropped, another one may carry it"]
pub struct Claim {
    network: u64,
    registry: Registry,
}

impl Registry {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub fn enter(&self, tenant: Tenant) -> Registration {
        let mut tables = self.tables();
        let number = tables.next;
        tables.next += 1;
        tables.tenants.insert(number, Arc::new(tenant));
        drop(tables);
        Registration { number, registry: self.clone() }
    }

    /// All of them, in the order in which they came, each with its number.
    #[must_use]
    pub fn tenants(&self) -> Vec<(u64, Arc<Tenant>)> {
        self.tables().tenants.iter().map(|(number, tenant)| (*number, Arc::clone(tenant))).collect()
    }

    /// The right to carry a network namespace. `None`: it is carried already.
    #[must_use]
    pub fn claim(&self, network: u64) -> Option<Claim> {
        self.tables().networks.insert(network).then(|| Claim { network, registry: self.clone() })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// The tenant's number: 0, 1, 2, …, never given twice.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let tenant = self.registry.tables().tenants.remove(&self.number);
        // With the table open to others: what ends with it may be much.
        drop(tenant);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.tables().networks.remove(&self.network);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_carried_once_at_a_time() {
        let registry = Registry::new();
        let claim = registry.claim(7).expect("nobody has it");
        assert!(registry.claim(7).is_none());
        assert!(registry.claim(8).is_some());
        drop(claim);
        assert!(registry.claim(7).is_some());
    }
}
