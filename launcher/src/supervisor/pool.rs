//! The threads that answer: as many as there are calls that wait.
//!
//! A connect may wait, for room in a listener's queue or for a file system, as long as it likes; so there is always one
//! more thread that reads the next call, up to [`CAPACITY`]. With none left a connect fails with EAGAIN. A caller that
//! is killed leaves its call behind: one more thread, the *ticker*, looks at calls that take long, and interrupts the
//! threads of those whose caller is gone. It sleeps while nothing waits.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;

use super::Supervisor;
use super::notification::Listener;
use crate::sys;

/// How many calls can wait at once.
const CAPACITY: usize = 256;
/// How many threads are kept when nothing waits.
const KEPT: usize = 4;
/// How long a call takes before the ticker asks whether its caller is still there.
const TICK: Duration = Duration::from_millis(100);

type Shared = Arc<(Listener, Supervisor)>;

/// The threads.
#[derive(Default)]
pub(super) struct Pool {
    workers: Mutex<Workers>,
    /// Threads that wait for a call, or are on their way there.
    idle: AtomicUsize,
    stopped: AtomicBool,
    ticker_sleeps: AtomicBool,
    wake: Condvar,
}

#[derive(Default)]
struct Workers {
    all: Vec<Arc<Worker>>,
    has_ticker: bool,
}

struct Worker {
    /// gettid(2).
    thread: i32,
    /// The call that it answers; 0 while it waits for one.
    call: AtomicU64,
}

impl Pool {
    /// Answers calls on this thread, and on others as they are needed.
    pub(super) fn run(self: Arc<Self>, shared: Shared) {
        // The first is the proof, and nothing else comes before it is answered.
        match shared.0.next() {
            Ok(notification) => shared.1.answer(notification, false),
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        self.idle.fetch_add(1, Ordering::SeqCst);
        self.work(&shared);
    }

    /// Ends every thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let workers = self.workers();
        workers.all.iter().for_each(|worker| sys::thread::interrupt(worker.thread));
        self.ticker_sleeps.store(false, Ordering::SeqCst);
        self.wake.notify_all();
    }

    fn work(self: &Arc<Self>, shared: &Shared) {
        let worker = Arc::new(Worker { thread: sys::thread::own_number(), call: AtomicU64::new(0) });
        self.workers().all.push(Arc::clone(&worker));
        while !self.stopped.load(Ordering::SeqCst) {
            let notification = match shared.0.next() {
                Ok(notification) => notification,
                Err(Errno::EINTR) => continue,
                Err(_) => break,
            };
            worker.call.store(notification.request().id, Ordering::SeqCst);
            let crowded = self.idle.fetch_sub(1, Ordering::SeqCst) == 1 && !self.grow(shared);
            self.wake_ticker();
            shared.1.answer(notification, crowded);
            worker.call.store(0, Ordering::SeqCst);
            if self.idle.fetch_add(1, Ordering::SeqCst) >= KEPT {
                break;
            }
        }
        self.idle.fetch_sub(1, Ordering::SeqCst);
        self.workers().all.retain(|other| !Arc::ptr_eq(other, &worker));
    }

    /// Starts one more thread. `false`: there are enough, or the machine has no more.
    fn grow(self: &Arc<Self>, shared: &Shared) -> bool {
        let mut workers = self.workers();
        if workers.all.len() >= CAPACITY {
            return false;
        }
        if !workers.has_ticker {
            let (pool, shared) = (Arc::clone(self), Arc::clone(shared));
            workers.has_ticker = spawn(move || pool.tick(&shared.0));
        }
        self.idle.fetch_add(1, Ordering::SeqCst);
        let (pool, shared) = (Arc::clone(self), Arc::clone(shared));
        let started = workers.has_ticker && spawn(move || pool.work(&shared));
        if !started {
            self.idle.fetch_sub(1, Ordering::SeqCst);
        }
        started
    }

    fn wake_ticker(&self) {
        if self.ticker_sleeps.load(Ordering::SeqCst) {
            let _workers = self.workers();
            self.ticker_sleeps.store(false, Ordering::SeqCst);
            self.wake.notify_all();
        }
    }

    /// The ticker's life.
    fn tick(&self, listener: &Listener) {
        let mut before: Vec<u64> = Vec::new();
        let mut workers = self.workers();
        while !(self.stopped.load(Ordering::SeqCst) && workers.all.is_empty()) {
            let stopped = self.stopped.load(Ordering::SeqCst);
            let calls = |workers: &Workers| -> Vec<u64> {
                workers.all.iter().map(|worker| worker.call.load(Ordering::SeqCst)).filter(|call| *call != 0).collect()
            };
            for worker in &workers.all {
                let call = worker.call.load(Ordering::SeqCst);
                if stopped || (before.contains(&call) && !listener.is_waiting(call)) {
                    // One that comes too early is lost, and comes again with the next tick.
                    sys::thread::interrupt(worker.thread);
                }
            }
            before = calls(&workers);
            if before.is_empty() && !stopped {
                self.ticker_sleeps.store(true, Ordering::SeqCst);
                // Who began a call before the line above did not see it.
                if calls(&workers).is_empty() {
                    let sleeps = |_: &mut Workers| self.ticker_sleeps.load(Ordering::SeqCst);
                    workers = self.wake.wait_while(workers, sleeps).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                self.ticker_sleeps.store(false, Ordering::SeqCst);
            }
            workers = self.wake.wait_timeout(workers, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A small stack: an answer needs little.
fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
    thread::Builder::new().name("supervisor".into()).stack_size(256 * 1024).spawn(work).is_ok()
}
