//! Finds the project's file: `netbox.toml`, upward from the working directory to the root of the repository.
//!
//! Where there is no repository, only the working directory is looked into: without a root, the way up would lead
//! through directories that have nothing to do with the project. A file further up is not read then, but it is told that it
//! is there: somebody may count on it. The way ends early at a directory in which everybody
//! may make entries (`/tmp`), and where it would lead out of the user's own directories into somebody else's. What is
//! found on the way has to be the user's own, or root's, with every directory between.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

use super::owner::{self, Demand, Owner};
use super::read::{self, Text};
use super::{Refused, places, shown};

/// What the project's file is called.
pub const NAME: &str = "netbox.toml";

/// An entry of one of these names makes a directory the root of a repository. A file named `.git` does so in a further
/// working tree and in a submodule.
const MARKERS: [&str; 3] = [".git", ".hg", ".jj"];

/// Where a run takes place.
#[derive(Debug)]
pub struct Place {
    /// The working directory: absolute, without links.
    pub working: PathBuf,
    /// The root of the repository around it.
    pub root: Option<PathBuf>,
    /// The nearest `netbox.toml` above, where it does not count for want of a repository.
    passed_over: Option<PathBuf>,
    /// From the working directory to that with the nearest `netbox.toml`; empty if there is none.
    way: Vec<Step>,
}

/// One directory of the way, open.
#[derive(Debug)]
struct Step {
    path: PathBuf,
    handle: File,
    metadata: Metadata,
    has_file: bool,
    is_root: bool,
}

/// The outermost repository that contains a directory, which is absolute and without links. Not the home as a whole, and
/// nothing above it.
pub fn outermost_repository<'p>(working: &'p Path, home: Option<&Path>) -> Option<&'p Path> {
    let is_below_home = |path: &&Path| home.is_none_or(|home| !home.starts_with(path));
    let is_root = |path: &&Path| MARKERS.iter().any(|marker| path.join(marker).symlink_metadata().is_ok());
    working.ancestors().take_while(is_below_home).filter(is_root).last()
}

impl Place {
    /// Looks around from `working`, which is absolute and without links.
    ///
    /// # Errors
    /// A directory cannot be looked into.
    pub fn around(working: &Path) -> Result<Self, Refused> {
        let mut steps: Vec<Step> = Vec::new();
        for path in working.ancestors() {
            let step = match Step::into(path) {
                // Closed to this user by somebody else, and so is what lies above, as far as files are concerned.
                Err(Errno::EACCES) if places::is_there(&path.join(NAME)).is_ok() => break,
                other => other.map_err(|errno| cannot(path, errno))?,
            };
            if steps.last().is_some_and(|below| step.ends_the_way(below)) {
                break;
            }
            let is_root = step.is_root;
            steps.push(step);
            if is_root {
                break;
            }
        }
        let root = steps.last().filter(|step| step.is_root).map(|step| step.path.clone());
        // Without a repository, what lies above is not the project's.
        let nearest = steps.iter().position(|step| step.has_file);
        let passed_over = nearest.filter(|&at| at > 0 && root.is_none()).map(|at| steps[at].path.join(NAME));
        let nearest = nearest.filter(|_| passed_over.is_none());
        steps.truncate(nearest.map_or(0, |at| at + 1));
        Ok(Self { working: working.to_owned(), root, passed_over, way: steps })
    }

    /// A `netbox.toml` that is there and does not count, for whoever may think that it does: in words, with what to do.
    pub fn passed_over(&self) -> Option<String> {
        let path = shown(self.passed_over.as_ref()?);
        Some(format!(
            "{path} does not count here, since no repository is around both; `--config` names it, or run where it lies"
        ))
    }

    /// Reads the project's file, if there is one. Where `pinned`, its bytes are to be known anyway, and it does not matter
    /// whose it is.
    ///
    /// # Errors
    /// There is one, and it cannot be read, or others may write to it or to a directory on the way.
    pub fn project_file(&self, pinned: bool) -> Result<Option<Text>, Refused> {
        let Some(step) = self.way.last() else { return Ok(None) };
        let path = step.path.join(NAME);
        let hint = "name it with `--config` if it is to count, or leave it out with `--no-config`";
        if !pinned {
            for step in &self.way {
                owner::check_directory(&step.path, &step.metadata, Demand::ThisCallerOrRoot)
                    .map_err(|refused| refused.of_way_to(&path).or_hint(hint))?;
            }
        }
        let Some(text) = read::at(&step.handle, OsStr::new(NAME), &path).map_err(|refused| refused.or_hint(hint))?
        else {
            return Err(Refused::new(format!("{} was there and is gone", shown(&path))));
        };
        if !pinned {
            owner::check(&path, &text.metadata, Demand::ThisCallerOrRoot).map_err(|refused| refused.or_hint(hint))?;
        }
        Ok(Some(text))
    }
}

impl Refused {
    /// What is wrong with a directory matters for what lies in it.
    fn of_way_to(self, path: &Path) -> Self {
        Self { text: format!("{}, on the way to {}", self.text, shown(path)), ..self }
    }
}

impl Step {
    fn into(path: &Path) -> nix::Result<Self> {
        let handle = read::directory(path)?;
        let metadata = handle.metadata().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let has = |name: &str| match fstatat(&handle, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(false),
            other => other.map(|_| true),
        };
        let has_file = has(NAME)?;
        let is_root = has(MARKERS[0])? || has(MARKERS[1])? || has(MARKERS[2])?;
        Ok(Self { path: path.to_owned(), metadata, has_file, is_root, handle })
    }

    /// Whether this is no longer the user's part of the tree, seen from the directory below.
    fn ends_the_way(&self, below: &Step) -> bool {
        let foreign = |step: &Step| !Demand::ThisCallerOrRoot.is_met_by(Owner::of(&step.metadata));
        owner::is_shared(&self.metadata) || (foreign(self) && !foreign(below))
    }
}

fn cannot(directory: &Path, errno: Errno) -> Refused {
    Refused::new(format!("cannot look for `{NAME}` in {}: {}", shown(directory), errno.desc()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with these directories (ending in `/`) and files.
    fn tree(entries: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("own folder").join("top");
        for entry in entries {
            let path = top.join(entry);
            if entry.ends_with('/') {
                fs::create_dir_all(path).expect("own folder");
            } else {
                fs::create_dir_all(path.parent().expect("in the folder")).expect("own folder");
                fs::write(&path, format!("# {entry}\n")).expect("own folder");
            }
        }
        (folder, top)
    }

    fn found(top: &Path, working: &str) -> Option<PathBuf> {
        let place = Place::around(&top.join(working)).expect("can be looked into");
        let text = place.project_file(false).expect("usable");
        text.map(|text| text.path.strip_prefix(top).expect("in the folder").to_owned())
    }

    #[test]
    fn the_nearest_file_up_to_the_root_of_the_repository_counts() {
        let (_folder, top) =
            tree(&["netbox.toml", "repo/.git/", "repo/netbox.toml", "repo/a/netbox.toml", "repo/a/b/c/", "repo/d/"]);
        for (working, file) in [
            ("repo", "repo/netbox.toml"),
            ("repo/d", "repo/netbox.toml"),
            ("repo/a", "repo/a/netbox.toml"),
            ("repo/a/b/c", "repo/a/netbox.toml"),
        ] {
            assert_eq!(found(&top, working).as_deref(), Some(Path::new(file)), "{working}");
        }
    }

    #[test]
    fn nothing_above_the_root_of_a_repository_counts() {
        for marker in [".git/", ".git", ".hg/", ".jj/"] {
            let (_folder, top) = tree(&["netbox.toml", ".git/", &format!("repo/{marker}"), "repo/d/"]);
            assert_eq!(found(&top, "repo/d"), None, "{marker}");
            assert_eq!(found(&top, "").as_deref(), Some(Path::new("netbox.toml")));
        }
    }

    #[test]
    fn without_a_repository_only_the_working_directory_counts() {
        let (_folder, top) = tree(&["netbox.toml", "d/e/", "repo/.git/", "repo/d/"]);
        let passed_over = |working: &str| Place::around(&top.join(working)).expect("can be looked into").passed_over;
        assert_eq!(found(&top, "").as_deref(), Some(Path::new("netbox.toml")));
        assert_eq!(passed_over(""), None);
        for below in ["d", "d/e"] {
            assert_eq!(found(&top, below), None);
            assert_eq!(passed_over(below), Some(top.join("netbox.toml")));
        }
        // What is above a repository is not even looked for.
        assert_eq!((found(&top, "repo/d"), passed_over("repo/d")), (None, None));
    }

    #[test]
    fn the_way_up_ends_at_a_directory_for_everybody() {
        let (_folder, top) = tree(&["netbox.toml", ".git/", "d/"]);
        fs::set_permissions(&top, Permissions::from_mode(0o1777)).expect("own folder");
        assert_eq!(found(&top, "d"), None);
        let place = Place::around(&top.join("d")).expect("can be looked into");
        assert_eq!(place.root, None);
    }

    #[test]
    fn what_others_may_write_to_is_refused_unless_its_bytes_are_pinned() {
        let (_folder, top) = tree(&["repo/.git/", "repo/netbox.toml", "repo/d/"]);
        let refusal = |working: &str| {
            let place = Place::around(&top.join(working)).expect("can be looked into");
            place.project_file(true).expect("pinned").expect("there");
            place.project_file(false).expect_err("others may write to it")
        };
        for path in ["repo/netbox.toml", "repo", "repo/d"] {
            let before = fs::metadata(top.join(path)).expect("own folder").permissions();
            fs::set_permissions(top.join(path), Permissions::from_mode(0o777)).expect("own folder");
            let refused = refusal("repo/d");
            assert!(refused.text.contains(path) && refused.text.contains("0777"), "{refused:?}");
            assert!(refused.hint.is_some_and(|hint| hint.contains("chmod go-w")));
            fs::set_permissions(top.join(path), before).expect("own folder");
        }
        assert!(found(&top, "repo/d").is_some(), "as it was before");
    }

    #[test]
    fn a_file_that_is_no_file_is_an_error_and_not_absent() {
        let (_folder, top) = tree(&["repo/.git/", "repo/netbox.toml/", "repo/d/"]);
        let place = Place::around(&top.join("repo/d")).expect("can be looked into");
        let refused = place.project_file(false).expect_err("a directory");
        assert!(refused.text.contains("is a directory, not a regular file"), "{refused:?}");
    }

    #[test]
    fn a_repository_in_another_one_belongs_to_that() {
        let (_folder, top) =
            tree(&["home/.git/", "home/outer/.git/", "home/outer/a/inner/.hg/", "home/outer/a/inner/b/"]);
        let home = top.join("home");
        let outermost = |path: &str| outermost_repository(&top.join(path), Some(&home)).map(Path::to_owned);
        for path in ["home/outer/a/inner/b", "home/outer/a", "home/outer"] {
            assert_eq!(outermost(path), Some(top.join("home/outer")), "{path}");
        }
        // A home that is one as a whole is no project.
        assert_eq!(outermost("home"), None);
        assert_eq!(outermost_repository(&top.join("home/outer"), None), Some(&*home));
    }
}
