//! `netbox policy lint`: what is wrong with policy files, and what is right and may not be what is meant.
//!
//! Nothing is trusted and nothing is run for it: files are read and parsed, as they would be for a run. What derived
//! presets stand for on this machine is not a file's matter and is not looked up.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use netbox_config::{CommandLine, Expansions, Layer, Lint, PolicyFile, Severity, Source, Stack, presets, quote};
use serde_json::{Value, json};

use super::excerpt::excerpt;
use super::find::{self, Place};
use super::owner::Demand;
use super::read::{self, Text};
use super::{Refused, places, shown, way};
use crate::cli::LintArguments;
use crate::{FAILED, USAGE, say};

/// With `--strict`, there is a warning.
const WARNED: u8 = 1;

/// Tells it. The value is the exit code.
pub fn lint(arguments: &LintArguments) -> u8 {
    match read_files(arguments.file.as_deref()) {
        Ok(files) => report(arguments, &files),
        Err(refused) => {
            say::error(&refused, refused.hint.as_deref());
            USAGE
        }
    }
}

/// A file as it was read.
struct Read {
    layer: Layer,
    /// As it stands in messages.
    path: PathBuf,
    bytes: Vec<u8>,
    /// Whether it is one that the person asked about.
    asked: bool,
    /// Whether it may be one that a service is given by name: a file that was named and is no project's.
    is_services: bool,
}

fn report(arguments: &LintArguments, files: &[Read]) -> u8 {
    let lints = lints(files);
    let mut out = stdout().lock();
    let told = lints.iter().try_for_each(|lint| {
        if arguments.json { writeln!(out, "{}", as_json(lint)) } else { out.write_all(as_text(lint, files).as_bytes()) }
    });
    if let Err(error) = told.and_then(|()| out.flush()) {
        say::error(format_args!("cannot write to stdout: {error}"), None);
        return FAILED;
    }
    let count = |severity| lints.iter().filter(|lint| lint.severity() == severity).count();
    let counts = [Severity::Error, Severity::Warning, Severity::Note].map(|severity| (severity, count(severity)));
    say::note(format_args!("{} in {}", sum(&counts), names(files)));
    match counts {
        [(_, 1..), ..] => USAGE,
        [_, (_, 1..), _] if arguments.strict => WARNED,
        _ => 0,
    }
}

fn sum(counts: &[(Severity, usize)]) -> String {
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> =
        some.map(|(severity, count)| format!("{count} {severity}{}", if *count == 1 { "" } else { "s" })).collect();
    if words.is_empty() { "nothing to say".to_owned() } else { words.join(", ") }
}

fn names(files: &[Read]) -> String {
    let names: Vec<_> = files.iter().filter(|file| file.asked).map(|file| shown(&file.path)).collect();
    names.join(", ")
}

/// The lints of the files that were asked about; errors of the others too, since a run would end with them.
fn lints(files: &[Read]) -> Vec<Lint> {
    let mut lints = Vec::new();
    let mut parsed = Vec::new();
    for file in files {
        let parsed_file = match file.is_services {
            true => PolicyFile::parse_for_service(&file.path, &file.bytes),
            false => PolicyFile::parse(file.layer, &file.path, &file.bytes),
        };
        match parsed_file {
            Ok(policy) => {
                if file.asked {
                    lints.extend(policy.lints());
                }
                parsed.push(policy);
            }
            Err(errors) => lints.extend(errors.lints()),
        }
    }
    // Without one of the files the others cannot be judged together.
    if parsed.len() == files.len() {
        lints.extend(together(&parsed).into_iter().filter(|lint| {
            lint.severity() == Severity::Error || files.iter().any(|file| file.asked && is_of(lint, &file.path))
        }));
    }
    Lint::sort(&mut lints);
    lints
}

/// What the files are to each other.
fn together(files: &[PolicyFile]) -> Vec<Lint> {
    let command_line = CommandLine::default();
    let mut nothing_derived = Expansions::default();
    presets::DERIVED.iter().for_each(|name| nothing_derived.insert(name, Vec::new()));
    let stack = files.iter().fold(Stack::new(&command_line), Stack::with_file);
    match stack.compile(&nothing_derived) {
        Ok(compiled) => compiled.lints(),
        Err(errors) => errors.lints(),
    }
}

fn is_of(lint: &Lint, file: &Path) -> bool {
    matches!(lint.source().written(), Source::File { path, .. } if **path == *file)
}

fn as_text(lint: &Lint, files: &[Read]) -> String {
    let mut text = format!("{}: {}[{}]: {}\n", lint.source(), lint.severity(), lint.id(), lint.text());
    if let Source::File { path, line, column } = lint.source().written()
        && let Some(file) = files.iter().find(|file| file.path == **path)
        && let Ok(content) = std::str::from_utf8(&file.bytes)
    {
        text.extend(excerpt(content, *line, *column));
    }
    if let Some(hint) = lint.hint() {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

fn as_json(lint: &Lint) -> Value {
    let (file, line, column) = match lint.source().written() {
        Source::File { path, line, column } => (Some(path.to_string_lossy().into_owned()), Some(line), Some(column)),
        _ => (None, None, None),
    };
    json!({
        "file": file,
        "line": line,
        "column": column,
        "severity": lint.severity().as_str(),
        "id": lint.id(),
        "text": lint.text(),
        "hint": lint.hint(),
    })
}

/// The file that was named, or those that are found, with those that bind them, from outside in.
fn read_files(named: Option<&Path>) -> Result<Vec<Read>, Refused> {
    let system = Path::new(places::SYSTEM);
    let user = places::configuration().map(|folder| folder.join("config.toml"));
    let named = named.map(|path| Ok::<_, Refused>((path, resolve(path)?))).transpose()?;
    let is_named =
        |path: &Path| named.as_ref().is_some_and(|(_, named)| fs::canonicalize(path).is_ok_and(|path| path == *named));
    let mut files = Vec::new();
    let mut named_layer = Layer::Project;
    for (layer, path, demand) in
        [(Layer::System, Some(system), Demand::Root), (Layer::User, user.as_deref(), Demand::ThisOrRoot)]
    {
        let Some(path) = path else { continue };
        if is_named(path) {
            named_layer = layer;
            break;
        }
        let is_there = places::is_there(path);
        if !is_there.map_err(|error| Refused::new(format!("cannot read {}: {error}", shown(path))))? {
            continue;
        }
        if let Some(text) = way::read(path, demand)? {
            files.push(Read {
                layer,
                path: path.to_owned(),
                bytes: text.bytes,
                asked: named.is_none(),
                is_services: false,
            });
        }
    }
    match named {
        Some((path, resolved)) => {
            let text = regular(&resolved)?;
            let is_services = named_layer == Layer::Project && path.file_name() != Some(OsStr::new(find::NAME));
            files.push(Read { layer: named_layer, path: path.to_owned(), bytes: text.bytes, asked: true, is_services });
        }
        None => files.extend(project_file()?),
    }
    if files.is_empty() {
        return Err(Refused::new("there is no policy file here").hint("name one: `netbox policy lint FILE`"));
    }
    Ok(files)
}

/// The project's file, whoever it belongs to: to look at it is no trust.
fn project_file() -> Result<Option<Read>, Refused> {
    let working = env::current_dir().map_err(|error| Refused::new(format!("no working directory: {error}")))?;
    let Some(text) = Place::around(&working)?.project_file(true)? else { return Ok(None) };
    let is_here = text.path.parent() == Some(&*working);
    let path = if is_here { PathBuf::from(find::NAME) } else { text.path };
    Ok(Some(Read { layer: Layer::Project, path, bytes: text.bytes, asked: true, is_services: false }))
}

fn resolve(path: &Path) -> Result<PathBuf, Refused> {
    let cannot = |error: io::Error| Refused::new(format!("cannot read {}: {error}", shown(path)));
    fs::canonicalize(path).map_err(cannot)
}

/// A file that was named, if it is one. Nothing is waited for.
fn regular(path: &Path) -> Result<Text, Refused> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Refused::new(format!("{} is a directory, not a regular file", shown(path))));
    };
    let cannot = |why: &str| Refused::new(format!("cannot read {}: {why}", quote(path.as_os_str().as_encoded_bytes())));
    let handle = read::directory(directory).map_err(|errno| cannot(errno.desc()))?;
    read::at(handle, name, path)?.ok_or_else(|| cannot("it is gone"))
}
