//! Doors between the two loopbacks: a port of the host's that the sandbox reaches (`--host-port`), and one of the sandbox's
//! that the host reaches (`--publish`). Each is one port, in one direction, for one sandbox.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::run::{Running, eventually};
use crate::tests;
use crate::world::World;
use crate::zone;

tests![
    a_port_of_the_hosts_is_reached needs [CURL],
    it_may_have_another_number_inside_and_is_localhost_too needs [CURL],
    no_other_port_of_the_hosts_is_reached needs [CURL],
    it_is_open_in_every_mode needs [CURL],
    a_deny_rule_closes_it needs [CURL],
    a_client_may_end_its_direction_first needs [PYTHON],
    many_connections_at_once needs [CURL],
    what_was_sent_before_the_exit_arrives needs [PYTHON],
    nobody_on_the_host_is_a_reset_and_no_refusal needs [PYTHON],
    two_sandboxes_have_ports_of_their_own needs [CURL],
    forty_ports_are_carried needs [CURL],
    a_port_of_the_sandboxs_is_reached needs [CURL, PYTHON],
    a_server_inside_may_listen_on_ipv6_alone needs [CURL, PYTHON],
    the_system_may_choose_the_port needs [CURL, PYTHON],
    nobody_inside_is_a_reset needs [],
    a_published_port_is_on_loopback_alone needs [PYTHON],
    what_a_server_sent_before_the_end_arrives needs [PYTHON],
    two_sandboxes_publish_ports_of_their_own needs [PYTHON],
    a_sandbox_cannot_come_back_by_its_own_port needs [CURL, PYTHON],
    a_port_that_is_taken_stops_the_run needs [],
    the_port_is_free_again_after_the_run needs [],
    ports_that_make_no_sense_are_errors needs [],
    a_dry_run_shows_the_ports needs [],
    the_events_begin_with_what_was_opened needs [],
];

/// Sends its argument to whoever connects to 127.0.0.1:4000, and says when it listens.
const GREETER: &str = "
import socket, sys
server = socket.create_server(('127.0.0.1', 4000))
print('ready', flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(sys.argv[1].encode())
    connection.close()
";

/// A listener of the host's loopback, and its port.
fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

/// Reads the next connection to its end, answers, and gives what was read.
fn answer_after_the_end(listener: TcpListener) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an orderly end");
        // The client may be gone, which one of the tests is about.
        let _ = stream.write_all(format!("{} bytes before the end", all.len()).as_bytes());
        all
    })
}

/// What the host hears from a port of its own.
fn heard(address: impl Into<SocketAddr>) -> std::io::Result<String> {
    let mut text = String::new();
    TcpStream::connect(address.into())?.read_to_string(&mut text)?;
    Ok(text)
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn a_port_of_the_hosts_is_reached(world: &World) {
    let client = curl(&["http://127.0.0.1:8080/"]);
    world.bare().exec(&client).exits_with(0).says("hello 127.0.0.1:8080");
    world.netbox(&["--allow", "other.example.com"]).exec(&client).exits_with(7).does_not_say("hello");
    let flags = ["--allow", "other.example.com", "--host-port", "8080"];
    let outcome = world.netbox(&flags).exec(&client);
    outcome.exits_with(0).says("hello 127.0.0.1:8080");
    let decision = outcome.allowed("127.0.0.1", 8080, "listed");
    assert_eq!(decision["rule"], serde_json::json!({ "text": "8080", "source": "--host-port" }), "{outcome}");
    assert_eq!(decision["via"], "capture", "{outcome}");
    let close = outcome.event("close");
    assert_eq!(close["addr"], "127.0.0.1:8080", "{outcome}");
    assert!(close["received"].as_u64().is_some_and(|bytes| bytes > 0), "{outcome}");
}

fn it_may_have_another_number_inside_and_is_localhost_too(world: &World) {
    let flags = ["--mode", "none", "--host-port", "3000:8080", "--host-port", "80:8080"];
    for url in ["http://127.0.0.1:3000/", "http://localhost:3000/", "http://[::1]:3000/", "http://localhost/"] {
        let outcome = world.netbox(&flags).exec(&curl(&[url]));
        outcome.exits_with(0).says("hello ");
        outcome.allowed("127.0.0.1", 8080, "listed");
    }
}

fn no_other_port_of_the_hosts_is_reached(world: &World) {
    let client = curl(&["http://127.0.0.1:80/"]);
    world.bare().exec(&client).exits_with(0).says("hello");
    world.netbox(&["--mode", "none", "--host-port", "8080"]).exec(&client).exits_with(7).does_not_say("hello");
}

fn it_is_open_in_every_mode(world: &World) {
    for mode in ["none", "allowlist", "audit", "open"] {
        let outcome = world.netbox(&["--mode", mode, "--host-port", "8080"]).exec(&curl(&["http://localhost:8080/"]));
        outcome.exits_with(0).says("hello");
        outcome.allowed("127.0.0.1", 8080, "listed");
    }
}

fn a_deny_rule_closes_it(world: &World) {
    let flags = ["--mode", "open", "--host-port", "8080", "--deny", "127.0.0.0/8"];
    let outcome = world.netbox(&flags).exec(&curl(&["http://127.0.0.1:8080/"]));
    outcome.does_not_say("hello 127").refused("127.0.0.1", 8080, "denied");
}

fn a_client_may_end_its_direction_first(world: &World) {
    for with_netbox in [false, true] {
        let (listener, port) = listener();
        let text = port.to_string();
        let server = answer_after_the_end(listener);
        let run = if with_netbox { world.netbox(&["--mode", "none", "--host-port", &text]) } else { world.bare() };
        let outcome = run.exec(&probe(world, &["half-close", "127.0.0.1", &text, "100000"]));
        outcome.says("answer: 100000 bytes before the end");
        assert_eq!(server.join().expect("it answers").len(), 100_000);
        assert!(!with_netbox || outcome.event("close")["sent"] == 100_000, "{outcome}");
    }
}

fn many_connections_at_once(world: &World) {
    let url = "http://127.0.0.1:8080/[1-200]";
    let client = curl(&["--parallel", "--parallel-max", "50", "--header", "Connection: close", url]);
    let outcome = world.netbox(&["--mode", "none", "--host-port", "8080"]).exec(&client);
    assert_eq!(outcome.exits_with(0).stdout().matches("hello 127.0.0.1:8080 GET").count(), 200, "{outcome}");
    assert_eq!(outcome.event("exit")["allowed"], 200, "{outcome}");
}

/// The program hands its bytes to the kernel and is gone, and netbox ends with it. It must not take them along.
fn what_was_sent_before_the_exit_arrives(world: &World) {
    let (listener, port) = listener();
    let server = answer_after_the_end(listener);
    let script = format!(
        "import os, socket\ns = socket.create_connection(('127.0.0.1', {port}))\ns.sendall(b'x' * 2000000)\nos._exit(0)"
    );
    world.netbox(&["--mode", "none", "--host-port", &port.to_string()]).exec(&["python3", "-c", &script]).exits_with(0);
    assert_eq!(server.join().expect("it reads").len(), 2_000_000);
}

fn nobody_on_the_host_is_a_reset_and_no_refusal(world: &World) {
    // 1 is below what the system gives away by itself, and nobody listens there.
    let client = probe(world, &["tcp", "127.0.0.1", "1", "hello"]);
    world.bare().exec(&client).says("failed: ECONNREFUSED");
    let outcome = world.netbox(&["--mode", "none", "--host-port", "1"]).exec(&client);
    assert!(outcome.stdout().ends_with("reset\n"), "{outcome}");
    outcome.decided("error", "127.0.0.1", 1, "refused");
    assert_eq!(outcome.event("exit")["denied"], 0, "{outcome}");
}

/// The same port inside leads where each one's own flag says.
fn two_sandboxes_have_ports_of_their_own(world: &World) {
    let hosts = ["one", "two"].map(|word| {
        let (listener, port) = listener();
        let greet = move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.read_exact(&mut [0; 4]).expect("a request");
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{word}").as_bytes())
                .expect("a client");
        };
        (word, format!("3000:{port}"), thread::spawn(greet))
    });
    let running = hosts.each_ref().map(|(_, ports, _)| {
        world.netbox(&["--mode", "none", "--host-port", ports]).start(&curl(&["http://localhost:3000/"]))
    });
    for (running, (word, _, server)) in running.into_iter().zip(hosts) {
        assert_eq!(running.finish().exits_with(0).stdout(), word);
        server.join().expect("it was asked");
    }
}

fn forty_ports_are_carried(world: &World) {
    let doors: Vec<_> = (0..40).map(|index| format!("{}:8080", 3000 + index)).collect();
    let mut flags = vec!["--mode", "none"];
    flags.extend(doors.iter().flat_map(|door| ["--host-port", door.as_str()]));
    let client = curl(&["http://127.0.0.1:3000/", "http://localhost:3039/"]);
    let outcome = world.netbox(&flags).exec(&client);
    assert_eq!(outcome.exits_with(0).stdout().matches("hello").count(), 2, "{outcome}");
    let one_more = [&flags[..], &["--host-port", "4000"]].concat();
    world.netbox(&one_more).exec(&client).exits_with(2).complains("at most 40");
}

/// A server inside that runs until its input ends. It listens.
fn serving(world: &World, flags: &[&str], address: &str, port: &str) -> Running {
    let words = own(world, "python3", "serve.py", &[address, port, "sh", "-c", "echo ready; cat"]);
    let running = world.netbox(flags).stdin_open().start(&words);
    running.wait_for_stdout("ready");
    running
}

fn a_port_of_the_sandboxs_is_reached(world: &World) {
    let client = curl(&["http://127.0.0.1:18081/"]);
    world.bare().exec(&client).exits_with(7);
    let running = serving(world, &["--mode", "none", "--publish", "18081:8765"], "127.0.0.1", "8765");
    for url in ["http://127.0.0.1:18081/", "http://localhost:18081/", "http://[::1]:18081/"] {
        world.bare().exec(&curl(&[url])).exits_with(0).says("served inside");
    }
    let many = curl(&["--parallel", "--parallel-max", "20", "http://127.0.0.1:18081/[1-60]"]);
    assert_eq!(world.bare().exec(&many).exits_with(0).stdout().matches("served inside").count(), 60);
    let outcome = running.finish();
    assert!(outcome.exits_with(0).events_of("decision").is_empty(), "the policy has no say in it: {outcome}");
}

fn a_server_inside_may_listen_on_ipv6_alone(world: &World) {
    let running = serving(world, &["--mode", "none", "--publish", "18082"], "::1", "18082");
    world.bare().exec(&curl(&["http://127.0.0.1:18082/"])).exits_with(0).says("served inside");
    running.finish().exits_with(0);
}

fn the_system_may_choose_the_port(world: &World) {
    let running = serving(world, &["-q", "--mode", "none", "--publish", "0:8765"], "127.0.0.1", "8765");
    let said = running.wait_for_stderr("published 127.0.0.1:");
    let port = said.split(',').next().expect("a first part").to_owned();
    assert!(said.contains("8765"), "and what it leads to: {said}");
    world.bare().exec(&curl(&[&format!("http://127.0.0.1:{port}/")])).exits_with(0).says("served inside");
    running.finish().exits_with(0);
}

fn nobody_inside_is_a_reset(world: &World) {
    let running = world.netbox(&["--mode", "none", "--publish", "18083:8765"]).stdin_open().start(&["cat"]);
    let mut running = running;
    running.write(b"ready\n");
    running.wait_for_stdout("ready");
    let error = heard(at(18083)).expect_err("nobody listens inside");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    running.finish().exits_with(0);
}

/// Neither by another address of the machine, nor from another machine.
fn a_published_port_is_on_loopback_alone(world: &World) {
    let running = greeting(world, &["--publish", "18084:4000"], "hello");
    assert_eq!(heard(at(18084)).expect("published"), "hello");
    let own = |port: u16| SocketAddr::from((zone::OWN, port));
    let connects = [TcpStream::connect(own(18084)), world.in_inet(|| TcpStream::connect(own(18084)))];
    for connect in connects {
        assert_eq!(connect.expect_err("not on this address").kind(), ErrorKind::ConnectionRefused);
    }
    // A port of the host's that is on every address can be reached like that.
    let connects = [TcpStream::connect(own(8080)), world.in_inet(|| TcpStream::connect(own(8080)))];
    assert!(connects.iter().all(Result::is_ok), "{connects:?}");
    drop(running);
}

/// A server inside that greets with this text. It listens.
fn greeting(world: &World, flags: &[&str], text: &str) -> Running {
    let flags = [&["--mode", "none"], flags].concat();
    let running = world.netbox(&flags).start(&["python3", "-c", GREETER, text]);
    running.wait_for_stdout("ready");
    running
}

fn what_a_server_sent_before_the_end_arrives(world: &World) {
    let script = "
import os, socket
server = socket.create_server(('127.0.0.1', 4000))
print('ready', flush=True)
connection, _ = server.accept()
connection.sendall(b'x' * 2000000)
os._exit(0)
";
    let running = world.netbox(&["--mode", "none", "--publish", "18085:4000"]).start(&["python3", "-c", script]);
    running.wait_for_stdout("ready");
    assert_eq!(heard(at(18085)).expect("an orderly end").len(), 2_000_000);
    running.finish().exits_with(0);
}

/// Each has a loopback of its own, so the same port inside is another one.
fn two_sandboxes_publish_ports_of_their_own(world: &World) {
    let one = greeting(world, &["--publish", "18086:4000"], "one");
    let two = greeting(world, &["--publish", "18087:4000"], "two");
    assert_eq!(heard(at(18086)).expect("published"), "one");
    assert_eq!(heard(at(18087)).expect("published"), "two");
    // And a third one reaches neither, unless it is told to.
    let client = probe(world, &["tcp", "127.0.0.1", "18086"]);
    world.bare().exec(&client).says("answer: one");
    world.netbox(&["--mode", "none"]).exec(&client).says("failed: ECONNREFUSED");
    world.netbox(&["--mode", "none", "--host-port", "18086"]).exec(&client).says("answer: one");
    drop((one, two));
}

/// The proxy port inside takes addresses of the host's, where a rule names them; netbox's own ports are never among them.
fn a_sandbox_cannot_come_back_by_its_own_port(world: &World) {
    let words = curl(&["--proxy", "http://127.0.0.1:61003", "http://127.0.0.1:18088/"]);
    let words = own(world, "python3", "serve.py", &[&["127.0.0.1", "4000"], &words[..]].concat());
    let flags = ["--allow", "127.0.0.1:18088", "--allow", "127.0.0.1:8080", "--publish", "18088:4000"];
    let outcome = world.netbox(&flags).exec(&words);
    outcome.does_not_say("served inside").refused("127.0.0.1", 18088, "self");
    // By that way the host's loopback is reached, where there is a rule.
    let words = curl(&["--proxy", "http://127.0.0.1:61003", "http://127.0.0.1:8080/"]);
    world.netbox(&flags).exec(&words).exits_with(0).says("hello");
}

fn a_port_that_is_taken_stops_the_run(world: &World) {
    let (listener, port) = listener();
    let door = format!("{port}:4000");
    let outcome = world.netbox(&["--mode", "none", "--publish", &door]).exec(&["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran").complains(&format!("127.0.0.1:{port}"));
    outcome.complains("is free: `--publish ").complains("`--publish 0:4000`");
    drop(listener);
    world.netbox(&["--mode", "none", "--publish", &door]).exec(&["echo", "it ran"]).exits_with(0).says("it ran");
}

fn the_port_is_free_again_after_the_run(world: &World) {
    for _ in 0..2 {
        let outcome = world.netbox(&["--mode", "none", "--publish", "18089"]).exec(&["echo", "it ran"]);
        outcome.exits_with(0).says("it ran");
    }
    let gone = || TcpStream::connect(at(18089)).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    assert!(eventually(gone), "somebody still listens");
}

fn ports_that_make_no_sense_are_errors(world: &World) {
    for (flags, said) in [
        (&["--host-port", "0"][..], "1 to 65535"),
        (&["--host-port", "http"], "number"),
        (&["--host-port", "3000-3010"], "once for each port"),
        (&["--host-port", "127.0.0.1:3000"], "ports alone"),
        (&["--host-port", "3000:70000"], "1 to 65535"),
        (&["--host-port", "3000", "--host-port", "3000:1"], "taken by `--host-port 3000`"),
        (&["--host-port", "61001"], "netbox's own"),
        (&["--host-port", "3000:61002"], "netbox's own"),
        (&["--publish", "0"], "0:SANDBOXPORT"),
        (&["--publish", "8000:0"], "1 to 65535"),
        (&["--publish", "8000:61003"], "netbox's own"),
        (&["--publish", "8000", "--publish", "8000:1"], "the same port"),
        (&["--host-port", "3000", "--publish", "8000:3000"], "leads back"),
        (&["--host-port", "3000:8000", "--publish", "8000:1"], "leads back"),
    ] {
        let flags = [&["--mode", "none"], flags].concat();
        let outcome = world.netbox(&flags).exec(&["echo", "it ran"]);
        outcome.exits_with(2).does_not_say("it ran").complains(said).complains(flags[2]);
        assert!(outcome.events.is_empty(), "nothing was begun: {outcome}");
    }
}

fn a_dry_run_shows_the_ports(world: &World) {
    let flags = ["--mode", "none", "--host-port", "3000:8000", "--publish", "18090:4000", "--dry-run"];
    let outcome = world.netbox(&flags).exec(&["echo", "it ran"]);
    outcome.exits_with(0).says("127.0.0.1:3000 inside to 127.0.0.1:8000 here");
    outcome.says("127.0.0.1:18090 here to 127.0.0.1:4000 inside");
}

fn the_events_begin_with_what_was_opened(world: &World) {
    let flags = ["--mode", "none", "--host-port", "3000:8000", "--publish", "18091:4000"];
    let outcome = world.netbox(&flags).exec(&["true"]);
    let doors = serde_json::json!(["--host-port 3000:8000", "--publish 18091:4000"]);
    assert_eq!(outcome.exits_with(0).event("start")["doors"], doors, "{outcome}");
    let outcome = world.netbox(&["--mode", "none"]).exec(&["true"]);
    assert!(outcome.event("start").get("doors").is_none(), "{outcome}");
}
