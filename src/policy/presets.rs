//! `netbox policy presets`: the presets that netbox brings.

use std::fmt::Write as _;
use std::io::{self, Write, stdout};

use netbox_config::presets::{self, BUILTIN, Builtin};
use netbox_config::quote;
use serde_json::{Value, json};

use crate::cli::PresetsArguments;
use crate::{FAILED, USAGE, say};

/// Lists them, or prints one. The value is the exit code.
pub fn presets(arguments: &PresetsArguments) -> u8 {
    let text = match arguments.name.as_deref().map(|name| name.strip_prefix('@').unwrap_or(name)) {
        None if arguments.json => presets::names().map(|name| format!("{}\n", as_json(name))).collect(),
        None => list(),
        Some(name) if presets::about(name).is_none() => {
            let what = format_args!("netbox has no preset {}", quote(name.as_bytes()));
            say::error(
                what,
                Some("`netbox policy presets` lists them; those of policy files are in `netbox policy show`"),
            );
            return USAGE;
        }
        Some(name) if arguments.json => format!("{}\n", as_json(name)),
        Some(name) => one(name),
    };
    match print(&text) {
        Ok(()) => 0,
        Err(error) => {
            say::error(format_args!("cannot write to stdout: {error}"), None);
            FAILED
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTIN.iter().find(|preset| preset.name == name)
}

fn list() -> String {
    let line = |name: &str| format!("@{name:10} {}\n", presets::about(name).unwrap_or_default());
    presets::names().map(line).collect()
}

fn one(name: &str) -> String {
    let about = presets::about(name).unwrap_or_default();
    // Writing to a string does not fail.
    let mut text = format!("@{name}: {about}\n");
    match builtin(name) {
        Some(preset) => {
            preset.rules.iter().for_each(|rule| {
                let _ = writeln!(text, "  {rule}");
            });
            let _ = writeln!(text, "looked up on {} in", preset.checked);
            preset.sources.iter().for_each(|source| {
                let _ = writeln!(text, "  {source}");
            });
        }
        None => {
            let _ = writeln!(text, "  derived here: `netbox policy show --allow @{name}` tells the hosts");
        }
    }
    text
}

fn as_json(name: &str) -> Value {
    let preset = builtin(name);
    json!({
        "name": name,
        "about": presets::about(name),
        "kind": if preset.is_some() { "builtin" } else { "derived" },
        "rules": preset.map(|preset| preset.rules),
        "sources": preset.map(|preset| preset.sources),
        "checked": preset.map(|preset| preset.checked),
    })
}
