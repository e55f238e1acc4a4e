//! What derived presets came to, and which of it counts only once it is trusted.

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
    /// Whether the project's policy file names it and no file outside it does. Then trust in that file covers all that it
    /// comes to, also what the user's own configuration says: a command may have written there.
    pub is_projects: bool,
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
    /// Whether it is where an index of the user's has its downloads, by that index's own word. Whoever trusts the index
    /// trusts that.
    pub of_index: bool,
}

/// What a policy is compiled with: all of it but those rules in need of trust that `keep` does not take.
pub fn expansions(expanded: &[Expanded], keep: impl Fn(&Derived) -> bool) -> Expansions {
    let mut expansions = Expansions::default();
    for one in expanded {
        match &one.outcome {
            Err(why) => expansions.insert_failure(&one.preset, why.clone()),
            Ok(rules) => {
                let kept = rules.iter().filter(|rule| !one.needs_trust(rule) || keep(&one.derived(rule)));
                expansions.insert(&one.preset, kept.map(|rule| (rule.rule.clone(), rule.source.clone())).collect());
            }
        }
    }
    expansions
}

/// The rules that count only once they are trusted.
pub fn in_need_of_trust(expanded: &[Expanded]) -> BTreeSet<Derived> {
    let of = |one: &Expanded, rule: &DerivedRule| one.needs_trust(rule).then(|| one.derived(rule));
    expanded.iter().flat_map(|one| one.outcome.iter().flatten().filter_map(move |rule| of(one, rule))).collect()
}

/// The rules that files of the project wrote: the same on every machine.
pub fn of_project(expanded: &[Expanded]) -> BTreeSet<Derived> {
    let of = |one: &Expanded, rule: &DerivedRule| rule.of_project.then(|| one.derived(rule));
    expanded.iter().flat_map(|one| one.outcome.iter().flatten().filter_map(move |rule| of(one, rule))).collect()
}

/// Those rules in need of trust that `wanted` takes, with where each is from.
pub fn sources(expanded: &[Expanded], wanted: impl Fn(&Derived) -> bool) -> Vec<(Derived, String)> {
    let mut found = Vec::new();
    for one in expanded {
        for rule in one.outcome.iter().flatten().filter(|rule| one.needs_trust(rule)) {
            let derived = one.derived(rule);
            if wanted(&derived) {
                found.push((derived, rule.source.to_string()));
            }
        }
    }
    found
}

impl Expanded {
    fn needs_trust(&self, rule: &DerivedRule) -> bool {
        rule.of_project || (self.is_projects && !rule.of_index)
    }

    fn derived(&self, rule: &DerivedRule) -> Derived {
        Derived { preset: self.preset.clone(), rule: rule.rule.clone() }
    }
}
