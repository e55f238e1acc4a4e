//! `listen(2)`: which files are the sandbox's own.

use std::os::fd::AsFd;

use super::{Network, Notification, Supervisor, Target};
use crate::sys;

impl Supervisor {
    /// Remembers the file that the socket is bound to, if it is a unix socket of the sandbox and bound to one.
    pub(super) fn listen(&self, notification: &Notification) {
        let learn = || -> nix::Result<()> {
            let target = Target::of(notification)?;
            let socket = target.descriptor(notification.request().arguments[0])?;
            let is_unix = sys::socket::option(socket.as_fd(), libc::SO_DOMAIN)? == libc::AF_UNIX;
            // A socket that came from outside is bound to a file of the host.
            if is_unix && self.networks.of(socket.as_fd()) != Network::Outside {
                let file = sys::socket::bound_file(socket.as_fd())?;
                let within = self.walls.around(target.thread())?;
                if notification.is_waiting() {
                    self.inodes.learn(file, within);
                }
            }
            Ok(())
        };
        // Unknown is refused.
        let _ = learn();
    }
}
