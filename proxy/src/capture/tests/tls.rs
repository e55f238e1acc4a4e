//! TLS on a captured connection, by `tests/cases/tls.jsonl`.

use netbox_config::Mode;
use tokio::io::AsyncWriteExt;

use super::world::*;
use crate::client_hello::tests::{encrypted_hello, hello, message, records, server_names};

/// A hello for the name passes byte for byte, and what follows both ways.
async fn passes(mut world: World, target: &str, bytes: &[u8]) -> Vec<serde_json::Value> {
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect(target).await;
    send(&mut client, bytes).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, bytes).await;
    send(&mut upstream, "server").await;
    expect(&mut client, "server").await;
    send(&mut client, "client").await;
    expect(&mut upstream, "client").await;
    client.shutdown().await.unwrap();
    expect_end(&mut upstream).await;
    drop(upstream);
    expect_end(&mut client).await;
    world.events().await
}

/// A first flight that is answered with an alert, without a lookup or a dial.
async fn alerted(mut world: World, target: &str, bytes: &[u8], reason: &str) {
    let mut client = world.connect(target).await;
    send(&mut client, bytes).await;
    expect(&mut client, ALERT).await;
    expect_end(&mut client).await;
    drop(client);
    world.assert_untouched();
    one_decision(&world.events().await, "deny", reason);
}

/// A first flight that is answered with a reset, without a lookup or a dial.
async fn reset(mut world: World, target: &str, bytes: &[u8], verdict: &str, reason: &str) {
    let mut client = world.connect(target).await;
    send(&mut client, bytes).await;
    expect_reset(&mut client).await;
    world.assert_untouched();
    one_decision(&world.events().await, verdict, reason);
}

#[tokio::test]
async fn l001_a_hello_for_the_listed_name_passes() {
    let bytes = hello("github.com");
    let events = passes(World::new(&["github.com"]), "github.com:443", &bytes).await;
    let decision = one_decision(&events, "allow", "listed");
    assert_eq!(
        (&decision["host"], &decision["port"], &decision["via"]),
        (&"github.com".into(), &443.into(), &"capture".into())
    );
    assert_eq!((&decision["sni"], &decision["rule"]["text"]), (&"github.com".into(), &"github.com".into()));
    let close = one_close(&events, "done");
    assert_eq!(close["addr"], "203.0.113.10:443");
    assert_eq!((&close["sent"], &close["received"]), (&(bytes.len() + 6).into(), &6.into()));
}

#[tokio::test]
async fn l002_another_name_on_a_listed_destination_reaches_nobody() {
    alerted(World::new(&["github.com"]), "github.com:443", &hello("evil.example"), "sni-mismatch").await;
    // Not even one that is listed itself: what was judged is what is dialled.
    let both = World::new(&["github.com", "api.github.com"]);
    alerted(both, "github.com:443", &hello("api.github.com"), "sni-mismatch").await;
}

#[tokio::test]
async fn l005_a_server_name_never_opens_an_address() {
    alerted(World::new(&["github.com"]), "203.0.113.10:443", &hello("github.com"), "address-not-listed").await;
}

#[tokio::test]
async fn l011_two_names_are_ambiguous() {
    let (one, other) = ((0, &b"github.com"[..]), (0, &b"evil.example"[..]));
    for extensions in [server_names(&[one, other]), [server_names(&[one]), server_names(&[other])].concat()] {
        let bytes = records(&message(Some(&extensions)), 16_000);
        reset(World::new(&["github.com"]), "github.com:443", &bytes, "error", "malformed").await;
    }
}

#[tokio::test]
async fn l013_a_hello_in_single_bytes_passes() {
    let mut world = World::new(&["github.com"]);
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect("github.com:443").await;
    client.set_nodelay(true).unwrap();
    let bytes = hello("github.com");
    for byte in &bytes[..bytes.len() - 1] {
        send(&mut client, [*byte]).await;
        tokio::task::yield_now().await;
    }
    world.assert_untouched();
    send(&mut client, &bytes[bytes.len() - 1..]).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, &bytes).await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn l014_a_hello_in_two_records_that_part_inside_the_name_passes() {
    let message = message(Some(&server_names(&[(0, b"github.com")])));
    let cut = message.windows(6).position(|window| window == b"github").unwrap() + 3;
    let bytes = [records(&message[..cut], 16_000), records(&message[cut..], 16_000)].concat();
    one_decision(&passes(World::new(&["github.com"]), "github.com:443", &bytes).await, "allow", "listed");
}

#[tokio::test]
async fn l015_a_hello_in_thousands_of_records_is_refused() {
    let long = message(Some(
        &[server_names(&[(0, b"github.com")]), crate::client_hello::tests::extension(21, &[0; 15_900])].concat(),
    ));
    assert!(long.len() > 16_000 - 100);
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:443").await;
    // It is refused before all of it has come.
    let _ = client.write_all(&records(&long, 1)).await;
    expect_reset(&mut client).await;
    world.assert_untouched();
    one_decision(&world.events().await, "error", "malformed");
}

#[tokio::test]
async fn l019_what_is_not_tls_is_refused_on_443() {
    for bytes in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"\x00\x01\x02\x03", b"GET /\r\n", b"\x80\x2e\x01\x03\x01"] {
        reset(World::new(&["github.com"]), "github.com:443", bytes, "deny", "not-tls").await;
    }
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:443").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
    let body = expect_answer(&mut client, "403").await;
    assert!(body.contains("(not-tls)") && body.contains("`--allow tcp://github.com:443`"), "{body}");
    drop(client);
    world.assert_untouched();
    one_decision(&world.events().await, "deny", "not-tls");
}

#[tokio::test]
async fn l021_ports_of_starttls_protocols_are_not_listed() {
    for port in [25, 587, 143, 5222] {
        let mut world = World::new(&["github.com"]);
        let mut client = world.connect(&format!("github.com:{port}")).await;
        expect_reset(&mut client).await;
        world.assert_untouched();
        let events = world.events().await;
        assert_eq!(one_decision(&events, "deny", "port-not-listed")["hint"], format!("github.com:{port}"));
    }
}

#[tokio::test]
async fn l025_early_data_in_the_first_flight_passes_unchanged() {
    let early = [&[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 200][..], &[0xda; 200]].concat();
    let bytes = [hello("github.com"), early].concat();
    one_decision(&passes(World::new(&["github.com"]), "github.com:443", &bytes).await, "allow", "listed");
}

/// What is inside TLS is the server's business: this says that nothing behind the hello is looked at.
#[tokio::test]
async fn l027_what_is_inside_tls_is_not_looked_at() {
    let inside =
        [23, 3, 3, 0, 40].into_iter().chain(*b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n \n").collect::<Vec<u8>>();
    let bytes = [hello("github.com"), inside].concat();
    one_decision(&passes(World::new(&["github.com"]), "github.com:443", &bytes).await, "allow", "listed");
}

#[tokio::test]
async fn a_hello_without_a_name_is_refused_on_443_and_passes_elsewhere() {
    let nameless = records(&message(None), 16_000);
    alerted(World::new(&["github.com"]), "github.com:443", &nameless, "sni-missing").await;
    let mut world = World::new(&["github.com:8443"]);
    let server = world.server("203.0.113.10:8443").await;
    let mut client = world.connect("github.com:8443").await;
    send(&mut client, &nameless).await;
    expect(&mut server.accept().await, &nameless).await;
    drop(client);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn another_name_is_refused_on_other_ports_and_not_a_byte_is_sent() {
    let mut world = World::new(&["github.com:8443"]);
    let server = world.server("203.0.113.10:8443").await;
    let mut client = world.connect("github.com:8443").await;
    let mut upstream = server.accept().await;
    send(&mut client, hello("evil.example")).await;
    expect(&mut client, ALERT).await;
    expect_end(&mut upstream).await;
    drop(client);
    let events = world.events().await;
    assert_eq!(one_decision(&events, "deny", "sni-mismatch")["sni"], "evil.example");
}

#[tokio::test]
async fn a_listed_address_takes_any_name_but_a_denied_one() {
    let rules = &["203.0.113.0/24:443"];
    let events = passes(World::new(rules), "203.0.113.10:443", &hello("whatever.example")).await;
    assert_eq!(one_decision(&events, "allow", "listed")["sni"], "whatever.example");
    let denying = World::with(netbox_config::Mode::Allowlist, rules, &["*.example"]);
    alerted(denying, "203.0.113.10:443", &hello("evil.example"), "denied").await;
}

#[tokio::test]
async fn in_audit_mode_another_name_passes_and_is_noted_unless_it_is_denied() {
    use netbox_config::Mode::Audit;
    let events = passes(World::with(Audit, &["github.com"], &[]), "github.com:443", &hello("other.example")).await;
    let decision = one_decision(&events, "allow", "audit");
    assert_eq!((&decision["would"], decision.get("hint")), (&"sni-mismatch".into(), None));
    alerted(World::with(Audit, &[], &["*.example"]), "github.com:443", &hello("evil.example"), "denied").await;
}

#[tokio::test]
async fn an_encrypted_hello_passes_by_its_outer_name_or_is_refused_as_the_policy_says() {
    let bytes = encrypted_hello("github.com");
    passes(World::new(&["github.com"]), "github.com:443", &bytes).await;
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        let world = || World::without_ech(mode, &["github.com"]);
        alerted(world(), "github.com:443", &bytes, "unsupported").await;
        passes(world(), "github.com:443", &hello("github.com")).await;
    }
}
