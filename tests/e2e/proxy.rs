//! `netbox proxy serve` while it runs.

use nix::sys::signal::Signal;

use crate::outcome::Outcome;
use crate::run::{Run, Running};

/// A proxy that listens.
#[derive(Debug)]
pub struct Proxy {
    running: Running,
    /// Where: address and port.
    pub address: String,
}

impl Proxy {
    /// Starts it and waits until it says where it listens.
    pub(crate) fn start(run: Run<'_>) -> Self {
        let running = run.start::<&str>(&[]);
        let address = running.wait_for_stderr("netbox: listening on ");
        Self { running, address }
    }

    /// As programs want to be told of it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Has it read its files anew, and waits until it has.
    pub fn reload(&self) {
        self.running.signal(Signal::SIGHUP);
        self.running.wait_for_stderr("netbox: read anew");
    }

    /// Ends it.
    pub fn stop(self) -> Outcome {
        self.stop_by(Signal::SIGTERM)
    }

    /// Ends it by this signal.
    pub fn stop_by(self, signal: Signal) -> Outcome {
        self.running.signal(signal);
        self.running.finish()
    }
}
