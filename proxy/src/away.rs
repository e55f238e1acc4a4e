//! The listeners of a sandbox that nobody carries at the moment.
//!
//! What connects would wait to be accepted, for as long as that takes. So everything is accepted and reset, and every query
//! is answered with SERVFAIL: programs see at once that there is no network, and can try again.

use std::future::pending;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::dns::reply::{Extra, Reply};
use crate::dns::wire::{MAX_QUERY, Rcode, parse};
use crate::serve::{Listeners, into_tokio};
use crate::socket;

/// How long nothing is accepted after an error that would come again at once.
const REST: Duration = Duration::from_millis(50);

/// Turns everything away until it is dropped. Somebody else may serve the same listeners afterwards.
///
/// # Errors
/// A listener cannot be used with the runtime.
pub async fn turn_away(listeners: Listeners) -> io::Result<()> {
    let mut servers = JoinSet::new();
    let host_ports = listeners.host_ports.into_iter().map(|(listener, _)| listener);
    let tcp = listeners.capture.into_iter().chain(listeners.dns_tcp).chain(listeners.explicit).chain(host_ports);
    for listener in tcp {
        servers.spawn(reset_all(into_tokio(listener)?));
    }
    for socket in listeners.dns_udp {
        servers.spawn(fail_all(into_tokio_udp(socket)?));
    }
    pending().await
}

fn into_tokio_udp(socket: UdpSocket) -> io::Result<tokio::net::UdpSocket> {
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}

async fn reset_all(listener: tokio::net::TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => socket::reset(stream),
            Err(_) => sleep(REST).await,
        }
    }
}

async fn fail_all(socket: tokio::net::UdpSocket) {
    let mut buffer = vec![0; MAX_QUERY + 1];
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            sleep(REST).await;
            continue;
        };
        if let Some((echo, _)) = parse(&buffer[..length]) {
            let reply = Reply::new(Rcode::ServFail).because(Extra::AWAY);
            // An answer that cannot be sent is lost, as datagrams are.
            let _ = socket.send_to(&reply.encode(&echo, echo.udp_limit()), peer).await;
        }
    }
}

/// Other descriptors for those listeners on which programs connect to what they want: names are still somebody else's.
///
/// # Errors
/// No descriptor is left.
pub fn copy_for_connections(listeners: &Listeners) -> io::Result<Listeners> {
    let Listeners { capture, explicit, .. } = copy(listeners)?;
    Ok(Listeners { capture, explicit, ..Listeners::default() })
}

/// Other descriptors for the listeners, which whoever carries them may get.
///
/// # Errors
/// No descriptor is left.
pub fn copy(listeners: &Listeners) -> io::Result<Listeners> {
    let tcp = |listeners: &[TcpListener]| listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
    Ok(Listeners {
        capture: tcp(&listeners.capture)?,
        dns_udp: listeners.dns_udp.iter().map(UdpSocket::try_clone).collect::<io::Result<_>>()?,
        dns_tcp: tcp(&listeners.dns_tcp)?,
        explicit: tcp(&listeners.explicit)?,
        ..Listeners::default()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn connections_are_reset_and_queries_fail_and_then_another_one_serves() {
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners = Listeners {
            capture: vec![tcp()],
            explicit: vec![tcp()],
            dns_udp: vec![UdpSocket::bind("127.0.0.1:0").unwrap()],
            ..Listeners::default()
        };
        let copies = copy(&listeners).unwrap();
        let addresses = [&copies.capture[0], &copies.explicit[0]].map(|listener| listener.local_addr().unwrap());
        let dns = copies.dns_udp[0].local_addr().unwrap();
        let away = tokio::spawn(turn_away(listeners));
        let asked = tokio::task::spawn_blocking(move || {
            for address in addresses {
                let error = TcpStream::connect(address).and_then(|mut stream| stream.read(&mut [0; 1])).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            }
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";
            socket.send_to(query, dns).unwrap();
            let mut answer = [0; 512];
            let length = socket.recv(&mut answer).unwrap();
            assert!(length >= 12 && answer[..2] == query[..2]);
            assert_eq!(answer[3] & 15, 2, "SERVFAIL");
        });
        asked.await.unwrap();
        away.abort();
        assert!(away.await.unwrap_err().is_cancelled());
        let listener = into_tokio(copies.capture.into_iter().next().unwrap()).unwrap();
        let connecting = tokio::net::TcpStream::connect(addresses[0]);
        let (accepted, connected) = tokio::join!(listener.accept(), connecting);
        assert!(accepted.is_ok() && connected.is_ok());
    }
}
