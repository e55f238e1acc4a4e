//! The shared service while it runs: `netbox proxy serve` with a control socket, and its clients.
//!
//! Every program under test has a user namespace of its own, and a service takes nobody from another one. So the service
//! and its clients share one, as the programs of a user on an ordinary machine do.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::sys::signal::Signal;

use crate::outcome::Outcome;
use crate::run::{Run, Running};
use crate::world::World;

/// The user namespace that services and their clients share; none of their own where netbox runs as real root.
static HOUSEHOLD: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// A handle of it.
///
/// # Panics
///
/// When no descriptor is left.
pub fn household(world: &World) -> Option<OwnedFd> {
    let shared = HOUSEHOLD.get_or_init(|| {
        if world.identity.real_root {
            return None;
        }
        let mut founder = world.bare().stdin_open().start(&["cat"]);
        founder.write(b"here\n");
        founder.wait_for_stdout("here");
        let namespace = File::open(format!("/proc/{}/ns/user", founder.pid())).expect("a child's namespace");
        founder.finish();
        Some(namespace.into())
    });
    shared.as_ref().map(|shared| shared.try_clone().expect("a descriptor"))
}

/// A service that listens on a control socket of its own.
#[derive(Debug)]
pub struct Service<'w> {
    world: &'w World,
    running: Running,
    socket: PathBuf,
    via: String,
}

impl<'w> Service<'w> {
    /// Starts one with these flags, and waits until it listens.
    pub fn start(world: &'w World, flags: &[&str]) -> Self {
        Self::start_at(world, &world.fresh_path("files").with_extension("service").join("control.sock"), flags)
    }

    /// Starts one at this path.
    pub fn start_at(world: &'w World, socket: &Path, flags: &[&str]) -> Self {
        let via = format!("unix:{}", socket.display());
        let flags = [&["--listen", via.as_str()], flags].concat();
        Self::of(world, socket, Run::serve(world, &flags))
    }

    /// Starts this one, which listens at this path.
    pub fn of(world: &'w World, socket: &Path, run: Run<'w>) -> Self {
        let running = run.within(household(world)).start::<&str>(&[]);
        let via = format!("unix:{}", socket.display());
        let listening = running.wait_for_stderr("netbox: listening on ");
        assert!(listening.contains(&via), "{listening}");
        Self { world, running, socket: socket.to_owned(), via }
    }

    /// `netbox run --via` with these flags, by this service.
    pub fn netbox(&self, flags: &[&str]) -> Run<'w> {
        let flags = [&["--no-config", "--via", self.via.as_str()], flags].concat();
        self.world.netbox(&flags).within(household(self.world))
    }

    /// The path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The same as `--via` has it.
    pub fn via(&self) -> &str {
        &self.via
    }

    /// A connection to its socket, from the test itself.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).expect("the service listens")
    }

    /// How many sockets it has open.
    ///
    /// # Panics
    ///
    /// When it is gone.
    pub fn sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.running.pid());
        let links = fs::read_dir(folder).expect("a child's descriptors").flatten();
        links
            .filter(|link| fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")))
            .count()
    }

    /// Its process.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Waits for its end.
    pub fn finish(self) -> Outcome {
        self.running.finish()
    }

    /// Ends it in order.
    pub fn stop(self) -> Outcome {
        self.running.signal(Signal::SIGTERM);
        self.running.finish()
    }

    /// Kills it, and gives the path of its socket.
    pub fn kill(self) -> PathBuf {
        self.running.signal(Signal::SIGKILL);
        assert_eq!(self.running.finish().signal, Some(Signal::SIGKILL as i32));
        self.socket
    }
}
