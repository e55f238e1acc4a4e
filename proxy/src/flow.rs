//! The connections of a sandbox that live, so that they can be judged again when its policy changes.
//!
//! # Theory of operation
//!
//! 1. Every connection that a sandbox opens is a [`Flow`] in the session's [`Flows`] from the moment that it is accepted.
//! 2. What it was permitted, what it reached and what it said first is noted in its flow, before anything follows from it.
//! 3. Then whoever noted it makes sure that the policy by which it was judged is still in force
//!    ([`Session::confirm`](crate::Session::confirm)), and judges it again if it is not.
//! 4. Whoever replaces the policy puts the new one in force first and goes through the flows afterwards. So nothing slips
//!    through between: what was noted before is found there, and what is noted later meets the new policy in step 3.
//! 5. A flow that is no longer allowed is [revoked](Flow::revoke): whoever carries it is woken, and resets both sides.
//!    What is still allowed is not touched, and never knows.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use netbox_config::service::TokenHash;
use netbox_config::{HostPort, Target};
use tokio::sync::Notify;

use crate::clients::ClientPlace;
use crate::first_bytes::FirstBytes;
use crate::http::request::Authority;
use crate::meter::Counts;
use crate::quota::Quota;

/// The flows of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    live: Arc<Live>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Live {
    table: Mutex<HashMap<u64, Weak<Flow>>>,
    /// By how many more may come.
    accepting: AtomicUsize,
    /// The last one has ended, or no more come.
    emptied: Notify,
}

/// Says, while it lives, that more flows may come.
#[derive(Debug)]
pub(crate) struct Accepting(Arc<Live>);

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.accepting.fetch_sub(1, Ordering::SeqCst);
        self.0.emptied.notify_waiters();
    }
}

impl Flows {
    /// A new one, until its last handle is dropped.
    pub(crate) fn enter(&self, quota: &Arc<Quota>) -> Arc<Flow> {
        self.enter_with(quota, None, None)
    }

    /// The same, of a client who has proved this token.
    pub(crate) fn enter_with(
        &self,
        quota: &Arc<Quota>,
        bearer: Option<TokenHash>,
        client: Option<ClientPlace>,
    ) -> Arc<Flow> {
        quota.enter();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let flow = Arc::new(Flow {
            number,
            bearer,
            _client: client,
            flows: Arc::clone(&self.live),
            quota: Arc::clone(quota),
            since: Instant::now(),
            seen: Mutex::default(),
            revoked: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        lock(&self.live.table).insert(number, Arc::downgrade(&flow));
        flow
    }

    /// Those that live, in no order.
    pub(crate) fn live(&self) -> Vec<Arc<Flow>> {
        lock(&self.live.table).values().filter_map(Weak::upgrade).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.live.table).len()
    }

    /// How many there have ever been.
    pub(crate) fn total(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// More may come, until what is given is dropped.
    pub(crate) fn accepting(&self) -> Accepting {
        self.live.accepting.fetch_add(1, Ordering::SeqCst);
        Accepting(Arc::clone(&self.live))
    }

    /// Whether there is none, and none may come.
    pub(crate) fn have_ended(&self) -> bool {
        // In this order: what is taken last is counted before whoever took it says that no more may come.
        self.live.accepting.load(Ordering::SeqCst) == 0 && self.count() == 0
    }

    /// Waits until no more may come.
    pub(crate) async fn closed(&self) {
        loop {
            let told = self.live.emptied.notified();
            if self.live.accepting.load(Ordering::SeqCst) == 0 {
                return;
            }
            told.await;
        }
    }

    /// Waits until there is none, and none may come.
    pub(crate) async fn end(&self) {
        loop {
            let emptied = self.live.emptied.notified();
            if self.have_ended() {
                return;
            }
            emptied.await;
        }
    }
}

/// One connection of the sandbox's, from its acceptance to its end.
#[derive(Debug)]
pub(crate) struct Flow {
    number: u64,
    /// The token that whoever opened it has proved, where one was asked for.
    bearer: Option<TokenHash>,
    /// Its place among the connections of its client.
    _client: Option<ClientPlace>,
    flows: Arc<Live>,
    /// Its tenant's.
    quota: Arc<Quota>,
    since: Instant,
    seen: Mutex<Seen>,
    revoked: AtomicBool,
    /// Whoever waits for the revocation.
    waker: Mutex<Option<Waker>>,
}

/// What is known of a flow: all that a judgement needs. Of HTTP, what belongs to the last request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// What it was permitted. `None`: nothing yet.
    pub(crate) permitted: Option<Permitted>,
    /// Where it leads, once it was dialled.
    pub(crate) address: Option<SocketAddr>,
    /// What it said first, where that was looked at.
    pub(crate) first: Option<FirstBytes>,
    /// The names that its request bears.
    pub(crate) authorities: Vec<Authority>,
    /// What has been moved for it.
    pub(crate) counts: Option<Arc<Counts>>,
}

/// What a flow was permitted.
#[derive(Clone, Debug)]
pub(crate) struct Permitted {
    pub(crate) asked: Asked,
    /// Without a look at its first bytes.
    pub(crate) raw: bool,
}

/// What a connection is for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A target that the program names.
    Target(Target),
    /// A port of the host's that was opened to it.
    HostPort(Arc<HostPort>),
}

impl Flow {
    /// It was permitted this; whatever was known of what it carried before counts no more.
    pub(crate) fn permitted(&self, asked: Asked, raw: bool) {
        *lock(&self.seen) = Seen { permitted: Some(Permitted { asked, raw }), ..Seen::default() };
    }

    /// It leads there.
    pub(crate) fn reached(&self, address: SocketAddr) {
        lock(&self.seen).address = Some(address);
    }

    /// It said this first.
    pub(crate) fn said(&self, first: FirstBytes) {
        lock(&self.seen).first = Some(first);
    }

    /// Its request bears these names.
    pub(crate) fn requested(&self, authorities: impl Iterator<Item = Authority>) {
        lock(&self.seen).authorities = authorities.collect();
    }

    /// What is moved for it from now on is counted there.
    pub(crate) fn count(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::of(&self.quota));
        lock(&self.seen).counts = Some(Arc::clone(&counts));
        counts
    }

    /// The token with which it was opened.
    pub(crate) fn bearer(&self) -> Option<TokenHash> {
        self.bearer
    }

    /// When it was accepted.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// What is known of it.
    pub(crate) fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Ends it, since the policy no longer allows it.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }

    /// Whether it is to end.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::SeqCst)
    }

    /// Waits until it is revoked. One at a time waits for a flow.
    pub(crate) fn revocation(self: &Arc<Self>) -> Revocation {
        Revocation { flow: Some(Arc::clone(self)), waker: None }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.quota.leave();
        let mut live = lock(&self.flows.table);
        live.remove(&self.number);
        let is_last = live.is_empty();
        drop(live);
        if is_last {
            self.flows.emptied.notify_waiters();
        }
    }
}

/// Waits until a flow is revoked. To poll it again costs a look at a flag: it stands beside every tunnel.
#[derive(Debug)]
pub(crate) struct Revocation {
    flow: Option<Arc<Flow>>,
    /// Who was told to the flow.
    waker: Option<Waker>,
}

impl Revocation {
    /// One that never comes.
    pub(crate) fn never() -> Self {
        Self { flow: None, waker: None }
    }
}

impl Future for Revocation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(flow) = &self.flow else { return Poll::Pending };
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            let waker = context.waker().clone();
            *lock(&flow.waker) = Some(waker.clone());
            // The flag is looked at after the waker was left: whoever sets it before has not seen the waker.
            let revoked = flow.is_revoked();
            self.waker = Some(waker);
            return if revoked { Poll::Ready(()) } else { Poll::Pending };
        }
        if flow.is_revoked() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Also after a panic elsewhere: what is in there is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
