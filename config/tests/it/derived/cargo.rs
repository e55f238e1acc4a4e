//! `.cargo/config.toml`.

use std::collections::BTreeMap;

use netbox_config::derived::{Setting, cargo};

use super::{page, show};

fn resolve(texts: &[&str]) -> String {
    resolve_with(&[], texts)
}

fn resolve_with(variables: &[(&str, &str)], texts: &[&str]) -> String {
    let files: Result<Vec<_>, _> = texts.iter().map(|text| cargo::parse(&page("config.toml", text))).collect();
    let setting = |value| Setting::of_environment("CARGO_REGISTRIES_NAME_INDEX", value);
    let variables =
        variables.iter().map(|(name, value)| ((*name).to_owned(), setting(*value))).collect::<BTreeMap<_, _>>();
    show(files.and_then(|files| cargo::resolve(&variables, &files)))
}

#[test]
fn crates_io_is_what_it_is_replaced_with() {
    for (text, expected) in [
        ("", "default"),
        ("[net]\nretry = 1", "default"),
        (
            "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://crates.example.com/\"",
            "crates.example.com:443 config.toml:4",
        ),
        (
            "source.crates-io.replace-with = \"a\"\nsource.a.replace-with = \"b\"\nsource.b.registry = \"https://b.example.com/\"",
            "b.example.com:443 config.toml:3",
        ),
        (
            "[source.crates-io]\nreplace-with = \"corp\"\n[registries.corp]\nindex = \"sparse+https://corp.example.com/\"",
            "corp.example.com:443 config.toml:4",
        ),
        ("[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"vendor\"", ""),
        ("[source.crates-io]\nregistry = \"https://c.example.com/\"", "c.example.com:443 config.toml:2"),
        (
            "[registries]\nextra = { index = \"sparse+https://x.example.com/\" }",
            "x.example.com:443 config.toml:2; default",
        ),
        ("[registry]\nindex = \"ssh://git@old.example.com/index\"", "old.example.com:22 config.toml:2; default"),
        ("[source.crates-io]\nreplace-with = \"m\"", "error config.toml:2: `m` leads to nothing"),
        (
            "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"crates-io\"",
            "error config.toml:4: `crates-io` leads to nothing",
        ),
        ("[registries.x]\nindex = 1", "error config.toml:2: not valid: a string is wanted here"),
        (
            "[registries.x]\nindex = \"x.example.com\"",
            "error config.toml:2: not a URL, or one of a form that netbox does not read",
        ),
        ("\n[source", "error config.toml:2: not valid: it is no TOML"),
    ] {
        assert_eq!(resolve(&[text]), expected, "{text}");
    }
}

#[test]
fn the_nearer_file_counts_key_by_key() {
    let near = "[registries.a]\nindex = \"https://near.example.com/\"";
    let far = "[registries]\na.index = \"https://far.example.com/\"\nb.index = \"https://b.example.com/\"";
    assert_eq!(resolve(&[near, far]), "near.example.com:443 config.toml:2; b.example.com:443 config.toml:3; default");
    assert_eq!(
        resolve_with(&[("a", "https://env.example.com/")], &[near]),
        "env.example.com:443 CARGO_REGISTRIES_NAME_INDEX; default"
    );
}
