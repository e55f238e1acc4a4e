//! The service, as an attached sandbox needs it; and the client, as the service knows it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netbox_config::{AskedPolicy, Granted, Policy};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::handed::Networks;
use super::registry::{Registry, Tenant};
use super::wire::Refused;
use crate::events::{Events, Outlet, SessionId};
use crate::serve::Listeners;
use crate::session::Session;

/// Who is at the other end of a control connection, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// The group, and the supplementary ones.
    pub groups: Vec<u32>,
    /// The process that connected.
    pub pid: i32,
    /// Where it is.
    pub user_namespace: UserNamespace,
}

/// In which user namespace a client is. What a user may do outside is not for programs that were put inside of one.
///
/// The kernel tells of whoever called connect(2), and a netbox makes the connects of its programs to sockets that were let in: then
/// it tells of that netbox. So every client has to show a handle of the service's namespace too, which a program inside another
/// one cannot open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespace {
    /// In the service's own.
    Own,
    /// In another one.
    Another,
    /// The service may not look.
    Untold,
}

/// The service, as an attached sandbox needs it.
pub trait Host: Send + Sync {
    /// Network namespaces.
    fn networks(&self) -> Networks;

    /// Who is carried.
    fn registry(&self) -> &Registry;

    /// Whether that is a handle of the service's own user namespace.
    fn is_own_user_namespace(&self, handle: &OwnedFd) -> bool;

    /// What of a policy that user is granted.
    ///
    /// # Errors
    /// Nothing.
    fn grant(&self, peer: &Peer, asked: &AskedPolicy) -> Result<Granted, Refused>;

    /// A number that changes whenever somebody may be granted something else.
    fn generation(&self) -> u64;

    /// A sandbox is carried from now on that was granted something when the number was that one: whatever has changed since
    /// is made up for.
    fn joined(&self, tenant: &Tenant, generation: u64);

    /// A session of this policy, which is still to be shared; its own listeners are these.
    fn session(&self, peer: &Peer, policy: Arc<Policy>, events: Events, listeners: &Listeners) -> Session;

    /// Who else is told of its events.
    fn outlets(&self, peer: &Peer, session: SessionId) -> Vec<Arc<dyn Outlet>>;

    /// Whether the service ends, which ends what it carries.
    fn ends(&self) -> watch::Receiver<bool>;

    /// Where its connections are carried.
    ///
    /// # Errors
    /// There is no room for that user.
    fn lane(&self, peer: &Peer) -> Result<Lane, Refused>;
}

/// Where connections are carried.
#[derive(Clone, Debug)]
pub struct Lane {
    /// See there.
    pub runtime: Handle,
    /// Whether it belongs to that user alone, who may do what holds it up.
    pub is_users_own: bool,
}
