//! Why a connection was allowed, refused or failed: the closed list of words in events and messages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why. [`Reason::as_str`] gives the word of the event schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// An allow rule covers it.
    Listed,
    /// Mode `open`.
    Open,
    /// Mode `audit`: it passes although no rule covers it.
    Audit,
    /// No allow rule covers the name.
    NotListed,
    /// An allow rule covers the host, on other ports.
    PortNotListed,
    /// A deny rule covers it.
    Denied,
    /// Mode `none`.
    ModeNone,
    /// The target is an address that no allow rule covers.
    AddressNotListed,
    /// The address is not public and no rule names it.
    NonPublic,
    /// What arrived could not be parsed.
    Malformed,
    /// The TLS server name is another than the name that was judged.
    SniMismatch,
    /// There is no TLS server name where there must be one.
    SniMissing,
    /// Not TLS where it must be.
    NotTls,
    /// The HTTP authority is another than the name that was judged.
    HostMismatch,
    /// Not HTTP where it must be.
    NotHttp,
    /// UDP.
    Udp,
    /// A protocol or a form of it that netbox does not carry.
    Unsupported,
    /// Nobody who is known: a shared service asks for a token, and none came, or a wrong one.
    Unauthenticated,
    /// A limit was reached.
    Limit,
    /// The policy changed while the connection was open.
    Revoked,
    /// The host's own address, or netbox's own listener. The word is `self`.
    #[serde(rename = "self")]
    SelfAddress,
    /// Allowed, but the name does not exist or has no address.
    DnsNotFound,
    /// Allowed, but the lookup failed.
    DnsFailed,
    /// Allowed, but the far side refused.
    Refused,
    /// Allowed, but the far side could not be reached.
    Unreachable,
    /// Allowed, but the far side did not answer in time.
    Timeout,
    /// Allowed, but the proxy on the way failed.
    UpstreamProxy,
}

impl Reason {
    /// Every reason, in the order of the list.
    pub const ALL: [Self; 27] = [
        Self::Listed,
        Self::Open,
        Self::Audit,
        Self::NotListed,
        Self::PortNotListed,
        Self::Denied,
        Self::ModeNone,
        Self::AddressNotListed,
        Self::NonPublic,
        Self::Malformed,
        Self::SniMismatch,
        Self::SniMissing,
        Self::NotTls,
        Self::HostMismatch,
        Self::NotHttp,
        Self::Udp,
        Self::Unsupported,
        Self::Unauthenticated,
        Self::Limit,
        Self::Revoked,
        Self::SelfAddress,
        Self::DnsNotFound,
        Self::DnsFailed,
        Self::Refused,
        Self::Unreachable,
        Self::Timeout,
        Self::UpstreamProxy,
    ];

    /// The word, fixed for scripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Open => "open",
            Self::Audit => "audit",
            Self::NotListed => "not-listed",
            Self::PortNotListed => "port-not-listed",
            Self::Denied => "denied",
            Self::ModeNone => "mode-none",
            Self::AddressNotListed => "address-not-listed",
            Self::NonPublic => "non-public",
            Self::Malformed => "malformed",
            Self::SniMismatch => "sni-mismatch",
            Self::SniMissing => "sni-missing",
            Self::NotTls => "not-tls",
            Self::HostMismatch => "host-mismatch",
            Self::NotHttp => "not-http",
            Self::Udp => "udp",
            Self::Unsupported => "unsupported",
            Self::Unauthenticated => "unauthenticated",
            Self::Limit => "limit",
            Self::Revoked => "revoked",
            Self::SelfAddress => "self",
            Self::DnsNotFound => "dns-not-found",
            Self::DnsFailed => "dns-failed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::UpstreamProxy => "upstream-proxy",
        }
    }
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(word: &str) -> Result<Self, UnknownReason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word).ok_or(UnknownReason)
    }
}

/// It is no word of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a reason")]
pub struct UnknownReason;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().all(|reason| reason.as_str().parse() == Ok(*reason)));
        assert_eq!("Listed".parse::<Reason>(), Err(UnknownReason));
    }

    #[test]
    fn a_reason_travels_as_its_word() {
        for reason in Reason::ALL {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(text, format!("\"{reason}\""));
            assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason);
        }
    }
}
