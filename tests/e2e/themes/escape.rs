//! Ways round the launcher, as a hostile program tries them. `docs/threats.md` lists every one with its tests.
//!
//! Each attempt (`programs/escape`) says what it got and what it was refused. It runs first where the wall against it is
//! missing, bare or in a stand-in that has every other wall, and gets what it is after; then under netbox, where it gets
//! nothing. So no attempt is refused because it was made in a wrong way.

pub mod descriptors;
pub mod kernel;
pub mod mounts;
pub mod processes;
pub mod root;
pub mod sockets;

use crate::outcome::Outcome;
use crate::programs::{PYTHON, own};
use crate::world::World;

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// The words that run `attempt`, which is a file of `programs/escape`, a function in it, and its arguments.
fn attempt(world: &World, attempt: &[&str]) -> Vec<String> {
    own(world, PYTHON.name, &format!("escape/{}.py", attempt[0]), &attempt[1..])
}

/// The words that run `command` in a sandbox that lacks this wall.
fn without(world: &World, wall: &str, command: &[String]) -> Vec<String> {
    [attempt(world, &["stand_in", wall]), command.to_vec()].concat()
}

/// The words that run `command` under netbox, for a program that starts them.
fn under_netbox(world: &World, command: &[String]) -> Vec<String> {
    let netbox = world.netbox_path().to_str().expect("a path of plain characters");
    let words = [netbox, "run", "--quiet"].into_iter().chain(FLAGS).chain(["--"]).map(str::to_owned);
    words.chain(command.iter().cloned()).collect()
}

/// What an attempt says behind `got: ` or `failed: `.
fn said<'a>(outcome: &'a str, word: &'a str) -> Vec<&'a str> {
    outcome.lines().filter_map(|line| line.strip_prefix(word)).collect()
}

/// Asserts that the attempt got all that it is after.
#[track_caller]
fn gets_out(outcome: &Outcome) {
    let text = outcome.stdout();
    assert!(!said(&text, "got: ").is_empty() && said(&text, "failed: ").is_empty(), "{outcome}");
}

/// Asserts that the attempt was made and got nothing.
#[track_caller]
fn is_held(outcome: &Outcome) {
    let text = outcome.stdout();
    assert!(said(&text, "got: ").is_empty() && !said(&text, "failed: ").is_empty(), "{outcome}");
}
