//! Exit codes: the command's own, and netbox's (the table in its manual).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::child::Kernel;
use crate::outcome::Outcome;
use crate::tests;
use crate::world::World;

tests![
    the_exit_code_is_the_commands_own needs [],
    a_command_killed_by_a_signal_gives_128_and_its_number needs [],
    a_missing_command_gives_127 needs [],
    a_missing_path_gives_127 needs [],
    a_file_that_is_not_executable_gives_126 needs [],
    a_folder_gives_126 needs [],
    a_command_whose_time_is_over_gives_124 needs [],
    a_caller_that_ignores_its_children_gets_the_exit_code needs [],
    a_filter_that_refuses_namespaces_gives_125 needs [],
    no_user_namespace_left_gives_125 needs [],
    no_network_namespace_left_gives_125 needs [],
    rules_without_effect_give_125 needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

fn the_exit_code_is_the_commands_own(world: &World) {
    for code in [0, 1, 2, 7, 125, 126, 127, 255] {
        let outcome = world.netbox(&FLAGS).exec(&["sh", "-c", &format!("exit {code}")]);
        outcome.exits_with(code);
        assert_eq!(outcome.event("exit")["code"], code, "{outcome}");
    }
}

fn a_command_killed_by_a_signal_gives_128_and_its_number(world: &World) {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("ABRT", 134)] {
        world.netbox(&FLAGS).exec(&["sh", "-c", &format!("kill -{signal} $$")]).exits_with(code);
    }
}

fn a_missing_command_gives_127(world: &World) {
    let outcome = world.netbox(&FLAGS).exec(&["no-such-command"]);
    outcome.exits_with(127).complains("`no-such-command`");
}

fn a_missing_path_gives_127(world: &World) {
    world.netbox(&FLAGS).exec(&["/no/such/command"]).exits_with(127).complains("`/no/such/command`");
}

fn a_file_that_is_not_executable_gives_126(world: &World) {
    let file = world.path("home").join("not-executable");
    fs::write(&file, "#!/bin/sh\necho it ran\n").expect("own folder");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("own file");
    let outcome = world.netbox(&FLAGS).exec(&[file.to_string_lossy()]);
    outcome.exits_with(126).does_not_say("it ran").complains("not-executable");
}

fn a_folder_gives_126(world: &World) {
    world.netbox(&FLAGS).exec(&[world.path("home").to_string_lossy()]).exits_with(126);
}

fn a_filter_that_refuses_namespaces_gives_125(world: &World) {
    does_not_run_without_isolation(world, Kernel::RefusesNamespaces, "namespace");
}

fn no_user_namespace_left_gives_125(world: &World) {
    does_not_run_without_isolation(world, Kernel::NoUserNamespaceLeft, "namespace");
}

fn no_network_namespace_left_gives_125(world: &World) {
    does_not_run_without_isolation(world, Kernel::NoNetworkNamespaceLeft, "namespace");
}

/// netbox believes no rule that it has not seen at work.
fn rules_without_effect_give_125(world: &World) {
    does_not_run_without_isolation(world, Kernel::ConnectsNothing, "did not arrive at the capture listener");
}

/// The command would leave a file and a line behind.
fn does_not_run_without_isolation(world: &World, kernel: Kernel, why: &str) {
    let file = world.fresh_path("home");
    let command = ["sh", "-c", "echo it ran; touch \"$0\"", &file.to_string_lossy()];
    world.bare().kernel(kernel).exec(&command).exits_with(0).says("it ran");
    fs::remove_file(&file).expect("the bare run leaves its file");
    let outcome: Outcome = world.netbox(&FLAGS).kernel(kernel).exec(&command);
    outcome.exits_with(125).does_not_say("it ran");
    assert!(!file.exists(), "the command ran: {outcome}");
    outcome.complains(why);
}

/// It is asked to end first, and what it does then is still seen.
fn a_command_whose_time_is_over_gives_124(world: &World) {
    let script = "trap 'echo asked; kill -9 $!; exit 0' TERM; sleep 1000 & wait";
    let outcome = world.netbox(&["--timeout", "300ms", "--allow", "other.example.com"]).exec(&["sh", "-c", script]);
    outcome.exits_with(124).says("asked").complains("--timeout");
    assert_eq!(outcome.event("exit")["code"], 124, "{outcome}");
}

/// Where SIGCHLD is ignored, children vanish without a word: netbox must not wait for one for ever.
fn a_caller_that_ignores_its_children_gets_the_exit_code(world: &World) {
    let netbox = world.netbox_path().to_string_lossy();
    let script = "trap '' CHLD; exec \"$0\" run --allow other.example.com -- sh -c 'exit 7'";
    world.bare().exec(&["sh", "-c", script, &netbox]).exits_with(7);
}
