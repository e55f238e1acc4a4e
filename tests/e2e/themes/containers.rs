//! In containers, by stand-ins: a `/proc` that is partly masked, namespaces that a filter refuses, no_new_privs.
//!
//! What container engines do to a process is done to it here without one: `bwrap` masks, and a filter refuses.

use serde_json::Value;

use super::programs::greeting;
use crate::outcome::{Outcome, read_events};
use crate::programs::{BWRAP, CC, CURL, PYTHON, SETPRIV, curl, own};
use crate::tests;
use crate::world::World;

tests![
    under_a_masked_proc_it_says_what_is_missing_and_how_to_go_on needs [BWRAP],
    under_a_masked_proc_it_runs_once_that_is_allowed needs [BWRAP, CURL],
    a_variable_of_the_image_allows_it_too needs [BWRAP],
    the_weaker_proc_opens_nothing_of_the_processes_around needs [BWRAP, PYTHON],
    nothing_in_the_weaker_proc_can_be_written needs [BWRAP, PYTHON],
    where_a_proc_of_its_own_can_be_had_nothing_is_weaker needs [],
    doctor_names_the_way_round needs [BWRAP],
    with_no_new_privileges_it_works_as_ever needs [SETPRIV, CURL],
    under_the_profile_that_netbox_brings_it_works_as_ever needs [PYTHON, CC, CURL],
    each_call_that_the_profile_adds_is_needed needs [PYTHON, CC],
    the_profile_refuses_what_engines_refuse needs [PYTHON, CC],
    doctor_prints_the_profile needs [],
    the_pod_names_the_profile_and_what_else_it_takes needs [],
];

/// A container: a pid namespace of its own with a `/proc` of which a part is masked. The user is the same.
const MASKED: [&str; 13] = [
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--unshare-pid",
    "--unshare-ipc",
    "--proc",
    "/proc",
    "--ro-bind",
    "/dev/null",
    "/proc/cmdline",
    "--die-with-parent",
    "--",
];

const ALLOWED: [&str; 2] = ["--allow-weaker", "proc"];

/// `netbox run FLAGS -- COMMAND` in it. The second value is what its events say.
fn contained<A: AsRef<str>>(world: &World, flags: &[&str], command: &[A]) -> (Outcome, Outcome) {
    let events = world.fresh_path("events");
    let (netbox, to) = (world.netbox_path().to_string_lossy(), events.to_string_lossy());
    let mut words: Vec<&str> = MASKED.to_vec();
    words.extend([&*netbox, "run", "--no-config", "--events", &*to]);
    words.extend(flags);
    words.push("--");
    words.extend(command.iter().map(AsRef::as_ref));
    let outcome = world.bare().exec(&words);
    let told = Outcome {
        line: outcome.line.clone(),
        code: outcome.code,
        signal: outcome.signal,
        stdout: outcome.stdout.clone(),
        stderr: outcome.stderr.clone(),
        events: read_events(&events),
    };
    (outcome, told)
}

/// Report 77.
fn under_a_masked_proc_it_says_what_is_missing_and_how_to_go_on(world: &World) {
    let (outcome, told) = contained(world, &["--mode", "none"], &["echo", "it ran"]);
    outcome.exits_with(125).does_not_say("it ran");
    outcome.complains("cannot mount a fresh `/proc`").complains("(EPERM)");
    for remedy in ["systempaths=unconfined", "unmask=ALL", "procMount: Unmasked", "--allow-weaker proc"] {
        outcome.complains(remedy);
    }
    assert!(told.events.is_empty(), "{told}");
}

fn under_a_masked_proc_it_runs_once_that_is_allowed(world: &World) {
    let (listed, other) = (world.zone().host("masked-proc"), world.zone().host("masked-proc-other"));
    let flags = [&["--allow", &*listed.name], &ALLOWED[..]].concat();
    let mark = world.mark();
    let (outcome, told) =
        contained(world, &flags, &["curl", "-sS", "--max-time", "30", &listed.http("/"), &other.http("/")]);
    outcome.exits_with(0).says(&greeting(&listed)).says("no rule allows this host");
    outcome.complains("warning: `/proc` is not the sandbox's own");
    let walls = told.event("start")["walls"].to_string();
    assert!(!walls.contains("\"proc\"") && walls.contains("\"pidns\""), "{told}");
    world.assert_untouched(mark, &other);
}

fn a_variable_of_the_image_allows_it_too(world: &World) {
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let words = [&MASKED[..], &[&netbox, "run", "--mode", "none", "--", "echo", "it ran"]].concat();
    let run = |value: &str| world.bare().env("NETBOX_ALLOW_WEAKER", value).exec(&words);
    run("proc").exits_with(0).says("it ran");
    run("").exits_with(125).does_not_say("it ran");
    run("network").exits_with(2).does_not_say("it ran").complains("is no wall that may be missing");
}

/// Starts a program of the container's, and another one in netbox, which looks at the first.
fn beside(world: &World, look: &str, in_netbox: bool) -> Outcome {
    let script = "
import subprocess, sys
# A number that the sandbox does not get to.
for _ in range(50):
    subprocess.run(['true'])
process = subprocess.Popen(['sleep', '1000'], stdin=subprocess.DEVNULL)
try:
    subprocess.run([*sys.argv[2:], sys.executable, '-c', sys.argv[1], str(process.pid)], check=True)
finally:
    process.kill()
";
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let within: &[&str] =
        if in_netbox { &[&netbox, "run", "--mode", "none", "-q", "--allow-weaker", "proc", "--"] } else { &[] };
    let words = [&MASKED[..], &["python3", "-c", script, look], within].concat();
    world.bare().exec(&words)
}

/// It sees that they are there, and how they were called.
fn the_weaker_proc_opens_nothing_of_the_processes_around(world: &World) {
    let look = "
import os, signal, socket, sys
process = '/proc/' + sys.argv[1]
print('called', open(process + '/cmdline', 'rb').read())
def attempt(name, act):
    try:
        act()
        print('got', name)
    except OSError as error:
        print('kept', name)
for name in 'environ', 'mem', 'maps', 'auxv', 'syscall', 'stack', 'io':
    attempt(name, lambda: open(process + '/' + name, 'rb').read(1) or 1 / 0)
for name in 'root', 'cwd', 'exe', 'fd/0', 'ns/net', 'ns/mnt', 'ns/pid', 'ns/user':
    attempt(name, lambda: os.readlink(process + '/' + name))
for name in 'root', 'cwd', 'fdinfo', 'map_files':
    attempt('in ' + name, lambda: os.listdir(process + '/' + name))
attempt('namespace', lambda: os.open(process + '/ns/user', os.O_RDONLY))
attempt('signal', lambda: os.kill(int(sys.argv[1]), 0))
attempt('handle', lambda: os.pidfd_open(int(sys.argv[1])))
";
    let bare = beside(world, look, false);
    for name in ["environ", "maps", "root", "cwd", "ns/net", "in cwd", "signal", "handle"] {
        bare.exits_with(0).says(&format!("got {name}\n"));
    }
    let outcome = beside(world, look, true);
    outcome.exits_with(0).says("called b'sleep").does_not_say("got ");
    assert_eq!(outcome.stdout().matches("kept ").count(), 22, "{outcome}");
}

fn nothing_in_the_weaker_proc_can_be_written(world: &World) {
    let look = "
import os, sys
process = '/proc/' + sys.argv[1]
for name in 'oom_score_adj', 'coredump_filter', 'clear_refs', 'autogroup':
    for place in process, '/proc/self':
        try:
            with open(place + '/' + name, 'r+' if name != 'clear_refs' else 'w') as file:
                file.write('4' if name == 'clear_refs' else '100')
            print('wrote', name)
        except OSError as error:
            print('failed', name, error.errno)
";
    beside(world, look, false).exits_with(0).says("wrote oom_score_adj").says("wrote coredump_filter");
    let outcome = beside(world, look, true);
    outcome.exits_with(0).does_not_say("wrote").says("failed oom_score_adj 30\n");
}

fn where_a_proc_of_its_own_can_be_had_nothing_is_weaker(world: &World) {
    let outcome = world.netbox(&["--mode", "none", "--allow-weaker", "proc"]).exec(&["sh", "-c", "ls -d /proc/[0-9]*"]);
    assert_eq!(outcome.exits_with(0).stdout().lines().count(), 2, "pid 1 and `ls`: {outcome}");
    assert!(outcome.event("start")["walls"].to_string().contains("\"proc\""), "{outcome}");
    assert!(!outcome.stderr().contains("/proc"), "{outcome}");
}

fn doctor_names_the_way_round(world: &World) {
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let words = [&MASKED[..], &[&netbox, "doctor"]].concat();
    let outcome = world.bare().exec(&words);
    outcome.exits_with(1).says("failed       /proc: cannot mount a fresh `/proc`");
    outcome.says("weaker       a weaker /proc: `netbox run --allow-weaker proc` works here");
    let allowed = world.bare().env("NETBOX_ALLOW_WEAKER", "proc").exec(&words);
    allowed.exits_with(0).says("weaker       /proc of its own: ").says("netbox can isolate here");
}

/// As `--security-opt no-new-privileges` and `allowPrivilegeEscalation: false` have it.
fn with_no_new_privileges_it_works_as_ever(world: &World) {
    let host = world.zone().host("no-new-privileges");
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let run = ["setpriv", "--no-new-privs", &netbox, "run", "--allow", &host.name, "--"];
    world.bare().exec(&[&run[..], &curl(&[&host.http("/")])].concat()).exits_with(0).says(&greeting(&host));
}

const PROFILE: &str = include_str!("../../../packaging/container/seccomp.json");
const POD: &str = include_str!("../../../packaging/container/pod.yaml");

/// What runs a program under the profile, without these calls of it.
fn under_profile(world: &World, left_out: &str) -> Vec<String> {
    let path = world.fresh_path("home");
    std::fs::write(&path, PROFILE).expect("own folder");
    own(world, "python3", "container.py", &[path.to_str().expect("plain characters"), left_out])
}

fn doctor_prints_the_profile(world: &World) {
    let outcome = world.netbox_words().exec(&["doctor", "--seccomp-profile"]);
    assert_eq!(outcome.exits_with(0).stdout(), PROFILE);
}

/// The calls that the profile allows for netbox's sake, which come first in it.
fn added() -> Vec<String> {
    let profile: Value = serde_json::from_str(PROFILE).expect("JSON");
    let first = &profile["syscalls"][0];
    assert!(first["comment"].as_str().is_some_and(|comment| comment.starts_with("what netbox needs")), "{first}");
    let names = first["names"].as_array().expect("names");
    names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

fn under_the_profile_that_netbox_brings_it_works_as_ever(world: &World) {
    let (listed, other) = (world.zone().host("under-profile"), world.zone().host("under-profile-other"));
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let run = [&netbox, "run", "--allow", &listed.name, "--", "curl", "-sS", "--max-time", "30"].map(str::to_owned);
    let mark = world.mark();
    let words = [under_profile(world, "-"), run.to_vec(), vec![listed.http("/"), other.http("/")]].concat();
    world.bare().exec(&words).exits_with(0).says(&greeting(&listed)).says("no rule allows this host");
    world.assert_untouched(mark, &other);
}

fn each_call_that_the_profile_adds_is_needed(world: &World) {
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let run = [&netbox, "run", "--mode", "none", "--", "echo", "it ran"].map(str::to_owned);
    world.bare().exec(&[under_profile(world, "-"), run.to_vec()].concat()).exits_with(0).says("it ran");
    for call in added() {
        let outcome = world.bare().exec(&[under_profile(world, &call), run.to_vec()].concat());
        outcome.exits_with(125).does_not_say("it ran").complains("hint: ");
        assert!(["(EPERM)", "(EACCES)"].iter().any(|errno| outcome.stderr().contains(errno)), "{outcome}");
    }
}

fn the_profile_refuses_what_engines_refuse(world: &World) {
    for (refused, words) in [
        ("sethostname", ["python3", "-c", "import socket; socket.sethostname('x')"]),
        ("vsock", ["python3", "-c", "import socket; socket.socket(40, socket.SOCK_STREAM)"]),
        (
            "io_uring",
            [
                "python3",
                "-c",
                "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); assert c.syscall(425, 0, 0) < 0; raise OSError(ctypes.get_errno(), '')",
            ],
        ),
    ] {
        let words = [under_profile(world, "-"), words.map(str::to_owned).to_vec()].concat();
        let outcome = world.bare().exec(&words);
        assert!(outcome.code == Some(1) && outcome.stderr().contains("Errno 1]"), "{refused}: {outcome}");
    }
}

fn the_pod_names_the_profile_and_what_else_it_takes(_: &World) {
    for line in
        ["localhostProfile: netbox.json", "procMount: Unmasked", "hostUsers: false", "allowPrivilegeEscalation: false"]
    {
        assert!(POD.contains(line), "{line}");
    }
}
