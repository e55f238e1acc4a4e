//! Signals, and the end of netbox: what is sent to it reaches the command, and nothing outlives it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::run::eventually;
use crate::tests;
use crate::world::World;

tests![
    sigterm_reaches_the_command needs [],
    sigint_reaches_the_command needs [],
    sighup_reaches_the_command needs [],
    the_third_interruption_in_a_row_ends_the_run needs [],
    what_the_caller_ignores_is_ignored needs [],
    a_command_killed_by_a_real_time_signal_says_so needs [],
    a_command_that_ends_takes_its_background_processes_along needs [],
    a_kill_of_netbox_while_the_command_runs_leaves_nothing needs [],
    a_kill_of_netbox_at_any_moment_leaves_nothing needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

fn sigterm_reaches_the_command(world: &World) {
    reaches_the_command(world, Signal::SIGTERM, "TERM");
}

fn sigint_reaches_the_command(world: &World) {
    reaches_the_command(world, Signal::SIGINT, "INT");
}

fn sighup_reaches_the_command(world: &World) {
    reaches_the_command(world, Signal::SIGHUP, "HUP");
}

/// `wait` returns when a trapped signal comes; the shell then ends its helper itself.
fn reaches_the_command(world: &World, signal: Signal, name: &str) {
    let script = format!("trap 'echo got {name}; kill -9 $!; exit 42' {name}; sleep 1000 & echo ready; wait");
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let running = run.start(&["sh", "-c", &script]);
        running.wait_for_stdout("ready\n");
        running.signal(signal);
        running.finish().exits_with(42).says(&format!("got {name}\n"));
    }
}

/// The command catches every signal that can be caught, and goes on.
fn the_third_interruption_in_a_row_ends_the_run(world: &World) {
    let script =
        "trap 'echo interrupted' INT; trap 'echo terminated' TERM; echo ready; while :; do sleep 1000 & wait; done";
    let running = world.netbox(&FLAGS).start(&["sh", "-c", script]);
    running.wait_for_stdout("ready\n");
    let press = || {
        running.signal(Signal::SIGINT);
        running.has_ended()
    };
    assert!(eventually(press), "it goes on");
    running.finish().exits_with(128 + 2).says("interrupted\n").says("terminated\n");
}

/// As nohup(1) has it, and a shell for what it runs in the background.
fn what_the_caller_ignores_is_ignored(world: &World) {
    let script = "trap '' INT HUP QUIT; exec \"$0\" run --mode none -q -- sh -c 'echo ready; read -r line; exit 5'";
    let netbox = world.netbox_path().to_str().expect("text");
    let mut running = world.bare().stdin_open().start(&["sh", "-c", script, netbox]);
    running.wait_for_stdout("ready\n");
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGINT, Signal::SIGINT] {
        running.signal(signal);
    }
    running.write(b"go on\n");
    running.finish().exits_with(5);
}

fn a_command_killed_by_a_real_time_signal_says_so(world: &World) {
    let words = ["bash", "-c", "kill -RTMIN+3 $$"];
    let number = world.bare().exec(&words).signal.expect("a signal kills it");
    world.netbox(&FLAGS).exec(&words).exits_with(128 + number);
}

fn a_command_that_ends_takes_its_background_processes_along(world: &World) {
    let marker = &unique("background");
    let script =
        format!("setsid sh -c 'trap \"\" HUP TERM INT; sleep 1000 & wait' {marker} >/dev/null 2>&1 </dev/null & :");
    world.netbox(&FLAGS).exec(&["sh", "-c", &script]).exits_with(0);
    assert_gone(marker);
}

/// Shells that ignore every signal that can be ignored, one of them in a session of its own.
fn stubborn(marker: &str) -> [String; 4] {
    let stubborn = "trap \"\" HUP INT TERM QUIT PIPE; sleep 1000 & wait";
    let script = format!("setsid sh -c '{stubborn}' {marker} & trap '' HUP INT TERM QUIT PIPE; echo ready; {stubborn}");
    ["sh".to_owned(), "-c".to_owned(), script, marker.to_owned()]
}

fn a_kill_of_netbox_while_the_command_runs_leaves_nothing(world: &World) {
    let marker = &unique("running");
    let running = world.netbox(&FLAGS).env("MARKER", marker).start(&stubborn(marker));
    running.wait_for_stdout("ready\n");
    assert!(marked(marker).len() > 2, "netbox and both shells are found by their marker");
    running.signal(Signal::SIGKILL);
    let outcome = running.finish();
    assert_eq!(outcome.signal, Some(9), "{outcome}");
    assert_gone(marker);
}

/// From the first moment on to one when the command runs for sure. The moments are not the test: whatever happens
/// after the kill is waited for.
fn a_kill_of_netbox_at_any_moment_leaves_nothing(world: &World) {
    for step in 0..40 {
        let marker = unique(&format!("moment-{step}"));
        let moment = Duration::from_micros(750 * step);
        let started = Instant::now();
        let running = world.netbox(&FLAGS).env("MARKER", &marker).start(&stubborn(&marker));
        while started.elapsed() < moment {
            std::hint::spin_loop();
        }
        running.signal(Signal::SIGKILL);
        running.finish();
        assert_gone(&marker);
    }
}

/// A marker that no other run of the tests has.
fn unique(name: &str) -> String {
    format!("e2e-{}-{name}-marker", std::process::id())
}

#[track_caller]
fn assert_gone(marker: &str) {
    assert!(eventually(|| marked(marker).is_empty()), "still there: {:#?}", marked(marker));
}

/// The processes that have the marker in their arguments or their environment, which what they start inherits.
fn marked(marker: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("/proc is mounted");
    let numbered = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    let processes = processes.flatten().map(|entry| entry.path()).filter(|path| numbered(path));
    processes
        .filter_map(|process| {
            let read = |file| fs::read(process.join(file)).unwrap_or_default();
            let all = [read("cmdline"), read("environ")].concat();
            let found = all.windows(marker.len()).any(|window| window == marker.as_bytes());
            found.then(|| format!("{} {}", process.display(), String::from_utf8_lossy(&read("cmdline"))))
        })
        .collect()
}
