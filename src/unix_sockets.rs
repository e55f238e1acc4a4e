//! `--unix-socket`: unix sockets of the host that the command may connect to.

use std::path::{Path, PathBuf};

use netbox_launcher::AllowedSocket;

/// What becomes of a sandbox that reaches such a service.
const LEAVES: &str = "through which the command can leave the sandbox";
const SIGNS: &str = "which uses your keys for the command";

/// Parts of paths, who listens there, and what that means: some start programs outside or type into them, and others sign
/// in elsewhere.
const WAYS_OUT: [(&str, &str, &str); 29] = [
    ("docker", "a container engine", LEAVES),
    ("podman", "a container engine", LEAVES),
    ("containerd", "a container engine", LEAVES),
    ("crio", "a container engine", LEAVES),
    ("buildkit", "a container engine", LEAVES),
    ("/lxd", "a container engine", LEAVES),
    ("/incus", "a container engine", LEAVES),
    ("libvirt", "a manager of virtual machines", LEAVES),
    ("snapd", "snapd", LEAVES),
    ("ssh-", "an ssh agent", SIGNS),
    ("/.ssh/", "ssh", SIGNS),
    ("/gcr/ssh", "an ssh agent", SIGNS),
    ("keyring", "a keyring", SIGNS),
    ("gnupg", "a GnuPG agent", SIGNS),
    ("S.gpg-agent", "a GnuPG agent", SIGNS),
    ("1password", "a password manager", SIGNS),
    ("systemd", "systemd", LEAVES),
    ("/bus", "D-Bus", LEAVES),
    ("dbus", "D-Bus", LEAVES),
    ("tmux", "tmux", LEAVES),
    ("/screen/", "screen", LEAVES),
    ("/.screen/", "screen", LEAVES),
    ("zellij", "zellij", LEAVES),
    (".X11-unix", "the display", LEAVES),
    ("/wayland-", "the display", LEAVES),
    ("vscode", "an editor", LEAVES),
    ("nvim", "an editor", LEAVES),
    ("emacs", "an editor", LEAVES),
    ("kitty", "a terminal", LEAVES),
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

/// What is to be said about a socket before anything runs. It may have been typed by a name that says nothing, so the
/// name without links counts too.
pub fn warning(typed: &Path, socket: &AllowedSocket) -> Option<String> {
    let (who, so) = service(typed).or_else(|| service(socket.path()))?;
    let quoted = netbox_config::quote(typed.as_os_str().as_encoded_bytes());
    Some(format!("`--unix-socket` {quoted} leads to {who}, {so}"))
}

fn service(path: &Path) -> Option<(&'static str, &'static str)> {
    let text = path.to_string_lossy();
    WAYS_OUT.iter().find(|(part, _, _)| text.contains(part)).map(|(_, who, so)| (*who, *so))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_run_programs_or_hold_keys_are_known_by_their_paths() {
        for (path, who) in [
            ("/run/docker.sock", "a container engine"),
            ("/run/user/1000/podman/podman.sock", "a container engine"),
            ("/run/user/1000/bus", "D-Bus"),
            ("/run/user/1000/systemd/private", "systemd"),
            ("/tmp/tmux-1000/default", "tmux"),
            ("/run/screen/S-a/77.pts", "screen"),
            ("/tmp/.X11-unix/X0", "the display"),
            ("/run/user/1000/wayland-0", "the display"),
            ("/tmp/ssh-abc/agent.77", "an ssh agent"),
            ("/run/user/1000/gnupg/S.gpg-agent", "a GnuPG agent"),
            ("/home/a/.gnupg/S.gpg-agent.ssh", "a GnuPG agent"),
            ("/run/user/1000/vscode-ipc-x.sock", "an editor"),
        ] {
            assert_eq!(service(Path::new(path)).map(|(who, _)| who), Some(who), "{path}");
        }
        assert_eq!(service(Path::new("/run/postgresql/.s.PGSQL.5432")), None);
    }

    #[test]
    fn a_link_to_such_a_service_is_warned_about_by_the_name_that_was_typed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("docker.sock"), folder.path().join("plain"));
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("own folder");
        std::os::unix::fs::symlink(&path, &link).expect("own folder");
        let sockets = open(std::slice::from_ref(&link)).expect("a socket");
        let text = warning(&link, &sockets[0]).expect("a warning");
        assert!(text.contains("plain` leads to a container engine, through which"), "{text}");
    }

    #[test]
    fn what_is_no_socket_is_named() {
        let error = open(&["/dev/null".into()]).expect_err("not a socket");
        assert!(error.contains("/dev/null") && error.contains("not a unix socket"), "{error}");
    }
}
