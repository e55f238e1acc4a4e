//! `netbox trust` and `netbox untrust`: typing it is the consent.

use std::env;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use netbox_config::{PolicyFile, Stack};

use super::expanded::Expanded;
use super::find::{self, Place};
use super::load::{self, Files};
use super::store::{Record, Store};
use super::trust::{self, Candidate, Verdict};
use super::{Refused, change, places, read, shown};
use crate::cli::{PolicyArguments, TrustArguments, UntrustArguments};
use crate::{FAILED, USAGE, policy_flags, say, variables};

/// Trusts the project's file, or tells what is trusted. The value is the exit code.
pub fn trust(arguments: &TrustArguments) -> u8 {
    let done = if arguments.list { list() } else { accept(arguments) };
    end(done)
}

/// Ends the trust in a project's file. The value is the exit code.
pub fn untrust(arguments: &UntrustArguments) -> u8 {
    end(revoke(arguments.file.as_deref()))
}

/// Why it was not done, and the exit code.
type Failed = (Refused, u8);

fn wrong(refused: Refused) -> Failed {
    (refused, USAGE)
}

fn failed(refused: Refused) -> Failed {
    (refused, FAILED)
}

fn end(done: Result<(), Failed>) -> u8 {
    match done {
        Ok(()) => 0,
        Err((refused, code)) => {
            say::error(&refused, refused.hint.as_deref());
            code
        }
    }
}

fn accept(arguments: &TrustArguments) -> Result<(), Failed> {
    refuse_inside().map_err(failed)?;
    let directory = match &arguments.file {
        Some(file) => directory_of(file).map_err(wrong)?,
        None => working().map_err(wrong)?,
    };
    let place = Place::around(&directory).map_err(wrong)?;
    let flags = PolicyArguments { allow: arguments.allow.clone(), ..PolicyArguments::default() };
    let command_line = policy_flags::command_line(&flags).map_err(|why| wrong(Refused::usage(why)))?;
    let mut files = Files::default();
    files.add_outer(true).and_then(|()| files.add_project(&place, false)).map_err(wrong)?;
    let project = files.project.as_ref();
    if arguments.file.is_some() && project.is_none_or(|text| text.path.parent() != Some(&directory)) {
        return Err(wrong(Refused::new(format!("there is no `{}` in {}", find::NAME, shown(&directory)))));
    }
    let stack = files.parsed.iter().fold(Stack::new(&command_line), Stack::with_file);
    // A profile may need presets that nothing else needs.
    let mut expanded: Vec<Expanded> = Vec::new();
    let profiles = files.parsed.iter().flat_map(PolicyFile::profiles).map(Some);
    for profile in profiles.chain([None]) {
        let stack = stack.clone().with_profile(profile);
        for one in load::expand(&stack, Some(&place), true).map_err(wrong)? {
            match expanded.iter_mut().find(|known| known.preset == one.preset) {
                Some(known) => known.is_projects |= one.is_projects,
                None => expanded.push(one),
            }
        }
        load::compile(&stack, &expanded).map_err(wrong)?;
    }
    let candidate =
        Candidate { stack: &stack, expanded: &expanded, place: &place, text: project, searched: true, pinned: None };
    let record = candidate.record().map_err(wrong)?;
    let Some(digest) = candidate.digest().or_else(|| (!record.derived.is_empty()).then(String::new)) else {
        let text = format!("there is no `{}` of a project here", find::NAME);
        let hint =
            place.passed_over().unwrap_or_else(|| "`netbox untrust` ends the trust in one that is gone".to_owned());
        return Err(wrong(Refused::new(text).hint(hint)));
    };
    let store = Store::of_user();
    let verdict = trust::judge(&candidate, &store).map_err(failed)?;
    store.write(&record).map_err(failed)?;
    let mut effect = Vec::new();
    if let Verdict::Asks(change) = verdict {
        change.accept(&store).map_err(failed)?;
        effect = change.effect;
    }
    tell(&record, &digest, &effect).map_err(unsaid)
}

fn tell(record: &Record, digest: &str, effect: &[String]) -> io::Result<()> {
    let mut out = stdout().lock();
    match &record.content {
        Some(_) => writeln!(out, "trusted {}  sha256:{digest}", shown(&record.file()))?,
        None => writeln!(out, "trusted what files in {} say", shown(&record.place))?,
    }
    for derived in &record.derived {
        let rule = netbox_config::escaped(derived.rule.as_bytes()).to_string();
        writeln!(out, "  @{} stands for {rule}", derived.preset)?;
    }
    change::cut(effect.iter().cloned()).iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn revoke(file: Option<&Path>) -> Result<(), Failed> {
    refuse_inside().map_err(failed)?;
    let store = Store::of_user();
    let place = match file {
        Some(file) => directory_of(file).map_err(wrong)?,
        None => {
            let working = working().map_err(wrong)?;
            let nearest = store.nearest(working.ancestors(), |_| true).map_err(failed)?;
            nearest.map_or(working, |record| record.place)
        }
    };
    let was_trusted = store.remove(&place).map_err(failed)?;
    let file = shown(&place.join(find::NAME));
    let text = if was_trusted { format!("no longer trusted {file}") } else { format!("{file} was not trusted") };
    writeln!(stdout().lock(), "{text}").map_err(unsaid)
}

fn list() -> Result<(), Failed> {
    let mut out = stdout().lock();
    for record in Store::of_user().all().map_err(failed)? {
        let Some(content) = &record.content else { continue };
        let now = read::directory(&record.place)
            .ok()
            .and_then(|directory| read::at(directory, find::NAME.as_ref(), &record.file()).ok().flatten());
        let state = match now {
            Some(text) if text.bytes == content.as_bytes() => "",
            Some(_) => "  (has changed)",
            None => "  (is gone)",
        };
        writeln!(out, "{}{state}", shown(&record.file())).map_err(unsaid)?;
    }
    Ok(())
}

fn unsaid(error: io::Error) -> Failed {
    failed(Refused::new(format!("cannot write to stdout: {error}")))
}

/// The variable is a word to programs and no proof; where it is missing, what is remembered is read-only all the same.
pub fn refuse_inside() -> Result<(), Refused> {
    if env::var_os(variables::INSIDE).is_some_and(|value| value == "1") {
        return Err(Refused::new("inside a sandbox of netbox, trust is neither given nor ended").hint("do it outside"));
    }
    Ok(())
}

fn working() -> Result<PathBuf, Refused> {
    env::current_dir().map_err(|error| Refused::new(format!("no working directory: {error}")))
}

/// The directory of a project's file, or that directory itself. It is without links; the file may be gone.
fn directory_of(file: &Path) -> Result<PathBuf, Refused> {
    let file = working()?.join(file);
    let cannot = |path: &Path, error| Refused::new(format!("cannot look into {}: {error}", shown(path)));
    if file.file_name().is_some_and(|name| name == find::NAME) && !file.is_dir() {
        let directory = file.parent().unwrap_or(Path::new("/"));
        // The directory may be gone as well.
        return if places::is_there(directory).unwrap_or(true) {
            directory.canonicalize().map_err(|error| cannot(directory, error))
        } else {
            Ok(directory.to_owned())
        };
    }
    if file.is_dir() {
        return file.canonicalize().map_err(|error| cannot(&file, error));
    }
    let text = format!("{} is no project's file: that is called `{}`", shown(&file), find::NAME);
    Err(Refused::usage(text).hint("a file of another name counts where it is named: `netbox run --config FILE`"))
}
