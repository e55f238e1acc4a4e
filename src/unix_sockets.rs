//! `--unix-socket`: unix sockets of the host that the command may connect to.

use std::path::{Path, PathBuf};

use netbox_launcher::AllowedSocket;

/// Parts of paths, and who listens there. These start programs outside, or type into them.
const WAYS_OUT: [(&str, &str); 9] = [
    ("docker", "a container engine"),
    ("podman", "a container engine"),
    ("containerd", "a container engine"),
    ("crio", "a container engine"),
    ("systemd", "systemd"),
    ("/bus", "D-Bus"),
    ("dbus", "D-Bus"),
    ("tmux", "tmux"),
    (".X11-unix", "the display"),
];

/// Opens them, so that each is the file that its path means now.
///
/// # Errors
/// Why one cannot be, in words.
pub fn open(paths: &[PathBuf]) -> Result<Vec<AllowedSocket>, String> {
    let open = |path: &PathBuf| {
        let quoted = netbox_config::quote(path.as_os_str().as_encoded_bytes()).to_string();
        AllowedSocket::open(path).map_err(|error| format!("cannot let {quoted} through: {error}"))
    };
    paths.iter().map(open).collect()
}

/// What is to be said about a socket before anything runs.
pub fn warning(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    let (_, who) = WAYS_OUT.iter().find(|(part, _)| text.contains(part))?;
    let quoted = netbox_config::quote(path.as_os_str().as_encoded_bytes());
    Some(format!("{quoted} leads to {who}, through which the command can leave the sandbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_services_that_run_programs_are_warned_about() {
        for path in ["/run/docker.sock", "/run/user/1000/bus", "/tmp/tmux-1000/default", "/tmp/.X11-unix/X0"] {
            assert!(warning(Path::new(path)).is_some_and(|text| text.contains(path)), "{path}");
        }
        assert_eq!(warning(Path::new("/run/postgresql/.s.PGSQL.5432")), None);
    }

    #[test]
    fn what_is_no_socket_is_named() {
        let error = open(&["/dev/null".into()]).expect_err("not a socket");
        assert!(error.contains("/dev/null") && error.contains("not a unix socket"), "{error}");
    }
}
