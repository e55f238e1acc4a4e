//! Several sandboxes at once: what one has, another has not, and what each says stays apart.
//!
//! Ports are in `ports`.

use std::fs;

use serde_json::Value;

use crate::outcome::read_events;
use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::run::Running;
use crate::tests;
use crate::world::World;

tests![
    a_unix_socket_of_one_is_refused_to_another needs [PYTHON],
    an_abstract_socket_of_one_is_not_there_for_another needs [PYTHON],
    each_is_judged_by_its_own_rules needs [CURL],
    the_same_port_inside_is_each_ones_own needs [CURL, PYTHON],
    events_of_several_runs_in_one_file_stay_whole needs [CURL],
    the_end_of_one_leaves_the_others needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// Listens on the unix socket that is given, accepts for ever, and says when it listens.
const LISTENER: &str = "
import socket, sys
name = sys.argv[1]
server = socket.socket(socket.AF_UNIX)
server.bind('\\0' + name[1:] if name.startswith('@') else name)
server.listen()
print('ready', flush=True)
while True:
    server.accept()
";

/// A sandbox that listens there.
fn listening(world: &World, name: &str) -> Running {
    let running = world.netbox(&FLAGS).start(&["python3", "-c", LISTENER, name]);
    running.wait_for_stdout("ready");
    running
}

fn a_unix_socket_of_one_is_refused_to_another(world: &World) {
    let path = world.fresh_path("home");
    let path = path.to_string_lossy();
    let one = listening(world, &path);
    let client = own(world, "python3", "unix.py", &["connect", "stream", &path]);
    world.bare().exec(&client).exits_with(0).says("connected");
    world.netbox(&FLAGS).exec(&client).does_not_say("connected").says("failed: E");
    // The first one's file is a socket of the host's to the second, which may let it through by name.
    let flags = [&FLAGS[..], &["--unix-socket", &path]].concat();
    world.netbox(&flags).exec(&client).exits_with(0).says("connected");
    drop(one);
}

fn an_abstract_socket_of_one_is_not_there_for_another(world: &World) {
    let name = format!("netbox-several-{}", std::process::id());
    let one = listening(world, &format!("@{name}"));
    let client = probe(world, &["abstract", &name]);
    for run in [world.netbox(&FLAGS), world.bare()] {
        run.exec(&client).does_not_say("connected").says("failed: ECONNREFUSED");
    }
    // In one sandbox it is there.
    let words = ["sh", "-c", "python3 -c \"$0\" \"@$1\" | { read ready; shift; \"$@\"; kill $$; }", LISTENER, &name];
    let words: Vec<_> = words.into_iter().map(str::to_owned).chain(client).collect();
    world.netbox(&FLAGS).exec(&words).says("connected");
    drop(one);
}

/// Fifty requests each, at the same time: not one is judged by the other's rules.
fn each_is_judged_by_its_own_rules(world: &World) {
    let (here, there) = (world.zone().host("several-here"), world.zone().host("several-there"));
    let (to_here, to_there) = (here.http("/[1-50]"), there.http("/[1-50]"));
    let client = curl(&["--parallel", "--parallel-max", "10", &to_here, &to_there]);
    let runs = [(&here, &there), (&there, &here)];
    let running = runs.map(|(allowed, _)| world.netbox(&["--allow", &allowed.name]).start(&client));
    for (running, (allowed, refused)) in running.into_iter().zip(runs) {
        let outcome = running.finish();
        let verdicts = |host: &str, verdict: &str| {
            outcome.decisions(host).iter().filter(|decision| decision["verdict"] == verdict).count()
        };
        let counts = [&allowed.name, &refused.name].map(|host| (verdicts(host, "allow"), verdicts(host, "deny")));
        assert_eq!(counts, [(50, 0), (0, 50)], "{outcome}");
    }
}

fn the_same_port_inside_is_each_ones_own(world: &World) {
    let client = curl(&["http://127.0.0.1:8765/"]);
    let words = own(world, "python3", "serve.py", &["127.0.0.1", "8765", "sh", "-c", "echo ready; cat"]);
    let serving = world.netbox(&FLAGS).stdin_open().start(&words);
    serving.wait_for_stdout("ready");
    // Nobody listens there for another sandbox, nor on the host.
    for run in [world.netbox(&FLAGS), world.bare()] {
        run.exec(&client).exits_with(7);
    }
    let words = own(world, "python3", "serve.py", &[&["127.0.0.1", "8765"], &client[..]].concat());
    world.netbox(&FLAGS).exec(&words).exits_with(0).says("served inside");
    serving.finish().exits_with(0);
}

fn events_of_several_runs_in_one_file_stay_whole(world: &World) {
    let host = world.zone().host("several-events");
    let file = world.fresh_path("events");
    let url = host.http("/[1-20]");
    let events = file.to_string_lossy();
    let words = ["run", "--allow", &host.name, "--events", &events, "--"];
    let words = [&words[..], &curl(&["--parallel", &url])].concat();
    let running: Vec<_> = (0..4).map(|_| world.netbox_words().start(&words)).collect();
    for running in running {
        running.finish().exits_with(0);
    }
    let lines = read_events(&file);
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let mut sessions: Vec<&Value> = of("start").iter().map(|line| &line["session"]).collect();
    sessions.sort_by_key(|session| session.to_string());
    sessions.dedup();
    assert_eq!((sessions.len(), of("exit").len(), of("decision").len()), (4, 4, 80));
    for session in sessions {
        let own = of("decision").into_iter().filter(|line| line["session"] == *session).count();
        assert_eq!(own, 20, "{session} has other decisions than its own");
    }
    fs::remove_file(&file).expect("own file");
}

fn the_end_of_one_leaves_the_others(world: &World) {
    let mut running: Vec<_> = (0..3).map(|_| world.netbox(&FLAGS).stdin_open().start(&["cat"])).collect();
    for running in &mut running {
        running.write(b"before\n");
        running.wait_for_stdout("before");
    }
    running.remove(1).signal(nix::sys::signal::Signal::SIGKILL);
    for mut running in running {
        running.write(b"after\n");
        running.wait_for_stdout("after");
        running.finish().exits_with(0);
    }
}
