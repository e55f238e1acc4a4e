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

use netbox_launcher::{Protected, effective_uid};

use crate::policy::{UsedFile, places, shown};

/// How many entries of a directory are looked at: there are a handful.
const MAX_ENTRIES: usize = 4096;

/// All of it, and what is to be said about it.
#[derive(Debug, Default)]
pub struct Found {
    pub protected: Vec<Protected>,
    pub warnings: Vec<String>,
}

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
    }
    for path in own_programs() {
        match Protected::in_place(&path) {
            Ok(program) => {
                if program.has_other_names() {
                    let path = shown(&path);
                    found
                        .warnings
                        .push(format!("{path} has another name (a hard link), under which it is not protected"));
                }
                found.protected.push(program);
            }
            // What is gone decides nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot protect {}: {error}", shown(&path))),
        }
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

/// The paths of this program: where it is, and what it was called by.
fn own_programs() -> Vec<PathBuf> {
    let Ok(link) = fs::read_link("/proc/self/exe") else { return Vec::new() };
    let mut all = vec![link];
    if let (Some(name), Ok(here)) = (env::args_os().next(), env::current_dir()) {
        let path = PathBuf::from(&name);
        let candidates: Vec<PathBuf> = if path.components().count() > 1 {
            vec![here.join(path)]
        } else {
            let places = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&places).map(|place| here.join(place).join(&name)).collect()
        };
        all.extend(candidates.into_iter().find(|candidate| is_this_program(candidate)));
    }
    all.dedup();
    all
}

fn is_this_program(path: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    number(path).is_some_and(|found| number(Path::new("/proc/self/exe")) == Some(found))
}

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
    fn this_program_is_known_by_every_name() {
        let own = own_programs();
        assert!(!own.is_empty() && own.iter().all(|path| is_this_program(path)), "{own:?}");
        assert!(!is_this_program(Path::new("/dev/null")) && !is_this_program(Path::new("/nonexistent")));
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
