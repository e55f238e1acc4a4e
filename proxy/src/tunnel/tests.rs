use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::capture::tests::world::{expect, expect_end, expect_reset, rest, send, soon};

/// Two ends of one connection over loopback.
pub(super) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// A client and a server with a tunnel between them.
pub(super) async fn tunnelled() -> (TcpStream, TcpStream, JoinHandle<TunnelEnd>, Arc<Counts>) {
    let (client, near) = pair().await;
    let (far, server) = pair().await;
    let counts = Arc::new(Counts::default());
    let counting = Arc::clone(&counts);
    let tunnel = async move { tunnel(&mut Connection::new(near), &mut Connection::new(far), Open, &counting).await };
    (client, server, tokio::spawn(tunnel), counts)
}

/// Bytes that show where one was lost, doubled or swapped.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0u32..).flat_map(|number| number.to_le_bytes()).take(length).collect()
}

#[tokio::test]
async fn a_half_close_is_passed_on_and_the_other_direction_goes_on() {
    let (mut client, mut server, tunnel, counts) = tunnelled().await;
    send(&mut client, "question").await;
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, b"question");
    send(&mut server, "answer").await;
    expect(&mut client, "answer").await;
    assert!(!tunnel.is_finished());
    server.shutdown().await.unwrap();
    expect_end(&mut client).await;
    assert_eq!(soon(tunnel).await.unwrap(), TunnelEnd::Done);
    assert_eq!((counts.sent.bytes(), counts.received.bytes()), (8, 6));
}

#[tokio::test]
async fn a_reset_of_one_side_resets_the_other() {
    for server_resets in [false, true] {
        let (client, server, tunnel, _) = tunnelled().await;
        let (gone, mut left) = if server_resets { (server, client) } else { (client, server) };
        gone.set_zero_linger().unwrap();
        drop(gone);
        expect_reset(&mut left).await;
        assert_eq!(soon(tunnel).await.unwrap(), TunnelEnd::Reset);
    }
}

#[tokio::test]
async fn what_a_server_said_before_it_stopped_reading_arrives() {
    let (mut client, mut server, tunnel, _) = tunnelled().await;
    send(&mut server, "no more").await;
    server.shutdown().await.unwrap();
    expect(&mut client, "no more").await;
    drop(server);
    // Until the server's kernel has told that nobody reads.
    let chunk = pattern(64 * 1024);
    while client.write_all(&chunk).await.is_ok() {}
    assert_eq!(soon(tunnel).await.unwrap(), TunnelEnd::Reset);
}

#[tokio::test]
async fn a_client_that_closes_its_socket_is_done_whatever_the_server_still_says() {
    let (mut client, mut server, tunnel, _) = tunnelled().await;
    send(&mut client, "bye").await;
    drop(client);
    assert_eq!(rest(&mut server).await, b"bye");
    // Until our kernel has told that nobody reads.
    let chunk = pattern(64 * 1024);
    while server.write_all(&chunk).await.is_ok() {}
    assert_eq!(soon(tunnel).await.unwrap(), TunnelEnd::Done);
}

#[tokio::test]
async fn what_is_held_goes_first() {
    let (mut client, near) = pair().await;
    let (far, mut server) = pair().await;
    let (mut near, mut far) = (Connection::new(near), Connection::new(far));
    near.buffer.extend_from_slice(b"held by the client, ");
    far.buffer.extend_from_slice(b"held by the server, ");
    send(&mut client, "then more").await;
    send(&mut server, "then more").await;
    let counts = Arc::new(Counts::default());
    let counting = Arc::clone(&counts);
    let tunnel = tokio::spawn(async move { tunnel(&mut near, &mut far, Open, &counting).await });
    expect(&mut server, "held by the client, then more").await;
    expect(&mut client, "held by the server, then more").await;
    drop((client, server));
    soon(tunnel).await.unwrap();
    assert_eq!(counts.sent.bytes(), 29);
}
