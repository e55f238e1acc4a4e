//! Descriptors that the command inherits: each is a piece of the host that no namespace takes away.

use super::{attempt, gets_out, said, under_netbox, without};
use crate::programs::PYTHON;
use crate::tests;
use crate::world::World;

tests![
    nothing_is_inherited_of_whatever_kind needs [PYTHON],
    nothing_that_leads_out_is_standard_input needs [PYTHON],
    a_connected_socket_as_input_is_not_connected_elsewhere needs [PYTHON],
];

/// Sockets, folders, namespaces, processes, rings and whatever else has a descriptor.
fn nothing_is_inherited_of_whatever_kind(world: &World) {
    let left = attempt(world, &["descriptors", "left"]);
    let keep = |command: Vec<String>| world.bare().exec(&[attempt(world, &["descriptors", "keep"]), command].concat());
    let bare = keep(left.clone()).stdout();
    let sandbox = keep(without(world, "descriptors", &left)).stdout();
    for text in [bare, sandbox] {
        assert!(said(&text, "got: ").len() > 15, "{text}");
    }
    assert_eq!(keep(under_netbox(world, &left)).stdout(), "seen\n");
}

fn nothing_that_leads_out_is_standard_input(world: &World) {
    let kinds = world.bare().exec(&attempt(world, &["descriptors", "kinds"])).exits_with(0).stdout();
    let echo = ["echo", "it ran"].map(str::to_owned);
    assert!(kinds.split_whitespace().count() > 12, "{kinds}");
    for kind in kinds.split_whitespace() {
        let with = attempt(world, &["descriptors", "as_input", kind]);
        world.bare().exec(&[&with[..], &echo].concat()).exits_with(0).says("it ran");
        let outcome = world.bare().exec(&[with, under_netbox(world, &echo)].concat());
        outcome.exits_with(125).does_not_say("it ran").complains("descriptor 0 is ");
    }
}

/// Two system calls take a socket of the host's off its peer and connect it to whom one likes, in the host's network.
fn a_connected_socket_as_input_is_not_connected_elsewhere(world: &World) {
    let (near, far) = (world.zone().host("input-near"), world.zone().host("input-far"));
    let with = attempt(world, &["descriptors", "connected_input", &near.v4().to_string(), "5432"]);
    let way = attempt(world, &["descriptors", "reconnect", &far.v4().to_string(), "5432"]);
    let run = |command: Vec<String>| {
        let mark = world.mark();
        let outcome = world.bare().exec(&[with.clone(), command].concat());
        (outcome, !world.arrivals(mark, &far).is_empty())
    };
    for command in [way.clone(), without(world, "descriptors", &way)] {
        let (outcome, reached) = run(command);
        gets_out(&outcome);
        assert!(reached, "{outcome}");
    }
    let (outcome, reached) = run(under_netbox(world, &way));
    assert!(!reached && said(&outcome.stdout(), "got: ").is_empty(), "{outcome}");
    outcome.says("failed: connected ENOTSOCK");
}
