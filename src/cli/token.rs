//! `netbox proxy token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a role's clients, and print it: it is shown once
    ///
    /// The token is printed on stdout, and what the service has to know of it, its hash, on stderr. A client sends it as the
    /// password of the proxy, with any user name: `http://netbox:TOKEN@HOST:PORT`.
    #[command(after_long_help = TOKEN_EXIT_CODES)]
    New(TokenArguments),
}

const TOKEN_EXIT_CODES: &str = "\
Exit codes: 0 if it was made; 2 if there is no such role, or the usage is wrong; 125 if a file cannot be used.";

#[derive(Args, Debug)]
pub struct TokenArguments {
    /// The role, which has a `[service.role.NAME]` already
    #[arg(value_name = "ROLE")]
    pub role: String,

    /// Add its hash to `tokens` of the role, in the file that has it
    ///
    /// A running service reads it with `netbox proxy reload`.
    #[arg(long)]
    pub write: bool,

    /// The file that the service was given with `--config`
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Leave the user's file out
    #[arg(long)]
    pub no_config: bool,
}
