//! Everything that the service listens on: opened, closed and kept as its plan says.
//!
//! What a plan adds is opened first, all of it or nothing, and only then does anything change. What a plan no longer names
//! takes no more connections, and those that it took live on. A socket that the service was started with is used where it
//! listens on what the plan names, and otherwise for what it is: a unix socket for control, a TCP socket for plain clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netbox_config::Source;
use netbox_config::service::Listener;
use netbox_proxy::facts::Listening;
use netbox_proxy::metrics::serve_metrics;
use netbox_proxy::{Listeners, serve_while_open};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::activation::Handed;
use super::control::Control;
use super::plan::Plan;
use super::service::Service;
use super::socket::{self, ControlSocket};
use super::{Fault, listen};
use crate::say;

/// Who may connect to a control socket: its owner, and root.
const SOCKET_MODE: u32 = 0o600;
/// The same where other users may have something: everybody, to be told what that is. Who it is the kernel says.
const OPEN_SOCKET_MODE: u32 = 0o666;

/// What is listened on, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Control(PathBuf),
    Clients(Listener),
    Metrics(SocketAddr),
}

/// A socket that listens.
#[derive(Debug)]
enum Socket {
    Unix(UnixListener, Option<ControlSocket>),
    Tcp(TcpListener),
}

/// What was opened, and is not served yet.
#[derive(Debug)]
pub struct Opened {
    purpose: Purpose,
    socket: Socket,
    /// It outlives the service.
    is_handed: bool,
}

/// What is served.
struct Door {
    purpose: Purpose,
    /// Where, as it is told.
    shown: String,
    address: Option<SocketAddr>,
    /// Another handle of a TCP socket, for whoever serves the same address for another purpose after a reload.
    socket: Option<TcpListener>,
    /// Dropped, it takes no more.
    close: Option<oneshot::Sender<()>>,
    is_handed: bool,
}

/// All of them.
pub struct Doors {
    service: Arc<Service>,
    /// What is wrong with this machine, where sandboxes cannot be carried.
    control: Result<Arc<Control>, String>,
    listening: Listening,
    open: Vec<Door>,
    tasks: JoinSet<()>,
    /// Ends what was taken, too.
    stop: watch::Sender<bool>,
}

impl Doors {
    /// None yet.
    pub fn new(service: Arc<Service>, control: Result<Arc<Control>, String>, listening: Listening) -> Self {
        let (open, tasks, stop) = (Vec::new(), JoinSet::new(), watch::Sender::new(false));
        Self { service, control, listening, open, tasks, stop }
    }

    /// Opens what the plan names and is not open: each of them, or none. Needs the runtime.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn prepare(&self, plan: &Plan, handed: Vec<Handed>) -> Result<Vec<Opened>, Fault> {
        let mut handed: Vec<_> = handed.into_iter().map(Some).collect();
        let mut opened = Vec::new();
        for purpose in purposes(plan).into_iter().filter(|purpose| self.of(purpose).is_none()) {
            let own = handed.iter_mut().find(|handed| handed.as_ref().is_some_and(|handed| purpose.is_at(handed)));
            let (socket, is_handed) = match own.and_then(Option::take) {
                Some(handed) => (handed.into(), true),
                None => match self.at_same_address(&purpose) {
                    Some(door) => (door.share().map_err(|error| (error.to_string(), None))?, door.is_handed),
                    None => (purpose.bind(plan)?, false),
                },
            };
            opened.push(Opened { purpose, socket, is_handed });
        }
        for handed in handed.into_iter().flatten() {
            let purpose = Purpose::of(&handed).map_err(|error| (format!("LISTEN_FDS: {error}"), None))?;
            opened.push(Opened { purpose, socket: handed.into(), is_handed: true });
        }
        let is_control = |opened: &Opened| matches!(opened.purpose, Purpose::Control(_));
        match &self.control {
            Err(why) if opened.iter().any(is_control) => Err((why.clone(), None)),
            _ => Ok(opened),
        }
    }

    /// Serves what was opened.
    ///
    /// # Errors
    /// One of them cannot be served: the runtime does not take it.
    pub fn serve(&mut self, opened: Vec<Opened>) -> io::Result<()> {
        let mut doors = Vec::new();
        let mut sockets = Vec::new();
        for Opened { purpose, socket, is_handed } in opened {
            let (close, closed) = oneshot::channel();
            let address = socket.address();
            let other = match &socket {
                Socket::Tcp(listener) => Some(listener.try_clone()?),
                Socket::Unix(..) => None,
            };
            let shown = match (&purpose, address) {
                (Purpose::Control(path), _) => format!("unix:{}", path.display()),
                (_, Some(address)) => address.to_string(),
                (Purpose::Clients(listener), None) => listener.address.to_string(),
                (Purpose::Metrics(address), None) => address.to_string(),
            };
            sockets.push((purpose.clone(), socket, is_handed, closed));
            doors.push(Door { purpose, shown, address, socket: other, close: Some(close), is_handed });
        }
        self.open.extend(doors);
        // Before anything is accepted: no connection that a tenant is allowed may lead here.
        self.tell();
        for (purpose, socket, is_handed, closed) in sockets {
            self.spawn(purpose, socket, is_handed, closed)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        purpose: Purpose,
        socket: Socket,
        is_handed: bool,
        closed: oneshot::Receiver<()>,
    ) -> io::Result<()> {
        let closed = async {
            // Dropped means closed.
            let _ = closed.await;
        };
        match (purpose, socket) {
            (Purpose::Control(_), Socket::Unix(listener, held)) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                if let Ok(control) = self.control.clone() {
                    self.tasks.spawn(async move { control.serve(listener, held, closed).await });
                }
            }
            (Purpose::Metrics(_), Socket::Tcp(listener)) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let service = Arc::clone(&self.service);
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = serve_metrics(listener, service) => {}
                        () = closed => {}
                    }
                });
            }
            (Purpose::Clients(purpose), Socket::Tcp(listener)) => {
                let clients = self.service.clients();
                let entrance = clients.entrance(&purpose);
                let entrance = entrance.ok_or_else(|| io::Error::other("its TLS files were not read"))?;
                let session = Arc::clone(clients.outside());
                let mut stop = self.stop.subscribe();
                let clients = vec![(listener, entrance)];
                let listeners = Listeners { clients, shared: is_handed, ..Listeners::default() };
                self.tasks.spawn(async move {
                    let stopped = async {
                        // Nobody left to say so says so.
                        let _ = stop.wait_for(|stop| *stop).await;
                    };
                    if let Err(error) = serve_while_open(session, listeners, closed, stopped).await {
                        say::error(format_args!("plain clients cannot be served: {error}"), None);
                    }
                });
            }
            (Purpose::Control(_), Socket::Tcp(_)) | (_, Socket::Unix(..)) => {}
        }
        Ok(())
    }

    /// Closes what the plan does not name. What was handed over stays open: whoever started the service wants it so.
    pub fn close_others(&mut self, plan: &Plan) {
        let wanted = purposes(plan);
        let is_replaced = |door: &Door| {
            let address = door.purpose.address();
            address.is_some() && wanted.iter().any(|purpose| purpose.address() == address)
        };
        let is_wanted = |door: &Door| {
            wanted.iter().any(|purpose| purpose.is_same(&door.purpose)) || door.is_handed && !is_replaced(door)
        };
        self.open.retain(is_wanted);
        self.tell();
    }

    /// Takes no more connections. The metrics, and a control socket of the service's own, stay until the end.
    pub fn drain(&mut self) {
        for door in &mut self.open {
            let stays = matches!(door.purpose, Purpose::Metrics(_))
                || matches!(door.purpose, Purpose::Control(_)) && !door.is_handed;
            if !stays {
                (door.close, door.socket) = (None, None);
            }
        }
    }

    /// Ends everything, and waits for it.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        // New ones find nobody before those that are attached are let go.
        self.open.clear();
        if let Ok(control) = &self.control {
            control.end();
        }
        self.tasks.join_all().await;
    }

    /// Tells the others where the service listens.
    fn tell(&self) {
        self.listening.set(self.open.iter().filter_map(|door| door.address).collect());
        let has_control = self.open.iter().any(|door| matches!(door.purpose, Purpose::Control(_)));
        let has_others = has_control || self.service.clients().have_roles();
        self.service.registry().room().keep_some(has_others);
        self.service.listens_on(self.open.iter().map(|door| door.shown.clone()).collect());
    }

    /// What listens on the same TCP address for another purpose.
    fn at_same_address(&self, purpose: &Purpose) -> Option<&Door> {
        let address = purpose.address().filter(|address| address.port() != 0)?;
        self.open.iter().find(|door| door.purpose.address() == Some(address))
    }

    fn of(&self, purpose: &Purpose) -> Option<&Door> {
        self.open.iter().find(|door| door.purpose.is_same(purpose))
    }
}

/// What a plan wants to listen on.
fn purposes(plan: &Plan) -> Vec<Purpose> {
    let control = plan.control.iter().cloned().map(Purpose::Control);
    let clients = plan.listeners.iter().cloned().map(Purpose::Clients);
    control.chain(clients).chain(plan.metrics.map(Purpose::Metrics)).collect()
}

impl Door {
    /// The same socket, for another purpose.
    fn share(&self) -> io::Result<Socket> {
        let socket = self.socket.as_ref().ok_or_else(|| io::Error::other("it takes no more connections"))?;
        socket.try_clone().map(Socket::Tcp)
    }
}

impl Purpose {
    /// The TCP address, as it is written.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Control(_) => None,
            Self::Clients(Listener { address, .. }) | Self::Metrics(address) => Some(*address),
        }
    }

    /// The same, wherever it is written.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Clients(one), Self::Clients(other)) => {
                (one.address, &one.role, &one.tls) == (other.address, &other.role, &other.tls)
            }
            _ => self == other,
        }
    }

    /// Whether that socket listens there.
    fn is_at(&self, handed: &Handed) -> bool {
        match (self, handed) {
            (Self::Control(path), Handed::Unix(listener)) => path_of(listener).as_deref() == Some(path),
            (Self::Clients(Listener { address, .. }) | Self::Metrics(address), Handed::Tcp(listener)) => {
                listener.local_addr().is_ok_and(|own| own == *address)
            }
            _ => false,
        }
    }

    /// What a socket is for that the plan does not name.
    fn of(handed: &Handed) -> io::Result<Self> {
        match handed {
            Handed::Unix(listener) => {
                path_of(listener).map(Self::Control).ok_or_else(|| io::Error::other("a unix socket without a path"))
            }
            Handed::Tcp(listener) => {
                let address = listener.local_addr()?;
                let source = Source::Environment("LISTEN_FDS");
                let listener = Listener { address, role: None, tls: None, any: false, source };
                if !listener.is_loopback() {
                    let text = format!("other machines reach `{address}`: give it a `[[service.listener]]` of its own");
                    return Err(io::Error::other(text));
                }
                Ok(Self::Clients(listener))
            }
        }
    }

    fn bind(&self, plan: &Plan) -> Result<Socket, Fault> {
        match self {
            Self::Control(path) => {
                let mode = if plan.grants.are_for_others() { OPEN_SOCKET_MODE } else { SOCKET_MODE };
                let (listener, held) = socket::bind(path, mode)?;
                Ok(Socket::Unix(listener, Some(held)))
            }
            Self::Clients(Listener { address, .. }) | Self::Metrics(address) => {
                listen::listen(*address).map(Socket::Tcp).map_err(|why| (why, None))
            }
        }
    }
}

impl Socket {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }
}

impl From<Handed> for Socket {
    fn from(handed: Handed) -> Self {
        match handed {
            Handed::Tcp(listener) => Self::Tcp(listener),
            Handed::Unix(listener) => Self::Unix(listener, None),
        }
    }
}

fn path_of(listener: &UnixListener) -> Option<PathBuf> {
    listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
}
