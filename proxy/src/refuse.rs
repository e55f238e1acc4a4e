//! The one place where a refusal becomes bytes.
//!
//! A program that is refused should say so to its user, so it is told in the protocol that it speaks: a 403 in HTTP,
//! `access_denied` in TLS (RFC 8446 §6.2), a reply in SOCKS5 (RFC 1928 §6), and a reset in anything else, which is what a firewall would give.

use netbox_config::{Reason, Refusal};

use crate::explicit::socks5::{self, Reply};
use crate::http::answer::Answer;
use crate::socket::{self, Connection};

/// A fatal alert `access_denied` in a record of its own. A client takes it before the server has chosen a version.
const ACCESS_DENIED: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31];

/// In which protocol a refusal is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// An HTTP response to a request with this method.
    Http(Answer, Option<String>),
    /// A TLS alert.
    Tls,
    /// A reply to a SOCKS5 request.
    Socks5(Reply),
    /// That SOCKS5 offers no method which netbox takes (RFC 1928 §3).
    Socks5NoMethod,
    /// That SOCKS5 proves nothing (RFC 1929 §2).
    Socks5NoToken,
    /// A reset.
    Reset,
}

/// Tells it and ends the connection, such that what is told arrives.
pub(crate) async fn refuse(client: Connection, telling: Telling) {
    let bytes = match telling {
        Telling::Http(answer, method) => answer.bytes(method.as_deref()),
        Telling::Tls => ACCESS_DENIED.to_vec(),
        Telling::Socks5(reply) => reply.bytes().to_vec(),
        Telling::Socks5NoMethod => socks5::NO_METHOD.to_vec(),
        Telling::Socks5NoToken => socks5::WRONG_TOKEN.to_vec(),
        Telling::Reset => return socket::reset(client.stream),
    };
    // An error means that the program has gone away.
    if socket::write_all(&client.stream, &bytes).await.is_ok() {
        socket::finish(client.stream).await;
    }
}

/// The sentence that says a refusal to a person, the same wherever one reads it. `target` is `host:port`.
#[must_use]
pub fn sentence(target: &str, refusal: &Refusal) -> String {
    let reason = refusal.reason();
    if refusal.is_by_outer() {
        return format!("`{target}` is refused by the netbox around this one: {} ({reason})", explanation(reason));
    }
    if refusal.is_uncaught() {
        let why = "without nf_tables, netbox catches connections on some ports only";
        return format!("`{target}` is refused: {why} ({reason})");
    }
    match refusal.ceiling() {
        Some(place) => format!("`{target}` is refused: it is outside the ceiling of {place} ({reason})"),
        None => format!("`{target}` is refused: {} ({reason})", explanation(reason)),
    }
}

/// The sentence that says that the far side failed. `target` is `host:port`.
pub(crate) fn failure(target: &str, reason: Reason) -> String {
    format!("`{target}` is allowed, and failed: {} ({reason})", explanation(reason))
}

fn explanation(reason: Reason) -> &'static str {
    match reason {
        Reason::Listed | Reason::Open | Reason::Audit => "it is allowed",
        Reason::NotListed => "no rule allows this host",
        Reason::PortNotListed => "the host is allowed on other ports only",
        Reason::Denied => "a deny rule covers it",
        Reason::ModeNone => "mode `none` allows nothing",
        Reason::AddressNotListed => "no rule allows this address",
        Reason::NonPublic => "the address is not public, and no rule names it",
        Reason::Malformed => "what was sent cannot be read in one way only",
        Reason::SniMismatch => "the TLS server name is another host",
        Reason::SniMissing => "the TLS handshake names no host",
        Reason::NotTls => "only TLS is let through on this port",
        Reason::HostMismatch => "the request is for another host",
        Reason::NotHttp => "only HTTP/1 is let through on this port",
        Reason::Udp => "UDP is not let through",
        Reason::Unsupported => "netbox does not carry this protocol",
        Reason::Unauthenticated => "no token came with it that is known here",
        Reason::Limit => "there are too many connections, or new names below a wildcard, at once",
        Reason::Revoked => "the policy has changed",
        Reason::SelfAddress => "it is this machine's own address, or netbox itself",
        Reason::DnsNotFound => "there is no such name",
        Reason::DnsFailed => "the name could not be looked up",
        Reason::Refused => "the far side refused the connection",
        Reason::Unreachable => "the far side cannot be reached",
        Reason::Timeout => "the far side did not answer in time",
        Reason::UpstreamProxy => "the proxy on the way failed",
    }
}
