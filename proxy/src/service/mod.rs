//! The shared host service: one process that carries many tenants, each of which is one [`Session`](crate::Session).
//!
//! # Theory of operation
//!
//! A program that has made a sandbox (`netbox run --via`) connects to the service's unix socket and *attaches*: it says
//! which policy it asks for, and hands over the listeners of the sandbox as descriptors. From then on that connection, the
//! *control connection*, is the sandbox's lease: while it lasts the service accepts what the sandbox connects to, and when
//! it ends everything of the sandbox ends.
//!
//! Everything that arrives on a control connection may be a lie, whoever sent it. So nothing that it says tells who sent
//! it: that is what the kernel says of the connection. What it asks for is bounded by what the service's owner grants to
//! that user, and the sandbox is known by its listeners, not by a name or a number that somebody could repeat.
//!
//! * [`wire`]: the messages, and [`frames`]: how they are read from bytes of any kind.
//! * [`channel`]: one end of a control connection.
//! * [`handed`]: the descriptors that were handed over, and whether they are what they are said to be.
//! * [`host`]: what an attached sandbox needs of the service, and what that knows of its client.
//! * [`attach`]: one attached sandbox, from its request to its end.
//! * [`registry`]: who is carried at the moment.
//!
//! Plain clients come over TCP, and prove a token, or come in by a listener that is for one role:
//!
//! * [`credentials`]: who a plain client is, by the token that it proves.

pub mod attach;
pub mod channel;
pub mod credentials;
pub mod frames;
pub mod handed;
pub mod host;
pub mod outlet;
pub mod registry;
pub mod status;
pub mod wire;
