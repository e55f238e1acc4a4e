//! What derived presets came to, and which of it a file of the project wrote.

use std::collections::BTreeSet;

use netbox_config::{Expansions, Source};

use super::store::Derived;

/// A derived preset of this run.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// Its name, without `@`.
    pub preset: String,
    /// Its rules, or why there are none.
    pub outcome: Result<Vec<DerivedRule>, String>,
    /// What it does not stand for although a tool is configured with it, and why, in words.
    pub notes: Vec<String>,
}

/// One rule of it.
#[derive(Clone, Debug)]
pub struct DerivedRule {
    /// `registry.example.com:443`.
    pub rule: String,
    pub source: Source,
    /// Whether a file of the project wrote it, which anybody may have written who can write there; else it is of the
    /// user's or the system's own configuration, or a tool's default.
    pub of_project: bool,
}

/// What a policy is compiled with: all of it but those rules of the project's that `keep` does not take.
pub fn expansions(expanded: &[Expanded], keep: impl Fn(&Derived) -> bool) -> Expansions {
    let mut expansions = Expansions::default();
    for Expanded { preset, outcome, .. } in expanded {
        match outcome {
            Err(why) => expansions.insert_failure(preset, why.clone()),
            Ok(rules) => {
                let kept = rules.iter().filter(|rule| !rule.of_project || keep(&rule.of(preset)));
                expansions.insert(preset, kept.map(|rule| (rule.rule.clone(), rule.source.clone())).collect());
            }
        }
    }
    expansions
}

/// The rules that a file of the project wrote.
pub fn of_project(expanded: &[Expanded]) -> BTreeSet<Derived> {
    let rules = expanded.iter().flat_map(|Expanded { preset, outcome, .. }| {
        outcome.iter().flatten().filter(|rule| rule.of_project).map(|rule| rule.of(preset))
    });
    rules.collect()
}

/// Those rules of the project's files that `wanted` takes, with where each is from.
pub fn sources(expanded: &[Expanded], wanted: impl Fn(&Derived) -> bool) -> Vec<(Derived, String)> {
    let mut found = Vec::new();
    for Expanded { preset, outcome, .. } in expanded {
        for rule in outcome.iter().flatten().filter(|rule| rule.of_project) {
            let derived = rule.of(preset);
            if wanted(&derived) {
                found.push((derived, rule.source.to_string()));
            }
        }
    }
    found
}

impl DerivedRule {
    fn of(&self, preset: &str) -> Derived {
        Derived { preset: preset.to_owned(), rule: self.rule.clone() }
    }
}
