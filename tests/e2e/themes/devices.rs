//! `/dev` inside: the sandbox's own, with devices that lead nowhere. The host's terminals and shared memory are not in it.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::unistd::ttyname;

use crate::programs::{BWRAP, PYTHON};
use crate::tests;
use crate::world::World;

tests![
    dev_has_the_usual_devices_and_nothing_else needs [],
    the_usual_devices_do_what_they_do needs [PYTHON],
    another_terminal_of_the_user_cannot_be_opened needs [],
    shared_memory_of_the_host_is_not_there needs [],
    message_queues_of_the_host_are_not_there needs [PYTHON],
    dev_cannot_be_uncovered_from_a_nested_namespace needs [],
    a_nested_sandbox_has_its_own_dev needs [BWRAP],
    the_hosts_nodes_cannot_be_changed needs [],
    a_device_can_be_let_in needs [],
    what_is_no_device_cannot_be_let_in needs [],
];

const FLAGS: [&str; 2] = ["--mode", "none"];
const ALL: &str = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero ";

fn dev_has_the_usual_devices_and_nothing_else(world: &World) {
    let list = ["sh", "-c", "ls -A /dev | tr '\\n' ' '"];
    assert_eq!(world.netbox(&FLAGS).exec(&list).exits_with(0).stdout(), ALL);
    let below = ["sh", "-c", "cd /dev && ls -A pts shm mqueue | tr '\\n' ' '"];
    assert_eq!(world.netbox(&FLAGS).exec(&below).exits_with(0).stdout(), "mqueue:  pts: ptmx  shm: ");
    let create = ["sh", "-c", ": > /dev/new"];
    world.netbox(&FLAGS).exec(&create).exits_with(2).complains("Read-only file system");
}

fn the_usual_devices_do_what_they_do(world: &World) {
    let script = "
import errno, os, pty
from multiprocessing import shared_memory
open('/dev/null', 'w').write('x')
assert open('/dev/zero', 'rb').read(4) == bytes(4)
assert len(open('/dev/random', 'rb').read(4)) == len(open('/dev/urandom', 'rb').read(4)) == 4
try:
    os.write(os.open('/dev/full', os.O_WRONLY), b'x')
except OSError as error:
    assert error.errno == errno.ENOSPC
try:
    open('/dev/tty')
except OSError as error:
    assert error.errno == errno.ENXIO
assert open('/dev/stdin').read() == open('/dev/fd/3').read() == ''
leader, follower = os.openpty()
assert os.ttyname(follower) == '/dev/pts/0', os.ttyname(follower)
os.write(leader, b'typed\\n')
assert os.read(follower, 9) == b'typed\\n'
shared = shared_memory.SharedMemory(create=True, size=9)
assert os.listdir('/dev/shm') == [shared.name]
shared.close()
shared.unlink()
print('all of them')
";
    let words = ["sh", "-c", "exec python3 -c \"$0\" 3</dev/null", script];
    world.netbox(&FLAGS).exec(&words).exits_with(0).says("all of them");
}

/// A terminal of the same user's, as another window has one.
fn another_terminal_of_the_user_cannot_be_opened(world: &World) {
    let pair = openpty(None, None).expect("a pseudo-terminal");
    let path = ttyname(&pair.slave).expect("it has a name");
    let words = ["sh", "-c", "echo typed >\"$0\" && echo written", path.to_str().expect("text")];
    let has_arrived = || {
        let mut polled = [PollFd::new(pair.master.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).expect("a descriptor can be polled") > 0
    };
    let outcome = world.netbox(&FLAGS).exec(&words);
    outcome.exits_with(2).does_not_say("written");
    assert!(!has_arrived(), "something was written to {}: {outcome}", path.display());
    world.bare().exec(&words).exits_with(0).says("written");
    assert!(has_arrived(), "without netbox it is written");
}

fn shared_memory_of_the_host_is_not_there(world: &World) {
    let name = format!("e2e-{}-shared", std::process::id());
    let path = Path::new("/dev/shm").join(&name);
    fs::write(&path, "of the host").expect("`/dev/shm` is writable");
    let words = ["cat", path.to_str().expect("text")];
    let (bare, inside) = (world.bare().exec(&words), world.netbox(&FLAGS).exec(&words));
    let write = ["sh", "-c", "echo changed >\"$0\" && ls /dev/shm", words[1]];
    let written = world.netbox(&FLAGS).exec(&write);
    let text = fs::read_to_string(&path).expect("it is still there");
    fs::remove_file(&path).expect("an own file");
    bare.exits_with(0).says("of the host");
    inside.exits_with(1).does_not_say("of the host");
    assert_eq!(written.exits_with(0).stdout(), format!("{name}\n"));
    assert_eq!(text, "of the host");
}

/// They have no path that a mount could cover: the ipc namespace holds them.
fn message_queues_of_the_host_are_not_there(world: &World) {
    let script = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
name, how = sys.argv[1].encode(), sys.argv[2]
if how == 'unlink':
    sys.exit(libc.mq_unlink(name))
flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if how == 'create' else 0)
queue = libc.mq_open(name, flags, 0o600, None)
print(how, 'works' if queue >= 0 else os.strerror(ctypes.get_errno()))
";
    let name = &format!("/e2e-{}-queue", std::process::id());
    let words = |how| ["python3", "-c", script, name, how];
    world.bare().exec(&words("create")).exits_with(0).says("create works");
    let bare = world.bare().exec(&words("open"));
    let inside = world.netbox(&FLAGS).exec(&words("open"));
    let own = world.netbox(&FLAGS).exec(&words("create"));
    world.bare().exec(&words("unlink")).exits_with(0);
    bare.says("open works");
    inside.says("open No such file or directory");
    own.says("create works");
}

fn dev_cannot_be_uncovered_from_a_nested_namespace(world: &World) {
    let script = "umount -R /dev; umount /dev/pts; umount /dev/null; umount -l /dev; mount -o remount,rw /dev;
        mount -o remount,bind,rw /dev/null; ls -A /dev | tr '\\n' ' '; chmod 600 /dev/null && echo changed";
    let outcome = world.netbox(&FLAGS).exec(&["unshare", "-Urm", "sh", "-c", script]);
    assert_eq!(outcome.stdout(), ALL, "{outcome}");
    // What is mounted in there comes off, so that the tools are known to work.
    let script = "mount -t tmpfs none /dev && ls -A /dev && umount /dev && echo uncovered";
    world.netbox(&FLAGS).exec(&["unshare", "-Urm", "sh", "-c", script]).exits_with(0).says("uncovered");
}

fn a_nested_sandbox_has_its_own_dev(world: &World) {
    let script = "echo x >/dev/null && ls /dev/urandom /dev/pts/ptmx && head -c 3 /dev/zero | od -An -tx1";
    let words = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "sh", "-c", script];
    world.netbox(&FLAGS).exec(&words).exits_with(0).says("/dev/urandom").says("00 00 00");
}

/// As real root, the command has their owner's number.
fn the_hosts_nodes_cannot_be_changed(world: &World) {
    let words = ["chmod", "666", "/dev/null"];
    if world.identity.real_root {
        world.bare().exec(&words).exits_with(0);
    }
    world.netbox(&FLAGS).exec(&words).exits_with(1).complains("/dev/null");
}

/// Some device that this machine has and netbox does not let in by itself.
fn some_device() -> &'static str {
    let common = ["/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/loop-control", "/dev/kmsg", "/dev/tty1"];
    common.into_iter().find(|path| Path::new(path).exists()).expect("one of the common devices is there")
}

fn a_device_can_be_let_in(world: &World) {
    let device = some_device();
    let number = fs::metadata(device).expect("it is there").rdev();
    let number = format!("{:x}:{:x}\n", nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let words = ["stat", "-c", "%t:%T", device];
    assert_eq!(world.bare().exec(&words).exits_with(0).stdout(), number);
    world.netbox(&FLAGS).exec(&words).exits_with(1).complains("No such file or directory");
    let flags = [&FLAGS[..], &["--dev", device]].concat();
    let outcome = world.netbox(&flags).exec(&words);
    assert_eq!(outcome.exits_with(0).stdout(), number, "{outcome}");
    // Where it is in a folder, the folder can be let in too.
    let folder = Path::new(device).parent().and_then(Path::to_str).filter(|folder| *folder != "/dev");
    if let Some(folder) = folder {
        let flags = [&FLAGS[..], &["--dev", folder]].concat();
        assert_eq!(world.netbox(&flags).exec(&words).exits_with(0).stdout(), number);
    }
}

fn what_is_no_device_cannot_be_let_in(world: &World) {
    let cases = [
        ("/dev/no-such-device", "load the driver"),
        ("/dev/pts", "of its own"),
        ("/dev/shm", "of its own"),
        ("/dev/fd/0", "of its own"),
        ("/dev/../etc", "below `/dev`"),
        ("/dev", "below `/dev`"),
        ("/etc/passwd", "below `/dev`"),
        ("null", "below `/dev`"),
    ];
    for (path, why) in cases {
        let outcome = world.netbox(&[&FLAGS[..], &["--dev", path]].concat()).exec(&["echo", "it ran"]);
        outcome.exits_with(125).complains(why).complains(path).does_not_say("it ran");
    }
}
