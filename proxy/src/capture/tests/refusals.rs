//! What a refused program sees, and what is told of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use netbox_config::Mode;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::world::*;
use crate::capture::{handle, refuse_over_limit};
use crate::client_hello::tests::hello;
use crate::original_destination::Original;
use crate::resolve::LookupError;

const GET: &str = "GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n";

#[tokio::test]
async fn http_gets_a_403_with_the_reason_and_the_rule_that_would_allow_it() {
    for port in [80, 443, 8080, 8443, 3000] {
        let mut world = World::new(&["github.com"]).limits(|limits| limits.refused_other = Duration::from_secs(5));
        let mut client = world.connect(&format!("evil.example:{port}")).await;
        send(&mut client, GET).await;
        let body = expect_answer(&mut client, "403").await;
        let rule = if port == 80 || port == 443 { "evil.example".to_owned() } else { format!("evil.example:{port}") };
        let refused = format!("netbox: `evil.example:{port}` is refused: no rule allows this host (not-listed)\n");
        assert_eq!(body, format!("{refused}hint: `--allow {rule}` would allow it\n"));
        drop(client);
        world.assert_untouched();
        let events = world.events().await;
        let decision = one_decision(&events, "deny", "not-listed");
        assert_eq!((&decision["method"], &decision["hint"]), (&"GET".into(), &rule.into()));
        let authority = if port == 80 { "evil.example".to_owned() } else { format!("evil.example:{port}") };
        assert_eq!(decision["url"], format!("http://{authority}/a"));
    }
}

#[tokio::test]
async fn a_refused_head_request_gets_no_body() {
    let mut world = World::new(&[]);
    let mut client = world.connect("evil.example:80").await;
    send(&mut client, GET.replace("GET", "HEAD")).await;
    let answer = String::from_utf8(rest(&mut client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_large_upload_is_refused_with_an_answer_that_arrives() {
    let mut world = World::new(&[]);
    let mut client = world.connect("evil.example:80").await;
    send(&mut client, "PUT /a HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 500000\r\n\r\n").await;
    send(&mut client, vec![b'x'; 500_000]).await;
    expect_answer(&mut client, "403").await;
}

#[tokio::test]
async fn tls_gets_an_alert() {
    for port in [443, 8443] {
        let mut world = World::new(&["github.com"]);
        let mut client = world.connect(&format!("evil.example:{port}")).await;
        send(&mut client, hello("evil.example")).await;
        expect(&mut client, ALERT).await;
        expect_end(&mut client).await;
        drop(client);
        world.assert_untouched();
        assert_eq!(one_decision(&world.events().await, "deny", "not-listed")["sni"], "evil.example");
    }
}

#[tokio::test]
async fn anything_else_is_reset() {
    for bytes in
        [&b"SSH-2.0-x\r\n"[..], b"\0\0\0\x08\x04\xd2\x16\x2f", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\0\0"]
    {
        let mut world = World::new(&[]);
        let mut client = world.connect("evil.example:8080").await;
        send(&mut client, bytes).await;
        expect_reset(&mut client).await;
        one_decision(&world.events().await, "deny", "not-listed");
    }
}

#[tokio::test]
async fn silence_is_reset_when_its_time_is_over() {
    for (target, start) in [
        ("evil.example:443", ""),
        ("evil.example:443", "\x16\x03"),
        ("evil.example:80", "GET"),
        ("evil.example:25", ""),
    ] {
        let mut world = World::new(&[]).limits(|limits| limits.refused = Duration::from_millis(50));
        let mut client = world.connect(target).await;
        send(&mut client, start).await;
        expect_reset(&mut client).await;
        world.assert_untouched();
        one_decision(&world.events().await, "deny", "not-listed");
    }
}

#[tokio::test]
async fn an_unfinished_request_is_answered_when_its_time_is_over() {
    let mut world = World::new(&[]).limits(|limits| limits.refused = Duration::from_millis(50));
    let mut client = world.connect("evil.example:80").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: evil").await;
    expect_answer(&mut client, "403").await;
}

#[tokio::test]
async fn each_reason_is_told() {
    for (mode, allow, deny, target, reason) in [
        (Mode::Allowlist, &["github.com"][..], &[][..], "github.com:8080", "port-not-listed"),
        (Mode::Allowlist, &["*"], &["evil.example"], "evil.example:80", "denied"),
        (Mode::None, &[], &[], "github.com:80", "mode-none"),
        (Mode::Allowlist, &["*"], &[], "203.0.113.10:80", "address-not-listed"),
        (Mode::Allowlist, &["0.0.0.0/0"], &[], "10.1.2.3:80", "non-public"),
        (Mode::Audit, &[], &[], "169.254.169.254:80", "non-public"),
        (Mode::Open, &[], &[], "198.51.100.1:80", "self"),
        // Synthetic addresses that stand for no name.
        (Mode::Allowlist, &["*"], &[], "198.18.77.77:80", "address-not-listed"),
        (Mode::Open, &[], &[], "198.18.0.1:80", "address-not-listed"),
        (Mode::Open, &[], &[], "[2001:2::1]:80", "address-not-listed"),
        (Mode::None, &[], &[], "198.18.77.77:80", "mode-none"),
    ] {
        let mut world = World::with(mode, allow, deny);
        let mut client = world.connect(target).await;
        send(&mut client, GET).await;
        let body = expect_answer(&mut client, "403").await;
        assert!(
            body.contains(&format!("`{target}` is refused: ")) && body.contains(&format!("({reason})\n")),
            "{body}"
        );
        drop(client);
        world.assert_untouched();
        one_decision(&world.events().await, "deny", reason);
    }
}

#[tokio::test]
async fn a_listed_name_that_resolves_to_an_inner_address_is_refused_in_kind() {
    for (port, bytes) in [
        (80, &GET.replace("evil.example", "github.com").into_bytes()),
        (443, &hello("github.com")),
        (8080, &GET.into()),
    ] {
        let mut world =
            World::new(&["github.com:80,443,8080"]).limits(|limits| limits.refused = Duration::from_secs(5));
        world.resolves("github.com", Ok(&["10.1.2.3", "127.0.0.1"]));
        let mut client = world.connect(&format!("github.com:{port}")).await;
        send(&mut client, bytes).await;
        if port == 443 {
            expect(&mut client, ALERT).await;
        } else {
            expect_answer(&mut client, "403").await;
        }
        drop(client);
        assert!(world.net.dials.lock().unwrap().is_empty());
        let events = world.events().await;
        assert_eq!(one_decision(&events, "deny", "non-public")["hint"], format!("10.1.2.3:{port}"));
    }
}

#[tokio::test]
async fn only_the_vetted_addresses_of_a_name_are_dialled() {
    let mut world = World::new(&["github.com"]);
    world.resolves("github.com", Ok(&["10.1.2.3", SERVER]));
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect("github.com:443").await;
    send(&mut client, hello("github.com")).await;
    let upstream = server.accept().await;
    drop((client, upstream));
    assert_eq!(*world.net.dials.lock().unwrap(), ["203.0.113.10:443".parse().unwrap()]);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn failures_of_the_far_side_are_resets_with_their_own_reasons() {
    for (answer, reason) in [
        (Err(LookupError::NotFound), "dns-not-found"),
        (Err(LookupError::NoAddress), "dns-not-found"),
        (Err(LookupError::Failed("timed out".to_owned())), "dns-failed"),
        (Ok(&[SERVER][..]), "refused"),
    ] {
        for (port, bytes) in
            [(80, GET.replace("evil.example", "github.com").into_bytes()), (443, hello("github.com")), (22, Vec::new())]
        {
            let mut world = World::new(&["github.com:22,80,443"]);
            world.resolves("github.com", answer.clone());
            let mut client = world.connect(&format!("github.com:{port}")).await;
            send(&mut client, bytes).await;
            expect_reset(&mut client).await;
            one_decision(&world.events().await, "error", reason);
        }
    }
}

/// H078 in the form that a captured connection has: a rule for loopback does not open netbox's own listeners.
#[tokio::test]
async fn h078_the_listener_itself_is_never_reached() {
    let world = World::new(&["127.0.0.0/8:*"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let original = Original { address: accepted.local_addr().unwrap(), is_listener: true };
    let handled = tokio::spawn(handle(Arc::clone(&world.session), accepted, original));
    expect_reset(&mut client).await;
    soon(handled).await.unwrap();
    world.assert_untouched();
    one_decision(&world.events().await, "deny", "self");
}

#[tokio::test]
async fn over_the_limit_is_a_reset() {
    let world = World::new(&["github.com"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    refuse_over_limit(&world.session, accepted, SocketAddr::from(([203, 0, 113, 10], 443)));
    expect_reset(&mut client).await;
    assert_eq!(one_decision(&world.events().await, "deny", "limit")["host"], "203.0.113.10");
}

#[tokio::test]
async fn a_refused_connection_that_is_cut_is_told_all_the_same() {
    let mut world = World::new(&[]);
    let mut client = world.connect("evil.example:443").await;
    send(&mut client, "\x16\x03").await;
    // Until it waits for the rest.
    tokio::task::yield_now().await;
    one_decision(&world.aborted().await, "deny", "not-listed");
    client.shutdown().await.ok();
}

#[tokio::test]
async fn what_is_about_to_be_refused_is_never_told_as_allowed() {
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:443").await;
    // HTTP on 443: the rest of its head is awaited, for the record.
    send(&mut client, "GET / HTTP/1.1\r\nHost: github.com\r\n").await;
    // More turns than the runtime takes between two looks at its sockets.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    one_decision(&world.aborted().await, "deny", "not-tls");
}

#[tokio::test]
async fn refused_datagrams_are_told_once_for_each_destination() {
    let world = World::new(&["github.com"]);
    let name = netbox_config::HostName::parse_wire(b"github.com").unwrap();
    let (v4, _) = world.session.names.synthetic.assign(&name, true).unwrap();
    for destination in
        [SocketAddr::new(v4.into(), 443), SocketAddr::new(v4.into(), 443), "203.0.113.9:53".parse().unwrap()]
    {
        world.session.note_udp_refused(destination);
    }
    let events = world.events().await;
    let told: Vec<_> =
        of(&events, "decision").iter().map(|event| (event["host"].clone(), event["reason"].clone())).collect();
    assert_eq!(told, [("github.com".into(), "udp".into()), ("203.0.113.9".into(), "udp".into())]);
}

#[tokio::test]
async fn who_says_nothing_makes_room_for_who_speaks() {
    let mut world = World::new(&["github.com"]).limits(|limits| limits.half_open = 2);
    let mut silent = world.connect("github.com:443").await;
    let mut half = world.connect("github.com:80").await;
    send(&mut half, "GET / HTTP/1.1\r\nHost: git").await;
    let mut last = world.connect("evil.example:80").await;
    expect_reset(&mut silent).await;
    send(&mut last, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect(&mut last, "HTTP/1.1 403 ").await;
    drop((half, last));
    world.assert_untouched();
    let events = world.events().await;
    let limit: Vec<_> = of(&events, "decision").into_iter().filter(|event| event["reason"] == "limit").collect();
    assert_eq!(limit.len(), 1);
    assert_eq!((&limit[0]["host"], &limit[0]["port"]), (&"github.com".into(), &443.into()));
}
