//! Name resolution for a sandbox.
//!
//! # Theory of operation
//!
//! Every datagram and stream to port 53 ends here, whatever server it was meant for. A query travels one way:
//!
//! 1. `wire` reads it: one question, no compression, bounded by its own length. What is not a plain query gets the
//!    error code it deserves, or nothing.
//! 2. `answer` decides what becomes of it, from the question and the policy alone, before anything is asked. A name
//!    is looked up only if [`Policy::may_resolve`] says so: a name is data, and a query for an unlisted one would carry
//!    it out.
//! 3. A listed name is resolved on the host ([`Resolver`]), so that a name that does not exist stays one; the answer is
//!    a synthetic address ([`synthetic`]), never a real one. An unlisted name gets a synthetic address too, without a
//!    lookup: the connect to it is what is refused, with a reason. Records of other types come from [`RecordSource`],
//!    for listed names and few types.
//! 4. `reply` makes the message; [`serve`] owns the sockets and the limits.
//!
//! Nothing here writes events: a lookup alone is never a refusal.

mod answer;
pub mod forward;
pub(crate) mod reply;
mod reverse;
pub mod search;
pub mod serve;
pub mod synthetic;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use netbox_config::{HostName, Policy};

use crate::budget::{Allowance, Budget};
use crate::in_force::InForce;
use crate::quota::Quota;
use crate::resolve::Resolver;
use crate::turns::{Asked, Turns};

pub use forward::{HostRecords, Record, RecordKind, RecordSource};
pub use search::search_domains;
pub use serve::{serve_tcp, serve_udp};
pub use synthetic::SyntheticTable;

/// How many queries of one sandbox may wait for the host at once, three of four for names that it makes up. Further ones
/// get SERVFAIL.
pub const LOOKUPS_IN_FLIGHT: usize = 256;

/// How many names that are listed by a wildcard alone may be looked up.
///
/// Under `*.example.com` the program chooses the labels, and every query carries some out, to whoever serves the zone.
/// That cannot be told from use, but it can be made slow: each new name costs one of a sandbox's allowance,
/// whether it is asked for by DNS or a connection is asked for by name. It begins
/// with more than a browser needs for its pages or a build for its mirrors, and refills by 20 a second.
pub(crate) const MADE_UP_NAMES: Allowance = Allowance { most: 1000, refill: Duration::from_millis(50) };

/// What the names of one sandbox are answered from. The session has one, and shares it with the servers.
pub struct Names {
    /// Which names may be looked up.
    pub policy: InForce,
    /// Looks up addresses of listed names.
    pub resolver: Arc<dyn Resolver>,
    /// Looks up other records of listed names.
    pub records: Arc<dyn RecordSource>,
    /// Which address stands for which name.
    pub synthetic: SyntheticTable,
    /// The host's search domains: an unlisted name below one of them does not exist, so that a program goes on to the
    /// next one.
    pub search_domains: Vec<HostName>,
    /// What the sandbox may use, and has used.
    pub quota: Arc<Quota>,
    lookups: Turns,
    made_up: Budget,
}

impl Names {
    /// The names of a new sandbox.
    #[must_use]
    pub fn new(
        policy: Arc<Policy>,
        resolver: Arc<dyn Resolver>,
        records: Arc<dyn RecordSource>,
        search_domains: Vec<HostName>,
    ) -> Self {
        Self {
            policy: InForce::new(policy),
            resolver,
            records,
            synthetic: SyntheticTable::new(),
            search_domains,
            quota: Arc::default(),
            lookups: Turns::new(LOOKUPS_IN_FLIGHT),
            made_up: Budget::new(MADE_UP_NAMES),
        }
    }

    /// What is known of a listed name.
    pub(crate) fn asked(&self, policy: &Policy, name: &HostName) -> Asked {
        match policy.lists_by_wildcard_alone(name) && !self.synthetic.knows(name) {
            true => Asked::MadeUp,
            false => Asked::Known,
        }
    }

    /// Whether a listed name may still be looked up, by whichever door it is asked for: names that the program makes up
    /// are limited ([`MADE_UP_NAMES`]); one that has an address is known already.
    pub(crate) fn may_still_ask(&self, asked: Asked) -> bool {
        asked == Asked::Known || self.made_up.take()
    }

    /// A listed name was found without a DNS question: it is known from now on.
    pub(crate) fn found(&self, policy: &Policy, name: &HostName) {
        if policy.lists_by_wildcard_alone(name) {
            // Where there is no address left for it, it goes on counting as made up.
            let _ = self.synthetic.assign(name, true);
        }
    }
}
