//! From the bytes of a policy file to [`PolicyFile`], with everything that is wrong on the way.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::ech::Ech;
use crate::entry::{Entry, List, is_name};
use crate::file_error::{FileError, FileErrors, FileFault, elsewhere};
use crate::layer::Layer;
use crate::mode::Mode;
use crate::place::Places;
use crate::policy_file::{PolicyFile, Preset, Profile, Section};
use crate::presets;
use crate::service::reading::SERVICE_KEYS;
use crate::source::Source;
use crate::suggest;

pub(crate) const FILE_KEYS: [&str; 9] =
    ["version", "allow", "deny", "mode", "ceiling", "ech", "profile", "preset", "service"];
pub(crate) const PROFILE_KEYS: [&str; 4] = ["allow", "deny", "mode", "ceiling"];
pub(crate) const PRESET_KEYS: [&str; 1] = ["allow"];

/// Keys of the user's and the system's files that a project's file never holds, at whatever place: they are about the
/// machine.
const MACHINE_KEYS: [&str; 14] = [
    "credential",
    "credentials",
    "events",
    "hook",
    "hooks",
    "listen",
    "listener",
    "log",
    "logs",
    "metrics",
    "role",
    "roles",
    "upstream",
    "upstreams",
];

/// Those of them that a later version reads.
const LATER_MACHINE_KEYS: [&str; 8] =
    ["credential", "credentials", "hook", "hooks", "log", "logs", "upstream", "upstreams"];

/// Keys that any file may hold in a later version.
const LATER_KEYS: [&str; 2] = ["extends", "include"];

pub(crate) type Key<'i> = Spanned<DeString<'i>>;
pub(crate) type Value<'i> = Spanned<DeValue<'i>>;

/// What is read: its text, where it stands, and what was found so far.
pub(crate) struct Reader<'t> {
    /// Whose file it is.
    kind: FileKind,
    path: Arc<Path>,
    text: &'t str,
    places: Places<'t>,
    errors: Vec<FileError>,
    /// How many texts of lists there were.
    rules: usize,
}

/// Whose file it is, hence what it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The file of a layer.
    Of(Layer),
    /// One in the project's layer that was named for a service: it holds what a user's file may.
    Service,
}

impl FileKind {
    fn layer(self) -> Layer {
        match self {
            Self::Of(layer) => layer,
            Self::Service => Layer::Project,
        }
    }

    fn is_projects(self) -> bool {
        self == Self::Of(Layer::Project)
    }
}

pub(crate) fn read(kind: FileKind, path: Arc<Path>, bytes: &[u8]) -> Result<PolicyFile, FileErrors> {
    let at = |(line, column)| Source::File { path: Arc::clone(&path), line, column };
    if bytes.len() > PolicyFile::LARGEST {
        return Err(FileError::new(at((1, 1)), FileFault::Large(bytes.len())).into());
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (before, after) = bytes.split_at(error.valid_up_to());
        let place = Places::new(std::str::from_utf8(before).unwrap_or_default()).of(before.len());
        let wrong = after[..error.error_len().unwrap_or(after.len())].to_vec();
        FileError::new(at(place), FileFault::NotUtf8(wrong))
    })?;
    let mut reader = Reader { kind, path, text, places: Places::new(text), errors: Vec::new(), rules: 0 };
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut file = PolicyFile {
        layer: kind.layer(),
        path: Arc::clone(&reader.path),
        base: Section::default(),
        ech: Ech::default(),
        profiles: BTreeMap::new(),
        presets: BTreeMap::new(),
        service: None,
    };
    // What the parser made of a text that is no TOML is not what its writer meant.
    if errors.iter().filter(|error| !reader.is_duplicate(error)).count() == 0 {
        reader.document(document.get_ref(), &mut file);
    }
    reader.errors.sort_by_key(FileError::place);
    reader.errors.dedup();
    FileErrors::unless(reader.errors, file)
}

impl Reader<'_> {
    /// Takes an error of the TOML parser. Whether it is a key that stands there twice: the rest can be read all the same.
    fn is_duplicate(&mut self, error: &toml::de::Error) -> bool {
        let span = error.span().unwrap_or(self.text.len()..self.text.len());
        let found = self.text.get(span.clone()).unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        let is_duplicate = error.message() == "duplicate key";
        let fault = match is_duplicate {
            true => FileFault::DuplicateKey(found.clone()),
            false => FileFault::Toml { message: error.message().to_owned(), found: found.clone() },
        };
        // What is most often forgotten, in the words of the parser.
        let unquoted = error.message().starts_with("string values must be quoted") && is_plain(&found);
        self.wrong(span.start, fault, unquoted.then(|| format!("write `\"{found}\"`")));
        is_duplicate
    }

    fn document(&mut self, document: &DeTable<'_>, file: &mut PolicyFile) {
        for (key, value) in document {
            match &**key.get_ref() {
                "version" => self.version(value),
                "ech" => file.ech = self.ech(value),
                "service" if self.kind.is_projects() => {
                    let fault = FileFault::NotInProject("service".to_owned());
                    self.wrong(
                        key.span().start,
                        fault,
                        format!("{}, or name the file with `netbox proxy serve -c`", elsewhere("service")),
                    );
                }
                "service" => file.service = Some(self.service(value)),
                "profile" => self.tables("profile", "profile", value, |reader, name, table| {
                    let profile = reader.profile(name, table);
                    file.profiles.insert(name.get_ref().as_ref().into(), profile);
                }),
                "preset" => self.tables("preset", "preset", value, |reader, name, table| {
                    let preset = reader.preset(name, table);
                    file.presets.insert(name.get_ref().as_ref().into(), preset);
                }),
                _ => self.section_key(key, value, &mut file.base, "a policy file"),
            }
        }
    }

    fn version(&mut self, value: &Value<'_>) {
        let hint = "write `version = 1`".to_owned();
        match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 && number.as_str() == "1" => {}
            DeValue::Integer(_) => {
                let written = self.written(value);
                self.wrong(value.span().start, FileFault::Version(written), hint);
            }
            _ => self.wrong_type("version", value, "a whole number", hint),
        }
    }

    fn ech(&mut self, value: &Value<'_>) -> Ech {
        let at = value.span().start;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type("ech", value, "a string", "write `ech = \"refuse\"`".to_owned());
            return Ech::Refuse;
        };
        text.parse().unwrap_or_else(|error| {
            self.wrong(at, FileFault::Ech(error), None);
            Ech::Refuse
        })
    }

    /// The tables `[profile.NAME]`, `[preset.NAME]` or `[service.role.NAME]`; the path is what stands before the name.
    pub(crate) fn tables(
        &mut self,
        what: &'static str,
        path: &str,
        value: &Value<'_>,
        mut take: impl FnMut(&mut Self, &Key<'_>, &DeTable<'_>),
    ) {
        let hint = format!("write `[{path}.some-name]`, and the keys of the {what} below it");
        let DeValue::Table(tables) = value.get_ref() else {
            return self.wrong_type(what, value, "a table of tables", hint);
        };
        for (name, table) in tables {
            let text = name.get_ref();
            match table.get_ref() {
                _ if !is_name(text) => {
                    let hint = "write lower-case letters, digits, `-` and `_`".to_owned();
                    self.wrong(name.span().start, FileFault::Name { what, name: text.to_string() }, hint);
                }
                DeValue::Table(keys) => take(self, name, keys),
                _ => self.wrong_type(text, table, "a table", hint.clone()),
            }
        }
    }

    fn profile(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> Profile {
        let mut section = Section::default();
        for (key, value) in table {
            self.section_key(key, value, &mut section, "a profile");
        }
        Profile { at: self.at(name.span().start), section }
    }

    fn preset(&mut self, name: &Key<'_>, table: &DeTable<'_>) -> Preset {
        let (at, text) = (name.span().start, name.get_ref());
        if presets::builtin(text).is_some() || presets::is_derived(text) {
            self.wrong(at, FileFault::BuiltinPreset(text.to_string()), "give it another name".to_owned());
        }
        let mut entries = None;
        for (key, value) in table {
            match &**key.get_ref() {
                "allow" => entries = Some(self.entries("allow", value, List::Preset)),
                _ => self.unknown_key(key, "a preset", &PRESET_KEYS),
            }
        }
        if entries.is_none() {
            let hint = "write `allow = [\"example.com\"]` below its name".to_owned();
            self.wrong(at, FileFault::EmptyPreset(text.to_string()), hint);
        }
        Preset { at: self.at(at), entries: entries.unwrap_or_default() }
    }

    /// A key that stands at the top level as well as in a profile.
    fn section_key(&mut self, key: &Key<'_>, value: &Value<'_>, section: &mut Section, place: &'static str) {
        match &**key.get_ref() {
            "allow" => section.allow = self.entries("allow", value, List::Allow),
            "deny" => section.deny = self.entries("deny", value, List::Deny),
            "mode" => section.mode = self.mode(value),
            "ceiling" if self.kind.is_projects() => {
                self.wrong(key.span().start, FileFault::NotInProject("ceiling".to_owned()), elsewhere("ceiling"));
            }
            "ceiling" => {
                section.ceiling = Some((self.at(key.span().start), self.entries("ceiling", value, List::Ceiling)));
            }
            _ if place == "a profile" => self.unknown_key(key, place, &PROFILE_KEYS),
            _ => self.unknown_key(key, place, &FILE_KEYS),
        }
    }

    pub(crate) fn mode(&mut self, value: &Value<'_>) -> Option<(Mode, Source)> {
        let at = value.span().start;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type("mode", value, "a string", "write `mode = \"allowlist\"`".to_owned());
            return None;
        };
        text.parse().map(|mode| (mode, self.at(at))).map_err(|error| self.wrong(at, FileFault::Mode(error), None)).ok()
    }

    pub(crate) fn unknown_key(&mut self, key: &Key<'_>, place: &'static str, known: &[&'static str]) {
        let (at, name) = (key.span().start, key.get_ref());
        let is_later = LATER_MACHINE_KEYS.contains(&&**name) || LATER_KEYS.contains(&&**name);
        let (fault, hint) = if MACHINE_KEYS.contains(&&**name) && self.kind.is_projects() {
            (FileFault::NotInProject(name.to_string()), elsewhere(name))
        } else if is_later {
            (FileFault::NotSupportedYet(name.to_string()), "leave it out".to_owned())
        } else {
            let hint = match suggest::nearest(name, known.iter().copied()) {
                // `role` is near to `mode`, and is not what is meant by it.
                _ if SERVICE_KEYS.contains(&&**name) => format!("write `{name}` below `[service]`"),
                Some(known) => suggest::did_you_mean(known),
                None if FILE_KEYS.contains(&&**name) => format!("write `{name}` at the top of the file"),
                None => format!("the keys are `{}`", known.join("`, `")),
            };
            (FileFault::UnknownKey { key: name.to_string(), place }, hint)
        };
        self.wrong(at, fault, hint);
    }

    /// The texts of a list of rules.
    pub(crate) fn entries(&mut self, key: &'static str, value: &Value<'_>, list: List) -> Vec<Entry> {
        let DeValue::Array(items) = value.get_ref() else {
            let hint = match value.get_ref() {
                DeValue::String(text) if is_plain(text) => format!("write `{key} = [\"{text}\"]`"),
                _ => format!("write `{key} = [\"example.com\"]`"),
            };
            self.wrong_type(key, value, "a list of rules", hint);
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(items.len());
        for item in items.iter() {
            let DeValue::String(text) = item.get_ref() else {
                let found = kind(item.get_ref());
                self.wrong(item.span().start, FileFault::Item { key, found }, "write a rule in quotes".to_owned());
                continue;
            };
            self.rules += 1;
            if self.rules == PolicyFile::MOST_RULES + 1 {
                let fault = FileFault::ManyRules(PolicyFile::MOST_RULES);
                self.wrong(item.span().start, fault, "write wildcards or ranges instead".to_owned());
            }
            if self.rules > PolicyFile::MOST_RULES {
                break;
            }
            let content = content(self.text, item.span(), text);
            let start = content.unwrap_or(item.span().start);
            match Entry::parse(text, list, self.at(start)) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    let place = self.at(content.map_or(start, |start| start + error.offset()));
                    self.errors.push(FileError::rule(place, error));
                }
            }
        }
        entries
    }

    pub(crate) fn wrong_type(&mut self, key: &str, value: &Value<'_>, expected: &'static str, hint: String) {
        let fault = FileFault::Type { key: key.to_owned(), expected, found: kind(value.get_ref()) };
        self.wrong(value.span().start, fault, hint);
    }

    pub(crate) fn wrong(&mut self, offset: usize, fault: FileFault, hint: impl Into<Option<String>>) {
        self.error(self.at(offset), fault, hint);
    }

    pub(crate) fn error(&mut self, source: Source, fault: FileFault, hint: impl Into<Option<String>>) {
        self.errors.push(FileError::new(source, fault).with_hint(hint));
    }

    /// A value as it is written.
    pub(crate) fn written(&self, value: &Value<'_>) -> String {
        self.text.get(value.span()).unwrap_or_default().to_owned()
    }

    /// Where the content of a string starts, or the string where that cannot be told.
    pub(crate) fn start_of(&self, value: &Value<'_>, decoded: &str) -> usize {
        content(self.text, value.span(), decoded).unwrap_or(value.span().start)
    }

    pub(crate) fn at(&self, offset: usize) -> Source {
        let (line, column) = self.places.of(offset);
        Source::File { path: Arc::clone(&self.path), line, column }
    }
}

/// Where the content of a string starts, if it stands in the text as it is: without escapes, behind the quotes and, in a
/// string of several lines, behind the newline after them.
fn content(text: &str, span: Range<usize>, decoded: &str) -> Option<usize> {
    let raw = text.get(span.clone())?;
    let (behind, quotes) = match raw.strip_prefix("\"\"\"").or_else(|| raw.strip_prefix("'''")) {
        Some(rest) => (rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')).unwrap_or(rest), 3),
        None => (raw.get(1..)?, 1),
    };
    let as_it_is = behind.starts_with(decoded) && behind.len() == decoded.len() + quotes;
    as_it_is.then_some(span.end - behind.len())
}

/// Whether a text can stand in a hint as it is.
fn is_plain(text: &str) -> bool {
    text.len() <= 100 && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\`".contains(&byte))
}

pub(crate) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
