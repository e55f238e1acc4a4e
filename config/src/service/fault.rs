//! What can be wrong with `[service]` that is wrong with nothing else.

use std::net::SocketAddr;

use crate::quote::quote;
use crate::source::Source;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceFault {
    /// Neither an address with its port nor a unix socket.
    #[error("{} is no address to listen on", quote(.0.as_bytes()))]
    Address(String),
    /// A path that depends on where the service was started, or that no socket can have.
    #[error("{} is no path from `/`{}", quote(.path.as_bytes()), .limit)]
    Path {
        /// The path.
        path: String,
        /// What else it has to be: " of at most 107 bytes"; may be empty.
        limit: &'static str,
    },
    /// A number that is zero, negative, too large or no number.
    #[error("`{key}` is {}, and must be {expected}", quote(.found.as_bytes()))]
    Quantity {
        /// The key.
        key: &'static str,
        /// What stands there.
        found: String,
        /// What must stand there.
        expected: &'static str,
    },
    /// Something else than a string in a list of strings.
    #[error("`{key}` holds {found}, and must hold strings")]
    Item {
        /// The key of the list.
        key: &'static str,
        /// What it holds: "a number".
        found: &'static str,
    },
    /// Something that is not the hash of a token. It is not quoted: it may be the token.
    #[error("a token stands here as its hash, `sha256:` and 64 hexadecimal digits")]
    Token,
    /// A token that stands in two places, so that it would not say who comes.
    #[error("the same token stands at {0}")]
    SameToken(Source),
    /// An address that stands in two places.
    #[error("the same address stands at {0}")]
    SameAddress(Source),
    /// A listener for a role that is not there.
    #[error("there is no role {}", quote(.0.as_bytes()))]
    UnknownRole(String),
    /// A table without a key that it needs.
    #[error("{table} has no `{key}`")]
    Missing {
        /// The table, as it is written: "`[service.user.alice]`".
        table: String,
        /// The key.
        key: &'static str,
    },
    /// A listener that is open to whoever reaches it.
    #[error("other machines reach `{0}`, and nobody is asked for a token there")]
    Exposed(SocketAddr),
}

impl ServiceFault {
    /// The word for scripts.
    pub(crate) fn id(&self) -> &'static str {
        match self {
            Self::Address(_) => "invalid-address",
            Self::Path { .. } => "invalid-path",
            Self::Quantity { .. } => "invalid-quantity",
            Self::Item { .. } => "wrong-type",
            Self::Token => "invalid-token",
            Self::SameToken(_) | Self::SameAddress(_) => "redefined",
            Self::UnknownRole(_) => "unknown-role",
            Self::Missing { .. } => "missing-key",
            Self::Exposed(_) => "exposed-listener",
        }
    }
}
