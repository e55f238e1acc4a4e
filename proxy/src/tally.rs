//! What a tenant has done so far, in numbers that only grow, for metrics.

use std::collections::BTreeMap;

use netbox_config::Reason;

use crate::events::Verdict;
use crate::quota::{Bound, Quota};
use crate::session::Session;

/// The numbers. Those of several tenants may be added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that were accepted.
    pub connections: u64,
    /// Decisions, by reason.
    pub decisions: BTreeMap<Reason, u64>,
    /// Ends of what was allowed, by the word for them.
    pub ends: BTreeMap<&'static str, u64>,
    /// Bytes that the tenant sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
    /// DNS queries.
    pub dns_queries: u64,
    /// How often each bound was reached.
    pub bounds: BTreeMap<&'static str, u64>,
    /// Events that could not be written.
    pub events_dropped: u64,
}

impl Tally {
    /// Adds what another one has done.
    pub fn add(&mut self, other: &Self) {
        fn add<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
            for (key, more) in more {
                *sums.entry(*key).or_default() += more;
            }
        }
        self.connections += other.connections;
        add(&mut self.decisions, &other.decisions);
        add(&mut self.ends, &other.ends);
        self.sent += other.sent;
        self.received += other.received;
        self.dns_queries += other.dns_queries;
        add(&mut self.bounds, &other.bounds);
        self.events_dropped += other.events_dropped;
    }

    /// Decisions with this verdict.
    #[must_use]
    pub fn with(&self, verdict: Verdict) -> u64 {
        self.decisions.iter().filter(|(reason, _)| Verdict::of(**reason) == verdict).map(|(_, count)| count).sum()
    }
}

impl Session {
    /// What has been done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let (quota, counters) = (self.quota(), self.events.counters());
        Tally {
            connections: self.connections_taken(),
            decisions: some(Reason::ALL.map(|reason| (reason, counters.decisions(reason)))),
            ends: some(counters.ends()),
            sent: quota.sent(),
            received: quota.received(),
            dns_queries: quota.asked(),
            bounds: some(bounds(quota)),
            events_dropped: self.events.dropped(),
        }
    }
}

/// How often each bound was reached, and how often that of the user.
fn bounds(quota: &Quota) -> impl Iterator<Item = (&'static str, u64)> {
    let own = Bound::ALL.into_iter().map(|bound| (bound.as_str(), quota.reached(bound)));
    own.chain(Bound::ALL.into_iter().filter_map(|bound| Some((bound.of_user()?, quota.reached_of_user(bound)))))
}

/// Without those that are zero.
fn some<K: Ord>(counts: impl IntoIterator<Item = (K, u64)>) -> BTreeMap<K, u64> {
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::tests::world::{World, expect, expect_reset, send};

    #[tokio::test]
    async fn what_a_tenant_does_is_counted_while_and_after_it_happens() {
        let mut world = World::new(&["github.com:22"]);
        let server = world.server("203.0.113.10:22").await;
        let mut client = world.connect("github.com:22").await;
        let mut far = server.accept().await;
        send(&mut far, "ready").await;
        expect(&mut client, "ready").await;
        send(&mut client, "SSH-2.0-client\r\n").await;
        expect(&mut far, "SSH-2.0-client\r\n").await;
        let mut refused = world.connect("evil.example:22").await;
        expect_reset(&mut refused).await;
        let session = std::sync::Arc::clone(&world.session);
        let tally = session.tally();
        assert_eq!((tally.sent, tally.received, tally.connections), (16, 5, 2));
        assert_eq!(tally.decisions, BTreeMap::from([(Reason::Listed, 1), (Reason::NotListed, 1)]));
        assert!(tally.ends.is_empty());
        drop((client, far));
        world.events().await;
        let mut sum = tally;
        sum.add(&session.tally());
        assert_eq!((sum.sent, sum.received, sum.connections), (32, 10, 4));
        assert_eq!((sum.with(Verdict::Allow), sum.with(Verdict::Deny), sum.with(Verdict::Error)), (2, 2, 0));
        assert_eq!(sum.ends.values().sum::<u64>(), 1);
    }
}
