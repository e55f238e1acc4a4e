//! `netbox run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::events::descriptor_number;
use super::{HostPortArgument, PolicyArguments, ProjectArguments, PublishArgument, Setting, When, unix_path};

#[derive(Args, Debug)]
pub struct RunArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    #[command(flatten)]
    pub project: ProjectArguments,

    /// Write events there, as JSON lines: a file, or a descriptor that netbox inherited
    ///
    /// A file is appended to. Also from NETBOX_EVENTS.
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,

    /// Let the command reach a port of this machine's loopback: 127.0.0.1:PORT inside is 127.0.0.1:HOSTPORT here
    ///
    /// HOSTPORT is PORT where it is left out. Repeatable. It is open in every mode, `none` too; `--deny` closes it.
    #[arg(long, value_name = "PORT[:HOSTPORT]", value_parser = HostPortArgument::parse)]
    pub host_port: Vec<HostPortArgument>,

    /// Let this machine reach a port of the sandbox's loopback: 127.0.0.1:PORT here is 127.0.0.1:SANDBOXPORT inside
    ///
    /// SANDBOXPORT is PORT where it is left out. With `0:SANDBOXPORT` the system chooses a port, and it is said on stderr.
    /// Repeatable. Whoever is on this machine can use it, for as long as the run lasts.
    #[arg(long, value_name = "PORT[:SANDBOXPORT]", value_parser = PublishArgument::parse)]
    pub publish: Vec<PublishArgument>,

    /// Which proxy variables the command sees
    ///
    /// `auto` and `none`: none, since every connection is captured. `http`: http_proxy, https_proxy and no_proxy. `all`:
    /// also all_proxy, as SOCKS5. The caller's own are removed in any case.
    #[arg(long, value_name = "auto|http|all|none", default_value = "auto")]
    pub proxy_env: ProxyEnvironment,

    /// Set a variable for the command, or, without a value, let it have yours
    ///
    /// Repeatable. It wins over all that netbox does to the environment. A variable that you do not have is not set.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = OsStringValueParser::new().try_map(Setting::parse))]
    pub env: Vec<Setting>,

    /// Keep of your environment only PATH, HOME, USER, LOGNAME, SHELL, TERM, COLORTERM, NO_COLOR, LANG, LANGUAGE, LC_*, TZ and TMPDIR
    #[arg(long)]
    pub env_clear: bool,

    /// Hand a descriptor that netbox inherited to the command, under the same number
    ///
    /// Repeatable. A file, a pipe or a connected unix socket is passed as it is; an internet socket stays outside and is
    /// relayed; what could lead out of the sandbox is refused. All others are closed.
    #[arg(long, value_name = "N", value_parser = passed_descriptor)]
    pub pass_fd: Vec<i32>,

    /// Let one unix socket of the host through, which has this path now
    ///
    /// Repeatable. Whatever serves it answers to the command as it does to you.
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Vec<PathBuf>,

    /// Let the command have one more device, such as `/dev/kvm`, or a directory of them, such as `/dev/dri`
    ///
    /// Repeatable. Inside, `/dev` has null, zero, full, random, urandom, tty, and pts, shm and mqueue of its own. A device
    /// does for the command whatever it does for you.
    #[arg(long, value_name = "PATH")]
    pub dev: Vec<PathBuf>,

    /// Have a shared service carry the connections: `netbox proxy serve` listens there
    ///
    /// The policy is asked of it, and it grants what its owner lets you have. While it is away there is no network. Also from
    /// NETBOX_VIA.
    #[arg(long, value_name = "unix:PATH", value_parser = unix_path)]
    pub via: Option<PathBuf>,

    /// Run although this wall cannot be put up here: `proc`, a `/proc` of the sandbox's own
    ///
    /// Repeatable. For containers that mask parts of `/proc`, so that the kernel mounts no fresh one. The command then sees
    /// the processes around it, by name and command line, and nothing else of them; its `/proc` is read-only. Where the
    /// wall can be put up, it is. Also from NETBOX_ALLOW_WEAKER.
    #[arg(long, value_name = "proc")]
    pub allow_weaker: Vec<Weaker>,

    /// End the command after this time, such as `90s`, `5m`, `1h30m` or `500ms`: TERM, after five seconds KILL; exit code 124
    #[arg(long, value_name = "DURATION", value_parser = netbox_config::parse_duration)]
    pub timeout: Option<Duration>,

    /// Tell what was refused, on stderr at the end: if anything was, always, or never
    ///
    /// `always` also tells what was reached: each host with its connections and bytes.
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

fn passed_descriptor(text: &str) -> Result<i32, String> {
    match descriptor_number(text) {
        Some(0..=2) => Err("0, 1 and 2 are the command's in any case".into()),
        Some(number) => Ok(number),
        None => Err("write the number of an open descriptor, as in `3`".into()),
    }
}

/// A wall that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weaker {
    Proc,
}

/// Which proxy variables the command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProxyEnvironment {
    Auto,
    Http,
    All,
    None,
}
