//! The running service, as those see it who ask how it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use netbox_proxy::Session;
use netbox_proxy::metrics::{Observed, Readings, Viewer};
use netbox_proxy::service::registry::Registry;
use netbox_proxy::service::status::{self, Status};
use tokio::sync::{mpsc, oneshot};

use super::clients::Clients;
use super::process;

/// Something that the service is asked to do.
#[derive(Debug)]
pub enum Request {
    /// Read the files anew. Answered with what was done, or with what is wrong.
    Reload(oneshot::Sender<Result<String, String>>),
    /// End, when what is open has finished. Answered with how much that is.
    Drain(oneshot::Sender<String>),
}

/// What is known of the service while it runs.
pub struct Service {
    started: SystemTime,
    registry: Registry,
    /// What carries clients without a role.
    open: Arc<Session>,
    clients: Clients,
    is_draining: AtomicBool,
    told: Mutex<Told>,
    requests: mpsc::Sender<Request>,
}

#[derive(Debug, Default)]
struct Told {
    listening: Vec<String>,
    reloads: u64,
    failed: u64,
    error: Option<String>,
}

impl Service {
    /// One that has just started. Its requests come in where the second value says.
    pub fn new(registry: Registry, open: Arc<Session>, clients: Clients) -> (Arc<Self>, mpsc::Receiver<Request>) {
        // Whoever asks while so many wait, waits too.
        let (requests, asked) = mpsc::channel(16);
        let (is_draining, told) = (AtomicBool::new(false), Mutex::default());
        let started = SystemTime::now();
        (Arc::new(Self { started, registry, open, clients, is_draining, told, requests }), asked)
    }

    /// What carries clients without a role.
    pub fn clients_of_no_role(&self) -> &Arc<Session> {
        &self.open
    }

    /// Plain clients, and their roles.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Who is carried.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// It takes no more connections.
    pub fn drains(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.registry.tenants().iter().for_each(|(_, tenant)| tenant.session.drain());
        self.clients.outside().drain();
    }

    /// Whether it takes no more connections.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Waits until no connection is open, and none may come.
    pub async fn idle(&self) {
        loop {
            // First: who leaves it is one of the tenants' by then.
            self.clients.outside().idle().await;
            let tenants = self.registry.tenants();
            match tenants.iter().find(|(_, tenant)| !tenant.session.is_idle()) {
                Some((_, busy)) => busy.session.idle().await,
                None => return,
            }
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.registry.tenants().iter().map(|(_, tenant)| tenant.session.connections()).sum()
    }

    /// It listens there.
    pub fn listens_on(&self, listening: Vec<String>) {
        self.told().listening = listening;
    }

    /// Its files were read anew.
    pub fn reloaded(&self, result: &Result<String, String>) {
        let mut told = self.told();
        told.error = result.as_ref().err().cloned();
        match result {
            Ok(_) => told.reloads += 1,
            Err(_) => told.failed += 1,
        }
    }

    /// Where it listens, in one line.
    pub fn listening(&self) -> String {
        self.told().listening.join(" ")
    }

    /// How it is, in one line.
    pub fn line(&self) -> String {
        let (tenants, open) = (self.registry.tenants().len(), self.open());
        format!("{tenants} tenants, {open} connections, listening on {}", self.listening())
    }

    /// How it is. `viewer`: a user who may see its own sandboxes alone.
    pub fn status(&self, viewer: Option<u32>) -> Status {
        let mut visible = self.registry.tenants();
        if let Some(viewer) = viewer {
            visible.retain(|(_, tenant)| tenant.uid == Some(viewer));
        }
        let (tenants, more_tenants) = status::tenants(&visible);
        let told = self.told();
        let is_own = viewer.is_none();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().unwrap_or_default().as_secs(),
            draining: self.is_draining(),
            policy: self.open.policy().digest(),
            listening: told.listening.clone(),
            reloads: told.reloads,
            reloads_failed: told.failed,
            // It quotes files that are not everybody's.
            reload_error: told.error.clone().filter(|_| is_own),
            tenants,
            more_tenants,
        }
    }

    /// Has the files read anew, and waits for it.
    ///
    /// # Errors
    /// What is wrong with them.
    pub async fn reload(&self) -> Result<String, String> {
        let (reply, replied) = oneshot::channel();
        let gone = || Err("the service ends".to_owned());
        match self.requests.send(Request::Reload(reply)).await {
            Ok(()) => replied.await.unwrap_or_else(|_| gone()),
            Err(_) => gone(),
        }
    }

    /// Has it end when what is open has finished.
    pub async fn drain(&self) -> String {
        let (reply, replied) = oneshot::channel();
        let gone = || "the service ends already".to_owned();
        match self.requests.send(Request::Drain(reply)).await {
            Ok(()) => replied.await.unwrap_or_else(|_| gone()),
            Err(_) => gone(),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observed for Service {
    fn metrics(&self, viewer: &Viewer) -> String {
        let told = self.told();
        let reloads = (told.reloads, told.failed);
        drop(told);
        let readings = Readings {
            version: env!("CARGO_PKG_VERSION"),
            started: self.started,
            is_ready: !self.is_draining(),
            reloads,
            tenants: self.registry.readings(),
            process: process::reading().unwrap_or_default(),
        };
        readings.text(viewer)
    }

    fn is_ready(&self) -> bool {
        !self.is_draining()
    }

    fn viewer(&self, token: &[u8]) -> Option<Viewer> {
        self.clients.viewer(token)
    }
}
