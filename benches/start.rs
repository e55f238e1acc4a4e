//! How long a run takes to start, what of that each wall takes, and what it costs while it idles: netbox against bwrap, in
//! one interleaved run.
//!
//! `cargo bench --bench start` as an unprivileged user. Prints medians and ratios; the machine's noise is in both.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 50;
const NETBOX: &str = env!("CARGO_BIN_EXE_netbox");

fn main() {
    let netbox: &[&str] = &[NETBOX, "run", "--no-config", "--allow", "example.com", "--", "true"];
    let bwrap: &[&str] = &["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"];
    let bare: &[&str] = &["true"];
    for command in [netbox, bwrap, bare] {
        // Warm up, and see that it works at all: a start that fails is fast.
        assert!(run(command).1, "`{}` failed", command.join(" "));
    }
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (times, command) in times.iter_mut().zip([netbox, bwrap, bare]) {
            times.push(run(command).0);
        }
    }
    let [netbox, bwrap, bare] = times.map(median);
    println!("start of `true`, median of {ROUNDS}");
    println!("  netbox run --allow example.com   {:6.2} ms", millis(netbox));
    println!("  bwrap --unshare-all --ro-bind    {:6.2} ms", millis(bwrap));
    println!("  bare                             {:6.2} ms", millis(bare));
    println!("  netbox / bwrap                   {:6.2}", netbox.as_secs_f64() / bwrap.as_secs_f64());
    walls(netbox - bare, bwrap);
    println!("PSS of all netbox processes of an idle run");
    println!("  {:.1} MiB", idle_pss() as f64 / 1024.0);
}

fn run(command: &[&str]) -> (Duration, bool) {
    let start = Instant::now();
    let status = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).status();
    (start.elapsed(), status.is_ok_and(|status| status.success()))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// What `netbox run -v` says of each, and what is left of the whole: netbox's own start and end, the program's, and the
/// supervision, whose cost is in each connect (`benches/connects.rs`). What the command's process does to itself is done while
/// the network is set up.
fn walls(whole: Duration, bwrap: Duration) {
    let mut walls: Vec<(String, Vec<Duration>)> = Vec::new();
    for _ in 0..ROUNDS {
        for (at, (wall, time)) in costs().into_iter().enumerate() {
            if walls.len() == at {
                walls.push((wall, Vec::new()));
            }
            walls[at].1.push(time);
        }
    }
    let mut costs: Vec<_> = walls.into_iter().map(|(wall, times)| (wall, median(times))).collect();
    let told: Duration = costs.iter().map(|(_, time)| *time).sum();
    costs.push(("all else".to_owned(), whole.saturating_sub(told)));
    println!("what each wall takes of it, and as a share of bwrap's start");
    for (wall, time) in costs {
        println!("  {wall:<32} {:6.2} ms  {:5.2}", millis(time), time.as_secs_f64() / bwrap.as_secs_f64());
    }
}

/// `netbox: the walls took: namespaces 0.81 ms, interfaces 0.93 ms`.
fn costs() -> Vec<(String, Duration)> {
    let netbox = Command::new(NETBOX)
        .args(["run", "-v", "--no-config", "--allow", "example.com", "--", "true"])
        .stdin(Stdio::null())
        .output()
        .expect("netbox starts");
    let said = String::from_utf8_lossy(&netbox.stderr).into_owned();
    let told = said.lines().find_map(|line| line.strip_prefix("netbox: the walls took: ")).expect("netbox says so");
    let parse = |word: &str| {
        let (wall, time) = word.strip_suffix(" ms")?.rsplit_once(' ')?;
        Some((wall.to_owned(), Duration::from_secs_f64(time.parse::<f64>().ok()? / 1000.0)))
    };
    told.split(", ").map(|word| parse(word).expect("a wall and its time")).collect()
}

/// Proportional set size, in KiB, of netbox and of the sandbox's first process, while the command waits.
fn idle_pss() -> u64 {
    use std::io::{BufRead, BufReader};
    let mut netbox = Command::new(NETBOX)
        .args(["run", "--no-config", "--allow", "example.com", "--", "sh", "-c", "echo up; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("netbox starts");
    let mut line = String::new();
    let stdout = netbox.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("the command speaks");
    assert_eq!(line, "up\n");
    let init = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", netbox.id())).expect("children");
    let init = init.split_whitespace().next().expect("the sandbox's first process").to_owned();
    // The command's own memory is not netbox's. Pid 1 is not dumpable, so a user may not read its share; then netbox's
    // is shown, and pid 1's, a copy of it that has written little, is counted as its private pages from statm.
    let total = pss(&netbox.id().to_string()).unwrap_or_default() + pss(&init).unwrap_or_else(|| private(&init));
    drop(netbox.stdin.take());
    netbox.wait().expect("netbox ends");
    total
}

fn pss(pid: &str) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse().ok())
}

/// Resident pages less shared ones (`/proc/PID/statm`, proc(5)), in KiB of 4 KiB pages.
fn private(pid: &str) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let field = |at: usize| statm.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    field(1).saturating_sub(field(2)) * 4
}
