//! Clients of the shared service that lie, flood, or stop in the middle. Each is refused with a word, and the service goes on.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::control::{Cell, Control, attach, frame, shown_namespace};
use crate::programs::{CURL, curl};
use crate::run::eventually;
use crate::service::Service;
use crate::tests;
use crate::world::World;

tests![
    malformed_requests_are_refused_with_a_word needs [CURL],
    descriptors_that_are_no_listeners_of_a_sandbox_are_refused needs [CURL],
    the_services_own_network_is_not_carried needs [],
    a_sandbox_is_carried_once needs [],
    a_client_that_shows_no_namespace_is_refused needs [],
    connections_that_say_nothing_are_bounded_and_end needs [CURL],
    a_flood_of_refused_requests_leaves_nothing_behind needs [CURL],
    nobody_is_what_they_say needs [],
];

/// That it goes on serving.
fn serves(world: &World, service: &Service<'_>, label: &str) {
    let host = world.zone().host(label);
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/")])).exits_with(0).says("hello");
}

fn malformed_requests_are_refused_with_a_word(world: &World) {
    let service = Service::start(world, &[]);
    let before = service.sockets();
    for (bytes, reason) in [
        (frame(b""), "malformed"),
        (frame(b"{}"), "malformed"),
        (frame(b"\xff\xfe"), "malformed"),
        (frame(br#"{"v":1,"what":"attach","uid":0}"#), "malformed"),
        (frame(br#"{"v":2,"what":"attach"}"#), "version"),
        (vec![0xff; 64], "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "malformed"),
    ] {
        let mut control = Control::connect(&service);
        control.send(&bytes, &[]);
        assert_eq!(control.refusal(), reason, "{bytes:?}");
        service.running().wait_for_stderr(&format!(": {reason}: "));
    }
    for text in ["{}".to_owned(), attach(&[], &[]).to_string().replace("\"events\"", "\"sinks\"")] {
        let mut control = Control::hello(&service, "attach");
        control.send(&frame(text.as_bytes()), &[]);
        assert_eq!(control.refusal(), "malformed", "{text}");
    }
    let mut control = Control::hello(&service, "attach");
    control.send(&frame(&vec![b' '; (4 << 20) + 1])[..5], &[]);
    assert_eq!(control.refusal(), "malformed", "too long by its length alone");
    assert!(eventually(|| service.sockets() == before), "nothing is left open");
    serves(world, &service, "service-malformed");
    service.stop().exits_with(0);
}

fn descriptors_that_are_no_listeners_of_a_sandbox_are_refused(world: &World) {
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let cell = Cell::new();
    let connected = cell.connect().expect("it listens");
    let (unix, _other) = UnixStream::pair().expect("a pair");
    let descriptors: [(&str, OwnedFd); 6] = [
        ("explicit", connected.into()),
        ("explicit", File::open("/dev/null").expect("a device").into()),
        ("capture", unix.into()),
        ("dns-udp", cell.listener.try_clone().expect("a descriptor").into()),
        ("dns-tcp", File::open("/proc/self/ns/net").expect("a namespace").into()),
        ("user-namespace", shown_namespace(world)),
    ];
    for (kind, descriptor) in descriptors {
        let mut control = Control::hello(&service, "attach");
        let namespace = shown_namespace(world);
        let request = frame(attach(&[kind, "user-namespace"], &[]).to_string().as_bytes());
        control.send(&request, &[descriptor.as_fd(), namespace.as_fd()]);
        assert_eq!(control.refusal(), "descriptors", "{kind}");
    }
    // Fewer, and more, than are counted.
    for (kinds, count) in [(&["explicit", "explicit"][..], 1), (&["explicit"], 3), (&[], 1), (&["explicit"], 0)] {
        let mut control = Control::hello(&service, "attach");
        let descriptors = vec![cell.listener.as_fd(); count];
        control.send(&frame(attach(kinds, &[]).to_string().as_bytes()), &descriptors);
        assert_eq!(control.refusal(), "descriptors", "{kinds:?} {count}");
    }
    assert!(eventually(|| service.sockets() == before), "nothing is left open");
    serves(world, &service, "service-descriptors");
}

fn the_services_own_network_is_not_carried(world: &World) {
    let service = Service::start(world, &[]);
    let own = TcpListener::bind("127.0.0.1:0").expect("a port");
    let cell = Cell::new();
    for listeners in [&[&own][..], &[&cell.listener, &own], &[&cell.listener, &Cell::new().listener]] {
        let mut control = Control::hello(&service, "attach");
        let mut kinds = vec!["explicit"; listeners.len()];
        kinds.push("user-namespace");
        let namespace = shown_namespace(world);
        let mut descriptors: Vec<_> = listeners.iter().map(|listener| listener.as_fd()).collect();
        descriptors.push(namespace.as_fd());
        control.send(&frame(attach(&kinds, &["example.com"]).to_string().as_bytes()), &descriptors);
        assert_eq!(control.refusal(), "descriptors");
    }
    // Nobody accepts on it.
    let stream = TcpStream::connect(own.local_addr().expect("bound")).expect("it listens");
    assert_eq!(own.accept().expect("its own").1, stream.local_addr().expect("connected"));
}

fn a_sandbox_is_carried_once(world: &World) {
    let service = Service::start(world, &[]);
    let cell = Cell::new();
    let control = cell.attached(world, &service, &[]);
    let (_, answer) = cell.attach(world, &service, &["example.com"]);
    assert_eq!((&answer["type"], &answer["reason"]), (&"refused".into(), &"attached".into()));
    drop(control);
    assert!(eventually(|| cell.attach(world, &service, &[]).1["type"] == "granted"));
}

fn a_client_that_shows_no_namespace_is_refused(world: &World) {
    if world.identity.real_root {
        // There the service sees by itself where a client is.
        return;
    }
    let service = Service::start(world, &[]);
    let cell = Cell::new();
    for (kinds, shown) in [(&["explicit"][..], None), (&["explicit", "user-namespace"], Some("/proc/self/ns/user"))] {
        let mut control = Control::hello(&service, "attach");
        let shown = shown.map(|path| File::open(path).expect("the test's own user namespace"));
        let descriptors: Vec<_> =
            [Some(cell.listener.as_fd()), shown.as_ref().map(AsFd::as_fd)].into_iter().flatten().collect();
        control.send(&frame(attach(kinds, &[]).to_string().as_bytes()), &descriptors);
        assert_eq!(control.refusal(), "namespace");
    }
}

fn connections_that_say_nothing_are_bounded_and_end(world: &World) {
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let mut silent: Vec<_> = (0..64).map(|_| Control::connect(&service)).collect();
    assert!(eventually(|| service.sockets() >= before + 64), "all are taken");
    assert_eq!(Control::connect(&service).refusal(), "limit");
    // Half a request is no more than none.
    silent[0].send(&frame(br#"{"v":1,"what":"attach"}"#)[..10], &[]);
    for control in &mut silent {
        assert_eq!(control.refusal(), "timeout");
    }
    assert!(eventually(|| service.sockets() == before), "nothing is left open");
    serves(world, &service, "service-silent");
}

fn a_flood_of_refused_requests_leaves_nothing_behind(world: &World) {
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let cell = Cell::new();
    for number in 0..500 {
        let mut control = Control::hello(&service, "attach");
        let request = frame(attach(&["dns-udp"], &[]).to_string().as_bytes());
        control.send(&request, &[cell.listener.as_fd()]);
        if number % 2 == 0 {
            assert_eq!(control.refusal(), "descriptors");
        }
    }
    assert!(eventually(|| service.sockets() == before), "nothing is left open");
    serves(world, &service, "service-flood");
}

/// What is said of a user, in whatever field, is no word that the service knows.
fn nobody_is_what_they_say(world: &World) {
    let service = Service::start(world, &[]);
    let cell = Cell::new();
    for key in ["uid", "user", "pid", "role", "token", "groups"] {
        let mut control = Control::hello(&service, "attach");
        let mut request = attach(&["explicit"], &[]);
        request[key] = json!("0");
        control.send(&frame(request.to_string().as_bytes()), &[cell.listener.as_fd()]);
        assert_eq!(control.refusal(), "malformed", "{key}");
    }
}
