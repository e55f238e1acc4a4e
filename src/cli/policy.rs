//! The flags that make the policy.

use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use netbox_config::Mode;

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
