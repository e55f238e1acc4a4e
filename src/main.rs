//! The `netbox` command: what was typed, what it resolves to, and what is said about it. No enforcement lives here.

#![forbid(unsafe_code)]

mod caught_ports;
mod check;
mod cli;
mod connects;
mod dependencies;
mod devices;
mod doctor;
mod dry_run;
mod environment;
mod event_sink;
mod generate;
mod interrupted;
mod interruptions;
mod learn;
mod outer;
mod passed;
mod place;
mod policy;
mod policy_flags;
mod ports;
mod profiles;
mod protected;
mod published;
mod reference;
mod run;
mod say;
mod served_mounts;
mod service;
mod session;
mod signals;
mod summary;
mod threats;
mod unix_sockets;
mod usage;
mod variables;
mod via;
mod weaker;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// What was typed has no meaning.
const USAGE: u8 = 2;
/// Netbox itself failed, or the command did not run.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let cli = cli::Cli::read(&words).unwrap_or_else(|error| usage::explain(error).exit());
    // A fault of ours must not look like the command's own exit code.
    let code = catch_unwind(|| match cli.command {
        cli::Command::Run(arguments) => run::run(arguments),
        cli::Command::Learn(arguments) => learn::learn(arguments),
        cli::Command::Check(arguments) => check::check(&arguments),
        cli::Command::Policy(cli::PolicyCommand::Show(arguments)) => policy::show(&arguments),
        cli::Command::Policy(cli::PolicyCommand::Lint(arguments)) => policy::lint(&arguments),
        cli::Command::Policy(cli::PolicyCommand::Presets(arguments)) => policy::presets(&arguments),
        cli::Command::Trust(arguments) => policy::trust(&arguments),
        cli::Command::Untrust(arguments) => policy::untrust(&arguments),
        cli::Command::Doctor(arguments) => doctor::doctor(&arguments),
        cli::Command::Proxy(cli::ProxyCommand::Serve(arguments)) => service::serve(&arguments),
        cli::Command::Proxy(cli::ProxyCommand::Status(arguments)) => service::status(&arguments),
        cli::Command::Proxy(cli::ProxyCommand::Reload(arguments)) => service::reload(&arguments),
        cli::Command::Proxy(cli::ProxyCommand::Drain(arguments)) => service::drain(&arguments),
        cli::Command::Proxy(cli::ProxyCommand::Token(cli::TokenCommand::New(arguments))) => {
            service::token_new(&arguments)
        }
        cli::Command::Completions(arguments) => generate::completions(&arguments),
        cli::Command::Man(arguments) => generate::man(&arguments),
        cli::Command::Help(arguments) => generate::help(&arguments),
        cli::Command::Version => generate::version(),
    });
    ExitCode::from(code.unwrap_or(FAILED))
}
