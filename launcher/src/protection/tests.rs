use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

/// The pins below the folder, by their names there.
fn pins(protected: &Protected, folder: &Path) -> Vec<String> {
    let below = protected.pins.iter().filter_map(|name| name.path.strip_prefix(folder).ok());
    below.map(|path| path.display().to_string()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn every_name_that_the_user_could_change_is_held_links_included() {
    let (_guard, folder) = folder();
    fs::create_dir_all(folder.join("dotfiles/config")).unwrap();
    fs::create_dir(folder.join("home")).unwrap();
    symlink("../dotfiles/./config", folder.join("home/.config")).unwrap();
    let protected = Protected::directory(&folder.join("home/.config/netbox"), 0o700).unwrap();
    assert_eq!(
        pins(&protected, &folder),
        ["home", "home/.config", "dotfiles", "dotfiles/config", "dotfiles/config/netbox"]
    );
    assert!(protected.is_read_only);
    let made = fs::metadata(folder.join("dotfiles/config/netbox")).unwrap();
    assert_eq!(made.mode() & 0o7777, 0o700);
}

#[test]
fn a_file_that_is_known_by_its_content_may_be_moved_with_its_directory() {
    let (_guard, folder) = folder();
    fs::create_dir(folder.join("project")).unwrap();
    fs::write(folder.join("project/netbox.toml"), "").unwrap();
    let protected = Protected::by_content(&folder.join("project/netbox.toml")).unwrap();
    assert_eq!(pins(&protected, &folder), ["project/netbox.toml"]);
}

#[test]
fn a_way_in_circles_ends() {
    let (_guard, folder) = folder();
    symlink("b", folder.join("a")).unwrap();
    symlink("a", folder.join("b")).unwrap();
    assert_eq!(Protected::in_place(&folder.join("a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    assert!(Protected::in_place(Path::new("relative")).is_err());
}

#[test]
fn a_file_in_the_way_is_held_and_a_link_that_leads_nowhere_too() {
    let (_guard, folder) = folder();
    fs::write(folder.join("file"), "").unwrap();
    symlink("/nonexistent/netbox", folder.join("link")).unwrap();
    let protected = Protected::directory(&folder.join("file/netbox"), 0o700).unwrap();
    assert_eq!((pins(&protected, &folder), protected.is_read_only), (vec!["file".to_owned()], false));
    if !nix::unistd::geteuid().is_root() {
        let protected = Protected::directory(&folder.join("link"), 0o700).unwrap();
        assert_eq!((pins(&protected, &folder), protected.is_read_only), (vec!["link".to_owned()], false));
    }
}

#[test]
fn what_cannot_be_made_and_could_be_by_the_command_is_an_error() {
    if nix::unistd::geteuid().is_root() {
        // Nothing is closed to root; the end-to-end tests run as a user.
        return;
    }
    let (_guard, folder) = folder();
    fs::set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
    let own = Protected::directory(&folder.join("netbox"), 0o700).map(drop);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(own.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    let foreign = Protected::directory(Path::new("/nonexistent/.config/netbox"), 0o700).unwrap();
    assert!(foreign.pins.is_empty());
}

#[test]
fn a_file_with_another_name_is_known() {
    let (_guard, folder) = folder();
    fs::write(folder.join("one"), "").unwrap();
    let has_others = || Protected::in_place(&folder.join("one")).unwrap().has_other_names();
    assert!(!has_others());
    fs::hard_link(folder.join("one"), folder.join("other")).unwrap();
    assert!(has_others());
}

#[test]
fn in_a_sticky_directory_only_ones_own_can_be_moved() {
    let (_guard, folder) = folder();
    let way = Way::follow(&folder).unwrap();
    let own = way.names.last().unwrap();
    // The folder lies in a directory for everybody, and is this user's.
    assert!(own.is_movable, "{own:?}");
    let tmp = way.names.iter().find(|name| name.mode & libc::S_ISVTX != 0).expect("it is sticky");
    let foreign = Way::follow(&tmp.path).unwrap();
    assert_eq!(foreign.names.last().unwrap().is_movable, nix::unistd::geteuid().is_root());
}
