//! The text of the files that decide how names are looked up inside.
//!
//! * `resolv.conf`: one name server, whose address is captured; the host's search list, so that `intranet` means what
//!   it means outside; `ndots:1`.
//! * `hosts`: loopback and this machine's name. The host's own entries are not copied: names in them go through netbox
//!   like all others, which looks them up where those entries count.
//! * `nsswitch.conf`: the host's, with the `hosts:` line reduced to `files dns`, because modules such as `resolve`,
//!   `mdns` and `myhostname` ask services of the host.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::{Failure, Step};

/// An address that is not local and not public: queries to it are redirected like those to any other address. Without the
/// capture rules, netbox listens on it.
pub(crate) const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// No configuration file of the host is read beyond this.
const MAX_BYTES: usize = 256 * 1024;

/// Where a file of the host's lies, without links; `None` where there is none.
///
/// # Errors
/// It cannot be told whether there is one: then it must not stay as it is.
pub(crate) fn place(path: &str) -> Result<Option<PathBuf>, Failure> {
    match fs::canonicalize(path) {
        Ok(place) => Ok(Some(place)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Failure::io(Step::ResolverFiles, &error, format!("`{path}`"))),
    }
}

/// Name, place (without links) and text of each file that has a counterpart on the host.
pub(crate) fn compose() -> Result<Vec<(&'static str, PathBuf, String)>, Failure> {
    let read = |path: &Path| {
        let mut text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text
    };
    let mut files = Vec::new();
    if let Some(path) = place("/etc/resolv.conf")? {
        let text = resolv_conf(&read(&path));
        files.push(("resolv.conf", path, text));
    }
    if let Some(path) = place("/etc/hosts")? {
        let name = nix::sys::utsname::uname().ok().and_then(|names| names.nodename().to_str().map(str::to_owned));
        files.push(("hosts", path, hosts(name.as_deref())));
    }
    if let Some(path) = place("/etc/nsswitch.conf")? {
        let text = nsswitch_conf(&read(&path));
        files.push(("nsswitch.conf", path, text));
    }
    Ok(files)
}

/// resolv.conf(5). Of several `search` or `domain` lines the last counts.
fn resolv_conf(host: &str) -> String {
    let mut text = format!("nameserver {NAME_SERVER}\n");
    let search = host.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("search" | "domain")).then(|| words.collect::<Vec<_>>().join(" "))
    });
    if let Some(search) = search.filter(|search| !search.is_empty()) {
        let _ = writeln!(text, "search {search}");
    }
    text.push_str("options ndots:1\n");
    text
}

/// hosts(5).
fn hosts(machine: Option<&str>) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    let plain = |name: &&str| {
        !name.is_empty()
            && *name != "localhost"
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    if let Some(name) = machine.filter(plain) {
        let _ = writeln!(text, "127.0.1.1 {name}");
    }
    text
}

/// nsswitch.conf(5).
fn nsswitch_conf(host: &str) -> String {
    let mut text: String = host
        .lines()
        .filter(|line| line.split_once(':').is_none_or(|(database, _)| database.trim() != "hosts"))
        .flat_map(|line| [line, "\n"])
        .collect();
    text.push_str("hosts: files dns\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_list_is_the_hosts_and_the_server_is_ours() {
        let host =
            "# c\nnameserver 192.0.2.1\ndomain old.example\nsearch corp.example  lab.example\noptions ndots:5 edns0\n";
        assert_eq!(resolv_conf(host), "nameserver 10.0.2.3\nsearch corp.example lab.example\noptions ndots:1\n");
        assert_eq!(resolv_conf("nameserver 192.0.2.1\n"), "nameserver 10.0.2.3\noptions ndots:1\n");
    }

    #[test]
    fn only_the_hosts_database_changes() {
        let host =
            "passwd: files systemd\n hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns\nnetworks: files";
        assert_eq!(nsswitch_conf(host), "passwd: files systemd\nnetworks: files\nhosts: files dns\n");
    }

    #[test]
    fn the_machines_name_is_loopback_and_a_strange_one_is_left_out() {
        assert!(hosts(Some("laptop")).ends_with("127.0.1.1 laptop\n"));
        assert!(!hosts(Some("a b\nc")).contains("127.0.1.1"));
        assert!(!hosts(None).contains("127.0.1.1"));
    }
}
