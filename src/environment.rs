//! The command's environment: the caller's, without what would lead it astray inside.

use std::ffi::{OsStr, OsString};

use crate::cli::ProxyEnvironment;

/// Proxy variables, in lower case; programs read both spellings. The host's proxy cannot be reached from inside, and
/// capture needs none.
const PROXY: [&str; 8] =
    ["http_proxy", "https_proxy", "ftp_proxy", "rsync_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"];

/// Programs inside reach their own servers without any proxy.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// Makes the command's environment from the caller's.
///
/// Left out: proxy variables, and NETBOX_*, which are words to this netbox. Added: `NETBOX=1` and `NETBOX_SESSION`, and
/// the proxy variables that were asked for.
pub fn compose(
    caller: impl Iterator<Item = (OsString, OsString)>,
    session: &str,
    proxy: ProxyEnvironment,
) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = caller.filter(|(name, _)| !is_left_out(name)).collect();
    let mut set = |name: &str, value: &str| environment.push((name.into(), value.into()));
    set("NETBOX", "1");
    set("NETBOX_SESSION", session);
    let http = format!("http://127.0.0.1:{}", netbox_launcher::EXPLICIT_PORT);
    let socks = format!("socks5h://127.0.0.1:{}", netbox_launcher::EXPLICIT_PORT);
    let variables: &[(&str, &str)] = match proxy {
        // Capture works, or nothing would run.
        ProxyEnvironment::Auto | ProxyEnvironment::None => &[],
        ProxyEnvironment::Http => &[("http_proxy", &http), ("https_proxy", &http), ("no_proxy", NO_PROXY)],
        ProxyEnvironment::All => {
            &[("http_proxy", &http), ("https_proxy", &http), ("all_proxy", &socks), ("no_proxy", NO_PROXY)]
        }
    };
    for (name, value) in variables {
        set(name, value);
        set(&name.to_ascii_uppercase(), value);
    }
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
        assert_eq!(compose(caller, "ab", ProxyEnvironment::Auto), expected);
    }

    #[test]
    fn proxy_variables_come_in_both_spellings_where_they_are_asked_for() {
        let names = |proxy| -> Vec<String> {
            let environment = compose([("ALL_PROXY".into(), "host".into())].into_iter(), "ab", proxy);
            let names = environment.into_iter().map(|(name, _)| name.to_string_lossy().into_owned());
            names.filter(|name| !name.starts_with("NETBOX")).collect()
        };
        let http = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"];
        assert_eq!(names(ProxyEnvironment::Http), http);
        assert!(names(ProxyEnvironment::All).contains(&"ALL_PROXY".to_owned()));
        assert!(names(ProxyEnvironment::None).is_empty());
    }
}
