mod drain;
mod limits;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;
use crate::capture::tests::world::{World, expect_answer, of, send, soon};
use crate::original_destination::Original;

fn listen(address: &str) -> TcpListener {
    TcpListener::bind(address).unwrap()
}

/// The redirect needs a network namespace, and is tested end to end. Here nobody redirected the connection.
#[tokio::test]
async fn connections_to_the_listeners_themselves_are_reset_on_each_of_them() {
    let world = World::new(&["127.0.0.0/8:*", "[::1]:*"]);
    let capture = vec![listen("127.0.0.1:0"), listen("[::1]:0")];
    let addresses: Vec<_> = capture.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let (stop, stopped) = oneshot::channel::<()>();
    let listeners = Listeners { capture, ..Listeners::default() };
    let serving = tokio::spawn(serve_until(Arc::clone(&world.session), listeners, async {
        stopped.await.unwrap();
    }));
    for address in addresses.iter().chain(&addresses) {
        let mut client = TcpStream::connect(address).await.unwrap();
        let error = soon(client.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
    for address in addresses {
        assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
    world.assert_untouched();
}

/// Where the kernel has no nf_tables. Every address is the sandbox's there, and loopback is nobody else's.
#[tokio::test]
async fn a_connection_to_a_listener_on_every_address_is_for_its_own_address_and_loopback_is_refused() {
    let world = World::new(&["127.0.0.0/8:*", "[::1]:*"]);
    let capture = listen("[::]:0");
    let port = capture.local_addr().unwrap().port();
    let told = |stream: &TcpStream| original_destination(stream, Capture::at("[::]:0".parse().unwrap())).unwrap();
    let client = TcpStream::connect(("127.0.0.2", port)).await.unwrap();
    let accepted = capture.accept().unwrap().0;
    accepted.set_nonblocking(true).unwrap();
    let accepted = TcpStream::from_std(accepted).unwrap();
    let address = (std::net::Ipv4Addr::new(127, 0, 0, 2), port).into();
    assert_eq!(told(&accepted), Original { address, is_listener: true });
    drop(client);
    let listeners = Listeners { capture: vec![capture], ..Listeners::default() };
    let _serving = tokio::spawn(serve(Arc::clone(&world.session), listeners));
    for address in ["127.0.0.1", "127.0.0.2", "::1"] {
        let mut client = TcpStream::connect((address, port)).await.unwrap();
        let error = soon(client.read(&mut [0])).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    world.assert_untouched();
}

#[tokio::test]
async fn the_explicit_listener_speaks_and_what_is_too_much_is_reset() {
    let world = World::new(&["github.com"]).limits(|limits| limits.connections = 1);
    let explicit = listen("127.0.0.1:0");
    let address = explicit.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let listeners = Listeners { explicit: vec![explicit], ..Listeners::default() };
    let serving = tokio::spawn(serve_until(Arc::clone(&world.session), listeners, async {
        stopped.await.unwrap();
    }));
    let mut one = TcpStream::connect(address).await.unwrap();
    send(&mut one, "CONNECT evil.example:443 HTTP/1.1\r\n").await;
    // Accepted after the one before it.
    let other = async { TcpStream::connect(address).await?.read(&mut [0]).await };
    assert_eq!(soon(other).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    send(&mut one, "Host: evil.example\r\n\r\n").await;
    expect_answer(&mut one, "403").await;
    drop(one);
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
    world.assert_untouched();
    let events = world.events().await;
    let told: Vec<_> = of(&events, "decision").iter().map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(told, ["limit", "not-listed"]);
}

#[tokio::test]
async fn connections_from_the_host_leave_places_for_the_sandboxs_own() {
    let world = World::new(&["github.com"]).limits(|limits| limits.connections = 8);
    let inside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (explicit, host) = (listen("127.0.0.1:0"), listen("127.0.0.1:0"));
    let make_socket = |_| {
        let socket = tokio::net::TcpSocket::new_v4()?;
        std::os::fd::AsFd::as_fd(&socket).try_clone_to_owned()
    };
    let port = netbox_config::Port::new(inside.local_addr().unwrap().port()).unwrap();
    let published = Published { port, make_socket: Arc::new(make_socket) };
    let (explicit_address, host_address) = (explicit.local_addr().unwrap(), host.local_addr().unwrap());
    let listeners = Listeners { explicit: vec![explicit], published: vec![(host, published)], ..Listeners::default() };
    let serving = tokio::spawn(serve(Arc::clone(&world.session), listeners));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(TcpStream::connect(host_address).await.unwrap());
        soon(inside.accept()).await.unwrap();
    }
    for _ in 0..10 {
        let mut client = TcpStream::connect(host_address).await.unwrap();
        assert_eq!(soon(client.read(&mut [0])).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    let mut own = TcpStream::connect(explicit_address).await.unwrap();
    send(&mut own, "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut own, "403").await;
    serving.abort();
}

#[tokio::test]
async fn names_are_answered_while_it_serves() {
    let world = World::new(&["github.com"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listeners = Listeners { dns_udp: vec![socket], ..Listeners::default() };
    let serving = tokio::spawn(serve(Arc::clone(&world.session), listeners));
    let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06github\x03com\0\0\x01\0\x01";
    client.send_to(query, address).await.unwrap();
    let mut answer = [0; 512];
    let (length, _) = soon(client.recv_from(&mut answer)).await.unwrap();
    assert_eq!(answer[..2], query[..2]);
    // The last record's data: an address of 198.18.0.0/15.
    assert!(matches!(answer[length - 4..length], [198, 18 | 19, _, _]), "{:?}", &answer[..length]);
    serving.abort();
}

#[test]
fn what_is_wrong_with_one_connection_is_told_from_what_is_wrong_with_all() {
    // accept(2): errors of the new connection, and those of the process or the machine.
    for (number, one) in [(103, true), (104, true), (4, true), (24, false), (23, false), (105, false), (12, false)] {
        assert_eq!(is_about_one_connection(&io::Error::from_raw_os_error(number)), one, "{number}");
    }
}
