//! The explicit listener inside a sandbox: programs that are told of a proxy by `--proxy-env`, or by themselves.

use super::reach::publish_repository;
use crate::outcome::Outcome;
use crate::programs::{CURL, GIT, NODE, PYTHON, curl, own};
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    http_variables_lead_to_the_listener_inside needs [CURL, PYTHON, NODE, GIT],
    all_variables_lead_to_socks5_inside needs [CURL],
    a_program_inside_may_look_a_name_up_before_it_asks_the_proxy needs [CURL],
    an_unlisted_name_is_refused_at_the_listener_inside needs [CURL],
    the_hosts_loopback_is_not_opened_by_the_listener_inside needs [CURL],
];

/// Runs the client under netbox with these proxy variables; it reaches the host, on this way.
#[track_caller]
fn inside<A: AsRef<str>>(world: &World, variables: &str, host: &Host, client: &[A], via: &str) -> Outcome {
    let mark = world.mark();
    let outcome = world.netbox(&["--proxy-env", variables, "--allow", &host.name]).exec(client);
    outcome.exits_with(0);
    world.assert_reached(mark, host);
    let judged = outcome.events_of("decision");
    assert!(!judged.is_empty() && judged.iter().all(|event| event["verdict"] == "allow"), "{outcome}");
    assert!(judged.iter().all(|event| event["via"] == via), "by {via} alone: {outcome}");
    outcome
}

fn http_variables_lead_to_the_listener_inside(world: &World) {
    let host = world.zone().host("inside-http");
    let (http, https) = (host.http("/page"), host.https("/page"));
    inside(world, "http", &host, &curl(&[&http]), "http").says("hello");
    inside(world, "http", &host, &curl(&[&https]), "connect").says("hello");
    inside(world, "all", &host, &curl(&[&https]), "connect").says("hello");
    inside(world, "http", &host, &own(world, "python3", "fetch.py", &[&http]), "http").says("hello");
    inside(world, "http", &host, &own(world, "python3", "fetch.py", &[&https]), "connect").says("hello");
    inside(world, "http", &host, &own(world, "node", "tunnel.mjs", &[&https]), "connect").says("hello");
    publish_repository(world);
    let clone = ["git", "clone", &host.https("/files/project.git"), "cloned-inside"].map(str::to_owned);
    inside(world, "http", &host, &clone, "connect");
    // Without them nothing is asked of the listener.
    inside(world, "auto", &host, &curl(&[&https]), "capture").says("hello");
}

fn all_variables_lead_to_socks5_inside(world: &World) {
    let host = world.zone().host("inside-socks");
    for url in [host.http("/page"), host.https("/page")] {
        let client = ["sh", "-c", "exec curl --silent --show-error --max-time 30 --proxy \"$all_proxy\" \"$0\"", &url];
        inside(world, "all", &host, &client, "socks5").says("hello");
    }
}

/// Its address stands for the name, in this sandbox.
fn a_program_inside_may_look_a_name_up_before_it_asks_the_proxy(world: &World) {
    let host = world.zone().host("inside-looked-up");
    for url in [host.http("/page"), host.https("/page")] {
        let outcome = inside(world, "none", &host, &curl(&["--socks5", "127.0.0.1:61003", &url]), "socks5");
        outcome.says("hello");
        assert_eq!(outcome.decisions(&host.name).len(), 1, "{outcome}");
    }
}

fn an_unlisted_name_is_refused_at_the_listener_inside(world: &World) {
    let host = world.zone().host("inside-unlisted");
    let flags = ["--proxy-env", "all", "--allow", "other.example.com"];
    for (client, code, port) in [
        (curl(&["http://inside-unlisted.example.com/"]), 0, 80),
        (curl(&["https://inside-unlisted.example.com/"]), 56, 443),
        (curl(&["--socks5-hostname", "127.0.0.1:61003", "https://inside-unlisted.example.com/"]), 97, 443),
        (curl(&["--socks5", "127.0.0.1:61003", "https://inside-unlisted.example.com/"]), 97, 443),
    ] {
        let mark = world.mark();
        let outcome = world.netbox(&flags).exec(&client);
        outcome.exits_with(code).does_not_say("hello");
        outcome.refused(&host.name, port, "not-listed");
        world.assert_untouched(mark, &host);
    }
}

fn the_hosts_loopback_is_not_opened_by_the_listener_inside(world: &World) {
    let mark = world.mark();
    for target in ["http://127.0.0.1:8080/", "http://127.0.0.1:61001/", "http://203.0.113.2:8080/"] {
        let client = curl(&["--proxy", "http://127.0.0.1:61003", target]);
        let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
        outcome.does_not_say("hello").says("is refused");
        assert_eq!(outcome.event("decision")["verdict"], "deny", "{outcome}");
    }
    for address in [[127, 0, 0, 1], [203, 0, 113, 2]] {
        assert!(world.arrivals_at(mark, address.into()).is_empty());
    }
}
