//! End to end: the real binary, real namespaces, real clients, and servers of the tests' own. Nothing else is needed,
//! and nothing outside the machine is reached.
//!
//! The world (`world`) is made once and holds two network namespaces: the *host*, on which netbox runs, and the
//! *inet*, with a name server and every other server (`network`, `servers`). A test publishes names of its own there
//! (`zone`), runs a client bare and then under netbox (`run`, `programs`), and looks at what the client got
//! (`outcome`), at netbox's events, and at what arrived at the servers (`arrivals`). The bare run is what makes a
//! refusal worth something: it shows that without netbox the client gets there.
//!
//! | variable | effect |
//! | --- | --- |
//! | `NETBOX_E2E_AS=root` | a root process stays root, and so does netbox; else it becomes the user `netbox-test` |
//! | `NETBOX_E2E_WITHOUT=nf_tables` | netbox runs as on a kernel without nf_tables: the tests of what must hold there too |
//! | `NETBOX_E2E_BINARY` | the netbox to test, instead of the one that was just built |
//! | `NETBOX_SOAK=MINUTES` | no test is run, but the soak, for so long (`soak`; `tests/soak` is the script) |
//! | `NETBOX_SOAK_SANDBOXES=NUMBER` | with so many sandboxes attached; 100 else |
//! | `NETBOX_WRITE_REFERENCE=1` | the tables of `docs/platforms.md` are written anew, and nothing is tested |
//! | `CI=true` | a client that is not installed is a failure; else its tests are skipped, and that is said |

#![allow(clippy::expect_used, reason = "a world that cannot be made is a failed test, and says why")]

mod arrivals;
mod child;
mod control;
mod host_services;
mod identity;
mod network;
mod outcome;
mod platforms;
mod programs;
mod project;
mod proxy;
mod run;
mod servers;
mod service;
mod soak;
mod surroundings;
mod system_files;
mod terminal;
mod test_user;
mod themes;
mod world;
mod zone;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Trial};

use crate::child::Kernel;
use crate::programs::Program;
use crate::soak::Soak;
use crate::world::World;

/// One test: a fact, the programs it takes to show it, and how.
struct Test {
    theme: &'static str,
    name: &'static str,
    needs: &'static [Program],
    /// Where it is skipped else.
    of: Of,
    show: fn(&World),
}

/// What has to be so for a test to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Anybody,
    /// netbox runs as real root.
    Root,
    /// Root has started the tests, and so could make system files.
    SystemFiles,
    /// netbox runs as real root, and the kernel has automount points.
    Automounts,
}

/// Lists the tests of a theme: `tests![name needs [CURL], …]`, or `tests![of root: …]` for what real root alone can show,
/// or `tests![of system files: …]` for what has files that root has made, or `tests![of automounts: …]`.
macro_rules! tests {
    (of root: $($rest:tt)*) => { crate::tests!(@list crate::Of::Root, $($rest)*); };
    (of system files: $($rest:tt)*) => { crate::tests!(@list crate::Of::SystemFiles, $($rest)*); };
    (of automounts: $($rest:tt)*) => { crate::tests!(@list crate::Of::Automounts, $($rest)*); };
    (@list $of:expr, $($name:ident needs [$($program:expr),*]),* $(,)?) => {
        pub(crate) const TESTS: &[crate::Test] = &[$(crate::Test {
            theme: module_path!(),
            name: stringify!($name),
            needs: &[$($program),*],
            of: $of,
            show: $name,
        }),*];
    };
    ($($rest:tt)*) => { crate::tests!(@list crate::Of::Anybody, $($rest)*); };
}
pub(crate) use tests;

static WORLD: OnceLock<World> = OnceLock::new();

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test runs a few processes, and many of them wait: more at once than processors gains little.
    arguments.test_threads.get_or_insert(2);
    if arguments.list {
        let trials = themes::all().map(|test| test.trial(true, true)).collect();
        return libtest_mimic::run(&arguments, trials).exit_code();
    }
    if platforms::is_to_be_written() {
        platforms::write();
        return ExitCode::SUCCESS;
    }
    let built = std::env::var_os("NETBOX_E2E_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_netbox").into());
    // The process becomes another user and enters its namespaces here, and has one thread until then.
    let world = World::new(&PathBuf::from(built));
    programs::write(&world);
    if let Some(soak) = Soak::asked_for() {
        let code = soak.run(&world);
        world.tear_down();
        return code;
    }
    let path = world.search_path();
    let trials = themes::all().map(|test| test.trial(test.can_run(&path), test.is_of(&world))).collect();
    // What the assertion said is in the list of failures; where it stands is not.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            eprintln!("\nfailed at {place}");
        }
    }));
    WORLD.set(world).expect("the world is made once");
    let conclusion = libtest_mimic::run(&arguments, trials);
    WORLD.wait().tear_down();
    conclusion.exit_code()
}

impl Test {
    /// `theme::fact`; a theme may be one of several in a room, as `escape::sockets`.
    fn full_name(&self) -> String {
        let theme = self.theme.split_once("themes::").map_or(self.theme, |(_, theme)| theme);
        format!("{theme}::{}", self.name)
    }

    fn trial(&'static self, can_run: bool, is_of: bool) -> Trial {
        let name = self.full_name();
        let required = std::env::var("CI").is_ok_and(|value| value == "true");
        let show = move || {
            assert!(can_run, "a program that this test needs is not installed");
            (self.show)(WORLD.wait());
            Ok(())
        };
        Trial::test(name, show).with_ignored_flag((!can_run && !required) || !is_of)
    }

    fn is_of(&self, world: &World) -> bool {
        if world.kernel != Kernel::Willing && !themes::without_nf_tables::holds(self) {
            return false;
        }
        match self.of {
            Of::Anybody => true,
            Of::Root => world.identity.real_root,
            Of::SystemFiles => world.identity.has_system_files,
            Of::Automounts => world.identity.real_root && self.kernel_has_automounts(),
        }
    }

    /// Says so, if it has none. It is for the machine's owner to change.
    fn kernel_has_automounts(&self) -> bool {
        let file_systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let has = file_systems.lines().any(|line| line.ends_with("\tautofs"));
        if !has {
            eprintln!("{}: this kernel has no autofs", self.name);
        }
        has
    }

    /// Says what is missing, if anything is.
    fn can_run(&self, path: &std::ffi::OsStr) -> bool {
        let missing: Vec<_> = self.needs.iter().filter(|program| !program.is_installed(path)).collect();
        for program in &missing {
            eprintln!("{}: `{}` is not installed (package {})", self.name, program.name, program.package);
        }
        missing.is_empty()
    }
}
