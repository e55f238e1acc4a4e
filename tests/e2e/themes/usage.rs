//! What a person gets to see: errors that say what to write, the sum at the end, and what would run.

use crate::programs::{CURL, curl};
use crate::tests;
use crate::world::World;

tests![
    a_bad_rule_is_quoted_and_nothing_runs needs [],
    a_bad_deny_rule_is_quoted_and_nothing_runs needs [],
    an_unknown_flag_is_an_error needs [],
    an_unknown_mode_is_an_error needs [],
    no_command_is_an_error needs [],
    help_and_version_are_commands_too needs [],
    an_allow_rule_beside_mode_none_is_an_error needs [],
    without_a_rule_netbox_says_once_that_nothing_is_reachable needs [],
    with_a_rule_netbox_says_nothing needs [],
    the_summary_names_what_was_refused_and_the_rule_that_would_allow_it needs [CURL],
    no_summary_is_printed_when_it_is_not_wanted needs [CURL],
    the_summary_tells_what_was_reached_when_asked needs [CURL],
    a_verbose_run_says_what_the_walls_took needs [],
    a_dry_run_runs_nothing needs [],
    rules_may_come_from_the_environment needs [CURL],
    a_list_of_rules_may_be_one_word needs [CURL],
    the_command_sees_that_it_is_in_a_sandbox needs [],
    the_hosts_proxy_variables_are_removed needs [],
    eight_runs_at_once needs [CURL],
];

/// The flag's value is quoted, the message is one line before any hint, and the command did not run.
#[track_caller]
fn usage_error(world: &World, flags: &[&str], quoted: &str) {
    let outcome = world.netbox(flags).exec(&["echo", "it ran"]);
    outcome.exits_with(2).does_not_say("it ran").complains(quoted);
    assert!(outcome.events.is_empty(), "nothing was begun: {outcome}");
}

const BAD_RULES: [&str; 9] = [
    "https://bad.example.com/",
    "*.com",
    "bad.example.com:0",
    "bad.example.com:70000",
    "bad.example.com:https",
    "bad.*.example.com",
    "bad..example.com",
    "bad example.com",
    "10.0.0.0/33",
];

fn a_bad_rule_is_quoted_and_nothing_runs(world: &World) {
    for rule in BAD_RULES {
        let outcome = world.netbox(&["--allow", rule]).exec(&["echo", "it ran"]);
        outcome.exits_with(2).does_not_say("it ran").complains(&format!("`{rule}`")).complains("--allow");
        let first = outcome.stderr().lines().next().unwrap_or_default().to_owned();
        assert!(first.contains(&format!("`{rule}`")), "the first line has it: {outcome}");
        let before_hint = outcome.stderr().split("\n\n").next().unwrap_or_default().trim_end().lines().count();
        assert_eq!(before_hint, 1, "one line: {outcome}");
    }
}

fn a_bad_deny_rule_is_quoted_and_nothing_runs(world: &World) {
    usage_error(world, &["--deny", "https://bad.example.com/"], "`https://bad.example.com/`");
}

fn an_unknown_flag_is_an_error(world: &World) {
    usage_error(world, &["--alow", "bad.example.com"], "--alow");
}

fn an_unknown_mode_is_an_error(world: &World) {
    usage_error(world, &["--mode", "everything"], "everything");
}

fn no_command_is_an_error(world: &World) {
    for words in [vec!["run", "--allow", "other.example.com"], vec!["run", "--allow", "other.example.com", "--"]] {
        world.netbox_words().exec(&words).exits_with(2);
    }
}

fn help_and_version_are_commands_too(world: &World) {
    let said = |words: &[&str]| world.netbox_words().exec(words).exits_with(0).stdout();
    for command in [&[][..], &["run"], &["proxy", "serve"]] {
        assert_eq!(said(&[&["help"], command].concat()), said(&[command, &["--help"]].concat()));
    }
    assert_eq!(said(&["version"]), said(&["--version"]));
    world.netbox_words().exec(&["help", "curl"]).exits_with(2).complains("there is no command `curl`");
}

fn an_allow_rule_beside_mode_none_is_an_error(world: &World) {
    usage_error(world, &["--mode", "none", "--allow", "other.example.com"], "none");
}

fn without_a_rule_netbox_says_once_that_nothing_is_reachable(world: &World) {
    let outcome = world.netbox_words().exec(&["run", "--", "echo", "it ran"]);
    outcome.exits_with(0).says("it ran");
    let said = outcome.stderr();
    assert_eq!(said.matches("nothing is reachable").count(), 1, "{outcome}");
    assert!(said.contains("--allow"), "and what to write: {outcome}");
}

fn with_a_rule_netbox_says_nothing(world: &World) {
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&["echo", "it ran"]);
    assert_eq!(outcome.exits_with(0).stdout(), "it ran\n", "{outcome}");
    let as_root = world.identity.real_root;
    assert!(as_root || outcome.stderr().is_empty(), "as real root there is a warning, else silence: {outcome}");
}

fn the_summary_names_what_was_refused_and_the_rule_that_would_allow_it(world: &World) {
    let urls = ["http://summary.example.com:8080/", "http://summary.example.com:8080/again"];
    let outcome = world.netbox(&["--allow", "other.example.com", "--summary", "always"]).exec(&curl(&urls));
    outcome.complains("summary.example.com:8080").complains("2").complains("not-listed");
    assert!(outcome.stderr().contains("--allow"), "the rule that would allow it: {outcome}");
}

/// Report 121: what a run did reach, each host once.
fn the_summary_tells_what_was_reached_when_asked(world: &World) {
    let host = world.zone().host("summary-reached");
    let urls = ["http://summary-reached.example.com/", "http://summary-reached.example.com/again"];
    let outcome = world.netbox(&["--allow", &host.name, "--summary", "always"]).exec(&curl(&urls));
    outcome.complains("netbox: 2 allowed, 0 refused\n  reached summary-reached.example.com:80, 2 times, ");
    outcome.complains(" sent, ").complains(" received\n");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&curl(&urls));
    assert!(!outcome.stderr().contains("summary-reached"), "{outcome}");
}

fn no_summary_is_printed_when_it_is_not_wanted(world: &World) {
    let client = curl(&["http://no-summary.example.com/"]);
    let outcome = world.netbox(&["--allow", "other.example.com", "--summary", "never"]).exec(&client);
    outcome.refused("no-summary.example.com", 80, "not-listed");
    assert!(!outcome.stderr().contains("no-summary"), "{outcome}");
}

fn a_verbose_run_says_what_the_walls_took(world: &World) {
    let outcome = world.netbox(&["--allow", "example.com", "--verbose"]).exec(&["true"]);
    outcome.exits_with(0).complains("netbox: the walls took: namespaces ").complains(" ms, capture rules ");
    outcome.complains(" ms, its user namespace ").complains(" ms, system-call filter ");
    assert!(!world.netbox(&["--allow", "example.com"]).exec(&["true"]).stderr().contains("took"));
}

fn a_dry_run_runs_nothing(world: &World) {
    let file = world.fresh_path("home");
    let command = ["touch", &file.to_string_lossy()];
    let outcome = world.netbox(&["--allow", "dry-run.example.com", "--dry-run"]).exec(&command);
    outcome.exits_with(0).says("dry-run.example.com").says("touch");
    assert!(!file.exists(), "the command ran: {outcome}");
    world.bare().exec(&command).exits_with(0);
    assert!(file.exists(), "the command would have left its file");
}

fn rules_may_come_from_the_environment(world: &World) {
    let host = world.zone().host("environment");
    let client = curl(&["http://environment.example.com/"]);
    let outcome = world.netbox(&[]).env("NETBOX_ALLOW", &host.name).exec(&client);
    outcome.exits_with(0).says("hello");
    let decision = outcome.allowed(&host.name, 80, "listed");
    assert_eq!(decision["rule"]["source"], "NETBOX_ALLOW", "{outcome}");
}

fn a_list_of_rules_may_be_one_word(world: &World) {
    let (one, two) = (world.zone().host("list-one"), world.zone().host("list-two"));
    let rules = format!("{}:80,8080,{}:3000", one.name, two.name);
    let urls = [
        one.http(":8080/").replace(":8080/", "/"),
        format!("http://{}:8080/", one.name),
        format!("http://{}:3000/", two.name),
    ];
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let outcome = world.netbox(&["--allow", &rules]).exec(&curl(&urls));
    outcome.exits_with(0);
    outcome.allowed(&one.name, 80, "listed");
    outcome.allowed(&one.name, 8080, "listed");
    outcome.allowed(&two.name, 3000, "listed");
}

fn the_command_sees_that_it_is_in_a_sandbox(world: &World) {
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&["env"]);
    outcome.exits_with(0).says("NETBOX=1\n");
    let session = outcome.event("start")["session"].as_str().unwrap_or_default().to_owned();
    outcome.says(&format!("NETBOX_SESSION={session}\n"));
}

fn the_hosts_proxy_variables_are_removed(world: &World) {
    let names = ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "ftp_proxy", "HTTP_PROXY"];
    let set =
        |run| names.iter().fold(run, |run: crate::run::Run<'_>, name| run.env(name, "http://proxy.example.com:3128"));
    set(world.bare()).exec(&["env"]).says("https_proxy=");
    let outcome = set(world.netbox(&["--allow", "other.example.com"])).exec(&["env"]);
    assert!(!outcome.stdout().to_ascii_lowercase().contains("_proxy="), "{outcome}");
}

fn eight_runs_at_once(world: &World) {
    let host = world.zone().host("eight");
    let client = curl(&["http://eight.example.com/"]);
    let running: Vec<_> = (0..8).map(|_| world.netbox(&["--allow", &host.name]).start(&client)).collect();
    let outcomes: Vec<_> = running.into_iter().map(crate::run::Running::finish).collect();
    let mut sessions: Vec<_> = outcomes.iter().map(|outcome| outcome.event("start")["session"].to_string()).collect();
    sessions.sort();
    sessions.dedup();
    assert_eq!(sessions.len(), 8, "each run is a session of its own");
    for outcome in &outcomes {
        outcome.exits_with(0).says("hello eight.example.com");
    }
}
