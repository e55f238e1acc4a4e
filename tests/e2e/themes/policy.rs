//! `netbox policy lint` and `netbox check` with files of all layers.
//!
//! A system's file has to belong to root, as do the directories that lead to it. So these tests change their root to a
//! tree of their own, in a namespace in which they are root.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::outcome::Outcome;
use crate::programs::UNSHARE;
use crate::tests;
use crate::world::World;

tests![
    check_names_the_file_and_the_line needs [UNSHARE],
    all_files_that_count_are_linted needs [UNSHARE],
    errors_are_told_with_place_and_remedy needs [],
    what_is_right_and_odd_is_told_and_no_error needs [],
    a_run_warns_of_rules_without_effect needs [],
    the_presets_are_listed needs [],
    a_file_that_names_others_is_judged_with_them needs [UNSHARE],
    what_is_no_file_is_an_error_at_once needs [],
    hostile_text_is_escaped needs [],
];

const SYSTEM: &str = r#"deny = ["*.evil.example"]
ceiling = ["*:*", "10.0.0.0/8:5432"]
"#;
const USER: &str = r#"allow = ["intranet.corp.example"]

[preset.work]
allow = ["@codeberg", "wiki.corp.example"]
"#;
const PROJECT: &str = r#"mode = "audit"
allow = [
  "@work",
  "api.example.com:8443",
  "@git",
]

[profile.ci]
mode = "allowlist"
deny = ["wiki.corp.example:80"]
"#;
/// In the tree that [`on_host`] makes, a file of each layer.
pub(super) const FILES: &[(&str, &str)] = &[
    ("etc/netbox/config.toml", SYSTEM),
    ("home/u/.config/netbox/config.toml", USER),
    ("home/u/repo/netbox.toml", PROJECT),
    ("home/u/repo/.git/HEAD", "ref: refs/heads/main\n"),
    ("home/u/repo/.git/config", "[remote \"origin\"]\n\turl = https://git.example.com/owner/repo\n"),
];

/// Runs a script of the shell in `/home/u/repo` of a tree that holds these files, netbox and the machine's programs.
pub(super) fn on_host(world: &World, files: &[(&str, &str)], script: &str) -> Outcome {
    let tree = world.fresh_path("files");
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().expect("below the tree")).expect("own folder");
        fs::write(path, text).expect("own folder");
    };
    files.iter().for_each(|(path, text)| write(&tree.join(path), text));
    for folder in ["home/u/repo", "usr", "proc", "dev"] {
        fs::create_dir_all(tree.join(folder)).expect("own folder");
    }
    fs::copy(world.netbox_path(), tree.join("netbox")).expect("own folder");
    let enter = r#"
        cd "$1" || exit 99
        for name in usr proc dev; do mount --rbind "/$name" "$name" || exit 99; done
        for name in bin lib lib64; do
            if [ -L "/$name" ]; then ln -s "usr/$name" "$name"; else mkdir "$name" && mount --rbind "/$name" "$name"; fi
        done
        exec chroot . /usr/bin/env -i HOME=/home/u PATH=/:/usr/bin /bin/sh -c "cd /home/u/repo && $2"
    "#;
    let tree = tree.into_os_string().into_string().expect("a path of the tests' own");
    world.bare().exec(&["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", enter, "sh", &tree, script])
}

fn check_names_the_file_and_the_line(world: &World) {
    let outcome = on_host(
        world,
        FILES,
        "netbox trust >/dev/null && netbox check --profile ci api.example.com:8443 wiki.corp.example http://wiki.corp.example/ \
         a.evil.example 10.0.0.7:443 api.example.com intranet.corp.example tcp://db.example.com:5432",
    );
    outcome.exits_with(2);
    let expected = "\
allow  api.example.com:8443  listed  by `api.example.com:8443` (netbox.toml:4:4)
allow  wiki.corp.example:443  listed  by `wiki.corp.example` (netbox.toml:3:4 via @work (/home/u/.config/netbox/config.toml:4:24))
deny   wiki.corp.example:80  denied  by `wiki.corp.example:80` (netbox.toml:10:10)
deny   a.evil.example:443  denied  by `*.evil.example` (/etc/netbox/config.toml:1:10)
deny   10.0.0.7:443  denied  outside the ceiling of /etc/netbox/config.toml:2:1
deny   api.example.com:443  port-not-listed  to allow it: --allow 'api.example.com:443'
       near: `api.example.com:8443` (netbox.toml:4:4) is for port 8443, not for 443
allow  intranet.corp.example:443  listed  by `intranet.corp.example` (/home/u/.config/netbox/config.toml:1:11)
error  `tcp://db.example.com:5432`  malformed  `tcp://db.example.com:5432` has a scheme other than `http` and `https`, write `host:port`
";
    assert_eq!(outcome.stdout(), expected, "{outcome}");
}

fn all_files_that_count_are_linted(world: &World) {
    let outcome = on_host(
        world,
        &[
            FILES[0],
            FILES[3],
            ("home/u/.config/netbox/config.toml", "allow = [\"*\"]\n"),
            ("home/u/repo/netbox.toml", "allow = [\n  \"a.evil.example\",\n  \"10.1.2.3\",\n]\n"),
        ],
        "netbox policy lint",
    );
    outcome.exits_with(0);
    let expected = "\
/home/u/.config/netbox/config.toml:1:11: warning[every-host]: `*` allows every public host by name
  1 | allow = [\"*\"]
    |           ^
  hint: name the hosts that are needed; `netbox learn` finds them
netbox.toml:2:4: warning[dead-rule]: `a.evil.example` has no effect: `*.evil.example` (/etc/netbox/config.toml:1:10) denies all of it
  2 |   \"a.evil.example\",
    |    ^
netbox.toml:3:4: warning[outside-ceiling]: `10.1.2.3` has no effect: all of it is outside the ceiling at /etc/netbox/config.toml:2:1
  3 |   \"10.1.2.3\",
    |    ^
netbox.toml:3:4: note[non-public-range]: `10.1.2.3` opens addresses that are not public (private), also to listed names
  3 |   \"10.1.2.3\",
    |    ^
";
    assert_eq!(outcome.stdout(), expected, "{outcome}");
    outcome.complains(
        "netbox: 3 warnings, 1 note in `/etc/netbox/config.toml`, `/home/u/.config/netbox/config.toml`, `netbox.toml`\n",
    );
    on_host(world, &[FILES[3]], "netbox policy lint").exits_with(2).complains("there is no policy file here");
}

/// A new file in the tests' folder, by its path.
fn file(world: &World, bytes: &[u8]) -> String {
    let path = world.fresh_path("files");
    fs::write(&path, bytes).expect("own folder");
    path.into_os_string().into_string().expect("a path of the tests' own")
}

fn lint(world: &World, flags: &[&str], path: &str) -> Outcome {
    world.netbox_words().exec(&[&["policy", "lint"], flags, &[path]].concat())
}

/// Report 126: a misspelt key is an error with its line and a suggestion. Report 58: so is a pasted URL.
fn errors_are_told_with_place_and_remedy(world: &World) {
    let path =
        file(world, b"alow = [\"github.com\"]\nallow = [\"https://github.com/x\", \"*.com\"]\nhooks = [\"touch x\"]\n");
    let outcome = lint(world, &[], &path);
    outcome.exits_with(2);
    let expected = format!(
        "\
{path}:1:1: error[unknown-key]: `alow` is no key of a policy file
  1 | alow = [\"github.com\"]
    | ^
  hint: did you mean `allow`?
{path}:2:11: error[invalid-rule]: rule `https://github.com/x`: a URL where a host is meant
  2 | allow = [\"https://github.com/x\", \"*.com\"]
    |           ^
  hint: write `github.com`
{path}:2:35: error[invalid-rule]: rule `*.com`: a wildcard over `com`, where everyone registers names
  2 | allow = [\"https://github.com/x\", \"*.com\"]
    |                                   ^
  hint: write the names of one owner: `*.example.com`
{path}:3:1: error[not-supported-yet]: `hooks` is not supported yet
  3 | hooks = [\"touch x\"]
    | ^
  hint: leave it out
"
    );
    assert_eq!(outcome.stdout(), expected, "{outcome}");
    outcome.complains(&format!("netbox: 4 errors in `{path}`\n"));

    let outcome = lint(world, &["--json"], &path);
    outcome.exits_with(2);
    let first: Value = serde_json::from_str(outcome.stdout().lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {outcome}"));
    let expected = serde_json::json!({
        "file": path, "line": 1, "column": 1, "severity": "error", "id": "unknown-key",
        "text": "`alow` is no key of a policy file", "hint": "did you mean `allow`?",
    });
    assert_eq!(first, expected, "{outcome}");
}

/// Report 60: a deny rule that kills every allow rule is told.
fn what_is_right_and_odd_is_told_and_no_error(world: &World) {
    let path = file(world, b"allow = [\"allowed.example.com\"]\ndeny = [\"*\"]\n");
    let said = format!(
        "{path}:1:11: warning[dead-rule]: `allowed.example.com` has no effect: `*` ({path}:2:10) denies all of it\n"
    );
    lint(world, &[], &path).exits_with(0).says(&said).complains("netbox: 1 warning in ");
    lint(world, &["--strict"], &path).exits_with(1).says(&said);
    let path = file(world, b"allow = [\"allowed.example.com\"]\n");
    let outcome = lint(world, &["--strict"], &path);
    outcome.exits_with(0).complains(&format!("netbox: nothing to say in `{path}`\n"));
    assert_eq!(outcome.stdout(), "", "{outcome}");
}

/// Report 60: whoever wrote the rule counts on it, so the run says it too.
fn a_run_warns_of_rules_without_effect(world: &World) {
    let path = file(world, b"allow = [\"allowed.example.com\"]\ndeny = [\"*\"]\n");
    let said = format!(
        "netbox: warning: {path}:1:11: `allowed.example.com` has no effect: `*` ({path}:2:10) denies all of it\n"
    );
    world.netbox(&["--config", &path]).exec(&["true"]).exits_with(0).complains(&said);
    let many = (0..8).map(|n| format!("{n}.example.com")).collect::<Vec<_>>().join(",");
    let outcome = world.netbox(&["--allow", &many, "--deny", "*.com"]).exec(&["true"]);
    outcome.exits_with(0).complains("3 further allow rules have no effect; `netbox policy lint` lists them\n");
    assert_eq!(outcome.stderr().matches("denies all of it").count(), 5, "{outcome}");
}

/// Report 132: what netbox brings can be listed, and is as old as the binary.
fn the_presets_are_listed(world: &World) {
    let presets = |words: &[&str]| world.netbox_words().exec(&[&["policy", "presets"], words].concat());
    let list = presets(&[]);
    list.exits_with(0).says("@github     GitHub: git over HTTPS and ssh, ").says("@npm        the registries that npm");
    for name in ["gitlab", "@gitlab"] {
        let expected = "\
@gitlab: GitLab.com: git over HTTPS and ssh, the API, downloads
  gitlab.com
  gitlab.com:22
  tcp://altssh.gitlab.com:443
looked up on 2026-12-01 in
  https://docs.gitlab.com/user/gitlab_com/
";
        assert_eq!(presets(&[name]).stdout(), expected);
    }
    presets(&["npm"]).exits_with(0).says("`netbox policy show --allow @npm` tells the hosts");
    let json = presets(&["--json"]);
    json.exits_with(0);
    for line in json.stdout().lines() {
        let preset: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert_eq!(preset["kind"] == "builtin", preset["rules"].is_array(), "{json}");
    }
    presets(&["no\u{1b}such"]).exits_with(2).complains("netbox has no preset `no\\x1bsuch`");
}

fn a_file_that_names_others_is_judged_with_them(world: &World) {
    on_host(world, FILES, "netbox policy lint netbox.toml")
        .exits_with(0)
        .complains("netbox: nothing to say in `netbox.toml`");
    let without_user: Vec<_> = FILES.iter().copied().filter(|(path, _)| !path.contains(".config")).collect();
    let outcome = on_host(world, &without_user, "netbox policy lint netbox.toml");
    outcome.exits_with(2).says("netbox.toml:3:4: error[unknown-preset]: there is no preset `@work`\n");
    // The user's file may hold what a project's may not, and is known by its place.
    let user = ("home/u/.config/netbox/config.toml", "ceiling = [\"*\"]\n");
    on_host(world, &[user], "netbox policy lint /home/u/.config/netbox/config.toml").exits_with(0);
    on_host(world, &[("home/u/repo/netbox.toml", user.1)], "netbox policy lint netbox.toml")
        .exits_with(2)
        .says("misplaced-key");
}

fn what_is_no_file_is_an_error_at_once(world: &World) {
    let fifo = world.fresh_path("files");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("own folder");
    let large = world.fresh_path("files");
    fs::File::create(&large).and_then(|file| file.set_len(10 << 30)).expect("a sparse file");
    for (path, why) in [
        (fifo, "is a FIFO, not a regular file"),
        (large, "is larger than 1 MiB"),
        (PathBuf::from("/dev/zero"), "is a device, not a regular file"),
        (PathBuf::from("/"), "is a directory, not a regular file"),
        (world.path("home"), "is a directory, not a regular file"),
        (world.path("home/absent.toml"), "No such file"),
    ] {
        let outcome = lint(world, &[], path.to_str().expect("a path of the tests' own"));
        outcome.exits_with(2).complains(why);
        assert_eq!(outcome.stdout(), "", "{outcome}");
    }
}

fn hostile_text_is_escaped(world: &World) {
    let text = "\"al\\u001Bow\" = 1\n# \u{1b}]0;title\u{7}\u{202e}\nallow = [\"a\u{202e}b\", \"\\u001B[2J\"]\n";
    let outcome = lint(world, &[], &file(world, text.as_bytes()));
    outcome.exits_with(2);
    let harmless = |c: char| c == '\n' || !(c.is_control() || matches!(c, '\u{202a}'..='\u{202e}'));
    assert!(outcome.stdout().chars().all(harmless) && outcome.stderr().chars().all(harmless), "{outcome}");
    outcome.says("\\u{202e}");
}
