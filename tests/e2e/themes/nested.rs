//! A netbox inside a netbox, and either beside other sandboxes: the inner one narrows, and nothing is wider for it.

use std::path::PathBuf;

use serde_json::Value;

use super::programs::greeting;
use crate::outcome::{Outcome, read_events};
use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::service::{Service, household};
use crate::tests;
use crate::world::World;

tests![
    what_both_allow_is_reached needs [CURL],
    the_inner_one_narrows needs [CURL],
    c051_the_inner_one_widens_nothing needs [CURL],
    addresses_go_through_both needs [CURL],
    other_protocols_go_through_both needs [PYTHON],
    the_inner_ones_guard_holds_for_what_the_outer_one_allows needs [CURL],
    what_fails_fails_with_its_own_reason needs [CURL],
    three_of_them_are_no_wider_than_the_narrowest needs [CURL],
    loopback_is_that_of_the_sandbox_around needs [CURL, PYTHON],
    the_outer_ones_listeners_are_no_ports_to_open needs [CURL],
    a_proxy_inside_asks_the_outer_one_too needs [CURL],
    a_service_inside_asks_the_outer_one_too needs [CURL],
    a_service_of_the_machine_around_carries_nobody_inside needs [],
    doctor_says_so needs [],
];

/// `netbox run FLAGS -- COMMAND`, to be run in another sandbox, and where its events are written.
pub(super) struct Inner {
    pub(super) words: Vec<String>,
    pub(super) events: PathBuf,
}

impl Inner {
    pub(super) fn new<A: AsRef<str>>(world: &World, flags: &[&str], command: &[A]) -> Self {
        let events = world.fresh_path("events");
        let mut words =
            vec![world.netbox_path().to_string_lossy().into_owned(), "run".to_owned(), "--no-config".to_owned()];
        words.extend(flags.iter().map(|&flag| flag.to_owned()));
        if world.identity.real_root {
            // Root's `/proc/sys` is read-only in the outer one, and the kernel lets nobody mount a fresh `/proc` beside it.
            words.extend(["--allow-weaker", "proc"].map(str::to_owned));
        }
        words.extend(["--events".to_owned(), events.to_string_lossy().into_owned(), "--".to_owned()]);
        words.extend(command.iter().map(|word| word.as_ref().to_owned()));
        Self { words, events }
    }

    /// Runs it in a netbox with these flags. The values are what came of both, with the events of each.
    pub(super) fn within(&self, world: &World, flags: &[&str]) -> (Outcome, Outcome) {
        let outer = world.netbox(flags).exec(&self.words);
        let inner = Outcome {
            line: self.words.join(" "),
            code: outer.code,
            signal: outer.signal,
            stdout: outer.stdout.clone(),
            stderr: outer.stderr.clone(),
            events: read_events(&self.events),
        };
        assert_eq!(inner.events_of("start").len(), 1, "{outer}");
        assert!(
            walls(&inner).contains(&"nested".into()) && !walls(&outer).contains(&"nested".into()),
            "{outer}{inner}"
        );
        (inner, outer)
    }
}

pub(super) fn fetch(arguments: &[String]) -> Vec<String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    curl(&arguments).into_iter().map(str::to_owned).collect()
}

fn walls(outcome: &Outcome) -> Vec<Value> {
    outcome.event("start")["walls"].as_array().expect("a list").clone()
}

fn what_both_allow_is_reached(world: &World) {
    let host = world.zone().host("nested-allowed");
    let flags = ["--allow", &host.name];
    let script = "curl -sS --max-time 30 \"$0\" \"$1\" && curl -sS --max-time 30 -x http://127.0.0.1:61003 \"$0\"";
    let mark = world.mark();
    let inner = Inner::new(world, &flags, &["sh", "-c", script, &host.http("/"), &host.https("/")]);
    let (inner, outer) = inner.within(world, &flags);
    inner.exits_with(0);
    assert_eq!(inner.stdout().matches(&greeting(&host)).count(), 3, "{inner}{outer}");
    world.assert_reached(mark, &host);
    for port in [80, 443] {
        assert_eq!(inner.allowed(&host.name, port, "listed")["rule"]["source"], "--allow");
        assert_eq!(outer.allowed(&host.name, port, "listed")["via"], "connect");
    }
    let process = outer.allowed(&host.name, 443, "listed")["process"]["exe"].to_string();
    assert!(process.contains("netbox"), "it is the inner netbox that connects: {process}");
    let addresses: Vec<String> =
        host.addresses.iter().map(|address| std::net::SocketAddr::new(*address, 443).to_string()).collect();
    let led_to =
        inner.events_of("close").iter().any(|close| addresses.iter().any(|address| close["addr"] == **address));
    assert!(led_to, "the address that was dialled is told: {inner}");
}

/// Report 131.
fn the_inner_one_narrows(world: &World) {
    let (listed, other) = (world.zone().host("nested-listed"), world.zone().host("nested-other"));
    let wide = ["--allow", "*"];
    let client = fetch(&[other.http("/")]);
    world.netbox(&wide).exec(&client).exits_with(0).says("hello");
    let mark = world.mark();
    let (inner, outer) = Inner::new(world, &["--allow", &listed.name], &client).within(world, &wide);
    inner.exits_with(0).says(&format!("netbox: `{}:80` is refused: no rule allows this host", other.name));
    inner.refused(&other.name, 80, "not-listed");
    world.assert_untouched(mark, &other);
    assert!(outer.events_of("decision").is_empty(), "{outer}");
}

/// Neither by flags, nor by variables, nor by files: the way out is the outer one's.
fn c051_the_inner_one_widens_nothing(world: &World) {
    let (listed, other) = (world.zone().host("nested-c051"), world.zone().host("nested-c051-other"));
    let outer_flags = ["--allow", &listed.name];
    let client = fetch(&[other.http("/")]);
    for flags in [&["--allow", &other.name][..], &["--mode", "open"], &["--mode", "audit"]] {
        let mark = world.mark();
        let (inner, outer) = Inner::new(world, flags, &client).within(world, &outer_flags);
        let body =
            format!("netbox: `{}:80` is refused by the netbox around this one: no rule allows this host", other.name);
        inner.exits_with(0).says(&body);
        let decision = inner.refused(&other.name, 80, "not-listed");
        assert_eq!(decision["rule"]["source"], "the netbox around this one");
        outer.refused(&other.name, 80, "not-listed");
        inner.complains("by `outer` (the netbox around this one)");
        world.assert_untouched(mark, &other);
    }
    let netbox = world.netbox_path().display();
    let script = format!(
        "cd \"$(mktemp -d -p \"$HOME\")\"
        export NETBOX_ALLOW_WEAKER=proc NETBOX_ALLOW='{0}' NETBOX_MODE=open; unset NETBOX NETBOX_SESSION
        echo 'NETBOX_ALLOW={0}' >.env; echo 'allow = [\"{0}\"]' >netbox.toml
        {netbox} run --config ./netbox.toml --allow '{0}' -- curl -sS --max-time 30 http://{0}/",
        other.name
    );
    let mark = world.mark();
    let outcome = world.netbox(&outer_flags).exec(&["sh", "-c", &script]);
    outcome.exits_with(0).says("is refused by the netbox around this one").refused(&other.name, 80, "not-listed");
    world.assert_untouched(mark, &other);
}

fn addresses_go_through_both(world: &World) {
    let host = world.zone().host("nested-addresses");
    let rules = format!("{}:80,[{}]:80", host.v4(), host.v6());
    let urls = [format!("http://{}/", host.v4()), format!("http://[{}]/", host.v6())];
    let client = fetch(&urls);
    let both = ["--allow", &rules];
    let (inner, _) = Inner::new(world, &both, &client).within(world, &both);
    assert_eq!(inner.exits_with(0).stdout().matches("hello").count(), 2, "{inner}");
    let mark = world.mark();
    let (inner, outer) = Inner::new(world, &both, &client).within(world, &["--allow", &host.name]);
    for address in [host.v4().to_string(), host.v6().to_string()] {
        inner.refused(&address, 80, "address-not-listed");
        outer.refused(&address, 80, "address-not-listed");
    }
    world.assert_untouched(mark, &host);
}

/// A server that speaks first, and one that does not.
fn other_protocols_go_through_both(world: &World) {
    let host = world.zone().host("nested-protocols");
    let flags = ["--allow", &format!("{}:22,5432", host.name)];
    let (inner, _) = Inner::new(world, &flags, &probe(world, &["tcp", &host.name, "22"])).within(world, &flags);
    inner.exits_with(0).says("answer: SSH-2.0-");
    let (inner, _) =
        Inner::new(world, &flags, &probe(world, &["tcp", &host.name, "5432", "ping"])).within(world, &flags);
    inner.exits_with(0).says("answer: ").says("ping");
    let narrow = ["--allow", &format!("{}:22", host.name)];
    let (inner, _) =
        Inner::new(world, &flags, &probe(world, &["tcp", &host.name, "5432", "ping"])).within(world, &narrow);
    inner.does_not_say("answer").refused(&host.name, 5432, "port-not-listed");
}

fn the_inner_ones_guard_holds_for_what_the_outer_one_allows(world: &World) {
    let host = world.zone().host_at("nested-private", &["10.77.0.44".parse().expect("an address")]);
    let client = fetch(&[host.http("/")]);
    let outer_flags = ["--allow", &host.name, "--allow", "10.77.0.0/24:80"];
    world.netbox(&outer_flags).exec(&client).exits_with(0).says("hello");
    let mark = world.mark();
    let (inner, _) = Inner::new(world, &["--allow", &host.name], &client).within(world, &outer_flags);
    inner.refused(&host.name, 80, "non-public");
    let connected = world.arrivals(mark, &host).iter().any(|arrival| arrival.service != "dns");
    assert!(!connected, "nothing was dialled: {inner}");
}

fn what_fails_fails_with_its_own_reason(world: &World) {
    let missing = world.zone().host_missing("nested-missing");
    let failing = world.zone().host_failing("nested-failing");
    let refusing = world.zone().host("nested-refusing");
    let flags = ["--allow", &format!("{},{},{}:81", missing.name, failing.name, refusing.name)];
    let by_proxy = ["--proxy", "http://127.0.0.1:61003"];
    for (url, host, port, reason) in [
        (missing.http("/"), &missing, 80, "dns-not-found"),
        (failing.http("/"), &failing, 80, "dns-failed"),
        (format!("http://{}:81/", refusing.name), &refusing, 81, "refused"),
    ] {
        let client = curl(&[&by_proxy[..], &[&*url]].concat());
        let (inner, _) = Inner::new(world, &flags, &client).within(world, &flags);
        inner.says("is allowed, and failed").decided("error", &host.name, port, reason);
    }
}

fn three_of_them_are_no_wider_than_the_narrowest(world: &World) {
    let (listed, other) = (world.zone().host("nested-deep"), world.zone().host("nested-deep-other"));
    let client = fetch(&[listed.http("/"), other.http("/")]);
    let both = ["--allow", &format!("{},{}", listed.name, other.name)];
    let mark = world.mark();
    for flags in [[&both[..], &["--allow", &listed.name], &both], [&both, &both, &["--allow", &listed.name]]] {
        let [outermost, middle, innermost] = flags;
        let innermost = Inner::new(world, innermost, &client);
        if world.identity.real_root {
            // The middle one has no `/proc` of its own, and in that of the outermost a third one cannot map its users.
            let words = Inner::new(world, middle, &innermost.words).words;
            world.netbox(outermost).exec(&words).exits_with(125).does_not_say("hello").complains("`/proc`");
            continue;
        }
        let (_, outer) = Inner::new(world, middle, &innermost.words).within(world, outermost);
        outer.exits_with(0).says(&greeting(&listed)).says(&format!("`{}:80` is refused", other.name));
    }
    if !world.identity.real_root {
        world.assert_reached(mark, &listed);
    }
    world.assert_untouched(mark, &other);
}

fn loopback_is_that_of_the_sandbox_around(world: &World) {
    let client = fetch(&["http://127.0.0.1:8765/".to_owned()]);
    let serve = |inner: &Inner| {
        let words: Vec<&str> =
            ["127.0.0.1", "8765"].into_iter().chain(inner.words.iter().map(String::as_str)).collect();
        world.netbox(&["--mode", "none"]).exec(&own(world, "python3", "serve.py", &words))
    };
    let closed = Inner::new(world, &["--mode", "none"], &client);
    serve(&closed).exits_with(7).does_not_say("served inside");
    let open = Inner::new(world, &["--mode", "none", "--host-port", "8765"], &client);
    serve(&open).exits_with(0).says("served inside");
}

fn the_outer_ones_listeners_are_no_ports_to_open(world: &World) {
    let host = world.zone().host("nested-listeners");
    let mark = world.mark();
    let outer_flags = ["--allow", &host.name];
    let proxy = "http://127.0.0.1:61003".to_owned();
    let client = fetch(&["--proxy".to_owned(), proxy.clone(), "--proxytunnel".to_owned(), proxy]);
    let (inner, _) = Inner::new(world, &["--allow", "127.0.0.1:61003"], &client).within(world, &outer_flags);
    inner.refused("127.0.0.1", 61003, "self");
    let client = fetch(&["http://127.0.0.1:9999/".to_owned()]);
    let inner = Inner::new(world, &["--mode", "none", "--host-port", "9999:53"], &client);
    inner.within(world, &outer_flags).0.refused("127.0.0.1", 53, "self");
    world.assert_untouched(mark, &host);
}

/// `netbox proxy serve`, beside its client in one sandbox.
fn a_proxy_inside_asks_the_outer_one_too(world: &World) {
    let (listed, other) = (world.zone().host("nested-proxy"), world.zone().host("nested-proxy-other"));
    let netbox = world.netbox_path().display();
    let script = format!(
        "{netbox} proxy serve --no-config --allow '*' --listen 127.0.0.1:3128 2>said & proxy=$!
        until grep -q 'listening on' said; do kill -0 $proxy || exit 9; done
        curl -sS --max-time 30 --proxy http://127.0.0.1:3128 {} {}; kill $proxy; wait $proxy; exit 0",
        listed.http("/"),
        other.http("/")
    );
    let folder = world.fresh_path("home");
    std::fs::create_dir(&folder).expect("own folder");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &listed.name]).folder(&folder).exec(&["sh", "-c", &script]);
    outcome
        .exits_with(0)
        .says(&greeting(&listed))
        .says("is refused by the netbox around this one: no rule allows this host");
    outcome.refused(&other.name, 80, "not-listed");
    world.assert_untouched(mark, &other);
}

fn doctor_says_so(world: &World) {
    // The variable is for root, as in `Inner`.
    let doctor = ["env", "NETBOX_ALLOW_WEAKER=proc", &*world.netbox_path().to_string_lossy(), "doctor"];
    let outcome = world.netbox(&["--mode", "none"]).exec(&doctor);
    outcome.exits_with(0).says("nested: this is inside another netbox").says("netbox can isolate here");
}

/// A shared service and its client, both in one sandbox.
fn a_service_inside_asks_the_outer_one_too(world: &World) {
    let (listed, other) = (world.zone().host("nested-service"), world.zone().host("nested-service-other"));
    let weaker = if world.identity.real_root { "NETBOX_ALLOW_WEAKER=proc" } else { "" };
    let netbox = world.netbox_path().display();
    let script = format!(
        "folder=$(mktemp -d -p \"$HOME\"); socket=unix:$folder/control.sock; export {weaker} NETBOX_VIA=$socket
        {netbox} proxy serve --no-config --listen $socket 2>$folder/said & service=$!
        until grep -q 'listening on' $folder/said || ! kill -0 $service; do :; done
        {netbox} run --no-config --mode open -- curl -sS --max-time 30 http://{}/ http://{}/
        kill $service; wait $service; echo \"service: $?\"; cat $folder/said",
        listed.name, other.name
    );
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &listed.name]).exec(&["sh", "-c", &script]);
    outcome.exits_with(0).says(&greeting(&listed)).says("service: 0");
    outcome.says("is refused by the netbox around this one").refused(&other.name, 80, "not-listed");
    world.assert_untouched(mark, &other);
}

/// Also where its socket was let in, and the outer netbox makes the connect: what it reaches is more than that one allows.
fn a_service_of_the_machine_around_carries_nobody_inside(world: &World) {
    let service = Service::start(world, &["--mode", "open"]);
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let socket = service.socket().to_string_lossy().into_owned();
    let weaker = ["--allow-weaker", "proc"];
    let within = |flags: &[&str], words: &[&str]| {
        let flags = [&["--no-config", "--mode", "none"], flags].concat();
        world.netbox(&flags).within(household(world)).exec(&[&[netbox.as_str()], words].concat())
    };
    for flags in [&[][..], &["--unix-socket", &socket]] {
        let run = [&["run", "--no-config", "--via", service.via()], &weaker[..], &["--", "echo", "ran"]].concat();
        within(flags, &run).exits_with(125).does_not_say("ran").complains("hint: inside another netbox");
        for what in ["status", "reload", "drain"] {
            within(flags, &["proxy", what, "--via", service.via()]).exits_with(125);
        }
    }
    service.running().wait_for_stderr("namespace: who asks is in another user namespace");
    service.netbox(&["--mode", "none"]).exec(&["true"]).exits_with(0);
    service.stop().exits_with(0);
}
