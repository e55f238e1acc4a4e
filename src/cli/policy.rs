//! The flags that make the policy, and those about trust in it.

use std::path::PathBuf;
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

    /// Use this policy file in place of the project's, which is then not looked for
    ///
    /// Naming it is trusting it. The system's and the user's files count as well. Also from NETBOX_CONFIG.
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Use no policy file of the user or the project: the command line, NETBOX_*, and the system's file, which is never skipped
    ///
    /// With `--config`: of files, that one and the system's alone.
    #[arg(long)]
    pub no_config: bool,

    /// Let derived presets stand for nothing: what netbox itself asks a tool with
    #[arg(long, hide = true)]
    pub without_derived: bool,

    /// Use this profile of the policy files
    ///
    /// What it says adds to what its file says, and its mode takes the place of that file's. Also from NETBOX_PROFILE.
    #[arg(short, long, value_name = "NAME")]
    pub profile: Option<String>,
}

/// The flags about the project's file, for commands that look for one.
#[derive(Args, Clone, Debug, Default)]
pub struct ProjectArguments {
    /// Let the project's file count if its content has exactly this digest, whoever it belongs to, and fail if not
    ///
    /// For CI, where nobody can be asked. It is what `sha256sum netbox.toml` prints, unless derived presets take hosts from
    /// other files of the project: then it is what netbox says it is, and it covers those hosts.
    #[arg(long, value_name = "sha256:DIGEST", value_parser = digest, conflicts_with_all = ["config", "no_config"])]
    pub trust_project: Option<String>,
}

/// 64 hexadecimal digits, in lower case.
fn digest(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
    match digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        Some(digits) => Ok(digits.to_ascii_lowercase()),
        None => Err("write `sha256:` and 64 hexadecimal digits, as `sha256sum netbox.toml` prints them".into()),
    }
}

#[derive(Args, Debug)]
pub struct TrustArguments {
    /// A project's `netbox.toml`, or its directory; without it, the one that counts in the working directory
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Trust what this derived preset takes from files of the project, such as `@npm` from `.npmrc`
    ///
    /// For presets that are named on the command line of `netbox run`. Repeatable.
    #[arg(short, long, value_name = "@PRESET")]
    pub allow: Vec<String>,

    /// Print what is trusted, and change nothing
    #[arg(long, conflicts_with_all = ["file", "allow"])]
    pub list: bool,
}

#[derive(Args, Debug)]
pub struct UntrustArguments {
    /// A project's `netbox.toml`, or its directory, which may be gone; without it, the nearest that is trusted here
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// The modes by name, so that a shell can complete them.
fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(["allowlist", "none", "open", "audit"]).try_map(|text| Mode::from_str(&text))
}
