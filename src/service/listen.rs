//! TCP sockets that listen.

use std::io;
use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;

/// How many connections may wait to be accepted: many programs may start at once. The kernel takes no more than
/// `net.core.somaxconn`, 4,096 by default.
const BACKLOG: u32 = 4096;

/// Opens an address. Needs the runtime.
pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let open = || -> io::Result<TcpListener> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
        // Connections that the last one left behind are no reason to wait.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    open().map_err(|error| format!("cannot listen on {address}: {error}"))
}
