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
