//! `netbox completions`, `man`, `help` and `version`: made from the same definitions as the command line itself.

use std::io::{self, Write, stdout};

use clap::{Command, CommandFactory, Parser};
use roff::{Roff, bold, roman};

use crate::cli::{Cli, CompletionsArguments, HelpArguments, ManArguments};
use crate::{FAILED, USAGE, say, variables};

/// Prints the shell's completions. The value is the exit code.
pub fn completions(arguments: &CompletionsArguments) -> u8 {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "netbox", &mut script);
    print(&script)
}

/// Prints a help. The value is the exit code.
pub fn help(arguments: &HelpArguments) -> u8 {
    let words = &arguments.commands;
    if find(&root(), words).is_none() {
        return missing(words);
    }
    let words = std::iter::once("netbox").chain(words.iter().map(String::as_str)).chain(["--help"]);
    // Being asked for help counts as an error.
    told(Cli::try_parse_from(words).map_or_else(|help| help.print(), |_| Ok(())))
}

/// Prints the version. The value is the exit code.
pub fn version() -> u8 {
    print(root().render_version().as_bytes())
}

/// All commands, each with its full name.
fn root() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

fn missing(words: &[String]) -> u8 {
    let words = words.join(" ");
    say::error(format_args!("there is no command {}", netbox_config::quote(words.as_bytes())), None);
    USAGE
}

/// Prints a manual page. The value is the exit code.
pub fn man(arguments: &ManArguments) -> u8 {
    let root = root();
    let Some(command) = find(&root, &arguments.commands) else { return missing(&arguments.commands) };
    match page(command.clone()) {
        Ok(page) => print(&page),
        Err(error) => {
            say::error(format_args!("cannot make the page: {error}"), None);
            FAILED
        }
    }
}

fn find<'c>(root: &'c Command, words: &[String]) -> Option<&'c Command> {
    words
        .iter()
        .try_fold(root, |command, word| command.find_subcommand(word).filter(|subcommand| !subcommand.is_hide_set()))
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let version = concat!("netbox ", env!("CARGO_PKG_VERSION"));
    let (name, after) = (words_of(&command), command.get_after_long_help().map(ToString::to_string));
    // What comes after the help are exit codes, and belongs under a title of its own.
    clap_mangen::Man::new(command.after_long_help(None)).source(version).manual("netbox").render(&mut page)?;
    let mut rest = Roff::new();
    for (index, variable) in variables::of_command(&name).enumerate() {
        if index == 0 {
            rest.control("SH", ["ENVIRONMENT"]);
        }
        rest.control("TP", []).text([bold(variable.name)]).text([roman(variable.meaning)]);
    }
    if let Some(codes) = after {
        rest.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
    }
    page.extend(rest.to_roff().into_bytes());
    Ok(page)
}

/// The words of a command behind `netbox`; empty for netbox as a whole.
fn words_of(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_default();
    name.strip_prefix("netbox").unwrap_or(name).trim_start().to_owned()
}

fn print(text: &[u8]) -> u8 {
    told(stdout().lock().write_all(text))
}

fn told(done: io::Result<()>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            say::error(format_args!("cannot write to stdout: {error}"), None);
            FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(command: &Command) -> Vec<String> {
        let inner = command.get_subcommands().filter(|command| !command.is_hide_set()).flat_map(pages);
        let own = String::from_utf8(page(command.clone()).expect("memory can be written to")).expect("text");
        inner.chain([own]).collect()
    }

    #[test]
    fn every_command_has_a_page_with_its_name_and_its_flags() {
        let root = root();
        let pages = pages(&root);
        fn commands(command: &Command) -> usize {
            1 + command.get_subcommands().map(commands).sum::<usize>()
        }
        assert_eq!(pages.len(), commands(&root), "one for each, and one for all");
        let run = pages.iter().find(|page| page.contains(".TH netbox-run 1")).expect("a page for `run`");
        assert!(run.contains(r"\fB\-\-fail\-on\-block\fR"), "{run}");
        assert!(pages.iter().all(|page| !page.contains(r"\fB\-\-inside")), "a hidden flag is shown");
    }

    #[test]
    fn a_page_has_the_variables_of_its_command() {
        let root = root();
        let page = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            let page = page(find(&root, &words).expect("a command").clone()).expect("memory can be written to");
            String::from_utf8(page).expect("text")
        };
        for (words, expected) in
            [(&[][..], 10), (&["run"], 10), (&["check"], 5), (&["proxy", "serve"], 6), (&["man"], 0)]
        {
            let page = page(words);
            assert_eq!(page.matches(r"\fBNETBOX").count(), expected, "{page}");
            assert_eq!(page.contains(".SH ENVIRONMENT"), expected > 0);
        }
        assert!(page(&["run"]).contains(".SH \"EXIT STATUS\"\nExit codes"), "{}", page(&["run"]));
    }

    #[test]
    fn a_page_is_found_by_the_words_of_its_command() {
        let root = root();
        let name = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
            find(&root, &words).map(|command| command.get_bin_name().unwrap_or(command.get_name()).to_owned())
        };
        assert_eq!(name(&[]).as_deref(), Some("netbox"));
        assert_eq!(name(&["run"]).as_deref(), Some("netbox run"));
        assert_eq!(name(&["run", "run"]), None);
        assert_eq!(name(&["ran"]), None);
    }

    #[test]
    fn completions_offer_the_flags() {
        use clap_complete::Shell;
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "netbox", &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("fail-on-block"), "{shell}");
        }
    }
}
