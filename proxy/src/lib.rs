//! The host side of netbox: it accepts what a sandbox connects to and decides what becomes of it.
//!
//! # Theory of operation
//!
//! The sandbox has no route. What a program inside connects to is redirected to listeners that were made inside
//! and are accepted on out here; nothing else of the host can be reached from it. Each connection travels one way:
//!
//! 1. `original_destination` says where the program wanted to go; a synthetic address becomes the name that it was
//!    handed out for. That is the `Target`, and there is no second one.
//!    A listener for a port of the host's loopback says itself what is meant (`host_port`).
//! 2. `pipeline` asks the policy. A positive answer is a `Permit`; with it, and only with it, a name can be
//!    resolved, an address be vetted and a socket be dialled.
//! 3. `first_bytes` looks at what the program sends: TLS and HTTP must agree with the target before a byte of
//!    theirs leaves. HTTP is judged request by request (`http::exchange`).
//! 4. `tunnel` moves the rest, half-close kept. `refuse` is the one place where a refusal becomes bytes.
//! 5. `record` writes one decision for each connection (each request on HTTP), whatever happens to it.

#![forbid(unsafe_code)]

mod agreement;
pub mod away;
pub mod budget;
pub mod callers;
mod capture;
mod client_hello;
mod clients;
mod delivery;
pub mod dial;
pub mod dns;
pub mod events;
mod explicit;
pub mod facts;
mod first_bytes;
mod flow;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gate;
mod half_open;
mod host_port;
mod http;
mod in_force;
mod judged;
mod judged_http;
mod meter;
pub mod metrics;
mod nesting;
mod opening;
mod original_destination;
mod pace;
mod pipeline;
mod published;
pub mod quota;
mod record;
mod refuse;
pub mod resolve;
mod serve;
pub mod service;
pub mod session;
mod settled;
pub mod share;
mod socket;
mod stream;
mod tally;
pub mod tls;
mod tunnel;
mod turns;

pub use in_force::InForce;
pub use judged::ANSWERED_PORTS;
pub use nesting::Outer;
pub use published::{MakeSocket, Published};
pub use refuse::sentence;
pub use serve::{Listeners, serve, serve_until, serve_while_open};
pub use session::{Limits, Session};
pub use tally::Tally;
pub use turns::Asked;
