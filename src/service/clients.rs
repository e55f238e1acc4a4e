//! Plain clients: the roles, what carries each of them, and whose clients come in by which listener.
//!
//! Every role is a tenant of its own, with a session, a policy, bounds and events of its own. What a client sends before it
//! is known whose it is, is carried by a session that reaches nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use netbox_config::Policy;
use netbox_config::service::{Listener, TenantLimits, TlsFiles, TokenHash};
use netbox_proxy::Session;
use netbox_proxy::events::{Events, Outlet, Relay, SessionId, Start};
use netbox_proxy::facts::Facts;
use netbox_proxy::metrics::Viewer;
use netbox_proxy::quota::Quota;
use netbox_proxy::service::credentials::{Entrance, Role, Roles, TenantDoor};
use netbox_proxy::service::registry::{Registration, Registry, Tenant, TenantKind};
use netbox_proxy::tls::Identity;

use super::tls;
use crate::policy::{Layers, Refused};
use crate::say::Voice;
use crate::{outer, session};

/// Of all connections that the process can hold, one role may have this part, so that it leaves room for the others.
const PART_OF_A_ROLE: u64 = 2;

/// What plain clients are to be: read from files, and wrong in nothing. Made when the service starts, and at every reload.
#[derive(Debug, Default)]
pub struct ClientPlan {
    roles: Vec<RolePlan>,
    identities: HashMap<TlsFiles, Identity>,
}

#[derive(Debug)]
struct RolePlan {
    name: Arc<str>,
    policy: Arc<Policy>,
    limits: TenantLimits,
    tokens: Vec<TokenHash>,
    is_admin: bool,
}

impl ClientPlan {
    /// What these files say; what else is to be said of them, too.
    ///
    /// # Errors
    /// A role's rules do not fit the other files, or a file of a TLS listener cannot be used.
    pub fn read(layers: &Layers, voice: Voice) -> Result<Self, Refused> {
        let Some(settings) = layers.settings() else { return Ok(Self::default()) };
        let mut plan = Self::default();
        for (name, compiled) in layers.roles()? {
            let Some(role) = settings.role(&name) else { continue };
            compiled.warnings().iter().for_each(|warning| voice.warn(warning));
            compiled.without_effect().iter().for_each(|lint| {
                voice.warn(format_args!("{}: {}", lint.source(), lint.text()));
            });
            plan.roles.push(RolePlan {
                policy: Arc::new(compiled.into_policy()),
                limits: role.limits().or(settings.limits),
                tokens: role.tokens().map(|(hash, _)| *hash).collect(),
                is_admin: role.is_admin(),
                name,
            });
        }
        for listener in &settings.listeners {
            let Some(files) = &listener.tls else { continue };
            let identity = tls::identity(files);
            let identity = identity
                .map_err(|refused| Refused { text: format!("{}: {}", listener.source, refused.text), ..refused })?;
            plan.identities.insert(files.clone(), identity);
        }
        Ok(plan)
    }
}

/// The plain clients of a service.
pub struct Clients {
    /// What carries a client before it is known whose it is.
    outside: Arc<Session>,
    roles: Arc<Roles>,
    carried: Mutex<Carried>,
    events: Events,
    registry: Registry,
    facts: Box<dyn Fn() -> Facts + Send + Sync>,
}

#[derive(Default)]
struct Carried {
    roles: BTreeMap<Arc<str>, CarriedRole>,
    identities: HashMap<TlsFiles, Arc<Identity>>,
}

struct CarriedRole {
    session: Arc<Session>,
    is_admin: bool,
    /// Dropped, it is not among those who are carried any more.
    _registration: Registration,
}

impl Clients {
    /// Nobody yet. `open` carries clients of no role, `events` is where all is written, and `facts` are made for each session.
    pub fn new(
        open: &Arc<Session>,
        events: &Events,
        registry: &Registry,
        facts: impl Fn() -> Facts + Send + Sync + 'static,
    ) -> Self {
        let mut outside = Session::new(Arc::new(session::names(nothing())), events.clone(), facts());
        bound(&mut outside, 1);
        Self {
            outside: Arc::new(outside),
            roles: Arc::new(Roles::new(Vec::new(), Arc::clone(open))),
            carried: Mutex::default(),
            events: events.clone(),
            registry: registry.clone(),
            facts: Box::new(facts),
        }
    }

    /// What carries a client before it is known whose it is.
    pub fn outside(&self) -> &Arc<Session> {
        &self.outside
    }

    /// Puts a plan in force. How many connections that ends.
    ///
    /// # Errors
    /// The kernel gives no random number.
    pub fn replace(&self, plan: ClientPlan) -> std::io::Result<usize> {
        let mut carried = self.carried();
        // What can fail comes first.
        let mut new = BTreeMap::new();
        for role in &plan.roles {
            if !carried.roles.contains_key(&role.name) {
                new.insert(Arc::clone(&role.name), self.begin(role)?);
            }
        }
        let mut ended = 0;
        let (mut roles, mut known) = (BTreeMap::new(), Vec::new());
        for RolePlan { name, policy, limits, tokens, is_admin } in plan.roles {
            let Some(role) = carried.roles.remove(&name).or_else(|| new.remove(&name)) else { continue };
            role.session.quota().set(&limits);
            ended += role.session.replace_policy(policy);
            known.push(Role { name: Arc::clone(&name), tokens, session: Arc::clone(&role.session) });
            roles.insert(name, CarriedRole { is_admin, ..role });
        }
        ended += self.roles.replace(known);
        // Nobody comes in by those that are gone, and what they have open ends.
        for role in carried.roles.values() {
            ended += role.session.replace_policy(nothing());
            self.conclude_one(&role.session);
        }
        carried.roles = roles;
        for (files, identity) in plan.identities {
            match carried.identities.get(&files) {
                Some(known) => known.replace(identity),
                None => drop(carried.identities.insert(files, Arc::new(identity))),
            }
        }
        Ok(ended)
    }

    /// What is asked of those who come in by a listener. `None`: its TLS files were not in any plan.
    pub fn entrance(&self, listener: &Listener) -> Option<Arc<Entrance>> {
        let tls = match &listener.tls {
            Some(files) => Some(Arc::clone(self.carried().identities.get(files)?)),
            None => None,
        };
        let door = TenantDoor { roles: Arc::clone(&self.roles), only: listener.role.clone() };
        Some(Arc::new(Entrance { door, tls }))
    }

    /// Whether there is any role.
    pub fn have_roles(&self) -> bool {
        !self.carried().roles.is_empty()
    }

    /// Whose token that is: of a role that may see what others do, or of another one. `None`: of none.
    pub fn viewer(&self, token: &[u8]) -> Option<Viewer> {
        let name = self.roles.of(token)?;
        let is_admin = self.carried().roles.get(&name).is_some_and(|role| role.is_admin);
        Some(if is_admin { Viewer::Admin } else { Viewer::Role(name.to_string()) })
    }

    /// Counts what the roles have done among what the service has, for its summary.
    pub fn conclude(&self) {
        for role in self.carried().roles.values() {
            self.conclude_one(&role.session);
        }
    }

    fn conclude_one(&self, session: &Session) {
        self.events.add(&session.events.summary(), session.events.dropped());
    }

    /// A role that nobody has been yet.
    fn begin(&self, role: &RolePlan) -> std::io::Result<CarriedRole> {
        let outlets: Vec<Arc<dyn Outlet>> = vec![Arc::new(Relay::new(&self.events))];
        let events = Events::of_role(Arc::clone(&role.name), outlets, SessionId::random()?);
        events.start(Start {
            argv0: program(),
            mode: role.policy.mode(),
            policy: role.policy.digest(),
            walls: vec!["proxy".to_owned()],
            doors: Vec::new(),
            pid: std::process::id(),
        });
        let mut names = session::names(Arc::clone(&role.policy));
        names.quota = Arc::new(Quota::of(self.registry.room().share(1)));
        let mut session = Session::new(Arc::new(names), events, (self.facts)());
        session.outer = outer::here();
        bound(&mut session, PART_OF_A_ROLE);
        let session = Arc::new(session);
        let tenant = Tenant {
            kind: TenantKind::Role,
            uid: None,
            pid: None,
            name: role.name.to_string(),
            asked: None,
            session: Arc::clone(&session),
            since: SystemTime::now(),
        };
        Ok(CarriedRole { session, is_admin: role.is_admin, _registration: self.registry.enter(tenant) })
    }

    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A policy that allows nothing.
fn nothing() -> Arc<Policy> {
    Arc::new(Policy::closed())
}

/// This part of what the process can hold. Its clients live on, so what is open when it ends is ended.
fn bound(session: &mut Session, part: u64) {
    session.limits.delivery = Duration::ZERO;
    session.limits = session.limits.with_room_for(usize::MAX, netbox_launcher::descriptor_limit() / part);
}

fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).to_string_lossy().into_owned()
}
