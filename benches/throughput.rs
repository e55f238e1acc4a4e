//! What the capture costs: bytes through one captured connection, against the same connection without netbox.
//!
//! `cargo bench --bench throughput` as an unprivileged user. The server lives in user, mount and network namespaces of
//! the bench's own; both clients are this program, one bare and one under `netbox run`, in turn.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;
use std::{env, thread};

const ROUNDS: usize = 7;
const BYTES: u64 = 1 << 30;
const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");
/// The machine's own address in the bench's namespace, which the policy has to name exactly.
const ADDRESS: &str = "203.0.113.80:9000";

fn main() {
    match env::args().nth(1).as_deref() {
        Some("client") => client(),
        Some("inside") => compare(),
        // `cargo bench` passes `--bench`.
        _ => enter_namespaces(),
    }
}

fn enter_namespaces() {
    let this = env::current_exe().expect("this program's path");
    let error = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c"])
        .arg("ip link set lo up && ip addr add 203.0.113.80/32 dev lo && exec \"$0\" inside")
        .arg(this)
        .exec();
    panic!("cannot run `unshare`: {error}");
}

fn compare() {
    let listener = TcpListener::bind(ADDRESS).expect("a listener");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let block = vec![0x5a; 256 * 1024];
            let mut left = BYTES;
            while left > 0 {
                let part = left.min(block.len() as u64) as usize;
                if stream.write_all(&block[..part]).is_err() {
                    break;
                }
                left -= part as u64;
            }
        }
    });
    let this = env::current_exe().expect("this program's path");
    let this = this.to_str().expect("a path in UTF-8");
    let mut direct = Vec::new();
    let mut captured = Vec::new();
    for _ in 0..ROUNDS {
        direct.push(measure(Command::new(this).arg("client")));
        captured.push(measure(Command::new(NETBOX).args([
            "run",
            "-q",
            "--no-config",
            "--allow",
            &format!("tcp://{ADDRESS}"),
            "--",
            this,
            "client",
        ])));
    }
    let (direct, captured) = (median(direct), median(captured));
    println!("one connection, {} MiB, median of {ROUNDS}", BYTES >> 20);
    println!("  direct             {direct:8.0} MiB/s");
    println!("  captured           {captured:8.0} MiB/s");
    println!("  captured / direct  {:8.2}", captured / direct);
}

/// MiB per second, as the client measured it.
fn measure(command: &mut Command) -> f64 {
    let output = command.output().expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

fn client() {
    let mut stream = TcpStream::connect(ADDRESS).expect("a connection");
    let mut buffer = vec![0; 256 * 1024];
    let (mut total, mut start) = (0, None);
    loop {
        let read = stream.read(&mut buffer).expect("bytes");
        if read == 0 {
            break;
        }
        // From the first byte on: the start of a run is another bench.
        start.get_or_insert_with(Instant::now);
        total += read as u64;
    }
    assert_eq!(total, BYTES, "all bytes arrive");
    let seconds = start.expect("at least one byte").elapsed().as_secs_f64();
    println!("{}", (total >> 20) as f64 / seconds);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
