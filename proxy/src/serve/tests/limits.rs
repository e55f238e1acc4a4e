//! The bounds of a tenant: what happens there, and that it happens to nobody else.

use netbox_config::TenantLimits;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::capture::tests::world::{expect, expect_end, expect_reset, one_close, rest};
use crate::quota::Bound;

const CONNECT: &str = "CONNECT github.com:22 HTTP/1.1\r\nHost: github.com:22\r\n\r\n";
const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// The explicit door of a world with these limits.
async fn door(world: &World, limits: TenantLimits) -> std::net::SocketAddr {
    world.session.quota().set(&limits);
    let explicit = listen("127.0.0.1:0");
    let address = explicit.local_addr().unwrap();
    let listeners = Listeners { explicit: vec![explicit], ..Listeners::default() };
    tokio::spawn(serve(Arc::clone(&world.session), listeners));
    address
}

async fn tunnel(address: std::net::SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    send(&mut client, CONNECT).await;
    expect(&mut client, ESTABLISHED).await;
    client
}

#[tokio::test]
async fn connections_beyond_the_bound_are_reset_until_one_has_ended() {
    let world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let address = door(&world, TenantLimits { connections: Some(2), ..TenantLimits::default() }).await;
    let mut held = vec![tunnel(address).await, tunnel(address).await];
    let mut refused = TcpStream::connect(address).await.unwrap();
    expect_reset(&mut refused).await;
    assert_eq!(world.session.quota().reached(Bound::Connections), 1);
    drop((held.pop(), server.accept().await, server.accept().await));
    // As soon as the end has been noticed.
    while world.session.connections() > 1 {
        tokio::task::yield_now().await;
    }
    held.push(tunnel(address).await);
    // A bound may be lifted while it holds.
    world.session.quota().set(&TenantLimits::default());
    held.push(tunnel(address).await);
    held.push(tunnel(address).await);
}

#[tokio::test]
async fn a_tenant_that_has_moved_all_its_bytes_is_at_its_end() {
    let world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let address = door(&world, TenantLimits { bytes: Some(1000), ..TenantLimits::default() }).await;
    let mut client = tunnel(address).await;
    let mut far = server.accept().await;
    send(&mut far, vec![b'x'; 999]).await;
    expect(&mut client, vec![b'x'; 999]).await;
    send(&mut client, "SSH-2.0-client\r\n").await;
    expect(&mut far, "SSH-2.0-client\r\n").await;
    expect_reset(&mut client).await;
    expect_reset(&mut far).await;
    let mut refused = TcpStream::connect(address).await.unwrap();
    expect_reset(&mut refused).await;
    assert_eq!(
        (world.session.quota().sent() + world.session.quota().received(), world.session.quota().reached(Bound::Bytes)),
        (1015, 1)
    );
    let events = world.events().await;
    one_close(&events, "limit");
    assert_eq!(of(&events, "decision")[1]["reason"], "limit");
}

#[tokio::test]
async fn bandwidth_is_shared_out_and_whole() {
    let world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let address = door(&world, TenantLimits { bandwidth: Some(400_000), ..TenantLimits::default() }).await;
    let mut client = tunnel(address).await;
    let mut far = server.accept().await;
    let begun = std::time::Instant::now();
    let sent = vec![b'x'; 600_000];
    let sending = async {
        far.write_all(&sent).await.unwrap();
        far.shutdown().await.unwrap();
    };
    let ((), received) = tokio::join!(sending, rest(&mut client));
    assert_eq!(received.len(), 600_000);
    // A second's worth goes at once, and the rest takes half a second at least.
    assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    assert!(world.session.quota().reached(Bound::Bandwidth) > 0);
}

#[tokio::test]
async fn queries_beyond_the_bound_fail_and_are_counted() {
    let world = World::new(&["github.com"]);
    world.session.quota().set(&TenantLimits { dns_queries_per_second: Some(1), ..TenantLimits::default() });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listeners = Listeners { dns_udp: vec![socket], ..Listeners::default() };
    let serving = tokio::spawn(serve(Arc::clone(&world.session), listeners));
    let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06github\x03com\0\0\x01\0\x01";
    let mut codes = Vec::new();
    // More than a second can hold, however slow this is.
    while codes.last() != Some(&2) {
        assert!(codes.len() < 1000);
        client.send_to(query, address).await.unwrap();
        let mut answer = [0; 512];
        soon(client.recv_from(&mut answer)).await.unwrap();
        codes.push(answer[3] & 15);
    }
    assert_eq!(codes[0], 0);
    assert_eq!(world.session.quota().asked(), codes.len() as u64);
    assert_eq!(world.session.quota().reached(Bound::DnsQueries), 1);
    serving.abort();
}

#[tokio::test]
async fn a_greedy_tenant_waits_for_itself_and_nobody_waits_for_it() {
    let (greedy, modest) = (World::new(&["github.com:22"]), World::new(&["github.com:22"]));
    let limits = TenantLimits { new_connections_per_second: Some(1), bandwidth: Some(1), ..TenantLimits::default() };
    let crowd = door(&greedy, limits).await;
    let (own, server) = (door(&modest, TenantLimits::default()).await, modest.server("203.0.113.10:22").await);
    let far = greedy.server("203.0.113.10:22").await;
    // One is taken, and says more than it may; the others wait.
    let mut first = tunnel(crowd).await;
    let mut first_far = far.accept().await;
    let more = tokio::spawn(async move {
        // Whatever becomes of it.
        let _ = first_far.write_all(&vec![b'x'; 1 << 20]).await;
    });
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let mut client = TcpStream::connect(crowd).await.unwrap();
        send(&mut client, CONNECT).await;
        waiting.push(client);
    }
    first.readable().await.unwrap();
    for _ in 0..32 {
        let mut client = tunnel(own).await;
        let mut far = server.accept().await;
        send(&mut far, "SSH-2.0-server\r\n").await;
        expect(&mut client, "SSH-2.0-server\r\n").await;
        client.shutdown().await.unwrap();
        expect_end(&mut far).await;
    }
    let quota = greedy.session.quota();
    assert!(quota.reached(Bound::NewConnections) > 0 && quota.reached(Bound::Bandwidth) > 0);
    assert!(greedy.session.connections() < 32, "{}", greedy.session.connections());
    assert!(Bound::ALL.iter().all(|bound| modest.session.quota().reached(*bound) == 0));
    first.shutdown().await.unwrap();
    more.abort();
}
