//! What can be typed. No I/O: the meaning of it is resolved elsewhere.

mod ask;
mod events;
mod learn;
mod policy;
mod ports;
mod run;
mod serve;
mod setting;
mod token;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use ask::{AskArguments, StatusArguments};
pub use events::EventDestination;
pub use learn::LearnArguments;
pub use policy::{PolicyArguments, ProjectArguments, TrustArguments, UntrustArguments};
pub use ports::{HostPortArgument, PublishArgument};
pub use run::{ProxyEnvironment, RunArguments, Weaker};
pub use serve::{ServeArguments, unix_path};
pub use setting::Setting;
pub use token::{TokenArguments, TokenCommand};

/// Run a command that reaches the hosts on a list, and nothing else.
#[derive(Debug, Parser)]
#[command(name = "netbox", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was typed, `netbox` itself first.
    ///
    /// # Errors
    /// It has no meaning, or is a question that the error answers.
    pub fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        // To know all the other commands takes longer than all that follows before the sandbox is built.
        if words.get(1).is_some_and(|word| word == "run")
            && let Ok(run) = Run::try_parse_from(&words[1..])
        {
            return Ok(Self { command: Command::Run(run.arguments) });
        }
        Self::try_parse_from(words)
    }
}

/// `netbox run`, where it has a meaning. The help and the errors are those of [`Cli`].
#[derive(Debug, Parser)]
#[command(name = "run", disable_help_flag = true)]
struct Run {
    #[command(flatten)]
    arguments: RunArguments,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, and everything that it starts, with the network limited to the policy
    #[command(override_usage = "netbox run [OPTIONS] [--] CMD [ARG]...", after_long_help = RUN_EXIT_CODES)]
    Run(RunArguments),
    /// Say whether a target would be allowed, and by which rule
    #[command(after_long_help = CHECK_EXIT_CODES)]
    Check(CheckArguments),
    /// The policy that a run here would have, and what is worth knowing about policy files
    #[command(subcommand, disable_help_subcommand = true)]
    Policy(PolicyCommand),
    /// Run a command, and write the hosts that it needed to the project's policy file
    ///
    /// The command runs in mode `audit`: every public host passes. What deny rules, ceilings and the guard refuse stays
    /// refused, and is not proposed. The change is shown, and written on a yes.
    #[command(override_usage = "netbox learn [OPTIONS] [--] CMD [ARG]...", after_long_help = LEARN_EXIT_CODES)]
    Learn(LearnArguments),
    /// Accept the content that the project's policy file has now
    ///
    /// Typing it is the consent, with a terminal or without. What is remembered is that content, at that place: after any
    /// change, netbox asks again.
    #[command(after_long_help = TRUST_EXIT_CODES)]
    Trust(TrustArguments),
    /// No longer accept it
    #[command(after_long_help = TRUST_EXIT_CODES)]
    Untrust(UntrustArguments),
    /// Say whether netbox can isolate here, and if not, why, and how to fix it
    #[command(after_long_help = DOCTOR_EXIT_CODES)]
    Doctor(DoctorArguments),
    /// The same filter as a proxy, for programs that are told of one
    #[command(subcommand, disable_help_subcommand = true)]
    Proxy(ProxyCommand),
    /// Print a script that completes netbox's commands and flags in a shell
    Completions(CompletionsArguments),
    /// Print a manual page, for `man -l -`
    Man(ManArguments),
    /// Print the help of netbox, or of a command, as `--help` does
    Help(HelpArguments),
    /// Print the version, as `--version` does
    Version,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy that a run here would have: each rule with the layer, file and line that it comes from
    ///
    /// Presets are shown as the rules that they stand for.
    #[command(after_long_help = SHOW_EXIT_CODES)]
    Show(ShowArguments),
    /// Tell what is wrong with policy files, and what is right and may not be what is meant
    ///
    /// Files are read and parsed as for a run; nothing is run or trusted for it.
    #[command(after_long_help = LINT_EXIT_CODES)]
    Lint(LintArguments),
    /// List the presets that netbox brings, or print what one of them stands for
    ///
    /// Built-in ones have rules of their own; derived ones stand for what the tools on this machine are configured with, which
    /// `netbox policy show --allow @NAME` tells.
    Presets(PresetsArguments),
}

#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    /// Serve sandboxes that were started with `netbox run --via`, and programs that are told of a proxy, until SIGINT or SIGTERM
    ///
    /// The proxy speaks HTTP CONNECT, HTTP and SOCKS5 on one port. Where to listen can also stand in `[service]` of a policy file, or
    /// come from systemd as sockets that outlive the service.
    #[command(after_long_help = SERVE_EXIT_CODES)]
    Serve(ServeArguments),
    /// Tell how the service is: who is carried, what is open, what was refused
    ///
    /// Whoever runs the service, and root, sees everything; other users see their own sandboxes.
    #[command(after_long_help = ASK_EXIT_CODES)]
    Status(StatusArguments),
    /// Have the service read its files anew
    ///
    /// Connections that are no longer allowed are ended, and the others are not touched. If a file is wrong, what is wrong is told,
    /// and the policy that is in force stays so.
    #[command(after_long_help = ASK_EXIT_CODES)]
    Reload(AskArguments),
    /// Have the service end, once what is open has finished
    ///
    /// No more connections are taken from now on. What has not finished when the time of `--drain-timeout` is over is ended.
    /// This command does not wait for that.
    #[command(after_long_help = ASK_EXIT_CODES)]
    Drain(AskArguments),
    /// Tokens, by which clients of a service prove their role
    #[command(subcommand, disable_help_subcommand = true)]
    Token(TokenCommand),
}

const RUN_EXIT_CODES: &str = "\
Exit codes: the command's own; 128+N if signal N killed it; 3 with `--fail-on-block`; 124 if its time was over; 125 if \
netbox failed, and the command did not run or was ended; 126 if it cannot be executed; 127 if it was not found; 2 for \
wrong usage.

Signals: what netbox is sent, the command gets. At a terminal it has one of its own, with job control; keys such as Ctrl-C and \
Ctrl-Z are for it. Without a terminal, the second Ctrl-C (SIGINT) within two seconds is followed by SIGTERM, and the third ends \
the sandbox, with exit code 130.

Ctrl-C at the terminal: where the command died of it, netbox dies of SIGINT too, so that a shell's loop or script around it stops; \
`$?` is 130 all the same, and a program that started netbox is told of the signal in place of the code. Only where netbox is in \
the foreground of the terminal that controls it, and one of its first three descriptors is that terminal; in any other place the code is 130.";
const SERVE_EXIT_CODES: &str = "\
Exit codes: 0 if SIGINT, SIGTERM or `netbox proxy drain` ended it; 125 if netbox failed; 2 for wrong usage.

Signals: SIGHUP has the files read anew. SIGUSR1 opens the file of events anew, where the old one was moved away. SIGINT and SIGTERM let what is open finish, for as long as `--drain-timeout` says; the \
second one ends it at once.";
const ASK_EXIT_CODES: &str = "\
Exit codes: 0 if it was done; 125 if it was not, or nobody could be asked; 2 for wrong usage.";
const LEARN_EXIT_CODES: &str = "\
Exit codes: as `netbox run`; 125 also if the file cannot be written.";
const CHECK_EXIT_CODES: &str = "\
Exit codes: 0 if every target would be allowed; 1 if one would be refused; 2 if one, or the usage, is malformed.";
const SHOW_EXIT_CODES: &str = "\
Exit codes: 0 if it was printed; 2 if a policy file, or the usage, is wrong, or the project's file is not trusted: then the \
rest is printed, and the file is marked as `untrusted`.";
const LINT_EXIT_CODES: &str = "\
Exit codes: 0 if there is no error; 1 with `--strict` if there is a warning; 2 if there is an error, or the usage is wrong.";
const TRUST_EXIT_CODES: &str = "\
Exit codes: 0 if it is done; 125 if it cannot be remembered, as inside a sandbox; 2 if the file, or the usage, is wrong.";
const DOCTOR_EXIT_CODES: &str = "Exit codes: 0 if `netbox run` works here; 1 if not.";

#[derive(Args, Debug)]
pub struct CheckArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    #[command(flatten)]
    pub project: ProjectArguments,

    /// Print one JSON object for each target
    #[arg(long)]
    pub json: bool,

    /// `host`, `host:port`, `[v6]:port` or a URL; a host alone is judged on port 443
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ShowArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    #[command(flatten)]
    pub project: ProjectArguments,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct LintArguments {
    /// A policy file; without it, the project's, the user's and the system's
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Print one JSON object for each error, warning and note
    #[arg(long)]
    pub json: bool,

    /// Exit with 1 if there is a warning
    #[arg(long)]
    pub strict: bool,
}

#[derive(Args, Debug)]
pub struct PresetsArguments {
    /// A preset, with or without its `@`
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print one JSON object for each preset
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Print netbox's AppArmor profile, for systems that need one, and look at nothing
    ///
    /// It is for `/usr/bin/netbox` and `/usr/local/bin/netbox`. Where it is needed, `doctor` says how to install it.
    #[arg(long, conflicts_with = "json")]
    pub apparmor_profile: bool,

    /// Print a seccomp profile for container engines, and look at nothing
    ///
    /// What they allow by default, and the calls that netbox needs besides.
    #[arg(long, conflicts_with_all = ["json", "apparmor_profile"])]
    pub seccomp_profile: bool,

    /// Do nothing: what the trial sandbox runs
    #[arg(long, hide = true)]
    pub inside: bool,
}

#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct ManArguments {
    /// The command that the page is about; netbox as a whole if none is given
    #[arg(value_name = "COMMAND")]
    pub commands: Vec<String>,
}

#[derive(Args, Debug)]
pub struct HelpArguments {
    /// The command that it is about; netbox as a whole if none is given
    #[arg(value_name = "COMMAND")]
    pub commands: Vec<String>,
}

/// When to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_after_the_command_is_the_commands() {
        let cli = Cli::parse_from(["netbox", "run", "-a", "example.com", "curl", "-v", "--mode", "x", "--", "-q"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.command, ["curl", "-v", "--mode", "x", "--", "-q"]);
        assert!(!run.quiet && run.policy.mode.is_none());
    }

    #[test]
    fn a_run_is_read_as_all_else_is() {
        for words in [
            &["run", "-a", "example.com", "--mode", "audit", "--", "curl", "--help"][..],
            &["run", "--host-port", "8080", "--env", "A=b", "--timeout", "5s", "sh", "-c", "-h"],
            &["run", "true"],
            &["run", "run", "--help"],
            &["run"],
            &["run", "--help"],
            &["run", "-h"],
            &["run", "--version"],
            &["run", "--alow", "example.com", "true"],
            &["run", "--allow"],
            &["check", "example.com"],
            &["--help"],
            &["rum"],
            &[],
        ] {
            let words: Vec<_> = std::iter::once(&"netbox").chain(words).map(OsString::from).collect();
            let shown = |read: Result<Cli, clap::Error>| match read {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => error.render().to_string(),
            };
            assert_eq!(shown(Cli::read(&words)), shown(Cli::try_parse_from(&words)), "{words:?}");
        }
    }

    #[test]
    fn an_unknown_flag_is_no_command() {
        assert!(Cli::try_parse_from(["netbox", "run", "--alow", "example.com", "true"]).is_err());
        assert!(Cli::try_parse_from(["netbox", "run", "--", "--odd"]).is_ok());
    }
}
