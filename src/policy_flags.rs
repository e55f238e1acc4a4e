//! What flags and environment say about the policy, with every rule knowing where it was written.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;

use netbox_config::{CommandLine, Entry, List, Mode, Source, split_rules};

use crate::cli::PolicyArguments;
use crate::variables;

/// The innermost layer.
///
/// Rules from the flag and from the environment variable add up; a mode on the command line wins over NETBOX_MODE, and
/// `--mode none` over NETBOX_ALLOW.
///
/// # Errors
/// One line that quotes the rule or the mode, with its source.
pub fn command_line(arguments: &PolicyArguments) -> Result<CommandLine, String> {
    let mut allow = entries(&arguments.allow, "--allow", variables::ALLOW, List::Allow)?;
    if arguments.mode == Some(Mode::None) && arguments.allow.is_empty() {
        // What is typed wins over what lies around: here it refuses everything.
        allow.clear();
    }
    let deny = entries(&arguments.deny, "--deny", variables::DENY, List::Deny)?;
    let mode = match (arguments.mode, variable(variables::MODE)?) {
        (Some(mode), _) => Some((mode, Source::Flag("--mode"))),
        (None, Some(text)) => {
            let mode = Mode::from_str(&text).map_err(|error| format!("{}: {error}", variables::MODE))?;
            Some((mode, Source::Environment(variables::MODE)))
        }
        (None, None) => None,
    };
    Ok(CommandLine { allow, deny, mode })
}

/// The policy file that is named: by the flag, else by the environment, unless `--no-config` sets that aside.
///
/// # Errors
/// The environment names one that depends on where netbox is: to trust that would be to trust whatever is cloned.
pub fn named_file(arguments: &PolicyArguments) -> Result<Option<PathBuf>, String> {
    if arguments.config.is_some() || arguments.no_config {
        return Ok(arguments.config.clone());
    }
    match env::var_os(variables::CONFIG).filter(|name| !name.is_empty()).map(PathBuf::from) {
        Some(path) if path.is_relative() => {
            let path = netbox_config::quote(path.as_os_str().as_encoded_bytes()).to_string();
            Err(format!("{}: {path} is another file in every directory; write a path from `/`", variables::CONFIG))
        }
        path => Ok(path),
    }
}

/// The profile that is chosen: by the flag, else by the environment.
///
/// # Errors
/// The variable is not UTF-8.
pub fn profile(arguments: &PolicyArguments) -> Result<Option<String>, String> {
    match &arguments.profile {
        Some(name) => Ok(Some(name.clone())),
        None => variable(variables::PROFILE),
    }
}

fn entries(flags: &[String], flag: &'static str, name: &'static str, list: List) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let from_flags = flags.iter().map(|list| (list.clone(), Source::Flag(flag)));
    // An empty variable is one that is not set.
    let from_environment = variable(name)?.map(|list| (list, Source::Environment(name)));
    for (text, source) in from_flags.chain(from_environment) {
        for text in split_rules(&text).map_err(|error| error.with_source(source.clone()).to_string())? {
            entries.push(Entry::parse(&text, list, source.clone()).map_err(|error| error.to_string())?);
        }
    }
    Ok(entries)
}

fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not UTF-8")),
    }
}
