//! `@lockfile`: the hosts that lock files say packages are at.
//!
//! | file | read |
//! | --- | --- |
//! | `package-lock.json`, `npm-shrinkwrap.json` | `resolved`; `version` where it is a URL |
//! | `yarn.lock` | `resolved`; `resolution` where it is a URL, or has an `__archiveUrl` |
//! | `pnpm-lock.yaml` | `tarball`, `repo` |
//! | `poetry.lock`, `uv.lock`, `pdm.lock`, `pylock.toml` | `url`, `registry`, `git`, `index` |
//! | `Pipfile.lock` | `url` of its sources; `file`, `git` |
//! | `Cargo.lock` | `source` of packages from git and sparse registries |
//! | `composer.lock` | `url` of `dist` and `source` |
//! | `Gemfile.lock` | `remote` |
//!
//! A lock file that names no host (`go.sum`; a `poetry.lock` of the default index) adds nothing. In a `Cargo.lock`,
//! `registry+…` is the name of a registry rather than a place that cargo goes to: that is `@cargo`'s.

mod lines;
mod tables;

use crate::derived::json::{self, Text};
use crate::derived::page::Page;
use crate::derived::{Misread, Reading};

/// Reads one lock file.
type Parser = fn(&Page) -> Result<Reading, Misread>;

/// The lock files by name.
const FILES: [(&str, Parser); 12] = [
    ("package-lock.json", package_lock),
    ("npm-shrinkwrap.json", package_lock),
    ("yarn.lock", lines::yarn),
    ("pnpm-lock.yaml", lines::pnpm),
    ("poetry.lock", tables::python),
    ("uv.lock", tables::python),
    ("pdm.lock", tables::python),
    ("pylock.toml", tables::python),
    ("Pipfile.lock", pipfile_lock),
    ("Cargo.lock", tables::cargo),
    ("composer.lock", composer_lock),
    ("Gemfile.lock", lines::gemfile),
];

/// The names of the files that [`parse`] reads.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Reads the lock file of that name; nothing for a name that is not among [`names`].
///
/// # Errors
///
/// It has not the format that its name says, or a URL in it cannot be read.
pub fn parse(name: &str, page: &Page) -> Result<Reading, Misread> {
    match FILES.iter().find(|(known, _)| *known == name) {
        Some((_, parser)) => parser(page),
        None => Ok(Reading::default()),
    }
}

fn package_lock(page: &Page) -> Result<Reading, Misread> {
    strings(page, |text| matches!(text.key(), "resolved" | "version"))
}

fn pipfile_lock(page: &Page) -> Result<Reading, Misread> {
    strings(page, |text| match text.key() {
        // `_meta`, `sources`, the place in the list, `url`.
        "url" => text.above(2) == "sources",
        key => matches!(key, "file" | "git"),
    })
}

fn composer_lock(page: &Page) -> Result<Reading, Misread> {
    strings(page, |text| text.key() == "url" && matches!(text.above(1), "dist" | "source"))
}

/// The URLs among the strings that count. What has no scheme is a version, or a path.
fn strings(page: &Page, counts: impl Fn(&Text) -> bool) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    json::each_string(page, |text| {
        if text.value.contains("://") && counts(&text) {
            return reading.take_url(&text.value, || page.source(text.offset));
        }
        Ok(())
    })?;
    Ok(reading)
}
