//! Automount points: below one, a name is enough for the host's automounter to look a machine up and to connect to it.

use std::fs;
use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use netbox_launcher::Step;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::getpgrp;

use crate::child::{Kernel, Refusal};
use crate::run::eventually;
use crate::tests;
use crate::themes::steps;
use crate::world::World;

tests![of automounts:
    a_look_below_one_tells_the_host_nothing needs [],
    what_is_mounted_below_one_is_still_there needs [],
    a_point_that_cannot_be_covered_gives_125 needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// An automount point whose automounter is the test: what it would be asked comes out of a pipe.
struct Point {
    path: PathBuf,
    requests: PipeReader,
}

impl Point {
    fn make(world: &World) -> Self {
        let path = world.fresh_path("home");
        fs::create_dir(&path).expect("own folder");
        let (requests, kernels_end) = std::io::pipe().expect("a pipe");
        // The kernel asks nobody on behalf of the automounter's own process group.
        let options = format!("fd={},pgrp={},minproto=5,maxproto=5,indirect", kernels_end.as_raw_fd(), getpgrp());
        mount(Some("netbox-test"), &path, Some("autofs"), MsFlags::empty(), Some(options.as_str()))
            .expect("root may mount autofs");
        fcntl(&requests, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
        Self { path, requests }
    }

    /// Whether somebody asked for a name since the last time. The kernel writes the name in a packet of 304 bytes.
    fn was_asked_for(&mut self, name: &str) -> bool {
        let mut packet = [0; 4096];
        let length = self.requests.read(&mut packet).unwrap_or(0);
        packet[..length].windows(name.len()).any(|window| window == name.as_bytes())
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // A test that failed says more than this.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn below(point: &Point, name: &str) -> String {
    point.path.join(name).to_str().expect("plain characters").to_owned()
}

fn a_look_below_one_tells_the_host_nothing(world: &World) {
    let mut point = Point::make(world);
    // It waits for an answer that never comes. Under netbox the command is in a session of its own anyway.
    let asking = world.bare().start(&["setsid", "ls", &below(&point, "secret.example.com")]);
    assert!(eventually(|| point.was_asked_for("secret.example.com")), "without netbox it is asked");
    drop(asking);
    let mut point = Point::make(world);
    let outcome = world.netbox(&FLAGS).exec(&["ls", &below(&point, "secret.example.com")]);
    outcome.complains("No such file or directory");
    assert!(!point.was_asked_for("secret.example.com"), "{outcome}");
    world.netbox(&FLAGS).exec(&["mkdir", &below(&point, "x")]).complains("Read-only file system");
}

/// A home folder may be.
fn what_is_mounted_below_one_is_still_there(world: &World) {
    let mut point = Point::make(world);
    let home = point.path.join("home");
    fs::create_dir(&home).expect("the automounter may");
    mount(Some("netbox-test"), &home, Some("tmpfs"), MsFlags::empty(), Some("mode=777")).expect("root may mount");
    fs::write(home.join("file"), "of the home folder").expect("own file system");
    let script = "cat file && echo more > other && pwd && ls ..";
    let outcome = world.netbox(&FLAGS).env("HOME", &home).folder(&home).exec(&["sh", "-c", script]);
    outcome.exits_with(0).says("of the home folder").says("/home\nhome\n");
    assert_eq!(fs::read_to_string(home.join("other")).expect("it was written"), "more\n");
    assert!(!point.was_asked_for("home"), "{outcome}");
    umount2(&home, MntFlags::MNT_DETACH).expect("it is mounted");
}

fn a_point_that_cannot_be_covered_gives_125(world: &World) {
    const PLAIN: u32 = (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC) as u32;
    const NO_COVER: &[Refusal] = &[Refusal { call: libc::SYS_mount, with: &[(3, PLAIN)], errno: libc::EPERM }];
    let _point = Point::make(world);
    let run = world.netbox(&FLAGS).kernel(Kernel::Refuses(NO_COVER));
    steps::fails(world, run, Step::Automounts, libc::EPERM);
}
