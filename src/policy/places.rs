//! Where the files of the user and of the system lie.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use nix::unistd::{User, geteuid};

/// The system's policy file.
pub const SYSTEM: &str = "/etc/netbox/config.toml";

/// Where it lies.
pub const SYSTEM_DIRECTORY: &str = "/etc/netbox";

/// The user's configuration: `$XDG_CONFIG_HOME/netbox`, or `~/.config/netbox`.
pub fn configuration() -> Option<PathBuf> {
    below("XDG_CONFIG_HOME", ".config")
}

/// What netbox remembers: `$XDG_STATE_HOME/netbox`, or `~/.local/state/netbox`.
pub fn state() -> Option<PathBuf> {
    below("XDG_STATE_HOME", ".local/state")
}

/// Both, as the environment says; and the usual ones if something is there, since another run may go by these.
pub fn all() -> Vec<PathBuf> {
    let usual = |folder: &str| home().map(|home| home.join(folder).join("netbox"));
    let usual = [usual(".config"), usual(".local/state")].into_iter().flatten();
    let there = usual.filter(|path| fs::symlink_metadata(path).is_ok());
    let mut all: Vec<_> = [configuration(), state()].into_iter().flatten().chain(there).collect();
    all.sort();
    all.dedup();
    all
}

fn below(variable: &str, usual: &str) -> Option<PathBuf> {
    Some(absolute(variable).or_else(|| home().map(|home| home.join(usual)))?.join("netbox"))
}

/// As the XDG base directory specification says: a variable with a relative path is one that is not set.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The user's home.
pub fn home() -> Option<PathBuf> {
    absolute("HOME").or_else(|| Some(User::from_uid(geteuid()).ok()??.dir))
}

/// Whether something lies at a path, if only a link that leads nowhere.
///
/// What would be behind something of somebody else's, a directory that is closed to this user or what is no directory, is
/// nothing of this user's: HOME may be root's, or `/dev/null`.
///
/// # Errors
/// It cannot be told.
pub fn is_there(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The nearest thing above that is there may be such a link.
            let above = path.ancestors().skip(1).find_map(|above| fs::symlink_metadata(above).ok());
            Ok(above.is_some_and(|above| above.is_symlink()))
        }
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotADirectory) => {
            // The deepest that can be looked at is what is closed, or is no directory.
            let end = path.ancestors().skip(1).find_map(|above| fs::metadata(above).ok());
            if end.is_some_and(|end| end.uid() != geteuid().as_raw()) { Ok(false) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        symlink("nowhere", path("link")).expect("own folder");
        fs::create_dir(path("real")).expect("own folder");
        for (name, there) in [
            ("link", true),
            ("link/netbox/config.toml", true),
            ("real/netbox/config.toml", false),
            ("absent/netbox/config.toml", false),
            ("real", true),
        ] {
            assert_eq!(is_there(&path(name)).expect(name), there, "{name}");
        }
        fs::write(path("file"), "").expect("own folder");
        assert!(is_there(&path("file/config.toml")).is_err(), "no directory");
    }
}
