//! A port of the sandbox's that was opened to this host (`--publish`): connections come from outside, and go in.
//!
//! # Theory of operation
//!
//! The listener is an ordinary socket of the host's, on loopback. For each connection that it accepts, a socket is made
//! inside ([`MakeSocket`]) and connected from out here to the sandbox's loopback; then bytes move. The sandbox has no part
//! in it but that it listens, and gains no way out: it cannot begin such a connection, and whoever does is a program of
//! the host's that asked for this port.
//!
//! The kernel has accepted before netbox knows whether anybody listens inside. Where nobody does, the connection is reset.
//!
//! The policy is about what the sandbox reaches, so these connections are no decisions, and no events.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use netbox_config::Port;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::dial::DIAL_DEADLINE;
use crate::meter::Counts;
use crate::session::Session;
use crate::socket::{self, Connection};
use crate::tunnel::{Open, tunnel};

/// Makes a nonblocking TCP socket of the sandbox's network, for IPv6 or else for IPv4. It may block.
pub type MakeSocket = dyn Fn(bool) -> io::Result<OwnedFd> + Send + Sync;

/// A port of the sandbox's loopback, and how it is reached.
#[derive(Clone)]
pub struct Published {
    /// The port inside.
    pub port: Port,
    /// See there.
    pub make_socket: Arc<MakeSocket>,
}

/// Carries one connection from the host to its end. Dropping it ends the connection. It counts as undelivered, for what
/// the sandbox sends, before the future is first polled.
pub(crate) fn handle(session: &Session, host: TcpStream, published: &Published) -> impl Future<Output = ()> + use<> {
    socket::no_delay(&host);
    let undelivered = session.deliveries.begin();
    let published = published.clone();
    async move {
        let Ok(Ok(inside)) = timeout(DIAL_DEADLINE, connect(&published)).await else { return socket::reset(host) };
        socket::no_delay(&inside);
        let mut inside = Connection::new(inside);
        inside.undelivered = Some(undelivered);
        tunnel(&mut inside, &mut Connection::new(host), Open, &Counts::default()).await;
    }
}

/// Connects to the port inside. Servers that were told `localhost` may listen on ::1 alone.
async fn connect(published: &Published) -> io::Result<TcpStream> {
    let refused = match connect_to(published, Ipv4Addr::LOCALHOST.into()).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => error,
        other => return other,
    };
    connect_to(published, Ipv6Addr::LOCALHOST.into()).await.map_err(|_| refused)
}

async fn connect_to(published: &Published, address: IpAddr) -> io::Result<TcpStream> {
    let make_socket = Arc::clone(&published.make_socket);
    let socket = spawn_blocking(move || make_socket(address.is_ipv6())).await.map_err(io::Error::other)??;
    let address = SocketAddr::new(address, published.port.get());
    TcpSocket::from_std_stream(StdStream::from(socket)).connect(address).await
}

#[cfg(test)]
mod tests;
