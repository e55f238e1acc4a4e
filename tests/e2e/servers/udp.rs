//! A UDP echo. netbox lets no datagram out, so all that this server ever sees comes from runs without netbox.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;

use super::Shared;
use crate::arrivals::Arrival;

/// Where it listens.
pub const PORT: u16 = 4433;

/// Answers each datagram with itself.
pub(super) fn start(socket: UdpSocket, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let local = socket.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            shared.arrivals.message(&Arrival::message_to("udp", local, peer), None, text);
            // The client may be gone.
            let _ = socket.send_to(&buffer[..length], peer);
        }
    });
}
