//! `landlock_create_ruleset(2)`: inside, Landlock is of version 3, which knows files and nothing else.
//!
//! A program may confine itself, or its children, with rules about TCP connects (from version 4 on) or abstract unix
//! sockets (from version 6 on). Those bind the caller of `connect(2)`, and here that is netbox. Rather than to let them be
//! without effect, the version that programs ask for is the last one without them, and a ruleset that handles more than
//! files is refused with the error that such a kernel has for it.

use nix::errno::Errno;

use super::{Notification, Target};
use crate::sys;

/// The last version that is about files alone (Linux 6.2).
const VERSION: u32 = 3;
/// `struct landlock_ruleset_attr` of that version.
const KNOWN_BYTES: u64 = 8;
/// No kernel takes more than a page.
const LONGEST: u64 = 4096;

/// What the call returns, or `None`: the kernel may go on. If its arguments have changed by then, that harms the caller.
pub(super) fn judge(notification: &Notification) -> Option<nix::Result<u32>> {
    let [place, size, flags, ..] = notification.request().arguments;
    match flags as u32 {
        0 if size <= KNOWN_BYTES => None,
        0 => extends(notification, place, size)
            .map_or_else(|errno| Some(Err(errno)), |extends| extends.then_some(Err(Errno::E2BIG))),
        sys::seccomp::LANDLOCK_CREATE_RULESET_VERSION if place == 0 && size == 0 => {
            Some(sys::seccomp::landlock_version().map(|version| version.min(VERSION)))
        }
        // Errata, and what else may come: questions about what is not there.
        _ => Some(Err(Errno::EINVAL)),
    }
}

/// Whether the ruleset handles anything beyond files: a kernel that does not know the bytes refuses those that are set.
fn extends(notification: &Notification, place: u64, size: u64) -> nix::Result<bool> {
    if size > LONGEST {
        return Err(Errno::E2BIG);
    }
    let mut bytes = vec![0; size as usize];
    Target::of(notification)?.read(place, &mut bytes)?;
    Ok(bytes[KNOWN_BYTES as usize..].iter().any(|byte| *byte != 0))
}
