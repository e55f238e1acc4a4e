//! The control protocol: a stream of frames in each direction, and what stands in them.
//!
//! A frame is four bytes of length (most significant first) and that many bytes of JSON, one object. The first two are known
//! by their place ([`Hello`], [`Attach`]), the others by their `type` ([`Said`], [`Told`]). Descriptors ride with the bytes of
//! the frame that counts them (SCM_RIGHTS), which is [`Attach`]; a [`Hello`] that nothing follows has one, the handle of the
//! client's user namespace.
//!
//! ```text
//! client                                   service
//! hello {v, what: "attach"}          ──▶
//! attach {session, policy, …} + fds  ──▶
//!                                    ◀──   granted {…}  or  refused {reason, text} and the end
//! judge, connected, failed, refused-udp ▶
//!                                    ◀──   verdict, event, sums
//!                                    ◀──   granted or revoked, after a reload; draining
//! end                                ──▶   everything that was sent is delivered
//!                                    ◀──   summary {…} and the end
//! ```
//!
//! What does not fit is a [`WireError`], and the end of the conversation: a key that is not known, a key twice, a frame
//! that is too long, bytes after the object, another version. Nothing is skipped and nothing guessed, so that a message
//! means the same to both sides or nothing at all.

use std::fmt;
use std::net::SocketAddr;

use netbox_config::AskedPolicy;
use serde::{Deserialize, Serialize};

use super::status::Status;
use crate::events::Summary;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// How long a frame may be, in bytes without its length.
pub const LONGEST: usize = 64 << 10;

/// How long one may be that bears a policy, or a summary.
pub const LONGEST_ATTACH: usize = 4 << 20;

/// How many descriptors may come with one request: more than a sandbox has listeners.
pub const MOST_DESCRIPTORS: usize = 160;

/// Why a conversation cannot go on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side speaks another version.
    #[error("it speaks version {0} of the control protocol, and this is version {VERSION}")]
    Version(u32),
    /// A frame is longer than any that is expected.
    #[error("a frame of {0} bytes, where at most {1} are expected")]
    Long(usize, usize),
    /// The other side ended within a frame.
    #[error("the connection ended within a frame")]
    Half,
    /// Not the JSON that is expected; what the parser says.
    #[error("not a message that is expected here: {0}")]
    Malformed(String),
    /// Other descriptors came than were announced.
    #[error("{came} descriptors came, and {announced} were announced")]
    Descriptors {
        /// How many the frame counts.
        announced: usize,
        /// How many came with it.
        came: usize,
    },
    /// There were more descriptors than the kernel could hand over.
    #[error("descriptors were lost on the way: this process may have no more open")]
    DescriptorsLost,
}

/// What a client wants of the service. The first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`VERSION`].
    pub v: u32,
    /// See there.
    pub what: What,
}

/// What follows a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A sandbox, with [`Attach`].
    Attach,
    /// The state of the service, once.
    Status,
    /// The state of the service, again and again.
    Watch,
    /// That the service reads its configuration anew.
    Reload,
    /// That the service ends when what is open has ended.
    Drain,
}

/// The request to carry a sandbox. Its listeners come along as descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// The number of the run: 32 hexadecimal digits.
    pub session: String,
    /// The first word of the command, for people.
    pub argv0: String,
    /// The policy that is asked for.
    pub policy: AskedPolicy,
    /// What each descriptor is, in their order.
    pub descriptors: Vec<Handed>,
    /// Whether events are wanted. The sums are told in any case.
    pub events: bool,
    /// The number of the first decision. One that attaches again goes on above those that it has used.
    pub first_id: u64,
    /// How many names the sandbox was given addresses for before, if it attaches again. They are not given to others.
    pub names: NamesUsed,
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handed {
    /// A TCP listener for redirected connections.
    Capture,
    /// A bound UDP socket for redirected queries.
    DnsUdp,
    /// A TCP listener for redirected queries.
    DnsTcp,
    /// A TCP listener for programs that are told of a proxy.
    Explicit,
    /// A handle of the client's user namespace.
    UserNamespace,
}

/// How many names have addresses of their own in a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamesUsed {
    /// Names that the policy lists.
    pub listed: usize,
    /// Names that it does not.
    pub refused: usize,
}

/// What an attached client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Said {
    /// May a program connect there? Answered by [`Told::Verdict`].
    Judge {
        /// A number for the answer, and for what is said of the connect afterwards.
        n: u64,
        /// Where to, as the program sees it.
        destination: SocketAddr,
        /// Who, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Asker>,
    },
    /// The connect was made.
    Connected {
        /// The number of its question.
        n: u64,
        /// Where it comes from, as the program sees it.
        source: SocketAddr,
        /// By whom, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Asker>,
    },
    /// The connect was not made.
    Failed {
        /// The number of its question.
        n: u64,
    },
    /// The sandbox's rules refused a datagram.
    RefusedUdp {
        /// Where it was meant to go.
        destination: SocketAddr,
    },
    /// The sandbox has ended: what it sent is to be delivered, and then all ends.
    End {},
}

/// A process of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asker {
    /// As the host numbers it.
    pub pid: u32,
    /// The path of its executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
}

/// What the service says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Told {
    /// The sandbox is carried from now on, by this policy. Told again when another one holds.
    Granted {
        /// The digest of the policy that holds.
        policy: String,
        /// Its mode.
        mode: String,
        /// What of the request was not granted, in words.
        warnings: Vec<String>,
    },
    /// It is not. The last frame.
    Refused(Refused),
    /// The answer to [`Said::Judge`].
    Verdict {
        /// The number of the question.
        n: u64,
        /// Whether it may be made.
        allow: bool,
    },
    /// A line of events, with its newline.
    Event {
        /// JSON, in at most [`crate::events::MAX_LINE`] bytes.
        line: String,
    },
    /// The sums so far, now and then.
    Sums(Sums),
    /// The sums at the end: of the sandbox, or of the service. The last frame.
    Summary {
        /// See there.
        summary: Box<Summary>,
        /// How many lines of events were dropped.
        events_dropped: u64,
    },
    /// How the service is.
    Status(Box<Status>),
    /// What was asked for is done. The last frame.
    Done {
        /// What was done, in words.
        text: String,
    },
    /// Nothing is granted any more. The sandbox is carried on, without network, until something is granted again.
    Revoked {
        /// Why, in words.
        text: String,
    },
    /// The service takes no more connections: what is open may go on for a while, and what is new is the client's to turn
    /// away.
    Draining {},
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{text}")]
pub struct Refused {
    /// For programs.
    pub reason: RefusedFor,
    /// For people.
    pub text: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a request is refused, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedFor {
    /// It was not understood.
    Malformed,
    /// Another version of the protocol.
    Version,
    /// The descriptors are not the listeners of a sandbox.
    Descriptors,
    /// The user may have nothing of this service.
    User,
    /// The client is in another user namespace, or that cannot be told.
    Namespace,
    /// The sandbox is attached already.
    Attached,
    /// There are too many already.
    Limit,
    /// It took too long.
    Timeout,
    /// The service is about to end.
    Draining,
    /// This service cannot do that.
    Unsupported,
    /// It was tried, and did not work.
    Failed,
}

/// How much was allowed and refused so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sums {
    /// As in [`Summary`].
    pub allowed: u64,
    /// As in [`Summary`].
    pub denied: u64,
    /// As in [`Summary`].
    pub malformed: u64,
    /// As in [`Summary`].
    pub failed: u64,
    /// See there.
    pub names: NamesUsed,
}

impl Refused {
    /// Without a remedy.
    pub fn new(reason: RefusedFor, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), hint: None }
    }

    /// With this remedy.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Self {
        let reason = match error {
            WireError::Version(_) => RefusedFor::Version,
            WireError::Descriptors { .. } | WireError::DescriptorsLost => RefusedFor::Descriptors,
            WireError::Long(..) | WireError::Half | WireError::Malformed(_) => RefusedFor::Malformed,
        };
        Self::new(reason, error.to_string())
    }
}

impl fmt::Display for RefusedFor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::Descriptors => "descriptors",
            Self::User => "user",
            Self::Namespace => "namespace",
            Self::Attached => "attached",
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
        })
    }
}

#[cfg(test)]
mod tests;
