//! What a tunnel through `netbox proxy serve` costs: bytes of one and the processor's time for them, and new ones per second,
//! the processor's time for each, and how long the slowest take, against direct connections and against squid and tinyproxy where they are installed; and what it costs to look at first bytes, against rules that
//! let them pass unseen and against another netbox, if `NETBOX_BASELINE` names one. In one interleaved run.
//!
//! `cargo bench --bench tunnels`. Servers, proxies and clients live in a network namespace of the bench's own, on its
//! loopback, and share the machine's processors: the ratios say more than the rates.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

mod ways;

use std::env;
use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use ways::{
    ECHO, HELLO, PATIENCE, Way, answer, baseline, echo, enter_namespaces, exchange, exchange_hello, listen, netbox,
    open, ready, squid, tinyproxy, unseen,
};

/// Sends [`BYTES`].
const SOURCE: &str = "127.0.0.1:9001";

const BYTES: u64 = 512 << 20;
const BYTE_ROUNDS: usize = 5;

const CLIENTS: [usize; 3] = [1, 32, 256];
const RATE_ROUNDS: usize = 5;
/// For how long tunnels are opened in a round.
const RATE_TIME: Duration = Duration::from_secs(1);

fn main() {
    match env::args().nth(1).as_deref() {
        Some("inside") => Runtime::new().expect("a runtime").block_on(compare()),
        // `cargo bench` passes `--bench`.
        _ => enter_namespaces(),
    }
}

async fn compare() {
    let folder = tempfile::tempdir().expect("a folder");
    tokio::spawn(echo(listen(ECHO)));
    tokio::spawn(source(listen(SOURCE)));
    tokio::spawn(answer(listen(HELLO)));
    let mut ways = vec![Way { name: "direct", proxy: None, program: None }, netbox(), unseen()];
    ways.extend(baseline());
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
    let used = |way: &Way| way.program.as_ref().and_then(ways::Program::processor);
    let before: Vec<_> = ways.iter().map(used).collect();
    for _ in 0..BYTE_ROUNDS {
        for (rates, way) in rates.iter_mut().zip(&ways) {
            rates.push(throughput(way).await.expect("the bytes come"));
        }
    }
    print(&ways, rates);
    println!("seconds of processor that the proxy takes for each GiB");
    let moved = (BYTES * BYTE_ROUNDS as u64) as f64 / (1_u64 << 30) as f64;
    for (way, before) in ways.iter().zip(before) {
        if let (Some(before), Some(after)) = (before, used(way)) {
            println!("  {:10} {:9.2}", way.name, (after - before) / moved);
        }
    }
    for clients in CLIENTS {
        for (what, is_hello) in [("", false), (" with a ClientHello", true)] {
            println!("new tunnels per second{what}, {clients} at once, median of {RATE_ROUNDS}");
            let mut rates: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
            let mut times: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
            let before: Vec<_> = ways.iter().map(used).collect();
            for _ in 0..RATE_ROUNDS {
                for ((rates, times), way) in rates.iter_mut().zip(&mut times).zip(&ways) {
                    let (rate, took) = tunnels(way, clients, is_hello).await;
                    rates.push(rate);
                    times.extend(took);
                }
            }
            print(&ways, rates);
            println!("  microseconds of processor that the proxy takes for each");
            for ((way, before), times) in ways.iter().zip(before).zip(&times) {
                if let (Some(before), Some(after)) = (before, used(way)) {
                    println!("  {:10} {:9.0}", way.name, (after - before) / times.len() as f64 * 1e6);
                }
            }
            println!("  milliseconds that a tunnel takes with its first answer, median and of 99 in 100 at most");
            for (way, mut times) in ways.iter().zip(times) {
                times.sort_by(f64::total_cmp);
                let at = |part: usize| times[(times.len() - 1) * part / 100] * 1000.0;
                println!("  {:10} {:9.2} {:9.2}", way.name, at(50), at(99));
            }
        }
    }
}

fn print(ways: &[Way], rates: Vec<Vec<f64>>) {
    let medians: Vec<f64> = rates.into_iter().map(median).collect();
    for (way, rate) in ways.iter().zip(&medians) {
        println!("  {:10} {rate:9.0}   {:5.2} of direct", way.name, rate / medians[0]);
    }
    let of = |name| ways.iter().zip(&medians).find(|(way, _)| way.name == name).map(|(_, rate)| *rate);
    for other in ["unseen", "baseline"] {
        if let (Some(netbox), Some(other_rate)) = (of("netbox"), of(other)) {
            println!("  netbox / {other}  {:.3}", netbox / other_rate);
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
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

/// How many tunnels are opened in a second by so many clients, each of which opens one after the other, and how many seconds
/// each took.
async fn tunnels(way: &Way, clients: usize, is_hello: bool) -> (f64, Vec<f64>) {
    let start = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..clients {
        let way = Way { name: way.name, proxy: way.proxy, program: None };
        set.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < RATE_TIME {
                let begun = Instant::now();
                let exchange = async { if is_hello { exchange_hello(&way).await } else { exchange(&way).await } };
                tokio::time::timeout(PATIENCE, exchange).await.expect("in time").expect("the tunnel opens");
                times.push(begun.elapsed().as_secs_f64());
            }
            times
        });
    }
    let times = set.join_all().await.concat();
    (times.len() as f64 / start.elapsed().as_secs_f64(), times)
}
