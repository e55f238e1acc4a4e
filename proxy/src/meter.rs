//! Counts what is moved: for one connection, and for its tenant, which may have to rest or to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::sleep;

use crate::quota::{Direction, Quota, Spliced};

/// The bytes that a connection has moved so far, from the sandbox's side.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: Meter,
    pub(crate) received: Meter,
}

impl Counts {
    /// Of a connection of this tenant.
    pub(crate) fn of(quota: &Arc<Quota>) -> Self {
        let meter = |direction| Meter { bytes: AtomicU64::new(0), quota: Some((Arc::clone(quota), direction)) };
        Self { sent: meter(Direction::Sent), received: meter(Direction::Received) }
    }
}

/// The bytes of one direction.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes: AtomicU64,
    quota: Option<(Arc<Quota>, Direction)>,
}

/// The tenant has moved all the bytes that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp;

impl Meter {
    /// How many there were.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// So many more have been moved. Rests for as long as the tenant's bandwidth demands.
    pub(crate) async fn count(&self, bytes: usize) -> Result<(), UsedUp> {
        let bytes = bytes as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some((quota, direction)) = &self.quota else { return Ok(()) };
        if let Some(rest) = quota.count(*direction, bytes) {
            sleep(rest).await;
        }
        if quota.is_used_up() { Err(UsedUp) } else { Ok(()) }
    }

    /// A place among those of the tenant's streams that have pipes, of `most` in a service. `None`: all are taken.
    pub(crate) fn splice(&self, most: usize) -> Option<Spliced> {
        self.quota.as_ref().map_or_else(|| Some(Spliced::default()), |(quota, _)| quota.splice(most))
    }

    /// How much may be moved before it is counted, `most` at most.
    pub(crate) fn portion(&self, most: usize) -> usize {
        self.quota.as_ref().map_or(most, |(quota, _)| quota.portion(most))
    }
}
