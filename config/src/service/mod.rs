//! `[service]`: where `netbox proxy serve` listens, and who its tenants are.
//!
//! The table is the machine's, so a project's file never holds it. Of several files that do, the innermost is in force as a
//! whole: two services that share a host are two tables, not a mixture. The deny rules, ceilings and modes of all files
//! bind every tenant all the same.

mod address;
mod fault;
pub(crate) mod limits;
mod listener;
mod principal;
mod quantity;
pub(crate) mod reading;
mod role;
mod token;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::file_error::{FileError, FileFault};
use crate::policy_file::Section;
use crate::source::Source;

pub use address::ListenAddress;
pub use fault::ServiceFault;
pub use limits::TenantLimits;
pub use listener::{Listener, TlsFiles};
pub use principal::{Member, Principal};
pub use role::Role;
pub use token::TokenHash;

/// What `[service]` says, known to be right in itself: every role that is named is there, and no token stands twice.
///
/// | key | value |
/// | --- | --- |
/// | `listen` | list of `"unix:PATH"` (control sockets) and `"ADDRESS:PORT"` (proxies without a role of their own) |
/// | `metrics` | `"ADDRESS:PORT"` |
/// | `events` | `"PATH"` or `"unix-datagram:PATH"` |
/// | `drain` | a duration: how long flows have to finish after SIGTERM |
/// | `[service.limits]` | what each tenant has, where its own table says nothing else |
/// | `[service.user_limits]` | what all sandboxes of a user have together, where its table says nothing else |
/// | `[service.user.NAME]` | what a user's sandboxes are held to; `"*"` is any user who has no table |
/// | `[service.group.NAME]` | the same for the members of a group |
/// | `[service.role.NAME]` | a named policy for plain clients |
/// | `[[service.listener]]` | a proxy with a role, with TLS, or on an address that other machines reach |
#[derive(Clone, Debug, Default)]
pub struct ServiceSettings {
    /// The control sockets, and where each is written.
    pub control: Vec<(PathBuf, Source)>,
    /// Where plain clients are served: those of `listen` first, then those that have tables of their own.
    pub listeners: Vec<Listener>,
    /// Where metrics are served.
    pub metrics: Option<(SocketAddr, Source)>,
    /// Where events go.
    pub events: Option<(EventsTarget, Source)>,
    /// How long flows have to finish once the service is told to end.
    pub drain: Option<Duration>,
    /// What each tenant has unless its own table says otherwise.
    pub limits: TenantLimits,
    /// What all sandboxes of a user have together unless its table says otherwise.
    pub user_limits: TenantLimits,
    pub(crate) users: BTreeMap<Arc<str>, Principal>,
    pub(crate) groups: BTreeMap<Arc<str>, Principal>,
    pub(crate) roles: BTreeMap<Arc<str>, Role>,
}

/// Where events are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventsTarget {
    /// A file, which is appended to.
    File(PathBuf),
    /// A unix datagram socket: a line is a datagram.
    UnixDatagram(PathBuf),
}

impl ServiceSettings {
    /// A role.
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// The roles by name, sorted.
    pub fn roles(&self) -> impl Iterator<Item = (&Arc<str>, &Role)> {
        self.roles.iter()
    }

    /// What each role, user and group says.
    pub(crate) fn sections(&self) -> impl Iterator<Item = &Section> {
        let principals = self.users.values().chain(self.groups.values()).map(|principal| &principal.section);
        self.roles.values().map(|role| &role.section).chain(principals)
    }

    /// Whether somebody who comes in there has to prove a token: where one of the roles that the listener could be for has
    /// tokens. Where the address is what is trusted, the role has none.
    pub fn asks_for_token(&self, role: Option<&str>) -> bool {
        match role {
            Some(name) => self.roles.get(name).is_some_and(Role::has_tokens),
            None => self.roles.values().any(Role::has_tokens),
        }
    }

    /// Listeners that other machines reach and that ask for nothing, without the word that this is meant. A service does
    /// not start with one.
    ///
    /// Not an error of the file: the command that makes the first token reads it too.
    pub fn exposed(&self) -> Vec<FileError> {
        let is_exposed = |listener: &&Listener| {
            !listener.any && !listener.is_loopback() && !self.asks_for_token(listener.role.as_deref())
        };
        let error = |listener: &Listener| {
            let fault = FileFault::Service(ServiceFault::Exposed(listener.address));
            FileError::new(listener.source.clone(), fault).with_hint(listener.way_to_close())
        };
        self.listeners.iter().filter(is_exposed).map(error).collect()
    }
}
