//! A kernel without nf_tables: connections are caught by routes, on the policy's own ports. Less is recorded there, and
//! nothing more gets out.
//!
//! What must hold there as elsewhere is shown by the tests of other themes, all run again with
//! `NETBOX_E2E_WITHOUT=nf_tables`; here is what is different, and the core of the rest.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use crate::Test;
use crate::child::Kernel;
use crate::outcome::Outcome;
use crate::programs::{CURL, GIT, PYTHON, curl, own, probe};
use crate::tests;
use crate::world::World;
use crate::zone::{Host, PUBLIC_RESOLVER, UDP_ECHO};

tests![
    a_listed_site_is_reached needs [CURL],
    an_ipv6_address_is_reached_by_its_rule needs [CURL],
    git_reads_a_repository needs [GIT],
    an_unlisted_site_is_refused_in_its_own_protocol needs [CURL],
    another_port_is_refused_and_told needs [PYTHON],
    another_name_in_the_first_bytes_is_refused needs [CURL],
    each_port_of_a_rule_is_caught needs [PYTHON],
    a_port_that_there_is_no_room_for_is_refused_and_told needs [PYTHON],
    the_hosts_loopback_is_not_reached_through_a_port_that_is_caught needs [CURL, PYTHON],
    a_server_inside_works_on_any_other_port needs [CURL, PYTHON],
    ports_of_the_host_and_of_the_sandbox_work needs [CURL],
    a_datagram_gets_nowhere needs [PYTHON],
    other_servers_of_names_are_not_there needs [PYTHON],
    an_address_that_a_program_takes_for_itself_leads_nowhere_else needs [PYTHON],
    audit_says_what_it_cannot_carry needs [CURL, PYTHON],
    the_shared_service_carries_it_too needs [CURL, PYTHON],
    it_is_named_by_doctor_and_by_the_events needs [],
    what_is_less_is_listed_by_names_that_there_are needs [],
];

/// What is less there (`launcher/src/network/local_routes.rs`).
const LESS: [&str; 21] = [
    // Ports that the policy does not speak of are not caught, so nothing is answered there.
    "an_unlisted_name_on_port_8080_gets_a_403",
    "an_unlisted_name_on_port_8443_gets_a_tls_alert",
    "a_listed_name_on_port_8080_is_refused",
    // Those that are caught are netbox's.
    "a_server_inside_may_use_port_80",
    "servers_may_listen_on_every_address_and_port",
    // Where connections are not redirected, there is no port that they are redirected to.
    "netboxs_own_ports_are_taken",
    "a_connect_to_netboxs_own_ports_leads_nowhere",
    // Without connect(2), which is supervised, a connection that is not caught is refused by the kernel, and not told.
    "connecting_by_sending_is_judged",
    // A datagram is refused by ICMP, and not told.
    "udp_to_an_address_fails_at_once",
    "udp_to_an_ipv6_address_fails_at_once",
    "udp_to_a_listed_name_fails_at_once",
    "no_mode_lets_udp_through",
    "refused_datagrams_are_told",
    "other_protocols_go_nowhere",
    "d051_names_are_not_asked_for_among_neighbours",
    "d052_names_are_not_asked_for_by_tls_or_quic",
    // Names are asked for at one address.
    "a_program_may_ask_a_public_resolver_over_udp",
    "a_program_may_ask_a_public_resolver_over_tcp",
    "a_text_record_of_a_listed_name_is_passed_on",
    "a_text_record_of_an_unlisted_name_is_not_asked_for",
    "d050_the_hosts_own_name_server_is_not_reached",
];

/// What holds without nf_tables too: the tests that run with `NETBOX_E2E_WITHOUT=nf_tables`.
pub fn holds(test: &Test) -> bool {
    const THEMES: [&str; 24] = [
        "escape::sockets",
        "escape::kernel",
        "unix_sockets",
        "programs::runtimes",
        "programs::builds",
        "programs::desks",
        "programs::wrapping",
        "learn",
        "nested",
        "service",
        "service_attacks",
        "reach",
        "refuse",
        "fronting",
        "addresses",
        "lookups",
        "flow",
        "modes",
        "inside",
        "ports",
        "explicit",
        "several",
        "events",
        "next_run",
    ];
    let theme = test.theme.split_once("themes::").map_or(test.theme, |(_, theme)| theme);
    THEMES.contains(&theme) && !LESS.contains(&test.name)
}

fn run(world: &World, flags: &[&str], command: &[impl AsRef<str>]) -> Outcome {
    let outcome = world.netbox(flags).kernel(Kernel::HasNoPacketFilter).exec(command);
    let walls = outcome.event("start")["walls"].to_string();
    assert!(walls.contains("\"routes\"") && !walls.contains("\"nft\""), "it ran with rules: {outcome}");
    outcome
}

/// The client gets there without netbox, and not with it: neither a connection nor a query arrives.
fn refused(world: &World, host: &Host, flags: &[&str], client: &[impl AsRef<str>], says: &str) -> Outcome {
    let mark = world.mark();
    world.bare().exec(client).says(says);
    world.assert_reached(mark, host);
    let mark = world.mark();
    let outcome = run(world, flags, client);
    outcome.does_not_say(says);
    world.assert_untouched(mark, host);
    outcome
}

fn a_listed_site_is_reached(world: &World) {
    let host = world.zone().host("routed");
    for (url, port) in [(host.http("/"), 80), (host.https("/"), 443)] {
        for family in ["--ipv4", "--ipv6"] {
            let mark = world.mark();
            let outcome = run(world, &["--allow", &host.name], &curl(&[family, &url]));
            outcome.exits_with(0).says("hello routed.example.com");
            assert_eq!(outcome.allowed(&host.name, port, "listed")["via"], "capture", "{outcome}");
            world.assert_reached(mark, &host);
        }
    }
}

fn an_ipv6_address_is_reached_by_its_rule(world: &World) {
    let host = world.zone().host_v6("routed-v6");
    let (rule, url) = (format!("[{}]:80", host.v6()), format!("http://[{}]/", host.v6()));
    let outcome = run(world, &["--allow", &rule], &curl(&[&url]));
    outcome.exits_with(0).says("hello").allowed(&host.v6().to_string(), 80, "listed");
}

fn git_reads_a_repository(world: &World) {
    let host = world.zone().host("routed-git");
    super::reach::publish_repository(world);
    let outcome = run(world, &["--allow", &host.name], &["git", "ls-remote", &host.https("/files/project.git")]);
    outcome.exits_with(0).says("refs/heads/");
}

fn an_unlisted_site_is_refused_in_its_own_protocol(world: &World) {
    let host = world.zone().host("routed-unlisted");
    let flags = ["--allow", "other.example.com"];
    let outcome = refused(world, &host, &flags, &curl(&["--include", &host.http("/")]), "hello");
    outcome.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "not-listed");
    let outcome = refused(world, &host, &flags, &curl(&[&host.https("/")]), "hello");
    outcome.exits_with(35).complains("alert access denied").refused(&host.name, 443, "not-listed");
}

fn another_port_is_refused_and_told(world: &World) {
    let host = world.zone().host("routed-port");
    for (flags, reason) in
        [(["--allow", "other.example.com"], "not-listed"), (["--allow", &host.name], "port-not-listed")]
    {
        let client = probe(world, &["tcp", &host.name, "5432", "hello"]);
        world.bare().exec(&client).says("answer: hello");
        let mark = world.mark();
        let outcome = run(world, &flags, &client);
        assert_eq!(outcome.stdout(), "failed: EACCES\n", "{outcome}");
        outcome.refused(&host.name, 5432, reason);
        let arrived = world.arrivals(mark, &host);
        assert!(arrived.iter().all(|arrival| arrival.service == "dns"), "more than lookups arrived: {arrived:#?}");
    }
    // What would be answered in its protocol elsewhere is not caught here.
    let outcome = run(world, &["--allow", &host.name], &probe(world, &["tcp", &host.name, "8080", "hello"]));
    assert_eq!(outcome.stdout(), "failed: EACCES\n", "{outcome}");
    outcome.refused(&host.name, 8080, "port-not-listed");
}

fn another_name_in_the_first_bytes_is_refused(world: &World) {
    let (host, front) = (world.zone().host("routed-hidden"), world.zone().host("routed-front"));
    let client = curl(&["--header", "Host: routed-hidden.example.com", "http://routed-front.example.com/"]);
    let outcome = refused(world, &host, &["--allow", &front.name], &client, "hello");
    outcome.says("host-mismatch");
}

fn each_port_of_a_rule_is_caught(world: &World) {
    let host = world.zone().host("routed-ports");
    for (port, texts, says) in [("22", &[][..], "answer: SSH"), ("5432", &["hello"][..], "answer: hello")] {
        let arguments = [&["tcp", &host.name, port], texts].concat();
        for rule in [host.port(port.parse().expect("a number")), format!("{}:{port}-{port}", host.name)] {
            run(world, &["--allow", &rule], &probe(world, &arguments)).exits_with(0).says(says);
        }
    }
}

/// A rule may cover more ports than netbox can listen on.
fn a_port_that_there_is_no_room_for_is_refused_and_told(world: &World) {
    let host = world.zone().host("routed-all");
    let rule = format!("{}:*", host.name);
    run(world, &["--allow", &rule], &probe(world, &["tcp", &host.name, "22"])).says("answer: SSH");
    let outcome = run(world, &["--allow", &rule], &probe(world, &["tcp", &host.name, "50000", "hello"]));
    assert_eq!(outcome.stdout(), "failed: EACCES\n", "{outcome}");
    outcome.refused(&host.name, 50000, "unsupported");
    outcome.complains(&format!("to allow it: --allow '{}:50000'", host.name));
    let narrow = host.port(50000);
    run(world, &["--allow", &rule, "--allow", &narrow], &probe(world, &["tcp", &host.name, "50000", "hello"]))
        .decided("error", &host.name, 50000, "refused");
}

/// Not by the ports on which netbox listens on every address, those of the sandbox itself included, whatever a rule says.
fn the_hosts_loopback_is_not_reached_through_a_port_that_is_caught(world: &World) {
    world.bare().exec(&curl(&["http://127.0.0.1:8080/"])).exits_with(0);
    let flags = ["--allow", "127.0.0.0/8:80,8080", "--allow", "10.0.2.100:80,8080", "--allow", "[::1]:80,8080"];
    for address in ["127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.2.100", "::1", "::"] {
        for port in ["80", "8080"] {
            let outcome = run(world, &flags, &probe(world, &["tcp", address, port, "hello"]));
            assert_eq!(outcome.stdout(), "failed: ECONNREFUSED\n", "{address}: {outcome}");
            assert!(outcome.events_of("decision").is_empty(), "{outcome}");
        }
    }
    // Without connect(2), which is supervised.
    let outcome = run(
        world,
        &flags,
        &own(world, "python3", "fast_open.py", &["127.0.0.1", "8080", "GET / HTTP/1.0\\r\\n\\r\\n"]),
    );
    outcome.does_not_say("host");
    let judged = outcome.events_of("decision");
    assert!(judged.iter().all(|event| event["verdict"] == "deny"), "{outcome}");
}

fn a_server_inside_works_on_any_other_port(world: &World) {
    for address in ["127.0.0.1", "::1", "10.0.2.100"] {
        let url =
            if address.contains(':') { format!("http://[{address}]:8080/") } else { format!("http://{address}:8080/") };
        let client = [&[address, "8080"][..], &curl(&[&url])].concat();
        let outcome = run(world, &["--allow", "other.example.com"], &own(world, "python3", "serve.py", &client));
        outcome.exits_with(0).says("served inside");
        assert!(outcome.events_of("decision").is_empty(), "{outcome}");
    }
}

/// A rule for the same port somewhere else does not keep it from its purpose.
fn ports_of_the_host_and_of_the_sandbox_work(world: &World) {
    let host = world.zone().host("routed-door");
    let flags = ["--host-port", "8080", "--allow", &host.port(8080)];
    let outcome = run(world, &flags, &curl(&["http://127.0.0.1:8080/"]));
    outcome.exits_with(0).allowed("127.0.0.1", 8080, "listed");
    let elsewhere = run(world, &flags, &curl(&["http://routed-door.example.com:8080/"]));
    elsewhere.refused(&host.name, 8080, "unsupported");
}

fn a_datagram_gets_nowhere(world: &World) {
    let (server, text) = (UDP_ECHO.to_string(), "routed-udp");
    let script = "
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(20)
client.connect((sys.argv[1], 4433))
client.send(sys.argv[2].encode())
try:
    print('answer:', client.recv(100).decode())
except OSError as error:
    print('failed:', error.errno)
";
    let client = ["python3", "-c", script, &server, text];
    let sent = |mark| {
        let arrived = world.arrivals_at(mark, UDP_ECHO.into());
        arrived.iter().filter(|arrival| arrival.line.as_deref() == Some(text)).count()
    };
    let mark = world.mark();
    world.bare().exec(&client).says("answer: routed-udp");
    assert_eq!(sent(mark), 1, "the bare run's datagram arrives");
    let mark = world.mark();
    let outcome = run(world, &["--mode", "open"], &client);
    assert_eq!(outcome.stdout(), "failed: 111\n", "{outcome}");
    assert_eq!(sent(mark), 0, "a datagram got out: {outcome}");
}

/// Names are asked for where `resolv.conf` says. Nobody else answers, and no query leaves.
fn other_servers_of_names_are_not_there(world: &World) {
    let host = world.zone().host("routed-lookup");
    for transport in ["udp", "tcp"] {
        let client = probe(world, &["resolve", &PUBLIC_RESOLVER.to_string(), transport, "A", &host.name]);
        world.bare().exec(&client).exits_with(0);
        let mark = world.mark();
        let outcome = run(world, &["--allow", &host.name], &client);
        outcome.says("failed: ECONNREFUSED");
        world.assert_untouched(mark, &host);
    }
}

/// Every address can be bound to. What is then sent to it stays with the one who has taken it.
fn an_address_that_a_program_takes_for_itself_leads_nowhere_else(world: &World) {
    let host = world.zone().host("routed-taken");
    let script = "
import socket, sys
address = sys.argv[1]
server = socket.create_server((address, 5432))
client = socket.socket()
try:
    client.connect((address, 5432))
    print('connected to', server.accept()[0].getsockname()[0])
except OSError as error:
    print('failed', error.errno)
for port in (80, 443):
    try:
        socket.create_server((address, port))
        print('took', port)
    except OSError as error:
        print('not taken', error.errno)
";
    let mark = world.mark();
    let address = host.v4().to_string();
    let outcome = run(world, &["--allow", &format!("{address}:80")], &["python3", "-c", script, &address]);
    // The connect is judged by where it seems to go; the ports that are caught are netbox's.
    assert_eq!(outcome.stdout(), "failed 13\nnot taken 98\nnot taken 98\n", "{outcome}");
    world.assert_untouched(mark, &host);
}

fn audit_says_what_it_cannot_carry(world: &World) {
    let host = world.zone().host("routed-audit");
    let outcome = run(world, &["--mode", "audit"], &curl(&[&host.http("/")]));
    outcome.exits_with(0).says("hello").allowed(&host.name, 80, "audit");
    let outcome = run(world, &["--mode", "audit"], &probe(world, &["tcp", &host.name, "22"]));
    outcome.says("answer: SSH").allowed(&host.name, 22, "audit");
    let outcome = run(world, &["--mode", "audit"], &probe(world, &["tcp", &host.name, "50000", "hello"]));
    outcome.refused(&host.name, 50000, "unsupported");
}

/// Both are of one user namespace, so one shell starts them.
fn the_shared_service_carries_it_too(world: &World) {
    let host = world.zone().host("routed-via");
    let folder = world.fresh_path("home");
    DirBuilder::new().mode(0o700).create(&folder).expect("own folder");
    let script = "
netbox=$1 rule=$2; shift 2
mkfifo said
\"$netbox\" proxy serve --listen unix:$PWD/control --allow other.example.com 2>said & service=$!
exec 3<said; read -r line <&3
\"$netbox\" run -v --via unix:$PWD/control --allow \"$rule\" --allow 127.0.0.1:8080 -- \"$@\"; code=$?
kill $service; exit $code
";
    let netbox = world.netbox_path().to_string_lossy();
    let rule = format!("{}:*", host.name);
    let carried = |command: &[&str]| {
        let words = [&["sh", "-c", script, "sh", &netbox, &rule], command].concat();
        let outcome = world.bare().kernel(Kernel::HasNoPacketFilter).folder(&folder).exec(&words);
        std::fs::remove_file(folder.join("said")).expect("the script has made it");
        outcome.complains(" routes ");
        outcome
    };
    carried(&curl(&[&host.https("/")])).exits_with(0).says("hello routed-via.example.com");
    let probe = |arguments: &[&str]| {
        let words = probe(world, &[&["tcp"], arguments].concat());
        carried(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    probe(&[&host.name, "22"]).says("answer: SSH");
    probe(&[&host.name, "50000", "hello"]).says("failed: EACCES").complains("unsupported");
    probe(&["127.0.0.1", "8080", "hello"]).says("failed: ECONNREFUSED");
}

fn it_is_named_by_doctor_and_by_the_events(world: &World) {
    let outcome = world.netbox_words().kernel(Kernel::HasNoPacketFilter).exec(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&outcome.exits_with(0).stdout()).expect("one JSON object");
    let checks = report["checks"].as_array().expect("a list of checks");
    let check = checks.iter().find(|check| check["name"] == "nf_tables").expect("it is named");
    assert_eq!((&check["state"], &report["ok"]), (&"weaker".into(), &true.into()), "{outcome}");
    assert!(check["fix"].as_str().is_some_and(|fix| fix.contains("modprobe")), "{outcome}");
    run(world, &["--allow", "other.example.com"], &["true"]).exits_with(0);
}

fn what_is_less_is_listed_by_names_that_there_are(_: &World) {
    for name in LESS {
        assert!(super::all().any(|test| test.name == name), "there is no test `{name}`");
    }
}
