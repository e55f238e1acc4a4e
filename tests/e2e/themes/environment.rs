//! The command's environment: what names a thing that is out of reach inside is not in it, `--env` decides otherwise, and
//! what netbox says of itself cannot be changed.

use std::os::unix::net::UnixListener;

use crate::outcome::Outcome;
use crate::run::Run;
use crate::tests;
use crate::world::World;

tests![
    variables_that_lead_to_the_hosts_services_are_removed needs [],
    other_variables_stay needs [],
    a_variable_stays_whose_socket_is_let_through needs [],
    env_sets_a_variable_and_wins needs [],
    env_takes_a_variable_of_the_callers needs [],
    env_clear_keeps_a_few needs [],
    what_is_netboxs_own_cannot_be_set needs [],
    what_is_removed_is_told_to_who_asks needs [],
    a_list_with_spaces_says_what_to_write needs [],
    an_empty_rule_says_what_to_write needs [],
    a_command_without_run_is_told_of_it needs [],
    the_manual_lists_the_variables needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

const ASTRAY: [(&str, &str); 10] = [
    ("SSH_AUTH_SOCK", "/tmp/agent.sock"),
    ("SSH_AGENT_PID", "77"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
    ("DISPLAY", ":0"),
    ("WAYLAND_DISPLAY", "wayland-0"),
    ("DOCKER_HOST", "unix:///run/docker.sock"),
    ("TMUX", "/tmp/tmux-1000/default,7,0"),
    ("NOTIFY_SOCKET", "@/org/example/notify"),
    ("LISTEN_FDS", "1"),
    ("VSCODE_IPC_HOOK_CLI", "/tmp/vscode-ipc.sock"),
];

fn with<'w>(run: Run<'w>, variables: &[(&str, &str)]) -> Run<'w> {
    variables.iter().fold(run, |run, (name, value)| run.env(name, *value))
}

/// Whether there is such a line in the output of `env`.
fn has(outcome: &Outcome, name: &str, value: &str) -> bool {
    outcome.stdout().lines().any(|line| line.split_once('=') == Some((name, value)))
}

fn lacks(outcome: &Outcome, name: &str) -> bool {
    outcome.stdout().lines().all(|line| line.split_once('=').is_none_or(|(other, _)| other != name))
}

fn variables_that_lead_to_the_hosts_services_are_removed(world: &World) {
    let bare = with(world.bare(), &ASTRAY).exec(&["env"]);
    let outcome = with(world.netbox(&FLAGS), &ASTRAY).exec(&["env"]);
    outcome.exits_with(0).says("NETBOX=1\n");
    for (name, value) in ASTRAY {
        assert!(has(&bare, name, value), "{name} reaches a bare program: {bare}");
        assert!(lacks(&outcome, name), "{name} came along: {outcome}");
    }
}

fn other_variables_stay(world: &World) {
    let variables =
        [("DOCKER_HOST", "tcp://docker.example.com:2376"), ("DISPLAY", "x.example.com:0"), ("ODD", "a=b c")];
    let outcome = with(world.netbox(&FLAGS), &variables).exec(&["env"]);
    for (name, value) in variables {
        assert!(has(&outcome, name, value), "{name} was lost: {outcome}");
    }
}

fn a_variable_stays_whose_socket_is_let_through(world: &World) {
    let (path, other) = (world.fresh_path("home"), world.fresh_path("home"));
    let _listeners = [&path, &other].map(|path| UnixListener::bind(path).expect("own folder"));
    let (path, other) = (path.to_string_lossy(), other.to_string_lossy());
    let flags = ["--allow", "other.example.com", "--unix-socket", &path];
    let variables = [("SSH_AUTH_SOCK", &*path), ("SSH_AGENT_PID", "77"), ("VSCODE_IPC_HOOK_CLI", &*other)];
    let outcome = with(world.netbox(&flags), &variables).exec(&["env"]);
    outcome.exits_with(0);
    assert!(has(&outcome, "SSH_AUTH_SOCK", &path) && has(&outcome, "SSH_AGENT_PID", "77"), "{outcome}");
    assert!(lacks(&outcome, "VSCODE_IPC_HOOK_CLI"), "{outcome}");
}

fn env_sets_a_variable_and_wins(world: &World) {
    let flags = [
        "--allow",
        "other.example.com",
        "--env",
        "DISPLAY=:9",
        "--env",
        "HTTP_PROXY=http://proxy.example.com:1",
        "--env",
        "A=",
        "--env",
        "B=1",
        "--env",
        "B=two words",
    ];
    let variables = [("DISPLAY", ":0"), ("A", "old"), ("B", "old")];
    let outcome = with(world.netbox(&flags), &variables).exec(&["env"]);
    outcome.exits_with(0);
    for (name, value) in
        [("DISPLAY", ":9"), ("HTTP_PROXY", "http://proxy.example.com:1"), ("A", ""), ("B", "two words")]
    {
        assert!(has(&outcome, name, value), "{name} is not what was asked for: {outcome}");
    }
}

fn env_takes_a_variable_of_the_callers(world: &World) {
    let flags = ["--allow", "other.example.com", "--env", "SSH_AUTH_SOCK", "--env", "NOWHERE", "--env-clear"];
    let outcome = with(world.netbox(&flags), &[("SSH_AUTH_SOCK", "/tmp/agent.sock"), ("ODD", "1")]).exec(&["env"]);
    outcome.exits_with(0);
    assert!(has(&outcome, "SSH_AUTH_SOCK", "/tmp/agent.sock"), "{outcome}");
    assert!(lacks(&outcome, "NOWHERE") && lacks(&outcome, "ODD"), "{outcome}");
}

fn env_clear_keeps_a_few(world: &World) {
    let variables = [("SECRET_TOKEN", "x"), ("TERM", "dumb"), ("LC_TIME", "C"), ("TZ", "UTC"), ("USER", "someone")];
    let outcome = with(world.netbox(&["--allow", "other.example.com", "--env-clear"]), &variables).exec(&["env"]);
    outcome.exits_with(0);
    let text = outcome.stdout();
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.sort_unstable();
    let expected = ["HOME", "LANG", "LC_TIME", "NETBOX", "NETBOX_SESSION", "PATH", "TERM", "TZ", "USER"];
    assert_eq!(names, expected, "{outcome}");
}

fn what_is_netboxs_own_cannot_be_set(world: &World) {
    for setting in ["NETBOX=0", "NETBOX_SESSION=x", "NETBOX_ALLOW", "=x", ""] {
        let outcome = world.netbox(&["--allow", "other.example.com", "--env", setting]).exec(&["echo", "it ran"]);
        outcome.exits_with(2).does_not_say("it ran").complains("--env");
    }
}

fn what_is_removed_is_told_to_who_asks(world: &World) {
    let outcome = with(world.netbox(&["--allow", "other.example.com", "-v"]), &ASTRAY).exec(&["true"]);
    outcome.exits_with(0).complains("SSH_AGENT_PID SSH_AUTH_SOCK").complains("--env NAME");
    let outcome = with(world.netbox(&FLAGS), &ASTRAY).exec(&["true"]);
    assert!(!outcome.exits_with(0).stderr().contains("SSH_AUTH_SOCK"), "{outcome}");
}

fn a_list_with_spaces_says_what_to_write(world: &World) {
    let list = "one.example.com, two.example.com";
    let outcome = world.netbox(&["--allow", list]).exec(&["echo", "it ran"]);
    outcome.exits_with(2).does_not_say("it ran").complains("--allow").complains("`one.example.com,two.example.com`");
    let outcome = world.netbox(&[]).env("NETBOX_ALLOW", list).exec(&["echo", "it ran"]);
    outcome.exits_with(2).does_not_say("it ran").complains("NETBOX_ALLOW").complains("without spaces");
}

fn an_empty_rule_says_what_to_write(world: &World) {
    let outcome = world.netbox(&["--allow", ""]).exec(&["echo", "it ran"]);
    outcome.exits_with(2).does_not_say("it ran").complains("an empty rule").complains("write a host, such as");
    let outcome = world.netbox(&["--allow", "one.example.com,"]).exec(&["echo", "it ran"]);
    outcome.exits_with(2).does_not_say("it ran").complains("without a comma");
}

fn a_command_without_run_is_told_of_it(world: &World) {
    let outcome = world.netbox_words().exec(&["curl", "https://example.com/"]);
    outcome.exits_with(2).complains("`netbox run -- curl`");
    let outcome = world.netbox_words().exec(&["--allow", "example.com", "curl"]);
    outcome.exits_with(2).complains("`--allow` belongs behind `netbox run`");
}

fn the_manual_lists_the_variables(world: &World) {
    let outcome = world.netbox_words().exec(&["man", "run"]);
    outcome.exits_with(0).says(".SH ENVIRONMENT").says("NETBOX_ALLOW").says("NETBOX_SESSION");
}
