use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::capture::tests::world::{World, expect, expect_reset, rest, send, soon};

/// Sockets of this host stand for those of the sandbox's. Counts how many were made.
fn published(port: u16, made: &Arc<AtomicUsize>) -> Published {
    let made = Arc::clone(made);
    let make_socket = move |ipv6: bool| {
        made.fetch_add(1, Ordering::Relaxed);
        let socket = if ipv6 { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
        std::os::fd::AsFd::as_fd(&socket).try_clone_to_owned()
    };
    Published { port: Port::new(port).unwrap(), make_socket: Arc::new(make_socket) }
}

/// A program's connection, from the host.
async fn connect(world: &World, published: &Published) -> (TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    (client, tokio::spawn(handle(&world.session, accepted, published)))
}

#[tokio::test]
async fn bytes_pass_both_ways_and_the_end_of_one_leaves_the_other() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let world = World::new(&[]);
        let inside = TcpListener::bind(address).await.unwrap();
        let made = Arc::default();
        let published = published(inside.local_addr().unwrap().port(), &made);
        let (mut client, carried) = connect(&world, &published).await;
        let (mut server, _) = soon(inside.accept()).await.unwrap();
        send(&mut client, "a question").await;
        expect(&mut server, "a question").await;
        soon(tokio::io::AsyncWriteExt::shutdown(&mut client)).await.unwrap();
        assert_eq!(rest(&mut server).await, b"");
        send(&mut server, "the answer").await;
        drop(server);
        assert_eq!(rest(&mut client).await, b"the answer");
        soon(carried).await.unwrap();
        assert!(world.events().await.is_empty(), "no decision of the policy's");
        let expected = if address.starts_with('[') { 2 } else { 1 };
        assert_eq!(made.load(Ordering::Relaxed), expected, "the one for IPv6 is made when it is needed");
    }
}

#[tokio::test]
async fn nobody_inside_is_a_reset() {
    let world = World::new(&[]);
    // Bound and not listening: nobody else gets the port meanwhile.
    let (v4, v6) = (TcpSocket::new_v4().unwrap(), TcpSocket::new_v6().unwrap());
    v4.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = v4.local_addr().unwrap().port();
    v6.bind(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port)).unwrap();
    let (mut client, carried) = connect(&world, &published(port, &Arc::default())).await;
    expect_reset(&mut client).await;
    soon(carried).await.unwrap();
}

#[tokio::test]
async fn a_socket_that_cannot_be_made_is_a_reset() {
    let world = World::new(&[]);
    let make_socket = |_| Err(io::ErrorKind::BrokenPipe.into());
    let published = Published { port: Port::new(80).unwrap(), make_socket: Arc::new(make_socket) };
    let (mut client, carried) = connect(&world, &published).await;
    expect_reset(&mut client).await;
    soon(carried).await.unwrap();
}

#[tokio::test]
async fn what_the_sandbox_sent_counts_as_undelivered_until_the_host_has_it() {
    let world = World::new(&[]);
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let published = published(inside.local_addr().unwrap().port(), &Arc::default());
    let (mut client, _carried) = connect(&world, &published).await;
    let (mut server, _) = soon(inside.accept()).await.unwrap();
    let mut delivered = std::pin::pin!(world.session.deliveries.all());
    assert!(timeout(std::time::Duration::ZERO, &mut delivered).await.is_err());
    send(&mut server, "the last word").await;
    drop(server);
    soon(delivered).await;
    expect(&mut client, "the last word").await;
}
