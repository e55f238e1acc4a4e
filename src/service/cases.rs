//! `tests/cases/service.jsonl`: that each case has a test, which bears its id.

use std::fs;
use std::path::Path;

use serde_json::Value;

const CASES: &str = include_str!("../../tests/cases/service.jsonl");

/// Where the tests are. Names of functions begin with the id.
const THEMES: &str = "tests/e2e/themes";

#[test]
fn every_case_of_the_service_has_a_test() {
    let mut sources = String::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(THEMES)).expect("the repository is here") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            sources += &fs::read_to_string(path).expect("a source file");
        }
    }
    let cases: Vec<Value> = CASES.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let id = case["id"].as_str().expect("an id");
        let test = format!("fn {}_", id.to_lowercase());
        assert!(sources.contains(&test), "{id} has no test");
    }
}
