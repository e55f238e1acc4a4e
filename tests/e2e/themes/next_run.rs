//! What decides later runs: the user's policy files, what netbox remembers, and netbox itself. The command can neither
//! write them nor put something in their place.
//!
//! Each attack is tried bare first, where it succeeds; then under netbox, in a home folder that is made alike. It has
//! failed if what a later run would find is what was there before.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

use crate::programs::{PYTHON, own};
use crate::run::{Run, eventually};
use crate::tests;
use crate::world::World;

tests![
    a_policy_file_cannot_be_changed needs [],
    a_policy_file_cannot_be_replaced needs [],
    no_directory_on_the_way_can_be_replaced needs [],
    nothing_can_be_exchanged_in_one_step needs [PYTHON],
    permissions_times_and_attributes_stay needs [PYTHON],
    what_netbox_remembers_cannot_be_changed needs [],
    what_is_missing_cannot_be_made needs [],
    links_on_the_way_cannot_be_replaced needs [],
    a_name_of_the_file_elsewhere_is_refused needs [],
    the_same_directory_at_another_mount_cannot_be_changed needs [],
    a_namespace_inside_takes_no_mount_off needs [],
    a_namespace_without_the_mounts_ends_the_run_and_changes_nothing needs [PYTHON],
    nothing_starts_where_another_run_has_found_something_else needs [PYTHON],
    a_named_policy_file_that_was_replaced_is_told_of needs [PYTHON],
    the_end_of_a_run_uncovers_nothing needs [PYTHON],
    an_empty_directory_that_is_removed_there_is_made_again needs [PYTHON],
    who_replaces_netbox_from_outside_is_told_and_goes_on needs [],
    the_places_are_those_that_the_environment_names needs [],
    netbox_itself_cannot_be_replaced needs [],
    the_link_that_netbox_was_called_by_cannot_be_replaced needs [],
    a_home_that_cannot_be_written_to_holds_nothing_up needs [],
    a_directory_that_the_command_could_make_and_netbox_cannot_is_an_error needs [],
    files_are_moved_into_the_directories_on_the_way needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];
const POLICY: &str = "# mine\n";

/// A home folder with a policy file and something that is remembered.
fn home(world: &World) -> PathBuf {
    let home = world.fresh_path("home");
    for (folder, file) in [(".config/netbox", "config.toml"), (".local/state/netbox", "trusted")] {
        fs::create_dir_all(home.join(folder)).expect("own folder");
        fs::write(home.join(folder).join(file), POLICY).expect("own folder");
    }
    home
}

/// What a later run would read.
fn policy(home: &Path) -> Option<String> {
    fs::read_to_string(home.join(".config/netbox/config.toml")).ok()
}

fn is_whole(home: &Path) -> bool {
    let remembered = fs::read_to_string(home.join(".local/state/netbox/trusted"));
    policy(home).as_deref() == Some(POLICY) && remembered.is_ok_and(|text| text == POLICY)
}

/// A script that changes what later runs find, if nothing stands before it, and that tries on where it fails.
fn attack(world: &World, script: &str) {
    attack_with(world, script, &home, &is_whole);
}

fn attack_with(world: &World, script: &str, make: &dyn Fn(&World) -> PathBuf, is_whole: &dyn Fn(&Path) -> bool) {
    let run = |run: Run<'_>, home: &Path| run.env("HOME", home).folder(home).exec(&["sh", "-c", script]);
    let bare = make(world);
    assert!(is_whole(&bare), "before");
    let outcome = run(world.bare(), &bare);
    assert!(!is_whole(&bare), "the attack works without netbox: {outcome}");
    let own = make(world);
    let outcome = run(world.netbox(&FLAGS), &own);
    // The script has run, and the last that it says is this.
    outcome.says("tried");
    assert!(is_whole(&own), "{outcome}");
}

fn a_policy_file_cannot_be_changed(world: &World) {
    for script in [
        "echo evil >> ~/.config/netbox/config.toml; echo tried",
        "(: > ~/.config/netbox/config.toml); echo tried",
        "cd ~/.config/netbox; echo evil > config.toml; echo tried",
        "echo evil > /proc/self/root$HOME/.config/netbox/config.toml; echo tried",
        "truncate -s 0 ~/.config/netbox/config.toml; echo tried",
        "ln ~/.config/netbox/config.toml ~/link; echo evil > ~/link; echo tried",
        "ln ~/.config/netbox/config.toml ~/.config/link; echo evil > ~/.config/link; echo tried",
    ] {
        attack(world, script);
    }
}

fn a_policy_file_cannot_be_replaced(world: &World) {
    for script in [
        "rm -f ~/.config/netbox/config.toml; echo tried",
        "rm -rf ~/.config/netbox; echo tried",
        "mv ~/.config/netbox/config.toml ~/gone; echo tried",
        "echo evil > ~/new; mv -f ~/new ~/.config/netbox/config.toml; echo tried",
        "echo evil > ~/.config/new; mv -f ~/.config/new ~/.config/netbox/config.toml; echo tried",
        "ln -sf /etc/passwd ~/.config/netbox/config.toml; echo tried",
    ] {
        attack(world, script);
    }
}

fn no_directory_on_the_way_can_be_replaced(world: &World) {
    for (moved, made) in [
        (".config/netbox", ".config/netbox"),
        (".config", ".config/netbox"),
        (".local/state/netbox", ".local/state/netbox"),
        (".local/state", ".local/state/netbox"),
        (".local", ".local/state/netbox"),
    ] {
        attack(world, &format!("mv ~/{moved} ~/gone; mkdir -p ~/{made}; echo tried"));
    }
    // And the home folder itself.
    let inside = |world: &World| {
        let home = home(world);
        let inner = home.join("inner");
        fs::create_dir(&inner).expect("own folder");
        for name in [".config", ".local"] {
            fs::rename(home.join(name), inner.join(name)).expect("own folder");
        }
        inner
    };
    attack_with(world, "cd ..; mv ~ \"$HOME.gone\"; mkdir -p ~/.config/netbox; echo tried", &inside, &is_whole);
}

/// renameat2(2), RENAME_EXCHANGE.
fn nothing_can_be_exchanged_in_one_step(world: &World) {
    for name in [".config", ".config/netbox", ".config/netbox/config.toml"] {
        let script = format!(
            "mkdir -p ~/new/netbox; python3 -c '
import ctypes, os, sys
number = {{\"x86_64\": 316, \"aarch64\": 276}}[os.uname().machine]
one, other = [os.path.expanduser(name).encode() for name in sys.argv[1:]]
ctypes.CDLL(None).syscall(number, -100, one, -100, other, 2)
' ~/new ~/{name}; echo tried"
        );
        attack(world, &script);
    }
}

fn permissions_times_and_attributes_stay(world: &World) {
    let state = |home: &Path| {
        let state = |path: &str| {
            let file = fs::metadata(home.join(path)).expect("it is there");
            (file.mode(), file.mtime(), file.ctime(), file.ctime_nsec())
        };
        (state(".config/netbox"), state(".config/netbox/config.toml"))
    };
    for script in [
        "chmod 777 ~/.config/netbox ~/.config/netbox/config.toml",
        "touch -d 2001-01-01 ~/.config/netbox/config.toml",
        "python3 -c 'import os, sys; os.setxattr(sys.argv[1], \"user.a\", b\"b\")' ~/.config/netbox/config.toml",
    ] {
        for (run, stays) in [(world.bare(), false), (world.netbox(&FLAGS), true)] {
            let home = home(world);
            let before = state(&home);
            let outcome = run.env("HOME", &home).exec(&["sh", "-c", script]);
            assert_eq!(state(&home) == before, stays, "{outcome}");
        }
    }
}

fn what_netbox_remembers_cannot_be_changed(world: &World) {
    for script in [
        "echo evil > ~/.local/state/netbox/trusted; echo tried",
        "rm -f ~/.local/state/netbox/trusted; echo tried",
        "rm -rf ~/.local; echo tried",
    ] {
        attack(world, script);
    }
}

/// A file that is put where none was is a file that decides.
fn what_is_missing_cannot_be_made(world: &World) {
    let empty = |world: &World| {
        let home = world.fresh_path("home");
        fs::create_dir(&home).expect("own folder");
        home
    };
    let is_whole = |home: &Path| {
        let is_missing = |path: &str| fs::symlink_metadata(home.join(path)).is_err();
        is_missing(".config/netbox/config.toml") && is_missing(".local/state/netbox/trusted")
    };
    for script in [
        "mkdir -p ~/.config/netbox; echo evil > ~/.config/netbox/config.toml; echo tried",
        "mkdir -p ~/.local/state/netbox; echo evil > ~/.local/state/netbox/trusted; echo tried",
        "mkdir -p ~/evil/netbox; echo evil > ~/evil/netbox/config.toml; ln -sfn evil ~/.config; mv -T ~/evil ~/.config; echo tried",
    ] {
        attack_with(world, script, &empty, &is_whole);
    }
}

fn links_on_the_way_cannot_be_replaced(world: &World) {
    let linked = |world: &World| {
        let home = home(world);
        fs::create_dir(home.join("dotfiles")).expect("own folder");
        fs::rename(home.join(".config/netbox"), home.join("dotfiles/netbox")).expect("own folder");
        symlink("../dotfiles/netbox", home.join(".config/netbox")).expect("own folder");
        fs::rename(home.join(".local"), home.join("dotfiles/local")).expect("own folder");
        symlink(home.join("dotfiles/local"), home.join(".local")).expect("own folder");
        home
    };
    for script in [
        "rm -f ~/.config/netbox; mkdir ~/.config/netbox; echo tried",
        "mkdir ~/evil; ln -sfn ~/evil ~/.config/netbox; echo tried",
        "mv ~/.config/netbox ~/gone; echo tried",
        "mv ~/dotfiles/netbox ~/gone; echo tried",
        "mv ~/dotfiles ~/gone; echo tried",
        "echo evil > ~/dotfiles/netbox/config.toml; echo tried",
        "rm -f ~/.local; echo tried",
        "mv ~/dotfiles/local/state ~/gone; echo tried",
    ] {
        attack_with(world, script, &linked, &is_whole);
    }
}

/// A hard link that was there before: the same file under a name that nothing protects.
fn a_name_of_the_file_elsewhere_is_refused(world: &World) {
    let home = home(world);
    fs::hard_link(home.join(".config/netbox/config.toml"), home.join("link")).expect("own folder");
    let outcome = world.netbox(&FLAGS).env("HOME", &home).exec(&["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran").complains("config.toml` has another name");
    fs::remove_file(home.join("link")).expect("own folder");
    world.netbox(&FLAGS).env("HOME", &home).exec(&["echo", "it ran"]).says("it ran");
}

/// The tests' own process may mount; the folder lies on the same file system at two places then.
fn the_same_directory_at_another_mount_cannot_be_changed(world: &World) {
    let twice = |world: &World, part: &str| {
        let (home, other) = (home(world), world.fresh_path("home"));
        fs::create_dir(&other).expect("own folder");
        let bind = MsFlags::MS_BIND;
        mount(Some(&home.join(part)), &other, None::<&str>, bind, None::<&str>).expect("the tests may mount");
        (home, other)
    };
    for (part, file) in [("", ".config/netbox/config.toml"), (".config/netbox", "config.toml")] {
        for (run, stays) in [(world.bare(), false), (world.netbox(&FLAGS), true)] {
            let (home, other) = twice(world, part);
            let outcome =
                run.env("HOME", &home).exec(&["sh", "-c", "echo evil > \"$0\"", &other.join(file).to_string_lossy()]);
            umount2(&other, MntFlags::MNT_DETACH).expect("it is mounted");
            assert_eq!(is_whole(&home), stays, "{outcome}");
        }
    }
}

fn a_namespace_inside_takes_no_mount_off(world: &World) {
    for act in [
        "umount ~/.config/netbox; umount -l ~/.config; mount -o remount,bind,rw ~/.config/netbox; echo evil > ~/.config/netbox/config.toml",
        "mkdir ~/view; mount --bind ~/.config ~/view; echo evil > ~/view/netbox/config.toml",
        "mkdir ~/view; mount --rbind ~ ~/view; umount ~/view/.config/netbox; echo evil > ~/view/.config/netbox/config.toml",
        "mv ~/.config ~/gone; mkdir -p ~/.config/netbox",
        "rm -rf ~/.config",
    ] {
        attack(world, &format!("unshare --user --map-root-user --mount sh -c '{act}'; echo tried"));
    }
}

/// The kernel has one way around the mounts, and sandboxes that programs bring along need it. There netbox sees it, ends the
/// run and puts things right.
fn a_namespace_without_the_mounts_ends_the_run_and_changes_nothing(world: &World) {
    for (folder, name) in [("", ".config"), (".config", "netbox"), (".local", "state"), (".local/state", "netbox")] {
        let act = |run: Run<'_>, home: &Path, how: &str| {
            let program = own(world, PYTHON.name, "rename.py", &[&home.join(folder).to_string_lossy(), name, how]);
            run.env("HOME", home).exec(&program)
        };
        let bare = home(world);
        act(world.bare(), &bare, "").exits_with(0).says("renamed");
        assert!(!is_whole(&bare), "it works without netbox");
        // Whether the program goes on, and is killed, or has ended before netbox looks.
        for how in ["stay", "", "taken", "closed"] {
            let own = home(world);
            let outcome = act(world.netbox(&FLAGS), &own, how);
            outcome.exits_with(125).complains("decides later runs").complains("it is back");
            assert!(is_whole(&own), "{outcome}");
        }
    }
}

/// While something else has the place of the policy's directory, which is for a moment, a run would take it for the user's, and
/// would stand by it. Here the moment is longer: who watches stands still.
fn nothing_starts_where_another_run_has_found_something_else(world: &World) {
    let home = home(world);
    let program = own(world, PYTHON.name, "rename.py", &[&home.to_string_lossy(), ".config", "stay"]).join("' '");
    let script = format!("echo ready; read line; exec '{program}'");
    let mut first = world.netbox(&FLAGS).env("HOME", &home).stdin_open().start(&["sh", "-c", &script]);
    first.wait_for_stdout("ready\n");
    first.signal(Signal::SIGSTOP);
    first.write(b"go\n");
    first.wait_for_stdout("renamed\n");
    let second = || world.netbox(&FLAGS).env("HOME", &home).exec(&["echo", "it runs"]);
    let refused = second();
    refused.exits_with(125).complains(".config is not what another run of netbox has found there");
    assert!(refused.stdout().is_empty(), "{refused}");
    first.signal(Signal::SIGCONT);
    first.finish().exits_with(125).complains("it is back");
    second().exits_with(0).says("it runs");
    assert!(is_whole(&home));
}

fn a_named_policy_file_that_was_replaced_is_told_of(world: &World) {
    let home = home(world);
    fs::create_dir(home.join("rules")).expect("own folder");
    fs::write(home.join("rules/mine.toml"), "").expect("own folder");
    let (folder, file) = (home.join("rules"), home.join("rules/mine.toml"));
    let program = own(world, PYTHON.name, "rename.py", &[&folder.to_string_lossy(), "mine.toml"]);
    let flags = ["--config", &file.to_string_lossy(), "--quiet"];
    let outcome = world.netbox(&flags).env("HOME", &home).exec(&program);
    outcome.exits_with(0).says("renamed").complains("rules/mine.toml` was replaced while the command ran");
}

/// The mounts of the sandbox's first process come apart a moment before the kernel kills the other processes.
fn the_end_of_a_run_uncovers_nothing(world: &World) {
    let program = |home: &Path| {
        own(world, PYTHON.name, "late.py", &[&home.join(".config").to_string_lossy(), "netbox/config.toml"])
    };
    let bare = home(world);
    world.bare().env("HOME", &bare).exec(&program(&bare)).exits_with(0).says("left behind");
    assert!(eventually(|| !is_whole(&bare)), "it works without netbox");
    // Without the wall, four of ten tries succeeded.
    for _ in 0..20 {
        let own = home(world);
        let outcome = world.netbox(&FLAGS).env("HOME", &own).exec(&program(&own));
        outcome.exits_with(0).says("left behind");
        assert!(is_whole(&own), "{outcome}");
    }
}

fn an_empty_directory_that_is_removed_there_is_made_again(world: &World) {
    let home = world.fresh_path("home");
    fs::create_dir(&home).expect("own folder");
    let program =
        own(world, PYTHON.name, "rename.py", &[&home.join(".config").to_string_lossy(), "netbox", "remove", "stay"]);
    let outcome = world.netbox(&FLAGS).env("HOME", &home).exec(&program);
    outcome.exits_with(125).complains(".config/netbox` decides later runs").complains("it is back");
    assert_eq!(fs::read_dir(home.join(".config/netbox")).expect("it is there").count(), 0, "{outcome}");
}

/// It may be an upgrade.
fn who_replaces_netbox_from_outside_is_told_and_goes_on(world: &World) {
    let home = own_netbox(world);
    let path = home.join("tools/bin/netbox");
    let run = world.bare().env("HOME", &home).stdin_open().program(path.clone().into());
    let running =
        run.start(&["run", "--allow", "other.example.com", "--", "sh", "-c", "echo ready; read line; exit 7"]);
    running.wait_for_stdout("ready\n");
    fs::copy(world.netbox_path(), home.join("new")).expect("own folder");
    fs::rename(home.join("new"), &path).expect("own folder");
    running.finish().exits_with(7).complains("tools/bin/netbox` was replaced while the command ran");
}

fn the_places_are_those_that_the_environment_names(world: &World) {
    for (run, stays) in [(world.bare(), false), (world.netbox(&FLAGS), true)] {
        let home = home(world);
        let script = "mkdir -p \"$XDG_CONFIG_HOME/netbox\" && echo evil > \"$XDG_CONFIG_HOME/netbox/config.toml\"
            echo evil > ~/.config/netbox/config.toml; echo tried";
        let run = run.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("my config"));
        let outcome = run.exec(&["sh", "-c", script]);
        outcome.says("tried");
        let is_absent = !home.join("my config/netbox/config.toml").exists();
        assert_eq!((is_absent, is_whole(&home)), (stays, stays), "{outcome}");
    }
}

/// A netbox of the user's own, in a home folder.
fn own_netbox(world: &World) -> PathBuf {
    let home = home(world);
    fs::create_dir_all(home.join("tools/bin")).expect("own folder");
    fs::copy(world.netbox_path(), home.join("tools/bin/netbox")).expect("own folder");
    home
}

/// Runs a script under the user's own netbox, called by this name.
fn under_own_netbox(world: &World, home: &Path, name: &str, script: &str) -> crate::outcome::Outcome {
    let run = world.bare().env("HOME", home).folder(home).program(name.into());
    run.exec(&["run", "--allow", "other.example.com", "--", "sh", "-c", script])
}

fn netbox_itself_cannot_be_replaced(world: &World) {
    let number = |home: &Path| fs::metadata(home.join("tools/bin/netbox")).map(|file| (file.ino(), file.len())).ok();
    for script in [
        "cp /bin/true ~/tools/bin/netbox; echo tried",
        "cp /bin/true ~/new; mv -f ~/new ~/tools/bin/netbox; echo tried",
        "rm -f ~/tools/bin/netbox; echo tried",
        "mv ~/tools/bin ~/gone; mkdir ~/tools/bin; cp /bin/true ~/tools/bin/netbox; echo tried",
        "mv ~/tools ~/gone; echo tried",
    ] {
        let home = own_netbox(world);
        let before = number(&home);
        let outcome = world.bare().env("HOME", &home).exec(&["sh", "-c", script]);
        assert_ne!(number(&home), before, "{outcome}");
        let home = own_netbox(world);
        let before = number(&home);
        let path = home.join("tools/bin/netbox");
        let outcome = under_own_netbox(world, &home, &path.to_string_lossy(), script);
        outcome.exits_with(0).says("tried");
        assert_eq!(number(&home), before, "{outcome}");
    }
}

fn the_link_that_netbox_was_called_by_cannot_be_replaced(world: &World) {
    let home = own_netbox(world);
    symlink("tools/bin/netbox", home.join("netbox")).expect("own folder");
    let link = home.join("netbox");
    let script = "rm -f ~/netbox; mv ~/netbox ~/gone; cp --remove-destination /bin/true ~/netbox; echo tried";
    let outcome = under_own_netbox(world, &home, &link.to_string_lossy(), script);
    outcome.exits_with(0).says("tried");
    assert_eq!(fs::read_link(&link).ok().as_deref(), Some(Path::new("tools/bin/netbox")), "{outcome}");
    world.bare().env("HOME", &home).exec(&["sh", "-c", script]).says("tried");
    assert!(fs::read_link(&link).is_err(), "without netbox it is replaced");
}

/// What this user cannot make, the command cannot make either.
fn a_home_that_cannot_be_written_to_holds_nothing_up(world: &World) {
    if world.identity.real_root {
        // Root would make it.
        return;
    }
    for home in ["/nonexistent", "/", "/etc", "/dev/null", "relative", ""] {
        world.netbox(&FLAGS).env("HOME", home).exec(&["echo", "it ran"]).exits_with(0).says("it ran");
    }
}

/// A folder that its owner has closed to themselves can be opened again.
fn a_directory_that_the_command_could_make_and_netbox_cannot_is_an_error(world: &World) {
    if world.identity.real_root {
        return;
    }
    let home = world.fresh_path("home");
    fs::create_dir(&home).expect("own folder");
    let script = "chmod 755 ~ && mkdir ~/.config";
    world
        .bare()
        .env("HOME", &home)
        .exec(&["sh", "-c", &format!("chmod 555 ~; {script}; rmdir ~/.config; chmod 555 ~")])
        .exits_with(0);
    let outcome = world.netbox(&FLAGS).env("HOME", &home).exec(&["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran").complains("cannot make").complains(".config/netbox");
}

/// Across mounts the kernel moves nothing, and programs copy.
fn files_are_moved_into_the_directories_on_the_way(world: &World) {
    let home = home(world);
    let script = "echo text > ~/a && mv ~/a ~/.config/a && mkdir -p ~/.local/share && mv ~/.config/a ~/.local/share/b && cat ~/.local/share/b";
    world.netbox(&FLAGS).env("HOME", &home).exec(&["sh", "-c", script]).exits_with(0).says("text");
}
