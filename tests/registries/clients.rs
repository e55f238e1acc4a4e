//! The clients: what each is told, and how one sees that it got what it asked for.

use std::ffi::OsString;
use std::fs;

use crate::course::Outcome;
use crate::machine::{As, Machine, Room};

/// A small package that needs no other, in the registry of each client.
const PYTHON_PACKAGE: &str = "six";
const NODE_PACKAGE: &str = "is-number";
const RUST_PACKAGE: &str = "cfg-if";
const DEBIAN_PACKAGE: &str = "hello";

/// A client of a registry.
#[derive(Debug)]
pub struct Client {
    /// What its test shows.
    pub fact: &'static str,
    /// Programs that it takes.
    pub needs: &'static [&'static str],
    /// See there.
    pub who: As,
    /// The words that run it, in a room that is made ready for it.
    pub words: fn(&Machine, &Room) -> Vec<String>,
    /// Variables that it is given beside the machine's configuration: it neither tries again nor looks for news, so
    /// that a refusal shows at once, and each connection is one that its task takes.
    pub environment: &'static [(&'static str, &'static str)],
    /// The derived preset that stands for its hosts.
    pub preset: Option<&'static str>,
    /// The ending of a file that it makes, and makes only when it succeeds.
    pub makes: &'static str,
    /// What else is to be seen when it succeeded under netbox.
    pub shows: fn(&Outcome),
}

/// All of them.
pub const CLIENTS: &[Client] = &[
    Client {
        fact: "pip_downloads_with_just_its_hosts_allowed",
        needs: &["pip3"],
        who: As::User,
        words: |_, _| words(&["pip3", "download", "--no-deps", "--dest", "got", PYTHON_PACKAGE]),
        environment: &[("PIP_RETRIES", "0"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1")],
        preset: Some("@pip"),
        makes: "whl",
        shows: |_| (),
    },
    Client {
        fact: "npm_packs_with_just_its_hosts_allowed",
        needs: &["npm", "node"],
        who: As::User,
        words: |_, _| words(&["npm", "pack", NODE_PACKAGE]),
        environment: &[("npm_config_fetch_retries", "0"), ("npm_config_update_notifier", "false")],
        preset: Some("@npm"),
        makes: "tgz",
        shows: |_| (),
    },
    Client {
        fact: "cargo_fetches_with_just_its_hosts_allowed",
        needs: &["cargo", "rustc"],
        who: As::User,
        words: |_, room| {
            let manifest = format!(
                "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{RUST_PACKAGE} = \"1\"\n"
            );
            fs::create_dir_all(room.work.join("src")).expect("own folder");
            fs::write(room.work.join("src/lib.rs"), "").expect("own folder");
            fs::write(room.work.join("Cargo.toml"), manifest).expect("own folder");
            words(&["cargo", "fetch"])
        },
        environment: &[("CARGO_NET_RETRY", "0")],
        preset: Some("@cargo"),
        makes: "crate",
        shows: |_| (),
    },
    Client {
        fact: "curl_gets_an_index_page_with_just_its_host_allowed",
        needs: &["curl", "npm", "node"],
        who: As::User,
        words: |machine, room| {
            let page = npm_registry(machine, room) + NODE_PACKAGE;
            words(&["curl", "--silent", "--show-error", "--fail", "--output", "index.page", &page])
        },
        environment: &[],
        preset: None,
        makes: "page",
        shows: |_| (),
    },
    Client {
        fact: "curl_keeps_one_connection_for_head_and_get_in_http_1",
        needs: &["curl", "npm", "node"],
        who: As::User,
        words: |machine, room| {
            let page = npm_registry(machine, room) + NODE_PACKAGE;
            let common = ["--silent", "--show-error", "--fail", "--http1.1"];
            let head = ["--head", "--output", "index.head", &page, "--next"];
            let get = ["--output", "index.page", &page];
            words(&[&["curl", "--fail-early"], &common[..], &head, &common, &get].concat())
        },
        environment: &[],
        preset: None,
        makes: "page",
        shows: |outcome| assert_eq!(outcome.decisions().count(), 1, "the connections of {outcome}"),
    },
    Client {
        fact: "apt_downloads_as_its_own_user_with_just_its_hosts_allowed",
        needs: &["apt-get"],
        who: As::Root,
        words: |_, _| words(&["apt-get", "-o", "Acquire::Retries=0", "download", DEBIAN_PACKAGE]),
        environment: &[],
        preset: Some("@apt"),
        makes: "deb",
        shows: |outcome| {
            // It says so when it fetches as root, as where it cannot become its own user.
            assert!(!outcome.stderr.contains("unsandboxed"), "apt kept root: {outcome}");
        },
    },
    Client {
        fact: "apt_installs_as_root_with_just_its_hosts_allowed",
        needs: &["apt-get", "dpkg"],
        who: As::Root,
        words: |_, room| {
            // Downloaded anew each time, and installed on this machine. Root's files are beyond netbox.
            let archives = room.work.join("archives");
            fs::create_dir_all(archives.join("partial")).expect("own folder");
            let archives = format!("Dir::Cache::archives={}", archives.display());
            let keep = "APT::Keep-Downloaded-Packages=true";
            let options = ["-o", &archives, "-o", keep, "-o", "Acquire::Retries=0", "-o", "DPkg::Lock::Timeout=60"];
            words(&[&["apt-get", "install", "--yes", "--reinstall"], &options[..], &[DEBIAN_PACKAGE]].concat())
        },
        environment: &[("DEBIAN_FRONTEND", "noninteractive")],
        preset: Some("@apt"),
        makes: "deb",
        shows: |outcome| {
            assert!(!outcome.stderr.contains("unsandboxed"), "apt kept root: {outcome}");
            let set_up = format!("Setting up {DEBIAN_PACKAGE} ");
            assert!(outcome.stdout.contains(&set_up), "dpkg did its part: {outcome}");
        },
    },
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The registry that npm is configured with, as a URL that ends in a slash.
fn npm_registry(machine: &Machine, room: &Room) -> String {
    let mut npm = machine.command(As::User, room, &OsString::from("npm"));
    let asked = npm.args(["config", "get", "registry"]).output().expect("`timeout` (package coreutils)");
    let url = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    assert!(asked.status.success() && url.starts_with("http"), "npm does not say what its registry is");
    if url.ends_with('/') { url } else { url + "/" }
}
