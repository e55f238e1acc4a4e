//! What is wrong with policy files: a file that is there and cannot be used is an error, never an absent file.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::project::{FILE, Project, text};
use crate::tests;
use crate::themes::policy_files::{RAN, refused};
use crate::world::World;

tests![
    a_bad_project_file_is_an_error_with_its_place needs [],
    a_bad_user_file_is_an_error_with_its_place needs [],
    what_is_no_readable_file_is_an_error needs [],
    what_others_could_have_written_is_an_error needs [],
    a_home_of_somebody_else_holds_no_file_of_the_user needs [],
];

/// Files that are wrong, and what is said of them behind their name.
const BAD: [(&[u8], &str); 17] = [
    (b"allow = [", ":1:"),
    (b"not a policy", ":1:"),
    (b"# x\nalow = [\"a.example.com\"]\n", ":2:1: `alow`"),
    (b"allow = []\nallow = []\n", ":2:1: "),
    (b"allow = \"a.example.com\"\n", ":1:"),
    (b"allow = [1]\n", ":1:"),
    (b"mode = \"loud\"\n", ":1:"),
    (b"version = 2\n", ":1:"),
    (b"allow = [\"https://a.example.com/\"]\n", ":1:"),
    (b"allow = [\n  \"a.example.com\",\n  \"*.com\",\n]\n", ":3:"),
    (b"allow = [\"@nothing\"]\n", ":1:"),
    (b"[preset.a]\nallow = [\"@b\"]\n[preset.b]\nallow = [\"@a\"]\n", ":"),
    (b"listen = \"127.0.0.1:1\"\n", ":1:1: "),
    (b"allow = [\"a.example.com\0\"]\n", ":1:"),
    (b"# \0\n", ":1:"),
    (b"# \xff\xfe\nallow = []\n", ":1:"),
    (b"allow = [\"a.example.com\"]\n[profile.x]\nport = 1\n", ":3:1: "),
];

fn a_bad_project_file_is_an_error_with_its_place(world: &World) {
    let project = Project::new(world);
    for (bytes, place) in BAD {
        project.write(FILE, bytes);
        refused(&project, &[], &format!("netbox.toml{place}"));
        refused(&project, &["--config", FILE], &format!("netbox.toml{place}"));
        project.netbox(&["--no-config"]).exec(&RAN).exits_with(0).says("it ran");
    }
    project.write(FILE, "ceiling = [\"*.example.com\"]\n");
    refused(&project, &[], "netbox.toml:1:1: ");
    let many = |count: usize| format!("allow = [{}]\n", "\"a.example.com\",".repeat(count));
    project.write(FILE, many(100_000));
    refused(&project, &[], "larger than 1 MiB");
    project.write(FILE, many(10_001));
    refused(&project, &[], "10000 rules");
    project.write(FILE, many(10_000));
    project.netbox(&["--config", FILE]).exec(&RAN).exits_with(0).says("it ran");
}

fn a_bad_user_file_is_an_error_with_its_place(world: &World) {
    let mut project = Project::new(world);
    for (bytes, place) in BAD {
        let Ok(text) = std::str::from_utf8(bytes) else { continue };
        // A ceiling is the user's to set, and so these are the errors of the file itself.
        project = project.and_user(text);
        refused(&project, &[], &format!("config.toml{place}"));
        project.netbox(&["--no-config"]).exec(&RAN).exits_with(0).says("it ran");
    }
    project.and_user("ceiling = [\"*.example.com\"]\n").netbox(&[]).exec(&RAN).exits_with(0);
}

type Making = dyn Fn(&Project<'_>);

fn what_is_no_readable_file_is_an_error(world: &World) {
    let fifo = |project: &Project<'_>| mkfifo(&project.path(FILE), Mode::S_IRWXU).expect("own folder");
    let folder = |project: &Project<'_>| fs::create_dir(project.path(FILE)).expect("own folder");
    let sparse = |project: &Project<'_>| {
        File::create(project.path(FILE)).and_then(|file| file.set_len(10 << 30)).expect("a sparse file");
    };
    let endless = |project: &Project<'_>| symlink("/dev/zero", project.path(FILE)).expect("own folder");
    let looped = |project: &Project<'_>| symlink(FILE, project.path(FILE)).expect("own folder");
    let make: [(&Making, &str, &str); 5] = [
        (&fifo, "is a FIFO, not a regular file", "is a FIFO, not a regular file"),
        (&folder, "is a directory, not a regular file", "is a directory, not a regular file"),
        (&sparse, "larger than 1 MiB", "larger than 1 MiB"),
        (&endless, "is a symbolic link", "is a device, not a regular file"),
        (&looped, "is a symbolic link", "Too many levels of symbolic links"),
    ];
    for (make, found, named) in make {
        let project = Project::new(world);
        make(&project);
        refused(&project, &[], found);
        refused(&project, &["--config", FILE], named);
        // The same thing as the user's file.
        let user = Project::new(world).and_user("");
        let place = user.home.join(".config/netbox/config.toml");
        fs::remove_file(&place).expect("own folder");
        fs::rename(project.path(FILE), &place).expect("own folder");
        let outcome = user.netbox(&[]).exec(&RAN);
        outcome.exits_with(125).complains("--no-config");
    }
    let project = Project::with(world, "").and_user("");
    for path in [project.path(FILE), project.home.join(".config/netbox/config.toml"), project.home.join(".config")] {
        let before = fs::metadata(&path).expect("own folder").permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("own folder");
        if world.identity.real_root {
            // Nothing is closed to root.
            project.netbox(&[]).exec(&RAN).exits_with(0);
        } else {
            refused(&project, &[], "Permission denied");
        }
        fs::set_permissions(&path, before).expect("own folder");
    }
    project.netbox(&[]).exec(&RAN).exits_with(0);
}

fn what_others_could_have_written_is_an_error(world: &World) {
    let project = Project::with(world, "deny = [\"a.example.com\"]\n").and_user("allow = [\"a.example.com\"]\n");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    for (path, flags) in [
        (project.path(FILE), &[][..]),
        (project.path(FILE), &["--config", FILE]),
        (project.folder.clone(), &[]),
        (project.home.join(".config/netbox/config.toml"), &[]),
        (project.home.join(".config/netbox"), &[]),
        (project.home.join(".config"), &[]),
    ] {
        let before = fs::metadata(&path).expect("own folder").permissions();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("own folder");
        refused(&project, flags, "by others than its owner (mode 0777)");
        project.netbox(flags).exec(&RAN).complains(&format!("`chmod go-w {}`", text(&path)));
        fs::set_permissions(&path, before).expect("own folder");
    }
    if world.identity.real_root {
        somebody_elses_are_errors(&project);
    }
    // A group of the user's own is nobody else: with umask 002 every file is like that.
    fs::set_permissions(project.path(FILE), Permissions::from_mode(0o664)).expect("own folder");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    project.netbox(&["--config", FILE]).exec(&RAN).exits_with(0);
}

/// Root alone can give files away.
fn somebody_elses_are_errors(project: &Project<'_>) {
    const SOMEBODY: u32 = 12_345;
    let give = |path: &Path, to: u32| chown(path, Some(to), Some(to)).expect("root gives away");
    for (path, flags) in [
        (project.path(FILE), &[][..]),
        (project.path(FILE), &["--config", FILE]),
        (project.folder.clone(), &[]),
        (project.home.join(".config/netbox/config.toml"), &[]),
    ] {
        give(&path, SOMEBODY);
        refused(project, flags, "belongs to another user (uid 12345)");
        // Who became root by sudo is no other; but the user's own file is root's alone.
        let outcome = project.netbox(flags).env("SUDO_UID", SOMEBODY.to_string()).exec(&RAN);
        outcome.exits_with(if path.ends_with("config.toml") { 125 } else { 0 });
        give(&path, 0);
    }
    // A group with others in it.
    let file = project.path(FILE);
    chown(&file, Some(0), Some(SOMEBODY)).expect("root gives away");
    project.netbox(&[]).exec(&RAN).exits_with(0);
    fs::set_permissions(&file, Permissions::from_mode(0o664)).expect("own folder");
    refused(project, &[], "by others than its owner (mode 0664)");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("own folder");
    give(&file, 0);
    // The way up ends where it would lead into somebody else's folders.
    fs::create_dir(project.path("below")).expect("own folder");
    let denied = |code: i32| {
        let words = ["check", "a.example.com"];
        project.words().folder(&project.path("below")).exec(&words).exits_with(code);
    };
    denied(1);
    give(&project.folder, SOMEBODY);
    denied(0);
    give(&project.folder, 0);
}

fn a_home_of_somebody_else_holds_no_file_of_the_user(world: &World) {
    // As after a change of user that left HOME as it was. Root's own would be root's.
    let home = if world.identity.real_root { "/nonexistent" } else { "/root" };
    let project = Project::with(world, "");
    project.netbox(&[]).env("HOME", home).exec(&RAN).exits_with(0).says("it ran");
}
