//! What `netbox check` takes as a target: what a person copies out of a terminal or an address bar.

use std::fmt;

use crate::host::{Host, parse_ipv6};
use crate::port::Port;
use crate::target::{Target, TargetError, Via, excerpt};

/// A target as typed for `netbox check`: `host`, `host:port`, `[v6]:port`, `[v6]`, a bare IPv6 address, or
/// `http(s)://host[:port][/path]`.
///
/// A host alone is judged on port 443, and so is an `https` URL without a port; an `http` URL on 80. The host is parsed
/// by the same parser as a program's ([`Target::parse_authority`]), so it is ASCII here as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckTarget(Target);

impl CheckTarget {
    /// Parses the text. The target's [`Via`] is [`Via::Connect`].
    ///
    /// # Errors
    ///
    /// [`TargetError`]: it is malformed (`netbox check` exits 2).
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (authority, default) = match strip_scheme(text)? {
            Some((rest, default)) => (rest.split(['/', '?', '#']).next().unwrap_or_default(), default),
            None => (text, Port::HTTPS),
        };
        let (host, port) = match parse_ipv6(authority.as_bytes()) {
            // Typed alone it can be nothing else, except where its end could be a port.
            Some(address) if authority == text && !ends_like_a_port(authority) => (Host::from_ip(address.into()), None),
            _ => Target::split_authority(authority.as_bytes())?,
        };
        Ok(Self(Target::new(host, port.unwrap_or(default), Via::Connect)))
    }

    /// The target to judge.
    pub fn target(&self) -> &Target {
        &self.0
    }

    /// The target to judge, by value.
    pub fn into_target(self) -> Target {
        self.0
    }
}

impl std::str::FromStr for CheckTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text)
    }
}

impl fmt::Display for CheckTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the text before the last colon is an IPv6 address too and the text after it a port: `2001:db8::1:443`.
pub(crate) fn ends_like_a_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(before, after)| parse_ipv6(before.as_bytes()).is_some() && Port::parse(after.as_bytes()).is_ok())
}

/// What follows `http://` or `https://`, with that scheme's port; `None` without a scheme.
fn strip_scheme(text: &str) -> Result<Option<(&str, Port)>, TargetError> {
    let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
    if scheme.eq_ignore_ascii_case("https") {
        Ok(Some((rest, Port::HTTPS)))
    } else if scheme.eq_ignore_ascii_case("http") {
        Ok(Some((rest, Port::HTTP)))
    } else {
        Err(TargetError::Scheme { text: excerpt(text.as_bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_a_person_types() {
        for (text, expected) in [
            ("github.com", "github.com:443"),
            ("GitHub.com.", "github.com:443"),
            ("github.com:22", "github.com:22"),
            ("203.0.113.10", "203.0.113.10:443"),
            ("[2001:db8::1]:22", "[2001:db8::1]:22"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("2001:db8::1", "[2001:db8::1]:443"),
            ("::ffff:10.0.0.1", "10.0.0.1:443"),
            ("https://github.com", "github.com:443"),
            ("http://github.com", "github.com:80"),
            ("HTTPS://github.com/", "github.com:443"),
            ("https://github.com:8443/a/b?c=d#e", "github.com:8443"),
            ("https://github.com?c", "github.com:443"),
            ("http://[2001:db8::1]/", "[2001:db8::1]:80"),
            ("https://github.com/a@b", "github.com:443"),
        ] {
            assert_eq!(CheckTarget::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn all_else_is_malformed() {
        for text in [
            "",
            " ",
            "https://",
            "https:///path",
            "ftp://github.com",
            "tcp://github.com:22",
            "github.com/path",
            "user@github.com",
            "https://user@github.com/",
            "https://github.com:443@evil.example/",
            "https://2001:db8::1/",
            "https://evil.example\\@github.com/",
            "2001:db8::1:443",
            "github.com:",
            "github.com:0",
            "bücher.example",
            "\u{212a}ernel.org",
            "*.github.com",
            "127.1",
            "fe80::1%eth0",
            "https://github.com\n",
        ] {
            assert!(CheckTarget::parse(text).is_err(), "{text}");
        }
    }
}
