//! The soak: the shared service at full load for minutes, which must lose nothing, let nothing through, and be as large at
//! the end as it was near the beginning. `tests/soak` runs it; no test does.
//!
//! # Theory of operation
//!
//! 1. One service carries sandboxes that are attached by the control protocol, whole `netbox run --via`, and plain
//!    clients (`load`), as many at once as make the machine busy. Meanwhile sandboxes are attached anew, the policy is
//!    read anew, and the events' file is rotated.
//! 2. From time to time the process is looked at: memory, descriptors, threads, and how many tenants and connections it
//!    says that it has.
//! 3. What was asked for and is allowed must have been answered, and what is not must have been refused. Memory and
//!    descriptors must be flat: the median of the last quarter of the samples may be above that of the second one by
//!    [`TOLERANCE`], the first one being what a process needs to get warm. When all are gone, as many descriptors are open
//!    as before they came, and nobody is carried.

mod load;
mod words;

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::run::eventually;
use crate::service::{Service, household};
use crate::world::World;

use load::{Load, Tally};

/// How often the process is looked at, or more often where that makes too few samples.
const INTERVAL: Duration = Duration::from_secs(10);
const LEAST_SAMPLES: u32 = 24;

/// How much more there may be at the end: a part of it, or so much where that is more.
const TOLERANCE: f64 = 0.05;
const FEW_KIB: f64 = 2048.0;
const FEW_DESCRIPTORS: f64 = 24.0;

/// How long it is to take, and with how many sandboxes.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    time: Duration,
    sandboxes: usize,
}

/// The process at one moment.
#[derive(Debug)]
struct Sample {
    at: Duration,
    rss_kib: u64,
    /// What is in no file: heap and stacks.
    heap_kib: u64,
    descriptors: usize,
    threads: usize,
    tenants: usize,
    open: u64,
    requests: u64,
}

impl Soak {
    /// What the environment asks for, if it asks for one.
    ///
    /// # Panics
    ///
    /// When it asks for what is no number.
    pub fn asked_for() -> Option<Self> {
        let minutes = env::var("NETBOX_SOAK").ok()?;
        let minutes: f64 = minutes.parse().unwrap_or_else(|_| panic!("`NETBOX_SOAK={minutes}`: a number of minutes"));
        let sandboxes = env::var("NETBOX_SOAK_SANDBOXES").map_or(100, |text| {
            text.parse().unwrap_or_else(|_| panic!("`NETBOX_SOAK_SANDBOXES={text}`: a number of sandboxes"))
        });
        Some(Self { time: Duration::from_secs_f64(minutes * 60.0), sandboxes })
    }

    /// Does it, and says what came of it.
    pub fn run(self, world: &World) -> ExitCode {
        let load = Load::new(world, self.sandboxes);
        let (policy, events) = (load.policy().display().to_string(), world.fresh_path("events"));
        let flags = ["--listen", "127.0.0.1:0", "--config", &policy, "--events", &events.to_string_lossy()];
        let service = Service::start(world, &flags);
        // Warm enough that nothing is opened for the first time.
        service.netbox(&["--mode", "none"]).exec(&["true"]).exits_with(0);
        status(world, &service);
        let before = descriptors(&service);
        let interval = INTERVAL.min(self.time / LEAST_SAMPLES);
        let start = Instant::now();
        println!("the shared service for {:.1} minutes, {} sandboxes", self.time.as_secs_f64() / 60.0, self.sandboxes);
        println!("{}", Sample::HEAD);
        let mut samples = Vec::new();
        load.put_on(&service, start + self.time, |tally| {
            let mut next = start;
            while next < start + self.time {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                next += interval;
                rotate(&service, &events);
                let sample = Sample::take(world, &service, start.elapsed(), tally);
                println!("{sample}");
                samples.push(sample);
            }
        });
        println!("{}, when all are gone", Sample::take(world, &service, start.elapsed(), &load.tally));
        let mut failures = load.tally.failures();
        failures.extend(verdict(&samples));
        let is_left = || {
            let state = status(world, &service);
            (descriptors(&service) > before || open(&state) > 0 || tenants(&state) > 1).then_some(state)
        };
        if !eventually(|| is_left().is_none()) {
            failures.push(format!(
                "{} descriptors are open when all are gone, {before} before they came: {}",
                descriptors(&service),
                status(world, &service)
            ));
        }
        println!("{}", load.tally);
        let outcome = service.stop();
        if outcome.code != Some(0) {
            failures.push(format!("the service did not end in order: {outcome}"));
        }
        failures.extend(load.let_through());
        for failure in &failures {
            println!("failed: {failure}");
        }
        if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl Sample {
    const HEAD: &str = "   time   RSS MiB  heap MiB  descriptors  threads  tenants  connections   requests";

    fn take(world: &World, service: &Service<'_>, at: Duration, tally: &Tally) -> Self {
        let pid = service.running().pid();
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("the service lives");
        let kib = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        let (process, memory, state) = (read("status"), read("smaps_rollup"), status(world, service));
        Self {
            at,
            rss_kib: kib(&memory, "Rss:"),
            heap_kib: kib(&memory, "Anonymous:"),
            descriptors: descriptors(service),
            threads: usize::try_from(kib(&process, "Threads:")).expect("a few"),
            tenants: tenants(&state),
            open: open(&state),
            requests: tally.allowed.load(Ordering::Relaxed) + tally.refused.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, mib) = (self.at.as_secs(), |kib: u64| kib as f64 / 1024.0);
        write!(out, "{:4}:{:02}  {:8.1}  {:8.1}", seconds / 60, seconds % 60, mib(self.rss_kib), mib(self.heap_kib))?;
        write!(out, "  {:11}  {:7}  {:7}", self.descriptors, self.threads, self.tenants)?;
        write!(out, "  {:11}  {:9}", self.open, self.requests)
    }
}

/// What has grown.
fn verdict(samples: &[Sample]) -> Vec<String> {
    let median = |quarter: usize, of: &dyn Fn(&Sample) -> f64| {
        let length = samples.len() / 4;
        let mut values: Vec<_> = samples[quarter * length..(quarter + 1) * length].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut failures = Vec::new();
    let mut line = String::from("median of the second quarter and of the last one:");
    for (what, few, of) in [
        ("RSS in KiB", FEW_KIB, &(|sample: &Sample| sample.rss_kib as f64) as &dyn Fn(&Sample) -> f64),
        ("heap in KiB", FEW_KIB, &|sample: &Sample| sample.heap_kib as f64),
        ("descriptors", FEW_DESCRIPTORS, &|sample: &Sample| sample.descriptors as f64),
        ("threads", FEW_DESCRIPTORS, &|sample: &Sample| sample.threads as f64),
    ] {
        let (early, late) = (median(1, of), median(3, of));
        let _ = write!(line, " {what} {early:.0}, {late:.0};");
        if late > early + few.max(early * TOLERANCE) {
            failures.push(format!("{what} grew from {early:.0} to {late:.0}"));
        }
    }
    println!("{}", line.trim_end_matches(';'));
    failures
}

/// Moves the file away and has the service begin another one.
fn rotate(service: &Service<'_>, events: &std::path::Path) {
    let old = events.with_extension("old");
    fs::rename(events, &old).expect("own folder");
    service.running().signal(Signal::SIGUSR1);
    assert!(eventually(|| events.exists()), "the service begins another file");
    fs::remove_file(old).expect("own folder");
}

fn descriptors(service: &Service<'_>) -> usize {
    fs::read_dir(format!("/proc/{}/fd", service.running().pid())).expect("the service lives").count()
}

/// How the service says that it is.
fn status(world: &World, service: &Service<'_>) -> Value {
    let words = ["proxy", "status", "--json", "--via", service.via()];
    let outcome = world.netbox_words().within(household(world)).exec(&words);
    serde_json::from_str(&outcome.exits_with(0).stdout()).expect("JSON")
}

/// One of them is those without a role.
fn tenants(status: &Value) -> usize {
    status["tenants"].as_array().map_or(0, Vec::len) + status["more_tenants"].as_u64().unwrap_or(0) as usize
}

fn open(status: &Value) -> u64 {
    let tenants = status["tenants"].as_array().into_iter().flatten();
    tenants.filter_map(|tenant| tenant["open"].as_u64()).sum()
}
