//! What the command inherits: nothing from descriptor 3 up, and no socket of the host as its input or output.
//!
//! A socket stays in the network namespace that it was made in. One that came along would be a way out.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use crate::programs::PYTHON;
use crate::run::open;
use crate::tests;
use crate::world::World;

tests![
    the_command_has_three_descriptors needs [],
    an_inherited_socket_is_closed needs [PYTHON],
    an_inherited_folder_is_closed needs [PYTHON],
    a_socket_as_input_is_relayed needs [PYTHON],
    a_socket_as_output_is_relayed needs [PYTHON],
    a_silent_socket_as_input_holds_nothing_up needs [],
    a_unix_stream_socket_as_input_passes needs [PYTHON],
    a_file_as_input_passes needs [],
    a_folder_as_input_is_refused needs [],
    binary_data_passes_through_pipes needs [],
    closing_the_input_is_its_end needs [],
    a_reader_that_leaves_ends_the_writer needs [],
    a_passed_file_and_a_passed_pipe_are_the_commands needs [],
    a_passed_unix_socket_is_the_commands needs [PYTHON],
    a_passed_descriptor_keeps_its_number_and_no_other_comes_along needs [PYTHON],
    netbox_keeps_no_copy_of_what_is_passed needs [],
    a_passed_host_socket_is_relayed_both_ways needs [PYTHON],
    what_was_sent_over_a_relayed_socket_before_the_exit_arrives needs [PYTHON],
    what_leads_out_is_not_passed needs [PYTHON],
    a_terminal_is_not_passed needs [],
    a_number_that_cannot_be_passed_is_an_error needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// Says what a descriptor is, as the kernel does.
const KIND: &str = "
import os, stat, sys
mode = os.fstat(int(sys.argv[1])).st_mode
print('socket' if stat.S_ISSOCK(mode) else 'pipe' if stat.S_ISFIFO(mode) else 'other', flush=True)
";

/// The same, and then copies standard input to standard output.
const KIND_AND_COPY: &str = "
import os, shutil, stat, sys
kinds = [os.fstat(number).st_mode for number in (0, 1)]
sys.stderr.write(' '.join('socket' if stat.S_ISSOCK(kind) else 'other' for kind in kinds))
sys.stderr.flush()
shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
";

/// `ls` has a fourth one, for the folder itself.
fn the_command_has_three_descriptors(world: &World) {
    let outcome = world.netbox(&FLAGS).exec(&["ls", "/proc/self/fd"]);
    assert_eq!(outcome.exits_with(0).stdout(), "0\n1\n2\n3\n", "{outcome}");
    let outcome = world.netbox(&FLAGS).exec(&["sh", "-c", "ls /proc/$$/fd"]);
    assert_eq!(outcome.exits_with(0).stdout().lines().filter(|line| *line != "10").count(), 3, "{outcome}");
}

fn an_inherited_socket_is_closed(world: &World) {
    let host = world.zone().host("inherited-socket");
    let connect = || TcpStream::connect((host.v4(), 5432)).expect("the servers are up");
    closed(world, connect, "socket\n");
}

fn an_inherited_folder_is_closed(world: &World) {
    closed(world, || open(&world.path("home")), "other\n");
}

fn closed<D: Into<std::os::fd::OwnedFd>>(world: &World, make: impl Fn() -> D, kind: &str) {
    let client = ["python3", "-c", KIND, "5"];
    assert_eq!(world.bare().descriptor(make(), 5).exec(&client).exits_with(0).stdout(), kind);
    let outcome = world.netbox(&FLAGS).descriptor(make(), 5).exec(&client);
    outcome.exits_with(1).complains("Bad file descriptor").does_not_say(kind);
}

/// A connected pair of TCP sockets of the host.
fn host_sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("a bound socket has an address")).expect("a listener");
    let (far, _) = listener.accept().expect("a connection");
    (near, far)
}

fn a_socket_as_input_is_relayed(world: &World) {
    let client = ["python3", "-c", KIND_AND_COPY];
    let send = || {
        let (near, mut far) = host_sockets();
        far.write_all(b"over the socket").expect("a connected socket");
        far.shutdown(Shutdown::Write).expect("a connected socket");
        (near, far)
    };
    let (near, _far) = send();
    world.bare().stdin_from(near).exec(&client).says("over the socket").complains("socket other");
    let (near, _far) = send();
    let outcome = world.netbox(&FLAGS).stdin_from(near).exec(&client);
    outcome.exits_with(0).says("over the socket").complains("other other");
    assert!(!outcome.stderr().contains("socket"), "a socket of the host came along: {outcome}");
}

fn a_socket_as_output_is_relayed(world: &World) {
    let client = ["python3", "-c", KIND_AND_COPY];
    let received = |mut far: TcpStream| {
        thread::spawn(move || {
            let mut all = String::new();
            far.read_to_string(&mut all).expect("text");
            all
        })
    };
    let (near, far) = host_sockets();
    let reader = received(far);
    world.bare().stdin(b"onto the socket").stdout_to(near).exec(&client).complains("other socket");
    assert_eq!(reader.join().expect("the reader reads"), "onto the socket");
    let (near, far) = host_sockets();
    let reader = received(far);
    let outcome = world.netbox(&FLAGS).stdin(b"onto the socket").stdout_to(near).exec(&client);
    outcome.exits_with(0).complains("other other");
    assert_eq!(reader.join().expect("the reader reads"), "onto the socket", "{outcome}");
}

/// It has no address to be connected to again, and language servers are spoken to like this.
fn a_unix_stream_socket_as_input_passes(world: &World) {
    let (near, mut far) = UnixStream::pair().expect("a pair");
    far.write_all(b"over the pair").expect("a connected socket");
    far.shutdown(Shutdown::Write).expect("a connected socket");
    let outcome = world.netbox(&FLAGS).stdin_from(near).exec(&["python3", "-c", KIND_AND_COPY]);
    outcome.exits_with(0).says("over the pair");
}

fn a_file_as_input_passes(world: &World) {
    let file = world.fresh_path("home");
    std::fs::write(&file, "from the file").expect("own folder");
    world.netbox(&FLAGS).stdin_from(open(&file)).exec(&["cat"]).exits_with(0).says("from the file");
}

/// It would be a way around the sandbox's view of the file system.
fn a_folder_as_input_is_refused(world: &World) {
    let outcome = world.netbox(&FLAGS).stdin_from(open(&world.path("home"))).exec(&["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran");
    assert!(!outcome.stderr().trim().is_empty(), "netbox says why: {outcome}");
}

fn binary_data_passes_through_pipes(world: &World) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let outcome = world.netbox(&FLAGS).stdin(&bytes).exec(&["cat"]);
    outcome.exits_with(0);
    assert!(outcome.stdout == bytes, "{} bytes went in and {} came out", bytes.len(), outcome.stdout.len());
}

fn closing_the_input_is_its_end(world: &World) {
    let mut running = world.netbox(&FLAGS).stdin_open().start(&["sh", "-c", "echo ready; cat; echo the end"]);
    running.wait_for_stdout("ready\n");
    running.write(b"a line\n");
    running.wait_for_stdout("a line\n");
    running.close_stdin();
    running.finish().exits_with(0).says("the end\n");
}

/// `yes | head -1` ends, here too.
fn a_reader_that_leaves_ends_the_writer(world: &World) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let running = world.netbox(&FLAGS).stdout_to(writer).start(&["yes"]);
    let mut first = [0; 2];
    (&reader).read_exact(&mut first).expect("`yes` says yes");
    drop(reader);
    running.finish().exits_with(128 + libc::SIGPIPE);
}

/// The peer neither speaks nor goes, and the run ends all the same: with its command, and by a signal.
fn a_silent_socket_as_input_holds_nothing_up(world: &World) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let connect = || TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (input, silent) = (connect(), listener.accept().expect("a connection"));
    world.netbox(&FLAGS).stdin_from(input).exec(&["sh", "-c", "exit 3"]).exits_with(3);
    let (input, also_silent) = (connect(), listener.accept().expect("a connection"));
    let reader = world.netbox(&FLAGS).stdin_from(input).start(&["sh", "-c", "echo ready; exec cat"]);
    reader.wait_for_stdout("ready\n");
    reader.signal(nix::sys::signal::Signal::SIGTERM);
    reader.finish().exits_with(128 + 15);
    drop((silent, also_silent));
}

/// The flags that pass these numbers.
fn passing<'a>(numbers: &[&'a str]) -> Vec<&'a str> {
    let flags = numbers.iter().flat_map(|number| ["--pass-fd", number]);
    FLAGS.into_iter().chain(flags).collect()
}

fn a_passed_file_and_a_passed_pipe_are_the_commands(world: &World) {
    let file = world.fresh_path("home");
    std::fs::write(&file, "from the file").expect("own folder");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let run = world.netbox(&passing(&["5", "70"])).descriptor(open(&file), 5).descriptor(writer, 70);
    run.exec(&["sh", "-c", "cat <&5; echo into the pipe >/proc/self/fd/70"]).exits_with(0).says("from the file");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert_eq!(text, "into the pipe\n");
    // Without the flag both are closed.
    let outcome = world.netbox(&FLAGS).descriptor(open(&file), 5).exec(&["sh", "-c", "cat <&5"]);
    outcome.does_not_say("from the file").complains("Bad file descriptor");
}

/// Says what the descriptor 6 is, copies what it brings to standard output, and answers.
const KIND_AND_ANSWER: &str = "
import os, socket, sys
s = socket.socket(fileno=6)
print(s.family.name, flush=True)
while received := s.recv(65536):
    os.write(1, received)
s.sendall(b'an answer after the end')
s.shutdown(socket.SHUT_WR)
";

fn a_passed_unix_socket_is_the_commands(world: &World) {
    let (near, mut far) = UnixStream::pair().expect("a pair");
    far.write_all(b"over the pair").expect("a connected socket");
    far.shutdown(Shutdown::Write).expect("a connected socket");
    let run = world.netbox(&passing(&["6"])).descriptor(near, 6);
    run.exec(&["python3", "-c", KIND_AND_ANSWER]).exits_with(0).says("AF_UNIX").says("over the pair");
    let mut text = String::new();
    far.read_to_string(&mut text).expect("text");
    assert_eq!(text, "an answer after the end");
}

fn a_passed_descriptor_keeps_its_number_and_no_other_comes_along(world: &World) {
    let home = || open(&world.path("ca.pem"));
    let run = world.netbox(&passing(&["9", "200", "9"])).descriptor(home(), 9).descriptor(home(), 200);
    let run = run.descriptor(home(), 5).descriptor(open(&world.path("home")), 10);
    let outcome = run.exec(&["python3", "-c", "import os\nprint(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"]);
    // Python's own for the folder comes between them and is 3, the lowest that is free.
    assert_eq!(outcome.exits_with(0).stdout(), "[0, 1, 2, 3, 9]\n", "{outcome}");
    let run = world.netbox(&passing(&["9", "200"])).descriptor(home(), 9).descriptor(home(), 200);
    run.exec(&["sh", "-c", "cmp /proc/self/fd/9 /proc/self/fd/200 && echo both"]).exits_with(0).says("both");
}

/// The reader sees the end when the command closes it, and not when the run ends.
fn netbox_keeps_no_copy_of_what_is_passed(world: &World) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let run = world.netbox(&passing(&["5"])).descriptor(writer, 5).stdin_open();
    let running = run.start(&["sh", "-c", "echo passed >&5; exec 5>&-; cat"]);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    assert_eq!(text, "passed\n");
    running.finish().exits_with(0);
}

fn a_passed_host_socket_is_relayed_both_ways(world: &World) {
    let client = ["python3", "-c", KIND_AND_ANSWER];
    for (with_netbox, family) in [(false, "AF_INET"), (true, "AF_UNIX")] {
        let (near, mut far) = host_sockets();
        // As an event loop leaves it.
        near.set_nonblocking(with_netbox).expect("a socket");
        let run = if with_netbox { world.netbox(&passing(&["6"])) } else { world.bare() };
        let running = run.descriptor(near, 6).start(&client);
        running.wait_for_stdout("AF_");
        far.write_all(b"over the socket").expect("a connected socket");
        far.shutdown(Shutdown::Write).expect("a connected socket");
        let mut text = String::new();
        far.read_to_string(&mut text).expect("text");
        assert_eq!(text, "an answer after the end");
        let outcome = running.finish();
        assert_eq!(outcome.exits_with(0).stdout(), format!("{family}\nover the socket"), "{outcome}");
    }
}

fn what_was_sent_over_a_relayed_socket_before_the_exit_arrives(world: &World) {
    let (near, mut far) = host_sockets();
    let script = "import os, socket\nsocket.socket(fileno=6).sendall(b'x' * 2000000)\nos._exit(0)";
    let running = world.netbox(&passing(&["6"])).descriptor(near, 6).start(&["python3", "-c", script]);
    let mut all = Vec::new();
    far.read_to_end(&mut all).expect("an orderly end");
    assert_eq!(all.len(), 2_000_000);
    running.finish().exits_with(0);
}

/// As with 0, 1 and 2: each of them is open to a bare program, and under netbox nothing runs.
fn what_leads_out_is_not_passed(world: &World) {
    let listener = || TcpListener::bind("127.0.0.1:0").expect("loopback");
    let folder = world.fresh_path("home");
    let unix = std::os::unix::net::UnixListener::bind(&folder).expect("own folder");
    let make: [(&str, &dyn Fn() -> std::os::fd::OwnedFd); 6] = [
        ("a directory", &|| open(&world.path("home"))),
        ("a socket of the host's network", &|| listener().into()),
        ("a socket of the host's network", &|| std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback").into()),
        ("a unix datagram socket", &|| std::os::unix::net::UnixDatagram::pair().expect("a pair").0.into()),
        ("an unconnected unix socket", &|| unix.try_clone().expect("a descriptor").into()),
        ("a namespace handle", &|| open(std::path::Path::new("/proc/self/ns/net"))),
    ];
    for (what, make) in make {
        let client = ["python3", "-c", "import os\nos.fstat(5)\nprint('it ran')"];
        world.bare().descriptor(make(), 5).exec(&client).exits_with(0).says("it ran");
        let outcome = world.netbox(&passing(&["5"])).descriptor(make(), 5).exec(&client);
        outcome.exits_with(125).does_not_say("it ran").complains("descriptor 5").complains(what);
    }
}

fn a_terminal_is_not_passed(world: &World) {
    let terminal = nix::pty::openpty(None, None).expect("a pseudo-terminal");
    let outcome = world.netbox(&passing(&["5"])).descriptor(terminal.slave, 5).exec(&["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran").complains("descriptor 5").complains("a terminal");
}

fn a_number_that_cannot_be_passed_is_an_error(world: &World) {
    let refused = |flags: &[&str], said: &str| {
        let flags = [&FLAGS, flags].concat();
        let outcome = world.netbox(&flags).descriptor(open(&world.path("ca.pem")), 5).exec(&["echo", "it ran"]);
        outcome.exits_with(2).does_not_say("it ran").complains("--pass-fd").complains(said);
    };
    refused(&["--pass-fd", "0"], "in any case");
    refused(&["--pass-fd", "2"], "in any case");
    refused(&["--pass-fd", "+5"], "as in `3`");
    refused(&["--pass-fd", "x"], "as in `3`");
    refused(&["--pass-fd", "7"], "no descriptor of this number is open");
    refused(&["--pass-fd", "5", "--pass-fd", "3"], "`--pass-fd 3`");
    // The harness writes the events to a file, so another run says where they go.
    let words = ["run", "--allow", "other.example.com", "--events", "fd:5", "--pass-fd", "5", "--", "echo", "it ran"];
    let outcome = world.netbox_words().descriptor(open(&world.path("ca.pem")), 5).exec(&words);
    outcome.exits_with(2).does_not_say("it ran").complains("`--pass-fd 5`").complains("`--events fd:5`");
}
