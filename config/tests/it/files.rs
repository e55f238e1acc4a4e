//! Policy files: what they may hold, and what is said of what they may not.

use std::path::Path;

use netbox_config::{CommandLine, Expansions, FileErrors, Layer, Policy, PolicyFile, Stack};
use proptest::prelude::*;
use proptest::sample::select;

fn parse(layer: Layer, text: &str) -> Result<PolicyFile, FileErrors> {
    PolicyFile::parse(layer, Path::new("netbox.toml"), text.as_bytes())
}

/// What is said of a project's file, without the path.
fn errors(text: &str) -> Vec<String> {
    errors_of(Layer::Project, text.as_bytes())
}

fn errors_of(layer: Layer, bytes: &[u8]) -> Vec<String> {
    let errors = PolicyFile::parse(layer, Path::new("netbox.toml"), bytes).expect_err("something is wrong with it");
    errors.iter().map(|error| error.to_string().strip_prefix("netbox.toml:").unwrap().to_owned()).collect()
}

fn policy(file: &PolicyFile) -> Policy {
    let nothing = CommandLine::default();
    Stack::new(&nothing).with_file(file).compile(&Expansions::default()).unwrap().into_policy()
}

#[test]
fn a_file_may_hold_all_that_is_documented() {
    let text = r#"
version = 1
mode = "audit"
allow = ["github.com", "@work", "host.example:22,443", 'tcp://db.example:5432']
deny = [
    "evil.example", # with a comment
    """
10.0.0.0/8""",
]
preset.work.allow = ["a.example"]
profile = { ci = { allow = ["b.example"], mode = "none", deny = [] }, release = {} }
"#;
    let file = parse(Layer::Project, text).unwrap();
    assert_eq!((file.layer(), file.path()), (Layer::Project, Path::new("netbox.toml")));
    assert_eq!(file.profiles().collect::<Vec<_>>(), ["ci", "release"]);
    assert_eq!(file.presets().collect::<Vec<_>>(), ["work"]);
    let policy = policy(&file);
    let shown = |rules: &[netbox_config::Rule]| {
        rules.iter().map(|rule| format!("{} {}", rule.text(), rule.source())).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(policy.allow()),
        [
            "github.com netbox.toml:4:11",
            "a.example netbox.toml:4:25 via @work (netbox.toml:10:23)",
            "host.example:22,443 netbox.toml:4:34",
            "tcp://db.example:5432 netbox.toml:4:57",
        ]
    );
    assert_eq!(shown(policy.deny()), ["evil.example netbox.toml:6:6", "10.0.0.0/8 netbox.toml:8:1"]);
}

#[test]
fn a_file_that_allows_nothing_is_an_empty_list() {
    for text in ["", "\u{feff}", "# nothing\r\n", "allow = []", "version = 1", "[profile.x]", "deny = [\"a.example\"]"]
    {
        let policy = policy(&parse(Layer::Project, text).unwrap());
        for target in ["a.example:443", "203.0.113.7:443"] {
            let decision = policy.decide(&crate::target(target), &netbox_config::HostFacts::default());
            assert!(matches!(decision, netbox_config::Decision::Refuse(_)), "{target} by {text:?}");
        }
    }
}

#[test]
fn unknown_keys_are_errors_that_say_what_may_be_meant() {
    for (text, said) in [
        ("alow = []", "1:1: `alow` is no key of a policy file; did you mean `allow`?"),
        ("[profiles.x]", "1:2: `profiles` is no key of a policy file; did you mean `profile`?"),
        ("[profile.x]\n  dny = []", "2:3: `dny` is no key of a profile; did you mean `deny`?"),
        ("[profile.x]\nversion = 1", "2:1: `version` is no key of a profile; write `version` at the top of the file"),
        ("[preset.x]\nallow = []\ndeny = []", "3:1: `deny` is no key of a preset; write `deny` at the top of the file"),
        (
            "hosts = []",
            "1:1: `hosts` is no key of a policy file; the keys are `version`, `allow`, `deny`, `mode`, `ceiling`, `ech`, `profile`, `preset`, `service`",
        ),
        (
            "\"\\u001b[2J\" = 1",
            r"1:1: `\x1b[2J` is no key of a policy file; the keys are `version`, `allow`, `deny`, `mode`, `ceiling`, `ech`, `profile`, `preset`, `service`",
        ),
        ("extends = \"x\"", "1:1: `extends` is not supported yet; leave it out"),
    ] {
        assert_eq!(errors(text), [said], "{text}");
    }
}

#[test]
fn a_project_holds_neither_a_ceiling_nor_what_is_the_machines() {
    for key in ["ceiling", "listen", "role", "roles", "hooks", "credentials", "log", "upstream", "upstreams"] {
        let said = format!(
            "1:1: a project's file may not hold `{key}`; write `{key}` in `/etc/netbox/config.toml` or `~/.config/netbox/config.toml`"
        );
        assert_eq!(errors(&format!("{key} = []")), [said]);
    }
    let in_profile = "2:1: a project's file may not hold `ceiling`; write `ceiling` in `/etc/netbox/config.toml` or `~/.config/netbox/config.toml`";
    assert_eq!(errors("[profile.x]\nceiling = []"), [in_profile]);
    for layer in [Layer::System, Layer::User] {
        assert!(parse(layer, "ceiling = [\"*.com\", \"@github\"]\n[profile.x]\nceiling = []").is_ok());
        assert_eq!(errors_of(layer, b"hooks = 1"), ["1:1: `hooks` is not supported yet; leave it out"]);
        for key in ["listen", "role", "metrics"] {
            let said = format!("1:1: `{key}` is no key of a policy file; write `{key}` below `[service]`");
            assert_eq!(errors_of(layer, format!("{key} = 1").as_bytes()), [said]);
        }
    }
}

#[test]
fn values_of_another_kind_are_errors_that_say_what_to_write() {
    for (text, said) in [
        ("ech = true", "1:7: `ech` is a boolean, and must be a string; write `ech = \"refuse\"`"),
        ("ech = \"off\"", "1:7: `off` is nothing that can be done about ECH, write `allow` or `refuse`"),
        (
            "allow = \"a.example\"",
            "1:9: `allow` is a string, and must be a list of rules; write `allow = [\"a.example\"]`",
        ),
        ("deny = true", "1:8: `deny` is a boolean, and must be a list of rules; write `deny = [\"example.com\"]`"),
        (
            "allow = [\"a.example\", 443]",
            "1:23: `allow` holds a number, and a rule is a string; write a rule in quotes",
        ),
        ("allow = [[\"a.example\"]]", "1:10: `allow` holds a list, and a rule is a string; write a rule in quotes"),
        ("[[allow]]\nx = 1", "1:1: `allow` holds a table, and a rule is a string; write a rule in quotes"),
        ("mode = 3", "1:8: `mode` is a number, and must be a string; write `mode = \"allowlist\"`"),
        ("mode = \"off\"", "1:8: `off` is no mode, write `allowlist`, `none`, `open` or `audit`"),
        ("version = 2", "1:11: this netbox reads version 1 of the policy file, and not `2`; write `version = 1`"),
        ("version = \"1\"", "1:11: `version` is a string, and must be a whole number; write `version = 1`"),
        ("version = 1.0", "1:11: `version` is a number, and must be a whole number; write `version = 1`"),
        (
            "profile = 3",
            "1:11: `profile` is a number, and must be a table of tables; write `[profile.some-name]`, and the keys of the profile below it",
        ),
        (
            "[preset]\nx = [\"a.example\"]",
            "2:5: `x` is a list, and must be a table; write `[preset.some-name]`, and the keys of the preset below it",
        ),
        (
            "[[profile.x]]",
            "1:1: `x` is a list, and must be a table; write `[profile.some-name]`, and the keys of the profile below it",
        ),
        (
            "[profile.\"a b\"]",
            "1:10: `a b` cannot be the name of a profile; write lower-case letters, digits, `-` and `_`",
        ),
        (
            "[preset.GitHub]\nallow = []",
            "1:9: `GitHub` cannot be the name of a preset; write lower-case letters, digits, `-` and `_`",
        ),
        ("[preset.x]", "1:9: preset `x` has no `allow`; write `allow = [\"example.com\"]` below its name"),
        (
            "[preset.github]\nallow = []",
            "1:9: `@github` is a preset of netbox itself, and cannot be defined anew; give it another name",
        ),
        (
            "[preset.npm]\nallow = []",
            "1:9: `@npm` is a preset of netbox itself, and cannot be defined anew; give it another name",
        ),
    ] {
        assert_eq!(errors(text), [said], "{text}");
    }
}

#[test]
fn what_is_no_toml_is_said_to_be_none_at_its_place() {
    for (text, said) in [
        (
            "allow = [github.com]",
            "1:10: not TOML: string values must be quoted, expected literal string, found `github.com`; write `\"github.com\"`",
        ),
        ("allow = [\"a.example\"", "1:21: not TOML: unclosed array, expected `]`"),
        ("allow = \"x", "1:11: not TOML: invalid basic string, expected `\"`"),
        ("allow = [\"a.example\" \"b.example\"]", "1:22: not TOML: missing comma between array elements, expected `,`"),
        ("é = 1\nallow", "1:1: not TOML: invalid unquoted key, expected letters, numbers, `-`, `_`, found `é`"),
        ("allow = []\nallow = []", "2:1: `allow` stands here a second time"),
        ("[profile.x]\n[profile.x]", "2:10: `x` stands here a second time"),
        (
            "mode = \"audit\"\nmode.x = 1",
            "2:1: not TOML: cannot extend value of type string with a dotted key, found `mode`",
        ),
    ] {
        assert_eq!(errors(text)[0], said, "{text}");
    }
}

#[test]
fn a_rule_that_is_wrong_is_pointed_at_character_by_character() {
    for (text, said) in [
        (
            "allow = [\"a.example\", \"api.*.com\"]",
            "1:28: rule `api.*.com`: a `*` that is not a whole first label; write it at the beginning only, and a dot behind it: `*.example.com`",
        ),
        (
            "# é\nallow = [\n  \"é.example\", \"a.é:x\",\n]",
            "3:21: rule `a.é:x`: `x` is no port: a service is written by its number; write `a.é:443`, `a.é:22,443` or `a.é:8000-8100`",
        ),
        ("allow = ['''\nab c''']", "2:3: rule `ab c`: a space, and a rule has none; write a rule for each host"),
        // With escapes in it the string's first character stands for all.
        ("allow = [ \"\\u0061b c\" ]", "1:11: rule `ab c`: a space, and a rule has none; write a rule for each host"),
        ("allow = [\"\\\\\\\\\"]", r"1:10: rule `\\\\`: `\\` is no character of a host name"),
        (
            "deny = [\"@x:22\"]",
            "1:12: rule `@x:22`: ports after a preset, which brings its own; write `@x`, or the hosts themselves with their ports",
        ),
        (
            "deny = [\"@GitHub\"]",
            "1:11: rule `@GitHub`: a preset's name has lower-case letters, digits, `-` and `_`; write `@github`",
        ),
        (
            "allow = [\"*.com\"]",
            "1:11: rule `*.com`: a wildcard over `com`, where everyone registers names; write the names of one owner: `*.example.com`",
        ),
    ] {
        assert_eq!(errors(text), [said], "{text}");
    }
}

#[test]
fn every_error_is_found_in_the_order_of_the_file() {
    let text =
        "mode = \"off\"\nallow = [\"a b\", 3, \"https://b.example\"]\nversion = 7\nallow = []\n[preset.y]\nx = 1";
    let places: Vec<_> = errors(text).iter().map(|error| error.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(places, ["1:8", "2:12", "2:17", "2:21", "3:11", "4:1", "5:9", "6:1"]);
}

#[test]
fn many_errors_are_cut_where_all_can_see_it() {
    let text = format!("allow = [{}]", "\"a b\",".repeat(100));
    let shown = parse(Layer::Project, &text).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 21);
    assert!(shown.ends_with("\nand 80 more"), "{shown}");
}

#[test]
fn a_file_is_bounded_in_bytes_and_in_rules() {
    let large = vec![b'#'; PolicyFile::LARGEST];
    assert!(PolicyFile::parse(Layer::Project, Path::new("netbox.toml"), &large).is_ok());
    let too_large = vec![b'#'; PolicyFile::LARGEST + 1];
    assert_eq!(
        errors_of(Layer::Project, &too_large),
        ["1:1: the file has 1048577 bytes, and a policy file at most 1 MiB"]
    );
    let lists = |allow: usize, preset: usize| {
        let list = |count| "\"a.example\",\n".repeat(count);
        format!("allow = [\n{}]\n[preset.x]\nallow = [\n{}]", list(allow), list(preset))
    };
    assert!(parse(Layer::Project, &lists(9_000, 1_000)).is_ok());
    assert_eq!(
        errors(&lists(9_000, 1_005)),
        ["10005:1: the file has more than 10000 rules; write wildcards or ranges instead"]
    );
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_their_place() {
    assert_eq!(errors_of(Layer::Project, b"# \xc3\xa9\nallow = [\"\xff\"]"), [r"2:11: `\xff` is not UTF-8"]);
    assert_eq!(errors_of(Layer::Project, b"\xe2\x82"), [r"1:1: `\xe2\x82` is not UTF-8"]);
}

#[test]
fn one_line_of_many_rules_is_read_as_fast_as_many_lines() {
    // Counting from the beginning of the line for each rule would take minutes.
    let rules: String = (0..PolicyFile::MOST_RULES).map(|n| format!("\"host{n}.é{:040}.example\",", 0)).collect();
    let file = parse(Layer::Project, &format!("allow=[{rules}]")).unwrap_or_else(|errors| panic!("{errors}"));
    let policy = policy(&file);
    let last = policy.allow().last().unwrap().source().to_string();
    let column = 7 + rules.chars().count() - rules.rsplit("\"host").next().unwrap().chars().count() - 4 + 1;
    assert_eq!(last, format!("netbox.toml:1:{column}"));
}

/// Text near the grammar: pieces that mean something to some parser.
fn near_grammar() -> impl Strategy<Value = String> {
    let pieces = &[
        "allow",
        "deny",
        "mode",
        "ceiling",
        "version",
        "profile",
        "preset",
        ".x",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        " = ",
        "=",
        ",",
        "\n",
        "\r\n",
        "\"",
        "'",
        "\"\"\"",
        "'''",
        "\\",
        "\\u0041",
        "\\x",
        "#",
        "1",
        "\"audit\"",
        "\"a.example\"",
        "[\"a.example\"]",
        "\"@npm\"",
        "\"@x\"",
        "\"a b\"",
        "é",
        "\u{202e}",
        "\0",
        "true",
        "2020-01-01",
        "[preset.x]\n",
        "[profile.x]\n",
        "[preset.x]\nallow = [\"@x\"]\n",
        "allow = [\"@x\"]\n",
        "0x1",
        "1e999",
        "nan",
    ][..];
    prop::collection::vec(select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_parser_panic_and_errors_are_fit_to_print(
        text in near_grammar(), bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(),
        layer in select(&[Layer::System, Layer::User, Layer::Project][..]),
    ) {
        let mut mixed = text.clone().into_bytes();
        let at = at.index(mixed.len() + 1);
        mixed.splice(at..at, bytes.iter().copied().take(3));
        for bytes in [text.as_bytes(), &bytes, &mixed] {
            match PolicyFile::parse(layer, Path::new("dir\u{1b}/netbox.toml"), bytes) {
                Ok(file) => {
                    let nothing = CommandLine::default();
                    let _ = Stack::new(&nothing).with_file(&file).with_profile(Some("x")).compile(&Expansions::default());
                }
                Err(errors) => {
                    prop_assert!(errors.len() > 0);
                    for error in &errors {
                        prop_assert!(!error.to_string().contains(char::is_control), "{}", error);
                    }
                }
            }
        }
    }
}
