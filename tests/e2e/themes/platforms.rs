//! The environments of `docs/platforms.md`: netbox does in each of them what the table says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use netbox_launcher::Failure;

use super::steps;
use crate::platforms::{self, ROWS, Row, Says};
use crate::programs::{BWRAP, CURL, SETPRIV, UNSHARE, curl};
use crate::run::Run;
use crate::tests;
use crate::world::World;

tests![
    the_tables_are_those_of_the_tests needs [],
    netbox_does_what_the_table_says needs [CURL, UNSHARE, BWRAP, SETPRIV],
];

fn the_tables_are_those_of_the_tests(_: &World) {
    platforms::assert_current();
}

fn netbox_does_what_the_table_says(world: &World) {
    let mut wrong = Vec::new();
    for row in ROWS {
        // Root alone can make an `/etc`.
        if row.environment.contains("/etc/") && !world.identity.has_system_files {
            continue;
        }
        // Every row is tried, whatever the others are like.
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| try_row(world, row))) {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            wrong.push(format!("{}: {why}", row.environment));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn try_row(world: &World, row: &Row) {
    let enter = |words: &[&str]| {
        let run = words.iter().fold(world.netbox_words(), |run: Run<'_>, word| run.program(word.into()));
        (row.enter)(world, run)
    };
    let run = || enter(&["run", "--allow", "other.example.com", "--"]);
    let doctor = enter(&["doctor"]).exec::<&str>(&[]);
    match &row.says {
        Says::Works | Says::Weaker(_) => {
            run().exec(&["sh", "-c", "echo it ran"]).exits_with(0).says("it ran");
            // The wall stands: nobody is there who could answer but netbox.
            let asked = curl(&["--output", "/dev/null", "--write-out", "%{http_code}", "http://198.51.100.1/"]);
            assert_eq!(run().exec(&asked).stdout(), "403", "{doctor}");
            doctor.exits_with(0).says("netbox can isolate here");
        }
        Says::Refuses(step, errno) => {
            steps::fails(world, run(), *step, *errno);
            let what = Failure { step: *step, errno: 0, detail: String::new() };
            // What a caller hands over is not the machine's.
            doctor.says(&what.to_string());
        }
    }
    if let Says::Weaker(words) = &row.says {
        doctor.says(words);
    }
}
