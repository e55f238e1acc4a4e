//! `docs/threats.md`: that the tests which it names exist, that no case of the kernel is left out, and that no way out is
//! described without a test.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tests;
use crate::world::World;

tests![
    every_test_that_is_named_exists needs [],
    every_case_of_the_kernel_has_its_place needs [],
    every_way_out_names_a_test needs [],
    every_attempt_to_escape_is_told_of needs [],
];

const TEXT: &str = include_str!("../../../docs/threats.md");
const CASES: &str = include_str!("../../cases/kernel.jsonl");

/// Files whose unit tests are named.
const SOURCES: [(&str, &str); 2] = [
    ("launcher/src/system_call_filter.rs", include_str!("../../../launcher/src/system_call_filter.rs")),
    ("launcher/src/control_groups.rs", include_str!("../../../launcher/src/control_groups.rs")),
];

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of tests in a text: they have a theme, or the file that they stand in.
fn named(text: &str) -> impl Iterator<Item = &str> {
    quoted(text)
        .filter(|word| word.contains("::") && !word.contains(' ') && word.rsplit("::").next().is_some_and(is_fact))
}

/// A test is named by a sentence.
fn is_fact(name: &str) -> bool {
    name.matches('_').count() > 1
}

fn every_test_that_is_named_exists(_: &World) {
    let known: BTreeSet<_> = super::all().map(|test| test.full_name()).collect();
    let exists = |name: &str| match name.split_once(".rs::") {
        Some((file, test)) => {
            let source = SOURCES.iter().find(|(path, _)| path.strip_suffix(".rs") == Some(file));
            source.is_some_and(|(_, text)| text.contains(&format!("fn {test}(")))
        }
        None => known.contains(name),
    };
    let missing: Vec<_> = named(TEXT).filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "there is no test of these names: {missing:#?}");
    assert!(named(TEXT).count() > 80, "they are found at all");
}

fn every_case_of_the_kernel_has_its_place(_: &World) {
    let ids = CASES.lines().map(|line| serde_json::from_str::<Value>(line).expect("a case is a JSON object"));
    let ids: BTreeSet<_> = ids.map(|case| case["id"].as_str().expect("a case has an id").to_owned()).collect();
    let is_word = |character: char| character.is_ascii_alphanumeric();
    let words = TEXT.split(|character| !is_word(character));
    let placed: BTreeSet<_> = words.filter(|word| ids.contains(*word)).collect();
    let left: Vec<_> = ids.iter().filter(|id| !placed.contains(id.as_str())).collect();
    assert!(left.is_empty() && ids.len() > 30, "docs/threats.md says nothing of {left:?}");
}

fn every_way_out_names_a_test(_: &World) {
    let (first_half, _) = TEXT.split_once("\n# Ways through the proxy\n").expect("two halves");
    let ways = first_half.split("\n### ").skip(1);
    let (count, bare): (Vec<_>, Vec<_>) = ways.partition(|way| {
        let (way, _) = way.split_once("\n## ").unwrap_or((way, ""));
        named(way).next().is_some()
    });
    assert!(bare.is_empty() && count.len() > 25, "no test is named for {bare:#?}");
}

fn every_attempt_to_escape_is_told_of(_: &World) {
    let told: BTreeSet<_> = named(TEXT).collect();
    let attempts = super::all().map(|test| test.full_name()).filter(|name| name.starts_with("escape::"));
    let untold: Vec<_> = attempts.filter(|name| !told.contains(name.as_str())).collect();
    assert!(untold.is_empty(), "docs/threats.md names none of {untold:#?}");
}
