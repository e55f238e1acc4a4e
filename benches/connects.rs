//! What supervision costs a connect: the same client and server, bare and under netbox, in one run.
//!
//! `cargo bench --bench connects` as an unprivileged user. Prints medians, rates and ratios; the machine's noise is in
//! both. The server is the client's own, inside: nothing but the connect is measured.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");
const ROUNDS: usize = 10_000;
const THREADS: usize = 32;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("inside") {
        return inside();
    }
    let own = std::env::current_exe().expect("a bench is a program");
    let own = own.to_str().expect("a path of plain characters");
    // Twice and in turns, so that a slow moment of the machine shows.
    for _ in 0..2 {
        let bare = run(&[own, "inside"]);
        let netbox = run(&[NETBOX, "run", "--no-config", "--allow", "example.com", "--", own, "inside"]);
        println!("{:28} {:>10} {:>10} {:>7}", "", "bare", "netbox", "ratio");
        for ((what, bare), (_, netbox)) in bare.iter().zip(&netbox) {
            println!("{what:28} {bare:>10.1} {netbox:>10.1} {:>7.2}", netbox / bare);
        }
    }
}

/// The figures by name.
fn run(words: &[&str]) -> Vec<(String, f64)> {
    let output = Command::new(words[0]).args(&words[1..]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let figure = |line: &str| {
        let (what, figure) = line.split_once('=')?;
        Some((what.to_owned(), figure.parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

fn inside() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    let unix = UnixListener::bind(&path).expect("a free name");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = tcp.local_addr().expect("a bound socket has an address");
    thread::spawn(move || unix.incoming().for_each(drop));
    thread::spawn(move || tcp.incoming().for_each(drop));
    let tcp = |address: &SocketAddr| drop(TcpStream::connect(address).expect("a listener"));
    let unix = |path: &Path| drop(UnixStream::connect(path).expect("a listener"));
    println!("TCP connect, us={}", median(|| tcp(&address)));
    println!("unix connect, us={}", median(|| unix(&path)));
    // Each thread waits until the server is done with it: the queue stays shorter than its limit.
    let whole = |mut stream: Box<dyn Read>| drop(stream.read(&mut [0]));
    let tcp = || whole(Box::new(TcpStream::connect(address).expect("a listener")));
    let unix = || whole(Box::new(UnixStream::connect(&path).expect("a listener")));
    println!("TCP, 32 threads, 1000/s={}", rate(tcp));
    println!("unix, 32 threads, 1000/s={}", rate(unix));
}

fn median(mut act: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            act();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2].as_secs_f64() * 1e6
}

fn rate(act: impl Fn() + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS / THREADS).for_each(|_| act()));
        }
    });
    ROUNDS as f64 / start.elapsed().as_secs_f64() / 1e3
}
