//! Processes: those of the host, and the sandbox's own first one, which could take the walls down.

use std::process::Command;

use super::{FLAGS, attempt, gets_out, is_held, under_netbox, without};
use crate::programs::{CURL, PYTHON};
use crate::tests;
use crate::world::World;

tests![
    a_process_of_the_hosts_cannot_be_touched needs [PYTHON],
    a_process_at_the_other_end_of_a_socket_cannot_be_touched needs [PYTHON],
    the_first_process_cannot_be_touched needs [PYTHON],
    the_first_process_cannot_be_ended_or_stopped needs [PYTHON, CURL],
    no_namespace_of_the_first_process_can_be_entered needs [PYTHON],
    a_signal_reaches_no_process_of_the_hosts needs [PYTHON],
    a_signal_to_the_group_stays_inside needs [PYTHON],
    a_signal_to_everybody_stays_inside needs [PYTHON],
    nobody_types_into_a_terminal needs [PYTHON],
    a_file_with_capabilities_runs_and_gains_nothing needs [PYTHON],
];

/// The words that run `command` beside a process of the host's, whose number and secret are `PID` and `ADDRESS` in it.
fn beside(world: &World, command: Vec<String>) -> Vec<String> {
    [attempt(world, &["processes", "beside"]), command].concat()
}

/// By `/proc`, by ptrace(2), process_vm_readv(2), pidfd_getfd(2) and prlimit(2).
fn a_process_of_the_hosts_cannot_be_touched(world: &World) {
    let touch = attempt(world, &["processes", "touch", "PID", "ADDRESS"]);
    gets_out(&world.bare().exec(&beside(world, touch.clone())));
    is_held(&world.bare().exec(&beside(world, under_netbox(world, &touch))));
}

/// A connected unix socket passes, and gives a handle of the process that it leads to, though that has no number inside.
fn a_process_at_the_other_end_of_a_socket_cannot_be_touched(world: &World) {
    let reach = attempt(world, &["processes", "reach_peer"]);
    let at_the_end =
        |command| world.bare().exec(&[attempt(world, &["processes", "at_the_other_end"]), command].concat());
    let bare = at_the_end(reach.clone());
    if bare.stdout() == "failed: a handle ENOPROTOOPT\n" {
        // Before Linux 6.5 there are no such handles.
        return;
    }
    // The namespace comes with Linux 6.11.
    bare.says("got: a signal\n").says("got: a descriptor\n");
    let outcome = at_the_end(under_netbox(world, &reach));
    outcome.says("failed: a signal").says("failed: a descriptor").says("failed: a namespace");
}

/// Who is in the same user namespace as it, and has the capabilities there, has its descriptors and its memory.
fn the_first_process_cannot_be_touched(world: &World) {
    let touch = attempt(world, &["processes", "touch", "1"]);
    gets_out(&world.bare().exec(&without(world, "nested", &touch)));
    is_held(&world.netbox(&FLAGS).exec(&touch));
}

/// The kernel takes the signals, and the network is there as before.
fn the_first_process_cannot_be_ended_or_stopped(world: &World) {
    let host = world.zone().host("first-process");
    let hurt = attempt(world, &["processes", "hurt", "1"]).join(" ");
    let script = format!("{hurt} && curl --silent --max-time 30 {}", host.http("/"));
    let outcome = world.netbox(&["--allow", &host.name]).exec(&["sh", "-c", &script]);
    outcome.exits_with(0).says("SIGKILL").says("hello first-process.example.com");
}

fn no_namespace_of_the_first_process_can_be_entered(world: &World) {
    let enter = attempt(world, &["processes", "enter", "1"]);
    let outcome = world.bare().exec(&without(world, "nested", &enter));
    for kind in ["net", "mnt", "pid", "ipc"] {
        outcome.says(&format!("got: ns/{kind}\n")).says(&format!("got: pidfd {kind}\n"));
    }
    is_held(&world.netbox(&FLAGS).exec(&enter));
    let from_below = attempt(world, &["processes", "enter_from_below", "1"]);
    is_held(&world.netbox(&FLAGS).exec(&from_below));
}

fn a_signal_reaches_no_process_of_the_hosts(world: &World) {
    let send = attempt(world, &["processes", "send", "PID"]);
    for command in [send.clone(), without(world, "pid", &send)] {
        world.bare().exec(&beside(world, command)).says("got: sent\nthe victim was hit\n");
    }
    world.bare().exec(&beside(world, under_netbox(world, &send))).says("failed: sent ESRCH\nthe victim is well\n");
}

/// `kill(0, …)` goes to the process group, which reaches across a pid namespace: to netbox, and to the shell's pipeline.
fn a_signal_to_the_group_stays_inside(world: &World) {
    let send = attempt(world, &["processes", "send", "0"]);
    world.bare().exec(&beside(world, without(world, "session", &send))).says("got: sent\nthe victim was hit\n");
    world.bare().exec(&beside(world, under_netbox(world, &send))).says("got: sent\nthe victim is well\n");
}

/// All of it in a pid namespace, so that everybody is nobody else of the machine's.
fn a_signal_to_everybody_stays_inside(world: &World) {
    let send = attempt(world, &["processes", "send", "-1"]);
    let run = |command| world.bare().exec(&without(world, "calls", &beside(world, command)));
    run(without(world, "pid", &send)).says("got: sent\nthe victim was hit\n");
    // Nobody is there but the sender and the sandbox's first process.
    run(under_netbox(world, &send)).says("failed: sent ESRCH\nthe victim is well\n");
}

/// TIOCSTI and TIOCLINUX put text where a shell outside would read it.
fn nobody_types_into_a_terminal(world: &World) {
    let kind = attempt(world, &["processes", "type_into_terminal"]);
    let bare = world.bare().exec(&kind);
    // This is no console, which takes the latter; and some kernels take the former from nobody.
    bare.says("failed: pasted ENOTTY");
    let legacy = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
    if legacy.map_or(true, |text| text.trim() == "1") {
        bare.says("got: typed\n").says("got: read\n");
    }
    let outcome = world.netbox(&FLAGS).exec(&kind);
    outcome.says("failed: typed EPERM\nfailed: pasted EPERM\nfailed: read EAGAIN\n");
}

/// As a server has that may bind port 80.
fn a_file_with_capabilities_runs_and_gains_nothing(world: &World) {
    let program = world.fresh_path("home");
    let program = program.to_str().expect("plain characters");
    // By another process: what this one has open for writing, nobody can execute.
    world.bare().exec(&["cp", "/usr/bin/grep", program]).exits_with(0);
    // capability(7): version 2, effective, CAP_NET_BIND_SERVICE permitted.
    let script = "import os, struct, sys\n\
                  os.setxattr(sys.argv[1], 'security.capability', struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0))";
    // The test itself is root here, be it of its own user namespace, and may give them.
    let given = Command::new(PYTHON.name).args(["-c", script, program]).status().expect("`python3`");
    assert!(given.success(), "{given}");
    // As one who has none: what root has is none of the file's.
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "env"];
    let before = if world.identity.real_root { &nobody[..] } else { &[] };
    let client = [before, &[program, "CapEff", "/proc/self/status"]].concat();
    world.bare().exec(&client).says("\t0000000000000400\n");
    world.netbox(&FLAGS).exec(&client).exits_with(0).says("\t0000000000000000\n");
}
