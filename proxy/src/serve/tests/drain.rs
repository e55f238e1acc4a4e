//! The end of a service: what is open may finish, and nothing new begins.

use std::io::Write as _;

use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

use super::*;
use crate::capture::tests::world::{expect, expect_end, rest};

const CONNECT: &str = "CONNECT github.com:22 HTTP/1.1\r\nHost: github.com:22\r\n\r\n";
const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
const GET: &str = "GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n";

type Serving = JoinHandle<io::Result<()>>;

/// An explicit door of this world, until something is sent.
fn serving(world: &World, shared: bool) -> (std::net::SocketAddr, TcpListener, oneshot::Sender<()>, Serving) {
    let explicit = listen("127.0.0.1:0");
    let (address, kept) = (explicit.local_addr().unwrap(), explicit.try_clone().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let listeners = Listeners { explicit: vec![explicit], shared, ..Listeners::default() };
    let serving = serve_until(Arc::clone(&world.session), listeners, async {
        let _ = stopped.await;
    });
    (address, kept, stop, tokio::spawn(serving))
}

#[tokio::test]
async fn what_is_open_finishes_and_what_is_idle_ends() {
    let world = World::new(&["github.com", "github.com:22"]);
    let (address, kept, stop, serving) = serving(&world, false);
    drop(kept);
    let (tunnels, web) = (world.server("203.0.113.10:22").await, world.server("203.0.113.10:80").await);
    let mut tunnel = TcpStream::connect(address).await.unwrap();
    send(&mut tunnel, CONNECT).await;
    expect(&mut tunnel, ESTABLISHED).await;
    let mut far = tunnels.accept().await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    send(&mut idle, GET).await;
    let mut idle_server = web.accept().await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    send(&mut busy, GET).await;
    let mut busy_server = web.accept().await;
    send(&mut idle_server, "HTTP/1.1 204 No Content\r\n\r\n").await;
    expect(&mut idle, "HTTP/1.1 204 No Content\r\n\r\n").await;

    world.session.drain();
    expect_end(&mut idle).await;
    expect_end(&mut silent).await;
    // The answer that is under way comes, and says that it is the last.
    send(&mut busy_server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(rest(&mut busy).await, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    // The listener is gone, and the tunnel is not.
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    send(&mut far, "SSH-2.0-server\r\n").await;
    expect(&mut tunnel, "SSH-2.0-server\r\n").await;
    assert!(!serving.is_finished());
    let session = Arc::clone(&world.session);
    let idle = tokio::spawn(async move { session.idle().await });
    tunnel.shutdown().await.unwrap();
    expect_end(&mut far).await;
    assert!(!idle.is_finished());
    drop(far);
    expect_end(&mut tunnel).await;
    drop(tunnel);
    soon(idle).await.unwrap();
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
    let ends: Vec<_> = of(&world.events().await, "close").iter().map(|close| close["end"].clone()).collect();
    assert_eq!(ends, ["done", "done", "done"]);
}

#[tokio::test]
async fn what_has_connected_is_taken_unless_somebody_else_will() {
    for shared in [false, true] {
        let world = World::new(&["github.com"]);
        let (explicit, (stop, stopped)) = (listen("127.0.0.1:0"), oneshot::channel::<()>());
        let mut waiting = TcpStream::connect(explicit.local_addr().unwrap()).await.unwrap();
        let kept = into_tokio(explicit.try_clone().unwrap()).unwrap();
        // Before anybody accepts.
        world.session.drain();
        let listeners = Listeners { explicit: vec![explicit], shared, ..Listeners::default() };
        let drained = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(serve_until(Arc::clone(&world.session), listeners, drained));
        if shared {
            send(&mut soon(kept.accept()).await.unwrap().0, "from another one").await;
            expect(&mut waiting, "from another one").await;
        } else {
            // It said nothing, and so it ends in order.
            expect_end(&mut waiting).await;
        }
        stop.send(()).unwrap();
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_has_connected_and_was_not_taken_yet_is_waited_for() {
    let world = World::new(&["github.com"]);
    let (address, kept, stop, serving) = serving(&world, false);
    drop(kept);
    let web = world.server("203.0.113.10:80").await;
    while world.session.is_idle() {
        tokio::task::yield_now().await;
    }
    // On this runtime nothing is accepted before the next wait.
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(GET.as_bytes()).unwrap();
    world.session.drain();
    assert_eq!(world.session.connections(), 0);
    assert!(!world.session.is_idle());
    let session = Arc::clone(&world.session);
    let idle = tokio::spawn(async move { session.idle().await });
    let mut server = web.accept().await;
    assert!(!idle.is_finished());
    send(&mut server, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    soon(idle).await.unwrap();
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
    assert_eq!(of(&world.events().await, "close")[0]["end"], "done");
}

#[tokio::test]
async fn what_does_not_finish_is_ended_with_the_service() {
    let world = World::new(&["github.com:22"]).limits(|limits| limits.delivery = Duration::ZERO);
    let (address, _kept, stop, serving) = serving(&world, true);
    let server = world.server("203.0.113.10:22").await;
    let mut tunnel = TcpStream::connect(address).await.unwrap();
    send(&mut tunnel, CONNECT).await;
    expect(&mut tunnel, ESTABLISHED).await;
    let mut far = server.accept().await;
    world.session.drain();
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
    assert_eq!(soon(far.read(&mut [0])).await.unwrap_or(0), 0);
    drop(tunnel);
    let events = world.events().await;
    assert_eq!(of(&events, "close")[0]["end"], "reset");
}
