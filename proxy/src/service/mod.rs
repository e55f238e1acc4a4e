//! The shared host service: one process that carries many tenants, each of which is one [`Session`](crate::Session).
//!
//! * [`credentials`]: who a plain client is, by the token that it proves.

pub mod credentials;
