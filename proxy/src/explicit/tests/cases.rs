//! That every case of the shared files which the explicit door can express has its test.

use std::io::Write;

use serde_json::Value;

/// What is not there yet: a parent proxy.
const LEFT: [&str; 1] = ["S056"];

fn assert_tested(what: &str, file: &str, least: usize, tests: &[&str]) {
    let ids: Vec<String> = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned())
        .filter(|id| !LEFT.contains(&id.as_str()))
        .collect();
    assert!(ids.len() >= least, "{} cases", ids.len());
    for id in &ids {
        let name = format!("async fn {}_", id.to_lowercase());
        assert!(tests.iter().any(|source| source.contains(&name)), "{id} has no test");
    }
    writeln!(std::io::stderr(), "{what}: {} cases at the explicit listener, a test for each", ids.len()).unwrap();
}

#[test]
fn every_case_of_http_has_a_test() {
    let file = include_str!("../../../../tests/cases/http.jsonl");
    assert_tested(
        "http.jsonl",
        file,
        35,
        &[include_str!("http.rs"), include_str!("requests.rs"), include_str!("connect.rs"), include_str!("tokens.rs")],
    );
}

#[test]
fn every_case_of_socks5_has_a_test() {
    let file = include_str!("../../../../tests/cases/socks5.jsonl");
    assert_tested("socks5.jsonl", file, 20, &[include_str!("socks5.rs"), include_str!("tokens.rs")]);
}
