//! Presets: from the lists as they are written to lists of rules, each of which knows the way that it came.
//!
//! A list is gone through once. What it names is looked up in the layer that wrote the name and further out, and last among
//! the presets of netbox itself; the text of a preset is looked up from the preset's own layer. A preset that is reached a
//! second time from the same list adds nothing, so that presets which name each other stay as small as they are written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::entry::{Entry, List, PresetUse};
use crate::file_error::{FileError, FileErrors, FileFault, named};
use crate::layer::Layer;
use crate::pattern::HostPattern;
use crate::policy_file::{PolicyFile, Preset};
use crate::presets;
use crate::rule::Rule;
use crate::rule_error::RuleError;
use crate::source::Source;
use crate::suggest;

/// How deep presets may be within presets.
const DEEPEST: usize = 32;

/// What the derived presets of a policy stand for on this machine, by what files and tools say. It is handed in, since
/// finding it out takes both.
#[derive(Clone, Debug, Default)]
pub struct Expansions(BTreeMap<String, Result<Vec<(String, Source)>, String>>);

impl Expansions {
    /// The rules of a derived preset, named without its `@`: `registry.example:443`, and where that was found. A rule has to
    /// be one name with its ports; [`Stack::compile`](crate::Stack::compile) takes no other.
    pub fn insert(&mut self, preset: &str, rules: Vec<(String, Source)>) {
        self.0.insert(preset.to_owned(), Ok(rules));
    }

    /// Why there are none, for the error of whoever uses the preset.
    pub fn insert_failure(&mut self, preset: &str, why: String) {
        self.0.insert(preset.to_owned(), Err(why));
    }
}

/// The presets of the files of a run: each of them found, none in a circle.
pub(crate) struct Expander<'a> {
    presets: HashMap<&'a str, Defined<'a>>,
}

#[derive(Clone, Copy)]
struct Defined<'a> {
    layer: Layer,
    preset: &'a Preset,
}

/// Where the name of a preset leads.
enum Found<'a> {
    Defined(Defined<'a>),
    Builtin(&'static [&'static str]),
    Derived,
    Nowhere,
}

/// What a list comes to in the end.
enum Leaf<'a> {
    Rule(&'a Rule),
    Builtin(&'static [&'static str]),
    Derived(&'a PresetUse),
    Unknown(&'a PresetUse),
}

/// The way from a list to what it comes to.
#[derive(Default)]
struct Way<'a> {
    /// Where the list names the first preset.
    used: Option<&'a Source>,
    /// The presets on the way.
    chain: Vec<Arc<str>>,
    /// Every preset that was reached so far.
    seen: HashSet<&'a str>,
}

impl Way<'_> {
    /// The source of a rule that the last preset has there.
    fn source(&self, from: Option<&Source>) -> Option<Source> {
        let used = Arc::new(self.used?.clone());
        Some(Source::Preset { used, chain: self.chain.as_slice().into(), from: from.cloned().map(Arc::new) })
    }
}

impl<'a> Expander<'a> {
    /// The presets of these files, which come from outside in.
    pub(crate) fn new(files: impl Iterator<Item = &'a PolicyFile>) -> Result<Self, FileErrors> {
        let mut expander = Self { presets: HashMap::new() };
        let mut errors = Vec::new();
        for file in files {
            for (name, preset) in &file.presets {
                let defined = Defined { layer: file.layer, preset };
                match expander.presets.get(&**name) {
                    None => {
                        expander.presets.insert(name, defined);
                    }
                    Some(outer) => {
                        let (what, name, outer) = ("preset", name.to_string(), outer.preset.at.clone());
                        let error = FileError::new(preset.at.clone(), FileFault::Redefined { what, name, outer });
                        errors.push(error.with_hint("give it another name".to_owned()));
                    }
                }
            }
        }
        let mut names: Vec<_> = expander.presets.keys().copied().collect();
        names.sort_unstable();
        let mut depths = HashMap::new();
        for name in names {
            expander.check(name, &mut Vec::new(), &mut depths, &mut errors);
        }
        FileErrors::unless(errors, expander)
    }

    /// Looks at what a defined preset names, and at what that names. The value is how deep that is.
    fn check(
        &self,
        name: &'a str,
        above: &mut Vec<&'a str>,
        depths: &mut HashMap<&'a str, usize>,
        errors: &mut Vec<FileError>,
    ) -> usize {
        let Some(defined) = self.presets.get(name) else { return 0 };
        if let Some(depth) = depths.get(name) {
            return *depth;
        }
        above.push(name);
        let mut deepest = 0;
        for entry in &defined.preset.entries {
            let Entry::Preset(used) = entry else { continue };
            let error = match self.find(defined.layer, &used.name) {
                Found::Nowhere => Some(self.unknown(defined.layer, used)),
                Found::Builtin(_) | Found::Derived => None,
                Found::Defined(_) => match above.iter().position(|name| **name == *used.name) {
                    Some(start) => {
                        let circle = above[start..].iter().copied().chain([&*used.name]);
                        let circle = circle.map(ToOwned::to_owned).collect();
                        let error = FileError::new(used.source.clone(), FileFault::Cycle(circle));
                        Some(error.with_hint(format!("leave `@{}` out here", used.name)))
                    }
                    None if above.len() >= DEEPEST => Some(too_deep(used)),
                    None => {
                        deepest = deepest.max(self.check(&used.name, above, depths, errors));
                        (above.len() + deepest > DEEPEST).then(|| too_deep(used))
                    }
                },
            };
            errors.extend(error);
        }
        above.pop();
        depths.insert(name, deepest + 1);
        deepest + 1
    }

    fn find(&self, layer: Layer, name: &str) -> Found<'a> {
        match self.presets.get(name) {
            Some(defined) if defined.layer <= layer => Found::Defined(*defined),
            _ if presets::is_derived(name) => Found::Derived,
            _ => presets::builtin(name).map_or(Found::Nowhere, Found::Builtin),
        }
    }

    fn unknown(&self, layer: Layer, used: &PresetUse) -> FileError {
        let hint = match self.presets.get(&*used.name) {
            Some(inner) => format!("{} defines it, which the files outside it do not see", named(inner.layer)),
            None => {
                let visible = self.presets.iter().filter(|(_, defined)| defined.layer <= layer);
                let known = visible.map(|(name, _)| *name).chain(presets::names().map(|name| -> &str { name }));
                match suggest::nearest(&used.name, known) {
                    Some(known) => suggest::did_you_mean(&format!("@{known}")),
                    None => format!("define it: `[preset.{}]` with `allow = [..]`", used.name),
                }
            }
        };
        FileError::new(used.source.clone(), FileFault::UnknownPreset(format!("@{}", used.name))).with_hint(hint)
    }

    fn walk(&self, layer: Layer, entries: &'a [Entry], way: &mut Way<'a>, take: &mut dyn FnMut(Leaf<'a>, &Way<'a>)) {
        for entry in entries {
            let used = match entry {
                Entry::Rule(rule) => {
                    take(Leaf::Rule(rule), way);
                    continue;
                }
                Entry::Preset(used) => used,
            };
            if !way.seen.insert(&used.name) {
                continue;
            }
            let is_first = way.used.is_none();
            way.used = way.used.or(Some(&used.source));
            way.chain.push(Arc::clone(&used.name));
            match self.find(layer, &used.name) {
                Found::Defined(defined) => self.walk(defined.layer, &defined.preset.entries, way, take),
                Found::Builtin(texts) => take(Leaf::Builtin(texts), way),
                Found::Derived => take(Leaf::Derived(used), way),
                Found::Nowhere => take(Leaf::Unknown(used), way),
            }
            way.chain.pop();
            if is_first {
                way.used = None;
            }
        }
    }

    /// The derived presets that a list comes to, and where the list names them or what leads to them.
    pub(crate) fn derived(&self, layer: Layer, entries: &'a [Entry]) -> Vec<(Arc<str>, Source)> {
        let mut found = Vec::new();
        self.walk(layer, entries, &mut Way::default(), &mut |leaf, way| {
            if let (Leaf::Derived(used), Some(source)) = (leaf, way.used) {
                found.push((Arc::clone(&used.name), source.clone()));
            }
        });
        found
    }

    /// The rules that a list comes to.
    pub(crate) fn expand(
        &self,
        layer: Layer,
        list: List,
        entries: &'a [Entry],
        expansions: &Expansions,
        errors: &mut Vec<FileError>,
    ) -> Vec<Rule> {
        let mut rules = Vec::with_capacity(entries.len());
        self.walk(layer, entries, &mut Way::default(), &mut |leaf, way| match leaf {
            Leaf::Rule(rule) => match way.source(Some(rule.source())) {
                None => rules.push(rule.clone()),
                Some(source) => push(&mut rules, errors, list, Ok(rule.with_source(source))),
            },
            Leaf::Builtin(texts) => {
                for text in texts {
                    let source = way.source(None).unwrap_or(Source::Flag("--allow"));
                    push(&mut rules, errors, list, Rule::parse_deny(text, source));
                }
            }
            Leaf::Derived(used) => match expansions.0.get(&*used.name) {
                Some(Ok(found)) => {
                    for (text, from) in found {
                        let source = way.source(Some(from)).unwrap_or_else(|| from.clone());
                        let rule = Rule::parse_deny(text, source);
                        match rule {
                            Ok(rule) if is_exact(&rule) => push(&mut rules, errors, list, Ok(rule)),
                            _ => {
                                let fault = FileFault::NotExact { name: used.name.to_string(), text: text.clone() };
                                let hint = "write the hosts themselves".to_owned();
                                errors.push(FileError::new(used.source.clone(), fault).with_hint(hint));
                            }
                        }
                    }
                }
                missing => {
                    let why = missing.and_then(|found| found.as_ref().err()).cloned().unwrap_or_default();
                    let fault = FileFault::NotExpanded { name: used.name.to_string(), why };
                    let hint = "write the hosts themselves, which `netbox learn -- COMMAND` finds".to_owned();
                    errors.push(FileError::new(used.source.clone(), fault).with_hint(hint));
                }
            },
            Leaf::Unknown(used) => errors.push(self.unknown(layer, used)),
        });
        rules
    }
}

/// Takes a rule of a preset into a list: what may be denied is not always fit to be allowed.
fn push(rules: &mut Vec<Rule>, errors: &mut Vec<FileError>, list: List, rule: Result<Rule, RuleError>) {
    let fit = rule.and_then(|rule| match list {
        List::Allow => rule.into_allow(),
        List::Deny | List::Ceiling | List::Preset => Ok(rule),
    });
    match fit {
        Ok(rule) => rules.push(rule),
        Err(error) => {
            let source = error.source().cloned().unwrap_or(Source::Flag("--allow"));
            errors.push(FileError::rule(source, error));
        }
    }
}

/// Whether a rule is about one name, on ports that are written.
fn is_exact(rule: &Rule) -> bool {
    matches!(rule.pattern(), HostPattern::Exact(_)) && rule.has_ports() && !rule.is_raw()
}

fn too_deep(used: &PresetUse) -> FileError {
    let hint = "write the rules themselves".to_owned();
    FileError::new(used.source.clone(), FileFault::Deep(DEEPEST)).with_hint(hint)
}
