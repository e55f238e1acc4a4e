//! What is said of policy files that are right, and of those that are wrong.

use std::collections::HashSet;
use std::path::Path;

use netbox_config::{
    CommandLine, Decision, Expansions, Host, LINT_KINDS, Layer, Lint, Mode, PolicyFile, Rule, Severity, Source, Stack,
};
use proptest::prelude::*;

use crate::FLAG;
use crate::oracle::ADDRESSES;
use crate::properties::{PORTS, any_text, facts, mode, name, name_target, specs, target};

fn parse(layer: Layer, text: &str) -> PolicyFile {
    let name = if layer == Layer::Project { "netbox.toml" } else { "config.toml" };
    PolicyFile::parse(layer, Path::new(name), text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// `line:column severity[id] text; hint`
fn shown(lints: &[Lint]) -> Vec<String> {
    let one = |lint: &Lint| {
        let hint = lint.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        let place = lint.source().to_string();
        let place = place.strip_prefix("netbox.toml:").unwrap_or(&place);
        format!("{place} {}[{}] {}{hint}", lint.severity(), lint.id(), lint.text())
    };
    lints.iter().map(one).collect()
}

fn project(text: &str) -> Vec<String> {
    shown(&parse(Layer::Project, text).lints())
}

#[test]
fn what_is_fine_is_left_in_peace() {
    for text in [
        "",
        "allow = []",
        "version = 1\nallow = [\"github.com\", \"*.api.example.com:443\", \".example.org\", \"tcp://db.example.com:5432\"]",
        "allow = [\"203.0.113.7:443\", \"github.com:2222\", \"@github\", \"@npm\"]\ndeny = [\"*.example.com\", \"10.0.0.0/8\"]",
        "mode = \"audit\"\nallow = [\"github.com\"]\n[profile.ci]\nallow = [\"example.com\"]",
        "allow = [\"@mine\"]\n[preset.mine]\nallow = [\"@github\", \"example.com\"]",
        "mode = \"none\"\n[profile.all]\nmode = \"open\"",
    ] {
        assert_eq!(project(text), [""; 0], "{text}");
    }
}

#[test]
fn a_rule_that_adds_nothing_is_told_with_the_rule_that_has_it_all() {
    for (text, expected) in [
        (
            "allow = [\n  \".github.com\",\n  \"api.github.com:443\",\n]",
            &[
                "3:4 warning[shadowed-rule] `api.github.com:443` adds nothing to `.github.com` (netbox.toml:2:4); leave it out",
            ][..],
        ),
        (
            "allow = [\"GITHUB.com\", \"github.com:443,80\"]",
            &[
                "1:11 note[not-as-compared] `GITHUB.com` is compared as `github.com`; write `github.com`",
                "1:25 warning[shadowed-rule] `github.com:443,80` adds nothing to `GITHUB.com` (netbox.toml:1:11); leave it out",
            ],
        ),
        (
            "allow = [\"a.example.com:1\", \"a.example.com:2\", \"a.example.com:1-2\"]",
            &[
                "1:49 warning[shadowed-rule] `a.example.com:1-2` adds nothing to `a.example.com:1` (netbox.toml:1:11) and other \
                 rules; leave it out",
            ],
        ),
        (
            "allow = [\"10.1.0.0/16\", \"10.0.0.0/8\"]",
            &[
                "1:11 warning[shadowed-rule] `10.1.0.0/16` adds nothing to `10.0.0.0/8` (netbox.toml:1:26); leave it out",
                "1:11 note[non-public-range] `10.1.0.0/16` opens addresses that are not public (private), also to listed names",
                "1:26 note[non-public-range] `10.0.0.0/8` opens addresses that are not public (private), also to listed names",
            ],
        ),
        (
            "allow = [\"@github\", \"github.com:22\"]",
            &[
                "1:22 warning[shadowed-rule] `github.com:22` adds nothing to `github.com:22` (netbox.toml:1:11 via @github); \
                 leave it out",
            ],
        ),
        (
            "allow = [\"example.com\"]\ndeny = [\"*.evil.example\", \"a.evil.example:22\", \"*.evil.example:443\"]",
            &[
                "2:28 warning[shadowed-rule] `a.evil.example:22` adds nothing to `*.evil.example` (netbox.toml:2:10); leave it out",
                "2:49 warning[shadowed-rule] `*.evil.example:443` adds nothing to `*.evil.example` (netbox.toml:2:10); leave it \
                 out",
            ],
        ),
        (
            "allow = [\"example.com\"]\n[profile.ci]\nallow = [\"example.com:443\"]",
            &[
                "3:11 warning[shadowed-rule] `example.com:443` adds nothing to `example.com` (netbox.toml:1:11); leave it out",
            ],
        ),
        // These differ in what they do, although the hosts and ports are covered.
        ("allow = [\"example.com\", \"tcp://example.com:443\"]", &[]),
        ("allow = [\"203.0.113.0/24\", \"203.0.113.7\"]", &[]),
        (
            "allow = [\"10.0.0.0/8\", \"10.0.0.7\"]",
            &[
                "1:11 note[non-public-range] `10.0.0.0/8` opens addresses that are not public (private), also to listed names",
                "1:25 note[non-public-range] `10.0.0.7` opens addresses that are not public (private), also to listed names",
            ],
        ),
    ] {
        assert_eq!(project(text), expected, "{text}");
    }
}

#[test]
fn what_allows_more_or_less_than_it_seems_is_told() {
    for (rule, expected) in [
        (
            "*",
            "warning[every-host] `*` allows every public host by name; name the hosts that are needed; `netbox learn` finds them",
        ),
        (
            "*.github.io",
            "warning[multi-tenant-wildcard] `*.github.io` allows the names of every customer of one provider, not those of one \
             owner; write the names that are meant, such as `some-name.github.io`",
        ),
        (
            ".atlassian.net",
            "warning[multi-tenant-wildcard] `.atlassian.net` allows the names of every customer of one provider, not those of \
             one owner; write the names that are meant, such as `some-name.atlassian.net`",
        ),
        (
            "*.github.com",
            "note[misses-apex] `*.github.com` does not cover `github.com` itself, and no other rule does; write `.github.com` \
             for both",
        ),
        (
            "*.github.com:443",
            "note[misses-apex] `*.github.com:443` does not cover `github.com` itself, and no other rule does; write \
             `.github.com:443` for both",
        ),
        (
            "github.com:80",
            "note[http-only] `github.com:80` is for plain HTTP, and most hosts send on to HTTPS; write `github.com` for both",
        ),
        (
            "github.com:22,80",
            "note[http-only] `github.com:22,80` is for plain HTTP, and most hosts send on to HTTPS; write \
             `github.com:22,80,443` for both",
        ),
        (
            "0.0.0.0/0",
            "warning[mixed-range] `0.0.0.0/0` covers addresses that are not public, and does not open them; write a rule of its \
             own for each range that is meant",
        ),
        (
            "169.254.169.254:80",
            "warning[metadata-address] `169.254.169.254:80` opens the cloud's metadata service, which hands out this machine's \
             credentials",
        ),
        (
            "224.0.0.1",
            "warning[unreachable-range] `224.0.0.1` is for addresses at which nothing can be reached (multicast)",
        ),
        (
            "[fd00::/8]:443",
            "note[non-public-range] `[fd00::/8]:443` opens addresses that are not public (unique local), also to listed names",
        ),
        ("bücher.example", "note[not-as-compared] `bücher.example` is compared as `xn--bcher-kva.example`"),
    ] {
        assert_eq!(project(&format!("allow = [\"{rule}\"]")), [format!("1:11 {expected}")], "{rule}");
        // The same in a preset; and to deny much is no fault.
        let in_preset = project(&format!("allow = [\"@p\"]\n[preset.p]\nallow = [\"{rule}\"]"));
        assert!(in_preset.len() == usize::from(!expected.contains("misses-apex")), "{in_preset:?}");
        if !expected.contains("not-as-compared") {
            assert_eq!(project(&format!("deny = [\"{rule}\"]")), [""; 0], "{rule}");
        }
    }
    assert_eq!(
        project("allow = [\"аррӏе.com\"]"),
        [
            "1:11 warning[confusable-name] `аррӏе` looks like `apple`, and is another name; make sure that it is the name which \
             is meant; it is compared as `xn--80ak6aa92e.com`",
            "1:11 note[not-as-compared] `аррӏе.com` is compared as `xn--80ak6aa92e.com`",
        ]
    );
}

/// Report 60: `deny = ["*"]` kills every allow rule, and nobody said so.
#[test]
fn an_allow_rule_that_is_denied_as_a_whole_is_told() {
    for (text, expected) in [
        (
            "allow = [\"allowed.example.com\", \"203.0.113.7:22\"]\ndeny = [\"*\"]",
            &[
                "1:11 warning[dead-rule] `allowed.example.com` has no effect: `*` (netbox.toml:2:10) denies all of it",
                "1:34 warning[dead-rule] `203.0.113.7:22` has no effect: `*` (netbox.toml:2:10) denies all of it",
            ][..],
        ),
        (
            "allow = [\"@github\", \"a.example.com:443\"]\ndeny = [\"*\"]\n",
            &[
                "1:11 warning[dead-rule] nothing of `@github` has an effect: `*` (netbox.toml:2:10) denies all of it",
                "1:22 warning[dead-rule] `a.example.com:443` has no effect: `*` (netbox.toml:2:10) denies all of it",
            ],
        ),
        (
            "allow = [\"a.example.com\"]\ndeny = [\".example.com:80\", \"a.example.com:400-500\"]",
            &[
                "1:11 warning[dead-rule] `a.example.com` has no effect: `a.example.com:400-500` (netbox.toml:2:29) denies all of \
                 it",
            ],
        ),
        ("allow = [\"a.example.com\"]\ndeny = [\"a.example.com:80\"]", &[]),
        ("allow = [\"@github\"]\ndeny = [\"github.com\"]", &[]),
        (
            "allow = [\"*.example.com:443\", \".example.com:443\"]\ndeny = [\"example.com\"]",
            &[
                "1:11 warning[shadowed-rule] `*.example.com:443` adds nothing to `.example.com:443` (netbox.toml:1:32); leave it out",
            ],
        ),
    ] {
        assert_eq!(project(text), expected, "{text}");
    }
}

#[test]
fn a_rule_outside_a_ceiling_is_told_also_across_layers() {
    let user = parse(
        Layer::User,
        "ceiling = [\".example.com\", \"*.deep.example.org:22\", \"10.1.0.0/16:5432\"]\ndeny = [\"no.example.com\"]",
    );
    let project = parse(
        Layer::Project,
        "allow = [\"a.example.com\", \"evil.example\", \"*.example.org\", \".deep.example.org:22\", \"10.1.2.3\", \
         \"10.0.0.0/8:5432\", \"203.0.113.7\", \"no.example.com\", \"*:22\"]",
    );
    let command_line = CommandLine::default();
    let compiled =
        Stack::new(&command_line).with_file(&user).with_file(&project).compile(&Expansions::default()).unwrap();
    let lints = compiled.lints();
    let outside: Vec<_> =
        lints.iter().filter(|lint| ["outside-ceiling", "dead-rule"].contains(&lint.id())).cloned().collect();
    let ceiling = "has no effect: all of it is outside the ceiling at config.toml:1:1";
    assert_eq!(
        shown(&outside),
        [
            format!("1:28 warning[outside-ceiling] `evil.example` {ceiling}"),
            format!("1:85 warning[outside-ceiling] `10.1.2.3` {ceiling}"),
            format!("1:116 warning[outside-ceiling] `203.0.113.7` {ceiling}"),
            "1:131 warning[dead-rule] `no.example.com` has no effect: `no.example.com` (config.toml:2:10) denies all of it"
                .to_owned(),
        ]
    );
}

#[test]
fn what_a_file_holds_for_nothing_is_told() {
    for (text, expected) in [
        (
            "[preset.one]\nallow = [\"@two\"]\n[preset.two]\nallow = [\"example.com\"]",
            &[
                "1:9 note[unused-preset] nothing in this file uses the preset `one`; write `@one` in a list of rules, or leave it out",
            ][..],
        ),
        ("[profile.ci]\nallow = []", &["1:10 warning[empty-profile] profile `ci` changes nothing"]),
        (
            "mode = \"none\"\nallow = [\"example.com\"]",
            &[
                "1:8 warning[mode-makes-useless] mode `none` lets nothing pass, so the allow rules (netbox.toml:2:11) do nothing; \
                 leave out one of the two",
            ],
        ),
        (
            "[profile.p]\nmode = \"open\"\nallow = [\"example.com\"]",
            &[
                "2:8 warning[mode-makes-useless] mode `open` lets everything pass, so the allow rules (netbox.toml:3:11) do \
                 nothing; leave out one of the two",
            ],
        ),
    ] {
        assert_eq!(project(text), expected, "{text}");
    }
    assert_eq!(
        shown(&parse(Layer::User, "allow = [\"example.com\"]\nceiling = []").lints()),
        [
            "config.toml:1:11 warning[outside-ceiling] `example.com` has no effect: all of it is outside the ceiling at \
             config.toml:2:1",
            "config.toml:2:1 warning[empty-ceiling] nothing is inside an empty ceiling, so nothing is allowed; write what may be \
             allowed, or leave it out",
        ]
    );
    // A user's presets are there for projects too.
    assert_eq!(parse(Layer::User, "[preset.one]\nallow = [\"example.com\"]").lints(), []);
}

#[test]
fn errors_are_told_alike_with_place_id_and_what_to_write() {
    let text = "alow = [\"github.com\"]\nallow = [\"https://github.com/\", \"*.com\", 7]\nmode = \"off\"\nallow = []";
    let errors = PolicyFile::parse(Layer::Project, Path::new("netbox.toml"), text.as_bytes()).unwrap_err();
    let lints = errors.lints();
    assert!(lints.iter().all(|lint| lint.severity() == Severity::Error));
    let ids: Vec<_> = lints.iter().map(Lint::id).collect();
    assert_eq!(ids, ["unknown-key", "invalid-rule", "invalid-rule", "wrong-type", "invalid-mode", "duplicate-key"]);
    let shown = shown(&lints);
    assert_eq!(shown[0], "1:1 error[unknown-key] `alow` is no key of a policy file; did you mean `allow`?");
    assert_eq!(
        shown[1],
        "2:11 error[invalid-rule] rule `https://github.com/`: a URL where a host is meant; write `github.com`"
    );
}

#[test]
fn every_kind_has_a_word_of_its_own_and_stands_in_the_document() {
    let document = include_str!("../../../docs/policy.md");
    let ids: HashSet<_> = LINT_KINDS.iter().map(|kind| kind.id).collect();
    assert_eq!(ids.len(), LINT_KINDS.len());
    assert!(LINT_KINDS.is_sorted_by_key(|kind| kind.id));
    for kind in LINT_KINDS {
        let row = format!("| `{}` | {} | {} |", kind.id, kind.severity, kind.about);
        assert!(document.contains(&row), "docs/policy.md lacks the row\n{row}");
    }
}

/// Ten thousand rules of every kind, and as many for one host. Holding each against each would take minutes here.
#[test]
fn many_rules_are_not_held_against_each_other() {
    let distinct = (0..PolicyFile::MOST_RULES - 20).map(|n| match n % 5 {
        0 => format!("host{n}.zone{}.example.com", n % 97),
        1 => format!("*.zone{n}.example.com:8443"),
        2 => format!("198.51.{}.{}", n / 256 % 256, n % 256),
        3 => format!(".b{n}.example.org"),
        _ => format!("host.example.net:{}", n + 1),
    });
    let same_host = (0..PolicyFile::MOST_RULES - 20).map(|n| format!("a.example.com:{}", n + 1));
    for rules in [distinct.collect::<Vec<_>>(), same_host.collect()] {
        let list: Vec<_> = rules.iter().map(|rule| format!("\"{rule}\"")).collect();
        let text = format!("allow = [{}]\ndeny = [\"*.bad.example.com\", \"a.example.com:70-90\"]", list.join(","));
        let file = parse(Layer::Project, &text);
        let lints = file.lints();
        assert_eq!(lints.iter().any(|lint| lint.id() == "dead-rule"), text.contains("a.example.com:71\""));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nothing hostile in a file steers the terminal of whoever lints it, nor ends netbox.
    #[test]
    fn whatever_a_file_holds_its_lints_are_harmless(
        rules in prop::collection::vec(any_text(), 0..6), key in any_text(), name in any_text(),
    ) {
        let list = |items: &[String]| items.iter().map(|item| toml_string(item)).collect::<Vec<_>>().join(", ");
        let text = format!(
            "allow = [{}]\ndeny = [{}]\n{} = 1\n[profile.{}]\nallow = [{}]\n",
            list(&rules), list(&rules[..rules.len() / 2]), toml_string(&key), toml_string(&name), list(&rules),
        );
        // Without what is wrong there is more to say.
        let right: Vec<_> = rules.into_iter().filter(|rule| Rule::parse(rule, FLAG).is_ok()).collect();
        for text in [text, format!("allow = [{}]", list(&right))] {
            let lints = match PolicyFile::parse(Layer::Project, Path::new("a\u{1b}b"), text.as_bytes()) {
                Ok(file) => file.lints(),
                Err(errors) => errors.lints(),
            };
            for said in shown(&lints) {
                prop_assert!(!said.contains(|c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}')), "{said:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The lints about rules that do nothing are right: without those rules everything is decided as before.
    #[test]
    fn without_the_rules_that_do_nothing_the_policy_is_the_same(
        mode in mode(), allow in specs(0..7), deny in specs(0..4), raw in prop::collection::vec(any::<bool>(), 7),
        facts in facts(), name in name(),
    ) {
        let allow: Vec<_> = allow
            .iter()
            .zip(raw)
            .map(|(spec, raw)| format!("{}{}", if raw && spec.ports.is_some() { "tcp://" } else { "" }, spec.text()))
            .collect();
        let deny: Vec<_> = deny.iter().map(|spec| spec.text()).collect();
        let all = file_of(mode, &allow, &deny, &HashSet::new());
        let useless: HashSet<_> = all
            .lints()
            .iter()
            .filter(|lint| ["shadowed-rule", "dead-rule"].contains(&lint.id()))
            .map(|lint| match lint.source() {
                Source::File { line, .. } => *line,
                other => panic!("{other}"),
            })
            .collect();
        let left = file_of(mode, &allow, &deny, &useless);
        let command_line = CommandLine::default();
        let compile = |file| Stack::new(&command_line).with_file(file).compile(&Expansions::default()).unwrap();
        let (all, left) = (compile(&all), compile(&left));
        for (address, port) in ADDRESSES.iter().flat_map(|address| PORTS.iter().map(move |port| (address.text, *port))) {
            let address = address.parse().unwrap();
            for target in [name_target(&name, port), target(Host::from_ip(address), port)] {
                let [one, other] = [&all, &left].map(|compiled| {
                    let policy = compiled.policy();
                    match policy.decide(&target, &facts) {
                        Decision::Allow(permit) => {
                            let vetted = policy.vet(&permit, address, &facts).map_err(|refusal| refusal.reason());
                            Some((permit.reason(), permit.is_raw(), vetted))
                        }
                        Decision::Refuse(_) => None,
                    }
                });
                prop_assert_eq!(one, other, "{} without the lines {:?}", target, useless);
            }
        }
    }
}

/// A text as a string of TOML.
fn toml_string(text: &str) -> String {
    let escape = |c: char| if c.is_alphanumeric() { c.to_string() } else { format!("\\U{:08X}", u32::from(c)) };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// A file with one rule a line, but for the lines that are left empty.
fn file_of(mode: Mode, allow: &[String], deny: &[String], without: &HashSet<usize>) -> PolicyFile {
    let mut lines = vec![format!("mode = \"{mode}\"")];
    for (key, rules) in [("allow", allow), ("deny", deny)] {
        lines.push(format!("{key} = ["));
        for rule in rules {
            let skip = without.contains(&(lines.len() + 1));
            lines.push(if skip { String::new() } else { format!("\"{rule}\",") });
        }
        lines.push("]".to_owned());
    }
    parse(Layer::Project, &lines.join("\n"))
}
