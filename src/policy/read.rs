//! Reads a policy file, once.
//!
//! Nothing is waited for (a FIFO, a device), nothing is followed, and nothing is read twice: what is judged here are the
//! bytes that count, whatever lies at the path a moment later.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use netbox_config::PolicyFile;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use sha2::{Digest, Sha256};

use super::{Refused, shown};

/// The most bytes that a policy file may have.
pub const LARGEST: u64 = PolicyFile::LARGEST as u64;

/// A policy file as it was read.
#[derive(Debug)]
pub struct Text {
    /// Where it lies: absolute, without links.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    /// What was known of the open file.
    pub metadata: Metadata,
}

impl Text {
    /// SHA-256 of the bytes, as `sha256sum` prints it.
    pub fn digest(&self) -> String {
        hex(&Sha256::digest(&self.bytes))
    }

    /// The bytes as text.
    ///
    /// # Errors
    /// They are no UTF-8, and so no policy.
    pub fn content(&self) -> Result<String, Refused> {
        String::from_utf8(self.bytes.clone()).map_err(|_| Refused::new(format!("{} is not UTF-8", shown(&self.path))))
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opens a directory to look into it. A link is not followed.
///
/// # Errors
/// Those of open(2).
pub fn directory(path: &Path) -> nix::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty()).map(File::from)
}

/// The policy file `name` of an open directory, or nothing where there is none. `path` is its whole name, for messages.
///
/// # Errors
/// There is something, and it cannot be read, is no regular file or is too large.
pub fn at(directory: impl AsFd, name: &OsStr, path: &Path) -> Result<Option<Text>, Refused> {
    let Some((file, metadata)) = open_regular(directory, name, path)? else { return Ok(None) };
    let too_large = || {
        Refused::new(format!("{} is larger than 1 MiB", shown(path)))
            .hint("a policy file holds at most 1 MiB and 10,000 rules")
    };
    if metadata.len() > LARGEST {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    // It may grow while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| cannot(path, &error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(too_large());
    }
    Ok(Some(Text { path: path.to_owned(), bytes, metadata }))
}

/// Opens the regular file `name` of an open directory, or nothing where there is none.
///
/// # Errors
/// There is something, and it cannot be opened or is no regular file.
pub fn open_regular(directory: impl AsFd, name: &OsStr, path: &Path) -> Result<Option<(File, Metadata)>, Refused> {
    // To open a device may do something, so it is looked at before.
    let found = match fstatat(directory.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Err(Errno::ENOENT) => return Ok(None),
        other => other.map_err(|errno| cannot(path, &errno.into()))?,
    };
    let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFLNK {
        return Err(Refused::new(format!("{} is a symbolic link, and netbox does not follow one here", shown(path)))
            .hint("put the file itself there"));
    }
    regular(path, kind == SFlag::S_IFREG, || kind_of(kind))?;
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        // Removed in between.
        Err(Errno::ENOENT) => return Ok(None),
        other => File::from(other.map_err(|errno| cannot(path, &errno.into()))?),
    };
    let metadata = file.metadata().map_err(|error| cannot(path, &error))?;
    let kind = metadata.file_type();
    regular(path, kind.is_file(), || if kind.is_fifo() { "a FIFO" } else { "something else now" })?;
    Ok(Some((file, metadata)))
}

fn cannot(path: &Path, error: &std::io::Error) -> Refused {
    Refused::new(format!("cannot read {}: {error}", shown(path)))
}

fn regular(path: &Path, is_regular: bool, kind: impl Fn() -> &'static str) -> Result<(), Refused> {
    if is_regular {
        return Ok(());
    }
    Err(Refused::new(format!("{} is {}, not a regular file", shown(path), kind())).hint("put a regular file there"))
}

fn kind_of(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFDIR => "a directory",
        SFlag::S_IFIFO => "a FIFO",
        SFlag::S_IFSOCK => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::unistd::mkfifo;

    use super::*;

    fn read(folder: &Path, name: &str) -> Result<Option<Text>, Refused> {
        at(directory(folder).expect("a directory"), OsStr::new(name), &folder.join(name))
    }

    fn refusal(folder: &Path, name: &str) -> String {
        read(folder, name).expect_err(name).text
    }

    #[test]
    fn a_file_is_read_with_its_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("netbox.toml"), "allow = []\n").expect("own folder");
        let text = read(folder.path(), "netbox.toml").expect("readable").expect("there");
        assert_eq!(text.bytes, b"allow = []\n");
        assert_eq!(text.digest(), "e751eec7013b20311108e97441b4d83ddb3aacb3edf96d905edf481f52a42b14");
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read(folder.path(), "netbox.toml").expect("no error").is_none());
    }

    #[test]
    fn only_a_regular_file_is_read_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        mkfifo(&path("fifo"), Mode::S_IRWXU).expect("a FIFO");
        fs::create_dir(path("directory")).expect("own folder");
        fs::write(path("file"), "").expect("own folder");
        symlink("file", path("link")).expect("own folder");
        symlink("nowhere", path("dangling")).expect("own folder");
        let _socket = UnixListener::bind(path("socket")).expect("own folder");
        for (name, why) in [
            ("fifo", "is a FIFO, not a regular file"),
            ("directory", "is a directory, not a regular file"),
            ("link", "is a symbolic link"),
            ("dangling", "is a symbolic link"),
            ("socket", "is a socket, not a regular file"),
        ] {
            let text = refusal(folder.path(), name);
            assert!(text.contains(why) && text.contains(name), "{text}");
        }
        assert!(refusal(Path::new("/dev"), "zero").contains("is a device, not a regular file"));
    }

    #[test]
    fn a_file_is_at_most_a_mebibyte() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = File::create(folder.path().join("file")).expect("own folder");
        file.set_len(LARGEST).expect("own folder");
        assert_eq!(read(folder.path(), "file").expect("just so").expect("there").bytes.len(), 1 << 20);
        for length in [LARGEST + 1, 10 << 30] {
            file.set_len(length).expect("a sparse file");
            assert!(refusal(folder.path(), "file").contains("larger than 1 MiB"));
        }
    }
}
