//! The policy in force, which may be replaced while connections live.

use std::sync::{Arc, PoisonError, RwLock};

use netbox_config::Policy;

/// The policy in force. Whoever judges takes it once, and judges all that belongs to one decision by what was taken.
#[derive(Debug)]
pub struct InForce(RwLock<Arc<Policy>>);

impl InForce {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self(RwLock::new(policy))
    }

    /// The policy of this moment.
    #[must_use]
    pub fn now(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this one is still in force. It may not be any more when this returns; but what was made known before is
    /// then found by whoever replaces it.
    pub(crate) fn is(&self, policy: &Arc<Policy>) -> bool {
        Arc::ptr_eq(&self.0.read().unwrap_or_else(PoisonError::into_inner), policy)
    }

    pub(crate) fn replace(&self, policy: Arc<Policy>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}
