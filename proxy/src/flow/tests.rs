//! Policies that change under connections: what is still allowed never knows, what is not ends as `revoked`.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use netbox_config::{Mode, Policy, VettedAddr};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;
use crate::capture::tests::world::*;
use crate::client_hello::tests::hello;
use crate::dial::{DialError, Dialed, Dialer};
use crate::pipeline::{self, Grant};
use crate::resolve::Pending;
use crate::session::Session;

const GET: &str = "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn allowing(allow: &[&str]) -> Arc<Policy> {
    policy(Mode::Allowlist, allow, &[])
}

/// A tunnel of a program to `github.com:22`, whose server has spoken: the program's end and the server's.
async fn tunnel(world: &mut World) -> (TcpStream, TcpStream) {
    let server = world.server("203.0.113.10:22").await;
    let mut client = world.connect("github.com:22").await;
    let mut upstream = server.accept().await;
    send(&mut upstream, "SSH-2.0-server\r\n").await;
    expect(&mut client, "SSH-2.0-server\r\n").await;
    (client, upstream)
}

/// It still carries bytes both ways.
async fn lives((client, upstream): &mut (TcpStream, TcpStream)) {
    send(client, "ping").await;
    expect(upstream, "ping").await;
    send(upstream, "pong").await;
    expect(client, "pong").await;
}

#[test]
fn a_flow_is_known_until_its_last_handle_is_dropped() {
    let flows = Flows::default();
    let one = flows.enter(&Arc::default());
    let other = Arc::clone(&one);
    assert_eq!((flows.count(), flows.live().len()), (1, 1));
    drop(one);
    assert_eq!(flows.count(), 1);
    drop(other);
    assert_eq!((flows.count(), flows.live().len()), (0, 0));
}

#[tokio::test]
async fn a_revocation_is_seen_before_while_and_after_it_is_waited_for() {
    let flows = Flows::default();
    let flow = flows.enter(&Arc::default());
    let waiting = tokio::spawn(flow.revocation());
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    flow.revoke();
    soon(waiting).await.unwrap();
    soon(flow.revocation()).await;
    assert!(flow.is_revoked());
}

#[tokio::test]
async fn who_waits_in_another_task_is_woken_there() {
    let flow = Flows::default().enter(&Arc::default());
    let mut revocation = flow.revocation();
    std::future::poll_fn(|context| {
        assert!(Pin::new(&mut revocation).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    let waiting = tokio::spawn(revocation);
    tokio::task::yield_now().await;
    flow.revoke();
    soon(waiting).await.unwrap();
}

#[tokio::test]
async fn a_tunnel_that_is_no_longer_allowed_is_reset_on_both_sides() {
    for narrower in [
        allowing(&["api.github.com:22"]),
        allowing(&["github.com:443"]),
        policy(Mode::Allowlist, &["github.com:22"], &["github.com"]),
        // By the address that was dialled.
        policy(Mode::Allowlist, &["github.com:22"], &["203.0.113.0/24"]),
        policy(Mode::None, &[], &[]),
    ] {
        let mut world = World::new(&["github.com:22"]);
        let (mut client, mut upstream) = tunnel(&mut world).await;
        assert_eq!(world.session.replace_policy(narrower), 1);
        expect_reset(&mut client).await;
        expect_reset(&mut upstream).await;
        let events = world.events().await;
        one_decision(&events, "allow", "listed");
        assert_eq!(one_close(&events, "revoked")["received"], 16);
    }
}

#[tokio::test]
async fn what_is_still_allowed_never_knows() {
    for other in [
        allowing(&["github.com:22"]),
        allowing(&["*.github.com:22", "github.com:*", "evil.example"]),
        allowing(&["tcp://github.com:22"]),
        policy(Mode::Open, &[], &[]),
        policy(Mode::Audit, &[], &["evil.example"]),
    ] {
        let mut world = World::new(&["github.com:22"]);
        let mut ends = tunnel(&mut world).await;
        lives(&mut ends).await;
        assert_eq!(world.session.replace_policy(other), 0);
        lives(&mut ends).await;
        drop(ends);
        one_close(&world.events().await, "done");
    }
}

#[tokio::test]
async fn others_of_the_same_sandbox_live_on() {
    let mut world = World::new(&["github.com:22", "evil.example:9"]);
    let mut ends = tunnel(&mut world).await;
    let server = world.server("203.0.113.66:9").await;
    let mut client = world.connect("evil.example:9").await;
    let mut upstream = server.accept().await;
    send(&mut upstream, "ready").await;
    expect(&mut client, "ready").await;
    assert_eq!(world.session.replace_policy(allowing(&["github.com:22"])), 1);
    expect_reset(&mut client).await;
    lives(&mut ends).await;
    // And a new one is judged by the new policy.
    let mut refused = world.connect("evil.example:9").await;
    expect_reset(&mut refused).await;
    drop(ends);
    let events = world.events().await;
    let told: Vec<_> = of(&events, "decision").iter().map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(told, ["listed", "listed", "not-listed"]);
}

#[tokio::test]
async fn a_connection_that_has_said_nothing_is_refused_and_nothing_is_dialled() {
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:443").await;
    // Both the connection before it is polled, and one that waits.
    tokio::task::yield_now().await;
    assert_eq!(world.session.replace_policy(allowing(&[])), 1);
    expect_reset(&mut client).await;
    world.assert_untouched();
    one_decision(&world.events().await, "deny", "revoked");
}

#[tokio::test]
async fn a_server_name_that_is_denied_now_ends_the_tunnel_to_an_address() {
    let mut world = World::new(&["203.0.113.10:443"]);
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect("203.0.113.10:443").await;
    let bytes = hello("evil.example");
    send(&mut client, &bytes).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, &bytes).await;
    assert_eq!(world.session.replace_policy(policy(Mode::Allowlist, &["203.0.113.10:443"], &["other.example"])), 0);
    assert_eq!(world.session.replace_policy(policy(Mode::Allowlist, &["203.0.113.10:443"], &["evil.example"])), 1);
    expect_reset(&mut client).await;
    expect_reset(&mut upstream).await;
    one_close(&world.events().await, "revoked");
}

#[tokio::test]
async fn what_passed_by_the_mode_alone_ends_with_it() {
    // Another server name than the listed one, which mode `audit` lets through.
    let mut world = World::with(Mode::Audit, &["github.com"], &[]);
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect("github.com:443").await;
    let bytes = hello("evil.example");
    send(&mut client, &bytes).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, &bytes).await;
    assert_eq!(world.session.replace_policy(allowing(&["github.com"])), 1);
    expect_reset(&mut client).await;
    one_close(&world.events().await, "revoked");
}

#[tokio::test]
async fn what_nobody_looked_at_ends_where_it_would_be_looked_at_now() {
    let mut world = World::new(&["tcp://github.com:443"]);
    let server = world.server("203.0.113.10:443").await;
    let mut client = world.connect("github.com:443").await;
    let mut upstream = server.accept().await;
    send(&mut client, "anything").await;
    expect(&mut upstream, "anything").await;
    assert_eq!(world.session.replace_policy(allowing(&["github.com"])), 1);
    expect_reset(&mut client).await;
    expect_reset(&mut upstream).await;
    one_close(&world.events().await, "revoked");
}

#[tokio::test]
async fn requests_of_one_connection_end_with_their_permit() {
    let mut world = World::new(&["github.com"]);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("github.com:80").await;
    send(&mut client, GET).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    // Idle, and allowed by another rule: the next request is told with that one.
    assert_eq!(world.session.replace_policy(allowing(&[".github.com"])), 0);
    send(&mut client, GET).await;
    expect(&mut upstream, GET).await;
    // In the middle of an exchange.
    assert_eq!(world.session.replace_policy(allowing(&["evil.example"])), 1);
    expect_reset(&mut client).await;
    let events = world.events().await;
    let rules: Vec<_> = of(&events, "decision").iter().map(|event| event["rule"]["text"].as_str().unwrap()).collect();
    assert_eq!(rules, ["github.com", ".github.com"]);
    let ends: Vec<_> = of(&events, "close").iter().map(|event| event["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["done", "revoked"]);
}

#[tokio::test]
async fn a_name_in_a_request_that_is_denied_now_ends_the_exchange_with_an_address() {
    let mut world = World::new(&["203.0.113.10:80"]);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("203.0.113.10:80").await;
    send(&mut client, GET).await;
    expect(&mut server.accept().await, GET).await;
    assert_eq!(world.session.replace_policy(policy(Mode::Allowlist, &["203.0.113.10:80"], &["github.com"])), 1);
    expect_reset(&mut client).await;
    one_close(&world.events().await, "revoked");
}

#[tokio::test]
async fn a_proxy_connection_asks_for_a_new_way_after_a_change() {
    let mut world = World::new(&["github.com"]);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.explicit().await;
    let request = "GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n";
    for _ in 0..2 {
        send(&mut client, request).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, GET).await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
        // The connection is idle. Another way is found by the new policy, for the address is judged by that.
        assert_eq!(world.session.replace_policy(allowing(&["github.com", "evil.example"])), 0);
    }
    assert_eq!(world.session.replace_policy(allowing(&["evil.example"])), 1);
    expect_reset(&mut client).await;
    world.events().await;
}

/// Replaces the policy while it dials.
struct Replacing {
    net: Arc<Net>,
    with: Mutex<Option<Arc<Policy>>>,
    session: Arc<OnceLock<Weak<Session>>>,
}

impl Dialer for Replacing {
    fn dial<'a>(&'a self, addresses: &'a [VettedAddr]) -> Pending<'a, Result<Dialed, DialError>> {
        let session = self.session.get().and_then(Weak::upgrade).unwrap();
        if let Some(policy) = self.with.lock().unwrap().take() {
            session.replace_policy(policy);
        }
        self.net.dial(addresses)
    }
}

#[tokio::test]
async fn a_change_while_it_is_dialled_is_not_missed() {
    // One that the flows know enough for at that moment, and one about the address, which they do not know yet.
    for narrower in [allowing(&[]), policy(Mode::Allowlist, &["github.com"], &["203.0.113.10"])] {
        let mut world = World::new(&["github.com"]);
        let server = world.server("203.0.113.10:443").await;
        let own = Arc::new(OnceLock::new());
        let dialer =
            Replacing { net: Arc::clone(&world.net), with: Mutex::new(Some(narrower)), session: Arc::clone(&own) };
        Arc::get_mut(&mut world.session).unwrap().dialer = Arc::new(dialer);
        own.set(Arc::downgrade(&world.session)).unwrap();
        let mut client = world.explicit().await;
        send(&mut client, "CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\n\r\n").await;
        let body = expect_answer(&mut client, "403").await;
        assert!(body.contains("`github.com:443` is refused: the policy has changed (revoked)"), "{body}");
        expect_end(&mut server.accept().await).await;
        drop(client);
        one_decision(&world.events().await, "deny", "revoked");
    }
}

/// Whatever the threads do at whatever moment: who was permitted by the old policy is revoked.
#[test]
fn none_slips_through_between_its_judgement_and_its_place_among_the_flows() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let world = World::new(&["github.com"]);
    for _ in 0..500 {
        let session = &world.session;
        session.replace_policy(allowing(&["github.com"]));
        let target = pipeline::target(
            session,
            netbox_config::Host::parse_wire(b"github.com").unwrap(),
            netbox_config::Port::HTTPS,
            netbox_config::Via::Capture,
        );
        let asked = Asked::Target(target);
        let begun = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let admitting = || {
                // The last ones alone, so that going through the flows takes no longer than a judgement.
                let mut admitted = VecDeque::new();
                loop {
                    let flow = session.enter();
                    match pipeline::admit(session, &flow, &asked) {
                        Ok(Grant { .. }) => admitted.push_back(flow),
                        Err(_) => return admitted,
                    }
                    begun.fetch_add(1, Ordering::Relaxed);
                    if admitted.len() > 2 {
                        admitted.pop_front();
                    }
                }
            };
            let crowd: Vec<_> = (0..3).map(|_| threads.spawn(admitting)).collect();
            while begun.load(Ordering::Relaxed) < 30 {
                std::hint::spin_loop();
            }
            session.replace_policy(allowing(&["evil.example"]));
            for one in crowd {
                assert!(one.join().unwrap().iter().all(|flow| flow.is_revoked()));
            }
        });
    }
}

#[tokio::test]
async fn a_port_of_the_hosts_closes_with_a_deny_rule() {
    let world = World::with(Mode::None, &[], &[]);
    let session = &world.session;
    let rule = netbox_config::RuleRef { text: "3000:8000".into(), source: "--host-port".into() };
    let door = netbox_config::HostPort { port: netbox_config::Port::new(8000).unwrap(), rule };
    let flow = session.enter();
    pipeline::admit(session, &flow, &Asked::HostPort(Arc::new(door))).unwrap();
    flow.reached("127.0.0.1:8000".parse().unwrap());
    assert_eq!(session.replace_policy(policy(Mode::None, &[], &["127.0.0.1:9"])), 0);
    assert_eq!(session.replace_policy(policy(Mode::None, &[], &["127.0.0.1:8000"])), 1);
}

#[tokio::test]
async fn the_next_connect_and_the_next_question_go_by_the_new_policy() {
    let mut world = World::new(&["github.com:22"]);
    let mut client = world.connect("evil.example:22").await;
    expect_reset(&mut client).await;
    world.session.replace_policy(allowing(&["evil.example:22"]));
    let server = world.server("203.0.113.66:22").await;
    let mut client = world.connect("evil.example:22").await;
    let mut upstream = server.accept().await;
    client.shutdown().await.unwrap();
    expect_end(&mut upstream).await;
    drop((client, upstream));
    world.events().await;
}
