//! The command's environment: the caller's, without what would lead it astray inside.

use std::ffi::{OsStr, OsString};

/// Proxy variables, in lower case; programs read both spellings. The host's proxy cannot be reached from inside, and
/// capture needs none.
const PROXY: [&str; 8] =
    ["http_proxy", "https_proxy", "ftp_proxy", "rsync_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"];

/// Makes the command's environment from the caller's.
///
/// Left out: proxy variables, and NETBOX_*, which are words to this netbox. Added: `NETBOX=1` and `NETBOX_SESSION`.
pub fn compose(caller: impl Iterator<Item = (OsString, OsString)>, session: &str) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = caller.filter(|(name, _)| !is_left_out(name)).collect();
    environment.push(("NETBOX".into(), "1".into()));
    environment.push(("NETBOX_SESSION".into(), session.into()));
    environment
}

fn is_left_out(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name == "netbox" || name.starts_with("netbox_") || PROXY.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_variables_go_and_the_session_comes() {
        let caller =
            [("HTTPS_PROXY", "x"), ("no_proxy", "y"), ("NETBOX_ALLOW", "*"), ("PATH", "/bin"), ("NETBOX", "9")];
        let caller = caller.into_iter().map(|(name, value)| (name.into(), value.into()));
        let expected: Vec<(OsString, OsString)> =
            vec![("PATH".into(), "/bin".into()), ("NETBOX".into(), "1".into()), ("NETBOX_SESSION".into(), "ab".into())];
        assert_eq!(compose(caller, "ab"), expected);
    }
}
