//! A netbox inside a netbox: the inner one judges, then has the outer one dial, which judges again.
//!
//! # Theory of operation
//!
//! The inner netbox has no other way out than the programs beside it: its connects are captured, and the addresses that it
//! is given for names stand for those names in the outer sandbox alone. So it asks the outer's explicit listener, by
//! CONNECT, and what it may reach is what both policies allow.
//!
//! A policy judges addresses as well as names, and what was judged is what is dialled. So the two agree on addresses first:
//!
//! ```text
//! inner  CONNECT example.com:443 HTTP/1.1        outer
//!        Netbox-Nested: 1                  ──▶   judges, looks up, vets
//!                                          ◀──   HTTP/1.1 103 Early Hints
//!        vets                                    Netbox-Addresses: 203.0.113.7, 203.0.113.8
//!        203.0.113.8                       ──▶   dials
//!                                          ◀──   HTTP/1.1 200 Connection established
//!                                                Netbox-Address: 203.0.113.8
//! ```
//!
//! A refusal or a failure is what any CONNECT gets, with the reason's word in `Proxy-Status` (RFC 9209 §2.1.4, `details`),
//! so that the inner netbox tells it as the outer one does.
//!
//! Any program may ask like that. It learns which addresses a host has that it may connect to, and can choose among those
//! that may be dialled.

mod inside;
mod outside;

pub(crate) use inside::Answered;
pub use inside::Outer;
pub(crate) use outside::{agree, established};

use std::net::IpAddr;

/// The field by which an inner netbox says that it is one.
pub(crate) const NESTED: &str = "netbox-nested";
/// The addresses that the outer netbox would dial.
const ADDRESSES: &str = "netbox-addresses";
/// The one that it dialled.
const ADDRESS: &str = "netbox-address";

/// The most bytes of a list of addresses: as many as a lookup gives.
const MAX_LIST: usize = 8 * 1024;

fn list(addresses: impl IntoIterator<Item = IpAddr>) -> String {
    addresses.into_iter().map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

/// `None`: something in it is no address.
fn parse_list(text: &[u8]) -> Option<Vec<IpAddr>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(',').map(|address| address.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests;
