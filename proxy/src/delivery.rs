//! What a sandbox sent before it ended must still arrive.
//!
//! A program writes its last bytes and exits; the kernel would deliver them after its end. Here they are in a socket of
//! netbox's, so netbox stays until they are out: every connection of the sandbox counts as undelivered until its sending
//! side has reached its end and the server has been told so. What the server still has to say is nobody's any more.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts the connections of a sandbox whose bytes are not all delivered.
#[derive(Clone, Debug)]
pub(crate) struct Deliveries(Arc<watch::Sender<usize>>);

impl Default for Deliveries {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Deliveries {
    /// One more, until it is dropped.
    pub(crate) fn begin(&self) -> Undelivered {
        self.0.send_modify(|count| *count += 1);
        Undelivered(self.clone())
    }

    /// Waits until there is none.
    pub(crate) async fn all(&self) {
        // An error says that there is no sender left, and `self` holds one.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A connection that may still have something to deliver.
#[derive(Debug)]
pub(crate) struct Undelivered(Deliveries);

impl Drop for Undelivered {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_is_delivered_when_the_last_one_is_dropped() {
        let deliveries = Deliveries::default();
        deliveries.all().await;
        let (one, other) = (deliveries.begin(), deliveries.begin());
        let all = tokio::spawn({
            let deliveries = deliveries.clone();
            async move { deliveries.all().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!all.is_finished());
        drop(other);
        all.await.expect("the wait ends");
    }
}
