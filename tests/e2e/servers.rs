//! The servers of the test's internet, one thread per listener and one per connection.
//!
//! They stand on every address of the `inet` namespace alike, so what distinguishes two hosts is the address and the
//! name that a connection used, and both are written into the log (`arrivals`).

mod dns;
mod echo;
mod gates;
mod http;
mod https;
mod ssh;
mod udp;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use gates::Gates;
pub use http::PASSWORD;
pub use https::Authority;
pub use ssh::SOFTWARE as SSH_SOFTWARE;
pub use udp::PORT as UDP_PORT;

use crate::arrivals::{Arrivals, Entry};
use crate::network::Network;
use crate::zone::{self, Zone};

/// Every TCP port on which something listens, with the service that is behind it.
pub const PORTS: [(u16, &str); 9] = [
    (22, "ssh"),
    (80, "http"),
    (443, "https"),
    (3000, "http"),
    (5432, "echo"),
    (8080, "http"),
    (8443, "https"),
    (9000, "echo"),
    (9001, "half-close"),
];

/// Ports of the HTTP server on the test host itself, which no sandbox may reach.
pub const HOST_PORTS: [u16; 2] = [80, 8080];

/// No server waits longer than this for a client.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the servers share.
#[derive(Debug)]
pub struct Shared {
    /// The log.
    pub arrivals: Arrivals,
    /// What the name server knows.
    pub zone: Zone,
    /// Where answers wait for a test's word.
    pub gates: Gates,
    /// Who signs the HTTPS servers' certificates.
    pub authority: Authority,
    /// Files that the HTTP servers serve below `/files/`.
    pub files: PathBuf,
}

/// Binds every socket and starts the servers.
///
/// # Panics
///
/// When a socket cannot be bound.
pub fn start(network: &Network, shared: &Arc<Shared>) {
    let bind = |port: u16| TcpListener::bind(("::", port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
    for (port, service) in PORTS {
        serve(network.in_inet(|| bind(port)), service, shared);
    }
    for port in HOST_PORTS {
        serve(bind(port), "host-http", shared);
    }
    let bind_udp = |address: SocketAddr| UdpSocket::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    for address in [zone::NAME_SERVER, zone::PUBLIC_RESOLVER] {
        let udp = network.in_inet(|| bind_udp((address, 53).into()));
        let tcp = network.in_inet(|| TcpListener::bind((address, 53)).expect("port 53"));
        dns::start(udp, tcp, shared);
    }
    for address in [zone::UDP_ECHO.into(), zone::UDP_ECHO_V6.into()] {
        udp::start(network.in_inet(|| bind_udp(SocketAddr::new(address, udp::PORT))), shared);
    }
}

/// Accepts for ever. The log is written here and not by the connection's thread: in the order of the queue.
fn serve(listener: TcpListener, service: &'static str, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        for accepted in listener.incoming() {
            let Ok(stream) = accepted else { continue };
            let Some(connection) = Connection::new(stream, service, &shared) else { continue };
            thread::spawn(move || connection.handle());
        }
    });
}

/// One accepted connection and its place in the log.
struct Connection {
    stream: TcpStream,
    service: &'static str,
    entry: Entry,
    shared: Arc<Shared>,
}

impl Connection {
    /// `None` when it is already gone.
    fn new(stream: TcpStream, service: &'static str, shared: &Arc<Shared>) -> Option<Self> {
        let (local, peer) = (canonical(stream.local_addr().ok()?), canonical(stream.peer_addr().ok()?));
        let entry = shared.arrivals.accepted(service, local, peer);
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Self { stream, service, entry, shared: Arc::clone(shared) })
    }

    /// A connection that breaks is the client's affair: the test looks at the client and at the log.
    fn handle(self) {
        let _ = match self.service {
            "http" | "host-http" => http::serve(&self.stream, &self),
            "https" => https::serve(&self),
            "ssh" => ssh::serve(&self),
            "echo" => echo::serve(&self),
            "half-close" => echo::answer_after_fin(&self),
            other => unreachable!("no server is called `{other}`"),
        };
        self.shared.arrivals.ended(self.entry);
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        // Closing a socket with unread bytes resets it, and the client might lose the answer.
        let _ = std::io::copy(&mut (&self.stream).take(1 << 20), &mut std::io::sink());
    }
}

/// IPv4 arrives at these listeners in its IPv6-mapped form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
