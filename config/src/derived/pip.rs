//! `@pip`: the indexes that pip takes packages from, as its configuration files and variables name them.
//!
//! Read: `index-url`, `extra-index-url`, `find-links` and `no-index` of the sections `[global]` and of each command, and
//! `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`, `PIP_FIND_LINKS`, `PIP_NO_INDEX`. pip's own order: the variable, the section of
//! a command, `[global]`; and of files the one that is read later. (pip's documentation: Configuration.) Which command
//! will run is not known here, so the sections of all of them count. What a project asks for is in [`requirements`].
//!
//! [`requirements`]: crate::derived::requirements

use std::collections::BTreeMap;

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, Setting};

/// The keys that count, as they are written in a file.
const KEYS: [&str; 4] = ["index-url", "extra-index-url", "find-links", "no-index"];

/// What one file says: by section and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipFile(BTreeMap<(String, &'static str), Setting>);

/// What the environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PipVariables {
    /// `PIP_INDEX_URL`.
    pub index_url: Option<Setting>,
    /// `PIP_EXTRA_INDEX_URL`: URLs with white space between them.
    pub extra_index_url: Option<Setting>,
    /// `PIP_FIND_LINKS`: URLs and paths, likewise.
    pub find_links: Option<Setting>,
    /// `PIP_NO_INDEX`.
    pub no_index: Option<Setting>,
}

/// Reads one `pip.conf`, in the way of Python's `configparser`.
///
/// # Errors
///
/// A line is none that such a file has.
pub fn parse(page: &Page) -> Result<PipFile, Misread> {
    let mut file = PipFile::default();
    let mut section = String::new();
    // The key whose value goes on in lines that are indented more than its own.
    let mut open: Option<(Option<&'static str>, usize)> = None;
    for (offset, line) in page.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some((key, _)) = open.filter(|(_, of_key)| indent > *of_key) {
            let setting = key.and_then(|key| file.0.get_mut(&(section.clone(), key)));
            if let Some(setting) = setting {
                setting.value.push('\n');
                setting.value.push_str(content);
            }
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            let name = rest.split_once(']').ok_or_else(|| syntax(page, offset, "a section without its `]`"))?.0;
            section = name.to_owned();
            open = None;
            continue;
        }
        let Some((key, value)) = content.split_once(['=', ':']) else {
            return Err(syntax(page, offset, "neither a section nor a key with a value"));
        };
        let key = key.trim().to_ascii_lowercase().replace('_', "-");
        let key = KEYS.into_iter().find(|known| *known == key);
        open = Some((key, indent));
        if let Some(key) = key {
            let setting = Setting { value: value.trim().to_owned(), source: page.source(offset) };
            file.0.insert((section.clone(), key), setting);
        }
    }
    Ok(file)
}

fn syntax(page: &Page, offset: usize, what: &str) -> Misread {
    page.misread(offset, Fault::Syntax(what.to_owned()))
}

/// The indexes of all files, in the order in which pip reads them: the last one counts.
///
/// # Errors
///
/// One that counts is not a URL.
pub fn resolve(variables: &PipVariables, files: &[PipFile]) -> Result<Reading, Misread> {
    let mut effective: BTreeMap<(&str, &str), &Setting> = BTreeMap::new();
    for ((section, key), setting) in files.iter().flat_map(|file| &file.0) {
        effective.insert((section, key), setting);
    }
    let sections: Vec<&str> = effective.keys().map(|(section, _)| *section).collect();
    let of = |key: &'static str, variable: &'_ Option<Setting>| -> Vec<Setting> {
        match variable {
            Some(setting) => vec![setting.clone()],
            None => effective.iter().filter(|((_, is), _)| *is == key).map(|(_, setting)| (*setting).clone()).collect(),
        }
    };
    let mut reading = Reading::default();
    // Where one command may not use an index, others do: only what holds for all of them counts.
    let no_index = match &variables.no_index {
        Some(setting) => is_true(&setting.value),
        None => {
            let says = |section| effective.get(&(section, "no-index")).map(|setting| is_true(&setting.value));
            says("global") == Some(true) && sections.iter().all(|section| says(section) != Some(false))
        }
    };
    if !no_index {
        let indexes = of("index-url", &variables.index_url);
        let global = variables.index_url.is_some() || effective.contains_key(&("global", "index-url"));
        // Commands of which no section tells.
        reading.takes_default = !global;
        indexes.iter().try_for_each(|setting| reading.take_setting(setting))?;
        for setting in of("extra-index-url", &variables.extra_index_url) {
            take_each(&mut reading, &setting)?;
        }
    }
    for setting in of("find-links", &variables.find_links) {
        take_each(&mut reading, &setting)?;
    }
    Ok(reading)
}

/// Takes each of several URLs; what has no scheme is a path.
fn take_each(reading: &mut Reading, setting: &Setting) -> Result<(), Misread> {
    let urls = setting.value.split_whitespace().filter(|url| url.contains("://"));
    urls.map(|url| Setting { value: url.to_owned(), source: setting.source.clone() })
        .try_for_each(|setting| reading.take_setting(&setting))
}

/// A truth value as pip reads it (`strtobool`).
fn is_true(text: &str) -> bool {
    ["1", "true", "yes", "y", "t", "on"].contains(&text.trim().to_ascii_lowercase().as_str())
}
