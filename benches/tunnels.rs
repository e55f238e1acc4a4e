//! What a tunnel through `netbox proxy serve` costs: bytes of one, and new ones per second, against direct connections
//! and against squid and tinyproxy where they are installed, in one interleaved run.
//!
//! `cargo bench --bench tunnels`. Servers, proxies and clients live in a network namespace of the bench's own, on its
//! loopback, and share the machine's processors: the ratios say more than the rates.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");

/// Answers one byte with one byte.
const ECHO: &str = "127.0.0.1:9000";
/// Sends [`BYTES`].
const SOURCE: &str = "127.0.0.1:9001";

const BYTES: u64 = 512 << 20;
const BYTE_ROUNDS: usize = 5;

const CLIENTS: [usize; 3] = [1, 32, 256];
const RATE_ROUNDS: usize = 5;
/// For how long tunnels are opened in a round.
const RATE_TIME: Duration = Duration::from_secs(1);

/// No program of this bench takes longer to start, and no tunnel longer to open.
const PATIENCE: Duration = Duration::from_secs(20);

const SQUID: &str = "\
http_port 127.0.0.1:3128
http_access allow all
cache deny all
cache_mem 8 MB
access_log none
cache_log /dev/null
pid_filename none
netdb_filename none
shutdown_lifetime 0 seconds
";

const TINYPROXY: &str = "\
Listen 127.0.0.1
Port 8888
MaxClients 1024
Timeout 600
LogLevel Critical
Allow 127.0.0.1
ConnectPort 9000
ConnectPort 9001
";

fn main() {
    match env::args().nth(1).as_deref() {
        Some("inside") => Runtime::new().expect("a runtime").block_on(compare()),
        // `cargo bench` passes `--bench`.
        _ => enter_namespaces(),
    }
}

fn enter_namespaces() {
    let this = env::current_exe().expect("this program's path");
    // Closed connections keep their ports for a minute, and there are many.
    let ports = "echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range; echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";
    let error = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c"])
        .arg(format!("ip link set lo up && {{ {ports}; }} && exec \"$0\" inside"))
        .arg(this)
        .exec();
    panic!("cannot run `unshare`: {error}");
}

/// A way to the servers.
struct Way {
    name: &'static str,
    /// The proxy; `None` for a direct connection.
    proxy: Option<SocketAddr>,
    /// What has to run meanwhile.
    _program: Option<Program>,
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn compare() {
    let folder = tempfile::tempdir().expect("a folder");
    tokio::spawn(echo(listen(ECHO)));
    tokio::spawn(source(listen(SOURCE)));
    let mut ways = vec![Way { name: "direct", proxy: None, _program: None }, netbox()];
    ways.extend(squid(folder.path()));
    ways.extend(tinyproxy(folder.path()));
    // Warm up, and see that it works at all: what fails is fast. Another proxy than netbox may not start as this user.
    let mut working = Vec::new();
    for way in ways {
        match tokio::time::timeout(PATIENCE, ready(&way)).await {
            Ok(_) => working.push(way),
            Err(_) if ["squid", "tinyproxy"].contains(&way.name) => println!("{} does not work here", way.name),
            Err(_) => panic!("{} opens no tunnel", way.name),
        }
    }
    let ways = working;
    println!("one tunnel, {} MiB, median of {BYTE_ROUNDS}, MiB/s", BYTES >> 20);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for _ in 0..BYTE_ROUNDS {
        for (rates, way) in rates.iter_mut().zip(&ways) {
            rates.push(throughput(way).await.expect("the bytes come"));
        }
    }
    print(&ways, rates);
    for clients in CLIENTS {
        println!("new tunnels per second, {clients} at once, median of {RATE_ROUNDS}");
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        for _ in 0..RATE_ROUNDS {
            for (rates, way) in rates.iter_mut().zip(&ways) {
                rates.push(tunnels(way, clients).await);
            }
        }
        print(&ways, rates);
    }
}

fn print(ways: &[Way], rates: Vec<Vec<f64>>) {
    let medians: Vec<f64> = rates.into_iter().map(median).collect();
    for (way, rate) in ways.iter().zip(&medians) {
        println!("  {:10} {rate:9.0}   {:5.2} of direct", way.name, rate / medians[0]);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn listen(address: &str) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.bind(address.parse().expect("an address")).expect("a free port");
    socket.listen(4096).expect("a listener")
}

async fn echo(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
        });
    }
}

async fn source(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let block = vec![0x5a; 256 * 1024];
            for _ in 0..BYTES / block.len() as u64 {
                if stream.write_all(&block).await.is_err() {
                    break;
                }
            }
        });
    }
}

fn netbox() -> Way {
    let mut child = Command::new(NETBOX)
        .args(["proxy", "serve", "--listen", "127.0.0.1:0", "--no-config", "--allow", "127.0.0.1:9000-9001"])
        .args(["--summary", "never"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("netbox starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("netbox speaks");
    // What it says later must not meet a closed pipe.
    thread::spawn(move || io::copy(&mut stderr, &mut io::stderr()));
    let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
    let program = Some(Program(child));
    Way { name: "netbox", proxy: Some(address.unwrap_or_else(|| panic!("{line}"))), _program: program }
}

/// squid does not run as root, and has no other user to become here but in a namespace of its own.
fn squid(folder: &Path) -> Option<Way> {
    let configuration = folder.join("squid.conf");
    fs::write(&configuration, SQUID).expect("own folder");
    start("squid", "127.0.0.1:3128", |command| {
        command.args(["--user", "--map-user=1000", "--map-group=1000", "squid", "-N", "-f"]).arg(&configuration);
    })
}

fn tinyproxy(folder: &Path) -> Option<Way> {
    let configuration = folder.join("tinyproxy.conf");
    fs::write(&configuration, TINYPROXY).expect("own folder");
    start("tinyproxy", "127.0.0.1:8888", |command| {
        command.args(["--user", "--map-root-user", "tinyproxy", "-d", "-c"]).arg(&configuration);
    })
}

fn start(name: &'static str, address: &str, arguments: impl FnOnce(&mut Command)) -> Option<Way> {
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).is_file()) {
        println!("{name} is not installed and left out");
        return None;
    }
    let mut command = Command::new("unshare");
    arguments(&mut command);
    let quiet =
        command.env("PATH", [path, "/usr/sbin".into()].join(":".as_ref())).stdout(Stdio::null()).stderr(Stdio::null());
    let program = Program(quiet.spawn().expect("the proxy starts"));
    Some(Way { name, proxy: Some(address.parse().expect("an address")), _program: Some(program) })
}

/// Waits until the proxy, which has just been started, opens tunnels.
async fn ready(way: &Way) {
    while exchange(way).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A connection to the server on this way.
async fn open(way: &Way, server: &str) -> io::Result<TcpStream> {
    let Some(proxy) = way.proxy else { return TcpStream::connect(server).await };
    let mut stream = TcpStream::connect(proxy).await?;
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        // Byte by byte: what is behind it is the server's, which may speak first.
        answer.push(stream.read_u8().await?);
    }
    match answer.get(9..12) {
        Some(b"200") => Ok(stream),
        _ => Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
    }
}

/// One tunnel, opened, used for one byte in each direction, and closed.
async fn exchange(way: &Way) -> io::Result<()> {
    let mut stream = open(way, ECHO).await?;
    stream.write_all(&[0]).await?;
    stream.read_u8().await.map(drop)
}

/// MiB per second.
async fn throughput(way: &Way) -> io::Result<f64> {
    let mut stream = open(way, SOURCE).await?;
    let mut buffer = vec![0; 256 * 1024];
    let (start, mut total) = (Instant::now(), 0);
    while let read @ 1.. = stream.read(&mut buffer).await? {
        total += read as u64;
    }
    assert_eq!(total, BYTES, "all bytes arrive");
    Ok((BYTES >> 20) as f64 / start.elapsed().as_secs_f64())
}

/// How many tunnels are opened in a second by so many clients, each of which opens one after the other.
async fn tunnels(way: &Way, clients: usize) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..clients {
        let (done, way) = (Arc::clone(&done), Way { name: way.name, proxy: way.proxy, _program: None });
        set.spawn(async move {
            while start.elapsed() < RATE_TIME {
                tokio::time::timeout(PATIENCE, exchange(&way)).await.expect("in time").expect("the tunnel opens");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    set.join_all().await;
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}
