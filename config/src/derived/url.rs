//! The host and port of a URL in a configuration file, or that there is none to be had.

use crate::derived::{Fault, WhyNot};
use crate::host::Host;
use crate::name::HostName;
use crate::port::Port;
use crate::target::{Target, TargetError};

/// What a URL comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A public name and a port.
    Host(HostName, Port),
    /// A file of this machine.
    Nothing,
    /// A host that is none for a derived preset.
    LeftOut(WhyNot),
}

/// Endings of names that are looked up in the local network, or nowhere (RFC 6761, 6762, 7686, 8375; `internal` is
/// reserved by ICANN for private use).
const PRIVATE_ENDINGS: [&str; 6] = ["localhost", "local", "internal", "home.arpa", "onion", "invalid"];

/// Whether a name can be one of the public internet: of two labels or more, and below no ending that is used locally.
///
/// Where it leads is for the guard to see.
pub fn is_public(name: &HostName) -> bool {
    let name = name.as_str();
    let below = |ending: &&str| name.strip_suffix(*ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !PRIVATE_ENDINGS.iter().any(below)
}

/// The meaning of `scheme://[user@]host[:port][/…]`. Whatever user it is for is dropped.
pub(crate) fn meaning(url: &str) -> Result<Meaning, Fault> {
    let (scheme, rest) = url.split_once("://").ok_or(Fault::NotUrl)?;
    if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
        return Err(Fault::NotUrl);
    }
    let scheme = scheme.to_ascii_lowercase();
    // `git+https`, `sparse+https`, `mirror+http`: what is connected to is told by the last part.
    let default = match scheme.rsplit('+').next().unwrap_or(&scheme) {
        "https" => Port::HTTPS,
        "http" => Port::HTTP,
        "ssh" => SSH,
        "git" => GIT,
        "file" => return Ok(Meaning::Nothing),
        _ => return Ok(Meaning::LeftOut(WhyNot::Scheme(scheme))),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match of_authority(authority, default)? {
        // A password with a `/` in it looks like this, and is not to be shown as a host.
        Meaning::LeftOut(_) if rest[authority.len()..].contains('@') => Err(Fault::Unclear),
        meaning => Ok(meaning),
    }
}

/// The port of ssh, 22.
pub(crate) const SSH: Port = Port::literal(22);
/// The port of the git protocol, 9418.
const GIT: Port = Port::literal(9418);

/// The meaning of `[user@]host[:port]`.
pub(crate) fn of_authority(authority: &str, default: Port) -> Result<Meaning, Fault> {
    // Before the host is looked for: programs end it in different places.
    if authority.contains(|c: char| c == '\\' || c.is_whitespace() || c.is_control()) {
        return Err(Fault::Unclear);
    }
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains('@') {
        return Err(Fault::Unclear);
    }
    if host.contains(['$', '{', '}', '%']) {
        return Err(Fault::Variable);
    }
    // An empty port is the default one (RFC 3986 §3.2.3).
    let host = host.strip_suffix(':').unwrap_or(host);
    let (host, port) = Target::split_authority(host.as_bytes()).map_err(|error| match error {
        TargetError::Host { source, .. } => Fault::Host(source),
        TargetError::Port { .. } => Fault::Port,
        _ => Fault::Unclear,
    })?;
    Ok(of_host(host, port.unwrap_or(default)))
}

/// The meaning of a host that was parsed.
pub(crate) fn of_host(host: Host, port: Port) -> Meaning {
    match host {
        Host::Address(_) => Meaning::LeftOut(WhyNot::Address),
        Host::Name(name) if !is_public(&name) => Meaning::LeftOut(WhyNot::NotPublic(name)),
        Host::Name(name) => Meaning::Host(name, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_to_its_host_and_port() {
        for (url, expected) in [
            ("https://npm.example.com/", "npm.example.com:443"),
            ("HTTPS://NPM.Example.COM.", "npm.example.com:443"),
            ("http://npm.example.com?x", "npm.example.com:80"),
            ("https://npm.example.com:8443/a/b", "npm.example.com:8443"),
            ("https://npm.example.com:/", "npm.example.com:443"),
            ("https://user:secret@npm.example.com/", "npm.example.com:443"),
            ("https://npm.example.com/@scope/x", "npm.example.com:443"),
            ("ssh://git@git.example.com/x", "git.example.com:22"),
            ("ssh://git@git.example.com:2222/x", "git.example.com:2222"),
            ("git://git.example.com/x", "git.example.com:9418"),
            ("git+https://git.example.com/x.git#v1", "git.example.com:443"),
            ("sparse+https://index.example.com/", "index.example.com:443"),
            ("https://xn--bcher-kva.example/", "xn--bcher-kva.example:443"),
        ] {
            let Ok(Meaning::Host(host, port)) = meaning(url) else { panic!("{url}: {:?}", meaning(url)) };
            assert_eq!(format!("{host}:{port}"), expected, "{url}");
        }
    }

    #[test]
    fn what_is_not_public_is_left_out() {
        for (url, shown) in [
            ("http://localhost:4873/", "`localhost` is no public name; allow it by a rule of its own"),
            ("http://a.localhost/", "`a.localhost` is no public name; allow it by a rule of its own"),
            ("http://nexus:8081/", "`nexus` is no public name; allow it by a rule of its own"),
            ("http://nexus.local/", "`nexus.local` is no public name; allow it by a rule of its own"),
            ("http://db.corp.internal/", "`db.corp.internal` is no public name; allow it by a rule of its own"),
            ("http://router.home.arpa/", "`router.home.arpa` is no public name; allow it by a rule of its own"),
            (
                "http://10.0.0.5/",
                "an address, and a derived preset stands for names alone; allow it by a rule of its own",
            ),
            ("http://[::1]/", "an address, and a derived preset stands for names alone; allow it by a rule of its own"),
            (
                "https://203.0.113.7/",
                "an address, and a derived preset stands for names alone; allow it by a rule of its own",
            ),
            ("ftp://example.com/", "`ftp` is no scheme that netbox knows a port for"),
            ("s3://bucket/x", "`s3` is no scheme that netbox knows a port for"),
        ] {
            let Ok(Meaning::LeftOut(why)) = meaning(url) else { panic!("{url}: {:?}", meaning(url)) };
            assert_eq!(why.to_string(), shown, "{url}");
        }
        assert_eq!(meaning("file:///srv/packages"), Ok(Meaning::Nothing));
    }

    #[test]
    fn nothing_is_guessed_and_no_secret_is_shown() {
        for url in [
            "",
            "npm.example.com",
            "//npm.example.com/",
            "https:/npm.example.com/",
            "://npm.example.com/",
            "h ttps://npm.example.com/",
            "https://",
            "https:///x",
            "https://*.example.com/",
            "https://evil.example\\@npm.example.com/",
            "https://npm.example.com\\.evil.example/",
            "https://s3cret@x@npm.example.com/",
            "https://npm .example.com/",
            "https://npm.example.com\t/",
            "https://${HOST}/",
            "https://npm.example.com:${PORT}/",
            "https://npm%2eexample.com/",
            "https://user:s3cret/more@npm.example.com/",
            "https://s3cret/more@npm.example.com/",
            "https://npm.example.com:0/",
            "https://npm.example.com:99999/",
            "https://npm.example.com:443:80/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://[::1/",
            "https://2001:db8::1/",
            "https://bücher.example/",
        ] {
            let fault = meaning(url).expect_err(url).to_string();
            assert!(!fault.contains("s3cret"), "{url}: {fault}");
        }
    }
}
