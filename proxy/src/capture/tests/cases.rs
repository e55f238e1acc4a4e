//! That every case of the shared files that a captured connection can express has its test.

use std::io::Write;

use serde_json::Value;

/// Cases of `http.jsonl` about two hosts on one connection, or tokens: they are the explicit listener's.
const EXPLICIT_ONLY: [&str; 3] = ["H037", "H070", "H071"];

fn ids(file: &str) -> Vec<String> {
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    file.lines().map(id).collect()
}

fn assert_tested(id: &str, tests: &[&str]) {
    let name = format!("async fn {}_", id.to_lowercase());
    assert!(tests.iter().any(|source| source.contains(&name)), "{id} has no test");
}

/// Past the capture of tests that pass.
fn tell(what: &str, count: usize) {
    writeln!(std::io::stderr(), "{what}: {count} cases on captured connections, a test for each").unwrap();
}

#[test]
fn every_case_of_tls_has_a_test() {
    let ids = ids(include_str!("../../../../tests/cases/tls.jsonl"));
    assert!(!ids.is_empty());
    ids.iter().for_each(|id| assert_tested(id, &[include_str!("tls.rs")]));
    tell("tls.jsonl", ids.len());
}

#[test]
fn every_case_of_http_has_a_test() {
    let ids = ids(include_str!("../../../../tests/cases/http.jsonl"));
    assert!(!ids.is_empty());
    let here: Vec<_> = ids.iter().filter(|id| !EXPLICIT_ONLY.contains(&id.as_str())).collect();
    here.iter().for_each(|id| assert_tested(id, &[include_str!("http.rs"), include_str!("refusals.rs")]));
    tell("http.jsonl", here.len());
}
