//! How many control connections a user has.

use netbox_proxy::service::wire::{Refused, RefusedFor};
use netbox_proxy::share::Held;

use super::Control;

/// How many control connections a user may have.
const MOST_OF_A_USER: usize = 4096;

/// How many of them may not have said yet what they want.
const MOST_SILENT_OF_A_USER: usize = 64;

/// The control connections of a user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    all: usize,
    silent: usize,
}

/// A place among the control connections of a user, until it is dropped.
pub(super) struct Counted<'a> {
    control: &'a Control,
    uid: u32,
    is_silent: bool,
    _descriptor: Held,
}

impl<'a> Counted<'a> {
    /// One more.
    ///
    /// # Errors
    /// The user has as many as it may have.
    pub(super) fn enter(control: &'a Control, uid: u32) -> Result<Self, Refused> {
        let user = control.service.registry().user(uid);
        let descriptor = user.share().and_then(|share| share.hold(1)).ok_or_else(|| {
            Refused::new(RefusedFor::Limit, "this user has as many descriptors of the service as it may have")
        })?;
        let mut counts = control.counts();
        let count = counts.entry(uid).or_default();
        if count.all >= MOST_OF_A_USER || count.silent >= MOST_SILENT_OF_A_USER {
            let text = format!(
                "this user has {} control connections, {} of which have not said yet what they want",
                count.all, count.silent
            );
            return Err(Refused::new(RefusedFor::Limit, text));
        }
        count.all += 1;
        count.silent += 1;
        drop(counts);
        Ok(Self { control, uid, is_silent: true, _descriptor: descriptor })
    }

    /// It has said what it wants.
    pub(super) fn speak(&mut self) {
        if std::mem::take(&mut self.is_silent)
            && let Some(count) = self.control.counts().get_mut(&self.uid)
        {
            count.silent -= 1;
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.speak();
        let mut counts = self.control.counts();
        if let Some(count) = counts.get_mut(&self.uid) {
            count.all -= 1;
            if count.all == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}
