//! The real world: package managers as they are installed here, against the registries that this machine is configured
//! with, through capture and with no proxy variable.
//!
//! These tests leave the machine, so they are asked for: `NETBOX_REGISTRIES=1`. No registry is named in them. Each
//! client (`clients`) runs bare first, then in audit mode, whose events say which hosts it takes (`learned`); then with
//! just those hosts allowed, which must do, and with each of them missing, which must fail and name it (`course`).
//!
//! | variable | effect |
//! | --- | --- |
//! | `NETBOX_REGISTRIES=1` | the tests run; else they are skipped, and that is said |
//! | `CI=true` | a client that is missing, or fails bare, is a failure; else its test is skipped, and that is said |

#![allow(clippy::expect_used, reason = "a machine that cannot be prepared is a failed test, and says why")]

mod clients;
mod course;
mod learned;
mod machine;
#[path = "../e2e/test_user.rs"]
mod test_user;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::clients::CLIENTS;
use crate::machine::Machine;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let asked_for = is_set("NETBOX_REGISTRIES", "1");
    if arguments.list || !asked_for {
        if !arguments.list {
            println!("skipped: these tests reach package registries, and run when NETBOX_REGISTRIES=1 asks for it");
        }
        let skip = || Err("NETBOX_REGISTRIES=1 has to ask for it".into());
        let trials = CLIENTS.iter().map(|client| Trial::test(client.fact, skip).with_ignored_flag(!asked_for));
        return libtest_mimic::run(&arguments, trials.collect()).exit_code();
    }
    // The process enters its own mount namespace here, and has one thread until then.
    let machine = Arc::new(Machine::prepare(Path::new(env!("CARGO_BIN_EXE_netbox"))));
    let required = is_set("CI", "true");
    let trials = CLIENTS.iter().map(|client| {
        let machine = Arc::clone(&machine);
        Trial::ignorable_test(client.fact, move || course::run(&machine, client, required))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn is_set(variable: &str, value: &str) -> bool {
    std::env::var_os(variable).is_some_and(|is| is == value)
}
