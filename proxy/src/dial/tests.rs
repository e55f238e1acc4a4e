use std::time::Duration;

use netbox_config::{Decision, Host, HostFacts, HostName, Mode, Policy, Port, Rule, Source, Target, Via};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

/// Vetted as the addresses of some name are, by a policy that lets loopback pass.
fn vetted(addresses: &[SocketAddr]) -> Vec<VettedAddr> {
    let allow = ["127.0.0.0/8:*", "[::1]:*"].map(|rule| Rule::parse(rule, Source::Flag("--allow")).unwrap());
    let policy = Policy::new(Mode::Open, allow.into(), Vec::new()).unwrap();
    let facts = HostFacts::default();
    let vet = |address: &SocketAddr| {
        let host = Host::Name(HostName::parse_wire(b"a.example").unwrap());
        let target = Target::new(host, Port::new(address.port()).unwrap(), Via::Capture);
        let Decision::Allow(permit) = policy.decide(&target, &facts) else { panic!("refused in open mode") };
        policy.vet(&permit, address.ip(), &facts).unwrap()
    };
    addresses.iter().map(vet).collect()
}

/// An address on which nobody listens.
async fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// An address that answers nothing, as long as what is returned with it lives: its queue of connections is full.
async fn silent() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let queued = tokio::task::spawn_blocking(move || {
        let fill = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100));
        std::iter::from_fn(|| fill().ok()).collect::<Vec<_>>()
    });
    let keep = |stream: std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        TcpStream::from_std(stream).unwrap()
    };
    (address, (listener, queued.await.unwrap().into_iter().map(keep).collect()))
}

#[test]
fn families_alternate_and_keep_their_order() {
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
    let (a, b, c) = ("[2001:db8::a]:1", "[2001:db8::b]:1", "[2001:db8::c]:1");
    let (x, y) = ("203.0.113.1:1", "203.0.113.2:1");
    for (given, expected) in [
        (&[a, b, c, x, y][..], &[a, x, b, y, c][..]),
        (&[x, a, y], &[x, a, y]),
        (&[x, y, a], &[x, a, y]),
        (&[a, b], &[a, b]),
        (&[], &[]),
    ] {
        assert_eq!(interleave(addresses(given)), addresses(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_address_is_tried_at_once_when_one_refuses() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let started = Instant::now();
    let dialed = HappyEyeballs.dial(&vetted(&[closed().await, there])).await.unwrap();
    assert_eq!(dialed.address, there);
    assert!(started.elapsed() < ATTEMPT_DELAY);
}

#[tokio::test]
async fn the_next_address_is_tried_beside_one_that_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let (silent, _full) = silent().await;
    let started = Instant::now();
    let dialed = HappyEyeballs.dial(&vetted(&[silent, there])).await.unwrap();
    assert_eq!(dialed.address, there);
    assert!(started.elapsed() >= ATTEMPT_DELAY);
}

#[tokio::test]
async fn the_error_is_the_one_that_tells_most() {
    let refused = closed().await;
    assert_eq!(HappyEyeballs.dial(&vetted(&[refused])).await.unwrap_err(), DialError::Refused);
    // A broadcast address cannot be connected to.
    let nowhere = "255.255.255.255:9".parse().unwrap();
    assert_eq!(HappyEyeballs.dial(&vetted(&[nowhere])).await.unwrap_err(), DialError::Unreachable);
    for both in [[refused, nowhere], [nowhere, refused]] {
        assert_eq!(HappyEyeballs.dial(&vetted(&both)).await.unwrap_err(), DialError::Refused);
    }
}

#[tokio::test]
async fn all_attempts_together_have_a_deadline() {
    let (silent, _full) = silent().await;
    tokio::time::pause();
    let started = Instant::now();
    assert_eq!(HappyEyeballs.dial(&vetted(&[silent])).await.unwrap_err(), DialError::Timeout);
    assert!(started.elapsed() >= DIAL_DEADLINE);
}

/// Where there is no place for attempts beside the first.
static CROWDED: Semaphore = Semaphore::const_new(0);

#[tokio::test]
async fn where_many_dial_the_oldest_attempt_gives_way() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let (silent, _full) = silent().await;
    let dialed = race([silent, silent, there].into(), &CROWDED).await.unwrap();
    assert_eq!(dialed.address, there);
}

#[tokio::test]
async fn the_last_address_is_waited_for_where_many_dial() {
    let (silent, _full) = silent().await;
    let waited = timeout(ATTEMPT_DELAY * 4, race([silent, silent].into(), &CROWDED)).await;
    assert!(waited.is_err(), "{waited:?}");
}

#[tokio::test]
async fn a_connection_has_one_attempt_and_those_that_have_places() {
    static BESIDE: Semaphore = Semaphore::const_new(2);
    let (silent, _full) = silent().await;
    let (mut one, mut other) = (Attempts::new(&BESIDE), Attempts::new(&BESIDE));
    for _ in 0..6 {
        one.begin(silent);
        other.begin(silent);
        tokio::task::yield_now().await;
    }
    let running = |attempts: &mut Attempts| {
        attempts.handles.retain(|(attempt, _)| !attempt.is_finished());
        attempts.handles.len()
    };
    assert_eq!((running(&mut one), running(&mut other)), (2, 2));
    drop((one, other));
    assert_eq!(BESIDE.available_permits(), 2);
}
