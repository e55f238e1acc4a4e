//! What is wrong with a rule, where, and what to write.

use std::fmt;

use crate::name::NameError;
use crate::port::{Port, PortError};
use crate::quote::quote;
use crate::source::Source;

/// A rule that does not parse. Its display is one line with all of it: the source, the rule quoted, the place, the fault
/// and what to write.
///
/// ```text
/// --allow: rule `https://github.com`, column 1: a URL where a host is meant; write `github.com`
/// netbox.toml:3:14: rule `api.*.com`: a `*` in the middle; write it at the beginning only: `*.example.com`
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
// Boxed, so that the good case of a `Result` stays small.
pub struct RuleError(Box<Detail>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    text: String,
    source: Option<Source>,
    offset: usize,
    fault: RuleFault,
    hint: Option<String>,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// Empty, or nothing but white space.
    #[error("an empty rule")]
    Blank,
    /// White space.
    #[error("a space, and a rule has none")]
    Space,
    /// A control character.
    #[error("a control character")]
    Control,
    /// `@name` where only a host can stand.
    #[error("a preset where a host is meant")]
    Preset,
    /// `@some name`.
    #[error("a preset's name has lower-case letters, digits, `-` and `_`")]
    PresetName,
    /// `@name:22`.
    #[error("ports after a preset, which brings its own")]
    PresetPorts,
    /// A URL.
    #[error("a URL where a host is meant")]
    Url,
    /// `udp://`.
    #[error("UDP is not supported, netbox carries TCP")]
    Udp,
    /// `user@host`.
    #[error("user information, and a rule is a host")]
    UserInformation,
    /// `host/path`.
    #[error("a path, and a rule is a host")]
    Path,
    /// Several rules in one.
    #[error("a list, and a rule is one host")]
    List,
    /// `git*.com`, `api.*.com`, `*.*`.
    #[error("a `*` that is not a whole first label")]
    Wildcard,
    /// `*.` or `.`.
    #[error("a wildcard over nothing")]
    NoBase,
    /// `*.10.0.0.1`.
    #[error("a wildcard over an address")]
    WildcardAddress,
    /// `*.com`.
    #[error("a wildcard over {}, where everyone registers names", quote(.0.as_bytes()))]
    PublicSuffix(String),
    /// The host is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// `127.1`, `0177.0.0.1`, `2130706433`, `300.1.1.1`.
    #[error("not an IPv4 address in its usual form, and no host name either")]
    NumericHost,
    /// Brackets around something else, or one bracket alone.
    #[error("square brackets hold an IPv6 address, and this is none")]
    Brackets,
    /// Colons, and no IPv6 address.
    #[error("neither an IPv6 address nor a host and a port")]
    Ipv6,
    /// `fe80::1%eth0`.
    #[error("an address with a zone is not supported")]
    Zone,
    /// `2001:db8::1:443`.
    #[error("an IPv6 address that may also be an address and a port")]
    Ambiguous,
    /// `::ffff:10.0.0.0/104`.
    #[error("an IPv4-mapped address, which is the IPv4 address")]
    Mapped,
    /// `/33`, `/-1`, `/08`.
    #[error("{} is no prefix length of 0 to {max}", quote(.text.as_bytes()))]
    PrefixLength {
        /// What stands after the slash.
        text: String,
        /// 32 or 128.
        max: u8,
    },
    /// `10.0.0.1/8`.
    #[error("the address has bits beyond its prefix length")]
    HostBits,
    /// `10.0.0.1-10.0.0.9`.
    #[error("a range of addresses is written with a prefix length")]
    AddressRange,
    /// `host:`, `host:22,`.
    #[error("a port is missing")]
    NoPort,
    /// A port that is none.
    #[error("{} is no port: {source}", quote(.text.as_bytes()))]
    Port {
        /// What stands where the port should.
        text: String,
        /// What is wrong with it.
        source: PortError,
    },
    /// `9-1`.
    #[error("a range of ports that runs backwards")]
    BackwardsPorts {
        /// Its first number.
        low: Port,
        /// Its second, smaller number.
        high: Port,
    },
    /// `host:22,*`.
    #[error("a `*` after a list of ports: it may mean every port, or every host")]
    StarAfterPorts,
    /// `tcp://host`.
    #[error("a raw rule names its port")]
    RawWithoutPort,
    /// `host,443`.
    #[error("a port that follows no list of ports")]
    StrayPort,
    /// Longer than any rule can be.
    #[error("a rule has at most {0} bytes")]
    Long(usize),
}

/// A fault on its way up through the parsers, each of which knows its own part of the rule only.
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) fault: RuleFault,
    pub(crate) hint: Option<String>,
}

impl Wrong {
    pub(crate) fn new(at: usize, fault: RuleFault) -> Self {
        Self { at, fault, hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<Option<String>>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// The same fault in a text in which this one starts at `start`.
    pub(crate) fn shift(self, start: usize) -> Self {
        Self { at: self.at + start, ..self }
    }
}

impl RuleError {
    pub(crate) fn new(text: &str, wrong: Wrong) -> Self {
        let Wrong { at, fault, hint } = wrong;
        Self(Box::new(Detail { text: text.to_owned(), source: None, offset: at, fault, hint }))
    }

    /// The same error, with the place where the rule (or the list of [`split_rules`](crate::split_rules)) was written.
    #[must_use]
    pub fn with_source(mut self, source: Source) -> Self {
        self.0.source = Some(source);
        self
    }

    /// The rule as written. Hostile text: show it with [`quote`](crate::quote()).
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Where the rule was written, if that is known.
    pub fn source(&self) -> Option<&Source> {
        self.0.source.as_ref()
    }

    /// The byte offset in the rule at which the fault lies, from 0.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    /// The column in the rule at which the fault lies, in characters from 1.
    pub fn column(&self) -> usize {
        let before = self.0.text.char_indices().take_while(|(at, _)| *at < self.0.offset);
        before.count() + 1
    }

    /// What is wrong.
    pub fn fault(&self) -> &RuleFault {
        &self.0.fault
    }

    /// What to write, as a phrase: "write `github.com`".
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            Some(Source::File { path, line, column }) => {
                let at = Source::File { path: path.clone(), line: *line, column: column + self.column() - 1 };
                write!(f, "{at}: rule {}: ", quote(self.0.text.as_bytes()))?;
            }
            Some(source) => write!(f, "{source}: rule {}, column {}: ", quote(self.0.text.as_bytes()), self.column())?,
            None => write!(f, "rule {}, column {}: ", quote(self.0.text.as_bytes()), self.column())?,
        }
        write!(f, "{}", self.0.fault)?;
        match &self.0.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RuleError {}
