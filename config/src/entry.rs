//! One text of a list of rules: a rule, or the name of a preset.

use std::fmt;
use std::sync::Arc;

use crate::rule::Rule;
use crate::rule_error::{RuleError, RuleFault, Wrong};
use crate::source::Source;

/// No preset or profile has a longer name, in bytes.
pub(crate) const LONGEST_NAME: usize = 64;

/// What a list of rules is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// What may be reached.
    Allow,
    /// What may not.
    Deny,
    /// What may be allowed at all.
    Ceiling,
    /// The rules of a preset. What they are for depends on the list that names it.
    Preset,
}

/// One text of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A rule.
    Rule(Rule),
    /// `@name`.
    Preset(PresetUse),
}

/// Where a preset is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetUse {
    /// Its name, without the `@`.
    pub name: Arc<str>,
    /// Where.
    pub source: Source,
}

impl Entry {
    /// Parses one text of a list.
    ///
    /// # Errors
    ///
    /// [`RuleError`], as [`Rule::parse`] for an allow list, and as [`Rule::parse_deny`] for the others: what is too broad
    /// to allow may be denied, and it may bound what others allow.
    pub fn parse(text: &str, list: List, source: Source) -> Result<Self, RuleError> {
        if let Some(name) = text.strip_prefix('@') {
            return match check_preset(name) {
                Ok(()) => Ok(Self::Preset(PresetUse { name: name.into(), source })),
                Err(wrong) => Err(RuleError::new(text, wrong.shift(1)).with_source(source)),
            };
        }
        match list {
            List::Allow => Rule::parse(text, source),
            List::Deny | List::Ceiling | List::Preset => Rule::parse_deny(text, source),
        }
        .map(Self::Rule)
    }

    /// Where it was written.
    pub fn source(&self) -> &Source {
        match self {
            Self::Rule(rule) => rule.source(),
            Self::Preset(preset) => &preset.source,
        }
    }
}

impl fmt::Display for Entry {
    /// The text as written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => f.write_str(rule.text()),
            Self::Preset(preset) => write!(f, "@{}", preset.name),
        }
    }
}

/// Whether it can be the name of a preset or a profile: lower-case letters, digits, `-` and `_`.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST_NAME && !text.contains(|c| !is_of_name(c))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_'
}

fn check_preset(name: &str) -> Result<(), Wrong> {
    if is_name(name) {
        return Ok(());
    }
    let at = name.find(|c| !is_of_name(c)).unwrap_or(0);
    let (before, after) = name.split_at(at);
    let lower = name.to_ascii_lowercase();
    if after.starts_with(':') && is_name(before) {
        let hint = format!("write `@{before}`, or the hosts themselves with their ports");
        return Err(Wrong::new(at, RuleFault::PresetPorts).hint(hint));
    }
    let hint = if is_name(&lower) { format!("write `@{lower}`") } else { "write `@github`, for instance".to_owned() };
    Err(Wrong::new(at, RuleFault::PresetName).hint(hint))
}
