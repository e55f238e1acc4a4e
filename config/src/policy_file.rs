//! One policy file: what it holds, once it is known to be right.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::ech::Ech;
use crate::entry::Entry;
use crate::file_error::FileErrors;
use crate::layer::Layer;
use crate::mode::Mode;
use crate::reading::{self, FileKind};
use crate::service::ServiceSettings;
use crate::source::Source;

/// A policy file, parsed. Every rule in it is right and knows its line and column; presets are not looked up yet.
///
/// | key | value | in |
/// | --- | --- | --- |
/// | `version` | `1`; may be left out | the file |
/// | `allow` | list of rules; without it nothing is allowed | file, profile, preset |
/// | `deny` | list of rules | file, profile |
/// | `mode` | `"allowlist"`, `"none"`, `"audit"` or `"open"` | file, profile |
/// | `ceiling` | list of rules | file, profile; not of a project |
/// | `ech` | `"allow"` or `"refuse"` | the file; one file that refuses is enough |
/// | `[profile.NAME]` | table of `allow`, `deny`, `mode`, `ceiling` | the file |
/// | `[preset.NAME]` | table of `allow` | the file |
/// | `[service]` | a [`ServiceSettings`] | the file; not of a project |
#[derive(Clone, Debug)]
pub struct PolicyFile {
    pub(crate) layer: Layer,
    pub(crate) path: Arc<Path>,
    pub(crate) base: Section,
    pub(crate) ech: Ech,
    pub(crate) profiles: BTreeMap<Arc<str>, Profile>,
    pub(crate) presets: BTreeMap<Arc<str>, Preset>,
    pub(crate) service: Option<ServiceSettings>,
}

/// What a file says at its top level or in one profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) allow: Vec<Entry>,
    pub(crate) deny: Vec<Entry>,
    pub(crate) mode: Option<(Mode, Source)>,
    /// With the place of its key: an empty ceiling is one under which nothing is left.
    pub(crate) ceiling: Option<(Source, Vec<Entry>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Where its name stands.
    pub(crate) at: Source,
    pub(crate) section: Section,
}

#[derive(Clone, Debug)]
pub(crate) struct Preset {
    /// Where its name stands.
    pub(crate) at: Source,
    pub(crate) entries: Vec<Entry>,
}

impl PolicyFile {
    /// The most bytes that a policy file may have.
    pub const LARGEST: usize = 1 << 20;
    /// The most rules that it may have, all lists together.
    pub const MOST_RULES: usize = 10_000;

    /// Parses a file of this layer. The path is for messages alone, and stands in them as it is given.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, each with line and column. Where it is not TOML, what the TOML parser says and
    /// nothing else, since the rest would be guesses. Never panics, whatever the bytes.
    pub fn parse(layer: Layer, path: &Path, bytes: &[u8]) -> Result<Self, FileErrors> {
        reading::read(FileKind::Of(layer), path.into(), bytes)
    }

    /// The same for a file that `netbox proxy serve` was given by name: it stands in the project's layer, and may hold
    /// `[service]` and ceilings all the same.
    ///
    /// # Errors
    ///
    /// As [`PolicyFile::parse`].
    pub fn parse_for_service(path: &Path, bytes: &[u8]) -> Result<Self, FileErrors> {
        reading::read(FileKind::Service, path.into(), bytes)
    }

    /// Where it stands.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// Its path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says about the service.
    pub fn service(&self) -> Option<&ServiceSettings> {
        self.service.as_ref()
    }

    /// The names of its profiles, sorted.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(|name| &**name)
    }

    /// The names of its presets without their `@`, sorted.
    pub fn presets(&self) -> impl Iterator<Item = &str> {
        self.presets.keys().map(|name| &**name)
    }
}
