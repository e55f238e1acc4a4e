//! Variables that name a thing of the host's which is out of reach inside: an agent's socket, a display, a descriptor
//! that is closed.
//!
//! A program that is told of an agent which it cannot reach complains, or waits, where without one it would do without.
//! So such a variable goes, unless `--unix-socket`, `--host-port` or `--pass-fd` opens exactly the thing that it names. No
//! wall hangs on it: a variable that is missing here is a nuisance and no more.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a variable's value names what it leads to.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A process, a terminal or a job of the host's. There is none of them inside.
    Foreign,
    /// A number of a descriptor.
    Descriptor,
    /// The path of a socket, up to this character where there is one.
    Path(Option<char>),
    /// A path, or a name in `XDG_RUNTIME_DIR`.
    Runtime,
    /// `unix:PATH`, `unix://PATH`, a path alone, or something else, such as `tcp://…`, that is left alone.
    Url,
    /// A list of D-Bus addresses: `unix:path=…,guid=…;…`.
    Bus,
    /// `:0`, `unix:0`, `localhost:10.0`, or the display of another host, which is left alone.
    Display,
    /// What belongs to another variable, and goes with it.
    With(&'static str),
}

use Form::{Bus, Descriptor, Display, Foreign, Path as At, Runtime, Url, With};

const VARIABLES: [(&str, Form); 48] = [
    // Agents.
    ("SSH_AUTH_SOCK", At(None)),
    ("SSH_AGENT_PID", With("SSH_AUTH_SOCK")),
    ("GPG_AGENT_INFO", At(Some(':'))),
    ("GNOME_KEYRING_CONTROL", At(None)),
    ("GNOME_KEYRING_PID", With("GNOME_KEYRING_CONTROL")),
    // Buses and desktops.
    ("DBUS_SESSION_BUS_ADDRESS", Bus),
    ("DBUS_SESSION_BUS_PID", With("DBUS_SESSION_BUS_ADDRESS")),
    ("DBUS_SESSION_BUS_WINDOWID", With("DBUS_SESSION_BUS_ADDRESS")),
    ("DBUS_SYSTEM_BUS_ADDRESS", Bus),
    ("DBUS_STARTER_ADDRESS", Bus),
    ("AT_SPI_BUS_ADDRESS", Bus),
    ("IBUS_ADDRESS", Bus),
    ("SESSION_MANAGER", Foreign),
    ("DISPLAY", Display),
    ("WAYLAND_DISPLAY", Runtime),
    ("WAYLAND_SOCKET", Descriptor),
    ("SWAYSOCK", At(None)),
    ("I3SOCK", At(None)),
    ("PULSE_SERVER", Url),
    ("PIPEWIRE_REMOTE", Runtime),
    // Container engines.
    ("DOCKER_HOST", Url),
    ("CONTAINER_HOST", Url),
    ("BUILDKIT_HOST", Url),
    ("CONTAINERD_ADDRESS", At(None)),
    // Terminals, and what runs in them.
    ("TMUX", At(Some(','))),
    ("TMUX_PANE", With("TMUX")),
    ("STY", Foreign),
    ("GPG_TTY", Foreign),
    ("SSH_TTY", Foreign),
    ("KITTY_LISTEN_ON", Url),
    ("ALACRITTY_SOCKET", At(None)),
    ("WEZTERM_UNIX_SOCKET", At(None)),
    // Editors.
    ("NVIM", Url),
    ("NVIM_LISTEN_ADDRESS", Url),
    ("VSCODE_IPC_HOOK", At(None)),
    ("VSCODE_IPC_HOOK_CLI", At(None)),
    ("VSCODE_IPC_HOOK_EXTHOST", At(None)),
    ("VSCODE_GIT_IPC_HANDLE", At(None)),
    ("VSCODE_GIT_IPC_AUTH_TOKEN", With("VSCODE_GIT_IPC_HANDLE")),
    // A service manager and its services (sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3)).
    ("NOTIFY_SOCKET", At(None)),
    ("WATCHDOG_PID", Foreign),
    ("WATCHDOG_USEC", Foreign),
    ("LISTEN_FDS", Foreign),
    ("LISTEN_PID", Foreign),
    ("LISTEN_FDNAMES", Foreign),
    ("JOURNAL_STREAM", Foreign),
    ("SYSTEMD_EXEC_PID", Foreign),
    ("MANAGERPID", Foreign),
];

/// What was opened for the command besides the network: the unix sockets, by paths without links, the ports of the host's
/// loopback, and the descriptors.
#[derive(Debug, Default)]
pub struct Reach {
    pub sockets: Vec<PathBuf>,
    pub host_ports: Vec<u16>,
    pub descriptors: Vec<i32>,
}

impl Reach {
    /// Whether the variable names something that is out of reach inside. `caller` is all that stands beside it.
    pub fn is_beyond(&self, name: &OsStr, value: &OsStr, caller: &[(OsString, OsString)]) -> bool {
        let form = VARIABLES.iter().find(|(known, _)| name == *known).map(|(_, form)| *form);
        let of_caller = |wanted: &str| caller.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let text = value.to_string_lossy();
        match form {
            None => false,
            Some(Foreign) => true,
            Some(Descriptor) => !text.parse().is_ok_and(|number| self.descriptors.contains(&number)),
            Some(At(None)) => !self.leads_to(Path::new(value)),
            Some(At(Some(end))) => {
                let path = value.as_bytes().split(|byte| char::from(*byte) == end).next().unwrap_or_default();
                !self.leads_to(Path::new(OsStr::from_bytes(path)))
            }
            // An absolute path replaces the folder that it is joined to.
            Some(Runtime) => !of_caller("XDG_RUNTIME_DIR").is_some_and(|folder| {
                let folder = Path::new(folder);
                self.leads_to(&folder.join(value))
            }),
            Some(Url) => match unix_path(&text) {
                Some(path) => !self.leads_to(Path::new(path)),
                None => false,
            },
            Some(Bus) => !text.split(';').any(|address| self.leads_to_bus(address)),
            Some(Display) => !self.leads_to_display(&text),
            Some(With(other)) => of_caller(other).is_none_or(|value| self.is_beyond(other.as_ref(), value, caller)),
        }
    }

    fn leads_to(&self, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|path| self.sockets.contains(&path))
    }

    /// One D-Bus address. Those of other transports are left alone.
    fn leads_to_bus(&self, address: &str) -> bool {
        let Some(keys) = address.strip_prefix("unix:") else { return !address.is_empty() };
        keys.split(',').any(|key| key.strip_prefix("path=").is_some_and(|path| self.leads_to(Path::new(path))))
    }

    /// X(7): a host, a colon, the display's number, and perhaps a screen's.
    fn leads_to_display(&self, text: &str) -> bool {
        let Some((host, number)) = text.rsplit_once(':') else { return false };
        let Ok(number) = number.split('.').next().unwrap_or_default().parse::<u16>() else { return false };
        match host {
            "" | "unix" => self.leads_to(Path::new(&format!("/tmp/.X11-unix/X{number}"))),
            // As ssh forwards it: by a port of this machine.
            "localhost" | "127.0.0.1" | "[::1]" | "::1" => {
                number.checked_add(6000).is_some_and(|port| self.host_ports.contains(&port))
            }
            _ => !host.starts_with('/'),
        }
    }
}

/// The path in a URL of a unix socket, `None` in any other.
fn unix_path(text: &str) -> Option<&str> {
    match text.strip_prefix("unix:") {
        Some(path) => Some(path.strip_prefix("//").unwrap_or(path)),
        None => text.starts_with(['/', '@', '{']).then_some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn beyond(reach: &Reach, variables: &[(&str, &str)]) -> bool {
        let caller: Vec<(OsString, OsString)> =
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (name, value) = &caller[0];
        reach.is_beyond(name, value, &caller)
    }

    #[test]
    fn what_names_a_thing_of_the_hosts_goes() {
        for (name, value) in [
            ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1"),
            ("SSH_AGENT_PID", "77"),
            ("GPG_AGENT_INFO", "/run/user/1000/gnupg/S.gpg-agent:0:1"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/dbus-x,guid=1;unix:path=/run/user/1000/bus"),
            ("DBUS_SESSION_BUS_ADDRESS", ""),
            ("DISPLAY", ":0"),
            ("DISPLAY", "unix:1.0"),
            ("DISPLAY", "localhost:10.0"),
            ("DISPLAY", "/private/x/org.xquartz:0"),
            ("WAYLAND_DISPLAY", "wayland-0"),
            ("WAYLAND_SOCKET", "5"),
            ("DOCKER_HOST", "unix:///run/docker.sock"),
            ("PULSE_SERVER", "{0af}unix:/run/pulse"),
            ("PULSE_SERVER", "/run/pulse"),
            ("KITTY_LISTEN_ON", "unix:@kitty"),
            ("TMUX", "/tmp/tmux-1000/default,7,0"),
            ("TMUX_PANE", "%1"),
            ("VSCODE_IPC_HOOK_CLI", "/tmp/vscode-ipc.sock"),
            ("LISTEN_FDS", "1"),
            ("JOURNAL_STREAM", "8:9"),
        ] {
            assert!(beyond(&Reach::default(), &[(name, value)]), "{name}={value}");
        }
    }

    #[test]
    fn what_does_not_stays() {
        for (name, value) in [
            ("PATH", "/bin"),
            ("DATABASE_URL", "postgres:///run"),
            ("DOCKER_HOST", "tcp://docker.example.com:2376"),
            ("DOCKER_HOST", "ssh://docker.example.com"),
            ("DISPLAY", "x.example.com:0"),
            ("DBUS_SESSION_BUS_ADDRESS", "tcp:host=bus.example.com,port=1"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("XAUTHORITY", "/home/a/.Xauthority"),
            ("SYSTEMD_PAGER", "less"),
        ] {
            assert!(!beyond(&Reach::default(), &[(name, value)]), "{name}={value}");
        }
    }

    #[test]
    fn what_was_opened_stays_with_all_that_belongs_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it exists").join("socket");
        let _listener = UnixListener::bind(&path).expect("own folder");
        let text = path.to_str().expect("plain characters");
        let reach = Reach { sockets: vec![path.clone()], host_ports: vec![6010], descriptors: vec![5] };
        let folder = folder.path().to_str().expect("plain characters");
        let (bus, tmux) = (format!("unix:abstract=x;unix:path={text},guid=1"), format!("{text},1,0"));
        let url = format!("unix://{text}");
        for variables in [
            &[("SSH_AUTH_SOCK", text)][..],
            &[("SSH_AGENT_PID", "7"), ("SSH_AUTH_SOCK", text)],
            &[("WAYLAND_DISPLAY", "socket"), ("XDG_RUNTIME_DIR", folder)],
            &[("WAYLAND_SOCKET", "5")],
            &[("DBUS_SESSION_BUS_ADDRESS", &bus)],
            &[("TMUX", &tmux)],
            &[("DOCKER_HOST", &url)],
            &[("DISPLAY", "localhost:10.0")],
        ] {
            assert!(!beyond(&reach, variables), "{variables:?}");
        }
        let other = format!("{text}2");
        assert!(beyond(&reach, &[("SSH_AUTH_SOCK", &other)]) && beyond(&reach, &[("DISPLAY", "localhost:11")]));
    }
}
