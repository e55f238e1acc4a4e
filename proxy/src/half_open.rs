//! Connections that have not said yet what they want, and how many of them may wait.
//!
//! Each holds a place among the connections of its sandbox for nothing. Whoever opens many and says nothing, or a byte
//! now and then, must not keep those out that speak at once: when there are too many, the one that has waited longest
//! is given up for the newest.
//!
//! Each may hold a head of 64 KiB meanwhile, and one process may serve many sandboxes. So all of them together have
//! [`MOST_IN_ALL`] places, 256 MiB at the most; when these are taken, a sandbox gives up its own for its own newest, but for
//! [`OWN`] that nobody can take from it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many connections of a process may be half open, and how many of one sandbox may be whatever the others do.
pub(crate) const MOST_IN_ALL: usize = 4096;
const OWN: usize = 64;

static IN_ALL: AtomicUsize = AtomicUsize::new(0);

/// The connections of a sandbox that wait.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    waiting: Mutex<Waiting>,
    in_all: &'static AtomicUsize,
}

impl Default for HalfOpen {
    fn default() -> Self {
        Self::among(&IN_ALL)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// By the order in which they came.
    places: BTreeMap<u64, Arc<Notify>>,
}

/// A place, until it is dropped.
struct Place<'a> {
    number: u64,
    half_open: &'a HalfOpen,
}

impl HalfOpen {
    /// None yet, and they count as these.
    fn among(in_all: &'static AtomicUsize) -> Self {
        Self { waiting: Mutex::default(), in_all }
    }

    /// Waits for `speech`, what the connection says. `None`: it was given up, since more than `most` wait.
    pub(crate) async fn wait<T>(&self, most: usize, speech: impl Future<Output = T>) -> Option<T> {
        let (place, given_up) = self.enter(most);
        let said = tokio::select! {
            biased;
            said = speech => Some(said),
            () = given_up.notified() => None,
        };
        drop(place);
        said
    }

    fn enter(&self, most: usize) -> (Place<'_>, Arc<Notify>) {
        let mut waiting = self.lock();
        let (number, given_up) = (waiting.next, Arc::new(Notify::new()));
        waiting.next += 1;
        waiting.places.insert(number, Arc::clone(&given_up));
        let is_full = self.in_all.fetch_add(1, Ordering::Relaxed) >= MOST_IN_ALL;
        // Where all are taken, one of its own goes for the newest.
        let most = if is_full { most.min(OWN.max(waiting.places.len() - 1)) } else { most };
        while waiting.places.len() > most.max(1) {
            // A permit stays with it, should it not wait at this moment.
            let Some((_, oldest)) = waiting.places.pop_first() else { break };
            oldest.notify_one();
        }
        (Place { number, half_open: self }, given_up)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.half_open.in_all.fetch_sub(1, Ordering::Relaxed);
        self.half_open.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn the_one_that_has_waited_longest_is_given_up_for_the_newest() {
        let half_open = Arc::new(HalfOpen::default());
        let mut silent = Vec::new();
        for _ in 0..3 {
            let half_open = Arc::clone(&half_open);
            silent.push(tokio::spawn(async move { half_open.wait(2, pending::<()>()).await }));
            yield_now().await;
        }
        assert_eq!(silent.remove(0).await.unwrap(), None);
        assert_eq!(half_open.wait(2, ready("GET")).await, Some("GET"));
        assert_eq!(silent.remove(0).await.unwrap(), None);
        assert!(!silent[0].is_finished(), "there is room for one");
        silent.remove(0).abort();
    }

    #[tokio::test]
    async fn where_all_are_taken_a_sandbox_gives_up_its_own() {
        static FEW: AtomicUsize = AtomicUsize::new(MOST_IN_ALL - OWN - 10);
        let (hostile, other) = (Arc::new(HalfOpen::among(&FEW)), HalfOpen::among(&FEW));
        let mut silent = Vec::new();
        for _ in 0..OWN + 20 {
            let half_open = Arc::clone(&hostile);
            silent.push(tokio::spawn(async move { half_open.wait(1000, pending::<()>()).await }));
            yield_now().await;
        }
        assert_eq!(hostile.lock().places.len(), OWN + 10, "and no more, once all are taken");
        assert_eq!(silent.iter().filter(|silent| silent.is_finished()).count(), 10);
        // Nobody else gives up anything for them.
        let places: Vec<_> = (0..OWN).map(|_| other.enter(1000).0).collect();
        assert_eq!(other.lock().places.len(), OWN);
        drop(places);
        silent.iter().for_each(|silent| silent.abort());
    }

    #[tokio::test]
    async fn a_place_is_left_with_the_wait() {
        let half_open = HalfOpen::default();
        for _ in 0..10 {
            assert_eq!(half_open.wait(1, ready(())).await, Some(()));
        }
        assert!(half_open.lock().places.is_empty());
    }
}
