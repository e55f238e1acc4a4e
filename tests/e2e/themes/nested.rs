//! A netbox inside a netbox, and either beside other sandboxes: the inner one narrows, and nothing is wider for it.

use std::path::PathBuf;

use serde_json::Value;

use super::programs::greeting;
use crate::outcome::{Outcome, read_events};
use crate::programs::{BWRAP, CURL, PYTHON, UNSHARE, curl, own, probe};
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
    sockets_of_the_sandbox_around_are_out_of_reach needs [PYTHON, UNSHARE],
    programs_inside_use_their_own_sockets_as_ever needs [PYTHON],
    a_socket_of_the_hosts_cannot_be_let_through_to_the_inner_one needs [],
    below_a_supervisor_that_is_no_netbox_nothing_runs needs [PYTHON],
    a_proxy_inside_asks_the_outer_one_too needs [CURL],
    doctor_says_so needs [],
    in_bwrap_with_a_network_it_works_as_ever needs [BWRAP, CURL],
    in_bwrap_without_a_network_it_starts_and_reaches_nothing needs [BWRAP, CURL],
    in_bwrap_without_a_network_in_a_netbox_it_starts_and_reaches_nothing needs [BWRAP, CURL],
];

/// `netbox run FLAGS -- COMMAND`, to be run in another sandbox, and where its events are written.
struct Inner {
    words: Vec<String>,
    events: PathBuf,
}

impl Inner {
    fn new<A: AsRef<str>>(world: &World, flags: &[&str], command: &[A]) -> Self {
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
    fn within(&self, world: &World, flags: &[&str]) -> (Outcome, Outcome) {
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

fn fetch(arguments: &[String]) -> Vec<String> {
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

/// They may reach more than the inner sandbox does.
fn sockets_of_the_sandbox_around_are_out_of_reach(world: &World) {
    let folder = world.fresh_path("home");
    std::fs::create_dir(&folder).expect("own folder");
    let path = folder.join("socket").to_string_lossy().into_owned();
    let connect = own(world, "python3", "unix.py", &["connect", "stream", &path]);
    let deeper: Vec<String> = ["unshare", "--user", "--map-root-user", "--net"]
        .map(str::to_owned)
        .into_iter()
        .chain(connect.clone())
        .collect();
    let script = "
import socket, subprocess, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print('around', subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, text=True).stdout)
";
    let listen = |command: &[String]| -> Vec<String> {
        ["python3", "-c", script, &path].map(str::to_owned).into_iter().chain(command.iter().cloned()).collect()
    };
    // In the `/proc` that root has in there nobody maps the users of a namespace.
    let clients = if world.identity.real_root { &[&connect][..] } else { &[&connect, &deeper] };
    for client in clients {
        world.netbox(&["--mode", "none"]).exec(&listen(client)).exits_with(0).says("around connected");
        std::fs::remove_file(&path).expect("own folder");
        let inner = Inner::new(world, &["--mode", "none"], client);
        let outcome = world.netbox(&["--mode", "none"]).exec(&listen(&inner.words));
        outcome.exits_with(0).says("around failed: EACCES");
        std::fs::remove_file(&path).expect("own folder");
    }
}

fn programs_inside_use_their_own_sockets_as_ever(world: &World) {
    // In the `/proc` that root has in there it is not known by the number that it knows.
    let of_root = ["streams_and_seqpackets", "the_longest_names", "abstract_names", "pairs"];
    let facts = if world.identity.real_root { &of_root[..] } else { &[] };
    let program = own(world, "python3", "own_unix.py", facts);
    let bare = world.bare().exec(&program);
    let (inner, _) = Inner::new(world, &["--mode", "none"], &program).within(world, &["--mode", "none"]);
    assert_eq!(inner.exits_with(0).stdout(), bare.exits_with(0).stdout(), "{inner}");
}

fn a_socket_of_the_hosts_cannot_be_let_through_to_the_inner_one(world: &World) {
    let path = world.fresh_path("home");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a free name");
    let inner = Inner::new(world, &["--unix-socket", &path.to_string_lossy()], &["echo", "it ran"]);
    let outcome = world.netbox(&["--mode", "none"]).exec(&inner.words);
    outcome.exits_with(125).does_not_say("it ran").complains("`--unix-socket` inside another netbox");
}

/// The kernel has room for one, and this one keeps no socket out of reach.
fn below_a_supervisor_that_is_no_netbox_nothing_runs(world: &World) {
    let script = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
# Traps a number that no system call has.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 0xfff), (0x06, 0, 0, 0x7fc00000), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 4, ctypes.addressof(code)))
there, told = os.pipe()
back, known = os.pipe()
child = os.fork()
if child == 0:
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    listener = libc.syscall(317, 1, 8, program)
    assert listener >= 0, os.strerror(ctypes.get_errno())
    os.write(told, bytes([listener]))
    os.read(back, 1)
    os.execvp(sys.argv[1], sys.argv[1:])
number = os.read(there, 1)[0]
assert libc.syscall(438, os.pidfd_open(child), number, 0) >= 0, os.strerror(ctypes.get_errno())
os.write(known, b'.')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
    let inner = Inner::new(world, &["--mode", "none"], &["echo", "it ran"]);
    let words: Vec<&str> =
        ["python3", "-c", script].into_iter().chain(inner.words.iter().map(String::as_str)).collect();
    let outcome = world.bare().exec(&words);
    outcome.exits_with(125).does_not_say("it ran").complains("cannot supervise connects").complains("EBUSY");
    outcome.complains("which is no netbox");
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

/// A sandbox that shows everything and takes nothing away but what is added.
const BOX: [&str; 9] =
    ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--proc", "/proc"];

fn in_bwrap_with_a_network_it_works_as_ever(world: &World) {
    let (listed, other) = (world.zone().host("in-bwrap"), world.zone().host("in-bwrap-other"));
    let client = fetch(&[listed.http("/"), other.http("/")]);
    let inner = Inner::new(world, &["--allow", &listed.name], &client);
    let words: Vec<&str> = BOX.into_iter().chain(inner.words.iter().map(String::as_str)).collect();
    let mark = world.mark();
    let outcome = world.bare().exec(&words);
    outcome.exits_with(0).says(&greeting(&listed)).says("no rule allows this host");
    world.assert_untouched(mark, &other);
}

fn reaches_nothing(outcome: &Outcome, inner: &Inner, host: &str, reason: &str) {
    let events = read_events(&inner.events);
    outcome.does_not_say("hello").says("it went on");
    outcome.complains("there is no network here");
    let failed =
        events.iter().any(|event| event["event"] == "decision" && event["host"] == host && event["reason"] == reason);
    assert!(failed, "no `{reason}` among {events:#?}: {outcome}");
}

fn in_bwrap_without_a_network_it_starts_and_reaches_nothing(world: &World) {
    let host = world.zone().host("in-bwrap-alone");
    let script = "curl -sS --max-time 30 --proxy http://127.0.0.1:61003 \"$0\"; echo it went on";
    let inner = Inner::new(world, &["--allow", &host.name], &["sh", "-c", script, &host.http("/")]);
    let words: Vec<&str> =
        BOX.into_iter().chain(["--unshare-net"]).chain(inner.words.iter().map(String::as_str)).collect();
    reaches_nothing(world.bare().exec(&words).exits_with(0), &inner, &host.name, "dns-failed");
}

fn in_bwrap_without_a_network_in_a_netbox_it_starts_and_reaches_nothing(world: &World) {
    let host = world.zone().host("in-both");
    let script = "curl -sS --max-time 30 --proxy http://127.0.0.1:61003 \"$0\"; echo it went on";
    let flags = ["--allow", &host.name];
    let inner = Inner::new(world, &flags, &["sh", "-c", script, &host.http("/")]);
    // In root's there is no fresh `/proc` for bwrap either, and netbox needs that of its pid namespace.
    let sandbox = if world.identity.real_root { &BOX[..4] } else { &BOX };
    let inside = inner.words.iter().map(String::as_str);
    let words: Vec<&str> = sandbox.iter().copied().chain(["--unshare-net"]).chain(inside).collect();
    let mark = world.mark();
    reaches_nothing(world.netbox(&flags).exec(&words).exits_with(0), &inner, &host.name, "unreachable");
    world.assert_untouched(mark, &host);
}
