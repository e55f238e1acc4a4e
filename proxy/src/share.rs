//! The descriptors that a service may have open, and how its tenants share them.
//!
//! Each connection takes two, a listener that was handed over one, and so does a control connection. Whatever a tenant may
//! have by its own bounds, many of them together could take all there is. So a tenant has a part at most; and where others may
//! come, the last quarter is kept for those who have little: each of them still gets up to [`LITTLE`]. No number of greedy
//! tenants keeps out a modest one, unless the modest ones are so many that they fill that quarter.
//!
//! What is counted here and what is open differs by what is under way at this moment, on as many threads as there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many a tenant gets also where most are taken: 128 connections.
const LITTLE: u64 = 256;

/// What a connection takes: its own socket, and the one on the far side.
pub(crate) const OF_A_CONNECTION: u64 = 2;

/// All descriptors of a service.
#[derive(Debug)]
pub struct Room {
    most: u64,
    taken: AtomicU64,
    keeps_some: AtomicBool,
}

impl Room {
    /// Of a process that may open so many.
    #[must_use]
    pub fn of_process(descriptors: u64) -> Arc<Self> {
        let most = crate::session::spare(descriptors);
        Arc::new(Self { most, taken: AtomicU64::new(0), keeps_some: AtomicBool::new(false) })
    }

    /// Whether a quarter is kept for those who have little. Where one tenant is alone, nothing is.
    pub fn keep_some(&self, keeps_some: bool) {
        self.keeps_some.store(keeps_some, Ordering::Relaxed);
    }

    /// The share of one more tenant, which may have this part of all: one of so many.
    #[must_use]
    pub fn share(self: &Arc<Self>, part: u64) -> Arc<Share> {
        Arc::new(Share { room: Arc::clone(self), most: self.most / part.max(1), taken: AtomicU64::new(0) })
    }

    fn has_room_for(&self, more: u64, own: u64) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) + more;
        let is_kept = self.keeps_some.load(Ordering::Relaxed) && taken > self.most - self.most / 4;
        taken <= self.most && (!is_kept || own <= LITTLE)
    }
}

/// What one tenant has of it.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    most: u64,
    taken: AtomicU64,
}

impl Share {
    /// Whether others may come.
    pub(crate) fn is_beside_others(&self) -> bool {
        self.room.keeps_some.load(Ordering::Relaxed)
    }

    /// Whether so many more may be opened.
    pub(crate) fn has_room_for(&self, more: u64) -> bool {
        let own = self.taken.load(Ordering::Relaxed) + more;
        own <= self.most && self.room.has_room_for(more, own)
    }

    /// So many more are open.
    pub(crate) fn take(&self, more: u64) {
        self.taken.fetch_add(more, Ordering::Relaxed);
        self.room.taken.fetch_add(more, Ordering::Relaxed);
    }

    /// So many are closed.
    pub(crate) fn give_back(&self, less: u64) {
        self.taken.fetch_sub(less, Ordering::Relaxed);
        self.room.taken.fetch_sub(less, Ordering::Relaxed);
    }

    /// Holds so many until that is dropped, if they may be opened.
    #[must_use]
    pub fn hold(self: &Arc<Self>, count: u64) -> Option<Held> {
        self.has_room_for(count).then(|| {
            self.take(count);
            Held { share: Arc::clone(self), count }
        })
    }
}

/// Descriptors that are open until this is dropped.
#[derive(Debug)]
#[must_use = "dropped, others may have them"]
pub struct Held {
    share: Arc<Share>,
    count: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.give_back(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_part_and_what_it_gives_back() {
        let room = Room::of_process(8_200);
        let half = room.share(2);
        let held = half.hold(4_000).expect("its part");
        assert!(half.hold(1).is_none());
        let all = room.share(1);
        assert!(all.hold(4_001).is_none() && all.hold(4_000).is_some());
        drop(held);
        assert!(half.hold(4_000).is_some());
    }

    #[test]
    fn where_others_may_come_the_greedy_leave_some() {
        let room = Room::of_process(8_200);
        room.keep_some(true);
        let greedy: Vec<_> = (0..8).map(|_| room.share(2)).collect();
        let held: Vec<_> = (0..8_000).filter_map(|number| greedy[number % 8].hold(1)).collect();
        assert_eq!(held.len(), 6_000);
        let modest: Vec<_> = (0..8).map(|_| room.share(2)).collect();
        assert!(modest.iter().all(|modest| modest.hold(LITTLE).is_some()));
        assert!(modest[0].hold(LITTLE + 1).is_none());
        room.keep_some(false);
        assert!(greedy[0].hold(2_000).is_some(), "nobody else may come");
    }
}
