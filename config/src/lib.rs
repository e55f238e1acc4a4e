//! The policy of netbox: what is asked for, what is allowed, and why not.
//!
//! This crate is pure. It opens no socket and no file, reads no clock and no environment, and starts nothing. What a
//! sandbox may reach is decided here and nowhere else, so it can be read, tested and fuzzed alone.
//!
//! # How a judgement travels
//!
//! 1. **Bytes become a [`Target`]**, once: [`Target::parse_authority`] (or [`Target::new`] from a [`HostName`] and a
//!    [`Port`] that were parsed). The types cannot hold a bad value, so no later step parses again.
//! 2. **[`Policy::decide`]** gives a [`Decision`]: a [`Permit`], or a [`Refusal`] with its [`Reason`]. Nothing is looked
//!    up before that.
//! 3. With the permit the caller resolves the name, and hands **every address back to [`Policy::vet`]**. Only a
//!    [`VettedAddr`] is dialled.
//!
//! [`Permit`] and [`VettedAddr`] have private fields and one maker each, so code that dials without having asked does
//! not compile.
//!
//! # Where text comes from
//!
//! Rules are written by people: [`Rule::parse`] takes names in any script, folds them to A-labels, and its errors say
//! what to write. Targets are written by the program in the sandbox: their parsers take ASCII in one spelling and refuse
//! the rest.
#![forbid(unsafe_code)]

mod address;
mod asked;
mod ceiling;
mod check;
mod compiled;
pub mod derived;
mod duration;
mod ech;
mod embedded;
mod entry;
mod expand;
mod facts;
mod file_error;
mod host;
mod host_port;
mod index;
mod judge;
mod layer;
mod lint;
mod mode;
mod name;
mod narrows;
mod near_miss;
mod pattern;
mod place;
mod policy;
mod policy_file;
mod port;
mod ports;
pub mod presets;
mod quote;
mod reading;
mod reason;
mod refusal;
mod resolve;
mod rule;
mod rule_error;
mod schema;
pub mod service;
mod source;
mod split;
mod stack;
mod suffix;
mod suggest;
mod target;
mod vet;

pub use address::{AddressClass, classify};
pub use asked::{AskedError, AskedPolicy, Bound, Granted};
pub use ceiling::Ceiling;
pub use check::CheckTarget;
pub use compiled::{Compiled, EffectiveRule, Kind};
pub use duration::parse_duration;
pub use ech::{Ech, EchError};
pub use entry::{Entry, List, PresetUse};
pub use expand::Expansions;
pub use facts::HostFacts;
pub use file_error::{FileError, FileErrors, FileFault};
pub use host::{Host, HostError};
pub use host_port::HostPort;
pub use ipnet::IpNet;
pub use judge::{Decision, Permit};
pub use layer::Layer;
pub use lint::{LINT_KINDS, Lint, LintKind, Severity};
pub use mode::{Mode, ModeError};
pub use name::{HostName, NameError};
pub use near_miss::NearMiss;
pub use policy::{Policy, PolicyError};
pub use policy_file::PolicyFile;
pub use port::{Port, PortError};
pub use ports::Ports;
pub use quote::{escaped, quote};
pub use reason::{Reason, UnknownReason};
pub use refusal::Refusal;
pub use rule::{Rule, RuleRef, RuleWarning};
pub use rule_error::{RuleError, RuleFault};
pub use service::{ServiceSettings, TenantLimits};
pub use source::Source;
pub use split::split_rules;
pub use stack::{CommandLine, DerivedUse, Stack};
pub use target::{Target, TargetError, Via};
pub use vet::VettedAddr;
