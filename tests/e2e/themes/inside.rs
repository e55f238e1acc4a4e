//! What the command finds inside: a loopback that works, no privileges, and nothing of the host.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::tests;
use crate::world::World;

tests![
    loopback_works_between_programs_inside needs [CURL, PYTHON],
    loopback_works_over_ipv6 needs [CURL, PYTHON],
    a_server_inside_may_use_port_80 needs [CURL, PYTHON],
    udp_works_over_loopback needs [PYTHON],
    the_hosts_loopback_is_another needs [CURL],
    the_hosts_abstract_sockets_are_not_there needs [PYTHON],
    the_command_has_no_capability_outside_its_own_namespace needs [],
    the_command_gains_nothing_by_setuid needs [],
    the_hosts_processes_cannot_be_seen needs [],
    the_command_has_the_users_own_number needs [],
    the_working_folder_is_kept needs [],
    the_environment_is_passed_on needs [],
    landlock_inside_knows_files_alone needs [PYTHON],
    the_limit_of_core_dumps_is_one_and_stays needs [PYTHON],
    nothing_of_netboxs_own_is_in_view needs [],
];

const FLAGS: [&str; 2] = ["--allow", "other.example.com"];

/// A server and a client in one sandbox.
fn serves_inside(world: &World, address: &str, port: &str, url: &str) {
    let client = curl(&[url]);
    let words = own(world, "python3", "serve.py", &[&[address, port], &client[..]].concat());
    let outcome = world.netbox(&FLAGS).exec(&words);
    assert_eq!(outcome.exits_with(0).stdout(), "served inside\n", "{outcome}");
    assert!(outcome.events_of("decision").is_empty(), "netbox has no say in it: {outcome}");
}

fn loopback_works_between_programs_inside(world: &World) {
    serves_inside(world, "127.0.0.1", "8765", "http://127.0.0.1:8765/");
    serves_inside(world, "127.0.0.1", "8765", "http://localhost:8765/");
}

fn loopback_works_over_ipv6(world: &World) {
    serves_inside(world, "::1", "8765", "http://[::1]:8765/");
}

fn a_server_inside_may_use_port_80(world: &World) {
    serves_inside(world, "127.0.0.1", "80", "http://127.0.0.1/");
}

fn udp_works_over_loopback(world: &World) {
    for address in ["127.0.0.1", "::1"] {
        world.netbox(&FLAGS).exec(&probe(world, &["udp-loopback", address])).says("answer: to itself");
    }
}

fn the_hosts_loopback_is_another(world: &World) {
    let client = curl(&["http://127.0.0.1:8080/"]);
    world.bare().exec(&client).exits_with(0).says("hello 127.0.0.1:8080");
    let outcome = world.netbox(&FLAGS).exec(&client);
    // curl's code for a connection that is refused: nobody listens in here.
    outcome.exits_with(7).does_not_say("hello");
}

fn the_hosts_abstract_sockets_are_not_there(world: &World) {
    let name = format!("netbox-e2e-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a valid name");
    let listener = UnixListener::bind_addr(&address).expect("a free name");
    let client = probe(world, &["abstract", &name]);
    world.bare().exec(&client).says("connected");
    world.netbox(&FLAGS).exec(&client).does_not_say("connected").says("failed: ");
    drop(listener);
}

/// As real root some are kept, in a namespace that owns nothing.
fn the_command_has_no_capability_outside_its_own_namespace(world: &World) {
    let outcome = world.netbox(&FLAGS).exec(&["grep", "CapEff", "/proc/self/status"]);
    assert!(world.identity.real_root || outcome.stdout().ends_with("\t0000000000000000\n"), "{outcome}");
    let commands: [&[&str]; 2] = [&["ip", "link", "set", "lo", "down"], &["mount", "-t", "tmpfs", "none", "/tmp"]];
    // Root may mount, as with `unshare --mount`, where nobody but the command sees it.
    let commands = if world.identity.real_root { &commands[..1] } else { &commands };
    for command in commands {
        let outcome = world.netbox(&FLAGS).exec(command);
        assert!(outcome.code.is_some_and(|code| code != 0 && code < 125), "{outcome}");
    }
}

fn the_command_gains_nothing_by_setuid(world: &World) {
    let client = ["grep", "NoNewPrivs", "/proc/self/status"];
    world.bare().exec(&client).says("NoNewPrivs:\t0");
    world.netbox(&FLAGS).exec(&client).says("NoNewPrivs:\t1");
}

fn the_hosts_processes_cannot_be_seen(world: &World) {
    let own = std::process::id().to_string();
    for client in [["kill", "-0", &own], ["ls", "-d", &format!("/proc/{own}")]] {
        world.bare().exec(&client).exits_with(0);
        world.netbox(&FLAGS).exec(&client).does_not_say("/proc");
    }
    let listed = world.netbox(&FLAGS).exec(&["ls", "/proc"]).stdout();
    let processes = listed.lines().filter(|name| name.parse::<u32>().is_ok()).count();
    assert_eq!(processes, 2, "the sandbox's first process and `ls`: {listed}");
}

fn the_command_has_the_users_own_number(world: &World) {
    let client = ["id", "-u"];
    let number = format!("{}\n", world.identity.uid);
    assert_eq!(world.bare().exec(&client).stdout(), number);
    assert_eq!(world.netbox(&FLAGS).exec(&client).stdout(), number);
}

fn the_working_folder_is_kept(world: &World) {
    let folder = world.path("files");
    let outcome = world.netbox(&FLAGS).folder(&folder).exec(&["pwd"]);
    assert_eq!(outcome.stdout(), format!("{}\n", folder.display()), "{outcome}");
}

fn the_environment_is_passed_on(world: &World) {
    world.netbox(&FLAGS).env("MINE", "and only mine").exec(&["env"]).says("MINE=and only mine\n");
}

/// Rules about connects would bind the program, and it is netbox that connects: so there are none to be had, and programs
/// that ask are told so.
fn landlock_inside_knows_files_alone(world: &World) {
    let script = "
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
version = libc.syscall(444, None, 0, 1)
print('version', version)
connects = struct.pack('QQ', 0, 2)
print('connects', 'yes' if libc.syscall(444, connects, len(connects), 0) >= 0 else os.strerror(ctypes.get_errno()))
files = struct.pack('QQ', 1, 0)
print('files', libc.syscall(444, files, len(files), 0) >= 0)
";
    let bare = world.bare().exec(&["python3", "-c", script]);
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&["python3", "-c", script]);
    let version = |text: String| -> i32 {
        text.lines().next().and_then(|line| line.strip_prefix("version ")?.parse().ok()).unwrap_or(0)
    };
    // A kernel without Landlock says -1, here as there.
    assert_eq!(version(outcome.stdout()), version(bare.stdout()).min(3), "{outcome}");
    if version(bare.stdout()) > 0 {
        outcome.says("connects Argument list too long").says("files True");
    }
}

/// With 0 the kernel would hand a crash to the host's handler of core dumps, a program outside; with 1 it does not. Who
/// lowers the limit does not notice, and who raises it fails as ever.
fn the_limit_of_core_dumps_is_one_and_stays(world: &World) {
    let script = "
import os, resource
core = resource.RLIMIT_CORE
def attempt(name, act):
    try:
        print(name, act())
    except (OSError, ValueError) as error:
        print(name, type(error).__name__)
child = os.fork()
if child == 0:
    os.execvp('sleep', ['sleep', '1000'])
attempt('lower', lambda: resource.setrlimit(core, (0, 0)))
attempt('lower and look', lambda: resource.prlimit(os.getpid(), core, (0, 0)))
attempt('raise', lambda: resource.setrlimit(core, (7, 7)))
attempt('raise to the end', lambda: resource.prlimit(0, core, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
attempt('soft above hard', lambda: resource.setrlimit(core, (1, 0)))
attempt('of another', lambda: resource.prlimit(child, core, (0, 0)))
os.system('ulimit -c 0; ulimit -S -c 0')
print('limit', resource.getrlimit(core), 'of the other', resource.prlimit(child, core))
attempt('another limit', lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60)))
print('it is', resource.getrlimit(resource.RLIMIT_NOFILE))
os.kill(child, 9)
";
    let client = ["python3", "-c", script];
    let same = "another limit None\nit is (50, 60)\n";
    world.bare().exec(&client).exits_with(0).says("lower None\n").says("limit (0, 0)").says(same);
    let outcome = world.netbox(&FLAGS).exec(&client);
    let said = "lower None\nlower and look (1, 1)\nraise ValueError\nraise to the end PermissionError\nsoft above hard ValueError\n\
                of another PermissionError\nlimit (1, 1) of the other (1, 1)\n";
    outcome.exits_with(0).says(said).says(same);
}

/// Neither descriptors nor namespaces nor sockets, nor a variable but those that say so.
fn nothing_of_netboxs_own_is_in_view(world: &World) {
    let own = world.netbox(&FLAGS).exec(&["ls", "/proc/self/fd"]).stdout();
    // The fourth is the folder that is listed.
    assert_eq!(own, "0\n1\n2\n3\n");
    let script = "
for name in environ maps mem auxv syscall fd/0 fd/3; do cat /proc/1/$name; done
for name in exe cwd root fd/0 fd/3 ns/net ns/mnt ns/user; do readlink /proc/1/$name; done
exit 0
";
    let closed = |script: &str| {
        let outcome = world.netbox(&FLAGS).exec(&["sh", "-c", script]);
        assert_eq!(outcome.exits_with(0).stdout(), "", "{outcome}");
    };
    closed(script);
    if !world.identity.real_root {
        // Root sees which numbers there are.
        closed("for name in fd ns map_files; do ls /proc/1/$name; done; exit 0");
    }

    let variables = |text: String| -> std::collections::BTreeSet<String> {
        text.lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect()
    };
    let bare = variables(world.bare().exec(&["env"]).stdout());
    let inside = variables(world.netbox(&FLAGS).exec(&["env"]).stdout());
    let more: Vec<_> = inside.difference(&bare).map(String::as_str).collect();
    assert_eq!(more, ["NETBOX", "NETBOX_SESSION"]);

    // Its sockets have no names. A line has seven words without.
    let outcome = world.netbox(&FLAGS).exec(&["cat", "/proc/net/unix"]);
    let lines = outcome.exits_with(0).stdout();
    let named: Vec<_> = lines.lines().skip(1).filter(|line| line.split_whitespace().count() > 7).collect();
    assert!(named.is_empty() && lines.starts_with("Num"), "{outcome}");
}
