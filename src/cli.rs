//! What can be typed. No I/O: the meaning of it is resolved elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

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
    #[command(override_usage = "netbox run [OPTIONS] [--] CMD [ARG]...")]
    Run(RunArguments),
    /// Say whether a target would be allowed, and by which rule
    Check(CheckArguments),
    /// Say whether netbox can isolate here, and if not, why, and how to fix it
    Doctor(DoctorArguments),
}

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

    /// What happens to what no rule names
    ///
    /// `allowlist` refuses it, `audit` lets it pass and tells, `open` lets it pass with the guard off, `none` refuses
    /// everything. Also from NETBOX_MODE.
    #[arg(long, value_name = "allowlist|none|open|audit", value_parser = Mode::from_str)]
    pub mode: Option<Mode>,

    /// Read no policy file of the user or the project
    #[arg(long)]
    pub no_config: bool,
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
    #[arg(long, value_name = "auto|http|all|none", default_value = "auto", hide_default_value = true)]
    pub proxy_env: ProxyEnvironment,

    /// Let one unix socket of the host through, which has this path now
    ///
    /// Repeatable. Whatever serves it answers to the command as it does to you.
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Vec<PathBuf>,

    /// End the command after this time, such as `90s`, `5m` or `1h30m`: TERM, after five seconds KILL; exit code 124
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,

    /// Tell what was refused, on stderr at the end: if anything was, always, or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto", hide_default_value = true)]
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
    fn an_event_destination_is_a_file_or_a_plain_descriptor_number() {
        let parse = |text: &str| EventDestination::parse(&text.into());
        assert_eq!(parse("fd:3"), Ok(EventDestination::Descriptor(3)));
        assert_eq!(parse("out.jsonl"), Ok(EventDestination::File("out.jsonl".into())));
        for bad in ["fd:", "fd:+3", "fd:03", "fd:x", "fd:-1", "fd:99999999999", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
