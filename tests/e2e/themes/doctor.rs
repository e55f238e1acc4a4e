//! `netbox doctor`: it says that netbox can isolate where it can, and elsewhere why not, and what to do.

use serde_json::Value;

use crate::child::Kernel;
use crate::outcome::Outcome;
use crate::tests;
use crate::world::World;

tests![
    it_finds_that_netbox_can_isolate needs [],
    no_user_namespace_left_is_named_with_its_fix needs [],
    no_network_namespace_left_is_named_with_its_fix needs [],
    a_filter_that_refuses_namespaces_is_named needs [],
    it_agrees_with_run needs [],
    a_served_mount_is_named needs [],
];

const KERNELS: [Kernel; 3] = [Kernel::RefusesNamespaces, Kernel::NoUserNamespaceLeft, Kernel::NoNetworkNamespaceLeft];

fn checks(outcome: &Outcome) -> (bool, Vec<Value>) {
    let report: Value = serde_json::from_str(&outcome.stdout()).expect("one JSON object");
    let checks = report["checks"].as_array().expect("a list of checks").clone();
    (report["ok"].as_bool().expect("a verdict"), checks)
}

fn it_finds_that_netbox_can_isolate(world: &World) {
    let outcome = world.netbox_words().exec(&["doctor", "--json"]);
    let (ok, checks) = checks(outcome.exits_with(0));
    assert!(ok && checks.len() > 5, "{outcome}");
    for name in ["user namespaces", "nf_tables", "capture", "resolver", "/proc", "IPv6"] {
        let check = checks.iter().find(|check| check["name"] == name);
        assert_eq!(check.map(|check| &check["state"]), Some(&"ok".into()), "{name}: {outcome}");
    }
    world.netbox_words().exec(&["doctor"]).exits_with(0).says("netbox can isolate here");
}

/// Without namespaces, what comes after them is not reached, and the fix is the setting that stands in the way.
fn fails(world: &World, kernel: Kernel, errno: i32, fix: &str) {
    let outcome = world.netbox_words().kernel(kernel).exec(&["doctor", "--json"]);
    let (ok, checks) = checks(outcome.exits_with(1));
    assert!(!ok, "{outcome}");
    let failed: Vec<_> = checks.iter().filter(|check| check["state"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{outcome}");
    assert_eq!((&failed[0]["name"], &failed[0]["errno"]), (&"user namespaces".into(), &errno.into()), "{outcome}");
    assert!(failed[0]["fix"].as_str().is_some_and(|text| text.contains(fix)), "{outcome}");
    assert!(checks.iter().any(|check| check["name"] == "nf_tables" && check["state"] == "not reached"), "{outcome}");
}

fn no_user_namespace_left_is_named_with_its_fix(world: &World) {
    fails(world, Kernel::NoUserNamespaceLeft, nix::libc::ENOSPC, "sysctl -w user.max_user_namespaces");
}

fn no_network_namespace_left_is_named_with_its_fix(world: &World) {
    fails(world, Kernel::NoNetworkNamespaceLeft, nix::libc::ENOSPC, "sysctl -w user.max_net_namespaces");
}

/// As a container engine's filter does: `clone3` does not exist, and what it would fall back to is not permitted.
fn a_filter_that_refuses_namespaces_is_named(world: &World) {
    fails(world, Kernel::RefusesNamespaces, nix::libc::ENOSYS, "seccomp profile");
}

fn it_agrees_with_run(world: &World) {
    for kernel in KERNELS {
        world.netbox_words().kernel(kernel).exec(&["doctor"]).exits_with(1).says("cannot isolate here").says("fix:");
        world
            .netbox_words()
            .kernel(kernel)
            .exec(&["run", "--allow", "other.example.com", "--", "true"])
            .exits_with(125);
    }
}

/// A program outside may act on what is written there. The tests have a FUSE mount that nobody serves: nothing is opened.
fn a_served_mount_is_named(world: &World) {
    if !world.identity.real_root {
        // A user mounts by a helper of root's.
        return;
    }
    let point = world.fresh_path("home");
    std::fs::create_dir(&point).expect("own folder");
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", std::os::fd::AsRawFd::as_raw_fd(&device));
    nix::mount::mount(Some("test"), &point, Some("fuse.test"), nix::mount::MsFlags::empty(), Some(options.as_str()))
        .expect("root may mount");
    let outcome = world.netbox_words().exec(&["doctor", "--json"]);
    let verbose = world.netbox(&["--allow", "other.example.com", "-v"]).exec(&["true"]);
    nix::mount::umount2(&point, nix::mount::MntFlags::MNT_DETACH).expect("it is mounted");
    let (ok, checks) = checks(outcome.exits_with(0));
    let check = checks.iter().find(|check| check["name"] == "served mounts").expect("it is named");
    assert!(ok && check["detail"].as_str().is_some_and(|text| text.contains("fuse.test")), "{outcome}");
    verbose.exits_with(0).complains("reaches whoever serves it").complains("fuse.test");
}
