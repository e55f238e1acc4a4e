//! Follows a path step by step, through links too, and judges every directory in which a name was looked up: whoever may
//! write there chooses what the path leads to.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::owner::{self, Demand};
use super::read::{self, Text};
use super::{Refused, shown};

/// As the kernel counts (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Reads the policy file at a path, which may be a link, or lead through some. Nothing where there is none.
///
/// # Errors
/// There is something, and it cannot be read, or somebody else could have put it there.
pub fn read(path: &Path, demand: Demand) -> Result<Option<Text>, Refused> {
    let Some(path) = follow(path, demand)? else { return Ok(None) };
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Refused::new(format!("{} is a directory, not a regular file", shown(&path))));
    };
    let handle = read::directory(directory)
        .map_err(|errno| Refused::new(format!("cannot read {}: {}", shown(&path), errno.desc())))?;
    let text = read::at(handle, name, &path)?;
    if let Some(text) = &text {
        owner::check(&path, &text.metadata, demand)?;
    }
    Ok(text)
}

/// Where an absolute path to a file or a directory leads, if nobody else chose that, or may write there.
///
/// # Errors
/// Somebody else could have.
pub fn lead(path: &Path, demand: Demand) -> Result<Option<PathBuf>, Refused> {
    let Some(path) = follow(path, demand)? else { return Ok(None) };
    let metadata = fs::symlink_metadata(&path);
    let metadata = metadata.map_err(|error| Refused::new(format!("cannot read {}: {error}", shown(&path))))?;
    let check = if metadata.is_dir() { owner::check_directory } else { owner::check };
    check(&path, &metadata, demand).map(|()| Some(path))
}

/// Where a directory lies, without links, which is this user's or root's, and in which only the owner can make entries. The
/// directories on the way are judged as those of policy files are.
///
/// # Errors
/// It is not there, or somebody else could put something in its place or in it.
pub fn directory(path: &Path, demand: Demand) -> Result<(PathBuf, Metadata), Refused> {
    let cannot = |error: io::Error| Refused::new(format!("cannot look at {}: {error}", shown(path)));
    let Some(at) = follow(path, demand)? else { return Err(cannot(io::ErrorKind::NotFound.into())) };
    let metadata = fs::symlink_metadata(&at).map_err(cannot)?;
    if !metadata.is_dir() {
        return Err(Refused::new(format!("{} is no directory", shown(&at))));
    }
    Ok((at, metadata))
}

/// Where an absolute path leads, without links. Nothing where there is none; a link that leads nowhere is an error.
fn follow(path: &Path, demand: Demand) -> Result<Option<PathBuf>, Refused> {
    let mut rest: VecDeque<OsString> = names(path).collect();
    let mut at = PathBuf::from("/");
    let mut links = 0;
    // How many of the names that are left a link has put there: one of these has to exist.
    let mut of_links: usize = 0;
    while let Some(name) = rest.pop_front() {
        let is_of_link = of_links > 0;
        of_links = of_links.saturating_sub(1);
        if name == ".." {
            at.pop();
            continue;
        }
        let cannot = |error: &io::Error| Refused::new(format!("cannot read {}: {error}", shown(path)));
        let metadata = fs::symlink_metadata(&at).map_err(|error| cannot(&error))?;
        owner::check_directory(&at, &metadata, demand)?;
        at.push(name);
        match fs::symlink_metadata(&at) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(cannot(&io::Error::from_raw_os_error(libc::ELOOP)));
                }
                let target = fs::read_link(&at).map_err(|error| cannot(&error))?;
                at.pop();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                of_links += names(&target).count();
                names(&target).rev().for_each(|name| rest.push_front(name));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_of_link => return Ok(None),
            Err(error) => return Err(cannot(&error)),
        }
    }
    Ok(Some(at))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("own folder");
        (folder, path)
    }

    fn text(path: &Path) -> Result<Option<String>, Refused> {
        let text = read(path, Demand::ThisOrRoot)?;
        Ok(text.map(|text| String::from_utf8(text.bytes).expect("text")))
    }

    #[test]
    fn links_are_followed_like_the_kernel_follows_them() {
        let (_folder, top) = folder();
        fs::create_dir_all(top.join("dotfiles/netbox")).expect("own folder");
        fs::write(top.join("dotfiles/netbox/config.toml"), "# here\n").expect("own folder");
        fs::create_dir_all(top.join("home/config")).expect("own folder");
        symlink("../../dotfiles/netbox", top.join("home/config/netbox")).expect("own folder");
        symlink(top.join("home/config/netbox/config.toml"), top.join("link")).expect("own folder");
        symlink("loop", top.join("loop")).expect("own folder");
        symlink("nowhere", top.join("dangling")).expect("own folder");
        for path in ["dotfiles/netbox/config.toml", "home/config/netbox/config.toml", "link", "home/../link"] {
            assert_eq!(text(&top.join(path)), Ok(Some("# here\n".to_owned())), "{path}");
        }
        for path in ["home/absent/config.toml", "home/config/netbox/absent.toml", "home/config/netbox/absent/x"] {
            assert_eq!(text(&top.join(path)), Ok(None), "{path}");
        }
        for path in ["loop", "dangling", "dangling/netbox/config.toml", "link/x", "home"] {
            text(&top.join(path)).expect_err(path);
        }
    }

    #[test]
    fn every_directory_on_the_way_is_judged() {
        let (_folder, top) = folder();
        for directory in ["a", "b", "c"] {
            fs::create_dir(top.join(directory)).expect("own folder");
        }
        fs::write(top.join("c/file"), "").expect("own folder");
        symlink("../c/file", top.join("b/link")).expect("own folder");
        symlink("../b/link", top.join("a/link")).expect("own folder");
        assert_eq!(text(&top.join("a/link")), Ok(Some(String::new())));
        for directory in ["a", "b", "c"] {
            fs::set_permissions(top.join(directory), Permissions::from_mode(0o777)).expect("own folder");
            let refused = text(&top.join("a/link")).expect_err("others could have put something there");
            assert!(refused.text.contains(&shown(&top.join(directory))), "{refused:?}");
            fs::set_permissions(top.join(directory), Permissions::from_mode(0o755)).expect("own folder");
        }
        fs::set_permissions(top.join("c/file"), Permissions::from_mode(0o666)).expect("own folder");
        assert!(text(&top.join("a/link")).expect_err("others could have written it").text.contains("0666"));
    }
}
