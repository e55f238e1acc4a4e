//! The policy of a run, the files that it is made from, and what should be said about it.

use std::path::PathBuf;

use netbox_config::{Compiled, Layer, Mode, Policy, Rule};
use serde_json::{Value, json};

use super::Refused;
use super::layers::Layers;
use crate::say::Voice;

/// So many rules without effect are told one by one.
const TOLD: usize = 5;

/// A policy, and what it is made from.
#[derive(Debug)]
pub struct Effective {
    pub compiled: Compiled,
    /// From outside in.
    pub files: Vec<UsedFile>,
    /// What derived presets leave out, and why, in words.
    pub notes: Vec<String>,
    /// Why a run here would not begin, where that was only looked at: the project says what is not trusted, and the policy is
    /// the one without it.
    pub untrusted: Option<Refused>,
    /// Which file is there and does not count, in words.
    pub passed_over: Option<String>,
    /// What it was made from: a service has tenants besides.
    pub layers: Layers,
}

/// A policy file that counts.
#[derive(Clone, Debug)]
pub struct UsedFile {
    pub layer: Layer,
    /// As it was named or looked for, absolute; there may be links on the way.
    pub written: PathBuf,
    /// Where it lies: absolute, without links.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub digest: String,
    pub standing: Standing,
}

/// Why a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the system's.
    System,
    /// It is the user's own.
    User,
    /// `--config` names it.
    Named,
    /// The project's, and a person accepted it.
    Trusted,
    /// The project's, and `--trust-project` gives its digest.
    Pinned,
    /// The project's, and it is proved to allow nothing more.
    Narrows,
    /// The project's, and it does not count.
    Untrusted,
}

impl Standing {
    /// One word for people and machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Named => "named",
            Self::Trusted => "trusted",
            Self::Pinned => "pinned",
            Self::Narrows => "narrows",
            Self::Untrusted => "untrusted",
        }
    }
}

impl UsedFile {
    /// Whether its bytes are judged on every run, so that others in its place change nothing.
    pub fn is_known_by_content(&self) -> bool {
        matches!(self.standing, Standing::Trusted | Standing::Pinned | Standing::Narrows)
    }
}

impl UsedFile {
    /// As it stands in output for machines.
    pub fn json(&self) -> Value {
        json!({
            "layer": self.layer.as_str(),
            "path": self.path.to_string_lossy(),
            "sha256": self.digest,
            "standing": self.standing.as_str(),
        })
    }
}

impl Effective {
    /// The policy.
    pub fn policy(&self) -> &Policy {
        self.compiled.policy()
    }

    /// Says what should be said about it before anything runs.
    pub fn warn(&self, voice: Voice) {
        self.passed_over.iter().for_each(|text| voice.warn(text));
        for warning in self.compiled.warnings() {
            voice.warn(warning);
        }
        if self.policy().allow().is_empty() && self.compiled.mode_source().is_none() {
            voice.warn("nothing is allowed, so nothing is reachable; allow hosts with `--allow HOST`");
        }
        let dead = self.compiled.without_effect();
        dead.iter().take(TOLD).for_each(|lint| voice.warn(format_args!("{}: {}", lint.source(), lint.text())));
        if let more @ 1.. = dead.len().saturating_sub(TOLD) {
            voice.warn(format_args!("{more} further allow rules have no effect; `netbox policy lint` lists them"));
        }
        let is_bounded = !self.policy().ceilings().is_empty();
        match (self.policy().mode(), is_bounded) {
            (Mode::Open, false) => voice.warn("mode `open`: every host is reachable, private addresses too"),
            (Mode::Open, true) => voice.warn("mode `open`: every host inside the ceilings is reachable"),
            (Mode::Audit, false) => voice.warn("mode `audit`: what no rule allows passes as well, and is told at the end"),
            (Mode::Audit, true) => voice.warn(
                "mode `audit`: what no rule allows passes as well where it is inside the ceilings, and is told at the end",
            ),
            (Mode::Allowlist | Mode::None, _) => {}
        }
        self.notes.iter().for_each(|note| voice.detail(note));
        for file in &self.files {
            let path = super::shown(&file.path);
            voice.detail(format_args!("policy file {path} ({}, {})", file.layer.as_str(), file.standing.as_str()));
        }
    }

    /// Says which rules cannot do inside a sandbox what their writer may expect.
    pub fn warn_inside(&self, voice: Voice) {
        let loopback = |rule: &&Rule| {
            let host = rule.text().trim_start_matches("tcp://").trim_start_matches('[');
            host == "localhost" || host.starts_with("localhost:") || host.starts_with("127.") || host.starts_with("::1")
        };
        for rule in self.policy().allow().iter().filter(loopback) {
            voice.warn(format_args!(
                "{}: rule `{}`: inside, loopback is the sandbox's own and needs no rule; a connect to it does not reach this machine's, which `--host-port PORT` does",
                rule.source(),
                rule.text()
            ));
        }
    }
}
