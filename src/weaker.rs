//! Walls that may be missing, since the person said so (`--allow-weaker`).

use std::env;

use clap::ValueEnum;

use crate::cli::Weaker;
use crate::variables;

/// What the flag and the environment allow.
///
/// # Errors
/// What is wrong with the environment's word.
pub fn allowed(flag: &[Weaker]) -> Result<Vec<Weaker>, String> {
    let words = env::var(variables::ALLOW_WEAKER).unwrap_or_default();
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let variable = words.map(|word| {
        let wrong = |_| {
            format!(
                "{}: {} is no wall that may be missing",
                variables::ALLOW_WEAKER,
                netbox_config::quote(word.as_bytes())
            )
        };
        Weaker::from_str(word, false).map_err(wrong)
    });
    flag.iter().copied().map(Ok).chain(variable).collect()
}

/// What is to be said where a `/proc` of the sandbox's own is missing.
pub const NO_PROC: &str = "`/proc` is not the sandbox's own (`--allow-weaker proc`): the command sees the processes around it, by name and command line";
