//! Unix sockets in the places where a host has its services: container engines, D-Bus, systemd, the name service, agents.
//! Each of them would resolve names, open connections or start programs for whoever reaches it.
//!
//! `/run` is the tests' own, and the machine's is out of sight. Behind each socket stands somebody who writes down what
//! is said to it and hangs up. Other programs look for these services too (the C library asks nscd), so a visitor is known
//! by its word.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::unistd::Uid;

/// Sockets that are connected to, below `/run`. `USER` is the user's number.
const STREAMS: [&str; 16] = [
    "docker.sock",
    "podman/podman.sock",
    "containerd/containerd.sock",
    "dbus/system_bus_socket",
    "systemd/private",
    "systemd/resolve/io.systemd.Resolve",
    "systemd/userdb/io.systemd.Multiplexer",
    "nscd/socket",
    "snapd.socket",
    "cups/cups.sock",
    "user/USER/bus",
    "user/USER/systemd/private",
    "user/USER/docker.sock",
    "user/USER/gnupg/S.gpg-agent",
    "user/USER/keyring/ssh",
    "user/USER/wayland-0",
];
/// Sockets that are sent to.
const DATAGRAMS: [&str; 3] = ["systemd/journal/dev-log", "systemd/journal/socket", "systemd/notify"];

/// Who comes and says nothing is waited for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sockets.
#[derive(Debug)]
pub struct HostServices {
    streams: Vec<PathBuf>,
    datagrams: Vec<PathBuf>,
    said: Arc<Said>,
}

/// What was said, in no order.
type Said = (Mutex<Vec<String>>, Condvar);

impl HostServices {
    /// Makes the folder and the sockets; nothing listens yet. The process must be in its own mount namespace.
    ///
    /// # Panics
    ///
    /// When a step fails.
    pub fn new(uid: Uid) -> Self {
        let kept = fs::canonicalize("/etc/resolv.conf").ok().filter(|path| path.starts_with("/run"));
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"))
            .expect("a `/run` of the tests' own");
        // Where a link leads there, the tests put their own file in its place.
        if let Some(path) = kept {
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("own folder");
            fs::write(path, "").expect("own folder");
        }
        let place = |name: &str| {
            let path = Path::new("/run").join(name.replace("USER", &uid.to_string()));
            fs::create_dir_all(path.parent().expect("it is below `/run`")).expect("own folder");
            path
        };
        let (streams, datagrams) = (STREAMS.map(place).into(), DATAGRAMS.map(place).into());
        Self { streams, datagrams, said: Arc::default() }
    }

    /// Binds the sockets and writes down what comes, on threads of its own.
    ///
    /// # Panics
    ///
    /// When a socket cannot be bound.
    pub fn start(&self) {
        for path in &self.streams {
            let listener = UnixListener::bind(path).expect("a free name");
            let said = Arc::clone(&self.said);
            thread::spawn(move || {
                for connection in listener.incoming().flatten() {
                    let mut words = [0; 256];
                    let length =
                        connection.set_read_timeout(Some(PATIENCE)).and_then(|()| (&connection).read(&mut words));
                    write_down(&said, &words[..length.unwrap_or(0)]);
                }
            });
        }
        for path in &self.datagrams {
            let socket = UnixDatagram::bind(path).expect("a free name");
            let said = Arc::clone(&self.said);
            thread::spawn(move || {
                let mut words = [0; 256];
                while let Ok(length) = socket.recv(&mut words) {
                    write_down(&said, &words[..length]);
                }
            });
        }
    }

    /// Where they are: those that are connected to, and those that are sent to.
    pub fn paths(&self) -> (Vec<&str>, Vec<&str>) {
        fn text(paths: &[PathBuf]) -> Vec<&str> {
            paths.iter().map(|path| path.to_str().expect("plain characters")).collect()
        }
        (text(&self.streams), text(&self.datagrams))
    }

    /// How many have come and said this word, of all that came before the call.
    pub fn visits_with(&self, word: &str) -> usize {
        // Each socket's visitors are heard in the order in which they came.
        let fence = format!("behind {word}");
        for path in &self.streams {
            let mut connection = UnixStream::connect(path).expect("somebody listens");
            connection.write_all(fence.as_bytes()).expect("a connected socket");
        }
        let socket = UnixDatagram::unbound().expect("a socket");
        for path in &self.datagrams {
            socket.send_to(fence.as_bytes(), path).expect("somebody listens");
        }
        let count = |said: &[String], word: &str| said.iter().filter(|said| *said == word).count();
        let (said, changed) = &*self.said;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.streams.len() + self.datagrams.len();
        let (said, waited) = changed
            .wait_timeout_while(said, 30 * PATIENCE, |said| count(said, &fence) < all)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "the host's services hear nothing any more");
        count(&said, word)
    }
}

fn write_down(said: &Said, words: &[u8]) {
    said.0.lock().unwrap_or_else(PoisonError::into_inner).push(String::from_utf8_lossy(words).into_owned());
    said.1.notify_all();
}
