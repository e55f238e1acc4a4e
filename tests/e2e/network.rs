//! Two network namespaces of the test's own, which are all the network there is: the `host`, where netbox and its
//! clients run, and the `inet`, where every server stands.
//!
//! ```text
//!   host                                         inet
//!   lo 127.0.0.1 (a server of the host's own)    lo 198.51.100.0/24, 203.0.113.64/26, 10.77.0.0/24,
//!                                                   203.0.113.128/25, 192.0.2.128/25,
//!   h0 203.0.113.2/32, 2001:db8:1::2/128            169.254.169.254, 8.8.8.8, 2001:db8:1:80::/64
//!        default via 192.0.2.1  ───── veth ─────  i0 192.0.2.1, 2001:db8:0:1::1
//! ```
//!
//! Nothing but the gateway is on-link at the host, because netbox counts what is on-link as not public. The private
//! network and the metadata address lie behind the same gateway: without netbox they can be reached, so that a test
//! which finds them closed has found netbox closing them.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};

const HOST: &str = "
link set lo up
link add h0 type veth peer name i0 netns INET
address add 203.0.113.2/32 dev h0
address add 2001:db8:1::2/128 dev h0 nodad
link set h0 up
route add 192.0.2.1/32 dev h0 src 203.0.113.2
route add default via 192.0.2.1 src 203.0.113.2
route add 2001:db8:0:1::1/128 dev h0
route add ::/0 via 2001:db8:0:1::1 src 2001:db8:1::2
";

const INET: &str = "
link set lo up
address add 192.0.2.1/32 dev i0
address add 2001:db8:0:1::1/128 dev i0 nodad
link set i0 up
route add 203.0.113.2/32 dev i0 src 192.0.2.1
route add 2001:db8:1::2/128 dev i0
route add local 198.51.100.0/24 dev lo
route add local 203.0.113.64/26 dev lo
route add local 203.0.113.128/25 dev lo
route add local 192.0.2.128/25 dev lo
route add local 10.77.0.0/24 dev lo
route add local 169.254.169.254/32 dev lo
route add local 8.8.8.8/32 dev lo
route add local 2001:db8:1:80::/64 dev lo
address add 2001:db8:1:80::67/128 dev lo nodad
";

/// The two namespaces. The process, and every thread it starts later, is in the host's.
#[derive(Debug)]
pub struct Network {
    host: OwnedFd,
    inet: OwnedFd,
}

impl Network {
    /// Makes the namespaces; the process must be single-threaded. A process that is not real root first becomes the
    /// root of a user namespace of its own. A mount namespace comes with it, whose changes nobody else sees.
    ///
    /// # Panics
    ///
    /// When the kernel refuses: without namespaces there is no test.
    pub fn new() -> Self {
        enter_namespaces();
        leave_no_tentative_address();
        let host = own_network_namespace();
        unshare(CloneFlags::CLONE_NEWNET).expect("a second network namespace");
        leave_no_tentative_address();
        let network = Self { inet: own_network_namespace(), host };
        setns(&network.host, CloneFlags::CLONE_NEWNET).expect("back to the host's network namespace");
        let inet_path = format!("/proc/{}/fd/{}", std::process::id(), network.inet.as_raw_fd());
        configure(&HOST.replace("INET", &inet_path));
        network.in_inet(|| configure(INET));
        network
    }

    /// Calls `make` with the calling thread in the `inet` namespace: sockets made there stay there.
    pub fn in_inet<T>(&self, make: impl FnOnce() -> T) -> T {
        setns(self.inet.as_fd(), CloneFlags::CLONE_NEWNET).expect("into the inet namespace");
        let made = make();
        setns(self.host.as_fd(), CloneFlags::CLONE_NEWNET).expect("back to the host's network namespace");
        made
    }
}

/// Puts `text` over the file at `path` for this mount namespace alone. A symbolic link is followed: programs read
/// what it points to.
///
/// # Panics
///
/// When the file does not exist or the mount fails.
pub fn replace_file(path: &str, with: &std::path::Path, text: &str) {
    fs::write(with, text).expect("the replacement can be written");
    let target = fs::canonicalize(path).unwrap_or_else(|error| panic!("`{path}` does not exist here: {error}"));
    mount(Some(with), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .unwrap_or_else(|error| panic!("cannot mount over `{path}`: {error}"));
}

fn enter_namespaces() {
    let (uid, gid) = (getuid(), getgid());
    if uid.is_root() {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).expect("mount and network namespaces, as root");
    } else {
        let all = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
        unshare(all).expect("the tests need unprivileged user namespaces (see `/proc/sys/user`)");
        fs::write("/proc/self/setgroups", "deny").expect("setgroups of the own user namespace");
        fs::write("/proc/self/uid_map", format!("0 {uid} 1")).expect("uid map of the own user namespace");
        fs::write("/proc/self/gid_map", format!("0 {gid} 1")).expect("gid map of the own user namespace");
    }
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .expect("private mounts");
}

fn own_network_namespace() -> OwnedFd {
    File::open("/proc/self/ns/net").expect("the own network namespace").into()
}

/// A fresh IPv6 address cannot be used until it was looked for on the link, for a second or more. There is nobody
/// else on these links.
fn leave_no_tentative_address() {
    for device in ["all", "default"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{device}/accept_dad"), "0").expect("IPv6 is there");
    }
}

/// Runs the lines as one batch of iproute2.
fn configure(batch: &str) {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the tests need `ip` (package iproute2)");
    ip.stdin.take().expect("stdin is a pipe").write_all(batch.as_bytes()).expect("`ip` reads its batch");
    assert!(ip.wait().expect("`ip` ends").success(), "`ip` refuses the test's network");
}
