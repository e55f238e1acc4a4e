//! Decides what a question is answered with.
//!
//! [`plan`] is pure: it sees the question, the policy and the table, and either has the answer or says what must be
//! asked on the host. Nothing is asked before it has said so, and it says so for listed names alone. [`finish`] asks.
//!
//! | question | answer |
//! | --- | --- |
//! | A, AAAA of a listed name | resolved on the host; if it has an address of either family, its synthetic address |
//! | A, AAAA of another name | its synthetic address, nothing is asked |
//! | PTR below `in-addr.arpa`, `ip6.arpa` | the name of a synthetic address; NXDOMAIN else |
//! | TXT, MX, SRV, CAA, NAPTR, CNAME, NS, SOA of a listed name | as on the host, no addresses beside |
//! | SRV of a [known service](SERVICES) of a listed name | the same |
//! | HTTPS, SVCB, and any other type | empty |
//! | any type but A and AAAA of another name | empty |
//! | any of an unlisted name below a search domain of the host | NXDOMAIN, so that a program tries the next domain |
//! | `localhost` and below | loopback, empty for other types (RFC 6761 §6.3) |
//! | `use-application-dns.net` | NXDOMAIN, which switches off a browser's own DNS over HTTPS |
//! | what is no host name | REFUSED |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbox_config::{HostName, Policy};

use super::forward::{Record, RecordKind};
use super::reply::{Answer, Extra, Reply};
use super::wire::{Question, Rcode, kind};
use super::{Names, reverse};
use crate::resolve::LookupError;
use crate::turns::Asked;

/// How long an answer of ours may be kept, in seconds. Short: a listed name that disappears should do so inside too.
pub const TTL: u32 = 30;

/// The services whose SRV records belong to a host's own name: `_mongodb._tcp.db.example.com` goes with
/// `db.example.com`. The list is closed because the label is chosen by the asker, and any text would do to carry data
/// out. For a service that is not here, a rule can name it (`_service._tcp.db.example.com`).
pub const SERVICES: [&str; 34] = [
    "_amqp",
    "_amqps",
    "_caldav",
    "_caldavs",
    "_carddav",
    "_carddavs",
    "_etcd-client",
    "_etcd-client-ssl",
    "_etcd-server",
    "_etcd-server-ssl",
    "_grpclb",
    "_http",
    "_https",
    "_imap",
    "_imaps",
    "_kerberos",
    "_ldap",
    "_ldaps",
    "_matrix",
    "_matrix-fed",
    "_minecraft",
    "_mongodb",
    "_mysql",
    "_nats",
    "_pop3s",
    "_postgresql",
    "_redis",
    "_sip",
    "_sips",
    "_stun",
    "_submission",
    "_turn",
    "_xmpp-client",
    "_xmpp-server",
];

/// What a question needs.
#[derive(Debug)]
pub enum Step {
    /// Nothing: this is the answer.
    Done(Reply),
    /// The addresses of a listed name, to know whether it has any; and the type that was asked for.
    Addresses(HostName, Family, Asked),
    /// Records of a listed name.
    Records(HostName, RecordKind, Asked),
}

/// Which of the two synthetic addresses is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// The step that a question needs, as far as the sandbox may still ask.
pub fn plan(names: &Names, question: Question) -> Step {
    let policy = names.policy.now();
    let step = step(names, &policy, question);
    match &step {
        Step::Addresses(.., asked) | Step::Records(.., asked) if !names.may_still_ask(*asked) => {
            Step::Done(Reply::new(Rcode::ServFail).because(Extra::TOO_MANY_NAMES))
        }
        _ => step,
    }
}

fn step(names: &Names, policy: &Policy, question: Question) -> Step {
    let Ok(name) = question.name else { return Step::Done(Reply::new(Rcode::Refused).because(Extra::NOT_LISTED)) };
    if question.kind == kind::PTR
        && let Some(reverse) = reverse::Reverse::of(&name)
    {
        return Step::Done(pointer(names, reverse));
    }
    let family = match question.kind {
        kind::A => Some(Family::V4),
        kind::AAAA => Some(Family::V6),
        _ => None,
    };
    if is_at_or_below(&name, "localhost") {
        return Step::Done(
            family.map_or_else(empty, |family| address(family, (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST))),
        );
    }
    if name.as_str() == "use-application-dns.net" {
        return Step::Done(Reply::new(Rcode::NxDomain).because(Extra::NOT_LISTED));
    }
    if let Some(kind) = RecordKind::of(question.kind)
        && may_ask_records(policy, &name, kind)
    {
        let asked = names.asked(policy, &name);
        return Step::Records(name, kind, asked);
    }
    match family {
        _ if !policy.may_resolve(&name) => Step::Done(unlisted(names, &name, family)),
        Some(family) => {
            let asked = names.asked(policy, &name);
            Step::Addresses(name, family, asked)
        }
        None => Step::Done(empty()),
    }
}

/// Asks on the host what the step needs.
pub async fn finish(names: &Names, step: Step) -> Reply {
    match step {
        Step::Done(reply) => reply,
        Step::Addresses(name, family, asked) => match names.resolver.addresses(&name, asked).await {
            // A name that lost its addresses between the resolver and here has none.
            Ok(addresses) if addresses.is_empty() => empty(),
            Ok(_) => synthetic(names, &name, true, family),
            Err(error) => failure(&error),
        },
        Step::Records(name, kind, _) => match names.records.records(&name, kind).await {
            Ok(records) => Reply::with_answers(records.into_iter().map(|record| answer_of(kind, record)).collect()),
            Err(error) => failure(&error),
        },
    }
}

fn answer_of(kind: RecordKind, record: Record) -> Answer {
    Answer { kind: kind.code(), ttl: record.ttl, data: record.data }
}

fn failure(error: &LookupError) -> Reply {
    match error {
        LookupError::NotFound => Reply::new(Rcode::NxDomain),
        LookupError::NoAddress => empty(),
        LookupError::Failed(_) => Reply::new(Rcode::ServFail).because(Extra::LOOKUP_FAILED),
    }
}

fn empty() -> Reply {
    Reply::new(Rcode::NoError)
}

/// The answer for a name that must not be asked for.
fn unlisted(names: &Names, name: &HostName, family: Option<Family>) -> Reply {
    let reply = if names.search_domains.iter().any(|domain| is_below(name, domain.as_str())) {
        Reply::new(Rcode::NxDomain)
    } else {
        match family {
            Some(family) => synthetic(names, name, false, family),
            None => empty(),
        }
    };
    if reply.extra.is_some() { reply } else { reply.because(Extra::NOT_LISTED) }
}

fn synthetic(names: &Names, name: &HostName, listed: bool, family: Family) -> Reply {
    match names.synthetic.assign(name, listed) {
        Some(pair) => address(family, pair),
        None => Reply::new(Rcode::ServFail).because(Extra::NO_ADDRESS_LEFT),
    }
}

fn address(family: Family, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> Reply {
    let (kind, data) = match family {
        Family::V4 => (kind::A, v4.octets().to_vec()),
        Family::V6 => (kind::AAAA, v6.octets().to_vec()),
    };
    Reply::with_answers(vec![Answer { kind, ttl: TTL, data }])
}

fn pointer(names: &Names, reverse: reverse::Reverse) -> Reply {
    let name = reverse.address().and_then(|address: IpAddr| names.synthetic.name_of(address));
    name.map_or_else(
        || Reply::new(Rcode::NxDomain),
        |name| Reply::with_answers(vec![Answer { kind: kind::PTR, ttl: TTL, data: encoded(&name) }]),
    )
}

/// A name as it stands in a message: each label after its length, the root's at the end.
fn encoded(name: &HostName) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.as_str().split('.') {
        // A label has at most 63 bytes; that is what a host name is.
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

/// Whether a query for these records may leave.
fn may_ask_records(policy: &Policy, name: &HostName, kind: RecordKind) -> bool {
    policy.may_resolve(name)
        || kind == RecordKind::Srv && service_host(name).is_some_and(|host| policy.may_resolve(&host))
}

/// The host of `_service._tcp.host` for a service that is known. Only over TCP: other connections are refused anyway.
fn service_host(name: &HostName) -> Option<HostName> {
    let (service, rest) = name.as_str().split_once('.')?;
    let host = rest.strip_prefix("_tcp.")?;
    if SERVICES.contains(&service) { HostName::parse_wire(host.as_bytes()).ok() } else { None }
}

fn is_at_or_below(name: &HostName, domain: &str) -> bool {
    name.as_str() == domain || is_below(name, domain)
}

fn is_below(name: &HostName, domain: &str) -> bool {
    name.as_str().strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}
