//! What reached the servers of the test's internet: every connection, query and datagram, in the order of arrival.
//!
//! The promise under test is that nothing leaves for a refused name, so absence has to be provable. Two things
//! make it so. Connections are written down by the thread that accepts them, in the order of the listener's queue:
//! once a later connection (a fence, `World::fence`) is in the log, every earlier one is too. And an entry is
//! `settled` when its first bytes were read or it ended, so that a name inside those bytes cannot be missed.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One thing that reached a server.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Which server: `dns`, `http`, `https`, `ssh`, `echo`, `half-close`, `udp`, or `host-http` for the one on
    /// netbox's own side.
    pub service: &'static str,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// The address it came from.
    pub peer: SocketAddr,
    /// The name in it: the query's name, the SNI, the `Host` header; without a port, lower case.
    pub name: Option<String>,
    /// Its first line: the request line, the query's type, the client's banner, a datagram's text.
    pub line: Option<String>,
    /// Whether the first bytes were read, or the connection ended before any came.
    settled: bool,
}

impl Arrival {
    /// What a message to this socket has in common with every other.
    pub fn message_to(service: &'static str, local: SocketAddr, peer: SocketAddr) -> Self {
        Self { service, local, peer, name: None, line: None, settled: true }
    }
}

/// Names an entry of the log, for the thread that fills it in.
#[derive(Clone, Copy, Debug)]
pub struct Entry(usize);

/// A moment of the log: what came before it is not counted.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// The log of all servers.
#[derive(Debug, Default)]
pub struct Arrivals {
    entries: Mutex<Vec<Arrival>>,
    changed: Condvar,
}

impl Arrivals {
    /// Writes down an accepted connection whose first bytes are still to come.
    pub fn accepted(&self, service: &'static str, local: SocketAddr, peer: SocketAddr) -> Entry {
        self.push(Arrival { service, local, peer, name: None, line: None, settled: false })
    }

    /// Writes down a datagram, or a further request on a connection that is already in the log.
    pub fn message(&self, like: &Arrival, name: Option<String>, line: String) {
        self.push(Arrival { name, line: Some(line), settled: true, ..like.clone() });
    }

    /// Adds what the first bytes of a connection said.
    pub fn first_bytes(&self, Entry(index): Entry, name: Option<String>, line: Option<String>) {
        let mut entries = self.lock();
        let entry = &mut entries[index];
        entry.name = name.or(entry.name.take());
        entry.line = line.or(entry.line.take());
        entry.settled = true;
        self.changed.notify_all();
    }

    /// Notes that a connection ended; its first bytes, if none came, never will.
    pub fn ended(&self, Entry(index): Entry) {
        self.lock()[index].settled = true;
        self.changed.notify_all();
    }

    /// The entry as it is now.
    pub fn entry(&self, Entry(index): Entry) -> Arrival {
        self.lock()[index].clone()
    }

    /// The present moment.
    pub fn mark(&self) -> Mark {
        Mark(self.lock().len())
    }

    /// Everything since `mark` for which `wanted` holds.
    pub fn since(&self, Mark(start): Mark, wanted: impl Fn(&Arrival) -> bool) -> Vec<Arrival> {
        self.lock()[start..].iter().filter(|arrival| wanted(arrival)).cloned().collect()
    }

    /// Waits until an entry since `mark` is `wanted`, at most five seconds.
    pub fn wait_for(&self, Mark(start): Mark, wanted: impl Fn(&Arrival) -> bool) -> Option<Arrival> {
        self.wait(|entries| entries[start..].iter().find(|arrival| wanted(arrival)).cloned())
    }

    /// Waits until every connection to one of `addresses` since `mark` is settled, at most five seconds.
    ///
    /// # Panics
    ///
    /// When one is not: a connection is still open to an address that should have none.
    pub fn settle(&self, Mark(start): Mark, addresses: &[IpAddr]) {
        let concerned = |arrival: &Arrival| addresses.contains(&arrival.local.ip());
        let settled = self.wait(|entries| {
            entries[start..].iter().filter(|arrival| concerned(arrival)).all(|arrival| arrival.settled).then_some(())
        });
        assert!(settled.is_some(), "a connection to {addresses:?} stays open and says nothing");
    }

    fn push(&self, arrival: Arrival) -> Entry {
        let mut entries = self.lock();
        entries.push(arrival);
        self.changed.notify_all();
        Entry(entries.len() - 1)
    }

    fn wait<T>(&self, look: impl Fn(&[Arrival]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut entries = self.lock();
        loop {
            if let Some(found) = look(&entries) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A server thread that panicked must not hide what the others saw.
    fn lock(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
