//! What is told, before it is a line.

use std::net::SocketAddr;
use std::time::Duration;

use netbox_config::{Mode, Reason, RuleRef, Via};

/// The three verdicts of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The policy let it through.
    Allow,
    /// The policy, or a check that goes with it, refused it.
    Deny,
    /// The input was malformed, or it was allowed and the far side failed.
    Error,
}

impl Verdict {
    /// The verdict that goes with a reason.
    #[must_use]
    pub fn of(reason: Reason) -> Self {
        match reason {
            Reason::Listed | Reason::Open | Reason::Audit => Self::Allow,
            Reason::Malformed
            | Reason::DnsNotFound
            | Reason::DnsFailed
            | Reason::Refused
            | Reason::Unreachable
            | Reason::Timeout
            | Reason::UpstreamProxy => Self::Error,
            // Everything else, also what may be added: a reason is a refusal unless it is known not to be.
            _ => Self::Deny,
        }
    }

    /// The word in the event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// The `start` event: the sandbox stands and the command is about to run.
#[derive(Clone, Debug)]
pub struct Start {
    /// The command's first word, as typed.
    pub argv0: String,
    /// The mode of the policy.
    pub mode: Mode,
    /// `Policy::digest`.
    pub policy: String,
    /// Which mechanisms are in force.
    pub walls: Vec<String>,
    /// What was opened beside the policy, as flags.
    pub doors: Vec<String>,
    /// The command's process, as the host numbers it.
    pub pid: u32,
}

/// The process that opened a connection, where it is known.
#[derive(Clone, Debug)]
pub struct Process {
    /// As the host numbers it.
    pub pid: u32,
    /// The path of its executable.
    pub exe: Option<String>,
}

/// The `decision` event: one per connection, or per request on HTTP, after every check that comes before bytes are
/// moved. The verdict follows from `reason`.
#[derive(Clone, Debug)]
pub struct DecisionEvent {
    /// [`Events::next_id`]; ties the `close` event to it.
    pub id: u64,
    /// The name or address that was asked for, as far as it is known; any text.
    pub host: String,
    /// Its port, as far as it is known.
    pub port: Option<u16>,
    /// How it arrived.
    pub via: Via,
    /// Why it was decided so.
    pub reason: Reason,
    /// The rule that decided, if one did.
    pub rule: Option<RuleRef>,
    /// In audit mode: the reason it would have been refused for.
    pub would: Option<Reason>,
    /// The name in the TLS ClientHello.
    pub sni: Option<String>,
    /// The HTTP method.
    pub method: Option<String>,
    /// The URL that was asked for.
    pub url: Option<String>,
    /// Who asked.
    pub process: Option<Process>,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
    /// What almost allowed it.
    pub near: Option<String>,
}

impl DecisionEvent {
    /// A decision of which no more is known than this; the other fields are there to be set.
    #[must_use]
    pub fn new(id: u64, host: impl Into<String>, port: Option<u16>, via: Via, reason: Reason) -> Self {
        Self {
            id,
            host: host.into(),
            port,
            via,
            reason,
            rule: None,
            would: None,
            sni: None,
            method: None,
            url: None,
            process: None,
            hint: None,
            near: None,
        }
    }
}

/// The `close` event: an allowed connection, or request, has ended.
#[derive(Clone, Debug)]
pub struct CloseEvent {
    /// The id of its `decision`.
    pub id: u64,
    /// The `host` of its decision, for the sums.
    pub host: String,
    /// Likewise.
    pub port: Option<u16>,
    /// The address that was dialled; none where nothing was.
    pub addr: Option<SocketAddr>,
    /// Bytes that the sandbox sent.
    pub sent: u64,
    /// Bytes that the sandbox received.
    pub received: u64,
    /// Since it was accepted.
    pub duration: Duration,
    /// How it ended.
    pub end: End,
    /// The name in a TLS ClientHello that came after the decision.
    pub sni: Option<String>,
    /// What the mode let pass after the decision.
    pub passed_late: Option<LatePass>,
}

/// What came after the decision and passed because of the mode.
#[derive(Clone, Debug)]
pub struct LatePass {
    /// Why it would have been refused.
    pub would: Reason,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Both sides were done.
    Done,
    /// One side reset it.
    Reset,
    /// Nothing moved for too long.
    Timeout,
    /// A limit was reached.
    Limit,
    /// The policy changed, and no longer allows it.
    Revoked,
    /// A check after the decision failed. It counts as a refusal like any other.
    Refused(LateRefusal),
    /// The far side failed.
    Upstream,
}

impl End {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Revoked => "revoked",
            Self::Refused(_) => "refused",
            Self::Upstream => "upstream",
        }
    }
}

/// A refusal that came after the decision, with what the summary must know of it.
#[derive(Clone, Debug)]
pub struct LateRefusal {
    /// Why.
    pub reason: Reason,
    /// The decision's `host`.
    pub host: String,
    /// The decision's `port`.
    pub port: Option<u16>,
    /// The rule that would allow it, where one can.
    pub hint: Option<String>,
}
