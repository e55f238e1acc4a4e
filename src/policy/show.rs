//! `netbox policy show`: the policy that a run here would have, and where each part of it comes from.

use std::fmt::Write as _;
use std::io::{self, Write, stdout};

use netbox_config::{Compiled, Ech, EffectiveRule, Kind, Source};
use serde_json::{Value, json};

use super::effective::{Effective, Standing, UsedFile};
use super::load::{self, Asking};
use super::shown;
use crate::cli::ShowArguments;
use crate::{FAILED, USAGE, say};

/// Rules are padded to a common width, up to this one.
const WIDEST: usize = 40;

/// Prints it. The value is the exit code.
pub fn show(arguments: &ShowArguments) -> u8 {
    let effective = match load::load(&arguments.policy, arguments.project.trust_project.as_deref(), Asking::Onlooker) {
        Ok(effective) => effective,
        Err(refused) => {
            say::error(&refused, refused.hint.as_deref());
            return USAGE;
        }
    };
    if let Err(error) = print(&effective, arguments.json) {
        say::error(format_args!("cannot write to stdout: {error}"), None);
        return FAILED;
    }
    effective.passed_over.iter().for_each(say::note);
    match &effective.untrusted {
        None => 0,
        Some(why) => {
            say::error(why, why.hint.as_deref());
            USAGE
        }
    }
}

fn print(effective: &Effective, as_json: bool) -> io::Result<()> {
    let text = if as_json { format!("{:#}\n", json(effective)) } else { text(effective) };
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn text(effective: &Effective) -> String {
    let compiled = &effective.compiled;
    let mut out = String::new();
    // Writing to a string does not fail, here and below.
    let _ = match compiled.mode_source() {
        Some((layer, source)) => writeln!(out, "mode     {}  {layer}  {source}", compiled.policy().mode()),
        None => writeln!(out, "mode     {}  default", compiled.policy().mode()),
    };
    if let Some(profile) = compiled.profile() {
        let _ = writeln!(out, "profile  {profile}");
    }
    if compiled.policy().ech() == Ech::Refuse {
        out.push_str("ech      refuse\n");
    }
    for UsedFile { layer, path, standing, .. } in &effective.files {
        let layer = layer.as_str();
        let why = match standing {
            Standing::System | Standing::User => String::new(),
            Standing::Untrusted => ", untrusted: not in force".to_owned(),
            standing => format!(", {}", standing.as_str()),
        };
        let _ = writeln!(out, "file     {}  {layer}{why}", shown(path));
    }
    let _ = writeln!(out, "digest   {}", compiled.policy().digest());
    section(&mut out, "allow", compiled, |kind| kind == Kind::Allow);
    section(&mut out, "deny", compiled, |kind| kind == Kind::Deny);
    for (place, ceiling) in compiled.policy().ceilings().iter().enumerate() {
        let title = format!("ceiling  {}", ceiling.source());
        section(&mut out, &title, compiled, |kind| kind == Kind::Ceiling(place));
    }
    for warning in warnings(compiled) {
        let _ = writeln!(out, "\nwarning: {warning}");
    }
    for note in &effective.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

/// What a run would warn of.
fn warnings(compiled: &Compiled) -> Vec<String> {
    let dead = compiled.without_effect();
    let dead = dead.iter().map(|lint| format!("{}: {}", lint.source(), lint.text()));
    compiled.warnings().iter().map(ToString::to_string).chain(dead).collect()
}

/// A title, and a line for each rule; `nothing` where there is none.
fn section(out: &mut String, title: &str, compiled: &Compiled, wanted: impl Fn(Kind) -> bool) {
    let rules: Vec<_> = compiled.rules().filter(|rule| wanted(rule.kind)).collect();
    let _ = writeln!(out, "\n{title}");
    if rules.is_empty() {
        out.push_str("  nothing\n");
    }
    let width = |text: &str| text.chars().count();
    let column = rules.iter().map(|rule| width(rule.rule.text())).filter(|width| *width <= WIDEST).max().unwrap_or(0);
    for EffectiveRule { layer, rule, .. } in rules {
        let padding = " ".repeat(column.saturating_sub(width(rule.text())));
        let _ = writeln!(out, "  {}{padding}  {layer:12}  {}", rule.text(), rule.source());
    }
}

fn json(effective: &Effective) -> Value {
    let compiled = &effective.compiled;
    let policy = compiled.policy();
    let rules = |wanted: Kind| -> Vec<Value> {
        compiled.rules().filter(|rule| rule.kind == wanted).map(|rule| rule_json(&rule)).collect()
    };
    let ceilings = policy.ceilings().iter().enumerate();
    let ceilings: Vec<_> = ceilings
        .map(|(place, ceiling)| json!({ "source": ceiling.source().to_string(), "rules": rules(Kind::Ceiling(place)) }))
        .collect();
    let mode_source = compiled.mode_source();
    json!({
        "mode": {
            "mode": policy.mode().as_str(),
            "layer": mode_source.map(|(layer, _)| layer.as_str()),
            "source": mode_source.map(|(_, source)| source.to_string()),
        },
        "profile": compiled.profile(),
        "ech": policy.ech().as_str(),
        "files": effective.files.iter().map(UsedFile::json).collect::<Vec<_>>(),
        "policy": policy.digest(),
        "allow": rules(Kind::Allow),
        "deny": rules(Kind::Deny),
        "ceilings": ceilings,
        "warnings": warnings(compiled),
        "notes": effective.notes,
    })
}

fn rule_json(rule: &EffectiveRule<'_>) -> Value {
    let source = rule.rule.source();
    let (file, line, column) = match source.written() {
        Source::File { path, line, column } => (Some(path.to_string_lossy().into_owned()), Some(line), Some(column)),
        _ => (None, None, None),
    };
    json!({
        "text": rule.rule.text(),
        "layer": rule.layer.as_str(),
        "source": source.to_string(),
        "file": file,
        "line": line,
        "column": column,
        "presets": source.presets().iter().map(|name| &**name).collect::<Vec<_>>(),
    })
}
