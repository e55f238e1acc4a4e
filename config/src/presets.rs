//! The presets that netbox brings: named lists of rules, and the names whose rules are derived from the machine.

mod builtin;

pub use builtin::{BUILTIN, Builtin};

/// The presets whose rules come from the configuration of the tools on this machine. Their expansion is handed in from
/// outside, since reading it takes files and processes.
pub const DERIVED: [&str; 8] = ["apt", "cargo", "git", "go", "lockfile", "maven", "npm", "pip"];

/// What a preset of netbox's own is for, named without its `@`: a phrase.
pub fn about(name: &str) -> Option<&'static str> {
    let derived = || match name {
        "apt" => Some("the package sources that apt is configured with"),
        "cargo" => Some("the index and the registries that cargo is configured with"),
        "git" => Some("the hosts of this repository's remotes and submodules"),
        "go" => Some("the module proxies that Go is configured with"),
        "lockfile" => Some("the hosts that the project's lock files name"),
        "maven" => Some("the repositories that Maven is configured with"),
        "npm" => Some("the registries that npm is configured with"),
        "pip" => Some("the indexes that pip is configured with"),
        _ => None,
    };
    BUILTIN.iter().find(|preset| preset.name == name).map(|preset| preset.about).or_else(derived)
}

/// The rules of a built-in preset, named without its `@`.
pub fn builtin(name: &str) -> Option<&'static [&'static str]> {
    BUILTIN.iter().find(|preset| preset.name == name).map(|preset| preset.rules)
}

/// Whether it is the name of a derived preset, without its `@`.
pub fn is_derived(name: &str) -> bool {
    DERIVED.contains(&name)
}

/// The names of all of them, without their `@`, derived ones included.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|preset| preset.name).chain(DERIVED)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::pattern::HostPattern;
    use crate::{Rule, Source};

    fn rules() -> impl Iterator<Item = (&'static Builtin, Rule)> {
        let parse = |text: &&str| Rule::parse(text, Source::Flag("preset")).unwrap_or_else(|error| panic!("{error}"));
        BUILTIN.iter().flat_map(move |preset| preset.rules.iter().map(move |text| (preset, parse(text))))
    }

    #[test]
    fn every_rule_is_right_written_in_its_shortest_form_and_warns_of_nothing() {
        for (preset, rule) in rules() {
            assert_eq!(rule.text(), rule.to_string(), "@{}", preset.name);
            assert!(rule.warnings().is_empty(), "@{}: {rule}", preset.name);
        }
    }

    /// What strangers can register is no part of a preset, and a wildcard would be one.
    #[test]
    fn every_rule_names_one_host() {
        for (preset, rule) in rules() {
            assert!(matches!(rule.pattern(), HostPattern::Exact(_)), "@{}: {rule}", preset.name);
        }
    }

    /// A registry is found out, not written down.
    #[test]
    fn no_preset_is_about_a_package_registry() {
        let words = ["registry", "pkg", "packages", "index", "mirror", "archive"];
        for (preset, rule) in rules() {
            assert!(!rule.text().split(['.', '-']).any(|label| words.contains(&label)), "@{}: {rule}", preset.name);
        }
    }

    #[test]
    fn names_and_rules_stand_once_and_every_preset_has_its_source_and_date() {
        let mut names = HashSet::new();
        for name in super::names() {
            assert!(names.insert(name), "`{name}` stands twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
            assert!(about(name).is_some(), "{name}");
        }
        for preset in BUILTIN {
            let rules: HashSet<_> = preset.rules.iter().collect();
            assert_eq!(rules.len(), preset.rules.len(), "@{} repeats a rule", preset.name);
            assert!(!preset.about.is_empty() && !preset.sources.is_empty(), "@{}", preset.name);
            assert!(preset.sources.iter().all(|source| source.starts_with("https://")), "@{}", preset.name);
            let parts: Vec<_> = preset.checked.split('-').map(str::len).collect();
            assert_eq!(parts, [4, 2, 2], "@{}: {}", preset.name, preset.checked);
        }
        assert!(BUILTIN.is_sorted_by_key(|preset| preset.name));
    }

    #[test]
    fn a_name_is_built_in_or_derived_and_never_both() {
        assert!(builtin("github").is_some_and(|rules| rules.contains(&"github.com")));
        assert!(is_derived("npm") && builtin("npm").is_none());
        assert!(!is_derived("github") && builtin("GitHub").is_none() && builtin("").is_none());
    }
}
