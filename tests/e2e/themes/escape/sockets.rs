//! Sockets of other kinds, made and connected by other ways than `socket` and `connect`.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use super::{FLAGS, attempt, gets_out, is_held, said, without};
use crate::programs::{CURL, PYTHON, SSH, curl};
use crate::tests;
use crate::world::World;

tests![
    the_hosts_services_are_out_of_reach needs [PYTHON],
    a_running_ssh_connection_of_the_hosts_is_not_shared needs [SSH],
    a_ring_neither_makes_nor_connects_sockets needs [PYTHON],
    the_system_calls_of_32_bit_programs_make_no_sockets needs [PYTHON],
    a_call_that_a_tracer_changes_is_judged_as_changed needs [PYTHON],
    sockets_of_other_families_are_not_made needs [PYTHON],
    options_that_bend_routes_are_not_set needs [PYTHON],
    connecting_by_sending_is_judged needs [PYTHON],
    multipath_tcp_is_judged needs [PYTHON],
    other_protocols_go_nowhere needs [PYTHON],
    netboxs_own_ports_are_taken needs [PYTHON],
    a_connect_to_netboxs_own_ports_leads_nowhere needs [CURL],
    a_network_of_its_own_has_no_way_out needs [PYTHON],
    the_hosts_connections_cannot_be_seen needs [PYTHON],
    a_socket_that_a_confederate_sends_cannot_be_connected needs [PYTHON],
    without_proxy_variables_a_program_is_held_all_the_same needs [CURL],
];

/// Docker, D-Bus (`systemd-run --user` goes by it), the resolver's varlink, syslog and their like.
fn the_hosts_services_are_out_of_reach(world: &World) {
    let services = world.host_services();
    let (streams, datagrams) = services.paths();
    let all = streams.len() + datagrams.len();
    let visit = |word| attempt(world, &[&["sockets", "visit", word], &streams[..], &["--"], &datagrams[..]].concat());
    gets_out(&world.bare().exec(&visit("from a bare program")));
    assert_eq!(services.visits_with("from a bare program"), all);
    gets_out(&world.bare().exec(&without(world, "calls", &visit("from a stand-in"))));
    assert_eq!(services.visits_with("from a stand-in"), all);
    let outcome = world.netbox(&FLAGS).exec(&visit("from a sandbox"));
    is_held(&outcome);
    assert_eq!(outcome.stdout().lines().count(), all, "{outcome}");
    assert_eq!(services.visits_with("from a sandbox"), 0, "{outcome}");
}

/// A listener of the host that does not wait, in a folder of its own.
fn host_listener(world: &World) -> (String, UnixListener) {
    let folder = world.fresh_path("home");
    fs::create_dir(&folder).expect("own folder");
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).expect("a free name");
    listener.set_nonblocking(true).expect("a listener");
    (path.to_str().expect("plain characters").to_owned(), listener)
}

/// ssh passes new sessions through a connection that is open already, whose socket it is told of by `-S`.
fn a_running_ssh_connection_of_the_hosts_is_not_shared(world: &World) {
    let (path, listener) = host_listener(world);
    let ask = ["ssh", "-F", "none", "-S", &path, "-O", "check", "host.example.com"];
    // The master says nothing, and the client waits for it to speak: until the master is gone.
    let asking = world.bare().start(&ask);
    assert!(crate::run::eventually(|| listener.accept().is_ok()), "ssh asks its master");
    asking.finish();
    let outcome = world.netbox(&FLAGS).exec(&ask);
    outcome.exits_with(255).complains("Permission denied");
    assert!(listener.accept().is_err(), "{outcome}");
}

/// Bare, the attempt comes to a socket of the host's; in a sandbox without a system-call filter too; under netbox not.
fn comes_to_no_socket(world: &World, way: &str) {
    let (path, listener) = host_listener(world);
    let way = attempt(world, &["sockets", way, &path]);
    for words in [&way, &without(world, "calls", &way)] {
        let outcome = world.bare().exec(words);
        gets_out(&outcome);
        assert!(listener.accept().is_ok(), "{outcome}");
    }
    let outcome = world.netbox(&FLAGS).exec(&way);
    is_held(&outcome);
    outcome.says("ENOSYS");
    assert!(listener.accept().is_err(), "{outcome}");
}

fn a_ring_neither_makes_nor_connects_sockets(world: &World) {
    comes_to_no_socket(world, "uring");
}

fn the_system_calls_of_32_bit_programs_make_no_sockets(world: &World) {
    // Other machines have 32-bit programs only where the processor has; the filter is the same, and tested as a unit.
    if cfg!(target_arch = "x86_64") {
        comes_to_no_socket(world, "other_abi");
    }
}

/// The kernel looks at the filter after the tracer did.
fn a_call_that_a_tracer_changes_is_judged_as_changed(world: &World) {
    // The registers have other names elsewhere, and the kernel's order is the same.
    if cfg!(target_arch = "x86_64") {
        let traced = attempt(world, &["sockets", "traced"]);
        gets_out(&world.bare().exec(&without(world, "calls", &traced)));
        assert_eq!(world.netbox(&FLAGS).exec(&traced).stdout(), "failed: a socket EACCES\n");
    }
}

/// All that a kernel has: what root of its own network can make, and what is left of that.
fn sockets_of_other_families_are_not_made(world: &World) {
    let families = attempt(world, &["sockets", "families"]);
    let root = world.bare().exec(&without(world, "nested", &families)).stdout();
    // unix datagrams, raw IP, packets
    for kind in ["1 dgram 0", "2 raw 255", "17 raw 0"] {
        assert!(said(&root, "got: ").contains(&kind), "{kind}: {root}");
    }
    let outcome = world.netbox(&FLAGS).exec(&families);
    let text = outcome.exits_with(0).stdout();
    let allowed = |kind: &&str| {
        let words: Vec<_> = kind.split(' ').collect();
        matches!(words[..], ["1", "stream" | "seqpacket", _] | ["2" | "10", "stream" | "dgram", _] | ["16", _, _])
    };
    assert!(said(&text, "got: ").iter().all(allowed), "{outcome}");
    let sandbox = world.bare().exec(&without(world, "calls", &attempt(world, &["sockets", "vsock"]))).stdout();
    // Not every kernel has it.
    if !sandbox.contains("EAFNOSUPPORT") {
        assert_eq!(said(&sandbox, "got: ").len(), 2, "a socket of the machine's, and a port: {sandbox}");
    }
    is_held(&world.netbox(&FLAGS).exec(&attempt(world, &["sockets", "vsock"])));
}

fn options_that_bend_routes_are_not_set(world: &World) {
    let options = attempt(world, &["sockets", "options"]);
    gets_out(&world.bare().exec(&without(world, "nested", &options)));
    is_held(&world.netbox(&FLAGS).exec(&options));
    let below = attempt(world, &["sockets", "options", "below"]);
    is_held(&world.netbox(&FLAGS).exec(&below));
}

/// Bare, the program hears from the host by this way; under netbox only if the host is allowed.
fn is_judged(world: &World, label: &str, way: &str) {
    let host = world.zone().host(label);
    let way = attempt(world, &["sockets", way, &host.name, "5432"]);
    gets_out(&world.bare().exec(&way));
    let allowed = world.netbox(&["--allow", &host.port(5432)]).exec(&way);
    gets_out(&allowed);
    allowed.allowed(&host.name, 5432, "listed");
    let mark = world.mark();
    let outcome = world.netbox(&FLAGS).exec(&way);
    outcome.does_not_say("got: answer").says("failed: ");
    outcome.refused(&host.name, 5432, "not-listed");
    world.assert_untouched(mark, &host);
}

/// MSG_FASTOPEN: no connect(2) is made, and it is captured all the same.
fn connecting_by_sending_is_judged(world: &World) {
    is_judged(world, "fast-open", "fastopen");
}

fn multipath_tcp_is_judged(world: &World) {
    is_judged(world, "multipath", "mptcp");
}

/// Those that there are sockets for: SCTP, UDP-Lite, DCCP, pings.
fn other_protocols_go_nowhere(world: &World) {
    let host = world.zone().host("other-protocols");
    let way = attempt(world, &["sockets", "protocols", &host.v4().to_string()]);
    world.bare().exec(&way).says("got: udplite");
    let mark = world.mark();
    is_held(&world.netbox(&["--allow", &host.port(9)]).exec(&way));
    world.assert_untouched(mark, &host);
}

fn netboxs_own_ports_are_taken(world: &World) {
    let ports = ["tcp:61001", "udp:61002", "tcp:61002", "tcp:61003"];
    let take = attempt(world, &[&["sockets", "take_ports"], &ports[..]].concat());
    gets_out(&world.bare().exec(&without(world, "calls", &take)));
    is_held(&world.netbox(&FLAGS).exec(&take));
}

/// The capture listener: a connection that was not redirected has the listener itself as its destination.
fn a_connect_to_netboxs_own_ports_leads_nowhere(world: &World) {
    let host = world.zone().host("capture-port");
    let client = curl(&["--header", "Host: capture-port.example.com", "http://127.0.0.1:61001/"]);
    let bare = curl(&["--header", "Host: capture-port.example.com", "http://127.0.0.1:8080/"]);
    world.bare().exec(&bare).exits_with(0).says("hello");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.does_not_say("hello").refused("127.0.0.1", 61001, "self");
    world.assert_untouched(mark, &host);
}

fn a_network_of_its_own_has_no_way_out(world: &World) {
    let host = world.zone().host("other-network");
    let address = host.v4().to_string();
    let direct = attempt(world, &["sockets", "fastopen", &address, "5432"]);
    gets_out(&world.bare().exec(&direct));
    let mark = world.mark();
    let outcome = world.netbox(&FLAGS).exec(&attempt(world, &["sockets", "other_network", &address, "5432"]));
    is_held(&outcome);
    world.assert_untouched(mark, &host);
}

/// By `/proc/net` and by the kernel's own dump of sockets.
fn the_hosts_connections_cannot_be_seen(world: &World) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let look = attempt(world, &["sockets", "listening", &port]);
    gets_out(&world.bare().exec(&look));
    gets_out(&world.bare().exec(&without(world, "net", &look)));
    is_held(&world.netbox(&FLAGS).exec(&look));
}

/// A program of the host's that means to help can hand a connection in, and what it carries is nobody's secret any more
/// (`docs/threats.md`). It cannot hand in the host's network: a socket that is not connected stays so.
fn a_socket_that_a_confederate_sends_cannot_be_connected(world: &World) {
    let host = world.zone().host("confederate");
    let address = host.v4().to_string();
    let run = |run: crate::run::Run<'_>| {
        let path: PathBuf = world.fresh_path("home");
        let text = path.to_str().expect("plain characters");
        let running = run.start(&attempt(world, &["sockets", "receive", text, &address, "5432"]));
        running.wait_for_stdout("ready\n");
        let confederate = UnixStream::connect(&path).expect("it listens");
        let fresh = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::empty(),
            None,
        )
        .expect("a socket");
        let connected = TcpStream::connect((host.v4(), 5432)).expect("the servers are up");
        let sent = [fresh.as_raw_fd(), connected.as_raw_fd()];
        let message = [ControlMessage::ScmRights(&sent)];
        sendmsg::<()>(confederate.as_raw_fd(), &[IoSlice::new(b"x")], &message, MsgFlags::empty(), None)
            .expect("a connected socket");
        drop((fresh, connected));
        running.finish()
    };
    run(world.bare()).says("got: connected\ngot: answer\n");
    run(world.netbox(&FLAGS)).says("failed: connected EACCES\ngot: answer\n");
}

/// The fence is the network, and no variable.
fn without_proxy_variables_a_program_is_held_all_the_same(world: &World) {
    let host = world.zone().host("no-variables");
    let url = host.http("/");
    let words = [
        &["env", "-i", "NO_PROXY=*", "no_proxy=*", "LD_PRELOAD=", "PATH=/usr/bin:/bin"][..],
        &curl(&["--noproxy", "*", &url]),
    ];
    let words = words.concat();
    world.bare().exec(&words).exits_with(0).says("hello");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "other.example.com", "--proxy-env", "all"]).exec(&words);
    outcome.does_not_say("hello").refused(&host.name, 80, "not-listed");
    world.assert_untouched(mark, &host);
}
