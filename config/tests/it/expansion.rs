//! Presets: where they are looked up, what they come to, and what is said where they come to nothing.

use std::path::Path;

use netbox_config::{Layer, Source};

use crate::layers::Run;

#[test]
fn a_preset_is_looked_up_where_it_is_named_and_further_out() {
    let user = "allow = [\"@mine\"]\n[preset.mine]\nallow = [\"a.example\", \"@base\"]\n[preset.base]\nallow = [\"b.example:22\"]";
    let run = Run::default()
        .file(Layer::User, user)
        .file(
            Layer::Project,
            "allow = [\"@inner\"]\ndeny = [\"@base\"]\n[preset.inner]\nallow = [\"@mine\", \"c.example\"]",
        )
        .allow("@inner");
    assert_eq!(
        run.rules(),
        [
            "user a.example (config.toml:1:11 via @mine (config.toml:3:11))",
            "user b.example:22 (config.toml:1:11 via @mine via @base (config.toml:5:11))",
            "project a.example (netbox.toml:1:11 via @inner via @mine (config.toml:3:11))",
            "project b.example:22 (netbox.toml:1:11 via @inner via @mine via @base (config.toml:5:11))",
            "project c.example (netbox.toml:1:11 via @inner (netbox.toml:4:20))",
            "command-line a.example (--allow via @inner via @mine (config.toml:3:11))",
            "command-line b.example:22 (--allow via @inner via @mine via @base (config.toml:5:11))",
            "command-line c.example (--allow via @inner (netbox.toml:4:20))",
            "project -b.example:22 (netbox.toml:2:10 via @base (config.toml:5:11))",
        ]
    );
}

#[test]
fn an_outer_file_does_not_see_an_inner_preset() {
    let run =
        Run::default().file(Layer::User, "allow = [\"@inner\"]").file(Layer::Project, "[preset.inner]\nallow = []");
    assert_eq!(
        run.errors(),
        [
            "config.toml:1:11: there is no preset `@inner`; the project's file defines it, which the files outside it do not see"
        ]
    );
}

#[test]
fn a_name_that_nothing_defines_is_an_error_also_in_a_preset_that_nobody_uses() {
    let run =
        Run::default().file(Layer::Project, "[preset.a]\nallow = [\"@githbu\"]\n[preset.b]\nallow = [\"@zzzzzz\"]");
    assert_eq!(
        run.errors(),
        [
            "netbox.toml:2:11: there is no preset `@githbu`; did you mean `@github`?",
            "netbox.toml:4:11: there is no preset `@zzzzzz`; define it: `[preset.zzzzzz]` with `allow = [..]`",
        ]
    );
}

#[test]
fn a_circle_is_told_with_all_of_its_presets() {
    let text = "[preset.a]\nallow = [\"@b\"]\n[preset.b]\nallow = [\"x.example\", \"@c\"]\n[preset.c]\nallow = [\"@a\"]\n[preset.d]\nallow = [\"@d\"]";
    assert_eq!(
        Run::default().file(Layer::Project, text).errors(),
        [
            "netbox.toml:6:11: presets in a circle: `@a`, `@b`, `@c`, `@a`; leave `@a` out here",
            "netbox.toml:8:11: presets in a circle: `@d`, `@d`; leave `@d` out here",
        ]
    );
}

#[test]
fn presets_are_at_most_thirty_two_deep_whatever_their_order() {
    for backwards in [false, true] {
        let name = |n: usize| format!("p{:03}", if backwards { 999 - n } else { n });
        let chain = |deep: usize| {
            let preset = |n| match n + 1 == deep {
                true => format!("[preset.{}]\nallow = [\"a.example\"]\n", name(n)),
                false => format!("[preset.{}]\nallow = [\"@{}\"]\n", name(n), name(n + 1)),
            };
            let text: String = (0..deep).map(preset).collect();
            Run::default().file(Layer::Project, &text).allow(&format!("@{}", name(0)))
        };
        assert_eq!(chain(32).rules().len(), 1);
        assert!(chain(33).errors()[0].contains("presets within presets, more than 32 deep"));
        assert!(chain(900).errors()[0].contains("presets within presets, more than 32 deep"));
    }
}

#[test]
fn presets_that_name_each_other_stay_as_small_as_they_are_written() {
    let preset = |n: usize| {
        let inner: String = (0..50).map(|_| format!("\"@p{}\", ", n + 1)).collect();
        format!("[preset.p{n}]\nallow = [{inner}]\n")
    };
    let text: String = (0..20).map(preset).collect();
    let text = text + "[preset.p20]\nallow = [\"a.example\"]";
    assert_eq!(Run::default().file(Layer::Project, &text).allow("@p0").rules().len(), 1);
}

#[test]
fn what_is_too_broad_to_allow_can_be_denied_through_a_preset() {
    let text = "[preset.broad]\nallow = [\"*.com\"]\n";
    let denied = Run::default().file(Layer::Project, &format!("deny = [\"@broad\"]\n{text}"));
    assert_eq!(denied.rules(), ["project -*.com (netbox.toml:1:10 via @broad (netbox.toml:3:11))"]);
    let allowed = Run::default().file(Layer::Project, &format!("allow = [\"@broad\"]\n{text}"));
    assert_eq!(
        allowed.errors(),
        [
            "netbox.toml:1:11 via @broad (netbox.toml:3:11): rule `*.com`: a wildcard over `com`, where everyone registers \
          names; write the names of one owner: `*.example.com`"
        ]
    );
}

#[test]
fn a_derived_preset_is_what_it_was_found_to_be() {
    let npmrc = || Source::Line { path: Path::new(".npmrc").into(), line: 2 };
    let mut run = Run::default().file(Layer::Project, "allow = [\"@npm\"]");
    let derived = run.stack().derived().unwrap();
    assert_eq!(derived.len(), 1);
    assert_eq!(
        (&*derived[0].name, derived[0].layer, derived[0].source.to_string()),
        ("npm", Layer::Project, "netbox.toml:1:11".to_owned())
    );
    assert_eq!(
        run.errors(),
        [
            "netbox.toml:1:11: nothing says which hosts `@npm` stands for; write the hosts themselves, which `netbox learn -- COMMAND` finds"
        ]
    );
    run.expansions.insert_failure("npm", "`.npmrc` names no registry".to_owned());
    assert_eq!(
        run.errors(),
        ["netbox.toml:1:11: nothing says which hosts `@npm` stands for: `.npmrc` names no registry; \
          write the hosts themselves, which `netbox learn -- COMMAND` finds"]
    );
    run.expansions.insert("npm", vec![("packages.example:443".to_owned(), npmrc())]);
    assert_eq!(run.rules(), ["project packages.example:443 (netbox.toml:1:11 via @npm (.npmrc:2))"]);
    for text in ["*.example:443", "packages.example", "*", "10.0.0.1:443", "tcp://a.example:443", "@github", "a b"] {
        run.expansions.insert("npm", vec![(text.to_owned(), npmrc())]);
        let errors = run.errors();
        assert!(errors[0].contains("a derived rule is one name with its ports"), "{errors:?}");
    }
}

#[test]
fn a_derived_preset_that_nothing_reaches_is_not_asked_for() {
    let text = "[preset.mine]\nallow = [\"@npm\"]\n[profile.ci]\nallow = [\"@pip\"]\ndeny = [\"@mine\"]";
    let run = Run::default().file(Layer::Project, text);
    assert_eq!(run.stack().derived().unwrap(), []);
    assert_eq!(run.rules(), [""; 0]);
    let run = run.profile("ci");
    let names: Vec<_> = run.stack().derived().unwrap().into_iter().map(|used| used.name.to_string()).collect();
    assert_eq!(names, ["pip", "npm"]);
}
