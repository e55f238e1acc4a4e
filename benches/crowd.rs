//! What a crowd costs `netbox proxy serve`: memory for each idle tunnel (beside squid, where that is installed), and what
//! well-behaved clients notice of a thousand that say half a word.
//!
//! The same of DNS by TCP inside a sandbox, where only so many streams may wait.
//!
//! `cargo bench --bench crowd`. Servers, proxies and clients live in a network namespace of the bench's own.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

mod ways;

use std::env;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use ways::{ECHO, PATIENCE, Program, Way, echo, enter_namespaces, exchange, listen, netbox, open, ready, squid};

/// As many as this, or as the descriptor limit leaves room for.
const TUNNELS: u64 = 10_000;
const HALVES: usize = 1000;
const EXCHANGES: usize = 3000;

/// Where a program inside a sandbox asks: any address will do.
const NAME_SERVER: &str = "203.0.113.53:53";

/// The same server under the port of TLS.
const ECHO_TLS: &str = "127.0.0.1:443";

fn main() {
    let runtime = || Runtime::new().expect("a runtime");
    match env::args().nth(1).as_deref() {
        Some("inside") => runtime().block_on(measure()),
        Some("echo") => runtime().block_on(async {
            tokio::spawn(echo(listen(ECHO_TLS)));
            echo(listen(ECHO)).await;
        }),
        Some("dns") => runtime().block_on(ask_in_a_crowd()),
        // `cargo bench` passes `--bench`.
        _ => enter_namespaces(),
    }
}

async fn measure() {
    let folder = tempfile::tempdir().expect("a folder");
    // A process of its own: each end of a tunnel takes a descriptor.
    let this = env::current_exe().expect("this program's path");
    let _server = Program(Command::new(this).arg("echo").spawn().expect("the server starts"));
    let limit = descriptor_limit();
    let tunnels = TUNNELS.min(limit.saturating_sub(200) / 2);
    println!("{tunnels} idle tunnels (descriptor limit {limit}), resident memory");
    for way in std::iter::once(netbox()).chain(squid(folder.path())) {
        match tokio::time::timeout(PATIENCE, ready(&way)).await {
            Ok(()) => idle(&way, tunnels).await,
            Err(_) => println!("  {} does not work here", way.name),
        }
    }
    println!("an exchange through a new tunnel, {EXCHANGES} of them, while {HALVES} clients drip");
    let show = |time: Duration| time.as_secs_f64() * 1e3;
    let mut quiet = None;
    for (name, beginning, next) in [
        ("nobody", None, None),
        ("a head", Some(&b"GET http://127.0.0.1:9000/ HT"[..]), None),
        ("SOCKS5", Some(&b"\x05"[..]), None),
        (
            "TLS",
            Some(&b"CONNECT 127.0.0.1:443 HTTP/1.0\r\n\r\n"[..]),
            Some(&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..]),
        ),
    ] {
        let (median, late) = halves(beginning, next).await;
        let more = late.saturating_sub(*quiet.get_or_insert(late));
        println!(
            "  {name:8} median {:.2} ms, 99th percentile {:.2} ms: {:.2} ms more than with nobody",
            show(median),
            show(late),
            show(more)
        );
    }
    let this = env::current_exe().expect("this program's path");
    println!(
        "a query by a new stream inside a sandbox, {EXCHANGES} of them, while {HALVES} clients have sent half a length"
    );
    let netbox = Command::new(ways::NETBOX)
        .args(["run", "-q", "--no-config", "--mode", "none", "--"])
        .arg(this)
        .arg("dns")
        .status();
    assert!(netbox.expect("netbox runs").success(), "the command inside has failed");
}

/// Inside a sandbox: without others and with them.
async fn ask_in_a_crowd() {
    let mut quiet = None;
    for crowd in [0, HALVES] {
        let mut streams = Vec::new();
        for _ in 0..crowd {
            // Those that have waited longest make room for the next.
            let mut stream = TcpStream::connect(NAME_SERVER).await.expect("netbox answers there");
            let _ = stream.write_all(&[0]).await;
            streams.push(stream);
        }
        let mut times = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let start = Instant::now();
            tokio::time::timeout(PATIENCE, ask()).await.expect("in time").expect("a well-behaved client is answered");
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let late = times[(0.99 * times.len() as f64) as usize];
        let more = late.saturating_sub(*quiet.get_or_insert(late));
        let show = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "  {crowd:4} of them  99th percentile {:.2} ms: {:.2} ms more than with nobody",
            show(late),
            show(more)
        );
    }
}

/// One query for `localhost`, which is answered without a lookup.
async fn ask() -> std::io::Result<()> {
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01";
    let mut stream = TcpStream::connect(NAME_SERVER).await?;
    stream.write_u16(query.len() as u16).await?;
    stream.write_all(query).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await.map(drop)
}

async fn idle(way: &Way, tunnels: u64) {
    let Some(program) = &way.program else { return };
    let pid = program.0.id();
    let before = resident_kib(pid);
    let mut open_tunnels = Vec::new();
    for _ in 0..tunnels {
        match tokio::time::timeout(PATIENCE, open(way, ECHO)).await {
            Ok(Ok(stream)) => open_tunnels.push(stream),
            _ => break,
        }
    }
    // They are all there, and each still works.
    for stream in &mut open_tunnels {
        stream.write_all(&[1]).await.expect("an idle tunnel takes a byte");
    }
    for stream in &mut open_tunnels {
        stream.read_u8().await.expect("an idle tunnel gives a byte");
    }
    let (held, after) = (open_tunnels.len() as u64, resident_kib(pid));
    println!(
        "  {:8} {held} held, {:.1} MiB before, {:.1} MiB with them: {:.2} KiB each",
        way.name,
        before as f64 / 1024.0,
        after as f64 / 1024.0,
        (after - before) as f64 / held.max(1) as f64
    );
}

/// The median and the 99th percentile.
async fn halves(beginning: Option<&[u8]>, next: Option<&[u8]>) -> (Duration, Duration) {
    let way = netbox();
    tokio::time::timeout(PATIENCE, ready(&way)).await.expect("netbox opens tunnels");
    let proxy = way.proxy.expect("netbox has an address");
    let mut crowd = Vec::new();
    for _ in 0..if beginning.is_some() { HALVES } else { 0 } {
        let mut stream = TcpStream::connect(proxy).await.expect("a connection");
        stream.write_all(beginning.unwrap_or_default()).await.expect("a beginning");
        if let Some(next) = next {
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                answer.push(stream.read_u8().await.expect("an answer"));
            }
            assert_eq!(answer.get(9..12), Some(&b"200"[..]), "it has its tunnel");
            stream.write_all(next).await.expect("half a word");
        }
        crowd.push(stream);
    }
    let mut times = Vec::with_capacity(EXCHANGES);
    for round in 0..EXCHANGES {
        // One of them goes on by a byte, while it can: netbox keeps a quarter of its places for such, and more than these.
        if let Some(stream) = crowd.get_mut(round % HALVES) {
            let _ = stream.write_all(b"x").await;
        }
        let start = Instant::now();
        tokio::time::timeout(PATIENCE, exchange(&way))
            .await
            .expect("in time")
            .expect("a well-behaved client is served");
        times.push(start.elapsed());
    }
    // One that netbox has ended is no crowd any more.
    let held = crowd.iter().filter(
        |stream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
    );
    let held = held.count();
    if held < crowd.len() {
        println!("  (only {held} of {} were held to the end)", crowd.len());
    }
    times.sort_unstable();
    let at = |share: f64| times[(share * times.len() as f64) as usize];
    (at(0.5), at(0.99))
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the proxy lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The soft limit of this process, which its children have too.
fn descriptor_limit() -> u64 {
    let limits = fs::read_to_string("/proc/self/limits").expect("own limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
    line.split_whitespace().next().and_then(|soft| soft.parse().ok()).expect("a number")
}
