//! The events file: which events there are, and what stands in them.

use std::net::SocketAddr;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::tests;
use crate::world::World;

tests![
    every_event_says_version_time_session_and_kind needs [CURL],
    start_says_what_runs_and_under_which_policy needs [],
    the_policys_digest_is_of_the_rules_and_not_of_their_order needs [],
    a_decision_and_its_close_share_an_id needs [CURL],
    close_counts_the_bytes_of_both_directions needs [PYTHON],
    exit_sums_up needs [CURL],
    an_https_decision_has_the_sni needs [CURL],
    an_http_decision_has_method_and_url needs [CURL],
    hostile_text_is_escaped_and_cut needs [PYTHON],
    the_command_can_neither_replace_nor_erase_the_file needs [],
    a_file_with_another_name_is_refused needs [],
    a_file_that_was_replaced_all_the_same_is_told needs [PYTHON],
    events_may_go_to_a_descriptor needs [PYTHON],
    a_decision_names_the_process_that_connects needs [CURL],
    every_request_of_a_connection_names_it needs [CURL],
    the_number_of_the_process_is_the_hosts needs [PYTHON],
    programs_that_connect_at_once_are_told_apart needs [CURL],
    a_program_with_a_hostile_name_is_escaped needs [CURL],
];

fn fetch(world: &World, label: &str) -> (String, Outcome) {
    let host = world.zone().host(label);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/page")]));
    outcome.exits_with(0);
    (host.name, outcome)
}

#[track_caller]
fn is_hex(value: &Value, digits: usize) -> bool {
    value.as_str().is_some_and(|text| {
        text.len() == digits && text.chars().all(|digit| digit.is_ascii_digit() || ('a'..='f').contains(&digit))
    })
}

fn every_event_says_version_time_session_and_kind(world: &World) {
    let (_, outcome) = fetch(world, "events-all");
    let kinds: Vec<_> = outcome.events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(kinds, ["start", "decision", "close", "exit"], "{outcome}");
    let session = &outcome.events[0]["session"];
    assert!(is_hex(session, 32), "128 bits: {outcome}");
    for event in &outcome.events {
        assert_eq!(event["v"], 1, "{outcome}");
        assert_eq!(&event["session"], session, "{outcome}");
        // RFC 3339 in UTC with microseconds: 2026-01-02T03:04:05.678901Z.
        let ts = event["ts"].as_str().unwrap_or_default();
        let shape: String = ts.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{outcome}");
    }
}

fn start_says_what_runs_and_under_which_policy(world: &World) {
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&["true"]);
    let start = outcome.event("start");
    assert_eq!(start["argv0"], "true", "{outcome}");
    assert_eq!(start["mode"], "allowlist", "{outcome}");
    assert!(is_hex(&start["policy"], 64), "SHA-256: {outcome}");
    assert!(start["pid"].as_u64().is_some_and(|pid| pid > 1), "{outcome}");
    let walls = start["walls"].as_array().is_some_and(|walls| !walls.is_empty());
    assert!(walls, "which mechanisms are in force: {outcome}");
}

fn the_policys_digest_is_of_the_rules_and_not_of_their_order(world: &World) {
    let digest = |flags: &[&str]| world.netbox(flags).exec(&["true"]).event("start")["policy"].clone();
    let one = digest(&["--allow", "a.example.com", "--allow", "b.example.com"]);
    assert_eq!(one, digest(&["--allow", "b.example.com,a.example.com"]));
    assert_ne!(one, digest(&["--allow", "a.example.com"]));
    assert_ne!(one, digest(&["--allow", "a.example.com", "--deny", "b.example.com"]));
}

fn a_decision_and_its_close_share_an_id(world: &World) {
    let (name, outcome) = fetch(world, "events-id");
    let decision = outcome.allowed(&name, 80, "listed");
    let close = outcome.event("close");
    assert!(decision["id"].is_u64() || decision["id"].is_string(), "{outcome}");
    assert_eq!(decision["id"], close["id"], "{outcome}");
    assert_eq!(close["end"], "done", "{outcome}");
    assert!(close["duration_ms"].is_number(), "{outcome}");
    assert!(
        close["addr"].as_str().is_some_and(|address| address.ends_with(":80") && address.parse::<SocketAddr>().is_ok()),
        "the address that was dialled: {outcome}"
    );
}

fn close_counts_the_bytes_of_both_directions(world: &World) {
    let host = world.zone().host("events-bytes");
    let client = probe(world, &["half-close", &host.name, "9001", "12345"]);
    let outcome = world.netbox(&["--allow", &host.port(9001)]).exec(&client);
    let close = outcome.event("close");
    assert_eq!(close["sent"], 12345, "{outcome}");
    assert_eq!(close["received"], "12345 bytes before the end\n".len(), "{outcome}");
}

fn exit_sums_up(world: &World) {
    let host = world.zone().host("events-exit");
    let client =
        curl(&["http://events-exit.example.com/", "http://unlisted.example.com/", "http://unlisted.example.com/"]);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    let exit = outcome.event("exit");
    assert_eq!((&exit["allowed"], &exit["denied"]), (&1.into(), &2.into()), "{outcome}");
    assert_eq!((&exit["code"], &exit["events_dropped"]), (&0.into(), &0.into()), "{outcome}");
}

fn an_https_decision_has_the_sni(world: &World) {
    let host = world.zone().host("events-sni");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&curl(&[&host.https("/")]));
    let decision = outcome.allowed(&host.name, 443, "listed");
    assert_eq!(decision["sni"], host.name.as_str(), "{outcome}");
    assert_eq!(decision["rule"]["text"], host.name.as_str(), "{outcome}");
    assert_eq!(decision["rule"]["source"], "--allow", "{outcome}");
}

fn an_http_decision_has_method_and_url(world: &World) {
    let (name, outcome) = fetch(world, "events-url");
    let decision = outcome.allowed(&name, 80, "listed");
    assert_eq!(decision["method"], "GET", "{outcome}");
    // The port may be written out.
    let url = decision["url"].as_str().unwrap_or_default().replace(":80/", "/");
    assert_eq!(url, "http://events-url.example.com/page", "{outcome}");
}

/// A path of 5,000 bytes with a terminal's escape sequence in it, refused: a line is at most 4 KiB.
fn hostile_text_is_escaped_and_cut(world: &World) {
    let path = r"\x1b[31m".to_owned() + &"x".repeat(5000);
    let request = format!(r"GET /{path} HTTP/1.1\r\nHost: hostile.example.com\r\n\r");
    let host = world.zone().host("hostile");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&probe(world, &["tcp", &host.name, "80", &request]));
    outcome.event("exit");
    for event in &outcome.events {
        let line = event.to_string();
        assert!(line.len() <= 4096 && !line.contains('\x1b'), "{outcome}");
    }
}

fn events_may_go_to_a_descriptor(world: &World) {
    let file = world.fresh_path("events");
    std::fs::write(&file, "").expect("own folder");
    let writable = std::fs::File::options().append(true).open(&file).expect("own file");
    let words = ["run", "--allow", "other.example.com", "--events", "fd:7", "--", "sh", "-c", "echo lie >&7; exit 0"];
    let outcome = world.netbox_words().descriptor(writable, 7).exec(&words);
    outcome.complains("7");
    let events = crate::outcome::read_events(&file);
    assert_eq!(events.len(), 2, "start and exit, and nothing that the command wrote: {events:?}");
}

fn the_command_can_neither_replace_nor_erase_the_file(world: &World) {
    let folder = world.fresh_path("home");
    std::fs::create_dir(&folder).expect("own folder");
    let file = folder.join("events");
    let (folder, file_text) = (folder.to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let script = "mv \"$0\" \"$0.moved\"; mkdir \"$0\"; (echo forged > \"$1\"); (: > \"$1\"); rm \"$1\"; mv \"$1\" \"$1.moved\"; exit 0";
    let words = ["run", "--allow", "other.example.com", "--events", &file_text, "--"];
    let words: Vec<_> = words.into_iter().chain(["sh", "-c", script, &folder, &file_text]).collect();
    // All of it works where netbox does not stand before it.
    std::fs::write(&file, "").expect("own folder");
    world.bare().exec(&words[6..]).exits_with(0);
    let moved = std::path::PathBuf::from(format!("{folder}.moved"));
    assert!(moved.join("events").exists(), "the bare script moves the folder");
    std::fs::remove_dir_all(&folder).expect("own folder");
    std::fs::rename(&moved, &folder).expect("own folder");

    world.netbox_words().exec(&words).exits_with(0);
    let events = crate::outcome::read_events(&file);
    assert_eq!(events.len(), 2, "start and exit: {events:?}");
    assert!(!moved.exists(), "the folder stays where it is");
}

/// By the one way around the mounts (`next_run`). The run goes on: it may be that somebody begins a new file.
fn a_file_that_was_replaced_all_the_same_is_told(world: &World) {
    let folder = world.fresh_path("home");
    std::fs::create_dir(&folder).expect("own folder");
    let (folder_text, file) =
        (folder.to_string_lossy().into_owned(), folder.join("events").to_string_lossy().into_owned());
    let program = own(world, PYTHON.name, "rename.py", &[&folder_text, "events"]);
    let words = ["run", "--allow", "other.example.com", "--events", &file, "--"].map(str::to_owned);
    let outcome = world.netbox_words().exec(&[&words[..], &program].concat());
    outcome.exits_with(0).says("renamed").complains("is no longer the file that the events were written to");
    assert_eq!(crate::outcome::read_events(&folder.join("gone")).len(), 2, "start and exit: {outcome}");
}

fn a_file_with_another_name_is_refused(world: &World) {
    let (file, other) = (world.fresh_path("events"), world.fresh_path("events"));
    std::fs::write(&file, "").expect("own folder");
    std::fs::hard_link(&file, &other).expect("own folder");
    let file = file.to_string_lossy().into_owned();
    let words = ["run", "--allow", "other.example.com", "--events", &file, "--", "echo", "it ran"];
    world.netbox_words().exec(&words).exits_with(125).complains("another name").does_not_say("it ran");
}

/// Where a program is, as the kernel says it.
fn executable(world: &World, name: &str) -> String {
    let mut folders = std::env::split_paths(&world.search_path()).collect::<Vec<_>>().into_iter();
    let path = folders.find_map(|folder| folder.join(name).canonicalize().ok()).expect("it is installed");
    path.to_string_lossy().into_owned()
}

/// On every way: captured, judged in connect(2) itself, and at the proxy inside.
fn a_decision_names_the_process_that_connects(world: &World) {
    let host = world.zone().host("events-process");
    let curl_is = executable(world, "curl");
    let proxy = "http://127.0.0.1:61003";
    for (flag, arguments, verdict) in [
        (host.name.clone(), vec![host.http("/page")], "allow"),
        (host.name.clone(), vec![host.https("/page")], "allow"),
        ("other.example.com".to_owned(), vec![host.https("/page")], "deny"),
        ("other.example.com".to_owned(), vec![host.http("/page")], "deny"),
        ("other.example.com".to_owned(), vec![format!("http://{}:5432/", host.name)], "deny"),
        (host.name.clone(), vec!["--proxy".to_owned(), proxy.to_owned(), host.http("/page")], "allow"),
        (host.name.clone(), vec!["--proxy".to_owned(), proxy.to_owned(), host.https("/page")], "allow"),
        ("other.example.com".to_owned(), vec!["--proxy".to_owned(), proxy.to_owned(), host.https("/page")], "deny"),
        (
            host.name.clone(),
            vec!["--proxy".to_owned(), "socks5h://127.0.0.1:61003".to_owned(), host.http("/")],
            "allow",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let outcome = world.netbox(&["--allow", &flag]).exec(&curl(&arguments));
        let decisions = outcome.events_of("decision");
        assert!(!decisions.is_empty(), "{outcome}");
        for decision in decisions {
            let (said, exe) = (&decision["verdict"], &decision["process"]["exe"]);
            assert_eq!((said, exe), (&verdict.into(), &curl_is.clone().into()), "{outcome}");
            let pid = decision["process"]["pid"].as_u64().expect("a number");
            assert_ne!(Some(pid), outcome.event("start")["pid"].as_u64(), "that is the first process: {outcome}");
        }
    }
}

fn every_request_of_a_connection_names_it(world: &World) {
    let host = world.zone().host("events-requests");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/one"), &host.http("/two")]));
    let processes: Vec<_> = outcome.decisions(&host.name).iter().map(|decision| decision["process"].clone()).collect();
    assert!(processes.len() == 2 && processes[0]["pid"].is_u64() && processes[0] == processes[1], "{outcome}");
}

/// Who reads the events can look it up.
fn the_number_of_the_process_is_the_hosts(world: &World) {
    let host = world.zone().host("events-number");
    let file = world.fresh_path("events").to_string_lossy().into_owned();
    let script = format!(
        "import socket; s = socket.create_connection((\"{}\", 22)); print(\"ready\", flush=True); input()",
        host.name
    );
    let words = ["run", "--allow", &host.port(22), "--events", &file, "--", "python3", "-c", &script];
    let running = world.netbox_words().stdin_open().start(&words);
    running.wait_for_stdout("ready\n");
    let decisions = || {
        let events = crate::outcome::read_events(std::path::Path::new(&file));
        events.into_iter().filter(|event| event["event"] == "decision").collect::<Vec<_>>()
    };
    assert!(crate::run::eventually(|| !decisions().is_empty()), "it is written while the connection lives");
    let pid = &decisions()[0]["process"]["pid"];
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a process of this machine");
    assert_eq!(line.split('\0').nth(2), Some(script.as_str()));
    running.finish();
}

fn programs_that_connect_at_once_are_told_apart(world: &World) {
    let folder = world.fresh_path("home");
    std::fs::create_dir(&folder).expect("own folder");
    let mut script = String::from("cd \"$0\"\n");
    let hosts: Vec<_> = (0..6).map(|number| world.zone().host(&format!("events-own{number}"))).collect();
    for (number, host) in hosts.iter().enumerate() {
        std::fs::copy(executable(world, "curl"), folder.join(format!("curl-{number}"))).expect("own folder");
        for _ in 0..5 {
            script += &format!("./curl-{number} --silent --max-time 30 {} >/dev/null &\n", host.http("/"));
        }
    }
    let outcome =
        world.netbox(&["--allow", "*.example.com"]).exec(&["sh", "-c", &(script + "wait"), &folder.to_string_lossy()]);
    for (number, host) in hosts.iter().enumerate() {
        let decisions = outcome.decisions(&host.name);
        assert_eq!(decisions.len(), 5, "{outcome}");
        // Where two that go to the same place cannot be told apart for a moment, nobody is named.
        let named: Vec<_> = decisions.iter().filter_map(|decision| decision["process"]["exe"].as_str()).collect();
        assert!(!named.is_empty() && named.iter().all(|exe| exe.ends_with(&format!("/curl-{number}"))), "{outcome}");
    }
}

fn a_program_with_a_hostile_name_is_escaped(world: &World) {
    let host = world.zone().host("events-hostile-name");
    let program = world.fresh_path("home").with_extension("\x1b[31m\u{202e}\n\"");
    std::fs::copy(executable(world, "curl"), &program).expect("own folder");
    let outcome = world.netbox(&["--allow", &host.name]).exec(&[&program.to_string_lossy(), "-sS", &*host.http("/")]);
    let decision = outcome.allowed(&host.name, 80, "listed");
    // As it reads once JSON is undone.
    assert_eq!(decision["process"]["exe"], program.to_string_lossy().as_ref(), "{outcome}");
    assert!(!decision.to_string().contains('\x1b'), "{outcome}");
}
