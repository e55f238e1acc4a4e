//! What the capture costs: bytes through one captured connection, and new ones per second, against the same without netbox;
//! with a look at the first bytes and without one, and by another netbox (an earlier one) if `NETBOX_BASELINE` names it.
//!
//! `cargo bench --bench throughput` as an unprivileged user. The server lives in user, mount and network namespaces of
//! the bench's own; both clients are this program, one bare and one under `netbox run`, in turn.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

mod ways;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use ways::{NETBOX, hello};

const ROUNDS: usize = 7;
const BYTES: u64 = 1 << 30;
/// For how long connections are made in a round.
const RATE_TIME: Duration = Duration::from_secs(1);
/// The machine's own address in the bench's namespace, which the policy has to name exactly. The first one sends
/// [`BYTES`], the second one a byte.
const SOURCE: &str = "203.0.113.80:9000";
const ANSWER: &str = "203.0.113.80:9001";
const RULE: &str = "203.0.113.80:9000-9001";

fn main() {
    match env::args().nth(1).as_deref() {
        Some("bytes") => bytes(),
        Some("rate") => rate(),
        Some("inside") => compare(),
        // `cargo bench` passes `--bench`.
        _ => enter_namespaces(),
    }
}

fn enter_namespaces() {
    let this = env::current_exe().expect("this program's path");
    // Closed connections keep their ports for a minute, and there are many.
    let ports = "echo 1024 65535 > /proc/sys/net/ipv4/ip_local_port_range; echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";
    let error = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c"])
        .arg(format!("ip link set lo up && ip addr add 203.0.113.80/32 dev lo && {{ {ports}; }} && exec \"$0\" inside"))
        .arg(this)
        .exec();
    panic!("cannot run `unshare`: {error}");
}

/// Answers a client that has said [`hello`] with so many bytes.
fn serve(address: &str, bytes: u64) {
    let listener = TcpListener::bind(address).expect("a listener");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let block = vec![0x5a; 256 * 1024];
            let mut left = if stream.read_exact(&mut hello()).is_ok() { bytes } else { 0 };
            while left > 0 {
                let part = left.min(block.len() as u64) as usize;
                if stream.write_all(&block[..part]).is_err() {
                    break;
                }
                left -= part as u64;
            }
        }
    });
}

fn compare() {
    serve(SOURCE, BYTES);
    serve(ANSWER, 1);
    let this = env::current_exe().expect("this program's path");
    let raw = format!("tcp://{RULE}");
    // Each with its binary, if it is a netbox, and the rule.
    let mut ways = vec![
        ("direct", None, ""),
        ("captured", Some(NETBOX.to_owned()), RULE),
        ("unseen", Some(NETBOX.to_owned()), &*raw),
    ];
    if let Ok(path) = env::var("NETBOX_BASELINE") {
        ways.push(("baseline", Some(path), RULE));
    }
    for (what, unit) in [("bytes", "one connection, 1024 MiB, MiB/s"), ("rate", "new connections per second")] {
        println!("{unit}, median of {ROUNDS}");
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
        for _ in 0..ROUNDS {
            for (rates, (_, netbox, rule)) in rates.iter_mut().zip(&ways) {
                let mut command = match netbox {
                    None => Command::new(&this),
                    Some(netbox) => {
                        let mut command = Command::new(netbox);
                        command.args(["run", "-q", "--no-config", "--allow", rule, "--"]).arg(&this);
                        command
                    }
                };
                rates.push(measure(command.arg(what)));
            }
        }
        let medians: Vec<_> = rates.into_iter().map(median).collect();
        for ((name, ..), rate) in ways.iter().zip(&medians) {
            println!("  {name:10} {rate:8.0}   {:5.2} of direct", rate / medians[0]);
        }
        for ((name, ..), rate) in ways.iter().zip(&medians).skip(2) {
            println!("  captured / {name}  {:.3}", medians[1] / rate);
        }
    }
}

/// As the client measured it.
fn measure(command: &mut Command) -> f64 {
    let output = command.output().expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// Prints MiB per second.
fn bytes() {
    let mut stream = TcpStream::connect(SOURCE).expect("a connection");
    stream.write_all(&hello()).expect("it takes a hello");
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

/// Prints connections per second, one after the other.
fn rate() {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < RATE_TIME {
        let mut stream = TcpStream::connect(ANSWER).expect("a connection");
        stream.write_all(&hello()).expect("it takes a hello");
        stream.read_exact(&mut [0]).expect("an answer");
        count += 1;
    }
    println!("{}", f64::from(count) / start.elapsed().as_secs_f64());
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
