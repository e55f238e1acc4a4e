use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use super::*;

fn who(pid: u32) -> Who {
    Box::new(move || Some(Process { pid, exe: None }))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const DESTINATION: &str = "198.18.0.7:443";

/// A connection, and the address that it comes from.
async fn connection() -> (TcpStream, TcpStream, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, source) = listener.accept().await.unwrap();
    (client, server, source)
}

fn pid(origin: &Origin) -> Option<u32> {
    origin.process().map(|process| process.pid)
}

#[tokio::test]
async fn a_connection_is_its_callers_and_says_so_as_often_as_it_is_asked() {
    let (_client, stream, source) = connection().await;
    let callers = Callers::with_room_for(8);
    callers.begin(address(DESTINATION)).unwrap().made(source, who(7));
    let other = Origin::of(&callers, &stream, address("198.18.0.8:443"));
    assert_eq!(pid(&other), None, "another destination is another connection");
    let origin = Origin::of(&callers, &stream, address(DESTINATION));
    assert_eq!((pid(&origin), pid(&origin.clone())), (Some(7), Some(7)));
    assert_eq!(pid(&Origin::of(&callers, &stream, address(DESTINATION))), None, "it was taken");
}

#[tokio::test]
async fn addresses_are_the_same_in_both_families() {
    let (_client, stream, source) = connection().await;
    let callers = Callers::with_room_for(8);
    let mapped = |address: SocketAddr| match address {
        SocketAddr::V4(address) => SocketAddr::new(address.ip().to_ipv6_mapped().into(), address.port()),
        SocketAddr::V6(_) => unreachable!("made above"),
    };
    callers.begin(mapped(address(DESTINATION))).unwrap().made(mapped(source), who(7));
    assert_eq!(pid(&Origin::of(&callers, &stream, address(DESTINATION))), Some(7));
}

#[tokio::test]
async fn the_last_who_had_the_address_has_it_and_nobody_while_that_is_unclear() {
    let (_client, stream, source) = connection().await;
    let callers = Callers::with_room_for(8);
    let origin = || Origin::of(&callers, &stream, address(DESTINATION));
    callers.begin(address(DESTINATION)).unwrap().made(source, who(7));
    let next = callers.begin(address(DESTINATION)).unwrap();
    let elsewhere = callers.begin(address("198.18.0.9:443")).unwrap();
    assert_eq!(pid(&origin()), None, "it may be the one that is under way");
    next.made(source, who(8));
    assert_eq!(pid(&origin()), Some(8));
    drop(elsewhere);
    callers.begin(address(DESTINATION)).unwrap().made(source, who(9));
    drop(callers.begin(address(DESTINATION)).unwrap());
    assert_eq!(pid(&origin()), Some(9), "one that failed is not under way");
}

/// Counts those who are still kept.
fn counted(kept: &Arc<AtomicUsize>) -> Who {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    kept.fetch_add(1, Ordering::SeqCst);
    let counted = Counted(Arc::clone(kept));
    Box::new(move || {
        let _ = &counted;
        None
    })
}

#[tokio::test]
async fn so_many_are_kept_and_none_that_has_ended() {
    let (_client, stream, source) = connection().await;
    let kept = Arc::new(AtomicUsize::new(0));
    let callers = Callers::with_room_for(8);
    for port in 1..100 {
        let source = SocketAddr::new(source.ip(), port);
        callers.begin(address(DESTINATION)).unwrap().made(source, counted(&kept));
    }
    assert_eq!(kept.load(Ordering::SeqCst), 8);
    callers.begin(address(DESTINATION)).unwrap().made(source, counted(&kept));
    assert_eq!(kept.load(Ordering::SeqCst), 8);
    drop(Origin::of(&callers, &stream, address(DESTINATION)));
    assert_eq!(kept.load(Ordering::SeqCst), 7, "its connection has ended without being judged");
    callers.begin(address(DESTINATION)).unwrap().made(SocketAddr::new(source.ip(), 99), counted(&kept));
    assert_eq!(kept.load(Ordering::SeqCst), 7, "the same two ends are one connection");
}

#[tokio::test]
async fn where_nobody_wants_to_know_nothing_is_kept() {
    let (_client, stream, _) = connection().await;
    let callers = Callers::default();
    assert!(callers.begin(address(DESTINATION)).is_none());
    assert_eq!(pid(&Origin::of(&callers, &stream, address(DESTINATION))), None);
}
