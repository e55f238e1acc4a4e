//! The sandbox on Linux: namespaces, interfaces, capture rules, mounts, and care for the command's process.
//!
//! Who is who:
//!
//! ```text
//! netbox ── holds the listeners, outside ([`Embryo`], [`Sandbox`])
//!   └── pid 1: user + network + mount + pid + ipc namespaces; builds, proves, supervises (`init`)
//!         └── the command: a nested user namespace, no capabilities, no_new_privs, seccomp (`command`)
//! ```
//!
//! Nothing here decides about hosts. The launcher hands out [`Listeners`] on which every connection and every query of
//! the sandbox arrives, and sees to it that there is no other way. A step that fails is a [`Failure`], and then the
//! command does not run.

#![deny(unsafe_code)]

mod automounts;
mod command;
mod control_groups;
mod costs;
mod descriptors;
mod devices;
mod error;
mod further_sockets;
mod id_maps;
mod init;
mod inode;
mod message;
mod mount_table;
mod mounts;
mod network;
mod passed;
pub mod peer;
mod proc_mount;
mod protection;
mod relay;
mod resolver_files;
mod sandbox;
mod supervisor;
#[allow(unsafe_code)]
mod sys;
mod system_call_filter;
mod terminal;

pub use command::Spec;
pub use costs::Costs;
pub use descriptors::{close_inherited, inherited, is_open, take_inherited};
pub use devices::{Device, NoDevice};
pub use error::{Failure, Step};
pub use further_sockets::SocketMaker;
pub use mount_table::{ServedMount, served_mounts};
pub use network::{EXPLICIT_PORT, Listeners, MAX_CAUGHT_PORTS, MAX_HOST_PORTS, OWN_PORTS, own_addresses, read_refused};
pub use protection::{Protected, Replaced};
pub use sandbox::{Embryo, News, Outcome, Sandbox};
pub use supervisor::{AllowedSocket, Caller, Identity, Judge, Made};
pub use sys::memory::give_back_free_memory;

/// Makes this process look names up exactly as they are written, without the host's search list.
///
/// A name that is on the list must not lead to another one that is not (`db.example` to `db.example.corp.example`).
/// glibc takes the list from LOCALDOMAIN (resolv.conf(5)); the root domain alone means none. `/etc/hosts` and the
/// other sources of names still count. For the start of `main`, before any thread exists; the command's environment
/// is made from the one before.
pub fn look_names_up_as_written() {
    sys::set_environment_variable("LOCALDOMAIN", ".");
}

/// Prepares this process for carrying the sandbox's connections, once [`Embryo::conceive`] has made the sandbox: what is
/// changed here is not for the command.
///
/// As many descriptors as the system lets it have: the usual limit of 1,024 suits programs that use select(2), and a
/// connection takes two. And a file that may not grow is an error of the write, not the end of the run.
pub fn become_carrier() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // Where it cannot be raised, the old one holds.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let _ = sys::signal::set_disposition(nix::sys::signal::Signal::SIGXFSZ, true);
}

/// How many descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit};
    // getrlimit(2) fails for unknown resources alone. 1,024 is what the kernel gives where nobody says otherwise.
    getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
}

/// Whether the caller has this process ignore a signal, by its number. Shells do that for jobs in the background, and
/// nohup(1).
pub fn is_ignored(signal: i32) -> bool {
    sys::signal::is_ignored(signal)
}

/// Ends this process as an interruption (SIGINT) does by default. With `group`, every process of its group is interrupted, as
/// by a key of their terminal's. Returns where this process does not end by it.
pub fn end_by_interruption(group: bool) {
    sys::signal::end_by(nix::sys::signal::Signal::SIGINT, group);
}

/// Whether this process is inside a netbox, which supervises its connects.
pub fn is_nested() -> bool {
    supervisor::is_supervised()
}

/// The effective user id of this process.
pub fn effective_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}
