//! `docs/cli.md` is made from the definitions of the command line, and is stale when it says something else.

#![cfg(test)]

use std::fmt::Write as _;
use std::{env, fs};

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::variables::VARIABLES;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
const RENEW: &str = "NETBOX_WRITE_REFERENCE=1 cargo test --bin netbox reference";

#[test]
fn the_command_line_reference_is_up_to_date() {
    let wanted = reference();
    if env::var_os("NETBOX_WRITE_REFERENCE").is_some_and(|value| value == "1") {
        fs::write(PATH, &wanted).expect("docs/cli.md can be written to");
    }
    let present = fs::read_to_string(PATH).unwrap_or_default();
    let differs = present.lines().zip(wanted.lines()).find(|(present, wanted)| present != wanted);
    assert!(
        present == wanted,
        "docs/cli.md is stale; renew it with `{RENEW}`\nthe first difference, where it is one of lines: {differs:#?}"
    );
}

fn reference() -> String {
    let mut root = Cli::command();
    // Gives every command its full name and usage.
    root.build();
    let mut text = String::from("# The command line\n\n");
    let _ = writeln!(text, "<!-- Made from src/cli by `{RENEW}`; do not edit it here. -->\n");
    let _ = writeln!(text, "{}\n", about(&root));
    let _ = writeln!(
        text,
        "`-h` shows a short help for each command, `--help` a long one, and `netbox --version` the version.\n"
    );
    let _ = writeln!(text, "| command | meaning |\n| --- | --- |");
    let commands = visible(&root);
    for command in &commands {
        let name = command.get_bin_name().unwrap_or(command.get_name());
        let short = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "| [`{name}`](#{}) | {short} |", name.replace(' ', "-"));
    }
    for command in commands {
        section(&mut text, command);
    }
    environment(&mut text);
    text
}

fn environment(text: &mut String) {
    let _ = writeln!(text, "\n## Environment\n\nA variable that is empty counts as one that is not set.\n");
    let _ = writeln!(text, "| variable | commands | meaning |\n| --- | --- | --- |");
    for variable in &VARIABLES {
        let commands = variable.commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| `{}` | {commands} | {} |", variable.name, variable.meaning);
    }
}

/// All commands that do something, in the order of their definition.
fn visible(command: &Command) -> Vec<&Command> {
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let leaves = |command| {
        let inner = visible(command);
        if inner.is_empty() { vec![command] } else { inner }
    };
    subcommands.flat_map(leaves).collect()
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    sentences(&about.unwrap_or_default())
}

fn section(text: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "\n## {}\n", command.get_bin_name().unwrap_or(command.get_name()));
    let _ = writeln!(text, "    {}\n", usage.trim_start_matches("Usage: "));
    let _ = writeln!(text, "{}", about(command));
    let shown = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str()));
    let (positional, options): (Vec<_>, Vec<_>) = shown.partition(|argument| argument.is_positional());
    for (index, argument) in positional.into_iter().chain(options).enumerate() {
        if index == 0 {
            text.push('\n');
        }
        entry(text, argument);
    }
    if let Some(after) = command.get_after_long_help() {
        let _ = writeln!(text, "\n{}", after.to_string().trim_end());
    }
}

fn entry(text: &mut String, argument: &Arg) {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "* {}: {}", spelling(argument), sentences(&help));
    let values = argument.get_possible_values();
    // A name such as `auto|never` tells them already.
    let told = argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains('|')));
    if argument.get_action().takes_values() && !told && !values.is_empty() {
        let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let _ = write!(text, " One of {}.", names.join(", "));
    }
    text.push('\n');
}

/// The paragraphs as one. The first of a help text is written without a full stop.
fn sentences(help: &str) -> String {
    let closed = |paragraph: &str| {
        let paragraph = paragraph.trim_end();
        if paragraph.ends_with('.') { paragraph.to_owned() } else { format!("{paragraph}.") }
    };
    help.split("\n\n").map(closed).collect::<Vec<_>>().join(" ")
}

/// As it is typed: `-a`, `--allow RULE`.
fn spelling(argument: &Arg) -> String {
    let value = argument.get_value_names().map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    let value = value.filter(|_| argument.get_action().takes_values()).unwrap_or_default().join(" ");
    if argument.is_positional() {
        return format!("`{value}`");
    }
    let long = argument.get_long().map(|long| format!("--{long} {value}"));
    let short = argument
        .get_short()
        .map(|short| if long.is_some() { format!("-{short}") } else { format!("-{short} {value}") });
    let names = short.into_iter().chain(long).map(|name| format!("`{}`", name.trim_end()));
    names.collect::<Vec<_>>().join(", ")
}
