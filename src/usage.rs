//! What was typed and has no meaning: what may have been meant.

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use netbox_config::quote;

use crate::cli::Cli;

/// The same error, with what to write where netbox's own way of being called is the likely stumbling block: a command
/// without `run` before it, or a flag of `run`.
pub fn explain(mut error: clap::Error) -> clap::Error {
    if let Some(tip) = tip(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

fn tip(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        // Something like it exists, and that has been said.
        (ErrorKind::InvalidSubcommand, _, _) if error.get(ContextKind::SuggestedSubcommand).is_some() => None,
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word)), _) => {
            let command = format!("netbox run -- {word}");
            Some(format!("to run a command, write {}", quote(command.as_bytes())))
        }
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(flag))) if is_flag_of_run(flag) => {
            Some(format!("{} belongs behind `netbox run`", quote(flag.as_bytes())))
        }
        _ => None,
    }
}

fn is_flag_of_run(flag: &str) -> bool {
    let root = Cli::command();
    let run = root.find_subcommand("run");
    let mut arguments = run.into_iter().flat_map(clap::Command::get_arguments);
    arguments.any(|argument| {
        let long = argument.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
        long || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn shown(words: &[&str]) -> String {
        let words = std::iter::once("netbox").chain(words.iter().copied());
        explain(Cli::try_parse_from(words).expect_err("a mistake")).render().to_string()
    }

    #[test]
    fn a_command_without_run_is_told_of_it() {
        assert!(shown(&["curl", "https://example.com"]).contains("tip: to run a command, write `netbox run -- curl`"));
        assert!(shown(&["a\u{1b}b"]).contains("`netbox run -- a\\x1bb`"));
        assert!(shown(&["rum"]).contains("'run'") && !shown(&["rum"]).contains("to run a command"));
    }

    #[test]
    fn a_flag_of_run_before_run_is_told_of_it() {
        for flag in ["--allow", "-a", "--mode"] {
            assert!(
                shown(&[flag, "x", "true"]).contains(&format!("tip: `{flag}` belongs behind `netbox run`")),
                "{flag}"
            );
        }
        assert!(!shown(&["--odd"]).contains("belongs"));
        assert!(!shown(&["run", "--alow", "x", "true"]).contains("belongs"));
    }
}
