//! One rule, parsed.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::address::is_mixed;
use crate::check::ends_like_a_port;
use crate::host::parse_ipv6;
use crate::pattern::{HostPattern, parse_ip};
use crate::port::Port;
use crate::ports::{Ports, PortsError};
use crate::rule_error::{RuleError, RuleFault, Wrong};
use crate::source::Source;
use crate::suffix::{self, SuffixKind};

/// No rule is longer, in bytes: a name has 253, and the rest is for its ports.
const LONGEST: usize = 4096;

/// One rule of a policy. The same text means the same on the command line, in a file and in the service.
///
/// | rule | hosts | ports |
/// | --- | --- | --- |
/// | `example.com` | that name | 443 and 80 |
/// | `example.com:22`, `:22,443`, `:8000-8100`, `:*` | that name | those |
/// | `*.example.com` | every name below it, not itself | as above |
/// | `.example.com` | it and every name below it | as above |
/// | `10.1.0.0/16:5432`, `203.0.113.7`, `[2001:db8::/32]:443`, `[2001:db8::1]`, `2001:db8::1` | addresses | as above |
/// | `tcp://example.com:5432` | as without `tcp://`, and no first bytes are looked at | as written, and must be |
/// | `*` | every name, no address | as above |
///
/// `@name`, a preset, is no rule but a list of rules: see [`Entry`](crate::Entry).
///
/// As a **deny** rule the same text differs in three ways, each of which refuses more: without ports it covers every
/// port, `*` covers addresses as well as names, and `tcp://` means nothing (so that an allow rule can be copied).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    reference: RuleRef,
    source: Source,
    pattern: HostPattern,
    /// `None`: none were written.
    ports: Option<Ports>,
    raw: bool,
    warnings: Vec<RuleWarning>,
}

/// A rule as it stands in an event: its text as written, and where. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleRef {
    /// The rule as written. It has parsed, so there is no control character and no bidirectional override in it.
    pub text: Arc<str>,
    /// Where it was written: `--allow`, `netbox.toml:3:10`.
    pub source: Arc<str>,
}

/// What is worth knowing about an allow rule that is right. Displays as what is said after the rule:
/// "allows every public host by name, …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleWarning {
    /// `*`.
    #[error("allows every public host by name, only the address guard and the deny rules are left")]
    EveryHost,
    /// `*.github.io`.
    #[error("allows the names of every customer of one provider, not those of one owner")]
    PrivateSuffix,
    /// `0.0.0.0/0`.
    #[error("covers addresses that are not public and does not open them, which takes a rule for their range alone")]
    MixedRange,
}

impl Rule {
    /// Parses an allow rule.
    ///
    /// # Errors
    ///
    /// [`RuleError`] quotes the rule and says what is wrong, where, and what to write.
    pub fn parse(text: &str, source: Source) -> Result<Self, RuleError> {
        Self::parse_deny(text, source)?.into_allow()
    }

    /// Parses a deny rule: as [`Rule::parse`], but a wildcard over a public suffix (`*.com`) is right, and there are no
    /// warnings, since all of them are about allowing much.
    ///
    /// # Errors
    ///
    /// [`RuleError`], as [`Rule::parse`].
    pub fn parse_deny(text: &str, source: Source) -> Result<Self, RuleError> {
        match parse(text) {
            Ok(Parts { pattern, ports, raw }) => {
                let reference = RuleRef { text: text.into(), source: shown(&source) };
                Ok(Self { reference, source, pattern, ports, raw, warnings: Vec::new() })
            }
            Err(wrong) => Err(RuleError::new(text, wrong).with_source(source)),
        }
    }

    /// A rule of [`Rule::parse_deny`] as one that allows.
    pub(crate) fn into_allow(mut self) -> Result<Self, RuleError> {
        self.check_breadth()?;
        self.warnings = self.find_warnings();
        Ok(self)
    }

    /// The same rule, written elsewhere.
    pub(crate) fn with_source(&self, source: Source) -> Self {
        let reference = RuleRef { text: Arc::clone(&self.reference.text), source: shown(&source) };
        Self { reference, source, ..self.clone() }
    }

    /// The rule as written.
    pub fn text(&self) -> &str {
        &self.reference.text
    }

    /// Where it was written.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether it says `tcp://`: raw, the first bytes are not looked at.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// What is worth knowing about it, though nothing of it is wrong.
    pub fn warnings(&self) -> &[RuleWarning] {
        &self.warnings
    }

    /// The rule as it stands in an event.
    pub fn reference(&self) -> RuleRef {
        self.reference.clone()
    }

    pub(crate) fn pattern(&self) -> &HostPattern {
        &self.pattern
    }

    /// The ports that it covers as an allow rule: 443 and 80 if none are written.
    pub(crate) fn allowed_ports(&self) -> &Ports {
        self.ports.as_ref().unwrap_or(const { &Ports::DEFAULT })
    }

    /// The ports that are written, if some are.
    pub(crate) fn written_ports(&self) -> Option<&Ports> {
        self.ports.as_ref()
    }

    /// The ports that it covers as a deny rule: all if none are written.
    pub(crate) fn denied_ports(&self) -> &Ports {
        self.ports.as_ref().unwrap_or(const { &Ports::ALL })
    }

    /// Whether it says which ports.
    pub(crate) fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    fn find_warnings(&self) -> Vec<RuleWarning> {
        let warning = match &self.pattern {
            HostPattern::Every => Some(RuleWarning::EveryHost),
            HostPattern::Below(base) | HostPattern::AtOrBelow(base)
                if suffix::kind(base.as_str()) == SuffixKind::Private =>
            {
                Some(RuleWarning::PrivateSuffix)
            }
            HostPattern::Range(range) if is_mixed(*range) => Some(RuleWarning::MixedRange),
            _ => None,
        };
        warning.into_iter().collect()
    }

    /// Refuses a wildcard under which everyone registers names: fine to deny, not to allow.
    pub(crate) fn check_breadth(&self) -> Result<(), RuleError> {
        let (HostPattern::Below(base) | HostPattern::AtOrBelow(base)) = &self.pattern else { return Ok(()) };
        if suffix::kind(base.as_str()) != SuffixKind::Icann {
            return Ok(());
        }
        // Below `ck` everyone registers at the third label, so the example needs one more.
        let example = ["example", "www.example"].into_iter().map(|owner| format!("{owner}.{base}"));
        let hint = example
            .filter(|name| suffix::kind(name) == SuffixKind::Ordinary)
            .map(|name| format!("write the names of one owner: `*.{name}`"))
            .next();
        let wrong = Wrong::new(0, RuleFault::PublicSuffix(base.as_str().to_owned())).hint(hint);
        Err(RuleError::new(self.text(), wrong).with_source(self.source.clone()))
    }
}

impl fmt::Display for Rule {
    /// The rule in canonical form: A-labels in lower case, ports sorted. Parses to the same rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.raw { "tcp://" } else { "" };
        write!(f, "{scheme}{}", self.pattern)?;
        match &self.ports {
            Some(ports) => write!(f, ":{ports}"),
            None => Ok(()),
        }
    }
}

/// A source as it is shown; a file of many rules has as many of them, so it is written into one piece of memory.
fn shown(source: &Source) -> Arc<str> {
    let mut text = String::with_capacity(64);
    // Writing to a string does not fail.
    let _ = write!(text, "{source}");
    text.into()
}

struct Parts {
    pattern: HostPattern,
    ports: Option<Ports>,
    raw: bool,
}

fn parse(text: &str) -> Result<Parts, Wrong> {
    check_characters(text)?;
    if text.starts_with('@') {
        return Err(Wrong::new(0, RuleFault::Preset).hint("write the hosts themselves".to_owned()));
    }
    let (raw, rest) = match text.strip_prefix("tcp://") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let start = text.len() - rest.len();
    check_shape(rest).map_err(|wrong| wrong.shift(start))?;
    let (host, ports) = split_ports(rest).map_err(|wrong| wrong.shift(start))?;
    let pattern = HostPattern::parse(host).map_err(|wrong| wrong.shift(start))?;
    let ports = match ports {
        Some(list) => {
            let at = text.len() - list.len();
            Some(parse_ports(list, &text[..at - 1]).map_err(|wrong| wrong.shift(at))?)
        }
        None if raw => {
            let hint = format!("write `{text}:5432` with the port that is meant");
            return Err(Wrong::new(text.len(), RuleFault::RawWithoutPort).hint(hint));
        }
        None => None,
    };
    Ok(Parts { pattern, ports, raw })
}

/// Blank rules, white space, control characters, and texts longer than any rule.
fn check_characters(text: &str) -> Result<(), Wrong> {
    if text.len() > LONGEST {
        return Err(Wrong::new(LONGEST, RuleFault::Long(LONGEST)));
    }
    if text.trim().is_empty() {
        return Err(Wrong::new(0, RuleFault::Blank).hint("write a host: `example.com`".to_owned()));
    }
    match text.char_indices().find(|(_, c)| c.is_whitespace() || c.is_control()) {
        Some((at, c)) if c.is_whitespace() => {
            // A rule with a space inside is not tried again: it would come back here.
            let rule = Some(text.trim()).filter(|rule| !rule.contains(char::is_whitespace)).and_then(if_rule);
            Err(Wrong::new(at, RuleFault::Space).hint(rule.or(Some("write a rule for each host".to_owned()))))
        }
        Some((at, _)) => Err(Wrong::new(at, RuleFault::Control)),
        None => Ok(()),
    }
}

/// Texts that are not `host[:ports]` at all: URLs, user information.
fn check_shape(text: &str) -> Result<(), Wrong> {
    if let Some((scheme, rest)) = text.split_once("://") {
        if scheme.eq_ignore_ascii_case("udp") {
            return Err(Wrong::new(0, RuleFault::Udp));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let hint = if scheme.eq_ignore_ascii_case("tcp") { if_rule(&format!("tcp://{host}")) } else { if_rule(host) };
        return Err(Wrong::new(0, RuleFault::Url).hint(hint));
    }
    let Some((user, host)) = text.rsplit_once('@') else { return Ok(()) };
    // `git@example.com:owner/repo` is how ssh is told a path.
    let over_ssh = || if_rule(&format!("{}:22", host.split(':').next().unwrap_or_default()));
    Err(Wrong::new(user.len(), RuleFault::UserInformation).hint(if_rule(host).or_else(over_ssh)))
}

/// The hint to write that text, if it is a rule. Each caller gives a text without what it complains of, so this ends.
fn if_rule(text: &str) -> Option<String> {
    parse(text).is_ok().then(|| format!("write `{text}`"))
}

/// The host part, and what follows its colon. An IPv6 address without brackets is the host part as a whole.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), Wrong> {
    let colon_from = |from: usize| match text[from..].find(':') {
        Some(at) => (&text[..from + at], Some(&text[from + at + 1..])),
        None => (text, None),
    };
    if text.starts_with('[') {
        return Ok(colon_from(text.find(']').unwrap_or(text.len())));
    }
    if let Some((address, _)) = text.split_once('/')
        && parse_ip(address).is_some()
    {
        return Ok(colon_from(address.len()));
    }
    if parse_ipv6(text.as_bytes()).is_some() {
        let (before, after) = text.rsplit_once(':').unwrap_or((text, ""));
        if !ends_like_a_port(text) {
            return Ok((text, None));
        }
        let hint = format!("write `[{before}]:{after}` for the port, `[{text}]` for the address");
        return Err(Wrong::new(before.len(), RuleFault::Ambiguous).hint(hint));
    }
    if text.matches(':').nth(1).is_some() {
        // `2001:db8::1:443,80`, `fe80::1%eth0`, `::1]` or garbage.
        if let Some(at) = text.find(['[', ']']) {
            return Err(Wrong::new(at, RuleFault::Brackets).hint("write `[2001:db8::1]:443`".to_owned()));
        }
        if let Some((before, after)) = text.rsplit_once(':')
            && parse_ipv6(before.as_bytes()).is_some()
        {
            let hint = if_rule(&format!("[{before}]:{after}"));
            return Err(Wrong::new(before.len(), RuleFault::Ipv6).hint(hint));
        }
        if let Some(at) = text.find('%') {
            return Err(Wrong::new(at, RuleFault::Zone).hint("write the address without it".to_owned()));
        }
        let hexadecimal = text.bytes().all(|b| b.is_ascii_hexdigit() || b":./,-*".contains(&b));
        if hexadecimal || text.contains("::") {
            let hint = "write an IPv6 address and its port as `[2001:db8::1]:443`";
            return Err(Wrong::new(0, RuleFault::Ipv6).hint(hint.to_owned()));
        }
    }
    Ok(colon_from(0))
}

/// Parses what follows the colon. `host` is what stands before it, for the hints.
fn parse_ports(list: &str, host: &str) -> Result<Ports, Wrong> {
    if let Some(at) = list.find('/') {
        return Err(Wrong::new(at, RuleFault::Path).hint(if_rule(&format!("{host}:{}", &list[..at]))));
    }
    Ports::parse(list).map_err(|error| match error {
        PortsError::Port { at, text, .. } if text.is_empty() => {
            let hint = format!("write `{host}` for 443 and 80, or `{host}:443`");
            Wrong::new(at, RuleFault::NoPort).hint(hint)
        }
        PortsError::Port { at, text, source } => {
            let hint = match well_known(&text) {
                Some(port) => format!("write `{host}:{port}`"),
                None => format!("write `{host}:443`, `{host}:22,443` or `{host}:8000-8100`"),
            };
            Wrong::new(at, RuleFault::Port { text, source }).hint(hint)
        }
        PortsError::Backwards { at, low, high } => {
            Wrong::new(at, RuleFault::BackwardsPorts { low, high }).hint(format!("write `{high}-{low}`"))
        }
        PortsError::StarInList { at } => {
            Wrong::new(at, RuleFault::StarAfterPorts).hint(format!("write `{host}:*` alone for every port"))
        }
    })
}

/// The port of a service that people are likely to write by name, for a hint only.
fn well_known(service: &str) -> Option<Port> {
    let number = match service {
        "ssh" => 22,
        "smtp" => 25,
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Port::new(number)
}
