//! `docs/threats.md`: that the tests which it names exist, that no case and no attempt to escape is left out, and that no way
//! out is described without a test.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const TEXT: &str = include_str!("../docs/threats.md");
/// The cases that are told of here, by their files.
const CASES: [(&str, &str); 5] = [
    ("kernel", include_str!("../tests/cases/kernel.jsonl")),
    ("http", include_str!("../tests/cases/http.jsonl")),
    ("socks5", include_str!("../tests/cases/socks5.jsonl")),
    ("dns", include_str!("../tests/cases/dns.jsonl")),
    ("tls", include_str!("../tests/cases/tls.jsonl")),
];

/// What is not there yet: a parent proxy.
const LEFT: [&str; 1] = ["S056"];

const THEMES: &str = "tests/e2e/themes";

/// The sources of the repository by their paths.
fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<_> = ["src", "config", "proxy", "launcher", "tests"].map(|name| root.join(name)).into();
    let mut sources = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the repository is here").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                sources.insert(path.strip_prefix(root).expect("below the root").to_owned(), text);
            }
        }
    }
    sources
}

/// The names of tests in a text: what stands between backticks, has a theme or a file before it, and is a sentence.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_test = |word: &&str| {
        let name = word.rsplit_once("::").map(|(_, name)| name);
        !word.contains(' ') && name.is_some_and(|name| name.matches('_').count() > 1)
    };
    text.split('`').skip(1).step_by(2).filter(is_test)
}

/// Whether there is a test of this name: of a theme of the end-to-end tests, in a named file, or in a module of a crate.
fn exists(name: &str, sources: &BTreeMap<PathBuf, String>) -> bool {
    let (place, name) = name.rsplit_once("::").expect("it has a place");
    let test = format!("fn {name}(");
    let theme = Path::new(THEMES).join(place.replace("::", "/")).with_extension("rs");
    match sources.get(&theme).or_else(|| sources.get(Path::new(place))) {
        Some(text) => text.contains(&test),
        None => place.split("::").any(|part| part == "tests") && sources.values().any(|text| text.contains(&test)),
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let sources = sources();
    let missing: Vec<_> = named(TEXT).filter(|name| !exists(name, &sources)).collect();
    assert!(missing.is_empty(), "there is no test of these names: {missing:#?}");
    assert!(named(TEXT).count() > 250, "they are found at all");
    for none in ["escape::sockets::there_is_no_such_test", "no_such_file.rs::there_is_no_such_test"] {
        assert!(!exists(none, &sources), "{none}");
    }
}

#[test]
fn every_case_has_its_place() {
    let placed: BTreeSet<_> = TEXT.split(|character: char| !character.is_ascii_alphanumeric()).collect();
    for (file, text) in CASES {
        let ids = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a case is a JSON object"));
        let ids: BTreeSet<_> = ids.map(|case| case["id"].as_str().expect("a case has an id").to_owned()).collect();
        let is_left = |id: &&String| !placed.contains(id.as_str()) && !LEFT.contains(&id.as_str());
        let left: Vec<_> = ids.iter().filter(is_left).collect();
        assert!(left.is_empty() && ids.len() > 10, "docs/threats.md says nothing of {left:?} of {file}");
    }
}

#[test]
fn every_way_names_a_test() {
    let (launcher, proxy) = TEXT.split_once("\n# Ways through the proxy\n").expect("two halves");
    for (half, least) in [(launcher, 25), (proxy, 30)] {
        let ways = half.split("\n### ").skip(1);
        let own = |way: &str| way.split("\n## ").next().unwrap_or_default().to_owned();
        let (told, bare): (Vec<_>, Vec<_>) = ways.map(own).partition(|way| named(way).next().is_some());
        assert!(bare.is_empty() && told.len() > least, "no test is named for {bare:#?} ({} are)", told.len());
    }
}

#[test]
fn every_attempt_to_escape_is_told_of() {
    let told: BTreeSet<_> = named(TEXT).collect();
    let folder = Path::new(THEMES).join("escape");
    let mut count = 0;
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with(&folder)) {
        let theme = path.file_stem().expect("a file has a name").to_string_lossy();
        for name in text.lines().filter_map(|line| line.trim_start().split_once(" needs [")).map(|(name, _)| name) {
            let name = format!("escape::{theme}::{name}");
            assert!(told.contains(name.as_str()), "docs/threats.md does not name {name}");
            count += 1;
        }
    }
    assert!(count > 40, "they are found at all");
}
