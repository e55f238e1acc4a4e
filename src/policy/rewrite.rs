//! The project's file, written anew: what `netbox learn` does, once a person has agreed to it.
//!
//! The file is replaced whole, by a temporary file and rename(2), and only where it still is what was read before the
//! command ran: the command, or somebody else, may have written there in the meantime. What is trusted afterwards is the
//! text that was agreed to, and of other files of the project what had been trusted before: the command may have changed
//! those as well.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use netbox_config::{Layer, PolicyFile};

use super::effective::Standing;
use super::find::{self, Place};
use super::owner::{self, Demand};
use super::store::{Record, Store};
use super::{Effective, Refused, command, read, shown};

/// A policy file that is to be written.
#[derive(Debug)]
pub struct Rewrite {
    /// Where it lies, or will: absolute, without links.
    pub path: PathBuf,
    /// What it holds; nothing where there is none yet.
    pub before: Option<String>,
    /// Whether all that it holds is trusted.
    is_trusted: bool,
    /// Whether trust is a matter at all: not in a file that is named.
    is_projects: bool,
    mode: u32,
}

impl Rewrite {
    /// The file that counts in the project's place, or a new one: at the root of the repository around the working
    /// directory, or in it where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is another already. Or this is inside a sandbox.
    pub fn of(effective: &Effective) -> Result<Self, Refused> {
        command::refuse_inside()?;
        let used = effective.files.iter().find(|used| used.layer == Layer::Project);
        let path = match used {
            Some(used) => used.path.clone(),
            None => {
                let working = std::env::current_dir();
                let working = working.map_err(|error| Refused::new(format!("no working directory: {error}")))?;
                let place = Place::around(&working)?;
                let directory = place.root.unwrap_or(place.working);
                let cannot =
                    |error: io::Error| Refused::new(format!("cannot look into {}: {error}", shown(&directory)));
                // A file there would not count.
                let metadata = fs::metadata(&directory).map_err(cannot)?;
                owner::check_directory(&directory, &metadata, Demand::ThisCallerOrRoot)?;
                directory.join(find::NAME)
            }
        };
        let mut rewrite = Self { path, before: None, is_trusted: true, is_projects: true, mode: 0o644 };
        let found = rewrite.read()?;
        if found.as_ref().map(read::Text::digest) != used.map(|used| used.digest.clone()) {
            return Err(Refused::new(format!("{} has just changed", shown(&rewrite.path))));
        }
        if let (Some(text), Some(used)) = (found, used) {
            rewrite.before = Some(text.content()?);
            rewrite.is_trusted = used.standing == Standing::Trusted;
            rewrite.is_projects = used.standing != Standing::Named;
            rewrite.mode = text.metadata.permissions().mode() & 0o777;
        }
        Ok(rewrite)
    }

    /// Whether writing it can also trust it, where only what is new is shown.
    pub fn is_known(&self) -> bool {
        self.is_trusted || !self.is_projects
    }

    /// Writes the text.
    ///
    /// # Errors
    /// The file has changed since it was read, or cannot be written. Or the text is no policy.
    pub fn write(&self, text: &str) -> Result<(), Refused> {
        let what = || Refused::new(format!("what would be written to {} is no policy", shown(&self.path)));
        PolicyFile::parse(Layer::Project, &self.path, text.as_bytes()).map_err(|_| what())?;
        let now = self.read()?.map(|text| text.bytes);
        if now.as_deref() != self.before.as_ref().map(String::as_bytes) {
            let text = format!("{} was changed while the command ran, and is left as it is", shown(&self.path));
            return Err(Refused::new(text).hint("look at it, and run `netbox learn` again"));
        }
        self.replace(text).map_err(|error| Refused::new(format!("cannot write {}: {error}", shown(&self.path))))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let directory = self.directory();
        let mut file = tempfile::Builder::new().prefix(".netbox.toml.").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(Permissions::from_mode(self.mode))?;
        file.as_file().sync_all()?;
        match &self.before {
            Some(_) => file.persist(&self.path).map_err(|error| error.error)?,
            // One that has just been made by somebody else stays.
            None => file.persist_noclobber(&self.path).map_err(|error| error.error)?,
        };
        Ok(())
    }

    /// Trusts the text that was written and agreed to.
    ///
    /// # Errors
    /// It cannot be remembered.
    pub fn trust(&self, text: &str) -> Result<(), Refused> {
        if !self.is_projects {
            return Ok(());
        }
        let store = Store::of_user();
        let place = self.directory().to_owned();
        let derived = store.record(&place)?.map(|record| record.derived).unwrap_or_default();
        store.write(&Record { place, content: Some(text.to_owned()), derived })
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn read(&self) -> Result<Option<read::Text>, Refused> {
        let directory = self.directory();
        let cannot =
            |errno: nix::errno::Errno| Refused::new(format!("cannot read {}: {}", shown(directory), errno.desc()));
        let name = self.path.file_name().unwrap_or(OsStr::new(find::NAME));
        read::at(read::directory(directory).map_err(cannot)?, name, &self.path)
    }
}
