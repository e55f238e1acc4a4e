//! HTTP CONNECT: nothing is answered before there is a connection, and what it carries is judged.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::client_hello::tests::hello;
use crate::dial::{DialError, Dialed, Dialer};
use crate::resolve::Pending;

#[tokio::test]
async fn a_tunnel_carries_tls_for_its_target() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    let bytes = hello("github.com");
    send(&mut client, &bytes).await;
    expect(&mut upstream, &bytes).await;
    send(&mut upstream, "server").await;
    expect(&mut client, "server").await;
    client.shutdown().await.unwrap();
    expect_end(&mut upstream).await;
    drop(upstream);
    expect_end(&mut client).await;
    drop(client);
    let events = world.events().await;
    let decision = one_decision(&events, "allow", "listed");
    assert_eq!(
        (&decision["host"], &decision["port"], &decision["via"], &decision["sni"]),
        (&"github.com".into(), &443.into(), &"connect".into(), &"github.com".into())
    );
    let close = one_close(&events, "done");
    assert_eq!((&close["sent"], &close["received"]), (&bytes.len().into(), &6.into()));
    assert_eq!(close["addr"], "203.0.113.10:443");
}

/// Byte for byte: the 200 is not there and then taken back.
#[tokio::test]
async fn what_is_refused_never_gets_a_200() {
    for (target, reason) in [
        ("evil.example:443", "not-listed"),
        ("github.com:22", "port-not-listed"),
        ("203.0.113.10:443", "address-not-listed"),
        ("127.0.0.1:443", "address-not-listed"),
        ("[::1]:443", "address-not-listed"),
        ("198.18.7.7:443", "address-not-listed"),
        ("169.254.169.254:80", "address-not-listed"),
        ("localhost:80", "not-listed"),
    ] {
        let mut world = World::new(&["github.com"]);
        let mut client = world.explicit().await;
        send(&mut client, connect(target)).await;
        let body = expect_answer(&mut client, "403").await;
        assert!(body.starts_with(&format!("netbox: `{target}` is refused: ")), "{body}");
        assert!(body.contains(&format!("({reason})\n")), "{body}");
        world.assert_untouched();
        drop(client);
        assert_eq!(one_decision(&world.events().await, "deny", reason)["via"], "connect");
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_never_gets_a_200() {
    for address in ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:10.0.0.7", "198.51.100.1"] {
        let mut world = World::new(&["github.com"]);
        world.resolves("github.com", Ok(&[address]));
        let mut client = world.explicit().await;
        send(&mut client, connect("github.com:443")).await;
        expect_answer(&mut client, "403").await;
        assert!(world.net.dials.lock().unwrap().is_empty());
        drop(client);
        assert!(["non-public", "self"].contains(&reasons(&world.events().await)[0]), "{address}");
    }
}

#[tokio::test]
async fn h078_no_rule_opens_a_listener_of_netbox() {
    for (rule, target) in [
        ("127.0.0.0/8:*", "127.0.0.1:3128"),
        ("127.0.0.1:3128", "127.0.0.1:3128"),
        ("0.0.0.0:*", "0.0.0.0:3128"),
        ("[::1]:*", "[::1]:3128"),
        ("127.0.0.1:3128", "[::ffff:127.0.0.1]:3128"),
    ] {
        for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
            let world = World::with(mode, &[rule], &[]).on_host(&[], &["127.0.0.1:3128", "[::1]:3128"]);
            answered(world, connect(target), "403", "deny", "self").await;
        }
    }
    // Neither by a name.
    let mut world = World::new(&["localhost:3128", "127.0.0.1:3128"]).on_host(&[], &["127.0.0.1:3128"]);
    world.resolves("localhost", Ok(&["127.0.0.1"]));
    let mut client = world.explicit().await;
    send(&mut client, get("http://localhost:3128/")).await;
    expect_answer(&mut client, "403").await;
    assert!(world.net.dials.lock().unwrap().is_empty());
    drop(client);
    one_decision(&world.events().await, "deny", "self");
}

#[tokio::test]
async fn the_hosts_loopback_is_reached_by_a_rule_that_names_it() {
    let mut world = World::new(&["127.0.0.1:5432"]);
    let (mut client, mut upstream) = tunnel(&mut world, "127.0.0.1:5432", "127.0.0.1:5432").await;
    send(&mut client, b"\0\0\0\x08").await;
    expect(&mut upstream, b"\0\0\0\x08").await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn what_is_no_authority_is_malformed() {
    for target in [
        "github.com",
        "github.com:",
        ":443",
        "github.com:0",
        "http://github.com:443",
        "/",
        "github.com:443/",
        "a@github.com:443",
        "2130706433:80",
        "127.1:80",
    ] {
        let world = World::with(Mode::Open, &[], &[]);
        let decision = answered(
            world,
            format!("CONNECT {target} HTTP/1.1\r\nHost: x.example\r\n\r\n"),
            "400",
            "error",
            "malformed",
        )
        .await;
        // What stands before an `@` is not told.
        let told = target.replace("a@", "…@");
        assert_eq!((&decision["host"], &decision["via"]), (&told.into(), &"connect".into()));
    }
}

#[tokio::test]
async fn a_body_of_connect_is_refused() {
    for fields in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
        let request = format!("CONNECT github.com:443 HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n\r\n0\r\n\r\n");
        let decision = answered(World::new(&["github.com"]), request, "400", "error", "malformed").await;
        assert_eq!(decision["host"], "github.com:443");
    }
}

#[tokio::test]
async fn what_comes_right_behind_the_head_is_kept() {
    let mut world = World::new(&["github.com:9,443"]);
    for (port, bytes) in [(9, b"\0\x01\x02".to_vec()), (443, hello("github.com"))] {
        let server = world.server(&format!("203.0.113.10:{port}")).await;
        let mut client = world.explicit().await;
        send(&mut client, [connect(&format!("github.com:{port}")).into_bytes(), bytes.clone()].concat()).await;
        expect(&mut client, ESTABLISHED).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, &bytes).await;
    }
}

#[tokio::test]
async fn http_1_0_is_taken_without_host() {
    let mut world = World::new(&["github.com:9"]);
    let server = world.server("203.0.113.10:9").await;
    let mut client = world.explicit().await;
    send(&mut client, "CONNECT github.com:9 HTTP/1.0\r\n\r\n").await;
    expect(&mut client, ESTABLISHED).await;
    server.accept().await;
}

#[tokio::test]
async fn tls_for_another_name_gets_an_alert_and_reaches_nobody() {
    let mut world = World::new(&["github.com", "evil.example"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    send(&mut client, hello("evil.example")).await;
    expect(&mut client, ALERT).await;
    expect_end(&mut client).await;
    expect_end(&mut upstream).await;
    drop(client);
    assert_eq!(one_decision(&world.events().await, "deny", "sni-mismatch")["sni"], "evil.example");
}

#[tokio::test]
async fn port_443_is_tls_and_port_80_is_http() {
    for (port, bytes, reason) in
        [(443, "SSH-2.0-x\r\n", "not-tls"), (443, "\0\0", "not-tls"), (80, "SSH-2.0-x\r\n", "not-http")]
    {
        let mut world = World::new(&["github.com"]);
        let (mut client, mut upstream) =
            tunnel(&mut world, &format!("github.com:{port}"), &format!("203.0.113.10:{port}")).await;
        send(&mut client, bytes).await;
        assert_eq!(all(&mut client).await, b"");
        expect_end(&mut upstream).await;
        drop(client);
        one_decision(&world.events().await, "deny", reason);
    }
}

/// There a server that speaks first is none of the port's protocol.
#[tokio::test]
async fn a_server_on_port_443_waits_for_the_client() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    send(&mut upstream, "first").await;
    send(&mut client, "SSH-2.0-x\r\n").await;
    assert_eq!(all(&mut client).await, b"");
    drop(client);
    one_decision(&world.events().await, "deny", "not-tls");
}

#[tokio::test]
async fn http_in_a_tunnel_is_judged_per_request() {
    for port in [80, 3000] {
        let mut world = World::new(&["github.com:80,3000", "evil.example:80,3000"]);
        let (mut client, mut upstream) =
            tunnel(&mut world, &format!("github.com:{port}"), &format!("203.0.113.10:{port}")).await;
        let request = "GET /x HTTP/1.1\r\nHost: github.com\r\n\r\n";
        send(&mut client, request).await;
        expect(&mut upstream, request).await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
        send(&mut client, request.replace("github.com", "evil.example")).await;
        expect_answer(&mut client, "403").await;
        expect_end(&mut upstream).await;
        drop(client);
        let events = world.events().await;
        assert_eq!(reasons(&events), ["listed", "host-mismatch"]);
        assert!(of(&events, "decision").iter().all(|event| event["via"] == "connect"));
    }
}

#[tokio::test]
async fn a_tunnel_in_a_tunnel_is_not_carried() {
    let mut world = World::new(&["github.com:3000"]);
    let (mut client, _upstream) = tunnel(&mut world, "github.com:3000", "203.0.113.10:3000").await;
    send(&mut client, connect("github.com:3000")).await;
    expect_answer(&mut client, "403").await;
    drop(client);
    one_decision(&world.events().await, "deny", "unsupported");
}

#[tokio::test]
async fn either_side_may_speak_first_on_other_ports() {
    let mut world = World::new(&["github.com:22"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:22", "203.0.113.10:22").await;
    send(&mut upstream, "SSH-2.0-server\r\n").await;
    expect(&mut client, "SSH-2.0-server\r\n").await;
    send(&mut client, "SSH-2.0-client\r\n").await;
    expect(&mut upstream, "SSH-2.0-client\r\n").await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn raw_is_not_looked_at() {
    let mut world = World::new(&["tcp://github.com:443"]);
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    let bytes = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    send(&mut client, bytes).await;
    expect(&mut upstream, bytes).await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn an_address_that_stands_for_a_name_is_that_name() {
    let mut world = World::new(&["github.com:9"]);
    let name = netbox_config::HostName::parse_wire(b"github.com").unwrap();
    let (v4, v6) = world.session.names.synthetic.assign(&name, true).unwrap();
    for target in [format!("{v4}:9"), format!("[{v6}]:9")] {
        drop(tunnel(&mut world, &target, "203.0.113.10:9").await);
    }
    let events = world.events().await;
    assert!(of(&events, "decision").iter().all(|event| event["host"] == "github.com"), "{events:?}");
}

#[tokio::test]
async fn a_silent_tunnel_to_443_is_ended_in_its_time() {
    let mut world = World::new(&["github.com"]).limits(|limits| limits.silence = Duration::from_millis(50));
    let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
    expect_end(&mut client).await;
    expect_end(&mut upstream).await;
    drop(client);
    assert_eq!(one_close(&world.events().await, "timeout")["addr"], "203.0.113.10:443");
}

/// Never gets through.
struct Late;

impl Dialer for Late {
    fn dial<'a>(&'a self, _: &'a [netbox_config::VettedAddr]) -> Pending<'a, Result<Dialed, DialError>> {
        Box::pin(async { Err(DialError::Timeout) })
    }
}

#[tokio::test]
async fn a_far_side_that_is_silent_is_a_504() {
    let mut world = World::new(&["github.com"]);
    Arc::get_mut(&mut world.session).unwrap().dialer = Arc::new(Late);
    let mut client = world.explicit().await;
    send(&mut client, connect("github.com:443")).await;
    let response = String::from_utf8(rest(&mut client).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    assert!(response.contains("\r\nProxy-Status: netbox; error=connection_timeout\r\n"), "{response}");
    drop(client);
    one_decision(&world.events().await, "error", "timeout");
}

#[tokio::test]
async fn other_modes_hold_at_this_door() {
    let world = World::with(Mode::None, &[], &[]);
    answered(world, connect("github.com:443"), "403", "deny", "mode-none").await;
    let world = World::with(Mode::Open, &[], &["*.example"]);
    let decision = answered(world, connect("evil.example:443"), "403", "deny", "denied").await;
    assert_eq!(decision["rule"]["text"], "*.example");
    // The guard is off there, but not before this machine's own loopback.
    for target in ["127.0.0.1:80", "[::1]:80", "0.0.0.0:80"] {
        answered(World::with(Mode::Open, &[], &[]), connect(target), "403", "deny", "self").await;
    }
    let world = World::with(Mode::Open, &[], &[]);
    answered(world, connect("198.18.7.7:443"), "403", "deny", "address-not-listed").await;
    for (mode, reason) in [(Mode::Audit, "audit"), (Mode::Open, "open")] {
        let mut world = World::with(mode, &[], &[]);
        let (mut client, mut upstream) = tunnel(&mut world, "github.com:443", "203.0.113.10:443").await;
        send(&mut client, "SSH-2.0-x\r\n").await;
        expect(&mut upstream, "SSH-2.0-x\r\n").await;
        drop((client, upstream));
        one_decision(&world.events().await, "allow", reason);
    }
}
