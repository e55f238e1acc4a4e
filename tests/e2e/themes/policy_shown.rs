//! `netbox policy show`: what a run here would have, and what it would not.

use std::fs;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::programs::UNSHARE;
use crate::tests;
use crate::world::World;

use super::policy::{FILES, on_host};

tests![
    every_rule_is_shown_with_its_layer_and_place needs [UNSHARE],
    json_shows_the_same needs [UNSHARE],
    a_file_that_is_not_trusted_is_shown_as_not_in_force needs [UNSHARE],
    rules_without_effect_are_shown needs [UNSHARE],
    a_file_further_up_that_does_not_count_is_told needs [UNSHARE],
];

/// The output without the line of the digest, which is another with every preset that changes.
fn without_digest(outcome: &Outcome) -> String {
    let (digest, rest): (Vec<_>, Vec<_>) = outcome
        .stdout()
        .lines()
        .map(str::to_owned)
        .partition(|line| line.strip_prefix("digest   ").is_some_and(|digest| digest.len() == 64));
    assert_eq!(digest.len(), 1, "{outcome}");
    rest.join("\n")
}

fn every_rule_is_shown_with_its_layer_and_place(world: &World) {
    let outcome = on_host(
        world,
        FILES,
        "netbox trust >/dev/null && netbox policy show --profile ci --allow tcp://db.example.com:5432 --deny a.example",
    );
    outcome.exits_with(0);
    let expected = "\
mode     allowlist  project  netbox.toml:9:8
profile  ci
file     `/etc/netbox/config.toml`  system
file     `/home/u/.config/netbox/config.toml`  user
file     `/home/u/repo/netbox.toml`  project, trusted

allow
  intranet.corp.example      user          /home/u/.config/netbox/config.toml:1:11
  codeberg.org               project       netbox.toml:3:4 via @work via @codeberg
  codeberg.org:22            project       netbox.toml:3:4 via @work via @codeberg
  wiki.corp.example          project       netbox.toml:3:4 via @work (/home/u/.config/netbox/config.toml:4:24)
  api.example.com:8443       project       netbox.toml:4:4
  git.example.com:443        project       netbox.toml:5:4 via @git (.git/config:2)
  tcp://db.example.com:5432  command-line  --allow

deny
  *.evil.example        system        /etc/netbox/config.toml:1:10
  wiki.corp.example:80  project       netbox.toml:10:10
  a.example             command-line  --deny

ceiling  /etc/netbox/config.toml:2:1
  *:*              system        /etc/netbox/config.toml:2:13
  10.0.0.0/8:5432  system        /etc/netbox/config.toml:2:20";
    assert_eq!(without_digest(&outcome), expected, "{outcome}");

    let outcome = on_host(world, &[], "netbox policy show");
    outcome.exits_with(0);
    assert_eq!(
        without_digest(&outcome),
        "mode     allowlist  default\n\nallow\n  nothing\n\ndeny\n  nothing",
        "{outcome}"
    );
}

fn json_shows_the_same(world: &World) {
    let outcome = on_host(world, FILES, "netbox trust >/dev/null && netbox policy show --json");
    outcome.exits_with(0);
    let shown: Value = serde_json::from_str(&outcome.stdout()).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    let mode = serde_json::json!({ "mode": "audit", "layer": "project", "source": "netbox.toml:1:8" });
    assert_eq!(shown["mode"], mode, "{outcome}");
    let rule = serde_json::json!({
        "text": "codeberg.org", "layer": "project", "source": "netbox.toml:3:4 via @work via @codeberg",
        "file": "netbox.toml", "line": 3, "column": 4, "presets": ["work", "codeberg"],
    });
    assert_eq!(shown["allow"][1], rule, "{outcome}");
    assert_eq!(shown["allow"][5]["source"], "netbox.toml:5:4 via @git (.git/config:2)", "{outcome}");
    assert_eq!(shown["ceilings"][0]["source"], "/etc/netbox/config.toml:2:1", "{outcome}");
    assert_eq!(shown["ceilings"][0]["rules"][1]["text"], "10.0.0.0/8:5432", "{outcome}");
    assert_eq!(shown["files"][2]["standing"], "trusted", "{outcome}");
    assert!(
        shown["profile"].is_null() && shown["policy"].as_str().is_some_and(|digest| digest.len() == 64),
        "{outcome}"
    );
}

fn a_file_that_is_not_trusted_is_shown_as_not_in_force(world: &World) {
    let outcome = on_host(world, FILES, "netbox policy show");
    outcome.exits_with(2).complains("is not trusted").complains("netbox trust /home/u/repo/netbox.toml");
    let expected = "\
mode     allowlist  default
file     `/etc/netbox/config.toml`  system
file     `/home/u/.config/netbox/config.toml`  user
file     `/home/u/repo/netbox.toml`  project, untrusted: not in force

allow
  intranet.corp.example  user          /home/u/.config/netbox/config.toml:1:11

deny
  *.evil.example  system        /etc/netbox/config.toml:1:10

ceiling  /etc/netbox/config.toml:2:1
  *:*              system        /etc/netbox/config.toml:2:13
  10.0.0.0/8:5432  system        /etc/netbox/config.toml:2:20";
    assert_eq!(without_digest(&outcome), expected, "{outcome}");
    let outcome = on_host(world, FILES, "netbox policy show --json");
    outcome.exits_with(2).complains("is not trusted");
    let shown: Value = serde_json::from_str(&outcome.stdout()).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    assert_eq!(shown["files"][2]["standing"], "untrusted", "{outcome}");
    assert_eq!(shown["allow"].as_array().map(Vec::len), Some(1), "{outcome}");
    // What was trusted and has changed counts as little; and whoever only asks, or runs, gets no policy for it.
    let changed = "netbox trust >/dev/null && echo '# more' >> netbox.toml &&";
    let outcome = on_host(world, FILES, &format!("{changed} netbox policy show"));
    outcome.exits_with(2).complains("has changed since it was trusted").says("untrusted: not in force");
    outcome.does_not_say("codeberg");
    let outcome = on_host(world, FILES, &format!("{changed} netbox check intranet.corp.example"));
    outcome.exits_with(2).complains("has changed since it was trusted");
    assert_eq!(outcome.stdout(), "", "{outcome}");
}

/// A run warns of them, so whoever looks sees them too.
fn rules_without_effect_are_shown(world: &World) {
    let files = [("home/u/.config/netbox/config.toml", "ceiling = [\"*.example.com\"]\n")];
    let shown = "warning: --allow: `a.example.org` has no effect: all of it is outside the ceiling at ";
    on_host(world, &files, "netbox policy show --allow a.example.com,a.example.org").exits_with(0).says(shown);
}

/// Outside of a repository only the working directory is looked into, which somebody may not expect.
fn a_file_further_up_that_does_not_count_is_told(world: &World) {
    let files = [("home/u/netbox.toml", "allow = [\"a.example.com\"]\n")];
    let told = "netbox: `/home/u/netbox.toml` does not count here, since no repository is around both";
    for command in ["policy show", "check b.example.com", "trust"] {
        on_host(world, &files, &format!("netbox {command}")).complains(&told.replace("netbox: ", ""));
    }
    on_host(world, &files, "netbox policy show").exits_with(0).complains(told).does_not_say("a.example.com");
    // Not where it counts, nor where none was looked for.
    for script in ["cd .. && netbox policy show", "netbox policy show --no-config", "mkdir .git && netbox policy show"]
    {
        let outcome = on_host(world, &files, script);
        assert!(!outcome.stderr().contains("does not count"), "{script}: {outcome}");
    }
    let (home, work) = (world.fresh_path("home"), "work");
    fs::create_dir_all(home.join(work)).expect("own folder");
    fs::write(home.join("netbox.toml"), "allow = [\"a.example.com\"]\n").expect("own folder");
    let run = world.netbox(&["--mode", "none"]).env("HOME", &home).folder(&home.join(work));
    run.exec(&["true"]).exits_with(0).complains("netbox.toml` does not count here, since no repository is around both");
}
