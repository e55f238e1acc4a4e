//! A file at its place, to see later whether it is still there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path, and which file it means.
#[derive(Clone, Debug)]
pub struct Place {
    pub path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl Place {
    /// What has this path now, if anything has.
    pub fn of(path: PathBuf) -> Option<Self> {
        Some(Self { file: number(&path)?, path })
    }

    /// Whether two paths mean the same file.
    pub fn is_same(&self, other: &Place) -> bool {
        self.file == other.file
    }

    /// Whether the path still means that file.
    pub fn is_kept(&self) -> bool {
        number(&self.path) == Some(self.file)
    }
}

fn number(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_not_at_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        assert!(Place::of(path.clone()).is_none());
        fs::write(&path, "").expect("own folder");
        fs::write(&other, "").expect("own folder");
        let place = Place::of(path.clone()).expect("it is there");
        assert!(place.is_kept());
        fs::write(&path, "more").expect("own folder");
        assert!(place.is_kept(), "it is the file that counts");
        fs::rename(&other, &path).expect("own folder");
        assert!(!place.is_kept());
        fs::remove_file(&path).expect("own folder");
        assert!(!place.is_kept());
    }
}
