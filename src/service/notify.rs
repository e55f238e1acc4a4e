//! What systemd is told of the service (sd_notify(3)): that it is ready, reads its files anew, or ends; that it lives; and
//! how it is, in a line.
//!
//! One datagram for each, to the socket that NOTIFY_SOCKET names. Where nobody asked to be told, nothing is.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// How long a datagram may wait to be taken. A manager that hangs must not hang the service.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whoever started the service, and wants to know how it is.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// Whoever the environment names.
    ///
    /// # Errors
    /// It names a socket that cannot be reached: then the service would be taken for one that never gets ready.
    pub fn from_environment() -> Result<Self, String> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let socket = connect(&name).map_err(|error| format!("NOTIFY_SOCKET: {error}"))?;
        let variable = |name| env::var(name).ok();
        let watchdog = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// How often [`Notify::alive`] is to be told: twice in the time after which the service counts as hung.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// It serves: for the first time, or again after a reload.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// It begins to read its files anew. [`Notify::ready`] ends that.
    pub fn reloading(&self) {
        // The manager tells this reload from an earlier one by the time.
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(|now| Duration::from(now).as_micros()).unwrap_or(0);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// It ends.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", line(status)));
    }

    /// It lives, and how it is.
    pub fn alive(&self, status: &str) {
        self.tell(&format!("WATCHDOG=1\nSTATUS={}", line(status)));
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // The manager draws its own conclusions from silence.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// A path, or a name in the abstract namespace after an `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::other("neither a path nor a name after `@`")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Half of the time that WATCHDOG_USEC says, if it is meant for this process.
fn watchdog(micros: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != own.to_string()) {
        return None;
    }
    let micros = micros?.parse::<u64>().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros.div_ceil(2)))
}

/// A value ends with its line.
fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).expect("a datagram");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_manager_is_told_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("netbox-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).expect("a name");
        for (manager, name) in [
            (UnixDatagram::bind(&path).expect("own folder"), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&by_name).expect("a free name"), format!("@{name}").into()),
        ] {
            let notify = Notify { socket: Some(connect(&name).expect("it is there")), watchdog: None };
            notify.ready("3 sandboxes\nWATCHDOG=trigger");
            assert_eq!(told(&manager), "READY=1\nSTATUS=3 sandboxes WATCHDOG=trigger");
            notify.reloading();
            let text = told(&manager);
            let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the time");
            assert!(micros.parse::<u64>().is_ok_and(|micros| micros > 0), "{text}");
            notify.alive("well");
            assert_eq!(told(&manager), "WATCHDOG=1\nSTATUS=well");
            notify.stopping("draining");
            assert_eq!(told(&manager), "STOPPING=1\nSTATUS=draining");
        }
    }

    #[test]
    fn nobody_who_cannot_be_told_is_taken_for_nobody() {
        for name in ["/nonexistent/notify", "@netbox-nobody-has-this-name", "vsock:2:1234", "relative"] {
            assert!(connect(OsStr::new(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_watchdog_is_fed_twice_in_its_time_and_only_ones_own() {
        let text = |text: &str| Some(text.to_owned());
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(text("2000000"), None, 7), second);
        assert_eq!(watchdog(text("2000000"), text("7"), 7), second);
        assert_eq!(watchdog(text("2000000"), text("8"), 7), None);
        for none in [None, text("0"), text("-1"), text("x"), text("")] {
            assert_eq!(watchdog(none, None, 7), None);
        }
    }
}
