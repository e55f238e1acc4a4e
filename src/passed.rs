//! `--pass-fd`: descriptors that the command is to have under the same numbers.

use crate::cli::EventDestination;

/// The numbers, each once. To be called before this process has opened anything: what is not open then is not the caller's.
///
/// # Errors
/// One that is not open.
pub fn find(wanted: &[i32]) -> Result<Vec<i32>, String> {
    let mut numbers = wanted.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    match numbers.iter().find(|number| !netbox_launcher::is_open(**number)) {
        Some(number) => {
            Err(format!("`--pass-fd {number}`: no descriptor of this number is open; open it as in `{number}<FILE`"))
        }
        None => Ok(numbers),
    }
}

/// # Errors
/// The events go to one of them, and the command could write events of its own.
pub fn check(numbers: &[i32], events: Option<&EventDestination>) -> Result<(), String> {
    match events {
        Some(EventDestination::Descriptor(number)) if numbers.contains(number) => Err(format!(
            "`--pass-fd {number}`: the events go there by `--events fd:{number}`, and the command could write its own"
        )),
        _ => Ok(()),
    }
}
