//! The same as the machine's real root, whose number means root everywhere: what is left of that inside.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::{FLAGS, attempt, gets_out, is_held, said, without};
use crate::programs::PYTHON;
use crate::tests;
use crate::world::World;

tests![of root:
    settings_of_the_kernel_are_read_only needs [PYTHON],
    powers_over_the_machine_are_gone needs [PYTHON],
    devices_are_neither_opened_nor_made needs [PYTHON],
    a_device_that_lies_elsewhere_is_not_opened needs [PYTHON],
    no_file_system_is_mounted_from_a_device needs [PYTHON],
    a_program_of_another_users_gains_nothing needs [],
    the_control_group_of_the_run_is_out_of_reach needs [PYTHON],
    no_release_agent_is_named needs [PYTHON],
    another_root_folder_leads_nowhere needs [PYTHON],
];

/// `core_pattern` and its like name programs that the kernel starts outside.
fn settings_of_the_kernel_are_read_only(world: &World) {
    let settings = attempt(world, &["kernel", "settings"]);
    gets_out(&world.bare().exec(&settings));
    let outcome = world.netbox(&FLAGS).exec(&settings);
    is_held(&outcome);
    outcome.says("failed: /proc/sys/kernel/core_pattern EROFS\n");
    // One that is mounted afresh would be writable.
    let fresh = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "echo", "mounted"];
    world.bare().exec(&fresh).says("mounted");
    world.netbox(&FLAGS).exec(&fresh).does_not_say("mounted").complains("/proc");
}

/// The capabilities that are left belong to a namespace that owns nothing.
fn powers_over_the_machine_are_gone(world: &World) {
    let privileges = attempt(world, &["kernel", "privileges"]);
    gets_out(&world.bare().exec(&without(world, "user", &privileges)));
    is_held(&world.netbox(&FLAGS).exec(&privileges));
}

fn devices_are_neither_opened_nor_made(world: &World) {
    let folder = fresh_folder(world);
    let devices =
        attempt(world, &["mounts", "devices", "/dev/kmsg", "/dev/loop0", "/dev/mem", "/dev/vda", "/dev/fuse"]);
    let bare = world.bare().folder(&folder).exec(&devices);
    // Which of them there are is the machine's affair.
    bare.says("got: /dev/kmsg\n").says("got: a device\n");
    fs::remove_file(folder.join("device")).expect("it was made");
    is_held(&world.netbox(&FLAGS).folder(&folder).exec(&devices));
}

/// As those of a container image or of another root folder.
fn a_device_that_lies_elsewhere_is_not_opened(world: &World) {
    let folder = fresh_folder(world);
    let node = folder.join("node");
    // /dev/zero, which anybody may open: a node leads to it from anywhere.
    mknod(&node, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 5)).expect("root may");
    let open = ["head", "-c", "1", node.to_str().expect("plain characters")];
    world.bare().exec(&open).exits_with(0);
    world.netbox(&FLAGS).exec(&open).exits_with(1).complains("Permission denied");
}

fn fresh_folder(world: &World) -> PathBuf {
    let folder = world.fresh_path("home");
    fs::create_dir(&folder).expect("own folder");
    folder
}

/// A disk in a file, as a loop device.
struct Disk(String);

impl Disk {
    fn make(world: &World) -> Self {
        let image = world.fresh_path("home").to_string_lossy().into_owned();
        let file = fs::File::create(&image).expect("own folder");
        file.set_len(1 << 20).expect("a small file");
        world.bare().exec(&["mkfs.ext4", "-q", &image]).exits_with(0);
        let device = world.bare().exec(&["losetup", "--find", "--show", &image]).exits_with(0).stdout();
        Self(device.trim().to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A test that failed says more than this.
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn no_file_system_is_mounted_from_a_device(world: &World) {
    let disk = Disk::make(world);
    let mount = attempt(world, &["mounts", "disk", &disk.0]);
    world.bare().exec(&mount).says("got: a disk\n");
    is_held(&world.netbox(&FLAGS).exec(&mount));
}

/// The user that owns nothing.
const NOBODY: u32 = 65534;

fn a_program_of_another_users_gains_nothing(world: &World) {
    let program = world.fresh_path("home");
    world.bare().exec(&["cp", "/usr/bin/id", program.to_str().expect("plain characters")]).exits_with(0);
    chown(&program, Some(NOBODY), None).expect("root may");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("root may");
    let client = [program.to_str().expect("plain characters"), "-u"];
    assert_eq!(world.bare().exec(&client).stdout(), "65534\n");
    assert_eq!(world.netbox(&FLAGS).exec(&client).stdout(), "0\n");
}

/// A mount of control groups: where, and with which options.
fn control_groups(wanted: impl Fn(&str, &str) -> bool) -> Option<(String, String)> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    mounts.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [_, point, kind, options, ..] if wanted(kind, options) => Some((point.to_owned(), options.to_owned())),
        _ => None,
    })
}

/// Who can thaw a group can freeze and kill every process in it, netbox and the shell that it was started from among them.
fn the_control_group_of_the_run_is_out_of_reach(world: &World) {
    let (point, options) = control_groups(|kind, _| kind == "cgroup2").expect("control groups of version 2");
    let group = Group::make(Path::new(&point).join(format!("netbox-e2e-{}", std::process::id())));
    let path = group.0.to_str().expect("plain characters");
    let thaw = attempt(world, &["mounts", "groups", path]);
    let in_group = |command: Vec<String>| [attempt(world, &["mounts", "in_group", path]), command].concat();
    let bare = world.bare().exec(&in_group(thaw.clone()));
    bare.says("got: as it is mounted\n");
    if !options.contains("nsdelegate") {
        bare.says("got: mounted afresh\n");
    }
    let outcome = world.bare().exec(&in_group(super::under_netbox(world, &thaw)));
    outcome.says("failed: as it is mounted EROFS\n").says("failed: mounted afresh");
    let text = outcome.stdout();
    assert!(said(&text, "got: ").iter().all(|got| *got == "a namespace"), "{outcome}");
}

/// A control group of the test's own.
struct Group(PathBuf);

impl Group {
    fn make(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("root may make control groups");
        Self(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be leaving it.
        crate::run::eventually(|| fs::remove_dir(&self.0).is_ok());
    }
}

fn no_release_agent_is_named(world: &World) {
    // Newer systems have no control groups of version 1, and so no release agents.
    let Some((point, options)) = control_groups(|kind, options| kind == "cgroup" && options.contains("freezer")) else {
        return;
    };
    assert!(options.contains("freezer"), "{options}");
    let name = attempt(world, &["mounts", "release_agent", &point, "freezer"]);
    world.bare().exec(&name).says("got: as it is mounted\n");
    is_held(&world.netbox(&FLAGS).exec(&name));
}

/// chroot(2) and `..`, the old way out of a root folder: the sandbox is none.
fn another_root_folder_leads_nowhere(world: &World) {
    let walk = attempt(world, &["mounts", "root"]);
    gets_out(&world.bare().exec(&walk));
    is_held(&world.netbox(&FLAGS).exec(&walk));
}
