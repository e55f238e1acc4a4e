//! Servers that speak first: their bytes flow while the program's are held.

use netbox_config::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::*;
use crate::client_hello::tests::hello;

const BANNER: &str = "SSH-2.0-OpenSSH_9.2\r\n";

#[tokio::test]
async fn a_banner_flows_before_the_program_says_anything() {
    let mut world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let mut client = world.connect("github.com:22").await;
    let mut upstream = server.accept().await;
    send(&mut upstream, BANNER).await;
    expect(&mut client, BANNER).await;
    send(&mut client, "SSH-2.0-client\r\n").await;
    expect(&mut upstream, "SSH-2.0-client\r\n").await;
    client.shutdown().await.unwrap();
    expect_end(&mut upstream).await;
    send(&mut upstream, "bye").await;
    drop(upstream);
    assert_eq!(rest(&mut client).await, b"bye");
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    let close = one_close(&events, "done");
    assert_eq!((&close["sent"], &close["received"]), (&16.into(), &(BANNER.len() + 3).into()));
}

#[tokio::test]
async fn what_disagrees_later_is_refused_late_and_not_a_byte_of_it_is_sent() {
    for (bytes, reason) in [
        (hello("evil.example"), "sni-mismatch"),
        (b"GET / HTTP/1.1\r\nHost: github.com\r\n\r\n".to_vec(), "unsupported"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "unsupported"),
        (b"\x16\x03\x01\0\0".to_vec(), "malformed"),
    ] {
        let mut world = World::new(&["github.com:25"]);
        let server = world.server("203.0.113.10:25").await;
        let mut client = world.connect("github.com:25").await;
        let mut upstream = server.accept().await;
        send(&mut upstream, "220 ready\r\n").await;
        expect(&mut client, "220 ready\r\n").await;
        send(&mut client, bytes).await;
        expect_reset(&mut client).await;
        expect_reset(&mut upstream).await;
        let events = world.events().await;
        one_decision(&events, "allow", "listed");
        assert_eq!(one_close(&events, "refused")["reason"], reason);
        assert_eq!(one_close(&events, "refused")["sent"], 0);
    }
}

#[tokio::test]
async fn another_name_that_passes_late_in_audit_mode_is_told_at_the_end() {
    for (mode, name, would) in [
        (Mode::Audit, "evil.example", "sni-mismatch".into()),
        (Mode::Audit, "github.com", serde_json::Value::Null),
        (Mode::Open, "evil.example", serde_json::Value::Null),
        (Mode::Allowlist, "github.com", serde_json::Value::Null),
    ] {
        let allow: &[&str] = if mode == Mode::Open { &[] } else { &["github.com:25"] };
        let mut world = World::with(mode, allow, &[]);
        let server = world.server("203.0.113.10:25").await;
        let mut client = world.connect("github.com:25").await;
        let mut upstream = server.accept().await;
        send(&mut upstream, "220 ready\r\n").await;
        expect(&mut client, "220 ready\r\n").await;
        let hello = hello(name);
        send(&mut client, &hello).await;
        let mut passed = vec![0; hello.len()];
        soon(upstream.read_exact(&mut passed)).await.unwrap();
        assert_eq!(passed, hello);
        drop(client);
        expect_end(&mut upstream).await;
        drop(upstream);
        let summary = world.session.events.clone();
        let events = world.events().await;
        let close = of(&events, "close")[0];
        assert_eq!((&close["sni"], &close["would"]), (&name.into(), &would), "{mode} {name}");
        // It is among what `netbox learn` makes a list from.
        assert_eq!(summary.summary().audited.len(), usize::from(!would.is_null()), "{mode} {name}");
    }
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_passed_on() {
    let mut world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let mut client = world.connect("github.com:22").await;
    drop(server.accept().await);
    expect_end(&mut client).await;
    drop(client);
    one_close(&world.events().await, "done");
}

#[tokio::test]
async fn a_server_that_resets_is_passed_on() {
    let mut world = World::new(&["github.com:22"]);
    let server = world.server("203.0.113.10:22").await;
    let mut client = world.connect("github.com:22").await;
    let mut upstream = server.accept().await;
    send(&mut upstream, BANNER).await;
    expect(&mut client, BANNER).await;
    upstream.set_zero_linger().unwrap();
    drop(upstream);
    expect_reset(&mut client).await;
    one_close(&world.events().await, "reset");
}
