//! Another name behind an allowed one: on the same address, in the SNI, in the `Host` header, in a later request.

use crate::outcome::Outcome;
use crate::programs::{CURL, PYTHON, curl, probe};
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    another_name_on_the_same_address_is_refused needs [CURL],
    another_sni_is_refused needs [CURL],
    another_host_header_is_refused needs [CURL],
    the_second_request_of_a_connection_is_judged_too needs [PYTHON],
    another_name_in_absolute_form_is_refused needs [PYTHON],
    another_port_in_the_host_header_is_refused needs [CURL],
    a_handshake_without_sni_on_port_443_is_refused needs [PYTHON],
    what_is_not_tls_on_port_443_is_refused needs [PYTHON],
    what_is_not_http_on_port_80_is_refused needs [PYTHON],
    tls_with_another_name_on_any_port_is_refused needs [CURL],
    http_with_another_name_on_any_port_is_refused needs [CURL],
    a_tunnel_through_a_web_server_is_refused needs [PYTHON],
    a_raw_rule_does_not_look needs [CURL],
];

/// A listed name, and a name that is not listed and lives on the same machine.
fn neighbours(world: &World, label: &str) -> (Host, Host) {
    let front = world.zone().host(&format!("{label}-front"));
    let hidden = world.zone().host_at(&format!("{label}-hidden"), &front.addresses);
    (front, hidden)
}

/// Runs the client bare, which reaches the hidden name, and then under netbox, which must let nothing of it through.
fn hidden_is_refused<A: AsRef<str>>(
    world: &World,
    front: &Host,
    hidden: &Host,
    flags: &[&str],
    client: &[A],
) -> Outcome {
    let reached = |mark| world.arrivals_named(mark, &hidden.name, &front.addresses);
    let mark = world.mark();
    world.bare().exec(client);
    assert!(!reached(mark).is_empty(), "without netbox, {} is reached", hidden.name);
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(client);
    let arrived = reached(mark);
    assert!(arrived.is_empty(), "{} was refused, and there arrived {arrived:#?}: {outcome}", hidden.name);
    outcome
}

fn another_name_on_the_same_address_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "same-address");
    let client =
        curl(&["--include", "http://same-address-front.example.com/", "http://same-address-hidden.example.com/"]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.name], &client);
    outcome.says("hello same-address-front.example.com").says("HTTP/1.1 403");
    outcome.allowed(&front.name, 80, "listed");
    outcome.refused(&hidden.name, 80, "not-listed");
}

fn another_sni_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "sni");
    let aside = format!("{}:443:{}:443", hidden.name, front.name);
    let client = curl(&["--connect-to", aside.as_str(), "https://sni-hidden.example.com/"]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.name], &client);
    outcome.exits_with(35).complains("alert access denied");
    let decision = outcome.refused(&front.name, 443, "sni-mismatch");
    assert_eq!(decision["sni"], hidden.name.as_str(), "{outcome}");
}

fn another_host_header_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "host-header");
    let client =
        curl(&["--include", "-H", "Host: host-header-hidden.example.com", "http://host-header-front.example.com/"]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.name], &client);
    outcome.exits_with(0).says("HTTP/1.1 403").says("host-mismatch");
    outcome.refused(&front.name, 80, "host-mismatch");
}

/// A request line and a `Host` header as the probe takes them, which adds the last newline.
fn request(target: &str, host: &str) -> String {
    format!(r"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r")
}

fn the_second_request_of_a_connection_is_judged_too(world: &World) {
    let (front, hidden) = neighbours(world, "second-request");
    let (first, second) = (request("/", &front.name), request("/", &hidden.name));
    let client = probe(world, &["tcp", &front.name, "80", &first, &second]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.name], &client);
    outcome.says("hello second-request-front.example.com").says("HTTP/1.1 403");
    outcome.allowed(&front.name, 80, "listed");
    outcome.decided("deny", &front.name, 80, "host-mismatch");
}

fn another_name_in_absolute_form_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "absolute-form");
    // The server goes by the header, a proxy (RFC 9112 §3.2.2) by the target: netbox accepts neither.
    let request = request(&front.http("/"), &hidden.name);
    let client = probe(world, &["tcp", &front.name, "80", &request]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.name], &client);
    let answered = outcome.stdout().contains("HTTP/1.1 403") || outcome.stdout().contains("HTTP/1.1 400");
    assert!(answered, "an answer in kind: {outcome}");
}

fn another_port_in_the_host_header_is_refused(world: &World) {
    let host = world.zone().host("host-port");
    let client = curl(&["--include", "-H", "Host: host-port.example.com:8080", "http://host-port.example.com/"]);
    world.bare().exec(&client).says("hello host-port.example.com:8080");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.exits_with(0).says("HTTP/1.1 403");
    outcome.refused(&host.name, 80, "host-mismatch");
}

fn a_handshake_without_sni_on_port_443_is_refused(world: &World) {
    let host = world.zone().host("no-sni");
    let client = probe(world, &["tls", &host.name, "443", ""]);
    world.bare().exec(&client).says("answer: 16");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.exits_with(0).says("answer: 15030300020231");
    outcome.refused(&host.name, 443, "sni-missing");
    assert_no_connection(world, mark, &host);
}

fn what_is_not_tls_on_port_443_is_refused(world: &World) {
    let host = world.zone().host("not-tls");
    let client = probe(world, &["tcp", &host.name, "443", &request("/", &host.name)]);
    // A server for TLS takes this for a broken handshake; what matters is that it gets to see it.
    let mark = world.mark();
    world.bare().exec(&client);
    world.assert_reached(mark, &host);
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.refused(&host.name, 443, "not-tls");
    assert_no_connection(world, mark, &host);
}

fn what_is_not_http_on_port_80_is_refused(world: &World) {
    let host = world.zone().host("not-http");
    let client = probe(world, &["tls", &host.name, "80", &host.name]);
    let mark = world.mark();
    world.bare().exec(&client);
    world.assert_reached(mark, &host);
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.refused(&host.name, 80, "not-http");
    assert_no_connection(world, mark, &host);
}

/// Lookups of a listed name are fine; on ports 80 and 443 the first bytes are read before anything is dialled.
#[track_caller]
fn assert_no_connection(world: &World, mark: crate::arrivals::Mark, host: &Host) {
    let arrived = world.arrivals(mark, host);
    assert!(arrived.iter().all(|arrival| arrival.service == "dns"), "more than lookups arrived: {arrived:#?}");
}

fn tls_with_another_name_on_any_port_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "any-port-tls");
    let aside = format!("{}:8443:{}:8443", hidden.name, front.name);
    let client = curl(&["--connect-to", aside.as_str(), "https://any-port-tls-hidden.example.com:8443/"]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.port(8443)], &client);
    outcome.exits_with(35);
    outcome.decided("deny", &front.name, 8443, "sni-mismatch");
}

fn http_with_another_name_on_any_port_is_refused(world: &World) {
    let (front, hidden) = neighbours(world, "any-port-http");
    let header = format!("Host: {}", hidden.name);
    let url = format!("http://{}:3000/", front.name);
    let client = curl(&["--include", "-H", &header, &url]);
    let outcome = hidden_is_refused(world, &front, &hidden, &["--allow", &front.port(3000)], &client);
    outcome.says("HTTP/1.1 403");
    outcome.decided("deny", &front.name, 3000, "host-mismatch");
}

fn a_tunnel_through_a_web_server_is_refused(world: &World) {
    let host = world.zone().host("connect");
    let connect = r"CONNECT connect.example.com:80 HTTP/1.1\r\nHost: connect.example.com:80\r\n\r";
    let client = probe(world, &["tcp", &host.name, "80", connect]);
    world.bare().exec(&client).says("hello connect.example.com:80 CONNECT");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.does_not_say("hello").refused(&host.name, 80, "unsupported");
}

/// The control for all of the above: the same bytes pass where a rule says not to look at them.
fn a_raw_rule_does_not_look(world: &World) {
    let (front, hidden) = neighbours(world, "raw");
    let client = curl(&["-H", "Host: raw-hidden.example.com", "http://raw-front.example.com/"]);
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "tcp://raw-front.example.com:80"]).exec(&client);
    outcome.exits_with(0).says("hello raw-hidden.example.com").allowed(&front.name, 80, "listed");
    assert!(!world.arrivals_named(mark, &hidden.name, &front.addresses).is_empty(), "it arrives as sent");
}
