//! A service of root's, and clients of other users: who they are is what the kernel says.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};

use crate::control::{Cell, Control, request};
use crate::outcome::Outcome;
use crate::programs::{CURL, PRLIMIT, SETPRIV, curl};
use crate::run::{Run, eventually};
use crate::service::Service;
use crate::test_user::test_user;
use crate::tests;
use crate::world::World;

tests![of root:
    another_user_gets_nothing_without_an_entry_and_its_ceiling_with_one needs [CURL, SETPRIV],
    a_group_has_an_entry_for_its_members needs [CURL, SETPRIV],
    a_socket_for_nobody_else_is_closed_to_others needs [SETPRIV],
    a_listener_that_is_made_to_wait_holds_up_its_own_user_alone needs [CURL],
    a_greedy_user_leaves_descriptors_to_the_others needs [CURL, PRLIMIT],
    what_a_user_had_is_taken_away_and_given_back needs [],
];

/// `netbox run --via` by another user, who asks for every host.
fn as_other(world: &World, service: &Service<'_>, groups: &str, words: &[&str]) -> Outcome {
    let user = test_user();
    let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
    let netbox = world.netbox_path().to_string_lossy();
    let become_other = ["setpriv", "--reuid", &uid, "--regid", &gid, groups];
    let run = [&*netbox, "run", "--no-config", "--via", service.via(), "--mode", "open", "--"];
    world.bare().env("HOME", "/nonexistent").folder("/".as_ref()).exec(&[&become_other[..], &run, words].concat())
}

/// A service with this configuration, whose directory others may enter.
fn service<'w>(world: &'w World, text: &str) -> Service<'w> {
    let file = world.fresh_path("files").with_extension("toml");
    fs::write(&file, text).expect("own folder");
    Service::start(world, &["--config", &file.to_string_lossy()])
}

fn another_user_gets_nothing_without_an_entry_and_its_ceiling_with_one(world: &World) {
    let (inside, outside) = (world.zone().host("service-user-inside"), world.zone().host("service-user-outside"));
    let (one, other) = (inside.http("/"), outside.http("/"));
    let client = curl(&["--include", &one, &other]);
    let others = service(world, "[service.user.daemon]\nceiling = [\"*\"]\n");
    let outcome = as_other(world, &others, "--clear-groups", &["echo", "it runs"]);
    outcome.exits_with(125).does_not_say("it runs").complains("the service refuses: the service has nothing for uid");
    let uid = test_user().uid;
    others.running().wait_for_stderr(&format!("control socket: uid {uid}, pid "));
    for name in [test_user().name, uid.to_string(), "\"*\"".to_owned()] {
        let own = service(world, &format!("[service.user.{name}]\nceiling = [\"{}\"]\n", inside.name));
        let mark = world.mark();
        let outcome = as_other(world, &own, "--clear-groups", &client);
        outcome.exits_with(0).says("hello service-user-inside").says("HTTP/1.1 403");
        world.assert_untouched(mark, &outside);
        // Root itself gets what it asks for, unless it is anybody.
        let outcome = own.netbox(&["--mode", "open"]).exec(&client);
        assert_eq!(outcome.stdout().contains("hello service-user-outside"), name != "\"*\"", "{outcome}");
    }
}

fn a_group_has_an_entry_for_its_members(world: &World) {
    let host = world.zone().host("service-group");
    let url = host.http("/");
    let own = service(world, &format!("[service.group.daemon]\nceiling = [\"{}\"]\n", host.name));
    let outcome = as_other(world, &own, "--groups=daemon", &curl(&[&url]));
    outcome.exits_with(0).says("hello service-group");
    as_other(world, &own, "--clear-groups", &["true"]).exits_with(125).complains("has nothing for uid");
}

fn a_socket_for_nobody_else_is_closed_to_others(world: &World) {
    let own = Service::start(world, &[]);
    let mode = fs::metadata(own.socket()).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    as_other(world, &own, "--clear-groups", &["true"]).exits_with(125).complains("Permission denied");
}

/// Whoever hands a listener over has it open too. To the kernel it is one: its maker makes calls on it wait, and takes away
/// what came, so that the service waits in accept(2) for a connection that is gone.
fn a_listener_that_is_made_to_wait_holds_up_its_own_user_alone(world: &World) {
    let host = world.zone().host("service-made-to-wait");
    let uid = test_user().uid.as_raw();
    let own = service(world, &format!("[service.user.{uid}]\nceiling = [\"{}\"]\n", host.name));
    let attach = |cell: &Cell| {
        let (control, answer) = cell.attach_by(world, Control::connect_as(&own, uid), &[&host.name]);
        assert_eq!(answer["type"], "granted", "{answer}");
        control
    };
    let cell = Cell::new();
    let control = attach(&cell);
    let mut first = cell.connect().expect("it listens");
    assert_eq!(request(&mut first, &host.name, "/").expect("an answer").0, 200, "it is carried");
    cell.listener.set_nonblocking(false).expect("its own");
    let copy = cell.listener.try_clone().expect("a descriptor");
    let thief = thread::spawn(move || while copy.accept().is_ok() {});
    // Its thread waits in accept(2): the one that says so is that user's.
    let name = format!("user-{uid}");
    let waits = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", own.running().pid())).expect("a child's threads").flatten();
        let read = |task: &fs::DirEntry, file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let accept = [libc::SYS_accept, libc::SYS_accept4].map(|number| format!("{number} "));
        tasks.into_iter().any(|task| {
            let call = read(&task, "syscall");
            read(&task, "comm").trim_end() == name && accept.iter().any(|number| call.starts_with(number))
        })
    };
    let is_held_up = (0..1000).any(|_| {
        drop(cell.connect());
        thread::yield_now();
        waits()
    });
    assert!(is_held_up, "the listener's maker cannot do what is to be shown");
    let client = curl(&["http://service-made-to-wait.example.com/"]);
    own.netbox(&["--allow", &host.name]).exec(&client).exits_with(0).says("hello");
    drop(control);
    // With the lease the wait ends, for this user's other sandboxes too.
    let next = Cell::new();
    let _lease = attach(&next);
    let mut stream = next.connect().expect("it listens");
    assert_eq!(request(&mut stream, &host.name, "/").expect("an answer").0, 200);
    let _ = shutdown(cell.listener.as_raw_fd(), Shutdown::Both);
    thief.join().expect("it ends with its listener");
    own.stop().exits_with(0);
}

/// Nobody has set any limit.
fn a_greedy_user_leaves_descriptors_to_the_others(world: &World) {
    let host = world.zone().host("user-descriptors");
    let uid = test_user().uid.as_raw();
    let file = world.fresh_path("files").with_extension("toml");
    fs::write(&file, format!("[service.user.{uid}]\nceiling = [\"{}\"]\n", host.name)).expect("own folder");
    let path = world.fresh_path("files").with_extension("service").join("control.sock");
    let listen = format!("unix:{}", path.display());
    let run = Run::serve(world, &["--listen", &listen, "--config", &file.to_string_lossy()]).descriptor_limit(1000);
    let service = Service::of(world, &path, run);
    let attach = |cell: &Cell| cell.attach_by(world, Control::connect_as(&service, uid), &[&host.name]);
    let (mut cells, mut leases) = (Vec::new(), Vec::new());
    let refusal = loop {
        let cell = Cell::new();
        let (control, answer) = attach(&cell);
        if answer["type"] != "granted" {
            break answer;
        }
        // Each with connections, as many as can be had.
        let idle: Vec<_> = (0..8).filter_map(|_| cell.connect().ok()).collect();
        cells.push((cell, idle));
        leases.push(control);
    };
    assert_eq!((&refusal["type"], &refusal["reason"]), (&"refused".into(), &"limit".into()), "{refusal}");
    let open = fs::read_dir(format!("/proc/{}/fd", service.running().pid())).expect("a child's descriptors").count();
    assert!(open < 600, "{open} of 1000 are open, after {} sandboxes", cells.len());
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/")])).exits_with(0).says("hello");
    drop((cells, leases));
    let again = || attach(&Cell::new()).1["type"] == "granted";
    assert!(eventually(again), "what was given back can be had");
    service.stop().exits_with(0);
}

fn what_a_user_had_is_taken_away_and_given_back(world: &World) {
    let host = world.zone().host("user-revoked");
    let uid = test_user().uid.as_raw();
    let file = world.fresh_path("files").with_extension("toml");
    let write = |user: u32| {
        fs::write(&file, format!("[service.user.{user}]\nceiling = [\"{}\"]\n", host.name)).expect("own folder");
    };
    write(uid);
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let cell = Cell::new();
    let (mut control, answer) = cell.attach_by(world, Control::connect_as(&service, uid), &[&host.name]);
    assert_eq!(answer["type"], "granted", "{answer}");
    let ask = || {
        let mut stream = cell.connect().expect("it listens");
        request(&mut stream, &host.name, "/").expect("an answer").0
    };
    assert_eq!(ask(), 200);
    let reload = || {
        service.running().signal(Signal::SIGHUP);
        service.running().wait_for_stderr("read anew; ");
    };
    write(uid + 1);
    reload();
    let told = control.answer();
    assert_eq!((&told["type"], ask()), (&"revoked".into(), 403), "{told}");
    assert!(told["text"].as_str().is_some_and(|text| text.contains("has nothing for uid")), "{told}");
    write(uid);
    reload();
    let told = control.answer();
    assert_eq!((&told["type"], &told["policy"]), (&"granted".into(), &answer["policy"]), "{told}");
    assert_eq!(ask(), 200);
    service.stop().exits_with(0);
}
