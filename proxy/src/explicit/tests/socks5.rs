//! SOCKS5, by `tests/cases/socks5.jsonl`.

use std::time::Duration;

use super::*;
use crate::client_hello::tests::hello;
use crate::resolve::LookupError;

/// A request that gets this reply, without a lookup or a dial.
async fn replied(mut world: World, request: impl AsRef<[u8]>, reply: u8, verdict: &str, reason: &str) -> Value {
    let mut client = world.explicit().await;
    send(&mut client, GREETING).await;
    expect(&mut client, CHOSEN).await;
    send(&mut client, request).await;
    assert_eq!(rest(&mut client).await, [5, reply, 0, 1, 0, 0, 0, 0, 0, 0]);
    drop(client);
    world.assert_untouched();
    let decision = one_decision(&world.events().await, verdict, reason).clone();
    assert_eq!(decision["via"], "socks5");
    decision
}

async fn malformed(rule: &str, name: &[u8], port: u16) {
    replied(World::new(&[rule]), named(name, port), 1, "error", "malformed").await;
}

/// A tunnel by this request to the server behind `address`.
async fn opens(world: &mut World, request: &[u8], address: &str) -> (TcpStream, TcpStream) {
    let server = world.server(address).await;
    let mut client = world.explicit().await;
    send(&mut client, GREETING).await;
    expect(&mut client, CHOSEN).await;
    send(&mut client, request).await;
    expect(&mut client, SUCCEEDED).await;
    (client, server.accept().await)
}

fn with_address(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, kind], address, &port.to_be_bytes()].concat()
}

fn v6(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

#[tokio::test]
async fn s001_a_listed_name_is_reached() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = opens(&mut world, &named(b"github.com", 443), "203.0.113.10:443").await;
    let bytes = hello("github.com");
    send(&mut client, &bytes).await;
    expect(&mut upstream, &bytes).await;
    send(&mut upstream, "server").await;
    expect(&mut client, "server").await;
    drop((client, upstream));
    let events = world.events().await;
    let decision = one_decision(&events, "allow", "listed");
    assert_eq!(
        (&decision["host"], &decision["port"], &decision["sni"]),
        (&"github.com".into(), &443.into(), &"github.com".into())
    );
    assert_eq!(one_close(&events, "done")["addr"], "203.0.113.10:443");
}

#[tokio::test]
async fn s002_names_have_one_normal_form() {
    let mut world = World::new(&["github.com"]);
    drop(opens(&mut world, &named(b"GITHUB.COM.", 443), "203.0.113.10:443").await);
    assert_eq!(*world.net.lookups.lock().unwrap(), ["github.com"]);
    assert_eq!(one_decision(&world.events().await, "allow", "listed")["host"], "github.com");
}

#[tokio::test]
async fn s007_a_nul_ends_no_name() {
    malformed("github.com", b"github.com\0", 443).await;
    malformed("*.github.com", b"evil.example\0.github.com", 443).await;
}

#[tokio::test]
async fn s008_line_ends_are_no_part_of_a_name() {
    malformed("*.github.com", b"evil.example\r\n.github.com", 443).await;
}

#[tokio::test]
async fn s009_a_space_is_no_part_of_a_name() {
    malformed("*.github.com", b"evil.example .github.com", 443).await;
}

#[tokio::test]
async fn s010_a_line_feed_is_no_part_of_a_name() {
    malformed("*.github.com", b"evil.example\n.github.com", 443).await;
}

#[tokio::test]
async fn s012_a_label_has_63_bytes_at_most() {
    malformed("*.github.com", &[b'a'; 255], 443).await;
}

#[tokio::test]
async fn s016_a_number_is_no_name() {
    for name in ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "127.0.0.1."] {
        malformed("github.com", name.as_bytes(), 80).await;
    }
}

/// What stands in the brackets is an address, which needs a rule of its own.
#[tokio::test]
async fn s019_brackets_are_no_part_of_a_name() {
    replied(World::new(&["github.com"]), named(b"[::1]", 80), 2, "deny", "address-not-listed").await;
    malformed("github.com", b"[github.com]", 80).await;
    malformed("github.com", b"[::1", 80).await;
}

#[tokio::test]
async fn s022_a_url_is_no_name() {
    malformed("github.com", b"http://github.com", 443).await;
}

#[tokio::test]
async fn s023_user_information_is_no_part_of_a_name() {
    malformed("github.com", b"user@github.com", 443).await;
}

#[tokio::test]
async fn s025_a_listed_ipv4_address_is_reached() {
    let mut world = World::new(&["203.0.113.10"]);
    drop(opens(&mut world, &with_address(1, &[203, 0, 113, 10], 443), "203.0.113.10:443").await);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn s029_loopback_is_refused() {
    let request = with_address(4, &v6("::1"), 80);
    replied(World::new(&["github.com"]), request, 2, "deny", "address-not-listed").await;
}

#[tokio::test]
async fn s030_loopback_in_another_form_is_refused() {
    let request = with_address(4, &v6("::ffff:127.0.0.1"), 80);
    let decision = replied(World::new(&["github.com"]), request.clone(), 2, "deny", "address-not-listed").await;
    assert_eq!(decision["host"], "127.0.0.1");
    replied(World::new(&["0.0.0.0/0"]), request, 2, "deny", "non-public").await;
}

#[tokio::test]
async fn s031_the_metadata_address_in_another_form_is_refused() {
    let request = with_address(4, &v6("64:ff9b::a9fe:a9fe"), 80);
    replied(World::new(&["github.com"]), request.clone(), 2, "deny", "address-not-listed").await;
    replied(World::new(&["::/0"]), request, 2, "deny", "non-public").await;
}

#[tokio::test]
async fn s032_a_listed_ipv6_address_is_reached() {
    let mut world = World::new(&["2001:db8::1"]);
    drop(opens(&mut world, &with_address(4, &v6("2001:db8::1"), 443), "[2001:db8::1]:443").await);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn s034_other_types_of_address_are_not_known() {
    for kind in [0, 2, 5, 255] {
        replied(World::new(&["github.com"]), [5, 1, 0, kind], 8, "error", "malformed").await;
    }
}

#[tokio::test]
async fn s036_udp_and_bind_are_not_carried() {
    for command in [0, 2, 3, 255] {
        let request = [5, command, 0, 1, 0, 0, 0, 0, 0, 0];
        replied(World::with(Mode::Open, &[], &[]), request, 7, "deny", "unsupported").await;
    }
}

/// A greeting that is answered with `0xff`.
async fn no_method(greeting: &[u8], verdict: &str, reason: &str) {
    let mut world = World::new(&["github.com"]);
    let mut client = world.explicit().await;
    send(&mut client, [greeting, &named(b"github.com", 443)].concat()).await;
    assert_eq!(rest(&mut client).await, [5, 0xff]);
    drop(client);
    world.assert_untouched();
    one_decision(&world.events().await, verdict, reason);
}

#[tokio::test]
async fn s044_a_client_without_methods_is_ended() {
    no_method(&[5, 0], "error", "malformed").await;
    // Authentication cannot be done, and is not left out either.
    no_method(&[5, 1, 2], "deny", "unsupported").await;
    no_method(&[5, 2, 1, 0xff], "deny", "unsupported").await;
}

#[tokio::test]
async fn s046_the_method_without_authentication_is_found_among_others() {
    let mut world = World::new(&["github.com"]);
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.explicit().await;
    let methods: Vec<u8> = (0..255).rev().collect();
    send(&mut client, [&[5, 255], &methods[..]].concat()).await;
    expect(&mut client, CHOSEN).await;
    send(&mut client, named(b"github.com", 443)).await;
    expect(&mut client, SUCCEEDED).await;
    server.accept().await;
}

/// Some programs know one kind of target only.
#[tokio::test]
async fn an_address_may_be_written_out() {
    for (rule, name, address) in [
        ("203.0.113.10:9", "203.0.113.10", "203.0.113.10:9"),
        ("[2001:db8::1]:9", "2001:db8::1", "[2001:db8::1]:9"),
        ("[2001:db8::1]:9", "[2001:DB8::1]", "[2001:db8::1]:9"),
        ("203.0.113.10:9", "::ffff:203.0.113.10", "203.0.113.10:9"),
    ] {
        let mut world = World::new(&[rule]);
        drop(opens(&mut world, &named(name.as_bytes(), 9), address).await);
        world.events().await;
    }
    replied(World::new(&["github.com"]), named(b"::1", 80), 2, "deny", "address-not-listed").await;
}

#[tokio::test]
async fn policy_is_reply_2_and_the_far_side_3_to_5() {
    let refused = replied(World::new(&["github.com"]), named(b"evil.example", 443), 2, "deny", "not-listed").await;
    assert_eq!((&refused["host"], &refused["hint"]), (&"evil.example".into(), &"evil.example".into()));
    replied(World::new(&["github.com"]), named(b"github.com", 22), 2, "deny", "port-not-listed").await;
    for (answer, reply, reason) in [
        (Err(LookupError::NotFound), 4, "dns-not-found"),
        (Err(LookupError::Failed("x".into())), 4, "dns-failed"),
        (Ok(&["203.0.113.10"][..]), 5, "refused"),
        (Ok(&["10.0.0.7"][..]), 2, "non-public"),
    ] {
        let mut world = World::new(&["github.com"]);
        world.resolves("github.com", answer);
        let mut client = world.explicit().await;
        send(&mut client, [GREETING, &named(b"github.com", 443)].concat()).await;
        assert_eq!(rest(&mut client).await, [CHOSEN, &[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]].concat());
        let verdict = if reply == 2 { "deny" } else { "error" };
        drop(client);
        one_decision(&world.events().await, verdict, reason);
    }
}

#[tokio::test]
async fn what_is_odd_about_a_request_is_malformed() {
    for request in [
        // Another version, something reserved, no name, port 0.
        [&[4], &named(b"github.com", 443)[1..]].concat(),
        [&[5, 1, 1], &named(b"github.com", 443)[3..]].concat(),
        named(b"", 443),
        named(b"github.com", 0),
        with_address(1, &[203, 0, 113, 10], 0),
    ] {
        replied(World::with(Mode::Open, &[], &[]), request, 1, "error", "malformed").await;
    }
}

#[tokio::test]
async fn what_comes_right_behind_the_request_is_kept() {
    let mut world = World::new(&["github.com:9"]);
    let server = world.server("203.0.113.10:9").await;
    let mut client = world.explicit().await;
    send(&mut client, [GREETING, &named(b"github.com", 9), b"\0early"].concat()).await;
    expect(&mut client, CHOSEN).await;
    expect(&mut client, SUCCEEDED).await;
    expect(&mut server.accept().await, b"\0early").await;
}

#[tokio::test]
async fn first_bytes_are_judged_here_too() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = opens(&mut world, &named(b"github.com", 443), "203.0.113.10:443").await;
    send(&mut client, hello("evil.example")).await;
    expect(&mut client, ALERT).await;
    expect_end(&mut upstream).await;
    drop(client);
    one_decision(&world.events().await, "deny", "sni-mismatch");
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = opens(&mut world, &named(b"github.com", 80), "203.0.113.10:80").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut client, "403").await;
    expect_end(&mut upstream).await;
}

#[tokio::test]
async fn a_handshake_that_drips_is_ended_in_its_time() {
    for bytes in [&b"\x05"[..], b"\x05\x01\0", b"\x05\x01\0\x05\x01\0\x03\x0agithub"] {
        let mut world = World::new(&["github.com"]).limits(|limits| limits.head = Duration::from_millis(50));
        let mut client = world.explicit().await;
        send(&mut client, bytes).await;
        let received = all(&mut client).await;
        assert!(received == b"" || received == CHOSEN, "{received:?}");
        world.assert_untouched();
        drop(client);
        one_decision(&world.events().await, "error", "malformed");
    }
}
