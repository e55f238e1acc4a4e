//! `netbox proxy serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use netbox_config::service::ListenAddress;

use super::{PolicyArguments, When};

#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    #[command(flatten)]
    pub policy: PolicyArguments,

    /// Listen there: for programs that are told of a proxy, such as `127.0.0.1:3128` or `[::1]:3128`; or for `netbox run --via`,
    /// such as `unix:/run/netbox/control.sock`
    ///
    /// Repeatable. With port 0 the system chooses one; the address is said on stderr. The directory of a unix socket is made
    /// where it is missing, and has to be closed to others.
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", value_parser = listen_address)]
    pub listen: Vec<ListenAddress>,

    /// Let `--listen` take addresses that other machines can reach
    ///
    /// Where no role of the configuration has a token, nobody is asked for one: whoever reaches the port can use the proxy.
    #[arg(long)]
    pub listen_any: bool,

    /// Serve `/metrics`, `/healthz` and `/readyz` there, over HTTP
    ///
    /// The tenants are told apart for whoever has the token of an admin role; the bearer of another role sees its own numbers, and
    /// who has no token sees sums.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = metrics_address)]
    pub metrics: Option<SocketAddr>,

    /// How long what is open has to finish once the service is told to end; 30 seconds if nothing is said
    #[arg(long, value_name = "DURATION", value_parser = netbox_config::parse_duration)]
    pub drain_timeout: Option<Duration>,

    /// Write events there, as JSON lines: a file, or a descriptor that netbox inherited
    ///
    /// A file is appended to. Also from NETBOX_EVENTS.
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,

    /// Tell what was refused, on stderr at the end: if anything was, always, or never
    ///
    /// `always` also tells what was reached: each host with its connections and bytes.
    #[arg(long, value_name = "auto|always|never", default_value = "auto")]
    pub summary: When,

    /// Say less on stderr: no warnings and no summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say more on stderr
    #[arg(short, long)]
    pub verbose: bool,
}

fn listen_address(text: &str) -> Result<ListenAddress, String> {
    ListenAddress::parse(text).map_err(|_| ListenAddress::remedy(text))
}

fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| ListenAddress::remedy_of_tcp(text, SocketAddr::from(([127, 0, 0, 1], 9464))))
}

/// The path in `unix:PATH`.
pub fn unix_path(text: &str) -> Result<PathBuf, String> {
    match ListenAddress::parse(text) {
        Ok(ListenAddress::Unix(path)) => Ok(path),
        _ => Err("write the path of a unix socket from `/`, such as `unix:/run/netbox/control.sock`".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;

    #[test]
    fn a_proxy_listens_on_addresses_that_are_written_out() {
        let serve = |listen: &str| Cli::try_parse_from(["netbox", "proxy", "serve", "--listen", listen]);
        for good in ["127.0.0.1:3128", "[::1]:0", "unix:/run/netbox/control.sock"] {
            assert!(serve(good).is_ok(), "{good}");
        }
        for bad in
            ["3128", ":3128", "localhost:3128", "127.0.0.1", "::1:3128", "unix:", "unix:control.sock", "unix:/", ""]
        {
            assert!(serve(bad).is_err(), "{bad}");
        }
    }
}
