//! The capture rules: one nf_tables table of family inet, loaded in one transaction and read back.
//!
//! ```text
//! table inet netbox {
//!   chain nat    { type nat hook output priority dstnat;
//!                  fib daddr type local accept           # the sandbox's own servers are not captured
//!                  udp dport 53 redirect to :DNS
//!                  tcp dport 53 redirect to :DNS
//!                  meta l4proto tcp redirect to :CAPTURE }
//!   chain filter { type filter hook output priority filter; policy drop;
//!                  fib daddr type local accept           # after the redirect every captured packet is local
//!                  meta l4proto udp limit rate 20/second burst 50 packets log group 1
//!                  reject with icmpx admin-prohibited }
//! }
//! ```
//!
//! `fib daddr type local` comes first in both chains. In the first, so that a DNS server of the sandbox's own on
//! 127.0.0.1:53 stays its own. In the second, since after the redirect the old output interface is still what the
//! chain sees, while replies go to the stub's address: a rule on 127.0.0.0/8 would drop every SYN-ACK.
//!
//! Formats: `linux/netfilter/nf_tables.h`; numbers in attributes are in network byte order.

use nix::sys::socket::SockProtocol;

use super::listeners::{CAPTURE_PORT, DNS_PORT};
use super::netlink::{
    Attributes, Batch, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Socket, attributes,
};
use crate::error::{At, Failure, Step};

/// The group of nfnetlink_log that refused datagrams are told to.
pub(crate) const LOG_GROUP: u16 = 1;

const TABLE: &str = "netbox";
const NFPROTO_INET: u8 = 1;
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;
const GET_RULE: u16 = (SUBSYSTEM << 8) | 7;
const REGISTER: u32 = 1;
const REGISTER_VERDICT: u32 = 0;
const ACCEPT: u32 = 1;
const DROP: u32 = 0;

/// An expression of a rule: what it is, and how its attributes are written.
enum Expression {
    /// The kind of the destination address, as the routing tables see it.
    DestinationKind,
    Layer4Protocol,
    DestinationPort,
    Equals(Vec<u8>),
    Accept,
    Port(u16),
    RedirectToPort,
    Limit,
    Log,
    Reject,
}

use Expression::{
    Accept, DestinationKind, DestinationPort, Equals, Layer4Protocol, Limit, Log, Port, RedirectToPort, Reject,
};

/// A chain, and the expressions of a rule in it.
type Rule = (&'static str, Vec<Expression>);

/// The rules, in order.
fn rules(logged: bool) -> Vec<Rule> {
    let local = || vec![DestinationKind, Equals(u32::from(libc::RTN_LOCAL).to_ne_bytes().to_vec()), Accept];
    let protocol = |number: i32| [Layer4Protocol, Equals(vec![number as u8])];
    let dns = |number| {
        let mut rule = Vec::from(protocol(number));
        rule.extend([DestinationPort, Equals(53u16.to_be_bytes().to_vec()), Port(DNS_PORT), RedirectToPort]);
        rule
    };
    let mut capture = Vec::from(protocol(libc::IPPROTO_TCP));
    capture.extend([Port(CAPTURE_PORT), RedirectToPort]);
    let mut log = Vec::from(protocol(libc::IPPROTO_UDP));
    log.extend([Limit, Log]);
    let mut rules = vec![
        ("nat", local()),
        ("nat", dns(libc::IPPROTO_UDP)),
        ("nat", dns(libc::IPPROTO_TCP)),
        ("nat", capture),
        ("filter", local()),
    ];
    rules.extend(logged.then_some(("filter", log)));
    rules.push(("filter", vec![Reject]));
    rules
}

/// What came of [`load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// All of them.
    All,
    /// The kernel lacks what the log takes; the others are what holds.
    WithoutLog,
    /// None: this kernel has no such rules, or none for this user.
    Nothing,
}

/// Loads the rules and reads them back. A batch is all or nothing, so where it fails nothing was loaded.
pub(crate) fn load() -> Result<Loaded, Failure> {
    let step = Step::CaptureRules;
    let socket = match Socket::open(SockProtocol::NetlinkNetFilter).at(step, "the netfilter socket") {
        Err(failure) if is_missing(&failure) => return Ok(Loaded::Nothing),
        other => other?,
    };
    for (logged, loaded) in [(true, Loaded::All), (false, Loaded::WithoutLog)] {
        let rules = rules(logged);
        match submit(&socket, &rules) {
            Err(failure) if is_missing(&failure) => {}
            Err(failure) => return Err(failure),
            // Rules that were loaded and are not there are no case for another way.
            Ok(()) => return read_back(&socket, &rules).map(|()| loaded),
        }
    }
    Ok(Loaded::Nothing)
}

/// Hands them to the kernel, in one transaction.
fn submit(socket: &Socket, rules: &[Rule]) -> Result<(), Failure> {
    let step = Step::CaptureRules;
    let mut batch = Batch::default();
    batch.request(BATCH_BEGIN, 0, &header(0, SUBSYSTEM), |_| {});
    let inet = header(NFPROTO_INET, 0);
    batch.request(NEW_TABLE, NLM_F_CREATE | NLM_F_EXCL, &inet, |table| table.text(1, TABLE));
    // Hook 3 is NF_INET_LOCAL_OUT. Priorities: -100 is before, 0 is the ordinary filter.
    chain(&mut batch, "nat", "nat", -100, ACCEPT);
    chain(&mut batch, "filter", "filter", 0, DROP);
    let mut last = 0;
    for (number, (chain, expressions)) in rules.iter().enumerate() {
        // One acknowledgement, for the last rule: a batch is all or nothing, and any failure is told too.
        let acknowledge = if number + 1 == rules.len() { NLM_F_ACK } else { 0 };
        last = batch.request(NEW_RULE, NLM_F_CREATE | NLM_F_APPEND | acknowledge, &inet, |rule| {
            rule.text(1, TABLE);
            rule.text(2, chain);
            rule.nested(4, |list| {
                for expression in expressions {
                    list.nested(1, |element| {
                        element.text(1, expression.name());
                        element.nested(2, |data| expression.write(data));
                    });
                }
            });
        });
    }
    batch.request(BATCH_END, 0, &header(0, SUBSYSTEM), |_| {});
    let errors = socket.transact_whole(&batch, last).at(step, "the netfilter socket")?;
    if let Some((number, errno)) = errors.first() {
        return Err(Failure::new(step, *errno, format!("message {number} of the nf_tables batch")));
    }
    Ok(())
}

/// Whether the kernel has no such rules, and not for once: it lacks nf_tables or a part of it, or keeps it from this user.
fn is_missing(failure: &Failure) -> bool {
    // By the family of sockets, by the subsystem, by an expression or the kind of a chain, and by a filter before all that.
    const MISSING: [i32; 9] = [
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
        libc::EOPNOTSUPP,
        libc::EPROTOTYPE,
        libc::ENOENT,
        libc::EINVAL,
        libc::ENOSYS,
        libc::EPERM,
        libc::EACCES,
    ];
    MISSING.contains(&failure.errno)
}

/// What the kernel says it has must be what was sent, rule by rule and expression by expression.
fn read_back(socket: &Socket, wanted: &[Rule]) -> Result<(), Failure> {
    let mut batch = Batch::default();
    batch.request(GET_RULE, NLM_F_DUMP, &header(NFPROTO_INET, 0), |rule| rule.text(1, TABLE));
    let mut loaded = Vec::new();
    socket.dump(&batch, |body| loaded.push(describe(body))).at(Step::CaptureRules, "reading the rules back")?;
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(chain, expressions)| {
            (
                format!("{chain}\0").into_bytes(),
                expressions.iter().map(|e| format!("{}\0", e.name()).into_bytes()).collect(),
            )
        })
        .collect();
    if loaded != wanted {
        return Err(Failure::outcome(Step::CaptureRules, "the kernel holds other rules than were loaded"));
    }
    Ok(())
}

/// The chain of a dumped rule, and the names of its expressions.
fn describe(body: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut chain = Vec::new();
    let mut names = Vec::new();
    for (kind, value) in attributes(body.get(4..).unwrap_or_default()) {
        match kind {
            2 => chain = value.to_vec(),
            4 => {
                for (_, element) in attributes(value) {
                    names.extend(attributes(element).filter(|(kind, _)| *kind == 1).map(|(_, name)| name.to_vec()));
                }
            }
            _ => {}
        }
    }
    (chain, names)
}

/// `struct nfgenmsg`.
fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn chain(batch: &mut Batch, name: &str, kind: &str, priority: i32, policy: u32) {
    batch.request(NEW_CHAIN, NLM_F_CREATE | NLM_F_EXCL, &header(NFPROTO_INET, 0), |chain| {
        chain.text(1, TABLE);
        chain.text(3, name);
        chain.nested(4, |hook| {
            hook.be32(1, 3);
            hook.be32(2, priority as u32);
        });
        chain.be32(5, policy);
        chain.text(7, kind);
    });
}

impl Expression {
    fn name(&self) -> &'static str {
        match self {
            DestinationKind => "fib",
            Layer4Protocol => "meta",
            DestinationPort => "payload",
            Equals(_) => "cmp",
            Accept | Port(_) => "immediate",
            RedirectToPort => "redir",
            Limit => "limit",
            Log => "log",
            Reject => "reject",
        }
    }

    fn write(&self, data: &mut Attributes) {
        match self {
            DestinationKind => {
                data.be32(1, REGISTER);
                data.be32(2, 3); // NFT_FIB_RESULT_ADDRTYPE
                data.be32(3, 2); // NFTA_FIB_F_DADDR
            }
            Layer4Protocol => {
                data.be32(1, REGISTER);
                data.be32(2, 16); // NFT_META_L4PROTO
            }
            DestinationPort => {
                data.be32(1, REGISTER);
                data.be32(2, 2); // NFT_PAYLOAD_TRANSPORT_HEADER
                data.be32(3, 2); // offset
                data.be32(4, 2); // length
            }
            Equals(value) => {
                data.be32(1, REGISTER);
                data.be32(2, 0); // NFT_CMP_EQ
                data.nested(3, |wanted| wanted.bytes(1, value));
            }
            Accept => {
                data.be32(1, REGISTER_VERDICT);
                data.nested(2, |value| value.nested(2, |verdict| verdict.be32(1, ACCEPT)));
            }
            Port(port) => {
                data.be32(1, REGISTER);
                data.nested(2, |value| value.bytes(1, &port.to_be_bytes()));
            }
            RedirectToPort => {
                data.be32(1, REGISTER); // the lowest port
                data.be32(2, REGISTER); // and the highest
                data.be32(3, 2); // NF_NAT_RANGE_PROTO_SPECIFIED
            }
            Limit => {
                data.bytes(1, &20u64.to_be_bytes());
                data.bytes(2, &1u64.to_be_bytes()); // per second
                data.be32(3, 50);
                data.be32(4, 0); // packets
            }
            Log => {
                data.bytes(1, &LOG_GROUP.to_be_bytes());
                data.be32(3, 64); // IPv6 header and ports fit
                data.bytes(4, &1u16.to_be_bytes()); // tell each at once
            }
            Reject => {
                data.be32(1, 2); // NFT_REJECT_ICMPX_UNREACH
                data.bytes(2, &[3]); // NFT_REJECT_ICMPX_ADMIN_PROHIBITED
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_log_the_other_rules_are_the_same() {
        let names = |logged| -> Vec<(&str, Vec<&str>)> {
            let rules = rules(logged).into_iter();
            rules.map(|(chain, expressions)| (chain, expressions.iter().map(Expression::name).collect())).collect()
        };
        let mut all = names(true);
        all.retain(|(_, expressions)| !expressions.contains(&"log"));
        assert_eq!(all, names(false));
        assert_eq!(names(true).len(), names(false).len() + 1);
    }

    #[test]
    fn what_the_kernel_lacks_is_told_from_what_fails_for_once() {
        let fails_with = |errno| is_missing(&Failure { step: Step::CaptureRules, errno, detail: String::new() });
        for errno in [libc::EPROTONOSUPPORT, libc::EOPNOTSUPP, libc::ENOENT, libc::EPERM] {
            assert!(fails_with(errno), "{errno}");
        }
        for errno in [0, libc::ENOMEM, libc::ENOBUFS, libc::EMFILE, libc::EAGAIN, libc::EEXIST] {
            assert!(!fails_with(errno), "{errno}");
        }
    }
}
