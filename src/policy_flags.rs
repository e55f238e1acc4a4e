//! From flags and environment to a policy, with every rule knowing where it was written.

use std::env;
use std::str::FromStr;

use netbox_config::{CommandLine, Entry, Expansions, List, Mode, Policy, Rule, Source, Stack, split_rules};

use crate::cli::PolicyArguments;
use crate::say::Voice;
use crate::variables;

/// A policy, and what should be said about it.
pub struct Effective {
    pub policy: Policy,
    pub warnings: Vec<String>,
    /// Nothing was asked for at all: no rule and no mode.
    pub is_default: bool,
}

impl Effective {
    /// Says what should be said about it before anything runs.
    pub fn warn(&self, voice: Voice) {
        for warning in &self.warnings {
            voice.warn(warning);
        }
        if self.is_default {
            voice.warn("nothing is allowed, so nothing is reachable; allow hosts with `--allow HOST`");
        }
        match self.policy.mode() {
            Mode::Open => voice.warn("mode `open`: every host is reachable, private addresses too"),
            Mode::Audit => voice.warn("mode `audit`: what no rule allows passes as well, and is told at the end"),
            Mode::Allowlist | Mode::None => {}
        }
    }
}

impl Effective {
    /// Says which rules cannot do inside a sandbox what their writer may expect.
    pub fn warn_inside(&self, voice: Voice) {
        let loopback = |rule: &&Rule| {
            let host = rule.text().trim_start_matches("tcp://").trim_start_matches('[');
            host == "localhost" || host.starts_with("localhost:") || host.starts_with("127.") || host.starts_with("::1")
        };
        for rule in self.policy.allow().iter().filter(loopback) {
            voice.warn(format_args!(
                "{}: rule `{}`: inside, loopback is the sandbox's own and needs no rule; a connect to it does not reach this machine's, which `--host-port PORT` does",
                rule.source(),
                rule.text()
            ));
        }
    }
}

/// Builds the policy.
///
/// # Errors
/// What is wrong with it, a line for each, which quotes the rule or the mode with its source.
pub fn resolve(arguments: &PolicyArguments) -> Result<Effective, String> {
    let command_line = command_line(arguments)?;
    let is_default = command_line.allow.is_empty() && command_line.mode.is_none();
    let compiled = Stack::new(&command_line).compile(&Expansions::default()).map_err(|errors| errors.to_string())?;
    let warnings = compiled.warnings().to_vec();
    Ok(Effective { policy: compiled.into_policy(), warnings, is_default })
}

/// The innermost layer: what was typed, and what stands in the environment.
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

fn entries(flags: &[String], flag: &'static str, name: &'static str, list: List) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let from_flags = flags.iter().map(|texts| (texts.clone(), Source::Flag(flag)));
    // An empty variable is one that is not set.
    let from_environment = variable(name)?.map(|texts| (texts, Source::Environment(name)));
    for (texts, source) in from_flags.chain(from_environment) {
        for text in split_rules(&texts).map_err(|error| error.with_source(source.clone()).to_string())? {
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
