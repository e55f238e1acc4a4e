//! Languages and browsers: worker threads, child processes, selectors and sockets, as their run-time libraries use them.

use std::process::Command;

use super::{at_home, greeting, nothing, works};
use crate::programs::{CHROMIUM, GO, JAVA, NODE, PYTHON, own};
use crate::tests;
use crate::world::World;

tests![
    chromium_shows_an_allowed_page_and_not_a_refused_one needs [CHROMIUM],
    chromium_shows_them_with_a_sandbox_of_its_own needs [CHROMIUM],
    node_works_in_threads_and_children_and_a_cluster needs [NODE],
    python_works_in_processes_with_a_manager needs [PYTHON],
    java_works_with_selectors_and_threads needs [JAVA],
    go_builds_and_its_static_program_works needs [GO],
];

fn chromium_shows_an_allowed_page_and_not_a_refused_one(world: &World) {
    chromium(world, "chromium", &["--no-sandbox"]);
}

/// Of user, network and pid namespaces and a system-call filter, inside netbox's.
fn chromium_shows_them_with_a_sandbox_of_its_own(world: &World) {
    if world.identity.real_root {
        // It does not run as root without the flag that takes its sandbox away.
        let (run, _) = at_home(world, world.bare());
        let outcome = run.exec(&["chromium", "--headless", "about:blank"]);
        assert_ne!(outcome.code, Some(0), "{outcome}");
        return;
    }
    chromium(world, "own-sandbox", &[]);
}

fn chromium(world: &World, label: &str, flags: &[&str]) {
    let host = world.zone().host(label);
    let other = world.zone().host(&format!("{label}-refused"));
    let browser = ["chromium", "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=profile"];
    let show = |run, url: &str| {
        let (run, _) = at_home(world, run);
        run.exec(&[&browser[..], flags, &["--dump-dom", url]].concat())
    };
    for host in [&host, &other] {
        show(world.bare(), &host.http("/")).exits_with(0).says(&greeting(host));
    }
    let flags = ["--allow", &host.name];
    show(world.netbox(&flags), &host.http("/")).exits_with(0).says(&greeting(&host));
    let mark = world.mark();
    let outcome = show(world.netbox(&flags), &other.http("/"));
    // The page is netbox's, which says what would allow the host.
    outcome.does_not_say("hello").says("not-listed").refused(&other.name, 80, "not-listed");
    world.assert_untouched(mark, &other);
}

fn node_works_in_threads_and_children_and_a_cluster(world: &World) {
    let host = world.zone().host("node-parallel");
    let program = own(world, NODE.name, "work/parallel.mjs", &[&host.http("/")]);
    let words: Vec<_> = program.iter().map(String::as_str).collect();
    let outcome = works(world, &["--allow", &host.name], nothing, &words, &["FROM A SHELL\n", "cluster hello"]);
    for kind in ["threads", "children"] {
        let line = outcome.stdout().lines().find(|line| line.starts_with(kind)).map(str::to_owned);
        assert_eq!(line.map(|line| line.matches(&greeting(&host)).count()), Some(4), "{kind}: {outcome}");
    }
}

fn python_works_in_processes_with_a_manager(world: &World) {
    let host = world.zone().host("python-parallel");
    let program = own(world, PYTHON.name, "work/parallel.py", &[&host.http("/")]);
    let words: Vec<_> = program.iter().map(String::as_str).collect();
    let answer = greeting(&host);
    let lines = ["fork 4", "spawn 4", "forkserver 4", "fork pool", "spawn pool", "forkserver pool", "threads"];
    let lines = lines.map(|line| format!("{line} {answer}\n"));
    let lines: Vec<_> = lines.iter().map(String::as_str).chain(["FROM A CHILD\n"]).collect();
    works(world, &["--allow", &host.name], nothing, &words, &lines);
}

fn java_works_with_selectors_and_threads(world: &World) {
    let host = world.zone().host("java-parallel");
    let program = own(world, JAVA.name, "work/Sockets.java", &[&host.name, "socket"]);
    let words: Vec<_> = program.iter().map(String::as_str).collect();
    let says =
        ["unix hello\n", "loopback hello\n", "selector hello\n", "threads [hello]\n", "url hello", "from a child\n"];
    let rule = format!("{}:80,5432", host.name);
    works(world, &["--allow", &rule], nothing, &words, &says);
}

/// The binary asks its own resolver, reads no variable and loads no library.
fn go_builds_and_its_static_program_works(world: &World) {
    let host = world.zone().host("go-static");
    let program = world.path("programs/work/client.go").to_string_lossy().into_owned();
    let (build, home) = at_home(world, world.netbox(&["--mode", "none"]));
    let build = build.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    build.exec(&["go", "build", "-o", "client", &program]).exits_with(0);
    let client = home.join("client").to_string_lossy().into_owned();
    let kind = Command::new("file").arg(&client).output();
    // Where there is a program that says so.
    assert!(kind.map_or(true, |kind| String::from_utf8_lossy(&kind.stdout).contains("statically")), "{client}");
    let says = ["unix map[hello:200]\n", &format!("http map[200 OK {}:50]\n", greeting(&host))];
    works(world, &["--allow", &host.name], nothing, &[&client, &host.http("/"), "socket"], &says);
    let other = world.zone().host("go-static-refused");
    let (run, _) = at_home(world, world.netbox(&["--allow", &host.name]));
    run.env("NO_PROXY", "*").exec(&[&client, &other.http("/"), "socket"]).says("http map[403 Forbidden ");
}
