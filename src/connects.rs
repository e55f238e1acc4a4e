//! The connects of the sandbox: the launcher performs them and asks, the proxy judges and is told whose they are.

use std::sync::Arc;

use netbox_launcher::{Identity, Judge, Made};
use netbox_proxy::Session;
use netbox_proxy::callers::{Callers, Connect};
use netbox_proxy::events::{Events, Process};

/// Of so many descriptors one may be kept for a caller whose connection is to be judged.
const CALLERS: u64 = 32;

/// Room for those, where events are written: nobody else wants to know.
pub fn callers(events: &Events) -> Callers {
    if !events.are_written() {
        return Callers::default();
    }
    let room = netbox_launcher::descriptor_limit() / CALLERS;
    Callers::with_room_for(usize::try_from(room).unwrap_or(usize::MAX).clamp(16, 1024))
}

/// Judges connects, and hears whose they are where events are written.
pub fn judge(session: &Arc<Session>) -> Box<Judge> {
    let session = Arc::clone(session);
    Box::new(move |destination, who| {
        // What is for netbox itself says later what it wants.
        let is_own = destination.ip().is_loopback();
        if !is_own && !session.may_connect(destination, || who().map(process)) {
            return Err(libc::EACCES);
        }
        let made = |connect: Connect| -> Made {
            Box::new(|source, caller| connect.made(source, Box::new(move || caller.identify().map(process))))
        };
        Ok(session.callers.begin(destination).map(made))
    })
}

/// A process as events name it. A path is text of any kind.
fn process(identity: Identity) -> Process {
    Process { pid: identity.pid, exe: identity.exe.map(|exe| exe.to_string_lossy().into_owned()) }
}
