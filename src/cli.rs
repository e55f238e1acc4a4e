//! What can be typed. No I/O: the meaning of it is resolved elsewhere.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use netbox_config::Mode;

use crate::duration;

/// Run a command that reaches the hosts on a list, and nothing else.
#[derive(Debug, Parser)]
#[command(name = "netbox", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, and everything that it starts, with the network limited to the policy
    #[command(override_usage = "netbox run [OPTIONS] [--] CMD [ARG]...", after_long_help = RUN_EXIT_CODES)]
    Run(RunArguments),
    /// Say whether a target would be allowed, and by which rule
    #[command(after_long_help = CHECK_EXIT_CODES)]
    Check(CheckArguments),
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
}

#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    /// Serve HTTP CONNECT, HTTP and SOCKS5 on one port, for any program on this machine, until SIGINT or SIGTERM
    #[command(after_long_help = SERVE_EXIT_CODES)]
    Serve(ServeArguments),
}

const RUN_EXIT_CODES: &str = "\
Exit codes: the command's own; 128+N if signal N killed it; 3 with `--fail-on-block`; 124 if its time was over; 125 if \
netbox failed, and the command did not run or was ended; 126 if it cannot be executed; 127 if it was not found; 2 for \
wrong usage.";
const SERVE_EXIT_CODES: &str = "\
Exit codes: 0 if SIGINT, SIGTERM or SIGHUP ended it; 125 if netbox failed; 2 for wrong usage.";
const CHECK_EXIT_CODES: &str = "\
Exit codes: 0 if every target would be allowed; 1 if one would be refused; 2 if one, or the usage, is malformed.";
const DOCTOR_EXIT_CODES: &str = "Exit codes: 0 if `netbox run` works here; 1 if not.";

/// The flags that make the policy.
#[derive(Args, Clone, Debug, Default)]
pub struct PolicyArguments {
    /// Allow a host, such as `github.com`, `*.github.com`, `host:22,443` or `10.1.0.0/16:5432`
    ///
    /// Repeatable, and `a,b` is two rules. Also from NETBOX_ALLOW.
    #[arg(short, long, value_name = "RULE")]
    pub allow: Vec<String>,

    /// Deny a host; wins over every `--allow`
    ///
    /// Without ports it denies every port. Also from NETBOX_DENY.
    #[arg(short, long, value_name = "RULE")]
    pub deny: Vec<String>,

    /// What happens to what no rule names (without the flag: `allowlist`)
    ///
    /// `allowlist` refuses it, `audit` lets it pass and tells, `open` lets it pass with the guard off, `none` refuses
    /// everything. Also from NETBOX_MODE.
    #[arg(long, value_parser = modes())]
    pub mode: Option<Mode>,

    /// Use no policy file of the user or the project: the command line and NETBOX_* alone (this version reads none yet)
    #[arg(long)]
    pub no_config: bool,
}

/// The modes by name, so that a shell can complete them.
fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(["allowlist", "none", "open", "audit"]).try_map(|text| Mode::from_str(&text))
}

#[derive(Args, Debug)]
pub struct RunArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Write events there, as JSON lines: a file, or a descriptor that netbox inherited
    ///
    /// A file is appended to. Also from NETBOX_EVENTS.
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,

    /// Which proxy variables the command sees
    ///
    /// `auto` and `none`: none, since every connection is captured. `http`: http_proxy, https_proxy and no_proxy. `all`:
    /// also all_proxy, as SOCKS5. The caller's own are removed in any case.
    #[arg(long, value_name = "auto|http|all|none", default_value = "auto")]
    pub proxy_env: ProxyEnvironment,

    /// Let one unix socket of the host through, which has this path now
    ///
    /// Repeatable. Whatever serves it answers to the command as it does to you.
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Vec<PathBuf>,

    /// End the command after this time, such as `90s`, `5m`, `1h30m` or `500ms`: TERM, after five seconds KILL; exit code 124
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,

    /// Tell what was refused, on stderr at the end: if anything was, always, or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    pub summary: When,

    /// Exit with 3 if anything was refused and the command itself succeeded
    #[arg(long)]
    pub fail_on_block: bool,

    /// Print what would run and with what policy, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// With `--dry-run`: print it as JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,

    /// Say less on stderr: no warnings and no summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more on stderr
    #[arg(short, long)]
    pub verbose: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct ServeArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Listen there, such as `127.0.0.1:3128` or `[::1]:3128`
    ///
    /// Repeatable. With port 0 the system chooses one; the address is said on stderr.
    #[arg(long, required = true, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,

    /// Let `--listen` take addresses that other machines can reach
    ///
    /// There is no authentication: whoever reaches the port can use the proxy.
    #[arg(long)]
    pub listen_any: bool,

    /// Write events there, as JSON lines: a file, or a descriptor that netbox inherited
    ///
    /// A file is appended to. Also from NETBOX_EVENTS.
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,

    /// Tell what was refused, on stderr at the end: if anything was, always, or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    pub summary: When,

    /// Say less on stderr: no warnings and no summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more on stderr
    #[arg(short, long)]
    pub verbose: bool,
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if text.starts_with("unix:") {
        return Err("unix sockets are not supported yet; write an address such as `127.0.0.1:3128`".into());
    }
    text.parse().map_err(|_| "write an address and a port, such as `127.0.0.1:3128` or `[::1]:3128`".into())
}

#[derive(Args, Debug)]
pub struct CheckArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Print one JSON object for each target
    #[arg(long)]
    pub json: bool,

    /// `host`, `host:port`, `[v6]:port` or a URL; a host alone is judged on port 443
    #[arg(required = true, value_name = "TARGET")]
    pub targets: Vec<String>,
}

#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

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

/// Which proxy variables the command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProxyEnvironment {
    Auto,
    Http,
    All,
    None,
}

/// When to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventDestination {
    File(PathBuf),
    Descriptor(i32),
}

impl EventDestination {
    /// # Errors
    /// What was wrong with `fd:N`.
    pub fn parse(text: &OsString) -> Result<Self, String> {
        match text.to_str().and_then(|text| text.strip_prefix("fd:")) {
            None if text == "-" => Err("`--events -`: to write to stdout, name its descriptor: `fd:1`".into()),
            None if text.is_empty() => Err("`--events` needs a file or `fd:N`".into()),
            None => Ok(Self::File(PathBuf::from(text))),
            Some(digits) => match digits.parse::<i32>() {
                // One spelling only: not `+3`, `03` or `-1`.
                Ok(number) if number >= 0 && number.to_string() == digits => Ok(Self::Descriptor(number)),
                _ => Err(format!("`--events fd:{digits}`: write the number of an open descriptor, as in `fd:3`")),
            },
        }
    }
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
    fn an_unknown_flag_is_no_command() {
        assert!(Cli::try_parse_from(["netbox", "run", "--alow", "example.com", "true"]).is_err());
        assert!(Cli::try_parse_from(["netbox", "run", "--", "--odd"]).is_ok());
    }

    #[test]
    fn a_proxy_listens_on_addresses_that_are_written_out() {
        let serve = |listen: &str| Cli::try_parse_from(["netbox", "proxy", "serve", "--listen", listen]);
        for good in ["127.0.0.1:3128", "[::1]:0"] {
            assert!(serve(good).is_ok(), "{good}");
        }
        for bad in ["3128", ":3128", "localhost:3128", "127.0.0.1", "::1:3128", "unix:/run/x", ""] {
            assert!(serve(bad).is_err(), "{bad}");
        }
        assert!(Cli::try_parse_from(["netbox", "proxy", "serve"]).is_err());
    }

    #[test]
    fn an_event_destination_is_a_file_or_a_plain_descriptor_number() {
        let parse = |text: &str| EventDestination::parse(&text.into());
        assert_eq!(parse("fd:3"), Ok(EventDestination::Descriptor(3)));
        assert_eq!(parse("out.jsonl"), Ok(EventDestination::File("out.jsonl".into())));
        for bad in ["fd:", "fd:+3", "fd:03", "fd:x", "fd:-1", "fd:99999999999", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
