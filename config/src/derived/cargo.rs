//! `@cargo`: the registries that cargo takes crates from.
//!
//! Read: `registries.NAME.index`, `registry.index`, and `source.NAME` with `registry`, `replace-with` and what is local
//! (`directory`, `local-registry`), of every `.cargo/config.toml` from the working directory upward and of `CARGO_HOME`;
//! the nearer file counts, key by key. crates.io is what `source.crates-io` is replaced with; where nothing replaces it,
//! cargo itself knows where it is. (The Cargo Book: Configuration, Source Replacement, Registries.)

use std::collections::{BTreeMap, BTreeSet};

use toml::de::{DeTable, DeValue};

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, Setting};

/// What one `config.toml` says, or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CargoFile {
    /// `registries.NAME.index`, and `registry.index`, which has no name.
    indexes: BTreeMap<String, Setting>,
    sources: BTreeMap<String, CargoSource>,
}

/// One `source.NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CargoSource {
    /// `registry` or `git`.
    url: Option<Setting>,
    replace_with: Option<Setting>,
    /// `directory` or `local-registry`: nothing is fetched.
    is_local: bool,
}

/// The source that cargo has without any configuration.
const DEFAULT: &str = "crates-io";

/// Reads one file.
///
/// # Errors
///
/// It is no TOML, or a key that counts is not a string.
pub fn parse(page: &Page) -> Result<CargoFile, Misread> {
    let mut file = CargoFile::default();
    let document = super::toml(page)?;
    let root = document.get_ref();
    let setting = |table: &DeTable, key: &str| -> Result<Option<Setting>, Misread> {
        let Some(value) = table.get(key) else { return Ok(None) };
        let offset = value.span().start;
        match value.get_ref().as_str() {
            Some(text) => Ok(Some(Setting { value: text.to_owned(), source: page.source(offset) })),
            None => Err(page.misread(offset, Fault::Syntax("a string is wanted here".into()))),
        }
    };
    if let Some(registry) = table(root, "registry")
        && let Some(index) = setting(registry, "index")?
    {
        file.indexes.insert(String::new(), index);
    }
    for (name, registry) in tables(root, "registries") {
        if let Some(index) = setting(registry, "index")? {
            file.indexes.insert(name.to_owned(), index);
        }
    }
    for (name, source) in tables(root, "source") {
        let url = setting(source, "registry")?.or(setting(source, "git")?);
        let is_local = source.contains_key("directory") || source.contains_key("local-registry");
        let source = CargoSource { url, replace_with: setting(source, "replace-with")?, is_local };
        file.sources.insert(name.to_owned(), source);
    }
    Ok(file)
}

fn table<'t, 'i>(root: &'t DeTable<'i>, key: &str) -> Option<&'t DeTable<'i>> {
    root.get(key).and_then(|value| value.get_ref().as_table())
}

fn tables<'t, 'i>(root: &'t DeTable<'i>, key: &str) -> impl Iterator<Item = (&'t str, &'t DeTable<'i>)> {
    let entries = table(root, key).into_iter().flatten();
    entries.filter_map(|(name, value)| match value.get_ref() {
        DeValue::Table(table) => Some((name.get_ref().as_ref(), table)),
        _ => None,
    })
}

/// The registries of all files, from the nearest to `CARGO_HOME`'s. `variables`: `CARGO_REGISTRIES_NAME_INDEX`, by name.
///
/// # Errors
///
/// One that counts is not a URL, or a replacement leads to nothing.
pub fn resolve(variables: &BTreeMap<String, Setting>, files: &[CargoFile]) -> Result<Reading, Misread> {
    let mut all = CargoFile { indexes: variables.clone(), ..CargoFile::default() };
    for file in files {
        for (name, index) in &file.indexes {
            all.indexes.entry(name.clone()).or_insert_with(|| index.clone());
        }
        for (name, source) in &file.sources {
            let merged = all.sources.entry(name.clone()).or_default();
            merged.url = merged.url.take().or_else(|| source.url.clone());
            merged.replace_with = merged.replace_with.take().or_else(|| source.replace_with.clone());
            merged.is_local |= source.is_local;
        }
    }
    let mut reading = Reading::default();
    reading.takes_default = !all.replaces_default(&mut reading)?;
    // A registry that a source stands for is fetched from where the source is replaced with.
    let is_replaced = |source: &&CargoSource| source.replace_with.is_some();
    let replaced = all.sources.values().filter(is_replaced).filter_map(|source| source.url.as_ref());
    let replaced: BTreeSet<&str> = replaced.map(|url| url.value.as_str()).collect();
    for index in all.indexes.values().filter(|index| !replaced.contains(index.value.as_str())) {
        reading.take_setting(index)?;
    }
    for source in all.sources.values().filter(|source| source.replace_with.is_none()) {
        if let Some(url) = &source.url {
            reading.take_setting(url)?;
        }
    }
    Ok(reading)
}

impl CargoFile {
    /// Whether crates.io is replaced, and what it is replaced with is there.
    fn replaces_default(&self, reading: &mut Reading) -> Result<bool, Misread> {
        let mut name = DEFAULT;
        // As many steps as there are sources, so that a circle ends.
        for _ in 0..=self.sources.len() {
            let source = self.sources.get(name);
            let Some(next) = source.and_then(|source| source.replace_with.as_ref()) else {
                return match source {
                    Some(source) if source.url.is_some() || source.is_local => Ok(true),
                    // crates.io itself, or one of the registries, which are taken below.
                    _ => Ok(name != DEFAULT),
                };
            };
            let known = self.sources.contains_key(&next.value) || self.indexes.contains_key(&next.value);
            if !known && next.value != DEFAULT {
                return Err(Misread { place: next.source.clone(), fault: Fault::Dangling(next.value.clone()) });
            }
            if let Some(index) = self.indexes.get(&next.value) {
                reading.take_setting(index)?;
            }
            name = &next.value;
        }
        let place = self.sources.get(name).and_then(|source| source.replace_with.as_ref());
        Err(match place {
            Some(setting) => Misread { place: setting.source.clone(), fault: Fault::Dangling(setting.value.clone()) },
            None => return Ok(false),
        })
    }
}
