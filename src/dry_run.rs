//! `--dry-run`: what would run, and with what policy.

use std::ffi::OsString;
use std::io::{self, Write, stdout};
use std::path::Path;

use netbox_config::Rule;
use serde_json::{Value, json};

use crate::policy::{Effective, UsedFile};
use crate::ports::Ports;

/// Prints it to stdout.
///
/// # Errors
/// stdout could not be written to.
pub fn print(
    command: &[OsString],
    effective: &Effective,
    ports: &Ports,
    via: Option<&Path>,
    as_json: bool,
) -> io::Result<()> {
    let policy = effective.policy();
    let mut out = stdout().lock();
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    if as_json {
        let rules = |rules: &[Rule]| -> Vec<Value> { rules.iter().map(rule).collect() };
        let mut object = json!({
            "command": words,
            "mode": policy.mode().to_string(),
            "policy": policy.digest(),
            "files": effective.files.iter().map(UsedFile::json).collect::<Vec<_>>(),
            "allow": rules(policy.allow()),
            "deny": rules(policy.deny()),
            "host_ports": ports.host.iter().map(|door| &door.text).collect::<Vec<_>>(),
            "published": ports.published.iter().map(|door| &door.text).collect::<Vec<_>>(),
        });
        if let Some(via) = via {
            object["via"] = format!("unix:{}", via.display()).into();
        }
        return writeln!(out, "{object}");
    }
    let words: Vec<_> = words.iter().map(|word| netbox_config::quote(word.as_bytes()).to_string()).collect();
    writeln!(out, "command  {}", words.join(" "))?;
    writeln!(out, "mode     {}", policy.mode())?;
    for UsedFile { layer, path, standing, .. } in &effective.files {
        let path = netbox_config::quote(path.as_os_str().as_encoded_bytes());
        writeln!(out, "file     {path}  ({}, {})", layer.as_str(), standing.as_str())?;
    }
    if let Some(via) = via {
        let via = netbox_config::quote(via.as_os_str().as_encoded_bytes());
        writeln!(out, "via      {via}, which grants at most what follows")?;
    }
    for (verb, rules) in [("allow", policy.allow()), ("deny", policy.deny())] {
        for rule in rules {
            writeln!(out, "{verb:8} {}  ({})", rule.text(), rule.source())?;
        }
    }
    for door in &ports.host {
        writeln!(out, "opens    127.0.0.1:{} inside to 127.0.0.1:{} here  (--host-port)", door.port, door.host_port)?;
    }
    for door in &ports.published {
        let port = door.port.map_or_else(|| "a port".to_owned(), |port| format!("127.0.0.1:{port}"));
        writeln!(out, "opens    {port} here to 127.0.0.1:{} inside  (--publish)", door.sandbox_port)?;
    }
    Ok(())
}

fn rule(rule: &Rule) -> Value {
    json!({ "text": rule.text(), "source": rule.source().to_string() })
}
