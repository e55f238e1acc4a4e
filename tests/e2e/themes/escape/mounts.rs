//! Mounts: what covers the host's files cannot be taken off, and what is read-only stays so.

use std::fs;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{FLAGS, attempt, gets_out, is_held};
use crate::programs::PYTHON;
use crate::tests;
use crate::world::World;

tests![
    masks_cannot_be_taken_off needs [PYTHON],
    another_view_of_the_kernels_files_is_covered needs [],
    the_kernels_files_stay_read_only needs [PYTHON],
    what_is_written_outside_stays_there needs [],
];

/// By unmounting, remounting, moving, binding, cloning or overlaying, or by leaving the whole root behind, as the root of a
/// user namespace of one's own.
fn masks_cannot_be_taken_off(world: &World) {
    for way in ["uncover_own", "take_off_own"] {
        gets_out(&world.bare().exec(&attempt(world, &["mounts", way, "/run/nscd"])));
    }
    is_held(&world.netbox(&FLAGS).exec(&attempt(world, &["mounts", "uncover", "/run/nscd"])));
}

/// As a root folder for `chroot` has them: the host's processes would be in view, and its settings to be written.
fn another_view_of_the_kernels_files_is_covered(world: &World) {
    let folder = world.fresh_path("home");
    for (kind, inside) in [("proc", std::process::id().to_string()), ("sys", "kernel".to_owned())] {
        let point = folder.join(kind);
        fs::create_dir_all(&point).expect("own folder");
        let source = Path::new("/").join(kind);
        // The mounts of the tests are seen by nobody else.
        mount(Some(&source), &point, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).expect("a mount");
        let list = ["ls", point.to_str().expect("plain characters")];
        world.bare().exec(&list).exits_with(0).says(&format!("{inside}\n"));
        assert_eq!(world.netbox(&FLAGS).exec(&list).exits_with(0).stdout(), "");
        umount2(&point, MntFlags::MNT_DETACH).expect("own mount");
    }
}

fn the_kernels_files_stay_read_only(world: &World) {
    gets_out(&world.bare().exec(&attempt(world, &["mounts", "write_own_again", "/sys"])));
    is_held(&world.netbox(&FLAGS).exec(&attempt(world, &["mounts", "write_again", "/sys"])));
}

/// netbox leaves files to others, and says so: what a command writes, programs outside may run.
fn what_is_written_outside_stays_there(world: &World) {
    let file = world.fresh_path("home");
    let script = format!("echo a hook >{}", file.display());
    world.netbox(&FLAGS).exec(&["sh", "-c", &script]).exits_with(0);
    assert_eq!(fs::read_to_string(file).expect("it was written"), "a hook\n");
}
