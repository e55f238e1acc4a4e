//! Many sandboxes at one service, each with a policy of its own.

use std::thread;

use crate::control::{Cell, request};
use crate::programs::{CURL, curl};
use crate::service::Service;
use crate::tests;
use crate::world::World;

tests![two_hundred_sandboxes_reach_their_own_hosts_and_no_others needs [CURL]];

/// How many sandboxes, how many of them ask at a time, and how often each asks for its own host and for another one's.
const SANDBOXES: usize = 200;
const ASKING: usize = 20;
const REQUESTS: usize = 25;

/// 10,000 requests in all: for each of two hundred hosts, its own sandbox asks 25 times, and another one 25 times.
fn two_hundred_sandboxes_reach_their_own_hosts_and_no_others(world: &World) {
    let address = world.zone().host("crowd").v4();
    let hosts: Vec<_> =
        (0..SANDBOXES).map(|number| world.zone().host_at(&format!("crowd-{number}"), &[address.into()])).collect();
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let cells: Vec<_> = (0..SANDBOXES).map(|_| Cell::new()).collect();
    let leases: Vec<_> =
        cells.iter().zip(&hosts).map(|(cell, host)| cell.attached(world, &service, &[&host.name])).collect();
    // Real ones among them.
    let url = hosts[0].http("/[1-50]");
    let others = hosts[1].http("/[1-50]");
    let client =
        curl(&["--output", "/dev/null", "--write-out", "%{http_code}\n", &url, "--output", "/dev/null", &others]);
    let real: Vec<_> = (0..3).map(|_| service.netbox(&["--allow", &hosts[0].name]).start(&client)).collect();
    let mark = world.mark();
    let next = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..ASKING {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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
            });
        }
    });
    let arrived = world.arrivals_at(mark, address.into());
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
