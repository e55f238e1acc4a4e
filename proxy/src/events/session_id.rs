//! The number of a run.

use std::fmt;
use std::io;
use std::str::FromStr;

/// 128 random bits that name one run of a sandbox; shown as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// A new one, from the kernel's random numbers.
    ///
    /// # Errors
    /// Where the kernel gives none, which no supported one does.
    pub fn random() -> io::Result<Self> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        Ok(Self(bits))
    }
}

impl From<[u8; 16]> for SessionId {
    fn from(bits: [u8; 16]) -> Self {
        Self(bits)
    }
}

impl FromStr for SessionId {
    type Err = NoSessionId;

    /// Exactly 32 hexadecimal digits, in lower case.
    fn from_str(text: &str) -> Result<Self, NoSessionId> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.as_bytes().iter().all(is_digit) {
            return Err(NoSessionId);
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| NoSessionId)?;
        Ok(Self(bits.to_be_bytes()))
    }
}

/// A text that is no number of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number of a run is 32 hexadecimal digits")]
pub struct NoSessionId;

impl fmt::Display for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SessionId({self})")
    }
}
