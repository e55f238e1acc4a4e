//! From what was typed and what lies around to the policy of a run.

use std::env;
use std::path::{Path, PathBuf};

use netbox_config::{Compiled, DerivedUse, FileErrors, Layer, PolicyFile, Source, Stack};

use super::ask::Terminal;
use super::derived;
use super::effective::{Effective, Standing, UsedFile};
use super::expanded::{self, Expanded};
use super::find::{self, Place};
use super::layers::Layers;
use super::owner::Demand;
use super::read::Text;
use super::store::Store;
use super::trust::{self, Candidate, Verdict};
use super::{Refused, places, shown, way};
use crate::cli::PolicyArguments;
use crate::policy_flags;

/// What to do about the project's files, and whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// They count, and a person may be asked whether they are trusted.
    Person,
    /// They count where they are trusted.
    Nobody,
    /// They count where they are trusted, and where they are not, that is told, with the policy without them: for who wants
    /// to look at it.
    Onlooker,
    /// They do not count: a service is for no project.
    NoProject,
}

/// The files of a run, read and parsed.
#[derive(Debug, Default)]
pub struct Files {
    /// From outside in.
    pub parsed: Vec<PolicyFile>,
    pub used: Vec<UsedFile>,
    /// The project's file as it was read; not one that was named.
    pub project: Option<Text>,
}

/// Finds, reads and judges the policy files, and makes the policy.
///
/// # Errors
/// A flag or a file is wrong, or the project's file is not trusted.
pub fn load(arguments: &PolicyArguments, pinned: Option<&str>, asking: Asking) -> Result<Effective, Refused> {
    let command_line = policy_flags::command_line(arguments).map_err(Refused::usage)?;
    let named = policy_flags::named_file(arguments).map_err(Refused::usage)?;
    let profile = policy_flags::profile(arguments).map_err(Refused::usage)?;
    let searched = named.is_none() && !arguments.no_config && asking != Asking::NoProject;
    if let (Some(_), false) = (pinned, searched) {
        return Err(Refused::usage("`--trust-project` is about the project's file, and none is looked for here"));
    }

    let working = env::current_dir().map_err(|error| Refused::new(format!("no working directory: {error}")))?;
    let place = Place::around(&working)?;
    let mut files = Files::default();
    files.add_outer(!arguments.no_config)?;
    match &named {
        Some(path) => files.add_named(path, &working, asking == Asking::NoProject)?,
        None if searched => files.add_project(&place, pinned.is_some())?,
        None => {}
    }

    let stack = files.parsed.iter().fold(Stack::new(&command_line), Stack::with_file).with_profile(profile.as_deref());
    let of_project = (asking != Asking::NoProject).then_some(&place);
    let mut expanded =
        if arguments.without_derived { nothing(&stack)? } else { expand(&stack, of_project, files.project.is_some())? };
    // A service is for its tenants too.
    let tenants = if asking == Asking::NoProject { stack.of_tenants() } else { Vec::new() };
    for tenant in &tenants {
        for one in if arguments.without_derived { nothing(tenant)? } else { expand(tenant, of_project, false)? } {
            if expanded.iter().all(|known| known.preset != one.preset) {
                expanded.push(one);
            }
        }
    }
    let mut compiled = compile(&stack, &expanded)?;
    let project = files.project.as_ref();
    let candidate = Candidate { stack: &stack, expanded: &expanded, place: &place, text: project, searched, pinned };
    let mut untrusted = None;
    let standing = match judge(&candidate, asking)? {
        Judged::Counts(standing) => standing,
        Judged::LeftOut { why, without, standing } => {
            compiled = *without;
            untrusted = Some(why);
            Some(standing)
        }
    };
    // Whoever only wants to know asks nobody outside.
    let is_run = !matches!(asking, Asking::Nobody | Asking::Onlooker) && !arguments.without_derived;
    if is_run && add_downloads(&mut expanded, &stack, of_project, standing)? {
        compiled = compile(&stack, &expanded)?;
    }
    for tenant in tenants.iter().filter(|_| is_run) {
        add_downloads(&mut expanded, tenant, of_project, standing)?;
    }
    let expansions = expanded::expansions(&expanded, |_| true);
    if let (Some(text), Some(standing)) = (project, standing) {
        files.used.push(UsedFile::new(Layer::Project, &text.path, text, standing));
    }
    let passed_over = place.passed_over().filter(|_| searched);
    let notes = expanded.into_iter().flat_map(|one| one.notes).collect();
    let layers = Layers { files: files.parsed, command_line, profile, expansions };
    Ok(Effective { compiled, files: files.used, notes, untrusted, passed_over, layers })
}

/// Whether the project's files count.
enum Judged {
    /// They do, and why; nothing where there are none.
    Counts(Option<Standing>),
    /// They do not, and somebody only looks.
    LeftOut { why: Refused, without: Box<Compiled>, standing: Standing },
}

/// Judges them; where a person has to say so, asks.
fn judge(candidate: &Candidate<'_>, asking: Asking) -> Result<Judged, Refused> {
    if asking == Asking::NoProject {
        return Ok(Judged::Counts(None));
    }
    let store = Store::of_user();
    let mut change = match trust::judge(candidate, &store)? {
        Verdict::Counts(standing) => return Ok(Judged::Counts(standing)),
        Verdict::Asks(change) => change,
    };
    match (asking, change.without.take()) {
        (Asking::Person, _) => {}
        (Asking::Onlooker, Some(without)) => {
            let standing = if change.is_known { Standing::Trusted } else { Standing::Untrusted };
            let without = Box::new(without);
            return Ok(Judged::LeftOut { why: change.unasked(""), without, standing });
        }
        _ => return Err(change.unasked("")),
    }
    let Some(mut terminal) = Terminal::find() else {
        return Err(change.unasked(", and there is no terminal to ask at"));
    };
    let Some((text, question)) = change.describe() else {
        return Err(change.unasked(", and it is too long to be shown here"));
    };
    if !terminal.agrees(&text, &question) {
        return Err(change.declined());
    }
    change.accept(&store)?;
    Ok(Judged::Counts(candidate.text.map(|_| Standing::Trusted)))
}

/// What the stack's derived presets come to in this place, or where no project counts. Whether the file in the project's
/// layer is one that was found, and so has to be trusted, is said.
///
/// # Errors
/// A name that nothing defines, or the like.
pub fn expand(stack: &Stack<'_>, place: Option<&Place>, found: bool) -> Result<Vec<Expanded>, Refused> {
    // Each comes once, with the outermost layer that names it.
    let uses = stack.derived().map_err(of_files)?;
    let expand = |used: DerivedUse| {
        let is_projects = found && used.layer == Layer::Project;
        Expanded { is_projects, ..derived::expand(&used.name, place) }
    };
    Ok(uses.into_iter().map(expand).collect())
}

/// Lets them come to nothing.
fn nothing(stack: &Stack<'_>) -> Result<Vec<Expanded>, Refused> {
    let uses = stack.derived().map_err(of_files)?;
    Ok(uses
        .into_iter()
        .map(|used| Expanded {
            preset: used.name.to_string(),
            outcome: Ok(Vec::new()),
            is_projects: false,
            notes: Vec::new(),
        })
        .collect())
}

/// Asks the indexes of presets that somebody whose word counts has named where their downloads lie. Whether that added
/// something.
///
/// # Errors
/// A name that nothing defines, or the like.
fn add_downloads(
    expanded: &mut [Expanded],
    stack: &Stack<'_>,
    place: Option<&Place>,
    standing: Option<Standing>,
) -> Result<bool, Refused> {
    let uses = stack.derived().map_err(of_files)?;
    let mut is_new = false;
    for one in expanded {
        let mut layers = uses.iter().filter(|used| *used.name == *one.preset).map(|used| used.layer);
        // A file that only narrows was proved to by what it names now. The system's file may deny by a preset, and what it
        // denies is not to be asked either.
        let counts = |layer| match layer {
            Layer::Project => standing != Some(Standing::Narrows),
            Layer::User | Layer::CommandLine => true,
            Layer::System => false,
        };
        let is_system = uses.iter().any(|used| *used.name == *one.preset && used.layer == Layer::System);
        if !is_system && layers.any(counts) {
            is_new |= derived::add_downloads(one, place);
        }
    }
    Ok(is_new)
}

/// The policy, with all that derived presets came to.
///
/// # Errors
/// What was typed and what the files say does not fit together.
pub fn compile(stack: &Stack<'_>, expanded: &[Expanded]) -> Result<Compiled, Refused> {
    stack.compile(&expanded::expansions(expanded, |_| true)).map_err(of_files)
}

/// What is wrong with files, or with names that were typed.
pub(super) fn of_files(errors: FileErrors) -> Refused {
    let is_typed = |source: &Source| matches!(source.written(), Source::Flag(_) | Source::Environment(_));
    let is_usage = errors.iter().all(|error| is_typed(error.source()));
    Refused { is_usage, ..Refused::new(errors.to_string()) }
}

impl Files {
    /// The system's file, and the user's where it is wanted.
    ///
    /// # Errors
    /// One of them is there and cannot be used.
    pub fn add_outer(&mut self, user: bool) -> Result<(), Refused> {
        let system = Path::new(places::SYSTEM);
        // Never skipped: what cannot be looked at may be there.
        if let Some(text) = way::read(system, Demand::Root)? {
            self.add(Layer::System, system, &text)?;
            self.used.push(UsedFile::new(Layer::System, system, &text, Standing::System));
        }
        let path = places::configuration().map(|folder| folder.join("config.toml")).filter(|_| user);
        let Some(path) = path else { return Ok(()) };
        let hint = "leave the user's file out with `--no-config`";
        let is_there = places::is_there(&path);
        if !is_there.map_err(|error| Refused::new(format!("cannot read {}: {error}", shown(&path))).hint(hint))? {
            return Ok(());
        }
        if let Some(text) = way::read(&path, Demand::ThisOrRoot).map_err(|refused| refused.or_hint(hint))? {
            self.add(Layer::User, &path, &text)?;
            self.used.push(UsedFile::new(Layer::User, &path, &text, Standing::User));
        }
        Ok(())
    }

    /// The file that was named.
    fn add_named(&mut self, path: &Path, working: &Path, is_services: bool) -> Result<(), Refused> {
        if path.as_os_str().is_empty() {
            return Err(Refused::usage("`--config` needs the name of a file"));
        }
        let written = working.join(path);
        let Some(text) = way::read(&written, Demand::ThisCallerOrRoot)? else {
            return Err(Refused::new(format!("`--config`: there is no file {}", shown(path))));
        };
        match is_services {
            true => self.parsed.push(PolicyFile::parse_for_service(path, &text.bytes).map_err(of_files)?),
            false => self.add(Layer::Project, path, &text)?,
        }
        self.used.push(UsedFile::new(Layer::Project, &written, &text, Standing::Named));
        Ok(())
    }

    /// The project's file, if there is one.
    ///
    /// # Errors
    /// There is one, and it cannot be used.
    pub fn add_project(&mut self, place: &Place, pinned: bool) -> Result<(), Refused> {
        let Some(text) = place.project_file(pinned)? else { return Ok(()) };
        // In the working directory the name alone says where.
        let is_here = text.path.parent() == Some(&place.working);
        let path = if is_here { PathBuf::from(find::NAME) } else { text.path.clone() };
        self.add(Layer::Project, &path, &text)?;
        self.project = Some(text);
        Ok(())
    }

    fn add(&mut self, layer: Layer, path: &Path, text: &Text) -> Result<(), Refused> {
        self.parsed.push(PolicyFile::parse(layer, path, &text.bytes).map_err(of_files)?);
        Ok(())
    }
}

impl UsedFile {
    fn new(layer: Layer, written: &Path, text: &Text, standing: Standing) -> Self {
        let (written, path) = (written.to_owned(), text.path.clone());
        Self { layer, written, path, digest: text.digest(), standing }
    }
}
