//! The shared service dies, comes back, or comes back as somebody who refuses: a sandbox never gains by it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use nix::sys::signal::Signal;

use crate::control::frame;
use crate::outcome::{Outcome, read_events};
use crate::programs::{CURL, PYTHON, curl, probe};
use crate::run::{Running, eventually};
use crate::service::{Service, household};
use crate::terminal::Terminal;
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    without_the_service_there_is_no_network_and_with_the_next_one_there_is needs [CURL],
    what_becomes_of_the_service_is_told_when_the_terminal_is_free needs [CURL],
    a_tunnel_ends_with_the_service needs [CURL],
    while_the_service_is_away_nothing_hangs needs [CURL, PYTHON],
    a_kill_under_load_leaves_no_network_and_no_orphan needs [CURL],
    a_service_that_ends_in_order_is_one_that_is_away needs [CURL],
    a_service_that_is_about_to_end_is_one_that_is_away_for_what_is_new needs [CURL, PYTHON],
    a_service_that_refuses_the_next_lease_ends_the_run needs [CURL],
    a_run_ends_as_ever_while_the_service_is_away needs [],
    a_service_that_dies_at_the_end_of_a_run_is_no_failure needs [],
    what_was_refused_before_the_service_died_still_counts needs [CURL],
    an_address_of_before_stands_for_no_other_name needs [PYTHON],
];

/// A sandbox that asks for a page whenever the test writes a line, and says with what status, and curl's exit code.
const ASKING: &str = r#"while read number; do
  curl --silent --max-time 20 --output /dev/null --write-out "$number: %{http_code} %{exitcode}\n" "$0" || true
done"#;

/// Curl's exit code where the name cannot be looked up.
const NO_NETWORK: &str = "000 6";

fn asking(service: &Service<'_>, host: &Host) -> Running {
    let url = host.http("/");
    service.netbox(&["--allow", &host.name]).stdin_open().start(&["sh", "-c", ASKING, &url])
}

/// Asks once, and waits for what comes of it.
fn ask(running: &mut Running, number: &str, answer: &str) {
    running.write(format!("{number}\n").as_bytes());
    running.wait_for_stdout(&format!("{number}: {answer}\n"));
}

fn without_the_service_there_is_no_network_and_with_the_next_one_there_is(world: &World) {
    let host = world.zone().host("service-away");
    let service = Service::start(world, &[]);
    let mut running = asking(&service, &host);
    ask(&mut running, "first", "200 0");
    // What the service had no time to tell is lost with it.
    assert!(
        eventually(|| running.events_so_far().iter().any(|event| event["event"] == "decision")),
        "it is told of the first"
    );
    let socket = service.kill();
    running.wait_for_stderr("warning: the service at");
    let mark = world.mark();
    ask(&mut running, "second", NO_NETWORK);
    world.assert_untouched(mark, &host);
    assert!(fs::symlink_metadata(&socket).is_ok(), "a service that was killed leaves its socket behind");
    let next = Service::start_at(world, &socket, &[]);
    running.wait_for_stderr("warning: the service is back");
    ask(&mut running, "third", "200 0");
    let outcome = running.finish();
    outcome.exits_with(0);
    // Its events go on, under other numbers.
    let mut numbers: Vec<_> = outcome.decisions(&host.name).iter().map(|event| event["id"].as_u64()).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 2, "{outcome}");
    next.stop().exits_with(0);
}

/// A line of netbox's own would stand in the middle of a full-screen program.
fn what_becomes_of_the_service_is_told_when_the_terminal_is_free(world: &World) {
    let host = world.zone().host("service-screen");
    let service = Service::start(world, &[]);
    let terminal = Terminal::new();
    let script = format!("printf '\\033[?1049h'; stty -echo; echo ready; {ASKING}; printf '\\033[?1049lthe end'");
    let run = service.netbox(&["--allow", &host.name]).on(&terminal);
    let running = run.start(&["sh", "-c", &script, &host.http("/")]);
    terminal.shows("ready");
    let ask_until = |answer: &str| {
        let asked = || {
            terminal.enter("again\n");
            terminal.shows("again: ");
            terminal.shows("\n").contains(answer)
        };
        assert!(eventually(asked), "it never answered {answer}");
    };
    ask_until("200 0");
    let socket = service.kill();
    ask_until(NO_NETWORK);
    let next = Service::start_at(world, &socket, &[]);
    ask_until("200 0");
    terminal.enter("\x04");
    terminal.shows("the end");
    let all = String::from_utf8_lossy(&terminal.all()).into_owned();
    let (before, _) = all.split_once("the end").expect("it was shown");
    // As root something is said before it runs.
    let (_, before) = before.split_once("ready").expect("it was shown");
    assert!(!before.contains("netbox:"), "{before}");
    terminal.shows("warning: the service at");
    terminal.shows("warning: the service is back\r\n");
    running.finish().exits_with(0);
    next.stop().exits_with(0);
}

fn a_tunnel_ends_with_the_service(world: &World) {
    let host = world.zone().host("service-tunnel");
    let service = Service::start(world, &[]);
    let stream = host.https("/events?gate=service-tunnel");
    let running = service.netbox(&["--allow", &host.name]).start(&curl(&["--no-buffer", &stream]));
    running.wait_for_stdout("data");
    service.kill();
    let outcome = running.finish();
    assert!(matches!(outcome.code, Some(18 | 56)), "the stream breaks off: {outcome}");
    world.gates().open("service-tunnel");
}

fn while_the_service_is_away_nothing_hangs(world: &World) {
    let host = world.zone().host("service-nothing-hangs");
    let service = Service::start(world, &[]);
    let address = host.v4().to_string();
    let [answered, other] = ["80", "5432"].map(|port| probe(world, &["tcp", &address, port, "hello"]).join(" "));
    let script = format!("echo ready; read go; {answered}; {other}; getent hosts {} || echo no address", host.name);
    let allow = format!("{address}:*,{}", host.port(80));
    let mut running = service.netbox(&["--allow", &allow]).stdin_open().start(&["sh", "-c", &script]);
    running.wait_for_stdout("ready");
    service.kill();
    running.wait_for_stderr("warning: the service at");
    let mark = world.mark();
    running.write(b"go\n");
    let outcome = running.finish();
    outcome.says("reset\nfailed: ENETUNREACH\nno address\n");
    world.assert_untouched(mark, &host);
}

fn a_kill_under_load_leaves_no_network_and_no_orphan(world: &World) {
    let host = world.zone().host("service-load");
    let service = Service::start(world, &[]);
    let many = host.http("/[1-100000]");
    let load = ["--parallel", "--parallel-max", "20", "--output", "/dev/null", &many];
    let script = ["curl --silent", &load.join(" "), "&", ASKING].join(" ");
    let mut sandboxes: Vec<_> = (0..4)
        .map(|_| {
            let url = host.http("/");
            service.netbox(&["--allow", &host.name]).stdin_open().start(&["bash", "-c", &script, &url])
        })
        .collect();
    for running in &mut sandboxes {
        ask(running, "first", "200 0");
    }
    let pid = service.running().pid();
    let socket = service.kill();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    assert!(children.is_err(), "nothing is left of it: {children:?}");
    for running in &mut sandboxes {
        running.wait_for_stderr("warning: the service at");
    }
    let mark = world.mark();
    for running in &mut sandboxes {
        ask(running, "second", NO_NETWORK);
    }
    world.assert_untouched(mark, &host);
    let next = Service::start_at(world, &socket, &[]);
    for mut running in sandboxes {
        running.wait_for_stderr("warning: the service is back");
        ask(&mut running, "third", "200 0");
        running.signal(Signal::SIGKILL);
        assert_eq!(running.finish().signal, Some(9));
    }
    next.stop().exits_with(0);
}

fn a_service_that_ends_in_order_is_one_that_is_away(world: &World) {
    let host = world.zone().host("service-in-order");
    let service = Service::start(world, &[]);
    let mut running = asking(&service, &host);
    ask(&mut running, "first", "200 0");
    let socket = service.socket().to_owned();
    service.stop().exits_with(0);
    running.wait_for_stderr("warning: the service at");
    // It has told its sums before it went.
    ask(&mut running, "second", NO_NETWORK);
    let _next = Service::start_at(world, &socket, &[]);
    running.wait_for_stderr("warning: the service is back");
    ask(&mut running, "third", "200 0");
    let outcome = running.finish();
    assert_eq!(outcome.exits_with(0).event("exit")["allowed"], 2, "{outcome}");
    assert_eq!(outcome.events_of("close").len(), 2, "{outcome}");
}

fn a_service_that_is_about_to_end_is_one_that_is_away_for_what_is_new(world: &World) {
    let host = world.zone().host("service-drains");
    let service = Service::start(world, &[]);
    let [answered, other] = ["80", "5432"].map(|port| probe(world, &["tcp", &host.name, port, "hello"]).join(" "));
    let asking = r#"curl --silent --output /dev/null --write-out "$number: %{http_code} %{exitcode}\n" "$0""#;
    let script = format!(
        "curl --no-buffer --silent \"$1\" & while read number; do case $number in answered) {answered};; other) {other};; \
         *) {asking};; esac; done; wait"
    );
    let (url, stream) = (host.http("/"), host.http("/events?gate=service-drains"));
    let allow = format!("{},{}", host.name, host.port(5432));
    let mut running = service.netbox(&["--allow", &allow]).stdin_open().start(&["sh", "-c", &script, &url, &stream]);
    running.wait_for_stdout("data: first\n");
    ask(&mut running, "first", "200 0");
    let socket = service.socket().to_owned();
    service.running().signal(Signal::SIGTERM);
    running.wait_for_stderr("is about to end: what is open may finish");
    let mark = world.mark();
    // Names are still looked up.
    running.write(b"answered\n");
    running.wait_for_stdout("reset\n");
    running.write(b"other\n");
    running.wait_for_stdout("failed: ENETUNREACH\n");
    assert!(world.arrivals_at(mark, host.v4().into()).is_empty(), "nobody gets there");
    assert!(!service.running().has_ended());
    world.gates().open("service-drains");
    running.wait_for_stdout("data: second");
    service.finish().exits_with(0);
    let next = Service::start_at(world, &socket, &[]);
    running.wait_for_stderr("warning: the service is back");
    ask(&mut running, "third", "200 0");
    let outcome = running.finish();
    let said = outcome.exits_with(0).stderr();
    assert_eq!(
        said.matches("warning: the service").count(),
        2,
        "once that it ends, and once that it is back: {outcome}"
    );
    next.stop().exits_with(0);
}

/// Somebody with the right to the place listens there, and refuses.
fn a_service_that_refuses_the_next_lease_ends_the_run(world: &World) {
    let service = Service::start(world, &[]);
    let running = service.netbox(&["--mode", "none"]).start(&["sh", "-c", "echo runs; exec sleep 60"]);
    running.wait_for_stdout("runs");
    let socket = service.kill();
    fs::remove_file(&socket).expect("own folder");
    let listener = UnixListener::bind(&socket).expect("own folder");
    let (mut stream, _) = listener.accept().expect("it is called");
    let refusal = r#"{"type":"refused","reason":"user","text":"nothing for you\u001b[2J any more"}"#;
    stream.write_all(&frame(refusal.as_bytes())).expect("it listens");
    let outcome: Outcome = running.finish();
    outcome
        .exits_with(125)
        .complains("the service refuses: nothing for you\\x1b[2J any more, and the sandbox was ended");
}

/// Somebody stands in for a service: it grants everything, and is gone as soon as it hears of the sandbox's end.
fn a_service_that_dies_at_the_end_of_a_run_is_no_failure(world: &World) {
    let folder = world.fresh_path("files").with_extension("service");
    fs::create_dir(&folder).expect("own folder");
    let listener = UnixListener::bind(folder.join("control.sock")).expect("own folder");
    let via = format!("unix:{}/control.sock", folder.display());
    let running = world.netbox(&["--no-config", "--via", &via, "--mode", "none"]).start(&["sh", "-c", "exit 7"]);
    let (mut stream, _) = listener.accept().expect("it is called");
    let mut said = move || {
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("a frame");
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut text).expect("a whole frame");
        let text = String::from_utf8(text).expect("JSON");
        if text.contains("\"policy\"") {
            let granted = frame(br#"{"type":"granted","policy":"00","mode":"none","warnings":[]}"#);
            stream.write_all(&granted).expect("it listens");
        }
        text
    };
    while said() != r#"{"type":"end"}"# {}
    drop(said);
    running.finish().exits_with(7);
}

fn a_run_ends_as_ever_while_the_service_is_away(world: &World) {
    let service = Service::start(world, &[]);
    let start = |flags: &[&str], script: &str| {
        let run = service.netbox(&[&["--mode", "none"], flags].concat()).stdin_open();
        let running = run.start(&["sh", "-c", &format!("echo runs; {script}")]);
        running.wait_for_stdout("runs");
        running
    };
    let timed = start(&["--timeout", "5s"], "exec sleep 60");
    let signalled = start(&[], "exec sleep 60");
    let mut ending = start(&[], "cat; exit 7");
    service.kill();
    for running in [&timed, &signalled, &ending] {
        running.wait_for_stderr("warning: the service at");
    }
    signalled.signal(Signal::SIGTERM);
    signalled.finish().exits_with(128 + 15);
    ending.close_stdin();
    ending.finish().exits_with(7);
    timed.finish().exits_with(124);
}

fn what_was_refused_before_the_service_died_still_counts(world: &World) {
    let host = world.zone().host("service-counted");
    let service = Service::start(world, &[]);
    let url = host.http("/");
    let events = world.fresh_path("events");
    let words = ["run", "--no-config", "--via", service.via(), "--fail-on-block", "--summary", "always", "--events"];
    let file = events.to_string_lossy();
    let words = [&words[..], &[&*file, "--", "sh", "-c", ASKING, &url]].concat();
    let mut running = world.netbox_words().within(household(world)).stdin_open().start(&words);
    let told = |count: usize| read_events(&events).iter().filter(|event| event["event"] == "decision").count() >= count;
    for number in 1..=2 {
        ask(&mut running, &number.to_string(), "403 0");
        // The sums follow the line of what they count: with the second line, those of the first have come.
        assert!(eventually(|| told(number)));
    }
    service.kill();
    running.wait_for_stderr("warning: the service at");
    running.finish().exits_with(3).complains("refused");
}

/// A program keeps an address that it looked up, longer than a service lives.
fn an_address_of_before_stands_for_no_other_name(world: &World) {
    let (one, other) = (world.zone().host("service-one-name"), world.zone().host("service-other-name"));
    let service = Service::start(world, &[]);
    let script = format!(
        "getent ahostsv4 {} | head -n1; read go; getent ahostsv4 {} | head -n1; getent ahostsv4 {} | head -n1",
        one.name, other.name, one.name
    );
    let flags = ["--allow", &one.name, "--allow", &other.name];
    let mut running = service.netbox(&flags).stdin_open().start(&["sh", "-c", &script]);
    running.wait_for_stdout("STREAM");
    let socket = service.kill();
    running.wait_for_stderr("warning: the service at");
    let _next = Service::start_at(world, &socket, &[]);
    running.wait_for_stderr("warning: the service is back");
    running.write(b"go\n");
    let outcome = running.finish();
    let stdout = outcome.stdout();
    let mut addresses: Vec<_> = stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(addresses.len(), 3, "{outcome}");
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "each is another one: {outcome}");
}
