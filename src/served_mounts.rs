//! Places whose files others serve: another machine, or a program. What the command writes there reaches them, and netbox
//! says where they are.

use netbox_config::quote;
use netbox_launcher::{ServedMount, served_mounts};

use crate::policy::shown;

/// All of them in a line, if there are any.
pub fn listed() -> Option<String> {
    let named = |mount: &ServedMount| format!("{} ({})", shown(&mount.point), quote(mount.kind.as_bytes()));
    let mounts: Vec<_> = served_mounts().unwrap_or_default().iter().map(named).collect();
    (!mounts.is_empty())
        .then(|| format!("what the command writes there reaches whoever serves it: {}", mounts.join(", ")))
}
