//! Derived presets: from the text of a tool's own configuration to exact public names with their ports.
//!
//! # Theory of operation
//!
//! A derived preset (`@npm`, `@git`, …) stands for the hosts that a tool is configured with here. Each module reads the
//! texts of one tool as that tool does, with the tool's own precedence, and says where each host stands. It reads no
//! file itself: who finds the files, and asks a tool what it does without any, hands the texts in as [`Page`]s.
//!
//! The texts are hostile: a project brings them, and a sandboxed command may have changed them. What comes out is
//! therefore narrow by type. A [`Named`] is one name ([`HostName`]) with one port, never a wildcard, an address, a name
//! of one label, or a name that leads to this machine or its network; such a host is [`LeftOut`], and that is said. What
//! cannot be understood is an error ([`Misread`]), never a guess. URLs hold passwords: only a host is ever shown of one,
//! and none of one that has an `@` where it should have none.
//!
//! A text is gone through once. Nesting is bounded by the parsers (`serde_json`, `toml`), or is no recursion
//! (`roxmltree`); the number of hosts is bounded by [`MOST_HOSTS`].

pub mod apt;
pub mod cargo;
pub mod git;
pub mod go;
pub mod lockfile;
pub mod maven;
pub mod npm;
pub mod pip;
pub mod requirements;

mod json;
mod page;
mod url;

use std::fmt;

use ::toml::de::DeTable;

use crate::host::HostError;
use crate::name::HostName;
use crate::port::Port;
use crate::source::Source;

pub use page::Page;
pub use url::is_public;

use url::Meaning;

/// No preset stands for more hosts than this. A list that nobody can read is no list to trust.
pub const MOST_HOSTS: usize = 256;

/// A host and a port that a tool is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The host: public, as far as a name can tell.
    pub host: HostName,
    /// The port that the URL says, or its scheme.
    pub port: Port,
    /// Where that stands.
    pub source: Source,
}

impl fmt::Display for Named {
    /// The rule that allows it, and nothing else: `example.com:443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Something that names a host which a derived preset does not stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Why not.
    pub why: WhyNot,
    /// Where it stands.
    pub source: Source,
}

/// Why a host that a tool is configured with is not in its preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyNot {
    /// An address, of whatever class. A rule of one's own can name it.
    #[error("an address, and a derived preset stands for names alone; allow it by a rule of its own")]
    Address,
    /// `localhost`, `build.local`, `nexus`: what it leads to depends on the network that this machine is in.
    #[error("{} is no public name; allow it by a rule of its own", crate::quote(.0.as_str().as_bytes()))]
    NotPublic(HostName),
    /// `ftp`, `s3`, `ext`: netbox does not know what is reached, or cannot filter it by name.
    #[error("{} is no scheme that netbox knows a port for", crate::quote(.0.as_bytes()))]
    Scheme(String),
    /// Hosts that the tool learns of elsewhere.
    #[error("{0}")]
    Elsewhere(&'static str),
}

/// What the texts of a tool come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The hosts, each once, in the order of their first place.
    pub named: Vec<Named>,
    /// What is left out, each reason once.
    pub left_out: Vec<LeftOut>,
    /// Whether the tool also takes an index that none of the texts names: the one that it was built with.
    pub takes_default: bool,
}

/// Why a text, and with it the preset, cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source}: {fault}", source = .place)]
pub struct Misread {
    /// Where.
    pub place: Source,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong at one place of a text. Shows nothing that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is not what its format wants.
    #[error("not valid: {0}")]
    Syntax(String),
    /// A value that should be a URL.
    #[error("not a URL, or one of a form that netbox does not read")]
    NotUrl,
    /// The host of a URL is written with a variable, whose value netbox does not know.
    #[error("the host is in a variable; write it out, or allow it by a rule of its own")]
    Variable,
    /// White space, a backslash, more than one `@`: programs differ on what the host is.
    #[error("it is not clear what the host of the URL is")]
    Unclear,
    /// The host of a URL is none.
    #[error("the URL has no host that netbox can read: {0}")]
    Host(HostError),
    /// The port of a URL is none.
    #[error("the URL has a port that is none")]
    Port,
    /// A name in it leads to nothing, or in a circle.
    #[error("{} leads to nothing", crate::quote(.0.as_bytes()))]
    Dangling(String),
    /// More hosts than [`MOST_HOSTS`].
    #[error("names more than {MOST_HOSTS} hosts; write a rule for those that are meant")]
    TooMany,
}

impl Reading {
    /// Adds what a URL names, at the place that `source` tells.
    pub(crate) fn take_url(&mut self, url: &str, source: impl Fn() -> Source) -> Result<(), Misread> {
        match url::meaning(url) {
            Ok(meaning) => self.take(meaning, source),
            Err(fault) => Err(Misread { place: source(), fault }),
        }
    }

    /// Adds what a setting names.
    pub(crate) fn take_setting(&mut self, setting: &Setting) -> Result<(), Misread> {
        self.take_url(&setting.value, || setting.source.clone())
    }

    /// Adds what was read. The place is asked for only where something is new: finding it takes time.
    pub(crate) fn take(&mut self, meaning: Meaning, source: impl Fn() -> Source) -> Result<(), Misread> {
        match meaning {
            Meaning::Nothing => {}
            Meaning::Host(host, port) => {
                if self.named.iter().any(|named| named.host == host && named.port == port) {
                    return Ok(());
                }
                if self.named.len() == MOST_HOSTS {
                    return Err(Misread { place: source(), fault: Fault::TooMany });
                }
                self.named.push(Named { host, port, source: source() });
            }
            Meaning::LeftOut(why) => self.leave_out(why, source),
        }
        Ok(())
    }

    /// Notes that something is left out. As many reasons are kept as hosts could be.
    pub(crate) fn leave_out(&mut self, why: WhyNot, source: impl Fn() -> Source) {
        if self.left_out.len() < MOST_HOSTS && self.left_out.iter().all(|left| left.why != why) {
            self.left_out.push(LeftOut { why, source: source() });
        }
    }

    /// Adds all of another reading.
    ///
    /// # Errors
    ///
    /// Together they are too many hosts.
    pub fn add(&mut self, other: Self) -> Result<(), Misread> {
        for Named { host, port, source } in other.named {
            self.take(Meaning::Host(host, port), || source.clone())?;
        }
        for LeftOut { why, source } in other.left_out {
            self.leave_out(why, || source.clone());
        }
        self.takes_default |= other.takes_default;
        Ok(())
    }
}

/// A value as it stands in a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The value, unquoted.
    pub value: String,
    /// Where it stands.
    pub source: Source,
}

impl Setting {
    /// A value of the environment.
    pub fn of_environment(name: &'static str, value: impl Into<String>) -> Self {
        Self { value: value.into(), source: Source::Environment(name) }
    }
}

/// Reads a page as TOML.
fn toml<'a>(page: &Page<'a>) -> Result<::toml::Spanned<DeTable<'a>>, Misread> {
    DeTable::parse(page.text()).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        page.misread(offset, Fault::Syntax("it is no TOML".into()))
    })
}
