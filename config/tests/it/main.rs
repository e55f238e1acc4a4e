//! The tests of the policy, in one binary: tables of facts, the shared cases, and properties against a slow oracle.

// clippy.toml allows these in tests, which to clippy are the functions marked `#[test]` and not those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod asked;
mod cases;
mod decisions;
mod derived;
mod expansion;
mod files;
mod idna;
mod layered;
mod layers;
mod lints;
mod narrowing;
mod near_misses;
mod oracle;
mod presets;
mod properties;
mod rules;
mod scale;
mod service;
mod vetting;

use netbox_config::{HostFacts, Mode, Policy, Rule, Source, Target, Via};

const FLAG: Source = Source::Flag("--allow");

/// A policy of rules that are right.
fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Policy {
    let allow = allow.iter().map(|text| Rule::parse(text, FLAG).unwrap()).collect();
    let deny = deny.iter().map(|text| Rule::parse_deny(text, Source::Flag("--deny")).unwrap()).collect();
    Policy::new(mode, allow, deny).unwrap()
}

fn target(text: &str) -> Target {
    Target::parse_authority(text.as_bytes(), Via::Capture).unwrap()
}

/// A host with these interface addresses and on-link prefixes, and a listener of netbox's own at 127.0.0.1:4100.
fn host(own: &[&str], on_link: &[&str]) -> HostFacts {
    HostFacts {
        own: own.iter().map(|text| text.parse().unwrap()).collect(),
        on_link: on_link.iter().map(|text| text.parse().unwrap()).collect(),
        listeners: vec!["127.0.0.1:4100".parse().unwrap()],
    }
}
