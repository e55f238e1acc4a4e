//! Policy files: where they are looked for, and what they add up to.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::programs::{CURL, curl};
use crate::project::{FILE, Project, text};
use crate::tests;
use crate::world::World;

tests![
    the_layers_add_up_and_each_rule_knows_its_place needs [CURL],
    the_users_file_lies_where_the_environment_says needs [],
    the_users_file_may_be_a_link needs [],
    the_projects_file_is_found_upward_to_the_root_of_the_repository needs [],
    a_file_can_be_named needs [CURL],
    without_config_no_file_counts needs [],
    a_profile_can_be_chosen needs [],
    an_outer_deny_holds needs [CURL],
    unusual_files_that_are_right_count needs [],
    a_dry_run_tells_the_files needs [],
    the_policy_of_the_start_event_is_that_of_the_files needs [],
    a_service_takes_no_project_file needs [],
    a_named_file_cannot_be_changed_by_the_command needs [],
];

pub(crate) const RAN: [&str; 2] = ["echo", "it ran"];

/// The run is refused, the first line says why, and nothing was started. `check` says the same.
#[track_caller]
pub(crate) fn refused(project: &Project<'_>, flags: &[&str], why: &str) {
    let outcome = project.netbox(flags).exec(&RAN);
    outcome.exits_with(125).does_not_say("it ran");
    let first = outcome.stderr().lines().next().unwrap_or_default().to_owned();
    assert!(first.starts_with("netbox: error: ") && first.contains(why), "no `{why}` in the first line: {outcome}");
    assert!(outcome.events.is_empty(), "nothing was begun: {outcome}");
    let check = [&["check"], flags, &["other.example.com"]].concat();
    project.words().exec(&check).exits_with(2).complains(why);
}

fn dry_run(project: &Project<'_>, flags: &[&str]) -> Value {
    let words = [&["run", "--dry-run", "--json"], flags, &["--", "true"]].concat();
    let outcome = project.words().exec(&words);
    serde_json::from_str(outcome.exits_with(0).stdout().trim()).expect("a JSON object")
}

fn sources(value: &Value, key: &str) -> Vec<String> {
    let rules = value[key].as_array().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rules.iter().map(|rule| format!("{} {}", text(&rule["text"]), text(&rule["source"]))).collect()
}

/// Which targets `check` allows.
fn verdicts(outcome: &Outcome) -> Vec<bool> {
    let text = outcome.stdout();
    text.lines().filter(|line| !line.starts_with(' ')).map(|line| line.starts_with("allow  ")).collect()
}

fn the_layers_add_up_and_each_rule_knows_its_place(world: &World) {
    let hosts = ["layer-user", "layer-project", "layer-typed"].map(|label| world.zone().host(label));
    let project = Project::trusted(world, "# the project's\nallow = [\"layer-project.example.com\"]\n")
        .and_user("allow = [\n  \"layer-user.example.com\",\n]\n");
    let urls = hosts.each_ref().map(|host| format!("http://{}/", host.name));
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let outcome = project.netbox(&["--allow", &hosts[2].name]).exec(&curl(&urls));
    outcome.exits_with(0);
    let user = format!("{}:2:4", text(&project.home.join(".config/netbox/config.toml")));
    for (host, source) in hosts.iter().zip([user.as_str(), "netbox.toml:2:11", "--allow"]) {
        assert_eq!(outcome.allowed(&host.name, 80, "listed")["rule"]["source"], source, "{outcome}");
    }
}

fn the_users_file_lies_where_the_environment_says(world: &World) {
    let project = Project::new(world).and_user("allow = [\"usual.example.com\"]\n");
    let named = project.home.join("elsewhere");
    fs::create_dir_all(named.join("netbox")).expect("own folder");
    fs::write(named.join("netbox/config.toml"), "allow = [\"named.example.com\"]\n").expect("own folder");
    let allowed = |variable: Option<&str>| {
        let run = project.words();
        let run = variable.iter().fold(run, |run, folder| run.env("XDG_CONFIG_HOME", folder));
        let outcome = run.exec(&["check", "usual.example.com", "named.example.com"]);
        verdicts(outcome.exits_with(1))
    };
    assert_eq!(allowed(None), [true, false]);
    assert_eq!(allowed(Some(text(&named))), [false, true]);
    // A relative path counts as none.
    assert_eq!(allowed(Some("elsewhere")), [true, false]);
    assert_eq!(allowed(Some("")), [true, false]);
}

fn the_users_file_may_be_a_link(world: &World) {
    let project = Project::new(world);
    let dotfiles = project.home.join("dotfiles");
    fs::create_dir_all(dotfiles.join("netbox")).expect("own folder");
    fs::write(dotfiles.join("netbox/config.toml"), "allow = [\"dotfile.example.com\"]\n").expect("own folder");
    let allowed = || project.words().exec(&["check", "dotfile.example.com"]).exits_with(0).says("allow  ").code;
    // The file, the folder, and the folder above: as the managers of such files make them.
    fs::create_dir_all(project.home.join(".config/netbox")).expect("own folder");
    symlink("../../dotfiles/netbox/config.toml", project.home.join(".config/netbox/config.toml")).expect("own folder");
    allowed();
    // The command can change neither the link nor what it leads to.
    let script = "echo 'allow = [\"evil.example\"]' > ~/dotfiles/netbox/config.toml
        ln -sf /dev/null ~/.config/netbox/config.toml; mv ~/dotfiles ~/gone; echo tried";
    project.netbox(&[]).exec(&["sh", "-c", script]).says("tried");
    allowed();
    project.words().exec(&["check", "evil.example"]).exits_with(1);
    fs::remove_dir_all(project.home.join(".config/netbox")).expect("own folder");
    symlink("../dotfiles/netbox", project.home.join(".config/netbox")).expect("own folder");
    allowed();
    fs::remove_dir_all(project.home.join(".config")).expect("own folder");
    symlink("dotfiles", project.home.join(".config")).expect("own folder");
    allowed();
    fs::rename(&dotfiles, project.home.join("gone")).expect("own folder");
    refused(&project, &[], "cannot read");
}

fn the_projects_file_is_found_upward_to_the_root_of_the_repository(world: &World) {
    let project = Project::trusted(world, "allow = [\"up.example.com\"]\n");
    // Above the root, whoever trusts it.
    fs::write(project.home.join(FILE), "allow = [\"above.example.com\"]\n").expect("own folder");
    project.words().folder(&project.home).exec(&["trust"]).exits_with(0);
    for folder in ["a/b/c", "module/d", "tree/d"] {
        fs::create_dir_all(project.path(folder)).expect("own folder");
    }
    project.write("module/.git", "gitdir: ../.git/modules/module\n");
    fs::create_dir(project.path("tree/.jj")).expect("own folder");
    for (folder, allowed) in [
        ("", [true, false]),
        ("a", [true, false]),
        ("a/b/c", [true, false]),
        ("module/d", [false; 2]),
        ("tree/d", [false; 2]),
    ] {
        let words = ["check", "up.example.com", "above.example.com"];
        let outcome = project.words().folder(&project.path(folder)).exec(&words);
        assert_eq!(verdicts(outcome.exits_with(1)), allowed, "in `{folder}`: {outcome}");
    }
    // Without a repository, the folder itself is all.
    fs::remove_dir(project.path(".git")).expect("own folder");
    project.words().exec(&["check", "up.example.com"]).exits_with(0);
    let outcome = project.words().folder(&project.path("a")).exec(&["check", "up.example.com"]);
    outcome.exits_with(1);
}

fn a_file_can_be_named(world: &World) {
    let host = world.zone().host("named-file");
    let project =
        Project::with(world, "allow = [\"unknown.example.com\"]\n").and_user("allow = [\"user.example.com\"]\n");
    project.write("policies/ci.toml", "allow = [\"named-file.example.com\"]\n");
    let client = curl(&["http://named-file.example.com/"]);
    // In place of the project's, which nobody then has to trust; not of the user's.
    let outcome = project.netbox(&["--config", "policies/ci.toml"]).exec(&client);
    let decision = outcome.exits_with(0).allowed(&host.name, 80, "listed");
    assert_eq!(decision["rule"]["source"], "policies/ci.toml:1:11", "{outcome}");
    let both = ["--config", "policies/ci.toml"];
    let texts = |flags: &[&str]| sources(&dry_run(&project, flags), "allow").len();
    assert_eq!(texts(&both), 2);
    assert_eq!(texts(&["--no-config", "--config", "policies/ci.toml"]), 1);
    let outcome = project.netbox(&[]).env("NETBOX_CONFIG", project.path("policies/ci.toml")).exec(&client);
    outcome.exits_with(0).says("hello");
    let flag_wins = ["--config", FILE, "--dry-run"];
    let outcome = project.netbox(&flag_wins).env("NETBOX_CONFIG", project.path("policies/ci.toml")).exec(&["true"]);
    outcome.exits_with(0).says("unknown.example.com").does_not_say("named-file");
    let set_aside = ["--no-config", "--dry-run"];
    let outcome = project.netbox(&set_aside).env("NETBOX_CONFIG", project.path("policies/ci.toml")).exec(&["true"]);
    outcome.exits_with(0).does_not_say("named-file");
    // A relative one in the environment would be whatever the next clone brings.
    let outcome = project.netbox(&[]).env("NETBOX_CONFIG", "policies/ci.toml").exec(&RAN);
    outcome.exits_with(2).complains("NETBOX_CONFIG").does_not_say("it ran");
    refused(&project, &["--config", "nowhere.toml"], "there is no file `nowhere.toml`");
    project.netbox(&["--config", ""]).exec(&RAN).exits_with(2);
    refused(&project, &["--config", "policies"], "is a directory, not a regular file");
    refused(&project, &["--config", "/dev/zero"], "is a device, not a regular file");
    symlink("policies/ci.toml", project.path("link.toml")).expect("own folder");
    project.netbox(&["--config", "link.toml"]).exec(&client).exits_with(0).says("hello");
}

fn without_config_no_file_counts(world: &World) {
    let project = Project::trusted(world, "allow = [\"project.example.com\"]\n").and_user("mode = \"audit\"\n");
    let all = dry_run(&project, &[]);
    assert_eq!((all["mode"].as_str(), all["allow"].as_array().map(Vec::len)), (Some("audit"), Some(1)), "{all}");
    let none = dry_run(&project, &["--no-config", "--allow", "typed.example.com"]);
    assert_eq!(sources(&none, "allow"), ["typed.example.com --allow"]);
    assert_eq!(none["mode"], "allowlist", "{none}");
    assert_eq!(none["files"], Value::Array(Vec::new()), "{none}");
    // Whatever they are.
    project.write(FILE, "broken");
    let project = project.and_user("broken");
    project.netbox(&["--no-config"]).exec(&RAN).exits_with(0).says("it ran");
}

fn a_profile_can_be_chosen(world: &World) {
    let text = "allow = [\"base.example.com\"]\n[profile.agent]\nallow = [\"agent.example.com\"]\nmode = \"audit\"\n";
    let project = Project::trusted(world, text);
    let texts = |value: &Value| sources(value, "allow").len();
    assert_eq!(texts(&dry_run(&project, &[])), 1);
    let chosen = dry_run(&project, &["--profile", "agent"]);
    assert_eq!((texts(&chosen), chosen["mode"].as_str()), (2, Some("audit")), "{chosen}");
    let outcome = project.netbox(&["--dry-run"]).env("NETBOX_PROFILE", "agent").exec(&["true"]);
    outcome.exits_with(0).says("agent.example.com");
    let outcome = project.netbox(&["-p", "agnet"]).exec(&RAN);
    outcome.exits_with(2).complains("agnet").complains("`agent`").does_not_say("it ran");
}

fn an_outer_deny_holds(world: &World) {
    let host = world.zone().host("outer-deny");
    let allow = format!("allow = [\"{}\"]\n", host.name);
    let client = curl(&["http://outer-deny.example.com/"]);
    let project = Project::trusted(world, &allow);
    project.netbox(&[]).exec(&client).exits_with(0).says("hello");
    let project = project.and_user("deny = [\"outer-deny.example.com\"]\n");
    for flags in [&[][..], &["--allow", &host.name], &["--mode", "open"], &["--config", FILE]] {
        let outcome = project.netbox(flags).exec(&client);
        let decision = outcome.refused(&host.name, 80, "denied");
        let source = decision["rule"]["source"].as_str().unwrap_or_default();
        assert!(source.ends_with(".config/netbox/config.toml:1:10"), "{outcome}");
    }
    project.netbox(&["--no-config", "--allow", &host.name]).exec(&client).exits_with(0).says("hello");
}

fn unusual_files_that_are_right_count(world: &World) {
    for bytes in [
        &b""[..],
        b"\n\n",
        b"\xef\xbb\xbfallow = []\n",
        b"version = 1\r\nallow = [\r\n]\r\n",
        b"allow = [] # no end of line",
        "# \u{e9}\u{4e2d}\u{1f980}\n".as_bytes(),
    ] {
        let project = Project::new(world);
        project.write(FILE, bytes);
        project.netbox(&["--config", FILE]).exec(&RAN).exits_with(0).says("it ran").complains("nothing is reachable");
        project.words().exec(&["trust"]).exits_with(0);
        project.netbox(&[]).exec(&RAN).exits_with(0).says("it ran");
    }
}

fn a_dry_run_tells_the_files(world: &World) {
    let project = Project::trusted(world, "allow = [\"p.example.com\"]\n").and_user("allow = [\"u.example.com\"]\n");
    let value = dry_run(&project, &[]);
    let files = value["files"].as_array().expect("a list");
    let told: Vec<_> = files.iter().map(|file| [&file["layer"], &file["path"], &file["standing"]]).collect();
    let paths =
        [project.home.join(".config/netbox/config.toml"), project.path(FILE)].map(|path| text(&path).to_owned());
    assert_eq!(told, [["user", &paths[0], "user"], ["project", &paths[1], "trusted"]], "{value}");
    assert!(files.iter().all(|file| file["sha256"].as_str().is_some_and(|digest| digest.len() == 64)), "{value}");
    let outcome = project.netbox(&["--dry-run"]).exec(&["true"]);
    outcome.exits_with(0).says(&format!("file     `{}`  (project, trusted)\n", paths[1]));
    project.netbox(&["-v"]).exec(&["true"]).exits_with(0).complains(&paths[0]);
}

fn the_policy_of_the_start_event_is_that_of_the_files(world: &World) {
    let start = |outcome: &Outcome| outcome.exits_with(0).event("start")["policy"].clone();
    let files = Project::trusted(world, "allow = [\"a.example.com\"]\n").and_user("deny = [\"b.example.com\"]\n");
    let typed = Project::new(world);
    let flags = ["--allow", "a.example.com", "--deny", "b.example.com"];
    let from_files = start(&files.netbox(&[]).exec(&RAN));
    assert_eq!(from_files, start(&typed.netbox(&flags).exec(&RAN)));
    assert_ne!(from_files, start(&files.netbox(&["--deny", "c.example.com"]).exec(&RAN)));
}

fn a_service_takes_no_project_file(world: &World) {
    let project = Project::trusted(world, "allow = [\"p.example.com\"]\n").and_user("broken");
    let serve = ["proxy", "serve", "--listen", "127.0.0.1:0"];
    project.words().exec(&serve).exits_with(125).complains("config.toml:1:");
    // Broken, and nobody's business.
    let project = project.and_user("allow = [\"u.example.com\"]\n");
    project.write(FILE, "broken");
    let running = project.words().start(&serve);
    running.wait_for_stderr("listening on ");
    running.signal(nix::sys::signal::Signal::SIGTERM);
    running.finish().exits_with(0);
    let named = [&serve[..], &["--config", FILE]].concat();
    project.words().exec(&named).exits_with(125).complains("netbox.toml:1:");
    project.words().exec(&[&serve[..], &["--trust-project", "sha256:00"]].concat()).exits_with(2);
}

fn a_named_file_cannot_be_changed_by_the_command(world: &World) {
    let project = Project::new(world);
    project.write("policies/ci.toml", "allow = [\"named.example.com\"]\n");
    let script = "echo 'allow = [\"evil.example\"]' > evil.toml
        cp evil.toml policies/ci.toml; mv -f evil.toml policies/ci.toml; rm -f policies/ci.toml
        mv policies gone && mkdir policies && echo 'allow = [\"evil.example\"]' > policies/ci.toml; echo tried";
    let flags = ["--config", "policies/ci.toml"];
    project.netbox(&flags).exec(&["sh", "-c", script]).exits_with(0).says("tried");
    project.words().exec(&["check", "--config", "policies/ci.toml", "evil.example"]).exits_with(1);
    project.words().exec(&["check", "--config", "policies/ci.toml", "named.example.com"]).exits_with(0);
    // Under another name it could be.
    fs::hard_link(project.path("policies/ci.toml"), project.path("other")).expect("own folder");
    let outcome = project.netbox(&flags).exec(&RAN);
    outcome.exits_with(125).complains("has another name (a hard link)");
}
