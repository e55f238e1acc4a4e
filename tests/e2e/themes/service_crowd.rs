//! Many sandboxes at one service, each with a policy of its own.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};

use super::service_operations::{ask, ends_of, file, write};
use crate::control::{Cell, Control, request};
use crate::outcome::read_events;
use crate::programs::{CURL, curl};
use crate::service::Service;
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    two_hundred_sandboxes_reach_their_own_hosts_and_no_others needs [CURL],
    a_drain_under_the_load_of_two_hundred_loses_nothing_that_was_taken needs [],
];

/// How many sandboxes, how many of them ask at a time, and how often each asks for its own host and for another one's.
const SANDBOXES: usize = 200;
const ASKING: usize = 20;
const REQUESTS: usize = 25;

/// A sandbox for each of as many hosts, which all have one address.
struct Crowd {
    address: Ipv4Addr,
    hosts: Vec<Host>,
    cells: Vec<Cell>,
}

impl Crowd {
    fn new(world: &World, name: &str) -> Self {
        let address = world.zone().host(name).v4();
        let host = |number| world.zone().host_at(&format!("{name}-{number}"), &[address.into()]);
        let (hosts, cells) = (0..SANDBOXES).map(|number| (host(number), Cell::new())).unzip();
        Self { address, hosts, cells }
    }

    /// Each for its own host.
    fn attach(&self, world: &World, service: &Service<'_>) -> Vec<Control> {
        let each = self.cells.iter().zip(&self.hosts);
        each.map(|(cell, host)| cell.attached(world, service, &[&host.name])).collect()
    }
}

/// 10,000 requests in all: for each of two hundred hosts, its own sandbox asks 25 times, and another one 25 times. All the
/// while the service reads its files anew, which change.
fn two_hundred_sandboxes_reach_their_own_hosts_and_no_others(world: &World) {
    let crowd = Crowd::new(world, "crowd");
    let Crowd { address, hosts, cells } = &crowd;
    let policy =
        |other: &str| format!("[service.user.{}]\nceiling = [\"*.example.com\", \"{other}\"]\n", world.identity.uid);
    let file = file(world, &policy("one.example.net"));
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let before = service.sockets();
    let leases = crowd.attach(world, &service);
    // Real ones among them.
    let url = hosts[0].http("/[1-50]");
    let others = hosts[1].http("/[1-50]");
    let client =
        curl(&["--output", "/dev/null", "--write-out", "%{http_code}\n", &url, "--output", "/dev/null", &others]);
    let real: Vec<_> = (0..3).map(|_| service.netbox(&["--allow", &hosts[0].name]).start(&client)).collect();
    let mark = world.mark();
    let next = AtomicUsize::new(0);
    let mut reloads = 0;
    thread::scope(|scope| {
        let ask_all = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(cell) = cells.get(number) else { return };
                let (own, other) = (&hosts[number], &hosts[(number + 1 + number % 7) % SANDBOXES]);
                let mut stream = cell.connect().expect("the service accepts");
                for _ in 0..REQUESTS {
                    let (status, body) = request(&mut stream, &own.name, "/page").expect("an answer");
                    assert!(status == 200 && body.starts_with(&format!("hello {} GET /page", own.name)), "{body}");
                    // A refusal ends its connection.
                    let mut refused = cell.connect().expect("the service accepts");
                    let (status, body) = request(&mut refused, &other.name, "/page").expect("an answer");
                    assert!(status == 403 && body.contains("not-listed"), "{status} {body}");
                }
            }
        };
        let asking: Vec<_> = (0..ASKING).map(|_| scope.spawn(ask_all)).collect();
        while !asking.iter().all(|asking| asking.is_finished()) {
            write(&file, &policy(if reloads % 2 == 0 { "other.example.net" } else { "one.example.net" }));
            ask(world, &service, &["reload"]).exits_with(0).complains("read anew; listening on ");
            reloads += 1;
        }
    });
    assert!(reloads > 1, "it was read anew while there was load");
    let arrived = world.arrivals_at(mark, (*address).into());
    let by_name = |name: &str| arrived.iter().filter(|arrival| arrival.name.as_deref() == Some(name)).count();
    // Of the first one the real sandboxes may have asked before.
    let others: Vec<_> = hosts[1..].iter().filter(|host| by_name(&host.name) != REQUESTS).collect();
    assert!(others.is_empty(), "not what their own sandboxes asked for: {others:?}");
    for running in real {
        let outcome = running.finish();
        outcome.exits_with(0);
        assert_eq!(outcome.decisions(&hosts[0].name).len(), 50, "{outcome}");
        assert!(outcome.decisions(&hosts[1].name).iter().all(|decision| decision["verdict"] == "deny"), "{outcome}");
    }
    drop(leases);
    assert!(crate::run::eventually(|| service.sockets() == before), "nothing is left open");
    service.stop().exits_with(0);
}

/// SIGTERM, while twenty of them ask at a time, each as often as it can.
fn a_drain_under_the_load_of_two_hundred_loses_nothing_that_was_taken(world: &World) {
    let crowd = Crowd::new(world, "crowd-drain");
    let events = world.fresh_path("events");
    let service = Service::start(world, &["--events", &events.to_string_lossy()]);
    let leases = crowd.attach(world, &service);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let ask_on = |first: usize| {
            for number in (first..SANDBOXES).step_by(ASKING).cycle() {
                let (cell, host) = (&crowd.cells[number], &crowd.hosts[number]);
                let Ok(mut stream) = cell.connect() else { return };
                // What was not taken is told at once: the connection is reset.
                let Ok((status, body)) = request(&mut stream, &host.name, "/page") else { return };
                assert!(status == 200 && body.starts_with(&format!("hello {} GET /page", host.name)), "{body}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        };
        for first in 0..ASKING {
            scope.spawn(move || ask_on(first));
        }
        assert!(crate::run::eventually(|| answered.load(Ordering::Relaxed) > 1000));
        service.running().signal(Signal::SIGTERM);
        service.finish().exits_with(0);
        // A service that is gone accepts and resets no more. In a run, netbox does.
        for cell in &crowd.cells {
            shutdown(cell.listener.as_raw_fd(), Shutdown::Both).expect("a listener");
        }
    });
    drop(leases);
    let allowed = read_events(&events).iter().filter(|event| event["verdict"] == "allow").count();
    assert_eq!(allowed, answered.load(Ordering::Relaxed), "each that was taken was answered");
    let ends = ends_of(&events);
    assert!(ends.len() == allowed && ends.iter().all(|end| end == "done"), "{ends:?}");
}
