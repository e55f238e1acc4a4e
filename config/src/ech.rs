//! What is done about Encrypted Client Hello (RFC 9849).

use std::str::FromStr;

/// What is done with a TLS ClientHello that bears an `encrypted_client_hello` extension.
///
/// The real name is inside, where only the server reads it; the one outside is what is judged. A provider that is allowed
/// can so be asked for another of its customers. Browsers send the extension to everyone, filled with noise where they
/// know no key ("grease"), and nobody can tell the two apart: refusing it refuses those browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ech {
    /// It passes, judged by its outer name. The default.
    #[default]
    Allow,
    /// The connection is refused as `unsupported`.
    Refuse,
}

/// A word that is neither.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is nothing that can be done about ECH, write `allow` or `refuse`", crate::quote(.0.as_bytes()))]
pub struct EchError(String);

impl Ech {
    /// The word in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Refuse => "refuse",
        }
    }
}

impl FromStr for Ech {
    type Err = EchError;

    /// Parses exactly one of the two words, in lower case.
    fn from_str(text: &str) -> Result<Self, EchError> {
        let known = [Self::Allow, Self::Refuse].into_iter().find(|ech| ech.as_str() == text);
        known.ok_or_else(|| EchError(text.to_owned()))
    }
}
