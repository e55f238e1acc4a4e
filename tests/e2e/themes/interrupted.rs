//! Ctrl-C at the terminal stops the shell's loop or script around netbox, as it stops one around the command alone.

use nix::sys::signal::Signal;

use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;

use super::terminal_jobs::{PROMPT, Window};

tests![
    ctrl_c_stops_a_loop_at_the_prompt needs [],
    ctrl_c_stops_a_loop_in_a_script needs [],
    ctrl_c_stops_a_loop_whose_input_is_no_terminal needs [],
    ctrl_c_stops_a_loop_around_a_netbox_in_a_netbox needs [],
    a_loop_goes_on_where_the_command_took_ctrl_c_itself needs [],
    a_script_goes_on_where_nobody_pressed_the_key needs [],
    who_is_not_at_a_terminal_is_told_by_the_code needs [],
];

const SLEEP: &str = "echo ready-$((1 + 1)); exec sleep 1000";

fn ctrl_c_stops_a_loop_at_the_prompt(world: &World) {
    let window = Window::new(world);
    for netbox in [window.netbox(SLEEP), format!("bash -c '{SLEEP}'")] {
        window.line(&format!("while :; do {netbox}; done"));
        window.shows("ready-2\r\n");
        window.terminal.enter("\x03");
        window.shows(PROMPT);
        assert_eq!(window.asks("$?"), "130");
    }
    window.close();
}

/// Such a shell is in netbox's group, and has to see the key itself.
fn ctrl_c_stops_a_loop_in_a_script(world: &World) {
    let window = Window::new(world);
    for shell in ["bash", "dash"] {
        let netbox = window.netbox("echo ready; exec sleep 1000").replace('\'', "\"");
        window.line(&format!("{shell} -c 'while :; do {netbox}; echo again; done'"));
        window.shows("\nready\r\n");
        window.terminal.enter("\x03");
        let shown = window.shows(PROMPT);
        assert!(!shown.contains("again") && !shown.contains("ready"), "{shell}: {shown}");
        assert_eq!(window.asks("$?"), "130", "{shell}");
    }
    window.close();
}

/// Netbox leaves the keys alone then, and the key is a signal to it.
fn ctrl_c_stops_a_loop_whose_input_is_no_terminal(world: &World) {
    let window = Window::new(world);
    window.line(&format!("while :; do {} </dev/null; done", window.netbox(SLEEP)));
    window.shows("ready-2\r\n");
    window.terminal.enter("\x03");
    window.shows(PROMPT);
    assert_eq!(window.asks("$?"), "130");
    window.close();
}

fn ctrl_c_stops_a_loop_around_a_netbox_in_a_netbox(world: &World) {
    let window = Window::new(world);
    let inner = window.netbox(SLEEP);
    // Root's has no `/proc` of its own in there.
    let weaker = if world.identity.real_root { "env NETBOX_ALLOW_WEAKER=proc" } else { "" };
    let outer = format!("{} run --mode none -q --", world.netbox_path().display());
    window.line(&format!("while :; do {outer} {weaker} {inner}; done"));
    window.shows("ready-2\r\n");
    window.terminal.enter("\x03");
    window.shows(PROMPT);
    assert_eq!(window.asks("$?"), "130");
    window.close();
}

fn a_loop_goes_on_where_the_command_took_ctrl_c_itself(world: &World) {
    let window = Window::new(world);
    let netbox = window.netbox("trap \"kill -9 \\$!; exit 7\" INT; sleep 1000 & echo ready; wait");
    window.line(&format!("for n in 1 2; do {netbox}; echo code-$?-; done"));
    for _ in 0..2 {
        window.shows("ready\r\n");
        window.terminal.enter("\x03");
        window.shows("code-7-\r\n");
    }
    window.shows(PROMPT);
    window.close();
}

/// A command that dies of the signal for a reason of its own: that must not stop what goes on out here.
fn a_script_goes_on_where_nobody_pressed_the_key(world: &World) {
    let window = Window::new(world);
    let commands = [
        "kill -INT $$",
        // It makes another key the one that interrupts, or counts on one from before.
        "stty intr a; echo ready; sleep 1000",
        "trap : INT; echo ready; while ! read -r x; do :; done; trap - INT; kill -INT $$",
    ];
    for (command, keys) in commands.into_iter().zip(["", "a", "\x03x\r"]) {
        let netbox = window.netbox(command);
        window.line(&format!("for n in 1 2; do {netbox}; echo code-$?-; done"));
        for _ in 0..2 {
            if !keys.is_empty() {
                window.shows("ready\r\n");
                window.terminal.enter(keys);
            }
            window.shows("code-130-\r\n");
        }
        window.shows(PROMPT);
    }
    window.close();
}

fn who_is_not_at_a_terminal_is_told_by_the_code(world: &World) {
    let words = ["sh", "-c", "echo ready; exec sleep 1000"];
    let running = world.netbox(&["--mode", "none"]).start(&words);
    running.wait_for_stdout("ready\n");
    running.signal(Signal::SIGINT);
    running.finish().exits_with(130);
    // At one that is not netbox's own, where the key is relayed nevertheless.
    let terminal = Terminal::new();
    let run = world.netbox(&["--mode", "none"]).stdin_from(terminal.inner());
    let running = run.stdout_to(terminal.inner()).stderr_to(terminal.inner()).start(&words);
    terminal.shows("ready\r\n");
    terminal.enter("\x03");
    running.finish().exits_with(130);
}
