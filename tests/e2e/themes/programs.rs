//! Programs that people run, in the ways that sandboxes break: with threads and processes of their own, sockets between
//! them, terminals, and sandboxes inside. Each does under netbox what it does bare.

pub mod builds;
pub mod desks;
pub mod runtimes;
pub mod wrapping;

use std::fs;
use std::path::PathBuf;

use crate::outcome::Outcome;
use crate::run::Run;
use crate::world::World;
use crate::zone::Host;

/// A folder of its own for a run, which is its home too: nothing is left over from another.
fn at_home<'w>(world: &World, run: Run<'w>) -> (Run<'w>, PathBuf) {
    let home = world.fresh_path("home");
    fs::create_dir(&home).expect("own folder");
    (run.folder(&home).env("HOME", &home), home)
}

/// Runs the script bare and under netbox, each in a home of its own that `prepare` has put something into, and asserts
/// that it ends well and says this. The value is what came of it under netbox.
fn works(world: &World, flags: &[&str], prepare: impl Fn(&PathBuf), words: &[&str], says: &[&str]) -> Outcome {
    let mut last = None;
    for run in [world.bare(), world.netbox(flags)] {
        let (run, home) = at_home(world, run);
        prepare(&home);
        let outcome = run.exec(words);
        outcome.exits_with(0);
        for text in says {
            outcome.says(text);
        }
        last = Some(outcome);
    }
    last.expect("two runs")
}

/// For programs that need nothing.
fn nothing(_: &PathBuf) {}

/// The line with which the tests' web server greets, but for the number of the request.
pub(super) fn greeting(host: &Host) -> String {
    format!("hello {} GET / body=0", host.name)
}
