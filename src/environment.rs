//! The command's environment: the caller's, without what would lead it astray inside.
//!
//! From the weakest to the strongest: the caller's variables (with `--env-clear` a few of them), without those that are
//! words to this netbox, the host's proxies, and whatever names a thing that is out of reach inside (`unreachable`); then
//! the proxy variables that were asked for; then `--env`; then what tells a program that it is in a sandbox.

mod unreachable;

use std::ffi::{OsStr, OsString};

use crate::cli::{ProxyEnvironment, Setting};
use crate::variables;

pub use unreachable::Reach;

/// Proxy variables, in lower case; programs read both spellings. The host's proxy cannot be reached from inside, and
/// capture needs none.
const PROXY: [&str; 8] =
    ["http_proxy", "https_proxy", "ftp_proxy", "rsync_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"];

/// Programs inside reach their own servers without any proxy.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// What stays with `--env-clear`, besides `LC_*`: who the user is, how the terminal is spoken to, language and time.
const STAYING: [&str; 12] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ", "TMPDIR"];

/// What the command line says about the environment.
#[derive(Debug)]
pub struct Wishes<'a> {
    pub proxy: ProxyEnvironment,
    /// `--env`.
    pub settings: &'a [Setting],
    /// `--env-clear`.
    pub clear: bool,
}

/// An environment, and what is not in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Environment {
    pub variables: Vec<(OsString, OsString)>,
    /// The caller's variables that were left out for what they say, in their order.
    pub removed: Vec<OsString>,
}

/// Makes the command's environment from the caller's.
pub fn compose(caller: &[(OsString, OsString)], session: &str, wishes: &Wishes, reach: &Reach) -> Environment {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    let mut removed = Vec::new();
    for (name, value) in caller {
        let is_set = wishes.settings.iter().any(|setting| setting.name == *name);
        if is_set || (wishes.clear && !stays(name)) || variables::is_own(name) {
            continue;
        }
        if is_proxy(name) || reach.is_beyond(name, value, caller) {
            removed.push(name.clone());
        } else {
            variables.push((name.clone(), value.clone()));
        }
    }
    variables.extend(proxies(wishes.proxy));
    for setting in wishes.settings {
        let of_caller = || caller.iter().rev().find(|(name, _)| *name == setting.name).map(|(_, value)| value.clone());
        variables.retain(|(name, _)| *name != setting.name);
        variables.extend(setting.value.clone().or_else(of_caller).map(|value| (setting.name.clone(), value)));
    }
    variables.push((variables::INSIDE.into(), "1".into()));
    variables.push((variables::SESSION.into(), session.into()));
    Environment { variables, removed }
}

/// The proxy variables that are asked for, in both spellings.
fn proxies(wanted: ProxyEnvironment) -> Vec<(OsString, OsString)> {
    let http = format!("http://127.0.0.1:{}", netbox_launcher::EXPLICIT_PORT);
    let socks = format!("socks5h://127.0.0.1:{}", netbox_launcher::EXPLICIT_PORT);
    let variables: &[(&str, &str)] = match wanted {
        // Capture works, or nothing would run.
        ProxyEnvironment::Auto | ProxyEnvironment::None => &[],
        ProxyEnvironment::Http => &[("http_proxy", &http), ("https_proxy", &http), ("no_proxy", NO_PROXY)],
        ProxyEnvironment::All => {
            &[("http_proxy", &http), ("https_proxy", &http), ("all_proxy", &socks), ("no_proxy", NO_PROXY)]
        }
    };
    let both = variables.iter().flat_map(|(name, value)| [(name.to_string(), *value), (name.to_uppercase(), *value)]);
    both.map(|(name, value)| (name.into(), value.into())).collect()
}

fn is_proxy(name: &OsStr) -> bool {
    PROXY.contains(&name.to_string_lossy().to_ascii_lowercase().as_str())
}

fn stays(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    STAYING.contains(&&*name) || name.starts_with("LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Wishes = Wishes { proxy: ProxyEnvironment::Auto, settings: &[], clear: false };

    fn pairs(texts: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        texts.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// What a command is given besides netbox's own.
    fn composed(caller: &[(&str, &str)], wishes: &Wishes) -> Vec<(OsString, OsString)> {
        let mut environment = compose(&pairs(caller), "ab", wishes, &Reach::default()).variables;
        let own = environment.split_off(environment.len() - 2);
        assert_eq!(own, pairs(&[("NETBOX", "1"), ("NETBOX_SESSION", "ab")]));
        environment
    }

    fn setting(text: &str) -> Setting {
        Setting::parse(text.into()).expect("a setting")
    }

    #[test]
    fn proxy_variables_go_and_the_session_comes() {
        let caller =
            [("HTTPS_PROXY", "x"), ("no_proxy", "y"), ("NETBOX_ALLOW", "*"), ("PATH", "/bin"), ("NETBOX", "9")];
        assert_eq!(composed(&caller, &AUTO), pairs(&[("PATH", "/bin")]));
        let removed = compose(&pairs(&caller), "ab", &AUTO, &Reach::default()).removed;
        assert_eq!(removed, ["HTTPS_PROXY", "no_proxy"], "and what was said to netbox is no loss");
    }

    #[test]
    fn proxy_variables_come_in_both_spellings_where_they_are_asked_for() {
        let names = |proxy| -> Vec<String> {
            let environment = composed(&[("ALL_PROXY", "host")], &Wishes { proxy, ..AUTO });
            environment.into_iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
        };
        let http = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"];
        assert_eq!(names(ProxyEnvironment::Http), http);
        assert!(names(ProxyEnvironment::All).contains(&"ALL_PROXY".to_owned()));
        assert!(names(ProxyEnvironment::None).is_empty());
    }

    #[test]
    fn a_setting_wins_over_everything_else_and_the_last_one_over_others() {
        let settings = ["A=1", "SSH_AUTH_SOCK", "http_proxy=mine", "B=1", "B=", "ABSENT"].map(setting);
        let wishes = Wishes { proxy: ProxyEnvironment::Http, settings: &settings, clear: true };
        let caller = [("A", "0"), ("SSH_AUTH_SOCK", "/tmp/agent"), ("C", "9"), ("HOME", "/home/a"), ("LC_ALL", "C")];
        let expected = [("HOME", "/home/a"), ("LC_ALL", "C"), ("A", "1"), ("SSH_AUTH_SOCK", "/tmp/agent"), ("B", "")];
        let environment = composed(&caller, &wishes);
        for (name, value) in pairs(&expected) {
            let values: Vec<_> = environment.iter().filter(|(other, _)| *other == name).collect();
            assert_eq!(values, [&(name, value)]);
        }
        let proxy = environment.iter().filter(|(name, _)| name == "http_proxy").map(|(_, value)| value);
        assert_eq!(proxy.collect::<Vec<_>>(), ["mine"]);
        assert!(environment.iter().all(|(name, _)| name != "C" && name != "ABSENT"), "{environment:?}");
    }
}
