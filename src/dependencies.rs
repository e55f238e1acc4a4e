//! Every dependency is a thing to trust, and `docs/dependencies.md` says what each is for. The fuzzers, a workspace of their own,
//! are built from the same versions.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use toml_edit::{DocumentMut, Item, Table};

const MANIFEST: &str = include_str!("../Cargo.toml");
const LOCK: &str = include_str!("../Cargo.lock");
const FUZZERS_LOCK: &str = include_str!("../fuzz/Cargo.lock");
const DOCUMENT: &str = include_str!("../docs/dependencies.md");

/// The names of the workspace's dependencies, other than its own members.
fn dependencies() -> Vec<&'static str> {
    let (_, section) = MANIFEST.split_once("[workspace.dependencies]\n").expect("the section is there");
    let section = section.split("\n[").next().expect("split gives at least one part");
    let names = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    names.filter(|name| !name.starts_with("netbox-")).collect()
}

/// The names in the first column of the document's tables.
fn explained() -> Vec<&'static str> {
    let cells = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(", ")).filter(|name| *name != "crate" && *name != "---").collect()
}

#[test]
fn each_dependency_is_explained_and_nothing_else_is() {
    let (mut dependencies, mut explained) = (dependencies(), explained());
    assert!(dependencies.len() > 10, "the manifest was read");
    dependencies.sort_unstable();
    explained.sort_unstable();
    assert_eq!(dependencies, explained);
}

fn parse(text: &str) -> DocumentMut {
    text.parse().expect("it is TOML")
}

fn text<'t>(table: &'t Table, key: &str) -> &'t str {
    table.get(key).and_then(Item::as_str).unwrap_or_default()
}

/// The names and versions of packages.
type Versions = BTreeSet<(String, String)>;

/// The versions of each package in a lock file, and the names of what the packages of this repository depend on.
fn locked(text_of_lock: &str) -> (Versions, BTreeMap<String, BTreeSet<String>>) {
    let lock = parse(text_of_lock);
    let packages = lock["package"].as_array_of_tables().expect("packages");
    let versions =
        packages.iter().map(|package| (text(package, "name").to_owned(), text(package, "version").to_owned()));
    let own = packages.iter().filter(|package| !package.contains_key("source")).map(|package| {
        let names = package.get("dependencies").and_then(Item::as_array).into_iter().flatten();
        let names = names.filter_map(|name| name.as_str()?.split(' ').next()).map(str::to_owned);
        (text(package, "name").to_owned(), names.collect())
    });
    (versions.collect(), own.collect())
}

/// What is fuzzed is what is shipped. A lock file that lacks something stops `fuzz/run`.
#[test]
fn the_fuzzers_lock_file_is_up_to_date() {
    let remedy = "bring fuzz/Cargo.lock up to date: `cargo update --workspace --manifest-path fuzz/Cargo.toml`, and \
                  `cargo update -p NAME --precise VERSION --manifest-path fuzz/Cargo.toml` for what differs";
    let (ours, _) = locked(LOCK);
    let (theirs, own) = locked(FUZZERS_LOCK);
    let names: BTreeSet<_> = ours.iter().map(|(name, _)| name).collect();
    let differing: Vec<_> = theirs.iter().filter(|one| names.contains(&one.0) && !ours.contains(one)).collect();
    assert!(differing.is_empty(), "{differing:?} of other versions than in Cargo.lock; {remedy}");
    for (member, manifest) in
        [("netbox-config", include_str!("../config/Cargo.toml")), ("netbox-proxy", include_str!("../proxy/Cargo.toml"))]
    {
        let manifest = parse(manifest);
        let wanted: BTreeSet<_> =
            manifest["dependencies"].as_table().expect("a table").iter().map(|(name, _)| name).collect();
        let has: BTreeSet<_> = own[member].iter().map(String::as_str).collect();
        assert_eq!(wanted, has, "of {member}; {remedy}");
    }
}
