//! The files around: those of the project, and those of the user and the machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netbox_config::Source;
use netbox_config::derived::{Misread, Page, Setting};

use crate::policy::find::{self, Place};
use crate::policy::owner::Demand;
use crate::policy::{places, read, shown, way};

/// The most bytes of one file of the project. A lock file is the largest that a person keeps.
const LARGEST: u64 = 32 << 20;

/// More entries of one directory are not looked at.
const MOST_ENTRIES: usize = 10_000;

/// Where netbox looks.
#[derive(Debug)]
pub struct Around {
    /// The directories of the project, from the working directory to the root of its repository.
    pub project: Vec<PathBuf>,
    /// The directories above that.
    pub above: Vec<PathBuf>,
    /// What is the project's as a whole: its repository, or the outermost one that contains that, or the working directory.
    top: Option<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The root of the file system; another one in tests.
    pub system: PathBuf,
    variables: BTreeMap<String, String>,
    /// The files of the project that were read, as they are shown.
    seen: RefCell<Vec<Arc<Path>>>,
}

/// The text of one file, with the path that it is shown by.
#[derive(Debug)]
pub struct Text {
    /// As it is shown.
    pub path: Arc<Path>,
    text: String,
}

impl Text {
    /// The text, as the parsers take it.
    pub fn page(&self) -> Page<'_> {
        Page::new(&self.path, &self.text)
    }

    /// Its first line.
    pub fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Reads it.
    ///
    /// # Errors
    /// It cannot be understood, with the place.
    pub fn parse<T>(&self, parser: impl FnOnce(&Page) -> Result<T, Misread>) -> Result<T, String> {
        parser(&self.page()).map_err(|misread| misread.to_string())
    }
}

impl Around {
    /// Around the place of this run. Without one, there is no project.
    pub fn here(place: Option<&Place>) -> Self {
        let (project, above) = place.map_or_else(Default::default, |place| {
            let top = place.root.as_deref().unwrap_or(&place.working);
            place.working.ancestors().map(Path::to_owned).partition(|path| path.starts_with(top))
        });
        let home = places::home();
        let top = place.map(|place| {
            let canonical = home.as_ref().and_then(|home| home.canonicalize().ok());
            let outermost = find::outermost_repository(&place.working, canonical.as_deref());
            outermost.or(place.root.as_deref()).unwrap_or(&place.working).to_owned()
        });
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            // What is no text names no host.
            Some((name.into_string().ok()?, value.into_string().ok()?)).filter(|(_, value)| !value.is_empty())
        });
        Self { project, above, top, home, system: "/".into(), variables: variables.collect(), seen: RefCell::default() }
    }

    /// A variable of the environment that is not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// All of them.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A variable as a setting.
    pub fn setting(&self, name: &'static str) -> Option<Setting> {
        self.variable(name).map(|value| Setting::of_environment(name, value))
    }

    /// A path in the user's home.
    pub fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// A path that a variable names, where it is absolute, or this one in the home.
    pub fn named_or_home(&self, variable: &str, path: &str) -> Option<PathBuf> {
        let named = self.variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| self.in_home(path))
    }

    /// The user's folder of configuration.
    pub fn configuration(&self) -> Option<PathBuf> {
        self.named_or_home("XDG_CONFIG_HOME", ".config")
    }

    /// A path of the machine.
    pub fn of_system(&self, path: &str) -> PathBuf {
        self.system.join(path)
    }

    /// A file of the project, or nothing where there is none.
    ///
    /// # Errors
    /// There is something, and it is no regular file (nothing is followed or waited for), too large or no text.
    pub fn project_file(&self, directory: &Path, name: &str) -> Result<Option<Text>, String> {
        let path = directory.join(name);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent = match read::directory(parent) {
            Ok(parent) => parent,
            Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(format!("cannot read {}: {}", shown(&path), errno.desc())),
        };
        let Some((file, _)) = read::open_regular(parent, name, &path).map_err(|refused| refused.text)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read {}: {error}", shown(&path)))?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("{} is larger than 32 MiB", shown(&path)));
        }
        self.project_text(path, bytes).map(Some)
    }

    /// A file of the user's or the machine's, or nothing where there is none. Links are followed, as long as nobody else
    /// could have made them.
    ///
    /// # Errors
    /// There is something that cannot be read, or that somebody else could have written.
    pub fn own_file(&self, path: &Path) -> Result<Option<Text>, String> {
        match places::is_there(path) {
            Ok(true) => {}
            // What is closed to this user is closed to the tools that it runs.
            Ok(false) | Err(_) => return Ok(None),
        }
        let Some(text) = way::read(path, Demand::ThisOrRoot).map_err(|refused| refused.text)? else { return Ok(None) };
        // A variable may lead into the project, and what lies there is the project's.
        if self.is_in_project(&text.path) {
            return self.project_text(path.to_owned(), text.bytes).map(Some);
        }
        self.text(path.to_owned(), text.bytes).map(Some)
    }

    /// All of these that there are.
    ///
    /// # Errors
    /// As [`Self::own_file`].
    pub fn own_files(&self, paths: impl IntoIterator<Item = Option<PathBuf>>) -> Result<Vec<Text>, String> {
        let mut texts = Vec::new();
        for path in paths.into_iter().flatten() {
            texts.extend(self.own_file(&path)?);
        }
        Ok(texts)
    }

    /// The names in a directory that are as wanted, sorted.
    pub fn names(&self, directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().take(MOST_ENTRIES).flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| wanted(name));
        names.sort();
        names
    }

    /// Whether a path leads into the project, as far as it is there. A home that is a repository as a whole is the user's.
    pub fn is_in_project(&self, path: &Path) -> bool {
        self.top.as_ref() != self.home.as_ref() && self.is_below_top(path)
    }

    /// The same also where the home is a repository as a whole: for what is run.
    pub fn is_below_top(&self, path: &Path) -> bool {
        let Some(top) = &self.top else { return false };
        path.starts_with(top) || path.canonicalize().is_ok_and(|path| path.starts_with(top))
    }

    /// Whether a file of the project that was read is where this stands.
    pub fn is_of_project(&self, source: &Source) -> bool {
        matches!(source, Source::Line { path, .. } if self.seen.borrow().contains(path))
    }

    fn project_text(&self, path: PathBuf, bytes: Vec<u8>) -> Result<Text, String> {
        let text = self.text(path, bytes)?;
        self.seen.borrow_mut().push(Arc::clone(&text.path));
        Ok(text)
    }

    fn text(&self, path: PathBuf, bytes: Vec<u8>) -> Result<Text, String> {
        let text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", shown(&path)))?;
        // In the working directory and below, as a person there writes it.
        let working = self.project.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
        let path = path.strip_prefix(working).ok().filter(|path| path.as_os_str() != OsStr::new("")).unwrap_or(&path);
        Ok(Text { path: path.into(), text })
    }
}

#[cfg(test)]
impl Around {
    /// A machine in a folder: `project/deep` in `project`, `home`, and everything else in the folder itself.
    pub fn in_folder(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let project = folder.join("project");
        Self {
            top: Some(project.clone()),
            project: vec![project.join("deep"), project],
            above: vec![folder.to_owned()],
            home: Some(folder.join("home")),
            system: folder.to_owned(),
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            seen: RefCell::default(),
        }
    }
}
