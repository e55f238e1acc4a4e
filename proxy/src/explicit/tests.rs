//! The explicit door over loopback: lookups and dials are scripted and watched.

mod cases;
mod connect;
mod http;
mod requests;
mod socks5;
mod splits;
mod targets;
mod tokens;

use netbox_config::Mode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::capture::tests::world::*;

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Greeting of a client that offers no authentication, and the answer to it.
const GREETING: &[u8] = &[5, 1, 0];
const CHOSEN: &[u8] = &[5, 0];
const SUCCEEDED: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

fn connect(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

/// A request in absolute form, with the `Host` that belongs to it.
fn get(url: &str) -> String {
    let authority = url.trim_start_matches("http://").split('/').next().unwrap();
    format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// A request to CONNECT to a name.
fn named(name: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, u8::try_from(name.len()).unwrap()], name, &port.to_be_bytes()].concat()
}

/// A tunnel to a target whose server is behind `address`: the client's end and the server's.
async fn tunnel(world: &mut World, target: &str, address: &str) -> (TcpStream, TcpStream) {
    let server = world.server(address).await;
    let mut client = world.explicit().await;
    send(&mut client, connect(target)).await;
    expect(&mut client, ESTABLISHED).await;
    (client, server.accept().await)
}

/// What comes up to the end, also if that is a reset.
async fn all(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = soon(stream.read_to_end(&mut received)).await;
    received
}

/// A request that is answered by netbox, without a lookup or a dial. Gives the decision.
async fn answered(mut world: World, bytes: impl AsRef<[u8]>, status: &str, verdict: &str, reason: &str) -> Value {
    let mut client = world.explicit().await;
    // A refusal may come before all of it has been taken.
    let _ = client.write_all(bytes.as_ref()).await;
    expect_answer(&mut client, status).await;
    drop(client);
    world.assert_untouched();
    one_decision(&world.events().await, verdict, reason).clone()
}

/// The reasons of the decisions, in their order.
fn reasons(events: &[Value]) -> Vec<&str> {
    of(events, "decision").iter().map(|event| event["reason"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn other_protocols_are_ended_without_an_answer() {
    for (bytes, verdict, reason) in [
        (&b"\x04\x01\0\x50\xcb\0\x71\x0a\0"[..], "deny", "unsupported"),
        (b"\x16\x03\x01\x02\0\x01\0", "deny", "unsupported"),
        (b"\0", "error", "malformed"),
        (b" GET http://github.com/ HTTP/1.1\r\n\r\n", "error", "malformed"),
        (b"\n", "error", "malformed"),
        (b"\xffGET", "error", "malformed"),
    ] {
        let mut world = World::with(Mode::Open, &[], &[]);
        let mut client = world.explicit().await;
        send(&mut client, bytes).await;
        assert_eq!(all(&mut client).await, b"");
        world.assert_untouched();
        let events = world.events().await;
        let decision = one_decision(&events, verdict, reason);
        assert_eq!((&decision["host"], &decision["via"]), (&"".into(), &"http".into()));
    }
}

#[tokio::test]
async fn who_asks_for_nothing_is_not_told_of() {
    let mut world = World::new(&["github.com"]).limits(|limits| limits.silence = std::time::Duration::from_millis(50));
    drop(world.explicit().await);
    let mut silent = world.explicit().await;
    expect_end(&mut silent).await;
    assert_eq!(world.events().await, [0; 0]);
}

#[tokio::test]
async fn a_tunnel_that_is_cut_is_told_all_the_same() {
    let mut world = World::new(&["github.com:22,80,443"]);
    let one = tunnel(&mut world, "github.com:22", "203.0.113.10:22").await;
    let other = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    let server = world.server("203.0.113.10:80").await;
    let mut requests = world.explicit().await;
    send(&mut requests, get("http://github.com/")).await;
    let upstream = server.accept().await;
    let events = world.aborted().await;
    assert_eq!(reasons(&events), ["listed"; 3]);
    let ends: Vec<_> = of(&events, "close").iter().map(|event| event["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["reset"; 3]);
    drop((one, other, requests, upstream));
}

#[tokio::test]
async fn what_was_sent_last_is_delivered() {
    let mut world = World::new(&["github.com:9"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:9", "203.0.113.10:9").await;
    send(&mut client, b"\0last").await;
    expect(&mut upstream, b"\0last").await;
    let delivered = tokio::time::timeout(std::time::Duration::ZERO, world.session.deliveries.all()).await;
    assert!(delivered.is_err(), "more may come");
    drop(client);
    soon(world.session.deliveries.all()).await;
    expect_end(&mut upstream).await;
}

#[test]
fn what_may_be_a_password_is_not_told() {
    for (text, told) in [
        ("http://user:secret@github.com/", "http://…@github.com/"),
        ("user:secret@github.com:443", "…@github.com:443"),
        ("http://a@b@github.com/x@y", "http://…@github.com/x@y"),
        ("http://github.com/x@y", "http://github.com/x@y"),
        ("github.com:443", "github.com:443"),
        ("http://secret@", "http://…@"),
    ] {
        assert_eq!(String::from_utf8_lossy(&super::without_userinfo(text.as_bytes())), told);
    }
}
