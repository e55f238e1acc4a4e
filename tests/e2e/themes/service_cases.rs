//! The shared service, by `tests/cases/service.jsonl`: one test for each, by its id.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket};
use serde_json::{Value, json};

use crate::control::{Cell, Control, attach, frame, request, shown_namespace};
use crate::programs::{CURL, PRLIMIT, PYTHON, curl, probe};
use crate::run::eventually;
use crate::service::{Service, household};
use crate::tests;
use crate::world::World;

tests![
    m003_nothing_of_another_sandbox_can_be_read needs [],
    m008_the_name_of_a_clients_socket_is_no_identity needs [],
    m011_what_one_sandbox_has_looked_up_and_opened_is_not_anothers needs [CURL],
    m012_an_address_is_judged_for_each_sandbox_by_itself needs [CURL],
    m013_idle_connections_of_one_sandbox_keep_no_other_out needs [CURL],
    m014_heads_that_never_end_keep_nobody_out needs [],
    m016_half_closed_connections_end_in_both_orders needs [PYTHON],
    m017_a_storm_of_refusals_is_counted_and_not_all_written needs [],
    m018_without_descriptors_the_service_waits_and_goes_on needs [CURL, PRLIMIT],
    m020_a_far_side_that_never_answers_holds_its_own_connection_alone needs [CURL],
    m021_hostile_names_are_one_line_each needs [],
    m023_hosts_of_many_tenants_are_told_by_lint needs [],
    m024_a_long_tunnel_ends_when_its_rule_is_gone needs [CURL],
];

fn m003_nothing_of_another_sandbox_can_be_read(world: &World) {
    let service = Service::start(world, &[]);
    let secret = "token-of-another-tenant";
    let flags = ["--mode", "none", "--env", "SECRET=token-of-another-tenant"];
    let other = service.netbox(&flags).stdin_open().start(&["sh", "-c", "echo ready; cat"]);
    other.wait_for_stdout("ready");
    let script = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; echo \"done\"";
    let outcome = service.netbox(&["--mode", "none"]).exec(&["sh", "-c", script]);
    outcome.exits_with(0).says("done").does_not_say(secret);
    // And whoever sees the client's own words sees a path, which is no secret.
    let words = fs::read_to_string(format!("/proc/{}/cmdline", other.pid())).expect("a child's words");
    assert!(words.contains(service.via()), "{words}");
    other.finish().exits_with(0);
}

fn m008_the_name_of_a_clients_socket_is_no_identity(world: &World) {
    let service = Service::start(world, &[]);
    let folder = world.fresh_path("files");
    fs::create_dir(&folder).expect("own folder");
    let named = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let name = UnixAddr::new(&folder.join(";uid=0;pid=1;")).expect("a short name");
    bind(named.as_raw_fd(), &name).expect("own folder");
    connect(named.as_raw_fd(), &UnixAddr::new(service.socket()).expect("a short name")).expect("it listens");
    UnixStream::from(named).write_all(&frame(b"{}")).expect("it listens");
    let uid = world.identity.uid;
    service.running().wait_for_stderr(&format!("control socket: uid {uid}, pid "));
    let said = service.stop().stderr();
    assert!(world.identity.real_root || !said.contains("uid 0"), "{said}");
}

fn m011_what_one_sandbox_has_looked_up_and_opened_is_not_anothers(world: &World) {
    let host = world.zone().host("m011");
    let service = Service::start(world, &[]);
    let (warm, cold) = (Cell::new(), Cell::new());
    let _leases = [warm.attached(world, &service, &[&host.name]), cold.attached(world, &service, &["example.com"])];
    let mut open = warm.connect().expect("the service accepts");
    assert_eq!(request(&mut open, &host.name, "/").expect("an answer").0, 200);
    let mark = world.mark();
    let mut other = cold.connect().expect("the service accepts");
    assert_eq!(request(&mut other, &host.name, "/").expect("an answer").0, 403);
    world.assert_untouched(mark, &host);
    assert_eq!(request(&mut open, &host.name, "/").expect("an answer").0, 200, "it was open all the time");
}

fn m012_an_address_is_judged_for_each_sandbox_by_itself(world: &World) {
    let private = Ipv4Addr::new(10, 77, 0, 12);
    let host = world.zone().host_at("m012", &[private.into()]);
    let service = Service::start(world, &[]);
    let client = curl(&["--include", "http://m012.example.com/"]);
    let outcome = service.netbox(&["--allow", &host.name, "--allow", "10.77.0.0/24"]).exec(&client);
    outcome.says("hello m012").allowed(&host.name, 80, "listed");
    let mark = world.mark();
    let outcome = service.netbox(&["--allow", &host.name]).exec(&client);
    outcome.does_not_say("hello").refused(&host.name, 80, "non-public");
    assert!(world.arrivals_at(mark, IpAddr::from(private)).is_empty(), "{outcome}");
}

/// A service whose tenants may have so many connections.
fn limited<'w>(world: &'w World, limits: &str) -> Service<'w> {
    let file = world.fresh_path("files").with_extension("toml");
    fs::write(&file, format!("[service.limits]\n{limits}\n")).expect("own folder");
    Service::start(world, &["--config", &file.to_string_lossy()])
}

fn m013_idle_connections_of_one_sandbox_keep_no_other_out(world: &World) {
    let host = world.zone().host("m013");
    let service = limited(world, "connections = 100\nhalf_open = 100");
    let greedy = Cell::new();
    let _lease = greedy.attached(world, &service, &[&host.name]);
    let before = service.sockets();
    // Those that it may not have are reset, some of them before it is known that they were made.
    let idle: Vec<_> = (0..1000).filter_map(|_| greedy.connect().ok()).collect();
    assert!(eventually(|| service.sockets() >= before + 99), "as many as it may have");
    assert!(service.sockets() <= before + 110, "{} sockets, {before} before", service.sockets());
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/")])).exits_with(0).says("hello");
    drop(idle);
    let serves = || {
        greedy
            .connect()
            .and_then(|mut stream| request(&mut stream, &host.name, "/"))
            .is_ok_and(|answer| answer.0 == 200)
    };
    assert!(eventually(serves), "it is served again");
}

fn m014_heads_that_never_end_keep_nobody_out(world: &World) {
    let host = world.zone().host("m014");
    let service = limited(world, "half_open = 8");
    let cell = Cell::new();
    let _lease = cell.attached(world, &service, &[&host.name]);
    let beginnings: [&[u8]; 4] =
        [b"GET http://m014.example.com/ HTTP/1.1\r\nX: ", b"CONNECT ", b"\x05", b"\x05\x01\x00\x05\x01"];
    let mut slow = Vec::new();
    for number in 0..200 {
        let mut stream = cell.connect().expect("it listens");
        let _ = stream.write_all(beginnings[number % 4]);
        slow.push(stream);
    }
    let mut stream = cell.connect().expect("it listens");
    assert_eq!(request(&mut stream, &host.name, "/").expect("who speaks is served").0, 200);
    // Those that have waited longest are given up.
    assert!(matches!(slow[0].read(&mut [0; 512]), Ok(_) | Err(_)));
    let ended = slow.iter_mut().take(150).filter_map(|stream| stream.read(&mut [0; 512]).ok().or(Some(0))).count();
    assert_eq!(ended, 150);
}

fn m016_half_closed_connections_end_in_both_orders(world: &World) {
    let host = world.zone().host("m016");
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let allow = format!("tcp://{}:9001,5432", host.name);
    // The client is done first.
    let outcome =
        service.netbox(&["--allow", &allow]).exec(&probe(world, &["half-close", &host.name, "9001", "100000"]));
    outcome.exits_with(0).says("100000");
    // The far side is: it answers, and then ends.
    let outcome = service.netbox(&["--allow", &allow]).exec(&probe(world, &["tcp", &host.name, "5432", "hello"]));
    outcome.exits_with(0).says("hello");
    assert!(eventually(|| service.sockets() == before), "nothing is left open");
}

fn m017_a_storm_of_refusals_is_counted_and_not_all_written(world: &World) {
    const STORM: u64 = 12_000;
    let service = Service::start(world, &[]);
    let cell = Cell::new();
    let mut control = Control::hello(&service, "attach");
    let mut asked = attach(&["explicit", "user-namespace"], &["example.com"]);
    asked["events"] = json!(true);
    let namespace = shown_namespace(world);
    control.send(&frame(asked.to_string().as_bytes()), &[cell.listener.as_fd(), namespace.as_fd()]);
    assert_eq!(control.told().expect("an answer")["type"], "granted");
    std::thread::scope(|scope| {
        let storm = || {
            for _ in 0..STORM / 4 {
                let mut stream = cell.connect().expect("it listens");
                assert_eq!(request(&mut stream, "refused.example.org", "/").expect("an answer").0, 403);
            }
        };
        let storm = [storm; 4].map(|storm| scope.spawn(storm));
        let mut lines = 0;
        let mut counted = 0;
        while counted < STORM {
            let told = control.told().expect("it goes on");
            match told["type"].as_str() {
                Some("event") => lines += 1,
                Some("sums") => counted = told["denied"].as_u64().expect("a number"),
                _ => panic!("{told}"),
            }
        }
        storm.into_iter().for_each(|storm| storm.join().expect("every request is answered"));
        control.say(&json!({ "type": "end" }));
        let summary = loop {
            let told = control.told().expect("a summary");
            match told["type"].as_str() {
                Some("event") => lines += 1,
                Some("summary") => break told,
                _ => {}
            }
        };
        let dropped = summary["events_dropped"].as_u64().expect("a number");
        assert_eq!(summary["summary"]["denied"], STORM);
        assert_eq!(lines + dropped, STORM, "each is written or counted");
    });
}

fn m018_without_descriptors_the_service_waits_and_goes_on(world: &World) {
    let host = world.zone().host("m018");
    let service = Service::start(world, &["--verbose"]);
    let cells = [Cell::new(), Cell::new()];
    let _lease = cells[0].attached(world, &service, &[&host.name]);
    let pid = service.running().pid();
    // The lowest number that is free, so that none is left below the limit.
    let is_free = |number: &u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_err();
    let free = (0..).find(is_free).expect("there are few");
    // The hard limit stays, so that it may be raised again.
    let allow = |most: &str| {
        let (pid, limit) = (format!("--pid={pid}"), format!("--nofile={most}:"));
        world.bare().within(household(world)).exec(&["prlimit", &pid, &limit]).exits_with(0);
    };
    allow(&free.to_string());
    // Each of them waits: a sandbox, and a connection of one that is carried.
    let mut control = Control::hello(&service, "attach");
    let namespace = shown_namespace(world);
    let asked = frame(attach(&["explicit", "user-namespace"], &[&host.name]).to_string().as_bytes());
    control.send(&asked, &[cells[1].listener.as_fd(), namespace.as_fd()]);
    service.running().wait_for_stderr("control socket: Too many open files");
    let mut stream = cells[0].connect().expect("it listens");
    assert!(!service.running().has_ended());
    allow("1000");
    assert_eq!(control.answer()["type"], "granted");
    assert_eq!(request(&mut stream, &host.name, "/").expect("an answer").0, 200);
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/")])).exits_with(0).says("hello");
    service.stop().exits_with(0);
}

fn m020_a_far_side_that_never_answers_holds_its_own_connection_alone(world: &World) {
    let host = world.zone().host("m020");
    let service = Service::start(world, &[]);
    let stream = host.http("/events?gate=m020");
    let waiting = service.netbox(&["--allow", &host.name]).start(&curl(&["--no-buffer", &stream]));
    waiting.wait_for_stdout("data");
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/")])).exits_with(0).says("hello");
    assert!(!waiting.has_ended(), "it may wait as long as it likes");
    world.gates().open("m020");
    waiting.finish().exits_with(0);
}

fn m021_hostile_names_are_one_line_each(world: &World) {
    let service = Service::start(world, &[]);
    let cell = Cell::new();
    let mut control = Control::hello(&service, "attach");
    let mut asked = attach(&["explicit", "user-namespace"], &["example.com"]);
    asked["events"] = json!(true);
    asked["argv0"] = json!("\u{1b}[2J\r\nnetbox: listening on everything");
    let namespace = shown_namespace(world);
    control.send(&frame(asked.to_string().as_bytes()), &[cell.listener.as_fd(), namespace.as_fd()]);
    assert_eq!(control.answer()["type"], "granted");
    let long = "a".repeat(64 << 10);
    let names = ["\u{1b}[2J.example.com", "a\"b\\c.example.com", "a\r\nX: y", "\u{202e}moc.elpmaxe", long.as_str()];
    for name in names {
        for head in [
            format!("CONNECT {name}:443 HTTP/1.1\r\n\r\n"),
            format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n"),
        ] {
            let mut stream = cell.connect().expect("it listens");
            let _ = stream.write_all(head.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let refused =
                ["HTTP/1.1 400", "HTTP/1.1 403", "HTTP/1.1 431"].iter().any(|status| answer.starts_with(status));
            assert!(refused || answer.is_empty(), "{name:?}: {answer}");
        }
    }
    control.say(&json!({ "type": "end" }));
    let mut lines = 0;
    loop {
        let told = control.told().expect("a summary");
        match (told["type"].as_str(), told["line"].as_str()) {
            (Some("event"), Some(line)) => {
                lines += 1;
                assert!(line.len() <= 4096 && line.find('\n') == Some(line.len() - 1), "{line:?}");
                assert!(!line.trim_end().contains(char::is_control), "{line:?}");
                serde_json::from_str::<Value>(line).expect("JSON");
            }
            (Some("summary"), _) => break,
            _ => {}
        }
    }
    assert!(lines > 0, "they are told");
    let said = service.stop().stderr();
    assert!(!said.contains('\u{1b}') && !said.contains("everything"), "{said:?}");
}

/// What an allowed host is used for is not netbox's to see; that strangers can be reached by it is said.
fn m023_hosts_of_many_tenants_are_told_by_lint(world: &World) {
    let file = world.fresh_path("files").with_extension("toml");
    fs::write(&file, "allow = [\"*.amazonaws.com\"]\n").expect("own folder");
    let outcome = world.netbox_words().exec(&["policy", "lint", &file.to_string_lossy()]);
    outcome.exits_with(0);
    let said = [outcome.stdout(), outcome.stderr()].concat();
    assert!(said.contains("amazonaws.com") && said.contains("warning"), "{outcome}");
}

fn m024_a_long_tunnel_ends_when_its_rule_is_gone(world: &World) {
    let host = world.zone().host("m024");
    let file = world.fresh_path("files").with_extension("toml");
    let table = |rule: &str| format!("[service.user.{}]\nceiling = [\"{rule}\"]\n", world.identity.uid);
    fs::write(&file, table(&host.name)).expect("own folder");
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let stream = host.https("/events?gate=m024");
    let running = service.netbox(&["--allow", &host.name]).start(&curl(&["--no-buffer", &stream]));
    running.wait_for_stdout("data");
    fs::write(&file, table("other.example.com")).expect("own folder");
    service.running().signal(Signal::SIGHUP);
    let outcome = running.finish();
    assert_ne!(outcome.code, Some(0), "{outcome}");
    assert_eq!(outcome.event("close")["end"], "revoked", "{outcome}");
    world.gates().open("m024");
}
