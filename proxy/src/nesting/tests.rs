//! Two netboxes, one inside the other: what passes both passes, and what one refuses shows as its refusal.

use netbox_config::{Mode, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::capture::tests::world::*;
use crate::client_hello::tests::hello;
use crate::resolve::LookupError;
use std::sync::Arc;

/// A sandbox inside another one, for one connection that gets as far as the outer one.
async fn inside(outer: &mut World, allow: &[&str], deny: &[&str]) -> World {
    let mut inner = World::with(Mode::Allowlist, allow, deny);
    Arc::get_mut(&mut inner.session).unwrap().outer = Some(Outer::at(outer.explicit_at().await));
    inner
}

#[tokio::test]
async fn what_both_allow_is_dialled_by_the_outer_one_alone() {
    for (target, rule) in [("github.com:443", "github.com"), ("203.0.113.10:443", "203.0.113.10:443")] {
        let mut outer = World::new(&["github.com", "203.0.113.10:443"]);
        let mut inner = inside(&mut outer, &[rule], &[]).await;
        let server = outer.server("203.0.113.10:443").await;
        let mut client = inner.connect(target).await;
        let bytes = hello("github.com");
        send(&mut client, &bytes).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, &bytes).await;
        send(&mut upstream, "server").await;
        expect(&mut client, "server").await;
        client.shutdown().await.unwrap();
        expect_end(&mut upstream).await;
        drop(upstream);
        expect_end(&mut client).await;
        inner.assert_untouched();
        let events = inner.events().await;
        assert_eq!(one_decision(&events, "allow", "listed")["via"], "capture");
        assert_eq!(one_close(&events, "done")["addr"], "203.0.113.10:443", "where it really led");
        let events = outer.events().await;
        assert_eq!(one_decision(&events, "allow", "listed")["via"], "connect");
    }
}

/// The first byte may come with the answer to CONNECT, and belongs to the tunnel.
#[tokio::test]
async fn a_server_that_speaks_first_is_heard_from_its_first_byte_on() {
    let mut outer = World::new(&["github.com:22"]);
    let mut inner = inside(&mut outer, &["github.com:22"], &[]).await;
    let server = outer.server("203.0.113.10:22").await;
    let mut client = inner.connect("github.com:22").await;
    let mut upstream = server.accept().await;
    send(&mut upstream, "SSH-2.0-server\r\n").await;
    expect(&mut client, "SSH-2.0-server\r\n").await;
    drop((client, upstream));
    one_decision(&inner.events().await, "allow", "listed");
}

#[tokio::test]
async fn a_refusal_of_the_outer_one_shows_with_its_reason_and_no_way_out() {
    for (outer_allows, target, reason) in [
        (&["other.example"][..], "github.com:80", "not-listed"),
        (&["github.com:443"], "github.com:80", "port-not-listed"),
    ] {
        let mut outer = World::new(outer_allows);
        let mut inner = inside(&mut outer, &["github.com"], &[]).await;
        let mut client = inner.connect(target).await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
        let body = expect_answer(&mut client, "403").await;
        assert!(body.starts_with(&format!("netbox: `{target}` is refused by the netbox around this one: ")), "{body}");
        assert!(body.ends_with(&format!(" ({reason})\n")), "{body}");
        drop(client);
        outer.assert_untouched();
        let events = inner.events().await;
        let decision = one_decision(&events, "deny", reason);
        assert_eq!(decision["rule"]["source"], "the netbox around this one");
        assert!(decision["hint"].is_null(), "{decision}");
        one_decision(&outer.events().await, "deny", reason);
    }
}

#[tokio::test]
async fn what_the_inner_one_refuses_never_reaches_the_outer_one() {
    let mut outer = World::new(&["*"]);
    let mut inner = inside(&mut outer, &["github.com"], &["api.github.com"]).await;
    for name in ["evil.example:80", "api.github.com:80", "198.18.7.7:80"] {
        let mut client = inner.connect(name).await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: x.example\r\n\r\n").await;
        expect_answer(&mut client, "403").await;
    }
    inner.events().await;
    outer.assert_untouched();
    assert_eq!(outer.aborted().await, [0; 0]);
}

/// Whatever the outer one would dial: the inner one's guard, and its rules about addresses, hold.
#[tokio::test]
async fn no_address_is_dialled_that_the_inner_one_refuses() {
    for (addresses, deny, reason) in [
        (&["10.0.0.7"][..], &[][..], "non-public"),
        (&["203.0.113.10"], &["203.0.113.0/24"], "denied"),
        (&["10.0.0.7", "203.0.113.10"], &["203.0.113.0/24"], "non-public"),
    ] {
        let mut outer = World::new(&["github.com", "10.0.0.0/8:*"]);
        outer.resolves("github.com", Ok(addresses));
        let mut inner = inside(&mut outer, &["github.com"], deny).await;
        let mut client = inner.connect("github.com:80").await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
        expect_answer(&mut client, "403").await;
        drop(client);
        one_decision(&inner.events().await, "deny", reason);
        assert!(outer.net.dials.lock().unwrap().is_empty(), "{addresses:?}");
    }
}

#[tokio::test]
async fn of_several_addresses_those_are_dialled_that_both_allow() {
    let mut outer = World::new(&["github.com:9", "10.0.0.0/8:9"]);
    outer.resolves("github.com", Ok(&["10.0.0.7", "203.0.113.10", "203.0.113.11"]));
    let mut inner = inside(&mut outer, &["github.com:9"], &["203.0.113.11"]).await;
    let server = outer.server("203.0.113.10:9").await;
    let client = inner.connect("github.com:9").await;
    drop((client, server.accept().await));
    assert_eq!(*outer.net.dials.lock().unwrap(), ["203.0.113.10:9".parse().unwrap()]);
    one_decision(&inner.events().await, "allow", "listed");
}

#[tokio::test]
async fn a_failure_keeps_its_reason() {
    for (answer, reason) in [
        (Err(LookupError::NotFound), "dns-not-found"),
        (Err(LookupError::Failed("x".into())), "dns-failed"),
        (Ok(&["203.0.113.10"][..]), "refused"),
    ] {
        let mut outer = World::new(&["github.com:9"]);
        outer.resolves("github.com", answer);
        let mut inner = inside(&mut outer, &["github.com:9"], &[]).await;
        let mut client = inner.connect("github.com:9").await;
        expect_reset(&mut client).await;
        let events = inner.events().await;
        assert_eq!(of(&events, "decision")[0]["reason"], reason);
    }
}

/// Loopback is that of the sandbox which the inner netbox runs in.
#[tokio::test]
async fn loopback_is_dialled_without_the_outer_one() {
    let mut outer = World::new(&[]);
    let mut inner = inside(&mut outer, &["127.0.0.1:5432"], &[]).await;
    let server = inner.server("127.0.0.1:5432").await;
    let mut client = inner.explicit().await;
    send(&mut client, "CONNECT 127.0.0.1:5432 HTTP/1.1\r\nHost: 127.0.0.1:5432\r\n\r\n").await;
    expect(&mut client, "HTTP/1.1 200 Connection established\r\n\r\n").await;
    drop((server.accept().await, client));
    one_decision(&inner.events().await, "allow", "listed");
    assert_eq!(outer.aborted().await, [0; 0]);
}

/// A listener that answers with these bytes, each time that something was said.
async fn answers(script: &'static [&'static str]) -> Outer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let outer = Outer::at(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for answer in script {
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        let _ = stream.read(&mut [0; 4096]).await;
    });
    outer
}

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nNetbox-Addresses: 203.0.113.10\r\n\r\n";

#[tokio::test]
async fn whoever_does_not_speak_as_a_netbox_is_not_relied_on() {
    for script in [
        &["HTTP/1.1 200 Connection established\r\n\r\n"][..],
        &["HTTP/1.1 403 Forbidden\r\n\r\n"],
        &["HTTP/1.1 403 Forbidden\r\nProxy-Status: other; details=\"not-listed\"\r\n\r\n"],
        &["HTTP/1.1 103 Early Hints\r\nNetbox-Addresses: example.com\r\n\r\n"],
        &["HTTP/1.1 103 Early Hints\r\n\r\n"],
        &["SSH-2.0-x\r\n\r\n"],
        &[],
        &[HINT, "HTTP/1.1 200 OK\r\n\r\n"],
        &[HINT, "HTTP/1.1 200 OK\r\nNetbox-Address: 203.0.113.11\r\n\r\n"],
        &[HINT, HINT],
    ] {
        let mut inner = World::new(&["github.com:9"]);
        Arc::get_mut(&mut inner.session).unwrap().outer = Some(answers(script).await);
        let mut client = inner.connect("github.com:9").await;
        expect_reset(&mut client).await;
        let events = inner.events().await;
        assert_eq!(of(&events, "decision")[0]["reason"], Reason::UpstreamProxy.as_str(), "{script:?}");
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut inner = World::new(&["github.com:9"]);
    Arc::get_mut(&mut inner.session).unwrap().outer = Some(Outer::at(address));
    let mut client = inner.connect("github.com:9").await;
    expect_reset(&mut client).await;
    assert_eq!(of(&inner.events().await, "decision")[0]["reason"], "unreachable");
}

#[test]
fn lists_of_addresses_are_taken_whole_or_not_at_all() {
    let addresses: Vec<IpAddr> = vec!["203.0.113.10".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    assert_eq!(list(addresses.clone()), "203.0.113.10, 2001:db8::1");
    assert_eq!(parse_list(b"203.0.113.10, 2001:db8::1"), Some(addresses));
    for text in [&b""[..], b"203.0.113.10,", b"203.0.113.010", b"x", b"\xff", b"fe80::1%1"] {
        assert_eq!(parse_list(text), None);
    }
}
