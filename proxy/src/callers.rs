//! Which process opened a connection.
//!
//! # Theory of operation
//!
//! A connection that arrives says where it comes from and where it was going, and nothing of the program behind it. Who
//! performs the connects of the sandbox knows both: the calling thread, and, once the connect has been made, the address
//! that it comes from. [`Callers`] keeps what he tells until the connection is judged, and nothing for longer: a connection
//! takes its entry out, and so does its end.
//!
//! An address comes to mean another connection when the first one is over. An entry that nobody took, since its connection
//! was never accepted, is overwritten by the next one with the same two ends; but the connection may arrive before it has
//! been told of. So while a connect to that destination is under way nothing is said. Better nobody than the wrong one.
//!
//! The process is looked at when its connection is judged, not when it connects, which would cost the program time. One
//! that is gone by then is not named.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::net::TcpStream;

use crate::events::Process;

/// Looks who it is. `None`: it is gone.
pub type Who = Box<dyn FnOnce() -> Option<Process> + Send>;

/// The two ends of a connection, as the program sees them: where it comes from, and what it was made to.
type Ends = (SocketAddr, SocketAddr);

/// The connects that were made and whose connections were not judged yet. A clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Callers(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    capacity: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    made: HashMap<Ends, (u64, Who)>,
    /// By age: the number of each.
    order: BTreeMap<u64, Ends>,
    next: u64,
    /// How many connects to a destination are under way.
    under_way: HashMap<SocketAddr, usize>,
}

impl fmt::Debug for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} connects", self.made.len())
    }
}

impl Callers {
    /// Room for so many. What is beyond, the oldest first, is forgotten. [`Callers::default`] keeps nothing.
    #[must_use]
    pub fn with_room_for(capacity: usize) -> Self {
        Self(Some(Arc::new(Kept { capacity, table: Mutex::default() })))
    }

    /// A connect to this destination is about to be made. `None`: nobody wants to know.
    #[must_use]
    pub fn begin(&self, destination: SocketAddr) -> Option<Connect> {
        let kept = Arc::clone(self.0.as_ref()?);
        let destination = canonical(destination);
        *kept.table().under_way.entry(destination).or_default() += 1;
        Some(Connect { kept, destination })
    }
}

impl Kept {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, ends: &Ends) -> Option<Who> {
        let mut table = self.table();
        if table.under_way.contains_key(&ends.1) {
            return None;
        }
        table.remove(ends)
    }
}

impl Table {
    fn remove(&mut self, ends: &Ends) -> Option<Who> {
        let (number, who) = self.made.remove(ends)?;
        self.order.remove(&number);
        Some(who)
    }
}

/// A connect that is under way.
#[derive(Debug)]
pub struct Connect {
    kept: Arc<Kept>,
    destination: SocketAddr,
}

impl Connect {
    /// It was made, from `source`; `who` says by whom. One that is dropped instead has failed.
    pub fn made(self, source: SocketAddr, who: Who) {
        let ends = (canonical(source), self.destination);
        let mut forgotten = Vec::new();
        let mut table = self.kept.table();
        forgotten.extend(table.remove(&ends));
        let number = table.next;
        table.next += 1;
        table.made.insert(ends, (number, who));
        table.order.insert(number, ends);
        while table.made.len() > self.kept.capacity {
            let Some((_, oldest)) = table.order.pop_first() else { break };
            forgotten.extend(table.made.remove(&oldest).map(|(_, who)| who));
        }
        // With the table open to others: to forget one may take a system call.
        drop(table);
        drop(forgotten);
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        let mut table = self.kept.table();
        if let Some(count) = table.under_way.get_mut(&self.destination) {
            *count -= 1;
            if *count == 0 {
                table.under_way.remove(&self.destination);
            }
        }
    }
}

/// Who is behind one connection. A clone is another handle on the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin(Option<Arc<Behind>>);

#[derive(Debug)]
struct Behind {
    kept: Option<(Arc<Kept>, Ends)>,
    found: OnceLock<Option<Process>>,
}

impl Origin {
    /// Of a connection that was accepted, and was made to `destination`.
    pub(crate) fn of(callers: &Callers, stream: &TcpStream, destination: SocketAddr) -> Self {
        let (Some(kept), Ok(source)) = (&callers.0, stream.peer_addr()) else { return Self::default() };
        let ends = (canonical(source), canonical(destination));
        Self(Some(Arc::new(Behind { kept: Some((Arc::clone(kept), ends)), found: OnceLock::new() })))
    }

    /// Of a connection that was made to the listener that accepted it.
    pub(crate) fn at_listener(callers: &Callers, stream: &TcpStream) -> Self {
        stream.local_addr().map_or_else(|_| Self::default(), |own| Self::of(callers, stream, own))
    }

    /// Somebody who is known.
    pub(crate) fn known(process: Option<Process>) -> Self {
        Self(process.map(|process| Arc::new(Behind { kept: None, found: OnceLock::from(Some(process)) })))
    }

    /// The process, if it can be said. It is looked at once.
    pub(crate) fn process(&self) -> Option<Process> {
        let behind = self.0.as_ref()?;
        let look = || behind.kept.as_ref().and_then(|(kept, ends)| kept.take(ends))?();
        behind.found.get_or_init(look).clone()
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let (Some((kept, ends)), None) = (&self.kept, self.found.get()) {
            let forgotten = kept.take(ends);
            drop(forgotten);
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
