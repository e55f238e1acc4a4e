//! Captured connections over loopback: the original destination is injected, lookups and dials are scripted.

mod cases;
mod delivery;
mod http;
mod ports;
mod refusals;
mod servers_first;
pub(crate) mod target_cases;
mod targets;
mod tls;
pub(crate) mod world;
