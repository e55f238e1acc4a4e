//! Mounts: what covers the host's files cannot be taken off, and what is read-only stays so.

use super::{FLAGS, attempt, gets_out, is_held};
use crate::programs::PYTHON;
use crate::tests;
use crate::world::World;

tests![
    masks_cannot_be_taken_off needs [PYTHON],
    the_kernels_files_stay_read_only needs [PYTHON],
    what_is_written_outside_stays_there needs [],
];

/// By remounting, moving, binding, cloning or overlaying, as the root of a user namespace of one's own.
fn masks_cannot_be_taken_off(world: &World) {
    gets_out(&world.bare().exec(&attempt(world, &["mounts", "uncover_own", "/run/nscd"])));
    is_held(&world.netbox(&FLAGS).exec(&attempt(world, &["mounts", "uncover", "/run/nscd"])));
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
    assert_eq!(std::fs::read_to_string(file).expect("it was written"), "a hook\n");
}
