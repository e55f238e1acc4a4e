//! The unix-socket wall of a netbox inside another one: that one has the only supervisor that the kernel has room for.

use crate::programs::{PYTHON, UNSHARE, own};
use crate::tests;
use crate::world::World;

use super::nested::Inner;

tests![
    sockets_of_the_sandbox_around_are_out_of_reach needs [PYTHON, UNSHARE],
    programs_inside_use_their_own_sockets_as_ever needs [PYTHON],
    a_socket_of_the_hosts_cannot_be_let_through_to_the_inner_one needs [],
    below_a_supervisor_that_is_no_netbox_nothing_runs needs [PYTHON],
];

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
