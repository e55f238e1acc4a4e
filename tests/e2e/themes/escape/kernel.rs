//! Facilities of the kernel that know nothing of networks, or that would change this one.

use super::{FLAGS, attempt, gets_out, is_held, said, under_netbox, without};
use crate::programs::{CURL, PYTHON};
use crate::tests;
use crate::world::World;

tests![
    the_sessions_keys_are_out_of_reach needs [PYTHON],
    the_kernels_own_resolver_is_not_asked needs [PYTHON],
    shared_memory_and_queues_of_the_host_are_not_there needs [PYTHON],
    system_calls_of_no_use_are_forbidden needs [PYTHON],
    the_capture_rules_stand needs [PYTHON, CURL],
];

/// A session keyring is inherited: what is in it can be read, and what is put into it is mail to whoever shares it.
fn the_sessions_keys_are_out_of_reach(world: &World) {
    let keys = attempt(world, &["kernel", "keys"]);
    let with = |command| world.bare().exec(&[attempt(world, &["kernel", "with_keys"]), command].concat());
    for command in [keys.clone(), without(world, "keyring", &keys)] {
        let outcome = with(command);
        for act in ["found", "requested", "read", "put", "mail"] {
            outcome.says(&format!("got: {act}\n"));
        }
    }
    let outcome = with(under_netbox(world, &keys));
    is_held(&outcome);
    outcome.says("failed: mail ENOKEY");
}

/// A key of the type dns_resolver makes the kernel start `/sbin/request-key`, outside, which looks the name up.
fn the_kernels_own_resolver_is_not_asked(world: &World) {
    let keys = attempt(world, &["kernel", "keys"]);
    let bare = world.bare().exec(&keys).stdout();
    // What the kernel got from the program that it started, which may not be installed, or has no such type at all.
    let refused = said(&bare, "failed: ").into_iter().find(|said| said.starts_with("looked up"));
    let asked = ["looked up ENOENT", "looked up ENOKEY", "looked up ENODEV", "looked up ENOPKG"];
    assert!(refused.is_none_or(|said| asked.contains(&said)), "{bare}");
    world.netbox(&FLAGS).exec(&keys).says("failed: looked up EPERM\n");
}

/// System V's and POSIX's.
fn shared_memory_and_queues_of_the_host_are_not_there(world: &World) {
    // The numbers are the machine's, on which other tests may run.
    let key = std::process::id().to_string();
    let memory = attempt(world, &["kernel", "memory", &key]);
    let with = |command| world.bare().exec(&[attempt(world, &["kernel", "with_memory", &key]), command].concat());
    gets_out(&with(memory.clone()));
    gets_out(&with(without(world, "ipc", &memory)));
    let outcome = with(under_netbox(world, &memory));
    is_held(&outcome);
    assert_eq!(outcome.stdout().matches("ENOENT").count(), 4, "{outcome}");
}

/// What a user has of them bare is a matter of the machine's settings, but for userfaultfd's user mode. Root has more.
fn system_calls_of_no_use_are_forbidden(world: &World) {
    let calls = attempt(world, &["kernel", "calls"]);
    let bare = world.bare().exec(&without(world, "calls", &calls));
    bare.says("got: userfaultfd\n");
    if world.identity.real_root {
        world.bare().exec(&calls).says("got: bpf\n").says("got: perf_event_open\n").says("got: open_by_handle_at\n");
    }
    let outcome = world.netbox(&FLAGS).exec(&calls);
    is_held(&outcome);
    assert_eq!(outcome.stdout().matches("EPERM").count(), outcome.stdout().lines().count(), "{outcome}");
}

/// Neither by who one is nor as the root of a user namespace of one's own; and what they capture is captured after it.
fn the_capture_rules_stand(world: &World) {
    let host = world.zone().host("rules-stand");
    for below in [&[][..], &["below"]] {
        let rules = attempt(world, &[&["kernel", "rules"], below].concat());
        if below.is_empty() {
            gets_out(&world.bare().exec(&without(world, "nested", &rules)));
        }
        let script = format!("{}; curl --silent --max-time 30 {}", rules.join(" "), host.http("/"));
        let mark = world.mark();
        let outcome = world.netbox(&FLAGS).exec(&["sh", "-c", &script]);
        let text = outcome.stdout();
        assert_eq!((said(&text, "failed: ").len(), said(&text, "got: ").len()), (3, 0), "{outcome}");
        outcome.refused(&host.name, 80, "not-listed");
        world.assert_untouched(mark, &host);
    }
}
