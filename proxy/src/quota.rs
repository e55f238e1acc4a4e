//! What a tenant may use, and how often it was told that it is enough.
//!
//! Bounds may be changed while connections live. A tenant that reaches one is slowed down (new connections, bandwidth) or
//! refused (connections that are open, bytes, DNS queries), and nobody else is.
//!
//! The sandboxes of a user have bounds of their own and, together, those of the user: each [`Quota`] may lie
//! [within](Quota::within) another one, which counts what all of them use. How often that was reached counts at the one that
//! met it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use netbox_config::TenantLimits;

use crate::clients::{ClientPlace, Clients};
use crate::pace::Pace;
use crate::share::{OF_A_CONNECTION, Share};

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
    /// Those of them that come from one address.
    OneClient,
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
    /// What the service can hold, and keeps for others.
    Share,
}

impl Bound {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Connections,
        Self::OneClient,
        Self::HalfOpen,
        Self::NewConnections,
        Self::Bandwidth,
        Self::Bytes,
        Self::DnsQueries,
        Self::Share,
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::OneClient => "connections_per_client",
            Self::HalfOpen => "half_open",
            Self::NewConnections => "new_connections_per_second",
            Self::Bandwidth => "bandwidth",
            Self::Bytes => "bytes",
            Self::DnsQueries => "dns_queries_per_second",
            Self::Share => "share",
        }
    }

    /// The word for that of all sandboxes of a user together. `None`: there is no such bound.
    #[must_use]
    pub fn of_user(self) -> Option<&'static str> {
        match self {
            Self::Connections => Some("user_connections"),
            Self::NewConnections => Some("user_new_connections_per_second"),
            Self::Bandwidth => Some("user_bandwidth"),
            Self::Bytes => Some("user_bytes"),
            Self::DnsQueries => Some("user_dns_queries_per_second"),
            Self::OneClient | Self::HalfOpen | Self::Share => None,
        }
    }
}

/// The bounds of one tenant, and what it has used of them.
#[derive(Debug)]
pub struct Quota {
    connections: AtomicU64,
    per_client: AtomicU64,
    half_open: AtomicU64,
    bytes: AtomicU64,
    new_connections: Pace,
    bandwidth: Pace,
    dns_queries: Pace,
    /// Connections that are open.
    open: AtomicU64,
    clients: Clients,
    /// Streams that have a pipe.
    spliced: AtomicUsize,
    /// Bytes that were moved, in each direction.
    moved: [AtomicU64; 2],
    /// DNS queries.
    asked: AtomicU64,
    /// How often each was reached, and how often that of the user.
    reached: [AtomicU64; Bound::ALL.len()],
    reached_of_user: [AtomicU64; Bound::ALL.len()],
    user: Option<Arc<Quota>>,
    share: Option<Arc<Share>>,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            connections: AtomicU64::new(UNBOUNDED),
            per_client: AtomicU64::new(UNBOUNDED),
            half_open: AtomicU64::new(UNBOUNDED),
            bytes: AtomicU64::new(UNBOUNDED),
            new_connections: Pace::default(),
            bandwidth: Pace::default(),
            dns_queries: Pace::default(),
            open: AtomicU64::new(0),
            clients: Clients::default(),
            spliced: AtomicUsize::new(0),
            moved: Default::default(),
            asked: AtomicU64::new(0),
            reached: Default::default(),
            reached_of_user: Default::default(),
            user: None,
            share: None,
        }
    }
}

impl Quota {
    /// That of one of the sandboxes of a user, who has bounds for all of them.
    #[must_use]
    pub fn within(user: Arc<Self>) -> Self {
        Self { share: user.share.clone(), user: Some(user), ..Self::default() }
    }

    /// That of a tenant who has a share of what the service can hold.
    #[must_use]
    pub fn of(share: Arc<Share>) -> Self {
        Self { share: Some(share), ..Self::default() }
    }

    /// What the tenant has of what the service can hold.
    #[must_use]
    pub fn share(&self) -> Option<&Arc<Share>> {
        self.share.as_ref()
    }

    /// From now on these hold. What says nothing is not bounded here.
    pub fn set(&self, limits: &TenantLimits) {
        let bound = |limit: Option<u64>| limit.unwrap_or(UNBOUNDED);
        self.connections.store(bound(limits.connections), Ordering::Relaxed);
        self.per_client.store(bound(limits.connections_per_client), Ordering::Relaxed);
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

    /// How often that of the user was reached.
    #[must_use]
    pub fn reached_of_user(&self, bound: Bound) -> u64 {
        self.reached_of_user[bound as usize].load(Ordering::Relaxed)
    }

    /// How many connections may be open, `most` in any case.
    pub(crate) fn connections(&self, most: usize) -> usize {
        at_most(&self.connections, most)
    }

    /// Whether one more connection may be open beside so many, of `most` at most in any case.
    pub(crate) fn has_room_beside(&self, open: usize, most: usize) -> bool {
        let has_room = |user: &Self| user.open.load(Ordering::Relaxed) < user.connections.load(Ordering::Relaxed);
        self.note(open < self.connections(most), Bound::Connections)
            && self.note(!self.has_moved_all(), Bound::Bytes)
            && self.user.as_ref().is_none_or(|user| {
                self.note_of_user(has_room(user), Bound::Connections)
                    && self.note_of_user(!user.has_moved_all(), Bound::Bytes)
            })
            && self.note(self.share.as_ref().is_none_or(|share| share.has_room_for(OF_A_CONNECTION)), Bound::Share)
    }

    /// A place for one more connection from that address, of `most` that the tenant may have. `None`: its client has as many
    /// as it may have.
    pub(crate) fn place_of(&self, client: IpAddr, most: usize) -> Option<ClientPlace> {
        let set = self.per_client.load(Ordering::Relaxed);
        let set = (set != UNBOUNDED).then(|| usize::try_from(set).unwrap_or(usize::MAX));
        let place = self.clients.enter(client, set, self.connections(most));
        self.note(place.is_some(), Bound::OneClient);
        place
    }

    /// A connection is open, until [`Quota::leave`].
    pub(crate) fn enter(&self) {
        for quota in self.and_user() {
            quota.open.fetch_add(1, Ordering::Relaxed);
        }
        self.share.iter().for_each(|share| share.take(OF_A_CONNECTION));
    }

    /// A connection is closed.
    pub(crate) fn leave(&self) {
        for quota in self.and_user() {
            quota.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.share.iter().for_each(|share| share.give_back(OF_A_CONNECTION));
    }

    /// How many connections may be half open, `most` in any case.
    pub(crate) fn half_open(&self, most: usize) -> usize {
        at_most(&self.half_open, most)
    }

    /// A connection was given up, since it said nothing and others came.
    pub(crate) fn gave_one_up(&self) {
        self.note(false, Bound::HalfOpen);
    }

    /// A connection was taken. How long the next one is to wait.
    pub(crate) fn connected(&self) -> Option<Duration> {
        self.spend(|quota| &quota.new_connections, 1, Bound::NewConnections)
    }

    /// A query came. Whether it may be answered.
    pub(crate) fn may_ask(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let of_user = |user: &Arc<Self>| self.note_of_user(user.dns_queries.take(), Bound::DnsQueries);
        self.note(self.dns_queries.take(), Bound::DnsQueries) && self.user.as_ref().is_none_or(of_user)
    }

    /// Bytes were moved. How long whoever moved them is to rest.
    pub(crate) fn count(&self, direction: Direction, bytes: u64) -> Option<Duration> {
        for quota in self.and_user() {
            quota.moved[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        }
        self.spend(|quota| &quota.bandwidth, bytes, Bound::Bandwidth)
    }

    /// Whether no more bytes may be moved.
    pub(crate) fn is_used_up(&self) -> bool {
        self.and_user().any(Self::has_moved_all)
    }

    /// How much is to be moved at once, so that a rest is never long: a quarter of a second's worth.
    pub(crate) fn portion(&self, most: usize) -> usize {
        let rates = self.and_user().filter_map(|quota| quota.bandwidth.per_second());
        rates.fold(most, |most, rate| usize::try_from(rate / 4).unwrap_or(usize::MAX).clamp(1, most))
    }

    /// A place among the streams that have pipes, of which a tenant beside others, or a user with all sandboxes, has so many at
    /// most. `None`: all are taken.
    pub(crate) fn splice(self: &Arc<Self>, most: usize) -> Option<Spliced> {
        if !self.share.as_ref().is_some_and(|share| share.is_beside_others()) {
            return Some(Spliced(None));
        }
        let whose = self.user.as_ref().unwrap_or(self);
        let taken = whose.spliced.fetch_add(1, Ordering::Relaxed);
        // Given back with it, if it is one too many.
        let place = Spliced(Some(Arc::clone(whose)));
        (taken < most).then_some(place)
    }

    fn and_user(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.user.as_deref())
    }

    fn has_moved_all(&self) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes != UNBOUNDED && self.sent() + self.received() >= bytes
    }

    /// Uses so much of a rate, and of the user's. The longer of both waits.
    fn spend(&self, pace: impl Fn(&Self) -> &Pace, units: u64, bound: Bound) -> Option<Duration> {
        let own = pace(self).spend(units);
        self.note(own.is_none(), bound);
        let Some(user) = &self.user else { return own };
        let of_user = pace(user).spend(units);
        self.note_of_user(of_user.is_none(), bound);
        own.max(of_user)
    }

    fn note(&self, fine: bool, bound: Bound) -> bool {
        note(&self.reached, fine, bound)
    }

    fn note_of_user(&self, fine: bool, bound: Bound) -> bool {
        note(&self.reached_of_user, fine, bound)
    }
}

/// A stream has a pipe, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Spliced(Option<Arc<Quota>>);

impl Drop for Spliced {
    fn drop(&mut self) {
        if let Some(quota) = &self.0 {
            quota.spliced.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn note(reached: &[AtomicU64], fine: bool, bound: Bound) -> bool {
    if !fine {
        reached[bound as usize].fetch_add(1, Ordering::Relaxed);
    }
    fine
}

/// What is set, or `most`, whichever is less.
fn at_most(set: &AtomicU64, most: usize) -> usize {
    usize::try_from(set.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(most)
}

#[cfg(test)]
mod tests;
