//! Unix sockets: those of the host that lie in the file system are out of reach, by whatever name and trick, and those
//! that programs inside make for each other work as ever.
//!
//! A listener of the test's own stands on the host. What a bare program connects to it is accepted; then the same
//! program runs under netbox, and nothing may have arrived.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, listen, socket};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::outcome::Outcome;
use crate::programs::{BWRAP, GIT, NODE, PYTHON, SSH_AGENT, TMUX, own};
use crate::run::eventually;
use crate::tests;
use crate::world::World;

tests![
    a_hosts_socket_is_refused_by_every_name needs [PYTHON],
    a_hosts_seqpacket_socket_is_refused needs [PYTHON],
    a_hosts_socket_that_was_made_after_the_start_is_refused needs [PYTHON],
    a_hosts_socket_is_refused_over_a_read_only_mount needs [PYTHON, BWRAP],
    a_hosts_datagram_socket_gets_nothing needs [PYTHON],
    a_hosts_datagram_socket_gets_nothing_from_a_pair needs [PYTHON],
    a_socket_file_that_nobody_listens_on_says_so needs [PYTHON],
    swapping_descriptors_and_addresses_wins_nothing needs [PYTHON],
    there_is_no_io_uring needs [PYTHON],
    one_socket_may_be_let_through needs [PYTHON],
    what_is_let_through_is_the_file_and_not_its_name needs [PYTHON],
    a_socket_that_is_not_there_cannot_be_let_through needs [],
    a_socket_that_leads_out_is_warned_about needs [],
    programs_use_their_own_sockets_as_ever needs [PYTHON],
    a_sandbox_inside_uses_its_own_sockets needs [PYTHON, BWRAP],
    node_uses_its_own_sockets needs [NODE],
    a_credential_cache_works_inside_and_the_hosts_is_not_asked needs [GIT],
    an_ssh_agent_works_inside_and_the_hosts_is_not_asked needs [SSH_AGENT],
    tmux_works_inside needs [TMUX],
    connects_of_processes_that_were_killed_come_to_nothing needs [PYTHON],
    a_run_ends_although_connects_wait needs [PYTHON],
    with_every_thread_waiting_a_further_connect_fails_and_tcp_goes_on needs [PYTHON],
    a_file_system_that_hangs_holds_up_who_asks_it_alone needs [PYTHON],
    the_wall_is_named needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

fn client(world: &World, arguments: &[&str]) -> Vec<String> {
    own(world, PYTHON.name, "unix.py", arguments)
}

/// A folder that both the test and the program may write to.
fn folder(world: &World) -> PathBuf {
    let folder = world.fresh_path("home");
    fs::create_dir(&folder).expect("own folder");
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// A listener of the host that does not wait.
fn host_listener(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).expect("a free name");
    listener.set_nonblocking(true).expect("a listener");
    listener
}

/// How many connections have come to it by now.
fn arrived(listener: &UnixListener) -> usize {
    std::iter::from_fn(|| listener.accept().ok()).count()
}

/// Bare, the program connects this often; under netbox, never.
fn refused(world: &World, listener: &UnixListener, program: &[String], times: usize) -> Outcome {
    let bare = world.bare().exec(program);
    assert_eq!((arrived(listener), bare.stdout().matches("connected").count()), (times, times), "{bare}");
    let outcome = world.netbox(&FLAGS).exec(program);
    outcome.does_not_say("connected");
    assert_eq!(arrived(listener), 0, "{outcome}");
    outcome
}

fn a_hosts_socket_is_refused_by_every_name(world: &World) {
    let path = folder(world).join("socket");
    let listener = host_listener(&path);
    let outcome = refused(world, &listener, &client(world, &["names", text(&path)]), 14);
    let said = outcome.exits_with(0).stdout();
    // One of the names is none: it ends in a slash, and a socket is no folder.
    let count = |word: &str| said.lines().filter(|line| *line == word).count();
    assert_eq!((count("failed: EACCES"), count("failed: ENOTDIR")), (14, 1), "{outcome}");
}

fn a_hosts_seqpacket_socket_is_refused(world: &World) {
    let path = folder(world).join("socket");
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let listener: OwnedFd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("a free name");
    listen(&listener, Backlog::new(16).expect("a small number")).expect("a bound socket");
    let program = client(world, &["connect", "seqpacket", text(&path)]);
    world.bare().exec(&program).says("connected");
    accept(&listener).expect("it connected");
    world.netbox(&FLAGS).exec(&program).says("failed: EACCES");
    assert!(accept(&listener).is_err(), "it connected");
}

fn a_hosts_socket_that_was_made_after_the_start_is_refused(world: &World) {
    let path = folder(world).join("socket");
    let program = client(world, &["later", text(&path)]);
    let run = |run: crate::run::Run<'_>| {
        let mut running = run.stdin_open().start(&program);
        running.wait_for_stdout("ready\n");
        let listener = host_listener(&path);
        running.write(b"now\n");
        let outcome = running.finish();
        fs::remove_file(&path).expect("own file");
        (outcome, arrived(&listener))
    };
    let (outcome, arrived) = run(world.bare());
    assert_eq!(arrived, 1, "{outcome}");
    let (outcome, arrived) = run(world.netbox(&FLAGS));
    outcome.says("failed: EACCES");
    assert_eq!(arrived, 0, "{outcome}");
}

/// A file that cannot be written to can be connected to.
fn a_hosts_socket_is_refused_over_a_read_only_mount(world: &World) {
    let path = folder(world).join("socket");
    let listener = host_listener(&path);
    let program = client(world, &["connect", "stream", text(&path)]);
    let bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev"].map(str::to_owned);
    refused(world, &listener, &[&bwrap[..], &program].concat(), 1).says("failed: EACCES");
}

/// As syslog and the journal have.
fn host_datagrams(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("a free name");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

fn datagrams(socket: &UnixDatagram) -> usize {
    std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count()
}

fn a_hosts_datagram_socket_gets_nothing(world: &World) {
    let path = folder(world).join("socket");
    let host = host_datagrams(&path);
    for kind in ["dgram", "raw"] {
        let program = client(world, &["send", kind, text(&path)]);
        world.bare().exec(&program).says("sent");
        assert_eq!(datagrams(&host), 1, "{kind}");
        let outcome = world.netbox(&FLAGS).exec(&program);
        outcome.says("failed: EACCES").does_not_say("sent");
        assert_eq!(datagrams(&host), 0, "{outcome}");
    }
}

fn a_hosts_datagram_socket_gets_nothing_from_a_pair(world: &World) {
    let path = folder(world).join("socket");
    let host = host_datagrams(&path);
    for kind in ["dgram", "raw"] {
        let program = client(world, &["pair", kind, text(&path)]);
        world.bare().exec(&program).says("sent\nsent\nconnected\nsent\n");
        assert_eq!(datagrams(&host), 3, "{kind}");
        // Sends go to the other end, whatever the address.
        let outcome = world.netbox(&FLAGS).exec(&program);
        outcome.does_not_say("connected");
        assert_eq!(datagrams(&host), 0, "{outcome}");
    }
}

/// Programs start a server where they find that, and give up where they are refused.
fn a_socket_file_that_nobody_listens_on_says_so(world: &World) {
    let path = folder(world).join("socket");
    drop(host_listener(&path));
    let program = client(world, &["connect", "stream", text(&path)]);
    for run in [world.bare(), world.netbox(&FLAGS)] {
        run.exec(&program).says("failed: ECONNREFUSED");
    }
}

/// The name of the socket is at the same time an address of loopback with a port that nobody listens on: `zz` and
/// 127.1.1.1. A supervisor that judges an address and lets the kernel go on loses this race, as is shown first.
fn swapping_descriptors_and_addresses_wins_nothing(world: &World) {
    let path = folder(world).join("zz\u{7f}\u{1}\u{1}\u{1}sock");
    let listener = host_listener(&path);
    let continuing =
        |words: &[&str]| [own(world, PYTHON.name, "escape/continuing.py", &[]), client(world, words)].concat();
    world.bare().exec(&continuing(&["connect", "stream", text(&path)])).says("failed: EACCES");
    let outcome = world.bare().exec(&continuing(&["race", text(&path), "100000", "won"]));
    outcome.exits_with(0).says("done, won 1");
    assert_eq!(arrived(&listener), 1, "{outcome}");
    let outcome = world.netbox(&FLAGS).exec(&client(world, &["race", text(&path), "100000"]));
    outcome.exits_with(0).says("done, won 0");
    assert_eq!(arrived(&listener), 0, "{outcome}");
}

fn there_is_no_io_uring(world: &World) {
    let program = client(world, &["uring"]);
    world.bare().exec(&program).exits_with(0).does_not_say("ENOSYS");
    world.netbox(&FLAGS).exec(&program).exits_with(0).says("io_uring: ENOSYS");
}

fn one_socket_may_be_let_through(world: &World) {
    let folder = folder(world);
    let (path, other) = (folder.join("socket"), folder.join("other"));
    let (listener, beside) = (host_listener(&path), host_listener(&other));
    let flags = ["--allow", "other.example.com", "--unix-socket", text(&path)];
    let run = |path: &Path| world.netbox(&flags).exec(&client(world, &["connect", "stream", text(path)]));
    run(&path).exits_with(0).says("connected");
    run(&other).says("failed: EACCES");
    assert_eq!((arrived(&listener), arrived(&beside)), (1, 0));
}

fn what_is_let_through_is_the_file_and_not_its_name(world: &World) {
    let path = folder(world).join("socket");
    let first = host_listener(&path);
    let flags = ["--allow", "other.example.com", "--unix-socket", text(&path)];
    let mut running = world.netbox(&flags).stdin_open().start(&client(world, &["later", text(&path)]));
    running.wait_for_stdout("ready\n");
    fs::remove_file(&path).expect("own file");
    let second = host_listener(&path);
    running.write(b"now\n");
    let outcome = running.finish();
    outcome.says("failed: EACCES");
    assert_eq!((arrived(&first), arrived(&second)), (0, 0), "{outcome}");
}

fn a_socket_that_is_not_there_cannot_be_let_through(world: &World) {
    let folder = folder(world);
    for (path, why) in [(folder.join("missing"), "No such file"), (folder, "not a unix socket")] {
        let outcome = world.netbox(&["--unix-socket", text(&path)]).exec(&["echo", "it ran"]);
        outcome.exits_with(125).does_not_say("it ran").complains(text(&path)).complains(why);
    }
}

/// By what it is, also where the name that was typed says nothing; and only then.
fn a_socket_that_leads_out_is_warned_about(world: &World) {
    let folder = folder(world);
    let paths = ["docker.sock", "database.sock"].map(|name| folder.join(name));
    let _listeners = paths.each_ref().map(|path| UnixListener::bind(path).expect("own folder"));
    let link = folder.join("plain.sock");
    std::os::unix::fs::symlink(&paths[0], &link).expect("own folder");
    for (path, leads_out) in [(&paths[0], true), (&link, true), (&paths[1], false)] {
        let outcome = world.netbox(&["--allow", "other.example.com", "--unix-socket", text(path)]).exec(&["true"]);
        let warned = outcome.exits_with(0).stderr().contains("leads to a container engine");
        assert_eq!(warned, leads_out, "{outcome}");
    }
    let quiet = ["-q", "--allow", "other.example.com", "--unix-socket", text(&paths[0])];
    assert_eq!(world.netbox(&quiet).exec(&["true"]).exits_with(0).stderr(), "");
}

/// Names, kinds, errors, threads, hundreds of processes: line for line what they say without netbox.
fn programs_use_their_own_sockets_as_ever(world: &World) {
    let program = own(world, PYTHON.name, "own_unix.py", &[]);
    let bare = world.bare().exec(&program);
    let outcome = world.netbox(&FLAGS).exec(&program);
    assert_eq!(outcome.exits_with(0).stdout(), bare.exits_with(0).stdout(), "{outcome}");
    assert!(outcome.stdout().contains("thirty_two_threads (3200, 0)"), "to the end: {outcome}");
}

/// In namespaces of its own: another root, other mounts, another network.
fn a_sandbox_inside_uses_its_own_sockets(world: &World) {
    let home = text(&world.path("home")).to_owned();
    let bwrap = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", &home];
    let facts = ["streams_and_seqpackets", "every_name", "the_longest_names", "abstract_names", "pairs"];
    let program = own(world, PYTHON.name, "own_unix.py", &facts);
    let words: Vec<_> = bwrap.iter().map(|word| (*word).to_owned()).chain(program).collect();
    if world.identity.real_root {
        // Root's `/proc/sys` is read-only inside, and the kernel lets nobody mount a fresh one beside it.
        return;
    }
    let bare = world.bare().exec(&words);
    let outcome = world.netbox(&FLAGS).exec(&words);
    assert_eq!(outcome.exits_with(0).stdout(), bare.exits_with(0).stdout(), "{outcome}");
}

const NODE_OWN: &str = "
const cluster = require('cluster'), net = require('net'), path = process.argv[1];
if (cluster.isPrimary) {
  const worker = cluster.fork();
  worker.on('listening', () => net.connect(path).on('data', data => {
    console.log(String(data));
    worker.kill();
  }));
} else {
  net.createServer(socket => socket.end('from the worker')).listen(path);
}
";

fn node_uses_its_own_sockets(world: &World) {
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let path = folder(world).join("socket");
        run.exec(&["node", "-e", NODE_OWN, text(&path)]).exits_with(0).says("from the worker");
    }
}

fn a_credential_cache_works_inside_and_the_hosts_is_not_asked(world: &World) {
    let store = "printf 'protocol=https\\nhost=git.example.com\\nusername=me\\npassword=a-secret\\n' | git credential-cache store";
    let ask = "printf 'protocol=https\\nhost=git.example.com\\n' | git credential-cache get";
    let home = folder(world);
    let sh = |run: crate::run::Run<'_>, script: &str| {
        run.env("HOME", home.clone()).env("XDG_CACHE_HOME", home.clone()).exec(&["sh", "-c", script])
    };
    let both = format!("{store}; {ask}; git credential-cache exit");
    sh(world.netbox(&FLAGS), &both).says("password=a-secret");
    // The host's own cache: its server stays until it is told to go.
    sh(world.bare(), &format!("{store} >/dev/null 2>&1"));
    sh(world.bare(), ask).says("password=a-secret");
    sh(world.netbox(&FLAGS), ask).does_not_say("a-secret");
    sh(world.bare(), "git credential-cache exit");
}

fn an_ssh_agent_works_inside_and_the_hosts_is_not_asked(world: &World) {
    let path = folder(world).join("agent");
    let mut agent = world.bare().stdin_open().start(&[
        "sh",
        "-c",
        "ssh-agent -D -a \"$0\" & echo up; read line; kill $!",
        text(&path),
    ]);
    agent.wait_for_stdout("SSH_AUTH_SOCK");
    let ask = ["ssh-add", "-l"];
    let empty = "The agent has no identities.";
    world.bare().env("SSH_AUTH_SOCK", text(&path)).exec(&ask).exits_with(1).says(empty);
    // The variable does not come along unless it is asked for.
    let flags = ["--allow", "other.example.com", "--env", "SSH_AUTH_SOCK"];
    let outcome = world.netbox(&flags).env("SSH_AUTH_SOCK", text(&path)).exec(&ask);
    outcome.exits_with(2).complains("Permission denied");
    let flags = ["--allow", "other.example.com", "--unix-socket", text(&path)];
    world.netbox(&flags).env("SSH_AUTH_SOCK", text(&path)).exec(&ask).exits_with(1).says(empty);
    world.netbox(&FLAGS).exec(&["ssh-agent", "ssh-add", "-l"]).exits_with(1).says(empty);
    agent.write(b"\n");
    agent.finish();
}

fn tmux_works_inside(world: &World) {
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let path = folder(world).join("tmux");
        let script =
            "tmux -S \"$0\" -f /dev/null new-session -d -s inside cat && tmux -S \"$0\" ls; tmux -S \"$0\" kill-server";
        run.env("SHELL", "/bin/sh").exec(&["sh", "-c", script, text(&path)]).exits_with(0).says("inside: 1 windows");
    }
}

/// How many threads of a process are in connect(2), by its number on x86-64 or aarch64.
fn connecting(process: nix::unistd::Pid) -> usize {
    fs::read_to_string(format!("/proc/{process}/syscall")).expect("the tests may look");
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    let call = |thread: &fs::DirEntry| fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
    threads.filter(|thread| call(thread).starts_with("42 ") || call(thread).starts_with("203 ")).count()
}

fn connects_of_processes_that_were_killed_come_to_nothing(world: &World) {
    let mut said = Vec::new();
    for run in [world.bare(), world.netbox(&FLAGS)] {
        let path = folder(world).join("socket");
        let mut running = run.stdin_open().start(&client(world, &["crowd", text(&path), "40", "kill"]));
        running.wait_for_stdout("all killed\n");
        // The supervisor learns of it a little later than the program that killed them.
        assert!(eventually(|| connecting(running.pid()) == 0), "threads still wait for the dead");
        running.write(b"now\n");
        said.push(running.finish().exits_with(0).stdout());
    }
    assert_eq!(said, ["all killed\naccepted 1\n"; 2]);
}

fn a_run_ends_although_connects_wait(world: &World) {
    let path = folder(world).join("socket");
    let start = Instant::now();
    world.netbox(&FLAGS).exec(&client(world, &["crowd", text(&path), "40", "end"])).exits_with(0).says("all wait");
    assert!(start.elapsed() < Duration::from_secs(20), "nobody waited for them");
}

/// Netbox has a thread for each, and 256 of them. Bare, all wait.
fn with_every_thread_waiting_a_further_connect_fails_and_tcp_goes_on(world: &World) {
    let host = world.zone().host("unix-flood");
    let flood = |run: crate::run::Run<'_>, refusals: &str| {
        let path = folder(world).join("socket");
        run.exec(&client(world, &["flood", text(&path), "300", &host.name, "22", refusals]))
    };
    flood(world.bare(), "0").exits_with(0).says("TCP: SSH\nwaited 300 refused 0\n");
    let outcome = flood(world.netbox(&["--allow", &host.port(22)]), "1");
    outcome.exits_with(0).says("TCP: SSH\n").says("EAGAIN\n").does_not_say("refused 0");
}

/// A file system of a program that does not answer.
fn a_file_system_that_hangs_holds_up_who_asks_it_alone(world: &World) {
    if !world.identity.real_root {
        // A user mounts by a helper of root's.
        return;
    }
    let point = folder(world);
    let device = fs::File::options().read(true).write(true).open("/dev/fuse").expect("FUSE");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let nothing = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("test"), &point, Some("fuse.test"), nothing, Some(options.as_str()))
        .expect("root may mount");
    let host = world.zone().host("unix-hang");
    let own = folder(world).join("own");
    let program = client(world, &["hang", text(&point.join("socket")), text(&own), &host.name, "22"]);
    let outcome = world.netbox(&["--allow", &host.port(22)]).exec(&program);
    nix::mount::umount2(&point, nix::mount::MntFlags::MNT_DETACH).expect("it is mounted");
    outcome.exits_with(0).says("TCP: SSH\nstill waits True\n");
}

/// The kernel has room for one supervisor, and without one the command does not run.
fn the_wall_is_named(world: &World) {
    let outcome = world.netbox(&FLAGS).exec(&["true"]);
    let walls = outcome.event("start")["walls"].to_string();
    assert!(walls.contains("\"unix\""), "{outcome}");
    let doctor = world.netbox_words().exec(&["doctor"]);
    doctor.exits_with(0);
    assert!(doctor.stdout().lines().any(|line| line.starts_with("ok") && line.contains("unix sockets: ")), "{doctor}");
}
