//! Named policies, for plain clients.

use super::limits::TenantLimits;
use super::token::TokenHash;
use crate::policy_file::Section;
use crate::source::Source;

/// A role: a named policy, whose bearer proves a token or comes in by a listener of its own.
///
/// Its allow rules are all that it may reach: those at the top of the file are for clients without a role. The deny rules
/// and ceilings of all files bind it.
#[derive(Clone, Debug)]
pub struct Role {
    /// Where its name stands.
    pub(crate) at: Source,
    pub(crate) section: Section,
    pub(crate) tokens: Vec<(TokenHash, Source)>,
    pub(crate) limits: TenantLimits,
    pub(crate) admin: bool,
}

impl Role {
    /// Where its name stands.
    pub fn source(&self) -> &Source {
        &self.at
    }

    /// The hashes of its tokens, and where each stands.
    pub fn tokens(&self) -> impl Iterator<Item = &(TokenHash, Source)> {
        self.tokens.iter()
    }

    /// Whether a token can prove it.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// How much it may use, as far as its own table says.
    pub fn limits(&self) -> TenantLimits {
        self.limits
    }

    /// Whether its bearer may see what other tenants do.
    pub fn is_admin(&self) -> bool {
        self.admin
    }
}
