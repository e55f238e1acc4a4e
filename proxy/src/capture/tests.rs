//! Captured connections over loopback: the original destination is injected, lookups and dials are scripted.

mod cases;
mod delivery;
mod http;
mod ports;
mod refusals;
mod servers_first;
mod tls;
pub(crate) mod world;
