//! The policy files of a run: where they are found, how they are read, and whether they count.
//!
//! Theory of operation. A program that ran in a sandbox, or whoever wrote the repository that was cloned, may have put
//! any bytes at any name below the project, and would like the next run to reach more. So:
//!
//! 1. **Find** ([`find`]): upward from the working directory to the root of the repository, and no further.
//! 2. **Read once** ([`read`]): a regular file of at most 1 MiB, opened without following a link or waiting for anybody.
//!    The bytes that are hashed are those that are shown and those that are parsed.
//! 3. **Trust** ([`trust`]): the project's file counts if these bytes at this place were accepted before ([`store`]), if
//!    their digest was given on the command line, or if they are proved to allow nothing more. Else the person is
//!    asked ([`ask`]), and without a person netbox refuses to run.
//!
//! The user's and the system's files count as they are, so nobody else may be able to write them ([`owner`]). A file
//! that is there and cannot be used is an error, never an absent file.

mod ask;
mod change;
mod command;
mod derived;
pub mod diff;
mod effective;
mod excerpt;
mod expanded;
mod find;
mod layers;
mod lint;
mod load;
mod own_file;
mod owner;
pub mod places;
mod presets;
mod read;
mod rewrite;
mod shell;
mod show;
mod store;
mod trust;
mod way;

use std::fmt::{self, Display};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use owner::Demand;

pub use ask::Terminal;
pub use command::{trust, untrust};
pub use effective::{Effective, UsedFile};
pub use layers::Layers;
pub use lint::lint;
pub use load::{Asking, load};
pub use own_file::OwnFile;
pub use presets::presets;
pub use rewrite::Rewrite;
pub use shell::shell_word;
pub use show::show;

/// Why there is no policy to run with, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub text: String,
    pub hint: Option<String>,
    /// Whether what was typed is at fault, and not a file.
    pub is_usage: bool,
}

impl Refused {
    /// Without a remedy.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None, is_usage: false }
    }

    /// What was typed is at fault.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { is_usage: true, ..Self::new(text) }
    }

    /// With this remedy.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With this remedy beside the one that there may be.
    pub fn or_hint(self, hint: &str) -> Self {
        let hint = self.hint.map_or_else(|| hint.to_owned(), |first| format!("{first}; or {hint}"));
        Self { hint: Some(hint), ..self }
    }
}

impl Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Where a directory lies, without links, which is this user's or root's, and in which nobody else can make entries.
///
/// # Errors
/// It is not there, or somebody else could put something in its place or in it.
pub fn directory_of_own(path: &Path) -> Result<PathBuf, Refused> {
    let (path, metadata) = way::directory(path, Demand::ThisOrRoot)?;
    owner::check(&path, &metadata, Demand::ThisOrRoot)?;
    Ok(path)
}

/// Where a directory lies, without links, and who owns it: somebody who got that place from root or this user, and who alone
/// can make entries in it.
///
/// # Errors
/// It is not there, or somebody else could put something in its place or in it.
pub fn directory_of_one(path: &Path) -> Result<(PathBuf, u32), Refused> {
    let (path, metadata) = way::directory(path, Demand::ThisOrRoot)?;
    owner::check_closed(&path, &metadata)?;
    Ok((path, metadata.uid()))
}

/// A path in a message.
pub fn shown(path: &Path) -> String {
    netbox_config::quote(path.as_os_str().as_encoded_bytes()).to_string()
}
