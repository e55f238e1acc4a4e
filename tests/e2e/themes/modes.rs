//! The modes: what each lets through, and what none of them does.

use std::net::Ipv4Addr;

use crate::programs::{CURL, PYTHON, curl, probe};
use crate::tests;
use crate::world::World;
use crate::zone::UDP_ECHO;

tests![
    none_refuses_every_connection needs [CURL],
    audit_lets_through_and_says_what_it_would_have_refused needs [CURL],
    audit_lets_no_private_address_through needs [CURL],
    audit_keeps_denies needs [CURL],
    open_lets_names_and_addresses_through needs [CURL],
    open_keeps_denies needs [CURL],
    no_mode_lets_udp_through needs [PYTHON],
];

fn none_refuses_every_connection(world: &World) {
    let host = world.zone().host("mode-none");
    let client = curl(&["--include", "http://mode-none.example.com/"]);
    world.bare().exec(&client).says("hello");
    let mark = world.mark();
    let outcome = world.netbox(&["--mode", "none"]).exec(&client);
    outcome.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "mode-none");
    assert_eq!(outcome.event("start")["mode"], "none", "{outcome}");
    world.assert_untouched(mark, &host);
}

fn audit_lets_through_and_says_what_it_would_have_refused(world: &World) {
    let (listed, unlisted) = (world.zone().host("audit-listed"), world.zone().host("audit-unlisted"));
    let urls = [listed.http("/"), unlisted.http("/"), format!("http://{}/", unlisted.v4())];
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let outcome = world.netbox(&["--mode", "audit", "--allow", &listed.name]).exec(&curl(&urls));
    outcome
        .exits_with(0)
        .says("hello audit-listed")
        .says("hello audit-unlisted")
        .says(&format!("hello {}", unlisted.v4()));
    assert!(outcome.allowed(&listed.name, 80, "listed").get("would").is_none(), "{outcome}");
    assert_eq!(outcome.allowed(&unlisted.name, 80, "audit")["would"], "not-listed", "{outcome}");
    assert_eq!(outcome.allowed(&unlisted.v4().to_string(), 80, "audit")["would"], "address-not-listed", "{outcome}");
}

fn audit_lets_no_private_address_through(world: &World) {
    let address = Ipv4Addr::new(10, 77, 0, 20);
    let host = world.zone().host_at("audit-private", &[address.into()]);
    let by_number = format!("http://{address}/");
    let client = curl(&["--include", "http://audit-private.example.com/", &by_number]);
    world.bare().exec(&client).says("hello audit-private").says("hello 10.77.0.20");
    let mark = world.mark();
    let outcome = world.netbox(&["--mode", "audit"]).exec(&client);
    outcome.does_not_say("hello").refused(&host.name, 80, "non-public");
    outcome.refused(&address.to_string(), 80, "non-public");
    assert!(world.arrivals_at(mark, address.into()).is_empty(), "{outcome}");
}

fn audit_keeps_denies(world: &World) {
    let host = world.zone().host("audit-denied");
    denied(world, "audit", &host);
}

fn open_keeps_denies(world: &World) {
    let host = world.zone().host("open-denied");
    denied(world, "open", &host);
}

fn denied(world: &World, mode: &str, host: &crate::zone::Host) {
    let url = host.http("/");
    let client = curl(&["--include", &url]);
    world.bare().exec(&client).says("hello");
    let mark = world.mark();
    let outcome = world.netbox(&["--mode", mode, "--deny", &host.name]).exec(&client);
    outcome.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "denied");
    world.assert_untouched(mark, host);
}

fn open_lets_names_and_addresses_through(world: &World) {
    let host = world.zone().host("open");
    let address = Ipv4Addr::new(10, 77, 0, 21);
    let by_number = format!("http://{address}/");
    let client = curl(&["http://open.example.com/", "https://open.example.com/", &by_number]);
    let outcome = world.netbox(&["--mode", "open"]).exec(&client);
    outcome.exits_with(0).says("hello open.example.com").says("hello 10.77.0.21");
    outcome.allowed(&host.name, 80, "open");
    outcome.allowed(&host.name, 443, "open");
    outcome.allowed(&address.to_string(), 80, "open");
}

fn no_mode_lets_udp_through(world: &World) {
    for mode in ["none", "audit", "open"] {
        let text = format!("udp-in-mode-{mode}");
        let client = probe(world, &["udp", &UDP_ECHO.to_string(), "4433", &text]);
        world.bare().exec(&client).says(&text);
        let mark = world.mark();
        let outcome = world.netbox(&["--mode", mode]).exec(&client);
        assert_eq!(outcome.stdout(), "failed: EPERM\n", "{outcome}");
        let arrived = world.arrivals_at(mark, UDP_ECHO.into());
        assert!(!arrived.iter().any(|arrival| arrival.line.as_ref() == Some(&text)), "{arrived:#?}");
    }
}
