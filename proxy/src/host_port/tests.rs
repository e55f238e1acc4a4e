use netbox_config::{Mode, Port, RuleRef};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::capture::tests::world::{World, expect, expect_reset, of, one_close, one_decision, rest, send, soon};

fn door() -> HostPort {
    let rule = RuleRef { text: "3000:8000".into(), source: "--host-port".into() };
    HostPort { port: Port::new(8000).unwrap(), rule }
}

/// A program's connection to the port.
async fn connect(world: &World) -> (TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    (client, tokio::spawn(handle(Arc::clone(&world.session), accepted, &Arc::new(door()))))
}

#[tokio::test]
async fn bytes_pass_both_ways_and_the_end_of_one_leaves_the_other() {
    for mode in [Mode::None, Mode::Allowlist, Mode::Audit, Mode::Open] {
        let world = World::with(mode, &[], &[]);
        let server = world.server("127.0.0.1:8000").await;
        let (mut client, carried) = connect(&world).await;
        let mut far = server.accept().await;
        // No look at the bytes: a request to any host, and one that is none.
        send(&mut client, "GET http://evil.example/ HTTP/1.1\r\n\r\n").await;
        expect(&mut far, "GET http://evil.example/ HTTP/1.1\r\n\r\n").await;
        soon(tokio::io::AsyncWriteExt::shutdown(&mut client)).await.unwrap();
        assert_eq!(rest(&mut far).await, b"");
        send(&mut far, "after the end").await;
        drop(far);
        assert_eq!(rest(&mut client).await, b"after the end");
        soon(carried).await.unwrap();
        let events = world.events().await;
        let decision = one_decision(&events, "allow", "listed");
        assert_eq!((&decision["host"], &decision["port"]), (&"127.0.0.1".into(), &8000.into()), "in mode {mode}");
        assert_eq!(decision["rule"], serde_json::json!({ "text": "3000:8000", "source": "--host-port" }));
        assert_eq!(one_close(&events, "done")["addr"], "127.0.0.1:8000");
    }
}

#[tokio::test]
async fn nobody_on_the_host_is_a_reset_and_an_error_of_the_far_side() {
    let world = World::with(Mode::None, &[], &[]);
    let (mut client, carried) = connect(&world).await;
    expect_reset(&mut client).await;
    soon(carried).await.unwrap();
    one_decision(&world.events().await, "error", "refused");
}

#[tokio::test]
async fn a_deny_rule_holds() {
    let world = World::with(Mode::Open, &[], &["127.0.0.1:8000"]);
    let (mut client, carried) = connect(&world).await;
    expect_reset(&mut client).await;
    soon(carried).await.unwrap();
    world.assert_untouched();
    let events = world.events().await;
    assert_eq!(one_decision(&events, "deny", "denied")["rule"]["text"], "127.0.0.1:8000");
}

#[tokio::test]
async fn what_is_too_much_is_reset_and_told() {
    let world = World::with(Mode::None, &[], &[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    refuse_over_limit(&world.session, listener.accept().await.unwrap().0, &door());
    expect_reset(&mut client).await;
    world.assert_untouched();
    let events = world.events().await;
    assert_eq!(of(&events, "decision")[0]["reason"], "limit");
}
