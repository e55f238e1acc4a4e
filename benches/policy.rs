//! What a long policy file costs: to load and compile 10,000 rules, and to judge a target by them.
//!
//! `cargo bench --bench policy`. Prints medians; a decision is held against one by a hundred rules, which it should cost no
//! more than.

#![allow(clippy::expect_used, reason = "a bench that cannot measure has nothing to say but why")]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use netbox_config::{CommandLine, Decision, Expansions, HostFacts, Layer, Policy, PolicyFile, Stack, Target, Via};
use nix::time::{ClockId, clock_gettime};

const FEW: usize = 100;
const MANY: usize = 10_000;
const ROUNDS: usize = 51;

fn main() {
    println!("load and compile {MANY} rules, median of {ROUNDS}, in time of the processor");
    for (what, rule) in
        [("exact names", exact as fn(usize) -> String), ("of every kind", mixed), ("in other scripts", scripts)]
    {
        let text = file(MANY, rule);
        let time = median((0..ROUNDS).map(|_| timed(|| compile(black_box(&text)))).collect());
        println!("  {what:18} {:6.2} ms   ({} KiB)", time.as_secs_f64() * 1000.0, text.len() / 1024);
    }
    println!("one decision, mean over {MANY} targets, median of {ROUNDS}");
    for (what, rule) in [("exact names", exact as fn(usize) -> String), ("of every kind", mixed)] {
        let [few, many] = [FEW, MANY].map(|count| compile(&file(count, rule)));
        for (whose, target) in [("listed", listed as fn(usize) -> String), ("not listed", not_listed)] {
            let [few, many] =
                [(&few, FEW), (&many, MANY)].map(|(policy, count)| decision(policy, |n| target(n % count)));
            println!(
                "  {what:14} {whose:11} {many:6.0} ns by {MANY} rules, {few:6.0} ns by {FEW}, ratio {:.2}",
                many / few
            );
        }
    }
}

fn exact(n: usize) -> String {
    format!("host{n}.department.example.com")
}

/// Half of them exact names, so that what is listed is so in both files.
fn mixed(n: usize) -> String {
    match n % 8 {
        1 => format!("*.zone{n}.example.com:22,443,8000-8100"),
        3 => format!(".domain{n}.example.org"),
        5 => format!("10.{}.{}.0/24:5432", n / 256, n % 256),
        7 => format!("tcp://[2001:db8:{n:x}::1]:5432"),
        _ => exact(n),
    }
}

fn scripts(n: usize) -> String {
    format!("bücher{n}.example.com")
}

fn listed(n: usize) -> String {
    format!("{}:443", exact(n & !1))
}

fn not_listed(n: usize) -> String {
    format!("host{n}.elsewhere.example.com:443")
}

fn file(count: usize, rule: fn(usize) -> String) -> String {
    let rules: String = (0..count).map(|n| format!("    \"{}\",\n", rule(n))).collect();
    format!("allow = [\n{rules}]\n")
}

fn compile(text: &str) -> Policy {
    let nothing = CommandLine::default();
    let file = PolicyFile::parse(Layer::Project, Path::new("netbox.toml"), text.as_bytes()).expect("the file is right");
    let compiled = Stack::new(&nothing).with_file(&file).compile(&Expansions::default()).expect("and compiles");
    compiled.into_policy()
}

/// The mean time of a decision, in nanoseconds.
fn decision(policy: &Policy, target: impl Fn(usize) -> String) -> f64 {
    let facts = HostFacts::default();
    let parse = |n| Target::parse_authority(target(n).as_bytes(), Via::Capture).expect("the target is right");
    let targets: Vec<_> = (0..MANY).map(parse).collect();
    let round = || {
        let start = processor_time();
        let allowed =
            targets.iter().filter(|target| matches!(policy.decide(black_box(target), &facts), Decision::Allow(_)));
        black_box(allowed.count());
        processor_time() - start
    };
    median((0..ROUNDS).map(|_| round()).collect()).as_secs_f64() * 1e9 / MANY as f64
}

fn timed<T>(what: impl FnOnce() -> T) -> Duration {
    let start = processor_time();
    let made = what();
    let time = processor_time() - start;
    drop(made);
    time
}

/// What this thread has used: others on the machine do not count.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has that clock").into()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
