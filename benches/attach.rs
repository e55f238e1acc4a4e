//! What it costs to carry many sandboxes: a thousand attached to one service, how long each attach takes, how much memory the
//! service has then, and whether a request costs more than with one.
//!
//! `cargo bench --bench attach`, in namespaces of its own. A sandbox is a network namespace with six listeners here, as many
//! as `netbox run` hands over, and a policy of its own.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::json;

const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");
const SANDBOXES: usize = 1000;
const ROUNDS: usize = 30;
const REQUESTS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    if env::args().nth(1).as_deref() != Some("inside") {
        let this = env::current_exe().expect("this program's path");
        let script = "ulimit -n $(ulimit -Hn); ip link set lo up && exec \"$0\" inside";
        let namespaces = ["--user", "--map-root-user", "--net", "--"];
        let error = Command::new("unshare").args(namespaces).args(["sh", "-c", script]).arg(this).exec();
        panic!("`unshare` (util-linux): {error}");
    }
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let (quiet, quiet_socket) = start(folders[0].path());
    let (service, socket) = start(folders[1].path());
    let before = rss(&service);
    let sandboxes: Vec<_> = (0..SANDBOXES).map(Sandbox::new).collect();
    let (mut times, mut leases) = (Vec::new(), Vec::new());
    for sandbox in &sandboxes {
        let (time, lease) = sandbox.attach(&socket);
        times.push(time);
        leases.push(lease);
    }
    times.sort();
    let (middle, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let after = rss(&service);
    let one = Sandbox::new(0);
    leases.push(one.attach(&quiet_socket).1);
    let [mut alone, mut crowded] = [Vec::new(), Vec::new()];
    let used = [&quiet, &service].map(processor);
    for _ in 0..ROUNDS {
        alone.push(requests(&one));
        crowded.push(requests(&sandboxes[0]));
    }
    let used = [processor(&quiet) - used[0], processor(&service) - used[1]];
    let [alone_used, crowded_used] = used.map(|used| used / u32::try_from(ROUNDS * REQUESTS).expect("few"));
    let [alone, crowded] = [alone, crowded].map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("{SANDBOXES} sandboxes attached to one service, each with a policy of its own");
    println!("  attach, median                   {:6.2} ms", millis(middle));
    println!("  attach, 99 of 100                {:6.2} ms", millis(late));
    println!("  RSS of the service before        {:6.1} MiB", before as f64 / 1024.0);
    println!("  RSS with all of them             {:6.1} MiB", after as f64 / 1024.0);
    println!("  for each                         {:6.1} KiB", (after - before) as f64 / SANDBOXES as f64);
    println!("a refused request on a connection of its own, {ROUNDS} times {REQUESTS} interleaved");
    println!("  a service with one sandbox       {:6.3} ms", millis(alone));
    println!("  one with {SANDBOXES}                    {:6.3} ms", millis(crowded));
    println!("  the one / the other              {:6.2}", crowded.as_secs_f64() / alone.as_secs_f64());
    println!("the same in time of the processor that the service takes");
    println!("  a service with one sandbox       {:6.3} ms", millis(alone_used));
    println!("  one with {SANDBOXES}                    {:6.3} ms", millis(crowded_used));
    println!("  the one / the other              {:6.2}", crowded_used.as_secs_f64() / alone_used.as_secs_f64());
    drop(leases);
}

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path) -> (Service, String) {
    let socket = folder.join("control.sock").display().to_string();
    let listen = format!("unix:{socket}");
    let mut child = Command::new(NETBOX);
    child.args(["proxy", "serve", "--no-config", "--listen", &listen]).stderr(Stdio::null());
    let service = Service(child.spawn().expect("netbox"));
    let deadline = Instant::now() + PATIENCE;
    while !Path::new(&socket).exists() {
        assert!(Instant::now() < deadline, "the service does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    (service, socket)
}

/// In KiB, as proc(5) says.
fn rss(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.0.id())).expect("a child's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// What its threads have used, as the scheduler counts it.
fn processor(service: &Service) -> Duration {
    let threads = fs::read_dir(format!("/proc/{}/task", service.0.id())).expect("a child's threads");
    let nanoseconds = |thread: std::io::Result<fs::DirEntry>| -> Option<u64> {
        // A thread may just have ended.
        fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(nanoseconds).sum())
}

struct Sandbox {
    number: usize,
    network: OwnedFd,
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Sandbox {
    fn new(number: usize) -> Self {
        let network = || OwnedFd::from(File::open("/proc/thread-self/ns/net").expect("this thread's network"));
        let own = network();
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let inside = network();
        if number == 0 {
            // It is the one that is asked.
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|status| status.success()));
        }
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let tcp = (0..4).map(|_| TcpListener::bind(any).expect("a port")).collect();
        let udp = (0..2).map(|_| UdpSocket::bind(any).expect("a port")).collect();
        setns(own.as_fd(), CloneFlags::CLONE_NEWNET).expect("back");
        Self { number, network: inside, tcp, udp }
    }

    /// How long it took, and the control connection.
    fn attach(&self, socket: &str) -> (Duration, UnixStream) {
        let rule = |number: usize| json!({ "rule": format!("host-{number}.example.com"), "at": "netbox.toml:3:10" });
        let rules: Vec<_> = (0..20).map(|number| rule(self.number * 20 + number)).collect();
        let request = json!({
            "session": format!("{:032x}", self.number),
            "argv0": "bench",
            "policy": { "mode": "allowlist", "ech": "allow", "allow": rules },
            "descriptors": ["explicit", "capture", "capture", "dns-tcp", "dns-udp", "dns-udp", "user-namespace"],
            "events": false,
            "first_id": 1,
            "names": { "listed": 0, "refused": 0 },
        });
        let (hello, request) = (frame(r#"{"v":1,"what":"attach"}"#), frame(&request.to_string()));
        let tcp = self.tcp.iter().map(AsRawFd::as_raw_fd);
        let namespace = File::open("/proc/self/ns/user").expect("the own user namespace");
        let descriptors: Vec<RawFd> =
            tcp.chain(self.udp.iter().map(AsRawFd::as_raw_fd)).chain([namespace.as_raw_fd()]).collect();
        let start = Instant::now();
        let mut control = UnixStream::connect(socket).expect("the service listens");
        control.set_read_timeout(Some(PATIENCE)).expect("a timeout above zero");
        control.write_all(&hello).expect("the service listens");
        let (rights, parts) = ([ControlMessage::ScmRights(&descriptors)], [IoSlice::new(&request)]);
        let sent = sendmsg::<()>(control.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None).expect("it takes them");
        assert_eq!(sent, request.len());
        let mut length = [0; 4];
        control.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        control.read_exact(&mut answer).expect("an answer");
        let time = start.elapsed();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("granted"), "{answer}");
        (time, control)
    }
}

fn frame(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a short text");
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// The mean time of a request that is refused, on a connection of its own: a decision, and nothing but the machine beside it.
fn requests(sandbox: &Sandbox) -> Duration {
    let own = File::open("/proc/thread-self/ns/net").expect("this thread's network");
    setns(sandbox.network.as_fd(), CloneFlags::CLONE_NEWNET).expect("into the sandbox");
    let port = sandbox.tcp[0].local_addr().expect("bound").port();
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the service accepts");
        stream
            .write_all(b"CONNECT refused.example.org:443 HTTP/1.1\r\nHost: refused.example.org:443\r\n\r\n")
            .expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 403"));
    }
    let mean = start.elapsed() / u32::try_from(REQUESTS).expect("few");
    setns(own.as_fd(), CloneFlags::CLONE_NEWNET).expect("back");
    mean
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
