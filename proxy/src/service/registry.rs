//! Who is carried at the moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use netbox_config::AskedPolicy;

use super::host::Peer;
use super::outlet::Outbox;
use crate::metrics::{Label, MOST_LABELS, Reading};
use crate::quota::Quota;
use crate::session::Session;
use crate::share::{Held, Room};
use crate::tally::Tally;

/// Everybody who is carried. A clone is another handle on the same.
#[derive(Clone)]
pub struct Registry {
    tables: Arc<Mutex<Tables>>,
    room: Arc<Room>,
    /// The service's own user.
    own: u32,
}

#[derive(Default)]
struct Tables {
    next: u64,
    tenants: BTreeMap<u64, Arc<Tenant>>,
    /// What those did that are carried no more.
    gone: BTreeMap<Label, Tally>,
    /// The network namespaces of attached sandboxes.
    networks: HashSet<u64>,
    /// The bytes of the requests of each user whose sandboxes are carried.
    requests: HashMap<u32, usize>,
    /// What all sandboxes of a user may use together, and have used. Kept, so that what was used counts as long as the service
    /// lives.
    users: HashMap<u32, Arc<Quota>>,
}

/// Of all descriptors of the service, one user may have this part. The service's own user could as well stop it, and may have
/// all but what is kept for others.
const PART_OF_A_USER: u64 = 2;

/// How many bytes the requests of a user's sandboxes may have together: 64 MiB, which are some 600,000 rules. What is made
/// of them takes up to ten times as much memory.
pub const MOST_OF_REQUESTS: usize = 64 << 20;

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
    /// What a sandbox asked for, so that what it is granted can be found anew.
    pub asked: Option<Asking>,
    /// See there.
    pub session: Arc<Session>,
    /// When it came.
    pub since: SystemTime,
}

/// What a sandbox asked for.
pub struct Asking {
    /// As whom.
    pub peer: Peer,
    /// The policy.
    pub policy: AskedPolicy,
    /// Where its client is told what holds.
    pub outbox: Arc<Outbox>,
}

/// Which kind of tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    tenant: Arc<Tenant>,
    registry: Registry,
}

/// The right to carry a network namespace, until it is dropped.
#[must_use = "dropped, another one may carry it"]
pub struct Claim {
    network: u64,
    uid: u32,
    bytes: usize,
    registry: Registry,
    _descriptors: Held,
}

/// Why a network namespace is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoClaim {
    /// It is already.
    Taken,
    /// What the user's sandboxes have asked for is more than [`MOST_OF_REQUESTS`].
    TooMuch,
    /// The user's sandboxes have as many descriptors as they may have.
    NoDescriptors,
}

impl Registry {
    /// Nobody yet. `own` is the service's own user.
    #[must_use]
    pub fn new(room: Arc<Room>, own: u32) -> Self {
        Self { tables: Arc::default(), room, own }
    }

    /// What those who are carried share.
    #[must_use]
    pub fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// What all sandboxes of a user may use together, and have used.
    #[must_use]
    pub fn user(&self, uid: u32) -> Arc<Quota> {
        let part = if uid == self.own { 1 } else { PART_OF_A_USER };
        let quota = || Arc::new(Quota::of(self.room.share(part)));
        Arc::clone(self.tables().users.entry(uid).or_insert_with(quota))
    }

    /// One more.
    pub fn enter(&self, tenant: Tenant) -> Registration {
        let mut tables = self.tables();
        let number = tables.next;
        tables.next += 1;
        let tenant = Arc::new(tenant);
        tables.tenants.insert(number, Arc::clone(&tenant));
        drop(tables);
        Registration { number, tenant, registry: self.clone() }
    }

    /// All of them, in the order in which they came, each with its number.
    #[must_use]
    pub fn tenants(&self) -> Vec<(u64, Arc<Tenant>)> {
        self.tables().tenants.iter().map(|(number, tenant)| (*number, Arc::clone(tenant))).collect()
    }

    /// What everybody has done, also those who are carried no more, and how much of that is going on: by label, in their
    /// order.
    #[must_use]
    pub fn readings(&self) -> Vec<Reading> {
        let tables = self.tables();
        let mut readings: BTreeMap<Label, Reading> = BTreeMap::new();
        // Both at once: who leaves meanwhile is in one of them.
        let mut add = |label: Label, tenants: usize, open: usize, tally: &Tally| {
            let is_new = !readings.contains_key(&label);
            let label = if is_new && readings.len() >= MOST_LABELS { Label::Others } else { label };
            let empty = || Reading { label: label.clone(), tenants: 0, open: 0, tally: Tally::default() };
            let reading = readings.entry(label.clone()).or_insert_with(empty);
            reading.tenants += tenants;
            reading.open += open;
            reading.tally.add(tally);
        };
        tables.gone.iter().for_each(|(label, tally)| add(label.clone(), 0, 0, tally));
        for tenant in tables.tenants.values() {
            add(tenant.label(), 1, tenant.session.connections(), &tenant.session.tally());
        }
        readings.into_values().collect()
    }

    /// The right to carry a network namespace for a user, by a request of so many bytes and with so many descriptors.
    ///
    /// # Errors
    /// It is carried already, or the user's sandboxes take too much.
    pub fn claim(&self, network: u64, uid: u32, bytes: usize, descriptors: usize) -> Result<Claim, NoClaim> {
        let user = self.user(uid);
        let share = user.share().ok_or(NoClaim::NoDescriptors)?;
        let held = share.hold(descriptors as u64).ok_or(NoClaim::NoDescriptors)?;
        let mut tables = self.tables();
        let taken = tables.requests.get(&uid).copied().unwrap_or(0).saturating_add(bytes);
        if taken > MOST_OF_REQUESTS {
            return Err(NoClaim::TooMuch);
        }
        if !tables.networks.insert(network) {
            return Err(NoClaim::Taken);
        }
        tables.requests.insert(uid, taken);
        Ok(Claim { network, uid, bytes, registry: self.clone(), _descriptors: held })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenant {
    /// Under what it counts.
    #[must_use]
    pub fn label(&self) -> Label {
        match (self.kind, self.uid) {
            (TenantKind::Sandbox, Some(uid)) => Label::User(uid),
            (TenantKind::Sandbox, None) => Label::Others,
            (TenantKind::Role, _) => Label::Role(self.name.clone()),
            (TenantKind::Default, _) => Label::Default,
        }
    }
}

impl Registration {
    /// The tenant's number: 0, 1, 2, …, never given twice.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.registry.tables();
        let tenant = tables.tenants.remove(&self.number);
        if let Some(tenant) = &tenant {
            let label = tenant.label();
            let is_kept = tables.gone.contains_key(&label) || tables.gone.len() < MOST_LABELS;
            let label = if is_kept { label } else { Label::Others };
            tables.gone.entry(label).or_default().add(&tenant.session.tally());
        }
        drop(tables);
        // With the table open to others: what ends with it may be much.
        drop(tenant);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut tables = self.registry.tables();
        tables.networks.remove(&self.network);
        if let Some(taken) = tables.requests.get_mut(&self.uid) {
            *taken -= self.bytes;
            if *taken == 0 {
                tables.requests.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
impl Registry {
    /// One with room for everybody.
    pub(crate) fn roomy() -> Self {
        Self::new(Room::of_process(u64::MAX), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_carried_once_at_a_time() {
        let registry = Registry::roomy();
        let claim = registry.claim(7, 1000, 1, 1).expect("nobody has it");
        assert_eq!(registry.claim(7, 1001, 1, 1).err(), Some(NoClaim::Taken));
        assert!(registry.claim(8, 1001, 1, 1).is_ok());
        drop(claim);
        assert!(registry.claim(7, 1001, 1, 1).is_ok());
    }

    #[test]
    fn a_user_hands_over_so_many_descriptors_and_no_more() {
        let registry = Registry::new(Room::of_process(2200), 0);
        let claims: Vec<_> = (0..).map_while(|network| registry.claim(network, 1000, 1, 10).ok()).collect();
        assert_eq!(claims.len(), 100);
        assert_eq!(registry.claim(1 << 20, 1000, 1, 10).err(), Some(NoClaim::NoDescriptors));
        assert!(registry.claim(1 << 20, 1001, 1, 10).is_ok() && registry.claim(1 << 20, 0, 1, 1000).is_ok());
        drop(claims);
        assert!(registry.claim(1 << 20, 1000, 1, 1000).is_ok());
        // A request that is refused takes nothing.
        let claim = registry.claim(1, 1000, 1, 1).expect("nobody has it");
        assert!((0..5000).all(|_| registry.claim(1, 1000, 1, 1).err() == Some(NoClaim::Taken)));
        drop(claim);
    }

    #[test]
    fn a_user_asks_for_so_much_and_no_more() {
        let registry = Registry::roomy();
        let first = registry.claim(1, 1000, MOST_OF_REQUESTS - 10, 1).expect("little enough");
        let second = registry.claim(2, 1000, 10, 1).expect("just enough");
        assert_eq!(registry.claim(3, 1000, 1, 1).err(), Some(NoClaim::TooMuch));
        let other = registry.claim(3, 1001, MOST_OF_REQUESTS, 1).expect("another user's");
        drop(second);
        assert!(registry.claim(4, 1000, 10, 1).is_ok());
        drop((first, other));
        assert!(registry.tables().requests.is_empty());
    }
}
