//! A netbox inside another sandbox (bwrap): it works where that one has a network, and reaches nothing where it has none.

use crate::outcome::{Outcome, read_events};
use crate::programs::{BWRAP, CURL};
use crate::tests;
use crate::world::World;

use super::nested::{Inner, fetch};
use super::programs::greeting;

tests![
    in_bwrap_with_a_network_it_works_as_ever needs [BWRAP, CURL],
    in_bwrap_without_a_network_it_starts_and_reaches_nothing needs [BWRAP, CURL],
    in_bwrap_without_a_network_in_a_netbox_it_starts_and_reaches_nothing needs [BWRAP, CURL],
];

/// A sandbox that shows everything and takes nothing away but what is added.
const BOX: [&str; 9] =
    ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--proc", "/proc"];

fn in_bwrap_with_a_network_it_works_as_ever(world: &World) {
    let (listed, other) = (world.zone().host("in-bwrap"), world.zone().host("in-bwrap-other"));
    let client = fetch(&[listed.http("/"), other.http("/")]);
    let inner = Inner::new(world, &["--allow", &listed.name], &client);
    let words: Vec<&str> = BOX.into_iter().chain(inner.words.iter().map(String::as_str)).collect();
    let mark = world.mark();
    let outcome = world.bare().exec(&words);
    outcome.exits_with(0).says(&greeting(&listed)).says("no rule allows this host");
    world.assert_untouched(mark, &other);
}

fn reaches_nothing(outcome: &Outcome, inner: &Inner, host: &str, reason: &str) {
    let events = read_events(&inner.events);
    outcome.does_not_say("hello").says("it went on");
    outcome.complains("there is no network here");
    let failed =
        events.iter().any(|event| event["event"] == "decision" && event["host"] == host && event["reason"] == reason);
    assert!(failed, "no `{reason}` among {events:#?}: {outcome}");
}

fn in_bwrap_without_a_network_it_starts_and_reaches_nothing(world: &World) {
    let host = world.zone().host("in-bwrap-alone");
    let script = "curl -sS --max-time 30 --proxy http://127.0.0.1:61003 \"$0\"; echo it went on";
    let inner = Inner::new(world, &["--allow", &host.name], &["sh", "-c", script, &host.http("/")]);
    let words: Vec<&str> =
        BOX.into_iter().chain(["--unshare-net"]).chain(inner.words.iter().map(String::as_str)).collect();
    reaches_nothing(world.bare().exec(&words).exits_with(0), &inner, &host.name, "dns-failed");
}

fn in_bwrap_without_a_network_in_a_netbox_it_starts_and_reaches_nothing(world: &World) {
    let host = world.zone().host("in-both");
    let script = "curl -sS --max-time 30 --proxy http://127.0.0.1:61003 \"$0\"; echo it went on";
    let flags = ["--allow", &host.name];
    let inner = Inner::new(world, &flags, &["sh", "-c", script, &host.http("/")]);
    // In root's there is no fresh `/proc` for bwrap either, and netbox needs that of its pid namespace.
    let sandbox = if world.identity.real_root { &BOX[..4] } else { &BOX };
    let inside = inner.words.iter().map(String::as_str);
    let words: Vec<&str> = sandbox.iter().copied().chain(["--unshare-net"]).chain(inside).collect();
    let mark = world.mark();
    reaches_nothing(world.netbox(&flags).exec(&words).exits_with(0), &inner, &host.name, "unreachable");
    world.assert_untouched(mark, &host);
}
