//! `netbox proxy status`, `reload` and `drain`: what is asked of a running service.

use std::path::PathBuf;

use clap::Args;

use super::unix_path;

#[derive(Args, Debug)]
pub struct AskArguments {
    /// The control socket of the service
    ///
    /// Also from NETBOX_VIA. Without it, the one in `$XDG_RUNTIME_DIR/netbox/control.sock` if there is one, or else
    /// `/run/netbox/control.sock`.
    #[arg(long, value_name = "unix:PATH", value_parser = unix_path)]
    pub via: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    pub ask: AskArguments,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Go on telling it, once a second, until Ctrl-C
    ///
    /// With `--json`, one object a line.
    #[arg(long)]
    pub watch: bool,
}
