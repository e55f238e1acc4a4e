//! Every dependency is a thing to trust, and `docs/dependencies.md` says what each is for.

#![cfg(test)]

const MANIFEST: &str = include_str!("../Cargo.toml");
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
