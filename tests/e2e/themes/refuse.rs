//! What is not on the list is refused, the program is told so in its own protocol, and nothing leaves for it.
//!
//! Every client is first run bare: it gets there, so what stops it afterwards is netbox.

use crate::outcome::Outcome;
use crate::programs::{CURL, NODE, PYTHON, curl, own, probe};
use crate::tests;
use crate::world::World;
use crate::zone::{Host, UDP_ECHO, UDP_ECHO_V6};

tests![
    an_unlisted_name_over_http_gets_a_403 needs [CURL],
    an_unlisted_name_over_https_gets_a_tls_alert needs [CURL],
    an_unlisted_name_on_port_8080_gets_a_403 needs [CURL],
    an_unlisted_name_on_port_8443_gets_a_tls_alert needs [CURL],
    an_unlisted_name_on_another_port_cannot_be_reached needs [PYTHON],
    an_unlisted_name_gets_nothing_of_what_the_server_says_first needs [PYTHON],
    the_alert_is_fatal_and_says_access_denied needs [PYTHON],
    node_sees_the_403 needs [NODE],
    a_denied_name_is_refused_below_an_allowed_wildcard needs [CURL],
    a_deny_rule_wins_over_the_same_allow_rule needs [CURL],
    a_listed_name_on_port_8080_is_refused needs [CURL],
    a_listed_name_on_an_unlisted_port_cannot_be_reached needs [PYTHON],
    a_rule_with_a_port_does_not_cover_http_and_https needs [CURL],
    the_apex_is_not_below_its_wildcard needs [CURL],
    a_near_miss_is_told_to_the_program_the_person_and_the_harness needs [CURL],
    a_name_that_ends_like_a_listed_one_is_another needs [CURL],
    an_ipv6_only_name_is_refused_in_kind needs [CURL],
    an_empty_list_allows_nothing needs [CURL],
    udp_to_an_address_fails_at_once needs [PYTHON],
    udp_to_an_ipv6_address_fails_at_once needs [PYTHON],
    udp_to_a_listed_name_fails_at_once needs [PYTHON],
];

/// Runs the client bare, which reaches the host and says so, and then under netbox, which it must not.
fn refused<A: AsRef<str>>(world: &World, host: &Host, flags: &[&str], client: &[A], says: &str) -> Outcome {
    let mark = world.mark();
    world.bare().exec(client).says(says);
    world.assert_reached(mark, host);
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(client);
    outcome.does_not_say(says);
    world.assert_untouched(mark, host);
    outcome
}

/// Asserts that the program got netbox's answer and not a server's.
fn answered_403(outcome: &Outcome, target: &str, reason: &str) {
    outcome.exits_with(0).says("HTTP/1.1 403").says(target).says(reason);
    let head = outcome.stdout().to_ascii_lowercase();
    assert!(head.contains("proxy-status: netbox; error=http_request_denied"), "{outcome}");
}

/// curl's exit code for a failed TLS handshake, and the words of its library for the alert.
fn answered_alert(outcome: &Outcome) {
    outcome.exits_with(35).complains("alert access denied");
}

/// Nothing mistakes that for an outage.
fn could_not_connect(outcome: &Outcome) {
    assert_eq!(outcome.stdout(), "failed: EACCES\n", "{outcome}");
}

fn an_unlisted_name_over_http_gets_a_403(world: &World) {
    let host = world.zone().host("unlisted-http");
    let client = curl(&["--include", "http://unlisted-http.example.com/"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    answered_403(&outcome, "unlisted-http.example.com:80", "not-listed");
    let decision = outcome.refused(&host.name, 80, "not-listed");
    assert_eq!(decision["via"], "capture", "{outcome}");
    assert!(decision.get("rule").is_none(), "no rule decided: {outcome}");
}

fn an_unlisted_name_over_https_gets_a_tls_alert(world: &World) {
    let host = world.zone().host("unlisted-https");
    let client = curl(&["https://unlisted-https.example.com/"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    answered_alert(&outcome);
    outcome.refused(&host.name, 443, "not-listed");
}

fn an_unlisted_name_on_port_8080_gets_a_403(world: &World) {
    let host = world.zone().host("unlisted-8080");
    let client = curl(&["--include", "http://unlisted-8080.example.com:8080/"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    answered_403(&outcome, "unlisted-8080.example.com:8080", "not-listed");
    outcome.says("unlisted-8080.example.com:8080").refused(&host.name, 8080, "not-listed");
}

fn an_unlisted_name_on_port_8443_gets_a_tls_alert(world: &World) {
    let host = world.zone().host("unlisted-8443");
    let client = curl(&["https://unlisted-8443.example.com:8443/"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    answered_alert(&outcome);
    outcome.refused(&host.name, 8443, "not-listed");
}

fn an_unlisted_name_on_another_port_cannot_be_reached(world: &World) {
    let host = world.zone().host("unlisted-5432");
    let client = probe(world, &["tcp", &host.name, "5432", "hello"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "answer: hello");
    could_not_connect(&outcome);
    outcome.refused(&host.name, 5432, "not-listed");
}

fn an_unlisted_name_gets_nothing_of_what_the_server_says_first(world: &World) {
    let host = world.zone().host("unlisted-22");
    let client = probe(world, &["tcp", &host.name, "22"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "answer: SSH");
    could_not_connect(&outcome);
    outcome.refused(&host.name, 22, "not-listed");
}

/// RFC 8446 §6: record type 21, version 3.3, two bytes, level 2 (fatal), description 49.
fn the_alert_is_fatal_and_says_access_denied(world: &World) {
    let host = world.zone().host("alert-bytes");
    let client = probe(world, &["tls", &host.name, "443", &host.name]);
    // A server hello: record type 22.
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "answer: 16");
    outcome.exits_with(0).says("answer: 15030300020231");
}

fn node_sees_the_403(world: &World) {
    let host = world.zone().host("node-403");
    let client = own(world, "node", "fetch.mjs", &[&host.http("/")]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    outcome.exits_with(0).says("status 403").says("node-403.example.com:80");
}

fn a_denied_name_is_refused_below_an_allowed_wildcard(world: &World) {
    let host = world.zone().host("bad.denied-below");
    let client = curl(&["--include", "http://bad.denied-below.example.com/"]);
    let flags = ["--allow", "*.denied-below.example.com", "--deny", &host.name];
    let outcome = refused(world, &host, &flags, &client, "hello");
    answered_403(&outcome, "bad.denied-below.example.com:80", "denied");
    let decision = outcome.refused(&host.name, 80, "denied");
    assert_eq!(decision["rule"]["text"], host.name.as_str(), "the deny rule decided: {outcome}");
    assert_eq!(decision["rule"]["source"], "--deny", "{outcome}");
}

fn a_deny_rule_wins_over_the_same_allow_rule(world: &World) {
    let host = world.zone().host("allowed-and-denied");
    let client = curl(&["https://allowed-and-denied.example.com/"]);
    let outcome = refused(world, &host, &["--allow", &host.name, "--deny", &host.name], &client, "hello");
    answered_alert(&outcome);
    outcome.refused(&host.name, 443, "denied");
}

fn a_listed_name_on_port_8080_is_refused(world: &World) {
    let host = world.zone().host("listed-8080");
    let client = curl(&["--include", "http://listed-8080.example.com:8080/"]);
    let outcome = refused_but_looked_up(world, &host, &["--allow", &host.name], &client, "hello");
    answered_403(&outcome, "listed-8080.example.com:8080", "port-not-listed");
    outcome.refused(&host.name, 8080, "port-not-listed");
}

fn a_listed_name_on_an_unlisted_port_cannot_be_reached(world: &World) {
    let host = world.zone().host("listed-5432");
    let client = probe(world, &["tcp", &host.name, "5432", "hello"]);
    let outcome = refused_but_looked_up(world, &host, &["--allow", &host.name], &client, "answer: hello");
    could_not_connect(&outcome);
    outcome.refused(&host.name, 5432, "port-not-listed");
}

fn a_rule_with_a_port_does_not_cover_http_and_https(world: &World) {
    let host = world.zone().host("only-22");
    let client = curl(&["--include", "http://only-22.example.com/"]);
    let outcome = refused_but_looked_up(world, &host, &["--allow", &host.port(22)], &client, "hello");
    answered_403(&outcome, "only-22.example.com:80", "port-not-listed");
    outcome.refused(&host.name, 80, "port-not-listed");
}

/// A name that is listed on another port may be looked up, and is then refused without a connection.
fn refused_but_looked_up<A: AsRef<str>>(
    world: &World,
    host: &Host,
    flags: &[&str],
    client: &[A],
    says: &str,
) -> Outcome {
    let mark = world.mark();
    world.bare().exec(client).says(says);
    world.assert_reached(mark, host);
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(client);
    outcome.does_not_say(says);
    let arrived = world.arrivals(mark, host);
    assert!(arrived.iter().all(|arrival| arrival.service == "dns"), "more than lookups arrived: {arrived:#?}");
    outcome
}

fn the_apex_is_not_below_its_wildcard(world: &World) {
    let host = world.zone().host("apex");
    let client = curl(&["--include", "http://apex.example.com/"]);
    let outcome = refused(world, &host, &["--allow", "*.apex.example.com"], &client, "hello");
    answered_403(&outcome, "apex.example.com:80", "not-listed");
}

fn a_name_that_ends_like_a_listed_one_is_another(world: &World) {
    let host = world.zone().host("evil-ending");
    let client = curl(&["--include", "http://evil-ending.example.com/"]);
    let outcome = refused(world, &host, &["--allow", ".ending.example.com"], &client, "hello");
    answered_403(&outcome, "evil-ending.example.com:80", "not-listed");
}

fn an_ipv6_only_name_is_refused_in_kind(world: &World) {
    let host = world.zone().host_v6("unlisted-ipv6");
    let client = curl(&["--ipv6", "--include", "http://unlisted-ipv6.example.com/"]);
    let outcome = refused(world, &host, &["--allow", "other.example.com"], &client, "hello");
    answered_403(&outcome, "unlisted-ipv6.example.com:80", "not-listed");
    outcome.refused(&host.name, 80, "not-listed");
}

fn an_empty_list_allows_nothing(world: &World) {
    let host = world.zone().host("empty-list");
    let client = curl(&["--include", "http://empty-list.example.com/"]);
    let outcome = refused(world, &host, &[], &client, "hello");
    answered_403(&outcome, "empty-list.example.com:80", "not-listed");
}

fn udp_to_an_address_fails_at_once(world: &World) {
    udp_fails_at_once(world, "udp-v4", &UDP_ECHO.to_string(), &[]);
}

fn udp_to_an_ipv6_address_fails_at_once(world: &World) {
    udp_fails_at_once(world, "udp-v6", &UDP_ECHO_V6.to_string(), &[]);
}

fn udp_to_a_listed_name_fails_at_once(world: &World) {
    let host = world.zone().host_at("udp-name", &[UDP_ECHO.into()]);
    udp_fails_at_once(world, "udp-to-a-name", &host.name, &["--allow", &host.port(4433)]);
}

/// The datagrams are told apart by their text: all tests send them to the same server.
fn udp_fails_at_once(world: &World, text: &str, host: &str, flags: &[&str]) {
    let client = probe(world, &["udp", host, "4433", text]);
    let sent = |mark| {
        let arrived = world.arrivals_at(mark, UDP_ECHO.into()).into_iter();
        let arrived = arrived.chain(world.arrivals_at(mark, UDP_ECHO_V6.into()));
        arrived.filter(|arrival| arrival.line.as_deref() == Some(text)).count()
    };
    let mark = world.mark();
    world.bare().exec(&client).says(&format!("answer: {text}"));
    assert_eq!(sent(mark), 1, "the bare run's datagram arrives");
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(&client);
    assert_eq!(outcome.stdout(), "failed: EPERM\n", "{outcome}");
    assert_eq!(sent(mark), 0, "a datagram got out: {outcome}");
    outcome.refused(host, 4433, "udp");
}

/// Report 52.
fn a_near_miss_is_told_to_the_program_the_person_and_the_harness(world: &World) {
    let host = world.zone().host("sub.near-miss");
    let client = curl(&["http://sub.near-miss.example.com/"]);
    let outcome = refused(world, &host, &["--allow", "near-miss.example.com"], &client, "hello");
    let near = "`near-miss.example.com` (--allow) does not cover names below it, such as `sub.near-miss.example.com`";
    outcome.says(&format!("near: {near}\n")).complains(&format!("    near: {near}\n"));
    assert_eq!(outcome.refused(&host.name, 80, "not-listed")["near"], near, "{outcome}");
}
