//! `@npm`: the registries that npm takes packages from.
//!
//! Read: `registry` and `@scope:registry` of the `.npmrc` of the project, the user and the machine, and the variable
//! `npm_config_registry`. npm's own order: the variable, the project, the user, the machine, what npm was built with.
//! (npm's documentation: `npmrc`, `config`, `scope`.) Credentials stand in the same files, under other keys.

use std::collections::BTreeMap;

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, Setting};

/// What one `.npmrc` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NpmFile {
    registry: Option<Setting>,
    scoped: BTreeMap<String, Setting>,
}

/// Reads one `.npmrc`.
///
/// # Errors
///
/// The value of one of the keys that count is written in a way that netbox does not read.
pub fn parse(page: &Page) -> Result<NpmFile, Misread> {
    let mut file = NpmFile::default();
    for (offset, line) in page.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            // npm puts what follows below another key, where it means nothing.
            break;
        }
        if line.starts_with([';', '#']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = unquote(key.trim()).unwrap_or_default();
        let is_scoped = key.starts_with('@') && key.ends_with(":registry");
        if key != "registry" && !is_scoped {
            continue;
        }
        let value = unquote(value.trim()).ok_or_else(|| page.misread(offset, Fault::NotUrl))?;
        let setting = Setting { value: value.to_owned(), source: page.source(offset) };
        if is_scoped {
            file.scoped.insert(key.to_owned(), setting);
        } else {
            // The last one counts.
            file.registry = Some(setting);
        }
    }
    Ok(file)
}

/// The registries of all files, from the one that counts most (the project's) to the one that counts least.
///
/// # Errors
///
/// One that counts is not a URL.
pub fn resolve(variable: Option<Setting>, files: &[NpmFile]) -> Result<Reading, Misread> {
    let mut reading = Reading::default();
    let registry = variable.as_ref().or_else(|| files.iter().find_map(|file| file.registry.as_ref()));
    match registry {
        Some(registry) => reading.take_setting(registry)?,
        None => reading.takes_default = true,
    }
    let mut scoped = BTreeMap::new();
    for (scope, setting) in files.iter().flat_map(|file| &file.scoped) {
        scoped.entry(scope).or_insert(setting);
    }
    scoped.values().try_for_each(|setting| reading.take_setting(setting))?;
    Ok(reading)
}

/// A key or value without its quotes and without the comment behind it. `None`: with escapes, which no URL has.
fn unquote(text: &str) -> Option<&str> {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return (!inside.contains(['\\', quote])).then_some(inside);
        }
    }
    let text = text.split([';', '#']).next().unwrap_or_default().trim_end();
    (!text.contains('\\')).then_some(text)
}
