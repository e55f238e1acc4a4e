//! What a tenant may use, and how often it was told that it is enough.
//!
//! Bounds may be changed while connections live. A tenant that reaches one is slowed down (new connections, bandwidth) or
//! refused (connections that are open, bytes, DNS queries), and nobody else is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use netbox_config::TenantLimits;

use crate::pace::Pace;

/// Stands for no bound.
const UNBOUNDED: u64 = u64::MAX;

/// From the tenant's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Connections that are open at once.
    Connections,
    /// Those of them that have not said yet what they want.
    HalfOpen,
    /// Connections that begin in a second.
    NewConnections,
    /// Bytes that move in a second.
    Bandwidth,
    /// Bytes that were moved.
    Bytes,
    /// DNS queries in a second.
    DnsQueries,
}

impl Bound {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Connections, Self::HalfOpen, Self::NewConnections, Self::Bandwidth, Self::Bytes, Self::DnsQueries];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::HalfOpen => "half_open",
            Self::NewConnections => "new_connections_per_second",
            Self::Bandwidth => "bandwidth",
            Self::Bytes => "bytes",
            Self::DnsQueries => "dns_queries_per_second",
        }
    }
}

/// The bounds of one tenant, and what it has used of them.
#[derive(Debug)]
pub struct Quota {
    connections: AtomicU64,
    half_open: AtomicU64,
    bytes: AtomicU64,
    new_connections: Pace,
    bandwidth: Pace,
    dns_queries: Pace,
    /// Bytes that were moved, in each direction.
    moved: [AtomicU64; 2],
    /// DNS queries.
    asked: AtomicU64,
    /// How often each was reached.
    reached: [AtomicU64; Bound::ALL.len()],
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            connections: AtomicU64::new(UNBOUNDED),
            half_open: AtomicU64::new(UNBOUNDED),
            bytes: AtomicU64::new(UNBOUNDED),
            new_connections: Pace::default(),
            bandwidth: Pace::default(),
            dns_queries: Pace::default(),
            moved: Default::default(),
            asked: AtomicU64::new(0),
            reached: Default::default(),
        }
    }
}

impl Quota {
    /// From now on these hold. What says nothing is not bounded here.
    pub fn set(&self, limits: &TenantLimits) {
        let bound = |limit: Option<u64>| limit.unwrap_or(UNBOUNDED);
        self.connections.store(bound(limits.connections), Ordering::Relaxed);
        self.half_open.store(bound(limits.half_open), Ordering::Relaxed);
        self.bytes.store(bound(limits.bytes), Ordering::Relaxed);
        self.new_connections.set(limits.new_connections_per_second);
        self.bandwidth.set(limits.bandwidth);
        self.dns_queries.set(limits.dns_queries_per_second);
    }

    /// How often a bound was reached.
    #[must_use]
    pub fn reached(&self, bound: Bound) -> u64 {
        self.reached[bound as usize].load(Ordering::Relaxed)
    }

    /// Bytes that the tenant sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.moved[Direction::Sent as usize].load(Ordering::Relaxed)
    }

    /// Bytes that it received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.moved[Direction::Received as usize].load(Ordering::Relaxed)
    }

    /// How many DNS queries there were.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether one more connection may be open beside so many, of `most` at most in any case.
    pub(crate) fn has_room_beside(&self, open: usize, most: usize) -> bool {
        let bound = usize::try_from(self.connections.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        self.note(open < bound.min(most), Bound::Connections) && self.note(!self.is_used_up(), Bound::Bytes)
    }

    /// How many connections may be half open, `most` in any case.
    pub(crate) fn half_open(&self, most: usize) -> usize {
        usize::try_from(self.half_open.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(most)
    }

    /// A connection was given up, since it said nothing and others came.
    pub(crate) fn gave_one_up(&self) {
        self.note(false, Bound::HalfOpen);
    }

    /// A connection was taken. How long the next one is to wait.
    pub(crate) fn connected(&self) -> Option<Duration> {
        let wait = self.new_connections.spend(1);
        self.note(wait.is_none(), Bound::NewConnections);
        wait
    }

    /// A query came. Whether it may be answered.
    pub(crate) fn may_ask(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.note(self.dns_queries.take(), Bound::DnsQueries)
    }

    /// Bytes were moved. How long whoever moved them is to rest.
    pub(crate) fn count(&self, direction: Direction, bytes: u64) -> Option<Duration> {
        self.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        let rest = self.bandwidth.spend(bytes);
        self.note(rest.is_none(), Bound::Bandwidth);
        rest
    }

    /// Whether no more bytes may be moved.
    pub(crate) fn is_used_up(&self) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes != UNBOUNDED && self.sent() + self.received() >= bytes
    }

    /// How much is to be moved at once, so that a rest is never long: a quarter of a second's worth.
    pub(crate) fn portion(&self, most: usize) -> usize {
        match self.bandwidth.per_second() {
            Some(rate) => usize::try_from(rate / 4).unwrap_or(usize::MAX).clamp(1, most),
            None => most,
        }
    }

    fn note(&self, fine: bool, bound: Bound) -> bool {
        if !fine {
            self.reached[bound as usize].fetch_add(1, Ordering::Relaxed);
        }
        fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bounds_hold_from_the_moment_that_they_are_set() {
        let quota = Quota::default();
        assert!(quota.has_room_beside(99, 100) && !quota.has_room_beside(100, 100));
        assert_eq!(
            (quota.half_open(7), quota.portion(1 << 20), quota.count(Direction::Received, 1 << 40)),
            (7, 1 << 20, None)
        );
        quota.set(&TenantLimits {
            connections: Some(2),
            half_open: Some(1),
            bandwidth: Some(4000),
            ..Default::default()
        });
        assert!(quota.has_room_beside(1, 100) && !quota.has_room_beside(2, 100));
        assert_eq!((quota.half_open(7), quota.portion(1 << 20)), (1, 1000));
        quota.set(&TenantLimits { bytes: Some(1 << 40), ..Default::default() });
        assert!(quota.is_used_up() && !quota.has_room_beside(0, 100));
        quota.set(&TenantLimits::default());
        assert!(!quota.is_used_up() && quota.has_room_beside(2, 100));
        let reached = Bound::ALL.map(|bound| quota.reached(bound));
        assert_eq!(reached, [2, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn every_bound_has_its_place() {
        for (place, bound) in Bound::ALL.into_iter().enumerate() {
            assert_eq!(bound as usize, place);
        }
    }
}
