//! The layers of one run, and what they add up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ceiling::Ceiling;
use crate::compiled::Compiled;
use crate::ech::Ech;
use crate::entry::{Entry, List};
use crate::expand::{Expander, Expansions};
use crate::file_error::{FileError, FileErrors, FileFault};
use crate::layer::Layer;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::policy_file::{PolicyFile, Profile, Section};
use crate::service::{Principal, ServiceSettings};
use crate::source::Source;
use crate::suggest;

/// What was typed, and what stands in the environment: the innermost layer.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Allow rules and presets.
    pub allow: Vec<Entry>,
    /// Deny rules and presets.
    pub deny: Vec<Entry>,
    /// The mode, and where it was given.
    pub mode: Option<(Mode, Source)>,
}

/// The layers of one run: at most one file for each of [`Layer::System`], [`Layer::User`] and [`Layer::Project`], and the
/// command line.
///
/// * **Allow and deny rules** of all layers add up. A deny rule wins over every allow rule, whichever layers they are of.
/// * **Ceilings** add up too: what is allowed has to be inside each.
/// * **The mode** is the innermost that is given. A file's mode is also the widest that the files inside it may choose, so
///   a project does not lift its user's `none`; `--mode` takes the place of the user's and the project's, and the system's
///   stays the widest for all (`none` is the narrowest, then `allowlist`, `audit`, `open`).
/// * **A profile** that is chosen adds its rules to those of the file that defines it, and one more ceiling if it has one;
///   its mode takes the place of that file's.
/// * **A preset** is looked up in the layer that names it and further out, and last among those of netbox itself. Nothing
///   can be defined a second time, so an inner file changes no outer rule.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    /// From outside in.
    files: BTreeMap<Layer, &'a PolicyFile>,
    command_line: &'a CommandLine,
    profile: Option<&'a str>,
    tenant: Option<Tenant<'a>>,
}

/// Whom of a service the policy is for, and whose file names it.
#[derive(Clone, Copy, Debug)]
struct Tenant<'a> {
    layer: Layer,
    section: Option<&'a Section>,
    /// The mode where none is given.
    default: Mode,
}

/// A derived preset that the policy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedUse {
    /// Its name, without the `@`.
    pub name: Arc<str>,
    /// The layer whose list led to it.
    pub layer: Layer,
    /// Where that list names it, or the preset that leads to it.
    pub source: Source,
}

impl<'a> Stack<'a> {
    /// The command line alone.
    pub fn new(command_line: &'a CommandLine) -> Self {
        Self { files: BTreeMap::new(), command_line, profile: None, tenant: None }
    }

    /// The same, with this file in its layer; a file that was there before gives way.
    #[must_use]
    pub fn with_file(mut self, file: &'a PolicyFile) -> Self {
        self.files.insert(file.layer, file);
        self
    }

    /// The same, with this profile chosen, or none.
    #[must_use]
    pub fn with_profile(self, profile: Option<&'a str>) -> Self {
        Self { profile, ..self }
    }

    /// The `[service]` that is in force: that of the innermost file which has one.
    pub fn service(&self) -> Option<&'a ServiceSettings> {
        self.service_of().map(|(_, settings)| settings)
    }

    fn service_of(&self) -> Option<(Layer, &'a ServiceSettings)> {
        self.files.iter().rev().find_map(|(layer, file)| Some((*layer, file.service.as_ref()?)))
    }

    /// The layers of a role of the service that is in force. `None`: there is no such role.
    ///
    /// Its allow rules are its own alone: neither those of the files nor of the command line are for it. It is bound by the
    /// deny rules and ceilings of all layers. Its mode takes the place of its file's, as a profile's does; `--mode` is not
    /// for it.
    pub fn for_role(&self, name: &str) -> Option<Self> {
        let (layer, settings) = self.service_of()?;
        let section = Some(&settings.role(name)?.section);
        Some(Self { tenant: Some(Tenant { layer, section, default: Mode::default() }), ..self.clone() })
    }

    /// The layers that bind sandboxes which a service is asked to serve, and those of a user or a group that has a table:
    /// deny rules and ceilings, no allow rule, and as the mode the widest that they may ask for.
    #[must_use]
    pub fn for_principal(&self, principal: Option<&'a Principal>) -> Self {
        let layer = self.service_of().map_or(Layer::CommandLine, |(layer, _)| layer);
        let section = principal.map(|principal| &principal.section);
        Self { tenant: Some(Tenant { layer, section, default: Mode::Open }), ..self.clone() }
    }

    /// The same without a layer's file.
    #[must_use]
    pub fn without(&self, layer: Layer) -> Self {
        let mut stack = self.clone();
        stack.files.remove(&layer);
        stack
    }

    /// The derived presets that the policy needs, each once: those whose rules [`Stack::compile`] asks [`Expansions`] for.
    ///
    /// # Errors
    ///
    /// As [`Stack::compile`], as far as names go.
    pub fn derived(&self) -> Result<Vec<DerivedUse>, FileErrors> {
        let expander = Expander::new(self.files.values().copied())?;
        let mut errors = Vec::new();
        let mut found: Vec<DerivedUse> = Vec::new();
        for part in self.parts(&mut errors) {
            let lists = [Some(part.allow), Some(part.deny), part.ceiling.map(|(_, entries)| &**entries)];
            for (name, source) in lists.into_iter().flatten().flat_map(|entries| expander.derived(part.layer, entries))
            {
                if found.iter().all(|known| known.name != name) {
                    found.push(DerivedUse { name, layer: part.layer, source });
                }
            }
        }
        FileErrors::unless(errors, found)
    }

    /// The policy that the layers add up to.
    ///
    /// # Errors
    ///
    /// A name that nothing defines or that is defined twice, presets in a circle, a derived preset without an expansion, a
    /// preset that is too broad to be allowed, a mode on the command line that is wider than the system's, and mode `none`
    /// with allow rules where both are of the command line.
    pub fn compile(&self, expansions: &Expansions) -> Result<Compiled, FileErrors> {
        let expander = Expander::new(self.files.values().copied())?;
        let mut errors = Vec::new();
        let (mut allow, mut deny, mut ceilings) = (Layered::default(), Layered::default(), Layered::default());
        for part in self.parts(&mut errors) {
            let mut expand = |list, entries| expander.expand(part.layer, list, entries, expansions, &mut errors);
            allow.extend(part.layer, expand(List::Allow, part.allow));
            deny.extend(part.layer, expand(List::Deny, part.deny));
            if let Some((at, entries)) = part.ceiling {
                ceilings.extend(part.layer, [Ceiling::new(at.clone(), expand(List::Ceiling, entries))]);
            }
        }
        let mut warnings = Vec::new();
        let chosen = self.mode(&mut warnings, &mut errors);
        let (mode, mode_source) =
            chosen.map_or((self.default_mode(), None), |at| (at.mode, Some((at.layer, at.source.clone()))));
        let about_rules = allow.items.iter().flat_map(|rule| {
            rule.warnings().iter().map(move |warning| format!("{}: rule `{}`: {warning}", rule.source(), rule.text()))
        });
        warnings.extend(about_rules);
        let layers = [allow.layers, deny.layers, ceilings.layers];
        // Whoever refuses it wins, as with denies.
        let ech = self.files.values().map(|file| file.ech).find(|ech| *ech == Ech::Refuse).unwrap_or_default();
        let policy = Policy::assemble(mode, allow.items, deny.items).within(ceilings.items).with_ech(ech);
        FileErrors::unless(
            errors,
            Compiled { policy, layers, mode_source, profile: self.profile.map(ToOwned::to_owned), warnings },
        )
    }

    /// Whether the project's file is proved to allow nothing more than the same layers do without it. Where that is not
    /// plain to see, it is not proved.
    pub fn project_narrows(&self, expansions: &Expansions) -> bool {
        match (self.compile(expansions), self.without(Layer::Project).compile(expansions)) {
            (Ok(all), Ok(outer)) => all.narrows(&outer),
            _ => false,
        }
    }

    /// Those of its service's tenants: each role, and each user and group.
    pub fn of_tenants(&self) -> Vec<Self> {
        let Some(settings) = self.service() else { return Vec::new() };
        let roles = settings.roles().filter_map(|(name, _)| self.for_role(name));
        let principals = settings.users.values().chain(settings.groups.values());
        roles.chain(principals.map(|principal| self.for_principal(Some(principal)))).collect()
    }

    /// What each layer says, from outside in: a file's top level, the profile that is chosen, the command line.
    fn parts(&self, errors: &mut Vec<FileError>) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut profiles: BTreeMap<&str, &Profile> = BTreeMap::new();
        for (layer, file) in &self.files {
            parts.push(self.bound(Part::of(*layer, &file.base)));
            if let Some(section) = self.tenant.filter(|tenant| tenant.layer == *layer).and_then(|tenant| tenant.section)
            {
                parts.push(Part::of(*layer, section));
            }
            for (name, profile) in &file.profiles {
                if let Some(outer) = profiles.get(&**name) {
                    let (what, name, outer) = ("profile", name.to_string(), outer.at.clone());
                    let error = FileError::new(profile.at.clone(), FileFault::Redefined { what, name, outer });
                    errors.push(error.with_hint("give it another name".to_owned()));
                    continue;
                }
                profiles.insert(name, profile);
                if self.profile == Some(name) {
                    parts.push(self.bound(Part::of(*layer, &profile.section)));
                }
            }
        }
        if let Some(name) = self.profile
            && !profiles.contains_key(name)
        {
            let known: Vec<_> = profiles.keys().copied().collect();
            let hint = match suggest::nearest(name, known.iter().copied()) {
                Some(known) => suggest::did_you_mean(known),
                None if known.is_empty() => "no policy file defines any".to_owned(),
                None => format!("there are `{}`", known.join("`, `")),
            };
            let error = FileError::new(Source::Flag("--profile"), FileFault::UnknownProfile(name.to_owned()));
            errors.push(error.with_hint(hint));
        }
        let CommandLine { allow, deny, .. } = self.command_line;
        parts.push(self.bound(Part { layer: Layer::CommandLine, allow, deny, ceiling: None }));
        parts
    }

    /// What of a part holds for a tenant of a service: all that takes back.
    fn bound(&self, part: Part<'a>) -> Part<'a> {
        if self.tenant.is_some() { Part { allow: &[], ..part } } else { part }
    }

    fn default_mode(&self) -> Mode {
        self.tenant.map_or(Mode::default(), |tenant| tenant.default)
    }

    /// The mode that holds, if any is given.
    fn mode(&self, warnings: &mut Vec<String>, errors: &mut Vec<FileError>) -> Option<Chosen<'a>> {
        let mut chosen: Option<Chosen<'a>> = None;
        for (layer, file) in &self.files {
            let Some(own) = self.mode_of(*layer, file) else { continue };
            match chosen {
                Some(outer) if own.mode.is_wider_than(outer.mode) => warnings.push(format!(
                    "{}: mode `{}` is wider than `{}`, which {} sets and which holds",
                    own.source, own.mode, outer.mode, outer.source
                )),
                _ => chosen = Some(own),
            }
        }
        if self.tenant.is_some() {
            return chosen;
        }
        let typed = self.command_line;
        if let Some((mode, source)) = &typed.mode {
            let system = self.files.get(&Layer::System);
            if let Some(outer) = system.and_then(|file| self.mode_of(Layer::System, file))
                && mode.is_wider_than(outer.mode)
            {
                let fault = FileFault::WiderMode { mode: *mode, limit: outer.mode, outer: outer.source.clone() };
                let hint = format!("leave it out, or write a mode that is as narrow as `{}`", outer.mode);
                errors.push(FileError::new(source.clone(), fault).with_hint(hint));
            }
            if let (Mode::None, Some(entry)) = (mode, typed.allow.first()) {
                let fault = FileFault::AllowInModeNone { rule: entry.to_string(), place: entry.source().clone() };
                errors.push(FileError::new(source.clone(), fault).with_hint("leave out one of the two".to_owned()));
            }
            return Some(Chosen { layer: Layer::CommandLine, mode: *mode, source });
        }
        if let Some(Chosen { mode: Mode::None, source, .. }) = chosen
            && let Some(entry) = typed.allow.first()
        {
            warnings.push(format!("{source}: mode `none` lets nothing pass, so {} allows nothing", entry.source()));
        }
        chosen
    }

    /// The mode of a file: that of the profile or the tenant that is chosen, else that of its top level.
    fn mode_of(&self, layer: Layer, file: &'a PolicyFile) -> Option<Chosen<'a>> {
        let of_profile = match self.tenant {
            None => self.profile.and_then(|name| file.profiles.get(name)?.section.mode.as_ref()),
            Some(tenant) if tenant.layer == layer => tenant.section.and_then(|section| section.mode.as_ref()),
            Some(_) => None,
        };
        let (mode, source) = of_profile.or(file.base.mode.as_ref())?;
        Some(Chosen { layer, mode: *mode, source })
    }
}

/// What one file, at its top level or in a profile, or the command line says.
struct Part<'a> {
    layer: Layer,
    allow: &'a [Entry],
    deny: &'a [Entry],
    ceiling: Option<&'a (Source, Vec<Entry>)>,
}

impl<'a> Part<'a> {
    fn of(layer: Layer, section: &'a Section) -> Self {
        Self { layer, allow: &section.allow, deny: &section.deny, ceiling: section.ceiling.as_ref() }
    }
}

/// Things of several layers in one list, and the layer of each.
struct Layered<T> {
    items: Vec<T>,
    layers: Vec<Layer>,
}

impl<T> Default for Layered<T> {
    fn default() -> Self {
        Self { items: Vec::new(), layers: Vec::new() }
    }
}

impl<T> Layered<T> {
    fn extend(&mut self, layer: Layer, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        self.layers.resize(self.items.len(), layer);
    }
}

/// A mode, and who chose it.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    layer: Layer,
    mode: Mode,
    source: &'a Source,
}
