//! How many lookups may be under way at once, of which names that a program makes up have a part only.
//!
//! Below a wildcard a program may ask for any name, and whoever serves the zone may answer late or never: such lookups could
//! take every turn there is. Whoever asks for a name that a rule spells out, or that was found before, is not to wait for
//! them. The number of those is the policy's, and not the program's.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of four turns, names that are made up may have three.
const PARTS: usize = 4;

/// What is known of a name that is to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A rule spells it out, or it was found before.
    Known,
    /// Whoever asks may have made it up.
    MadeUp,
}

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    made_up: Arc<Semaphore>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _one: OwnedSemaphorePermit,
    _made_up: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Self {
        let made_up = (most - most / PARTS).max(1);
        Self { all: Arc::new(Semaphore::new(most)), made_up: Arc::new(Semaphore::new(made_up)) }
    }

    /// Waits for a turn. `None` never comes: the turns do not end.
    pub(crate) async fn wait(&self, asked: Asked) -> Option<Turn> {
        // In this order, so that those who wait for a place among the made-up ones hold no turn meanwhile.
        let made_up = match asked {
            Asked::Known => None,
            Asked::MadeUp => Some(Arc::clone(&self.made_up).acquire_owned().await.ok()?),
        };
        Some(Turn { _one: Arc::clone(&self.all).acquire_owned().await.ok()?, _made_up: made_up })
    }

    /// A turn, if there is one at once.
    pub(crate) fn try_take(&self, asked: Asked) -> Option<Turn> {
        let made_up = match asked {
            Asked::Known => None,
            Asked::MadeUp => Some(Arc::clone(&self.made_up).try_acquire_owned().ok()?),
        };
        Some(Turn { _one: Arc::clone(&self.all).try_acquire_owned().ok()?, _made_up: made_up })
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn made_up_names_leave_a_quarter_to_the_others() {
        let turns = Turns::new(8);
        let mut taken: Vec<_> = std::iter::from_fn(|| turns.try_take(Asked::MadeUp)).collect();
        assert_eq!((taken.len(), turns.left()), (6, 2));
        taken.extend([turns.wait(Asked::Known).await.unwrap(), turns.wait(Asked::Known).await.unwrap()]);
        assert!(turns.try_take(Asked::Known).is_none());
        taken.clear();
        // Nobody asks for made-up names, and all turns are there for the others.
        let known: Vec<_> = std::iter::from_fn(|| turns.try_take(Asked::Known)).collect();
        assert_eq!(known.len(), 8);
    }

    #[tokio::test]
    async fn where_there_is_one_turn_anybody_may_have_it() {
        let turns = Turns::new(1);
        drop(turns.wait(Asked::MadeUp).await.unwrap());
        assert!(turns.try_take(Asked::Known).is_some());
    }
}
