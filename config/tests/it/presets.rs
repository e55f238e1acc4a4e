//! `docs/presets.md` is made from the table of built-in presets, and is stale when it says something else.

use std::fmt::Write as _;
use std::{env, fs};

use netbox_config::presets::{BUILTIN, DERIVED};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/presets.md");
const RENEW: &str = "NETBOX_WRITE_REFERENCE=1 cargo test -p netbox-config the_list_of_presets";

#[test]
fn the_list_of_presets_is_up_to_date() {
    let wanted = document();
    if env::var_os("NETBOX_WRITE_REFERENCE").is_some_and(|value| value == "1") {
        fs::write(PATH, &wanted).expect("docs/presets.md can be written to");
    }
    let present = fs::read_to_string(PATH).unwrap_or_default();
    assert_eq!(present, wanted, "docs/presets.md is stale; renew it with `{RENEW}`");
}

fn document() -> String {
    let mut text = String::from("# Presets\n\n");
    let _ = writeln!(text, "<!-- Made from config/src/presets/builtin.rs by `{RENEW}`; do not edit it here. -->\n");
    text.push_str(
        "`@name` stands for a list of rules, wherever a rule may stand. These are built in; a policy file can add presets of\n\
         its own, under other names. Hosts that only telemetry needs are left out.\n",
    );
    for preset in BUILTIN {
        let _ =
            writeln!(text, "\n## @{}\n\n{}\n\n    {}\n", preset.name, upper(preset.about), preset.rules.join("\n    "));
        let sources: Vec<_> = preset.sources.iter().map(|source| format!("<{source}>")).collect();
        let _ = writeln!(text, "Looked up on {} in {}", preset.checked, sources.join(", "));
    }
    let derived: Vec<_> = DERIVED.iter().map(|name| format!("`@{name}`")).collect();
    let _ = writeln!(
        text,
        "\n## Derived presets\n\n{} have no list of their own: they stand for the hosts that the project and this machine are\n\
         configured with. No package registry is built in.",
        derived.join(", ")
    );
    text
}

fn upper(about: &str) -> String {
    let mut letters = about.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
