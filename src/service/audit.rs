//! Where the events of all tenants go: a file that may be rotated, or a unix datagram socket.
//!
//! Each line bears the number of its sandbox or role, which the `start` event of that one says more about. Who rotates the file
//! moves it away and sends SIGUSR1; what comes from then on goes to a new one. A collector that is gone is looked for again.

use netbox_proxy::events::Destination;

use super::plan::Plan;
use crate::cli::ServeArguments;
use crate::event_sink::{self, EventSink};

/// What is said on the command line or in the environment, or else in the file, opened. `None`: nothing is.
///
/// # Errors
/// What is wrong, and whether what was typed is.
pub fn sink(arguments: &ServeArguments, plan: &Plan) -> Result<Option<Destination>, (String, bool)> {
    let typed = event_sink::destination(arguments.events.as_ref()).map_err(|why| (why, true))?;
    let destination = typed.or_else(|| plan.events.clone().map(Into::into));
    let sink = destination.as_ref().map(EventSink::open).transpose().map_err(|why| (why, false))?;
    Ok(sink.map(|sink| sink.destination))
}
