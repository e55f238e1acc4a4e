//! What decides later runs of netbox, and so is out of the command's reach: the user's policy files, what netbox
//! remembers, and netbox itself.
//!
//! It is the places that this run's environment names, and the usual ones if there is something; and the files that this
//! run's policy is made from. A project's file is known by its content, so it is enough that the command cannot write it:
//! what it puts in its place is not trusted. What cannot be held so is an earlier place in PATH at which another `netbox`
//! is put, or a shell's start-up file: those are files like others.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use netbox_launcher::{Protected, Replaced, effective_uid};

use crate::place::Place;
use crate::policy::{UsedFile, places, shown};

/// How many entries of a directory are looked at: there are a handful.
const MAX_ENTRIES: usize = 4096;

/// All of it, and what is to be said about it.
#[derive(Debug, Default)]
pub struct Found {
    pub protected: Vec<Protected>,
    /// Files that later runs believe whatever is in them.
    pub files: Vec<Place>,
    /// Netbox itself, by each of its names.
    pub programs: Vec<Place>,
    pub warnings: Vec<String>,
}

/// What to say of netbox itself where it is not at its place.
pub fn replacement(program: &Place) -> String {
    format!(
        "{} was replaced while the command ran; if you did not do that yourself, install netbox anew before you use it",
        shown(&program.path)
    )
}

/// What to say of a policy file that is not at its place.
pub fn replacement_of_file(file: &Place) -> String {
    format!(
        "{} was replaced while the command ran; if you did not do that yourself, look at it before the next run",
        shown(&file.path)
    )
}

/// What became of a name that was replaced.
pub fn account(replaced: &Replaced) -> String {
    let name = shown(&replaced.path);
    let what = "decides later runs and was moved or replaced while the command ran, which was ended";
    match &replaced.outcome {
        Ok(None) => format!("{name} {what}; it is back"),
        Ok(Some(other)) => format!("{name} {what}; it is back, and what was in its place is {} now", shown(other)),
        Err(errno) => {
            format!("{name} {what}; it could not be put back: {}", io::Error::from_raw_os_error(*errno))
        }
    }
}

/// A person can do that as well.
pub const IF_IT_WAS_YOU: &str = "if it was you who moved it, do it again while no command runs";

/// Finds it, and makes the directories that are missing: else the command could make them. `files` are those of this run.
///
/// # Errors
/// Why something cannot be protected, in words.
pub fn find(files: &[UsedFile]) -> Result<Found, String> {
    let mut found = Found::default();
    let mut directories: Vec<(PathBuf, u32)> = places::all().into_iter().map(|path| (path, 0o700)).collect();
    if effective_uid() == 0 {
        // To a user it is out of reach as it is.
        directories.push((places::SYSTEM_DIRECTORY.into(), 0o755));
    }
    for (path, mode) in directories {
        let cannot =
            |error: io::Error| format!("cannot make {}, which the command could make otherwise: {error}", shown(&path));
        found.protected.push(Protected::directory(&path, mode).map_err(cannot)?);
        if let Some(file) = file_with_another_name(&path, &mut 0) {
            return Err(format!(
                "{} has another name (a hard link), under which the command could change it; replace it by a copy",
                shown(&file)
            ));
        }
    }
    for file in files {
        found.protected.push(protect(file)?);
        if !file.is_known_by_content() {
            found.files.extend(Place::of(file.written.clone()));
        }
    }
    for program in own_programs() {
        let protected = Protected::in_place(&program.path)
            .map_err(|error| format!("cannot protect {}: {error}", shown(&program.path)))?;
        if protected.has_other_names() {
            let path = shown(&program.path);
            found.warnings.push(format!("{path} has another name (a hard link), under which it is not protected"));
        }
        found.protected.push(protected);
        found.programs.push(program);
    }
    Ok(found)
}

fn protect(file: &UsedFile) -> Result<Protected, String> {
    let cannot = |error: io::Error| format!("cannot protect {}: {error}", shown(&file.written));
    if file.is_known_by_content() {
        return Protected::by_content(&file.path).map_err(cannot);
    }
    let protected = Protected::in_place(&file.written).map_err(cannot)?;
    if protected.has_other_names() {
        return Err(format!(
            "{} has another name (a hard link), under which the command could change it; replace it by a copy",
            shown(&file.written)
        ));
    }
    Ok(protected)
}

/// This program where it is, and by the name that it was called by. What is gone decides nothing.
fn own_programs() -> Vec<Place> {
    let (Ok(link), Some(own)) = (fs::read_link(OWN), Place::of(OWN.into())) else { return Vec::new() };
    let mut all = vec![link];
    if let (Some(name), Ok(here)) = (env::args_os().next(), env::current_dir()) {
        let path = PathBuf::from(&name);
        let candidates: Vec<PathBuf> = if path.components().count() > 1 {
            vec![here.join(path)]
        } else {
            let places = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&places).map(|place| here.join(place).join(&name)).collect()
        };
        all.extend(candidates);
    }
    // Nobody else can make or move a name there, and a `/proc` that hides processes hides this one from pid 1 of the sandbox.
    all.retain(|path| !path.starts_with("/proc"));
    all.dedup();
    all.into_iter().filter_map(Place::of).filter(|place| place.is_same(&own)).collect()
}

const OWN: &str = "/proc/self/exe";

/// A file of the user's below this directory that has another name outside of it, as far as can be told.
fn file_with_another_name(directory: &Path, seen: &mut usize) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).ok()?.flatten() {
        *seen += 1;
        if *seen > MAX_ENTRIES {
            return None;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            if let Some(found) = file_with_another_name(&entry.path(), seen) {
                return Some(found);
            }
        } else if metadata.is_file() && metadata.nlink() > 1 {
            return Some(entry.path());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_known_and_seen_to_be_in_place() {
        let own = own_programs();
        assert!(!own.is_empty() && own.iter().all(Place::is_kept), "{own:?}");
        assert!(replacement(&own[0]).contains("was replaced"));
    }

    #[test]
    fn a_hard_link_of_a_file_is_found_at_any_depth() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("netbox/trust/one"), folder.path().join("other"));
        fs::create_dir_all(folder.path().join("netbox/trust")).expect("own folder");
        fs::write(&inside, "").expect("own folder");
        assert_eq!(file_with_another_name(&folder.path().join("netbox"), &mut 0), None);
        fs::hard_link(&inside, outside).expect("own folder");
        assert_eq!(file_with_another_name(&folder.path().join("netbox"), &mut 0), Some(inside));
    }
}
