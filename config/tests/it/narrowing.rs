//! When a project's file is proved to narrow, as a table. That what is proved is so is a property in `layered`.

use std::path::Path;

use netbox_config::{CommandLine, Entry, Expansions, Layer, List, PolicyFile, Source, Stack};

fn narrows(outer: &str, project: &str, typed: &[&str], profile: Option<&str>) -> bool {
    let file = |layer, text: &str| {
        PolicyFile::parse(layer, Path::new("netbox.toml"), text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    };
    let (outer, project) = (file(Layer::User, outer), file(Layer::Project, project));
    let entry = |text: &&str| Entry::parse(text, List::Allow, Source::Flag("--allow")).unwrap();
    let command_line = CommandLine { allow: typed.iter().map(entry).collect(), ..CommandLine::default() };
    let stack = Stack::new(&command_line).with_file(&outer).with_file(&project).with_profile(profile);
    stack.project_narrows(&Expansions::default())
}

#[test]
fn a_rule_needs_an_outer_rule_around_it() {
    for (outer, inner, expected) in [
        ("a.example", "a.example", true),
        ("a.example", "A.Example.:443", true),
        ("a.example", "b.example", false),
        ("a.example", "a.example:22", false),
        ("a.example:22,443", "a.example:443", true),
        ("a.example:1-100", "a.example", false),
        ("*", "a.example", true),
        ("*", "*.example:80", true),
        ("*", "203.0.113.7", false),
        ("*:*", "*", true),
        ("*.example.test", "*", false),
        ("*.example.test", "a.example.test", true),
        ("*.example.test", "a.b.example.test", true),
        ("*.example.test", "example.test", false),
        ("*.example.test", "xexample.test", false),
        ("*.example.test", "*.example.test", true),
        ("*.example.test", ".example.test", false),
        ("*.example.test", "*.b.example.test", true),
        ("*.example.test", ".b.example.test", true),
        (".example.test", "example.test", true),
        (".example.test", "*.example.test", true),
        (".example.test", ".example.test", true),
        (".example.test", ".test", false),
        (".example.test", ".xexample.test", false),
        ("tcp://a.example:443", "a.example:443", true),
        ("tcp://a.example:443", "tcp://a.example:443", true),
        ("a.example:443", "tcp://a.example:443", false),
        ("203.0.113.7", "203.0.113.7", true),
        // What a rule for one address lifts, one for a range around it does not.
        ("203.0.113.0/24", "203.0.113.7", false),
        ("10.0.0.0/8", "10.0.0.7", false),
        ("203.0.113.0/24", "203.0.113.0/25", false),
        ("10.0.0.0/8", "10.1.0.0/16", true),
        ("10.0.0.0/8:443", "10.1.0.0/16", false),
        ("0.0.0.0/0", "10.0.0.0/8", false),
        ("169.254.0.0/16", "169.254.169.254", false),
        ("fd00::/8", "fd00::/8", true),
        ("fd00::/8", "fd00::/16", false),
        ("@github", "@github", true),
        ("@github", "github.com:22", true),
        ("github.com", "@github", false),
    ] {
        let [outer_file, project] = [outer, inner].map(|rule| format!("allow = [\"{rule}\"]"));
        assert_eq!(narrows(&outer_file, &project, &[], None), expected, "{inner} under {outer}");
        // What is typed is as good as what is written further out.
        assert_eq!(narrows("", &project, &[outer], None), expected, "{inner} under {outer}");
    }
}

#[test]
fn ports_may_be_covered_by_several_rules() {
    let outer = "allow = [\"a.example:22\", \"*.example:443\"]";
    assert!(narrows(outer, "allow = [\"a.example:22,443\"]", &[], None));
    assert!(!narrows(outer, "allow = [\"a.example:22,443,444\"]", &[], None));
    assert!(!narrows(outer, "allow = [\"tcp://a.example:22,443\"]", &[], None));
    let outer = "allow = [\"tcp://a.example:22\", \"a.example:443\"]";
    assert!(!narrows(outer, "allow = [\"tcp://a.example:22,443\"]", &[], None));
}

#[test]
fn modes_may_narrow_and_not_widen() {
    for (outer, project, expected) in [
        ("", "mode = \"none\"", true),
        ("", "mode = \"none\"\nallow = [\"a.example\"]", true),
        ("", "mode = \"allowlist\"", true),
        ("", "mode = \"audit\"", false),
        ("", "mode = \"open\"", false),
        ("mode = \"audit\"", "mode = \"audit\"", true),
        ("mode = \"open\"", "mode = \"audit\"", true),
        ("mode = \"audit\"", "mode = \"open\"", true), // which stays `audit`
        ("mode = \"none\"", "allow = [\"a.example\"]", true),
        ("mode = \"audit\"", "mode = \"allowlist\"\nallow = [\"a.example\", \"*\"]", true),
        ("mode = \"audit\"", "allow = [\"tcp://a.example:443\"]", false),
        ("mode = \"open\"", "allow = [\"203.0.113.7\"]", false),
    ] {
        assert_eq!(narrows(outer, project, &[], None), expected, "{project} under {outer}");
    }
}

#[test]
fn deny_rules_profiles_and_presets_that_nobody_uses_do_not_widen() {
    let outer = "allow = [\"a.example\"]\n[profile.ci]\nallow = [\"b.example\"]";
    assert!(narrows(outer, "", &[], None));
    assert!(narrows(outer, "deny = [\"a.example\", \"*\"]", &[], None));
    assert!(narrows(
        outer,
        "[profile.x]\nallow = [\"evil.example\"]\n[preset.y]\nallow = [\"evil.example\"]",
        &[],
        None
    ));
    assert!(narrows(outer, "allow = [\"b.example\"]", &[], Some("ci")));
    assert!(!narrows(outer, "allow = [\"b.example\"]", &[], None));
    // A profile or a preset that is the project's own: without the file there is nothing to hold it against.
    assert!(!narrows(outer, "[profile.x]\ndeny = [\"a.example\"]", &[], Some("x")));
    assert!(!narrows(outer, "[preset.y]\nallow = [\"a.example\"]", &["@y"], None));
}
