//! A file of this user's that is no policy file: a certificate, a key, or the configuration of a service that is added to.

use std::fs::{Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::owner::Demand;
use super::{Refused, shell_word, shown, way};

/// A file that nobody else could have put there.
#[derive(Debug)]
pub struct OwnFile {
    /// Where it lies, without links.
    path: PathBuf,
    pub bytes: Vec<u8>,
    metadata: Metadata,
}

impl OwnFile {
    /// Reads it. The path is absolute.
    ///
    /// # Errors
    /// There is none, it cannot be read, or somebody else could have put it there.
    pub fn read(path: &Path) -> Result<Self, Refused> {
        match way::read(path, Demand::ThisCallerOrRoot)? {
            Some(text) => Ok(Self { path: text.path, bytes: text.bytes, metadata: text.metadata }),
            None => Err(Refused::new(format!("there is no file {}", shown(path)))),
        }
    }

    /// Makes sure that nobody else can read it. A group may, where the file is root's: that is how a key is lent to a service.
    ///
    /// # Errors
    /// Somebody can.
    pub fn secret(self) -> Result<Self, Refused> {
        let mode = self.metadata.mode();
        let lent = if self.metadata.uid() == 0 { 0o040 } else { 0 };
        if mode & 0o077 & !lent == 0 {
            return Ok(self);
        }
        let text = format!("{} may be read by others than its owner (mode {:04o})", shown(&self.path), mode & 0o7777);
        Err(Refused::new(text).hint(format!("close it: `chmod go= {}`", shell_word(&self.path))))
    }

    /// Puts other bytes in the place of those that were read, whole or not at all.
    ///
    /// # Errors
    /// It has changed since, or cannot be written.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), Refused> {
        if Self::read(&self.path)?.bytes != self.bytes {
            return Err(Refused::new(format!("{} has just changed, and is left as it is", shown(&self.path))));
        }
        self.write(bytes).map_err(|error| Refused::new(format!("cannot write {}: {error}", shown(&self.path))))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::Builder::new().prefix(".netbox.").tempfile_in(directory)?;
        file.write_all(bytes)?;
        let new = file.as_file().metadata()?;
        if (new.uid(), new.gid()) != (self.metadata.uid(), self.metadata.gid()) {
            fchown(file.as_file(), Some(self.metadata.uid()), Some(self.metadata.gid()))?;
        }
        file.as_file().set_permissions(Permissions::from_mode(self.metadata.mode() & 0o777))?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("own folder").join("key");
        fs::write(&path, "key").expect("own folder");
        // What belongs to root may be lent to a group.
        let is_roots = fs::metadata(&path).expect("own file").uid() == 0;
        for (mode, secret) in [(0o600, true), (0o400, true), (0o640, is_roots), (0o604, false), (0o644, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
            let read = OwnFile::read(&path).and_then(OwnFile::secret);
            assert_eq!(read.is_ok(), secret, "{mode:o}");
            if let Err(refused) = read {
                assert!(refused.text.contains("may be read by others"), "{refused}");
                assert!(refused.hint.is_some_and(|hint| hint.starts_with("close it: `chmod go= /")));
            }
        }
        let refused = OwnFile::read(&path.with_file_name("none")).expect_err("there is none");
        assert!(refused.text.starts_with("there is no file"), "{refused}");
    }

    #[test]
    fn a_file_is_replaced_only_while_it_is_what_was_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("own folder").join("config.toml");
        fs::write(&path, "before").expect("own folder");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("own file");
        let read = OwnFile::read(&path).expect("own file");
        read.replace(b"after").expect("it is still the same");
        assert_eq!(fs::read(&path).expect("own file"), b"after");
        assert_eq!(fs::metadata(&path).expect("own file").mode() & 0o777, 0o600);
        let refused = read.replace(b"again").expect_err("it has changed");
        assert!(refused.text.ends_with("has just changed, and is left as it is"), "{refused}");
        assert_eq!(fs::read(&path).expect("own file"), b"after");
    }
}
