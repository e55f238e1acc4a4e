//! The AppArmor profile: it is one, and netbox brings it.

use std::fs;

use crate::programs::APPARMOR_PARSER;
use crate::tests;
use crate::world::World;

tests![
    the_profile_is_taken_by_the_parser needs [APPARMOR_PARSER],
    doctor_prints_the_profile needs [],
];

const PROFILE: &str = include_str!("../../../packaging/apparmor/netbox");

/// Parsers before 4.0 do not know the rule that all of it is about; the rest they know.
fn the_profile_is_taken_by_the_parser(world: &World) {
    let version = world.bare().exec(&["apparmor_parser", "--version"]).exits_with(0).stdout();
    let version = version.split("version ").nth(1).and_then(|text| text.split('.').next()?.parse::<u32>().ok());
    let is_old = version.expect("it says its version") < 4;
    let of_new = |line: &&str| line.trim() == "userns," || line.starts_with("abi <abi/4");
    assert_eq!(PROFILE.lines().filter(of_new).count(), 3);
    let text: Vec<&str> = PROFILE.lines().filter(|line| !(is_old && of_new(line))).collect();
    let path = world.fresh_path("home");
    let parse = |text: &str| {
        fs::write(&path, text).expect("own folder");
        let path = path.to_str().expect("plain characters");
        world.bare().exec(&["apparmor_parser", "--skip-kernel-load", "--skip-cache", "--names", path])
    };
    let outcome = parse(&text.join("\n"));
    assert_eq!(outcome.exits_with(0).stdout(), "netbox\nnetbox_command\n", "{outcome}");
    // What is wrong is seen.
    parse(&text.join("\n").replace("pix ->", "pxi ->")).exits_with(1);
}

fn doctor_prints_the_profile(world: &World) {
    let outcome = world.netbox_words().exec(&["doctor", "--apparmor-profile"]);
    assert_eq!(outcome.exits_with(0).stdout(), PROFILE);
}
