//! What is wrong with a policy file, or with files that do not fit together: where, what, and what to write.

use std::fmt;

use crate::ech::EchError;
use crate::layer::Layer;
use crate::mode::{Mode, ModeError};
use crate::quote::quote;
use crate::rule_error::{RuleError, RuleFault};
use crate::service::ServiceFault;
use crate::source::Source;

/// How many errors are shown of a file that has many.
const SHOWN: usize = 20;

/// Everything that is wrong, in the order of the places. Displays as a line for each, at most 20, and then how many
/// more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors(Vec<FileError>);

/// One thing that is wrong.
///
/// ```text
/// netbox.toml:3:1: `alow` is no key of a policy file; did you mean `allow`?
/// netbox.toml:4:14: rule `api.*.com`: a `*` that is not a whole first label; write it at the beginning only: `*.example.com`
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
// Boxed, so that the good case of a `Result` stays small.
pub struct FileError(Box<Detail>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    source: Source,
    fault: FileFault,
    hint: Option<String>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// More bytes than a policy file may have.
    #[error("the file has {0} bytes, and a policy file at most 1 MiB")]
    Large(usize),
    /// Bytes that are no UTF-8.
    #[error("{} is not UTF-8", quote(.0))]
    NotUtf8(Vec<u8>),
    /// Not TOML.
    #[error("not TOML: {message}{}", excerpt(.found))]
    Toml {
        /// What the parser says.
        message: String,
        /// The text that it says it of; may be empty.
        found: String,
    },
    /// The same key twice.
    #[error("{} stands here a second time", quote(.0.as_bytes()))]
    DuplicateKey(String),
    /// A key that means nothing.
    #[error("{} is no key of {place}", quote(.key.as_bytes()))]
    UnknownKey {
        /// The key.
        key: String,
        /// What it stands in: "a policy file", "a profile", "a preset".
        place: &'static str,
    },
    /// A key that a later version reads.
    #[error("{} is not supported yet", quote(.0.as_bytes()))]
    NotSupportedYet(String),
    /// A key that the file's layer may not hold.
    #[error("a project's file may not hold {}", quote(.0.as_bytes()))]
    NotInProject(String),
    /// A value of another kind.
    #[error("{} is {found}, and must be {expected}", quote(.key.as_bytes()))]
    Type {
        /// The key.
        key: String,
        /// What it must be: "a list of rules".
        expected: &'static str,
        /// What it is: "a string".
        found: &'static str,
    },
    /// Something else than a rule in a list of rules.
    #[error("`{key}` holds {found}, and a rule is a string")]
    Item {
        /// The key of the list.
        key: &'static str,
        /// What it holds: "a number".
        found: &'static str,
    },
    /// Another version of the file format.
    #[error("this netbox reads version 1 of the policy file, and not {}", quote(.0.as_bytes()))]
    Version(String),
    /// A word that is no mode.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// A word that says nothing about ECH.
    #[error(transparent)]
    Ech(#[from] EchError),
    /// Something that is wrong with `[service]` alone.
    #[error(transparent)]
    Service(#[from] ServiceFault),
    /// A rule that is wrong.
    #[error("rule {}: {}", quote(.0.text().as_bytes()), .0.fault())]
    Rule(RuleError),
    /// A name that a preset or a profile cannot have.
    #[error("{} cannot be the name of a {what}", quote(.name.as_bytes()))]
    Name {
        /// "preset" or "profile".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A preset without rules.
    #[error("preset `{0}` has no `allow`")]
    EmptyPreset(String),
    /// More rules than a policy file may have.
    #[error("the file has more than {0} rules")]
    ManyRules(usize),
    /// A preset with the name of one that netbox brings.
    #[error("`@{0}` is a preset of netbox itself, and cannot be defined anew")]
    BuiltinPreset(String),
    /// A preset or profile that an outer file has defined.
    #[error("{what} `{name}` is defined in {outer}, and cannot be defined anew")]
    Redefined {
        /// "preset" or "profile".
        what: &'static str,
        /// Its name.
        name: String,
        /// Where the outer one is.
        outer: Source,
    },
    /// A preset that nothing defines.
    #[error("there is no preset {}", quote(.0.as_bytes()))]
    UnknownPreset(String),
    /// A profile that nothing defines.
    #[error("there is no profile {}", quote(.0.as_bytes()))]
    UnknownProfile(String),
    /// Presets that name each other in a circle; the first one is the last as well.
    #[error("presets in a circle: {}", chain(.0))]
    Cycle(Vec<String>),
    /// Presets within presets without end.
    #[error("presets within presets, more than {0} deep")]
    Deep(usize),
    /// A derived preset whose rules nobody could give.
    #[error("nothing says which hosts `@{name}` stands for{}", reason(.why))]
    NotExpanded {
        /// Its name.
        name: String,
        /// Why, as far as is known; may be empty.
        why: String,
    },
    /// A derived preset with a rule that is not one name with its ports.
    #[error("`@{name}` came to {}, and a derived rule is one name with its ports", quote(.text.as_bytes()))]
    NotExact {
        /// The preset.
        name: String,
        /// The rule.
        text: String,
    },
    /// A mode that an outer file does not leave open.
    #[error("mode `{mode}` is wider than `{limit}`, which {outer} sets")]
    WiderMode {
        /// The mode that was asked for.
        mode: Mode,
        /// The widest one.
        limit: Mode,
        /// Where that is set.
        outer: Source,
    },
    /// Mode `none` and allow rules, both on the command line: one of the two is not meant.
    #[error("mode `none` allows nothing, and {} ({place}) is an allow rule", quote(.rule.as_bytes()))]
    AllowInModeNone {
        /// The rule.
        rule: String,
        /// Where it was written.
        place: Source,
    },
}

/// What a file that is not the user's or the system's has to do without, and where it goes.
pub(crate) fn elsewhere(key: &str) -> String {
    format!("write {} in `/etc/netbox/config.toml` or `~/.config/netbox/config.toml`", quote(key.as_bytes()))
}

fn excerpt(text: &str) -> String {
    if text.trim().is_empty() { String::new() } else { format!(", found {}", quote(text.as_bytes())) }
}

fn reason(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn chain(names: &[String]) -> String {
    names.iter().map(|name| format!("`@{name}`")).collect::<Vec<_>>().join(", ")
}

impl FileError {
    pub(crate) fn new(source: Source, fault: FileFault) -> Self {
        Self(Box::new(Detail { source, fault, hint: None }))
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.0.hint = hint.into();
        self
    }

    /// A rule that is wrong; the source is the place in it.
    pub(crate) fn rule(source: Source, error: RuleError) -> Self {
        let mut hint = error.hint().map(ToOwned::to_owned);
        if matches!(error.fault(), RuleFault::Blank) {
            hint = hint.or(Some("leave it out".to_owned()));
        }
        Self::new(source, FileFault::Rule(error)).with_hint(hint)
    }

    /// Line and column, for the order within a file.
    pub(crate) fn place(&self) -> (usize, usize) {
        match self.source() {
            Source::File { line, column, .. } => (*line, *column),
            _ => (0, 0),
        }
    }

    /// Where it is.
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// What is wrong.
    pub fn fault(&self) -> &FileFault {
        &self.0.fault
    }

    /// What to write, as a phrase: "write `github.com`", "did you mean `allow`?".
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detail { source, fault, hint } = &*self.0;
        write!(f, "{source}: {fault}")?;
        match hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

impl FileErrors {
    /// `value`, unless there are errors.
    pub(crate) fn unless<T>(errors: Vec<FileError>, value: T) -> Result<T, Self> {
        if errors.is_empty() { Ok(value) } else { Err(Self(errors)) }
    }

    /// The errors, in the order of their places.
    pub fn iter(&self) -> std::slice::Iter<'_, FileError> {
        self.0.iter()
    }

    /// How many there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<FileError> for FileErrors {
    fn from(error: FileError) -> Self {
        Self(vec![error])
    }
}

impl<'a> IntoIterator for &'a FileErrors {
    type Item = &'a FileError;
    type IntoIter = std::slice::Iter<'a, FileError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().take(SHOWN).enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            error.fmt(f)?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for FileErrors {}

/// The layer's word for a message: "the project's file".
pub(crate) fn named(layer: Layer) -> &'static str {
    match layer {
        Layer::System => "the system's file",
        Layer::User => "the user's file",
        Layer::Project => "the project's file",
        Layer::CommandLine => "the command line",
    }
}
