//! `docs/presets.md` is made from the table of built-in presets, and is stale when it says something else.

use std::fmt::Write as _;
use std::{env, fs};

use netbox_config::presets::{self, BUILTIN, DERIVED};

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
    text.push_str(
        "\n## Derived presets\n\nThese have no list of their own. They stand for hosts that the project and this machine are configured \
         with;\n`netbox policy show --allow @NAME` tells which, and where each is written; [policy.md](policy.md) how they are found. No package registry is built in.\n\n\
         | preset | stands for |\n| --- | --- |\n",
    );
    for name in DERIVED {
        let _ = writeln!(text, "| `@{name}` | {} |", presets::about(name).unwrap());
    }
    text
}

fn upper(about: &str) -> String {
    let mut letters = about.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
