//! `netbox proxy serve`: programs on the host that are told of a proxy.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;

use nix::sys::signal::Signal;

use super::reach::publish_repository;
use crate::outcome::Outcome;
use crate::programs::{CURL, GIT, NODE, PIP, PRLIMIT, PYTHON, curl, own};
use crate::proxy::Proxy;
use crate::run::Run;
use crate::tests;
use crate::world::World;
use crate::zone::{Host, SILENT};

tests![
    curl_fetches_through_a_proxy needs [CURL],
    curl_fetches_through_a_tunnel needs [CURL],
    curl_fetches_through_socks5 needs [CURL],
    git_clones_through_a_proxy needs [GIT],
    pip_downloads_through_a_proxy needs [PIP, PYTHON],
    python_fetches_through_a_proxy needs [PYTHON],
    node_fetches_through_a_tunnel_agent needs [NODE],
    an_unlisted_name_gets_a_403_and_no_tunnel needs [CURL, NODE],
    an_unlisted_name_gets_reply_2_of_socks5 needs [CURL],
    an_address_is_not_the_name_that_was_looked_up_for_it needs [CURL],
    the_hosts_loopback_is_not_opened_by_a_proxy needs [CURL],
    a_proxy_does_not_lead_to_itself needs [CURL],
    a_far_side_that_fails_is_no_refusal needs [CURL],
    a_stream_arrives_event_by_event_through_a_proxy needs [CURL],
    a_connection_to_a_proxy_carries_requests_to_several_hosts needs [CURL],
    a_proxy_ends_in_order_by_a_signal needs [CURL],
    a_proxy_listens_on_several_addresses needs [CURL],
    a_storm_at_a_low_descriptor_limit_is_outlived needs [CURL, PYTHON, PRLIMIT],
    names_that_are_never_answered_hold_up_no_other needs [CURL],
    a_proxy_for_other_machines_has_to_be_asked_for needs [],
];

/// Asserts that the client, bare, reached the host and said so, and gives what the proxy has to say of it.
#[track_caller]
fn through<A: AsRef<str>>(
    world: &World,
    proxy: Proxy,
    host: &Host,
    client: Run<'_>,
    words: &[A],
    says: &str,
) -> Outcome {
    let mark = world.mark();
    client.exec(words).exits_with(0).says(says);
    world.assert_reached(mark, host);
    let outcome = proxy.stop();
    outcome.exits_with(0);
    let judged = outcome.events_of("decision");
    assert!(!judged.is_empty(), "the proxy was asked: {outcome}");
    assert!(judged.iter().all(|event| event["verdict"] == "allow"), "and refused nothing: {outcome}");
    outcome
}

/// A program that is told of the proxy by its environment.
fn told<'w>(world: &'w World, proxy: &Proxy) -> Run<'w> {
    world.bare().env("http_proxy", proxy.url()).env("https_proxy", proxy.url())
}

fn curl_fetches_through_a_proxy(world: &World) {
    let host = world.zone().host("proxy-curl-http");
    let proxy = world.proxy(&["--allow", &host.name]);
    let (url, target) = (proxy.url(), host.http("/page"));
    let client = curl(&["--proxy", &url, &target]);
    let outcome = through(world, proxy, &host, world.bare(), &client, &format!("hello {} GET /page", host.name));
    let decision = outcome.allowed(&host.name, 80, "listed");
    assert_eq!((&decision["via"], &decision["url"]), (&"http".into(), &target.into()), "{outcome}");
    assert_eq!(outcome.event("start")["walls"][0], "proxy", "{outcome}");
    assert_eq!(outcome.event("exit")["allowed"], 1, "{outcome}");
}

fn curl_fetches_through_a_tunnel(world: &World) {
    let host = world.zone().host("proxy-curl-https");
    let proxy = world.proxy(&["--allow", &host.name]);
    let url = proxy.url();
    let client = curl(&["--proxy", &url, "https://proxy-curl-https.example.com/page"]);
    let outcome = through(world, proxy, &host, world.bare(), &client, &format!("hello {} GET /page", host.name));
    let decision = outcome.allowed(&host.name, 443, "listed");
    assert_eq!((&decision["via"], &decision["sni"]), (&"connect".into(), &host.name.as_str().into()), "{outcome}");
    // Clear text in a tunnel is judged by its requests.
    let proxy = world.proxy(&["--allow", &host.name]);
    let url = proxy.url();
    let client = curl(&["--proxytunnel", "--proxy", &url, "http://proxy-curl-https.example.com/page"]);
    let outcome = through(world, proxy, &host, world.bare(), &client, &format!("hello {} GET /page", host.name));
    let decision = outcome.allowed(&host.name, 80, "listed");
    assert_eq!((&decision["via"], &decision["method"]), (&"connect".into(), &"GET".into()), "{outcome}");
}

fn curl_fetches_through_socks5(world: &World) {
    let host = world.zone().host("proxy-socks");
    for (url, port) in [(host.http("/page"), 80), (host.https("/page"), 443)] {
        let proxy = world.proxy(&["--allow", &host.name]);
        let address = proxy.address.clone();
        let client = curl(&["--socks5-hostname", &address, &url]);
        let outcome = through(world, proxy, &host, world.bare(), &client, &format!("hello {} GET /page", host.name));
        assert_eq!(outcome.allowed(&host.name, port, "listed")["via"], "socks5", "{outcome}");
    }
}

fn git_clones_through_a_proxy(world: &World) {
    let host = world.zone().host("proxy-git");
    publish_repository(world);
    for (number, url) in [host.http("/files/project.git"), host.https("/files/project.git")].iter().enumerate() {
        let proxy = world.proxy(&["--allow", &host.name]);
        let setting = format!("http.proxy={}", proxy.url());
        let folder = format!("cloned-proxy-{number}");
        let client = ["git", "-c", &setting, "clone", url, &folder];
        through(world, proxy, &host, world.bare(), &client, "");
        let text = fs::read_to_string(world.path("home").join(folder).join("README"));
        assert_eq!(text.expect("the clone has the file"), "a file to clone\n");
    }
}

fn pip_downloads_through_a_proxy(world: &World) {
    let host = world.zone().host("proxy-pip");
    let wheel = "demo-1.0-py3-none-any.whl";
    let file = world.path("files").join(wheel).to_string_lossy().into_owned();
    world.bare().exec(&own(world, "python3", "wheel.py", &[&file])).exits_with(0);
    let (url, authority) = (host.https(&format!("/files/{wheel}")), world.path("ca.pem"));
    let proxy = world.proxy(&["--allow", &host.name]);
    let client = ["pip3", "--disable-pip-version-check", "download", "--no-deps", "--no-index", "--no-cache-dir"];
    let told = ["--cert", &authority.to_string_lossy(), "--proxy", &proxy.url(), "--dest", "downloads", &url]
        .map(str::to_owned);
    let client = [&client.map(str::to_owned)[..], &told].concat();
    let outcome = through(world, proxy, &host, world.bare(), &client, "Successfully downloaded demo");
    outcome.allowed(&host.name, 443, "listed");
}

fn python_fetches_through_a_proxy(world: &World) {
    let host = world.zone().host("proxy-python");
    for (url, via) in [(host.http("/page"), "http"), (host.https("/page"), "connect")] {
        let proxy = world.proxy(&["--allow", &host.name]);
        let client = own(world, "python3", "fetch.py", &[&url]);
        let run = told(world, &proxy);
        let outcome = through(world, proxy, &host, run, &client, &format!("hello {} GET /page", host.name));
        assert_eq!(outcome.event("decision")["via"], via, "{outcome}");
    }
}

fn node_fetches_through_a_tunnel_agent(world: &World) {
    let host = world.zone().host("proxy-node");
    let proxy = world.proxy(&["--allow", &host.name]);
    let client = own(world, "node", "tunnel.mjs", &[&host.https("/page")]);
    let run = told(world, &proxy);
    let outcome = through(world, proxy, &host, run, &client, &format!("hello {} GET /page", host.name));
    assert_eq!(outcome.event("decision")["via"], "connect", "{outcome}");
}

/// Asserts that the client, which bare reaches the host, is stopped by the proxy before anything leaves; gives both ends.
#[track_caller]
fn stopped(
    world: &World,
    flags: &[&str],
    host: &Host,
    bare: &[&str],
    client: impl Fn(&Proxy) -> Outcome,
) -> (Outcome, Outcome) {
    let mark = world.mark();
    world.bare().exec(bare).exits_with(0).says("hello");
    world.assert_reached(mark, host);
    let mark = world.mark();
    let proxy = world.proxy(flags);
    let outcome = client(&proxy);
    outcome.does_not_say("hello");
    world.assert_untouched(mark, host);
    (outcome, proxy.stop())
}

const OTHER: [&str; 2] = ["--allow", "other.example.com"];

fn an_unlisted_name_gets_a_403_and_no_tunnel(world: &World) {
    let host = world.zone().host("proxy-unlisted");
    let (http, https) = (host.http("/"), host.https("/"));
    let (outcome, proxy) = stopped(world, &OTHER, &host, &curl(&[&http]), |proxy| {
        world.bare().exec(&curl(&["--include", "--proxy", &proxy.url(), &http]))
    });
    outcome
        .exits_with(0)
        .says("HTTP/1.1 403")
        .says("proxy-unlisted.example.com:80` is refused")
        .says("--allow proxy-unlisted.example.com");
    outcome.says("Proxy-Status: netbox; error=http_request_denied");
    proxy.refused(&host.name, 80, "not-listed");
    proxy.complains(
        "refused proxy-unlisted.example.com:80 (not-listed); to allow it: --allow 'proxy-unlisted.example.com'",
    );

    let (outcome, proxy) = stopped(world, &OTHER, &host, &curl(&[&https]), |proxy| {
        world.bare().exec(&curl(&["--include", "--proxy", &proxy.url(), &https]))
    });
    // curl's code for a proxy that opens no tunnel.
    outcome.exits_with(56).complains("403");
    proxy.refused(&host.name, 443, "not-listed");

    let (outcome, _) = stopped(world, &OTHER, &host, &curl(&[&https]), |proxy| {
        told(world, proxy).exec(&own(world, "node", "tunnel.mjs", &[&https]))
    });
    outcome.exits_with(1).says("failed the proxy answers 403: netbox; error=http_request_denied");
}

fn an_unlisted_name_gets_reply_2_of_socks5(world: &World) {
    let host = world.zone().host("proxy-socks-unlisted");
    let url = host.https("/");
    let (outcome, proxy) = stopped(world, &OTHER, &host, &curl(&[&url]), |proxy| {
        world.bare().exec(&curl(&["--socks5-hostname", &proxy.address, &url]))
    });
    // curl's code for a SOCKS proxy that refuses; it prints the reply.
    outcome.exits_with(97).complains("(2)");
    assert_eq!(proxy.refused(&host.name, 443, "not-listed")["via"], "socks5", "{proxy}");
}

/// Outside of a sandbox a proxy cannot know which name a program has looked up.
fn an_address_is_not_the_name_that_was_looked_up_for_it(world: &World) {
    let host = world.zone().host_v4("proxy-looked-up");
    let proxy = world.proxy(&["--allow", &host.name]);
    let outcome = world.bare().exec(&curl(&["--socks5", &proxy.address, &host.http("/")]));
    outcome.exits_with(97).complains("(2)");
    proxy.stop().refused(&host.v4().to_string(), 80, "address-not-listed");
}

fn the_hosts_loopback_is_not_opened_by_a_proxy(world: &World) {
    let url = "http://127.0.0.1:8080/";
    world.bare().exec(&curl(&[url])).exits_with(0).says("hello");
    for (flags, reason) in [
        (&OTHER[..], "address-not-listed"),
        (&["--allow", "0.0.0.0/0:*"], "non-public"),
        (&["--mode", "audit"], "non-public"),
    ] {
        let mark = world.mark();
        let proxy = world.proxy(flags);
        world.bare().exec(&curl(&["--proxy", &proxy.url(), url])).does_not_say("hello").says(reason);
        proxy.stop().refused("127.0.0.1", 8080, reason);
        assert!(world.arrivals_at(mark, [127, 0, 0, 1].into()).is_empty());
    }
    let proxy = world.proxy(&["--allow", "127.0.0.1:8080"]);
    world.bare().exec(&curl(&["--proxy", &proxy.url(), url])).exits_with(0).says("hello");
}

fn a_proxy_does_not_lead_to_itself(world: &World) {
    let proxy = world.proxy(&["--allow", "127.0.0.0/8:*", "--allow", "localhost:*"]);
    let (_, port) = proxy.address.rsplit_once(':').expect("address and port");
    // The name has another address besides, at which nobody listens and which no rule names.
    for (host, reason) in [("127.0.0.1", "(self)"), ("[::ffff:127.0.0.1]", "(self)"), ("localhost", "is refused")] {
        let target = format!("http://{host}:{port}/");
        world.bare().exec(&curl(&["--proxy", &proxy.url(), &target])).says(reason);
    }
    let outcome = proxy.stop();
    let judged = outcome.events_of("decision");
    assert_eq!(judged.len(), 3, "each is asked once: {outcome}");
    assert!(judged.iter().all(|event| event["verdict"] == "deny"), "{outcome}");
}

fn a_far_side_that_fails_is_no_refusal(world: &World) {
    let (missing, failing, closed) = (
        world.zone().host_missing("proxy-missing"),
        world.zone().host_failing("proxy-failing"),
        world.zone().host("proxy-closed"),
    );
    let proxy = world.proxy(&["--allow", "*.example.com:80,443,4444"]);
    for (url, error) in [
        (missing.http("/"), "dns_error"),
        (failing.http("/"), "dns_error"),
        (format!("http://{}/", closed.port(4444)), "connection_refused"),
    ] {
        let outcome = world.bare().exec(&curl(&["--include", "--proxy", &proxy.url(), &url]));
        outcome.exits_with(0).says("HTTP/1.1 502").says(&format!("Proxy-Status: netbox; error={error}"));
        outcome.does_not_say("refused: ").does_not_say("--allow");
    }
    world
        .bare()
        .exec(&curl(&["--socks5-hostname", &proxy.address, &missing.http("/")]))
        .exits_with(97)
        .complains("(4)");
    world
        .bare()
        .exec(&curl(&["--socks5-hostname", &proxy.address, &format!("http://{}/", closed.port(4444))]))
        .exits_with(97)
        .complains("(5)");
    let outcome = proxy.stop();
    outcome.decided("error", &missing.name, 80, "dns-not-found");
    outcome.decided("error", &failing.name, 80, "dns-failed");
    outcome.decided("error", &closed.name, 4444, "refused");
    assert_eq!(outcome.event("exit")["denied"], 0, "{outcome}");
}

/// The second event is sent only after the first was seen.
fn a_stream_arrives_event_by_event_through_a_proxy(world: &World) {
    let host = world.zone().host("proxy-stream");
    let proxy = world.proxy(&["--allow", &host.name]);
    let url = proxy.url();
    for (gate, scheme, told) in [
        ("proxy-stream-http", "http", ["--proxy", &url]),
        ("proxy-stream-tunnel", "https", ["--proxy", &url]),
        ("proxy-stream-socks", "http", ["--socks5-hostname", &proxy.address]),
    ] {
        let target = format!("{scheme}://{}/events?gate={gate}", host.name);
        let client = world.bare().start(&curl(&["--no-buffer", told[0], told[1], &target]));
        client.wait_for_stdout("data: first\n");
        world.gates().open(gate);
        client.finish().exits_with(0).says("data: second\n");
    }
}

fn a_connection_to_a_proxy_carries_requests_to_several_hosts(world: &World) {
    let (one, other) = (world.zone().host("proxy-several-1"), world.zone().host("proxy-several-2"));
    let proxy = world.proxy(&["--allow", &one.name]);
    let client = [
        "--proxy",
        &proxy.url(),
        "--write-out",
        "connects %{num_connects}\n",
        &one.http("/"),
        &other.http("/"),
        &one.http("/"),
    ];
    let outcome = world.bare().exec(&curl(&client));
    let said = outcome.stdout();
    let connects: Vec<_> = said.lines().filter(|line| line.starts_with("connects ")).collect();
    // The second request travels on the first one's connection, and its refusal ends that.
    assert_eq!(connects, ["connects 1", "connects 0", "connects 1"], "{outcome}");
    assert_eq!(said.matches("hello proxy-several-1.example.com").count(), 2, "{outcome}");
    let outcome = proxy.stop();
    outcome.refused(&other.name, 80, "not-listed");
    assert_eq!(outcome.events_of("decision").len(), 3, "{outcome}");
}

fn a_proxy_ends_in_order_by_a_signal(world: &World) {
    let host = world.zone().host("proxy-signal");
    for (number, signal) in [Signal::SIGINT, Signal::SIGTERM].into_iter().enumerate() {
        let proxy = world.proxy(&["--allow", &host.name, "--drain-timeout", "100ms"]);
        // One that is in the middle of it.
        let url = host.http(&format!("/events?gate=proxy-signal-{number}"));
        let client = world.bare().start(&curl(&["--no-buffer", "--proxy", &proxy.url(), &url]));
        client.wait_for_stdout("data: first\n");
        world.bare().exec(&curl(&["--proxy", &proxy.url(), "http://unlisted.example.com/"])).says("not-listed");
        let outcome = proxy.stop_by(signal);
        outcome.exits_with(0).complains("netbox: 1 allowed, 1 refused\n");
        assert_eq!(outcome.event("close")["end"], "reset", "{outcome}");
        assert_eq!(outcome.event("exit")["code"], 0, "{outcome}");
        assert_ne!(client.finish().code, Some(0));
        world.gates().open(&format!("proxy-signal-{number}"));
    }
}

fn a_proxy_listens_on_several_addresses(world: &World) {
    let host = world.zone().host("proxy-several-addresses");
    let proxy = world.proxy(&["--listen", "[::1]:0", "--allow", &host.name]);
    let addresses: Vec<_> = proxy.address.split(' ').collect();
    assert_eq!(addresses.len(), 2, "{proxy:?}");
    for address in addresses {
        world
            .bare()
            .exec(&curl(&["--proxy", &format!("http://{address}"), &host.http("/")]))
            .exits_with(0)
            .says("hello");
    }
}

fn a_proxy_for_other_machines_has_to_be_asked_for(world: &World) {
    for address in ["0.0.0.0:0", "[::]:0", "203.0.113.2:0", "[::ffff:203.0.113.2]:0"] {
        let refused = world.netbox_words().exec(&["proxy", "serve", "--listen", "127.0.0.1:0", "--listen", address]);
        refused.exits_with(2).complains("which asks for no token").complains("--listen-any");
    }
    let proxy = world.proxy(&["--listen-any", "--listen", "203.0.113.2:0"]);
    assert!(proxy.address.contains(" 203.0.113.2:"), "{proxy:?}");
    proxy.stop().exits_with(0);
    world
        .netbox_words()
        .exec(&["proxy", "serve", "--listen", "unix:/tmp/x"])
        .exits_with(125)
        .complains("may be written to by others")
        .complains("take a directory of your own");
    world.netbox_words().exec(&["proxy", "serve"]).exits_with(2).complains("--listen");
}

/// Opens connections that say half a word, three times as many as the proxy may open descriptors, and holds them.
const STORM: &str = r#"
import socket, sys
address, port = sys.argv[1].rsplit(":", 1)
held = []
for number in range(768):
    one = socket.create_connection((address, int(port)))
    try:
        one.sendall([b"GET http://", b"\x05", b"CONNECT "][number % 3])
    except OSError:
        pass
    held.append(one)
print("held", flush=True)
sys.stdin.read()
"#;

fn a_storm_at_a_low_descriptor_limit_is_outlived(world: &World) {
    let host = world.zone().host("proxy-storm");
    let run = Run::proxy(world, &["--allow", &host.name]).descriptor_limit(256);
    let proxy = Proxy::start(run);
    let url = proxy.url();
    let target = host.http("/page");
    let client = curl(&["--proxy", &url, &target]);
    let says = format!("hello {} GET /page", host.name);
    let mut storm = world.bare().stdin_open().start(&["python3", "-c", STORM, &proxy.address]);
    storm.wait_for_stdout("held");
    // Who speaks is served, in the storm and after it.
    world.bare().exec(&client).exits_with(0).says(&says);
    storm.close_stdin();
    storm.finish().exits_with(0);
    world.bare().exec(&client).exits_with(0).says(&says);
    let outcome = proxy.stop();
    outcome.exits_with(0);
    assert!(outcome.events_of("decision").iter().any(|event| event["reason"] == "limit"), "{outcome}");
}

/// A client makes up names below a wildcard, whose server says nothing; another one asks for a name that a rule spells out.
fn names_that_are_never_answered_hold_up_no_other(world: &World) {
    let host = world.zone().host("proxy-meanwhile");
    let proxy = world.proxy(&["--allow", &format!("*.{SILENT}"), "--allow", &host.name]);
    let mark = world.mark();
    let ask = |number| {
        let mut stream = TcpStream::connect(&proxy.address).expect("the proxy listens");
        write!(stream, "CONNECT n{number}.{SILENT}:443 HTTP/1.0\r\n\r\n").expect("it takes a request");
        stream
    };
    let hanging: Vec<_> = (0..100).map(ask).collect();
    let asked = RefCell::new(HashSet::new());
    world.wait_for_arrival(mark, |arrival| {
        let silent = arrival.name.iter().filter(|name| name.ends_with(SILENT));
        asked.borrow_mut().extend(silent.cloned());
        asked.borrow().len() == 48
    });
    let url = proxy.url();
    let outcome = world.bare().exec(&curl(&["--proxy", &url, &host.http("/page")]));
    outcome.exits_with(0).says(&format!("hello {} GET /page", host.name));
    // They all wait still: no lookup of theirs has come to its end.
    for mut stream in &hanging {
        stream.set_nonblocking(true).expect("an open socket");
        let read = std::io::Read::read(&mut stream, &mut [0]);
        assert_eq!(read.expect_err("no answer").kind(), std::io::ErrorKind::WouldBlock);
    }
    proxy.stop().exits_with(0);
}
