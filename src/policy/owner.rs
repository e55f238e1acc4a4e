//! Whose a file or a directory is, and who else may write to it.
//!
//! A user namespace shows everybody who is not mapped in it as one overflow user. Where root is not mapped (in bwrap, in
//! a sandbox of netbox's own), what is root's looks like that and counts as root's: whoever it is, it is not this user.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Group, Uid, User, geteuid};

use super::{Refused, shell_word, shown};

/// Whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user as whom netbox runs.
    This,
    /// The user who became root by `sudo`.
    Caller,
    Root,
    Other(u32),
}

impl Owner {
    /// The owner of what has this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let uid = metadata.uid();
        if uid == geteuid().as_raw() {
            Self::This
        } else if uid == 0 || (uid == overflow_user() && !is_root_mapped()) {
            Self::Root
        } else if geteuid().is_root() && std::env::var("SUDO_UID").is_ok_and(|text| text == uid.to_string()) {
            Self::Caller
        } else {
            Self::Other(uid)
        }
    }
}

/// Who may own a file that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The system's file.
    Root,
    /// The user's own file, which nobody is asked about.
    ThisOrRoot,
    /// A file that was named, or whose content is trusted.
    ThisCallerOrRoot,
}

impl Demand {
    /// Whether an owner is one of those.
    pub fn is_met_by(self, owner: Owner) -> bool {
        match owner {
            Owner::Root => true,
            Owner::This => self != Self::Root || geteuid().is_root(),
            Owner::Caller => self == Self::ThisCallerOrRoot,
            Owner::Other(_) => false,
        }
    }
}

/// Whether others than the owner may write there. A group that is the owner's alone is nobody else.
pub fn is_open_to_others(metadata: &Metadata) -> bool {
    metadata.mode() & 0o002 != 0 || (metadata.mode() & 0o020 != 0 && !is_private_group(metadata))
}

/// Whether others may make entries in a directory, but not replace those of its users: `/tmp`.
pub fn is_shared(metadata: &Metadata) -> bool {
    metadata.mode() & libc::S_ISVTX != 0 && is_open_to_others(metadata)
}

/// Judges a file, or a directory, by what is known of it.
///
/// # Errors
/// It belongs to somebody else, or others may write to it.
pub fn check(path: &Path, metadata: &Metadata, demand: Demand) -> Result<(), Refused> {
    check_owner(path, Owner::of(metadata), demand)?;
    check_closed(path, metadata)
}

/// Judges who may write there.
///
/// # Errors
/// Others than the owner may.
pub fn check_closed(path: &Path, metadata: &Metadata) -> Result<(), Refused> {
    if is_open_to_others(metadata) {
        let text = format!(
            "{} may be written to by others than its owner (mode {:04o})",
            shown(path),
            metadata.mode() & 0o7777
        );
        // `/tmp` is meant to be open.
        let hint = match is_shared(metadata) {
            true => "take a directory of your own".to_owned(),
            false => format!("close it: `chmod go-w {}`", shell_word(path)),
        };
        return Err(Refused::new(text).hint(hint));
    }
    Ok(())
}

fn check_owner(path: &Path, owner: Owner, demand: Demand) -> Result<(), Refused> {
    if demand.is_met_by(owner) {
        return Ok(());
    }
    let text = match (demand, owner) {
        (Demand::Root, _) => format!("{} does not belong to root", shown(path)),
        (_, Owner::Other(uid)) => format!("{} belongs to another user ({})", shown(path), name_of(uid)),
        _ => format!("{} belongs to the user who called sudo", shown(path)),
    };
    Err(Refused::new(text))
}

/// Judges one directory: in one that is shared, nobody can replace what is another's.
///
/// # Errors
/// As [`check`].
pub fn check_directory(path: &Path, metadata: &Metadata, demand: Demand) -> Result<(), Refused> {
    if is_shared(metadata) { check_owner(path, Owner::of(metadata), demand) } else { check(path, metadata, demand) }
}

/// The usual group of a user's own (`alice:alice`), with which `umask 002` is safe.
fn is_private_group(metadata: &Metadata) -> bool {
    let owner = User::from_uid(Uid::from_raw(metadata.uid())).ok().flatten();
    let group = Group::from_gid(metadata.gid().into()).ok().flatten();
    owner.zip(group).is_some_and(|(owner, group)| {
        owner.gid == group.gid && owner.name == group.name && group.mem.iter().all(|member| *member == owner.name)
    })
}

fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| netbox_config::quote(user.name.as_bytes()).to_string())
}

/// proc(5): `/proc/sys/fs/overflowuid`.
fn overflow_user() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65534)
}

/// Whether this user namespace knows root (user_namespaces(7)).
fn is_root_mapped() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // Where it cannot be read, nothing more is trusted.
    map.is_empty() || map.lines().any(|line| line.split_whitespace().next() == Some("0"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn with_mode(mode: u32) -> (tempfile::TempDir, Metadata) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("own folder");
        let metadata = fs::metadata(folder.path()).expect("own folder");
        (folder, metadata)
    }

    #[test]
    fn who_else_may_write_is_seen() {
        for (mode, open, shared) in [
            (0o755, false, false),
            (0o700, false, false),
            (0o757, true, false),
            (0o1777, true, true),
            (0o1755, false, false),
        ] {
            let (_folder, metadata) = with_mode(mode);
            assert_eq!((is_open_to_others(&metadata), is_shared(&metadata)), (open, shared), "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_to_is_refused_with_the_remedy() {
        let (folder, metadata) = with_mode(0o707);
        let refused = check(folder.path(), &metadata, Demand::ThisOrRoot).expect_err("others may write");
        assert!(refused.text.contains("0707"), "{refused:?}");
        assert!(refused.hint.is_some_and(|hint| hint.starts_with("close it: `chmod go-w /")));
    }

    #[test]
    fn only_root_owns_the_systems_file() {
        for (owner, root, this, caller) in [
            (Owner::Root, true, true, true),
            (Owner::Caller, false, false, true),
            (Owner::Other(4321), false, false, false),
        ] {
            let demands = [Demand::Root, Demand::ThisOrRoot, Demand::ThisCallerOrRoot];
            assert_eq!(demands.map(|demand| demand.is_met_by(owner)), [root, this, caller], "{owner:?}");
        }
        assert_eq!(Demand::Root.is_met_by(Owner::This), geteuid().is_root());
        assert!(Demand::ThisOrRoot.is_met_by(Owner::This));
    }

    #[test]
    fn a_foreign_file_is_named_with_its_owner() {
        let refused =
            check_owner(Path::new("/p/netbox.toml"), Owner::Other(4_200_000), Demand::ThisOrRoot).expect_err("foreign");
        assert_eq!(refused.text, "`/p/netbox.toml` belongs to another user (uid 4200000)");
    }
}
