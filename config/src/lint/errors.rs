//! The errors of a file, with ids as lints have them.

use super::{Lint, Severity};
use crate::file_error::{FileError, FileFault};

pub(super) fn lint(error: &FileError) -> Lint {
    Lint {
        source: error.source().clone(),
        severity: Severity::Error,
        id: id(error.fault()),
        text: error.fault().to_string(),
        hint: error.hint().map(ToOwned::to_owned),
    }
}

fn id(fault: &FileFault) -> &'static str {
    match fault {
        FileFault::Large(_) | FileFault::ManyRules(_) => "too-large",
        FileFault::NotUtf8(_) | FileFault::Toml { .. } => "not-toml",
        FileFault::DuplicateKey(_) => "duplicate-key",
        FileFault::UnknownKey { .. } => "unknown-key",
        FileFault::NotSupportedYet(_) => "not-supported-yet",
        FileFault::NotInProject(_) => "misplaced-key",
        FileFault::Type { .. } | FileFault::Item { .. } => "wrong-type",
        FileFault::Version(_) => "wrong-version",
        FileFault::Mode(_) => "invalid-mode",
        FileFault::Ech(_) => "invalid-ech",
        FileFault::Service(fault) => fault.id(),
        FileFault::Rule(_) => "invalid-rule",
        FileFault::Name { .. } => "invalid-name",
        FileFault::EmptyPreset(_) => "empty-preset",
        FileFault::BuiltinPreset(_) | FileFault::Redefined { .. } => "redefined",
        FileFault::UnknownPreset(_) => "unknown-preset",
        FileFault::UnknownProfile(_) => "unknown-profile",
        FileFault::Cycle(_) | FileFault::Deep(_) => "preset-cycle",
        FileFault::NotExpanded { .. } | FileFault::NotExact { .. } => "not-expanded",
        FileFault::WiderMode { .. } | FileFault::AllowInModeNone { .. } => "mode-conflict",
    }
}
