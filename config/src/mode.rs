//! The four modes of a policy.

use std::fmt;
use std::str::FromStr;

/// What happens to a target that no rule speaks of. Deny rules hold in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// What is listed passes, all else is refused. The default.
    #[default]
    Allowlist,
    /// Nothing passes, whatever the rules.
    None,
    /// Everything passes, also to addresses that are not public.
    Open,
    /// What is not listed passes and is reported, if the address is public.
    Audit,
}

/// A word that is no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is no mode, write `allowlist`, `none`, `open` or `audit`", crate::quote(.0.as_bytes()))]
pub struct ModeError(String);

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Allowlist, Self::None, Self::Open, Self::Audit];

    /// The word on the command line and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowlist => "allowlist",
            Self::None => "none",
            Self::Open => "open",
            Self::Audit => "audit",
        }
    }

    /// Whether more passes in this mode than in the other, the rules being the same: `none`, `allowlist`, `audit`, `open`.
    pub fn is_wider_than(self, other: Self) -> bool {
        let width = |mode| match mode {
            Self::None => 0,
            Self::Allowlist => 1,
            Self::Audit => 2,
            Self::Open => 3,
        };
        width(self) > width(other)
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    /// Parses exactly one of the four words, in lower case.
    fn from_str(text: &str) -> Result<Self, ModeError> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| ModeError(text.to_owned()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_one_of_four_words_exactly() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        for text in ["", "Open", "open ", "off", "allow"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
        assert_eq!(
            "off".parse::<Mode>().unwrap_err().to_string(),
            "`off` is no mode, write `allowlist`, `none`, `open` or `audit`"
        );
    }
}
