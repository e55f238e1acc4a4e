//! What a program sent before it ended is delivered, and nothing more is waited for.

use std::time::Duration;

use tokio::time::timeout;

use super::world::{World, expect, expect_end, send, soon};

/// Whether all that the sandbox sent has been delivered.
async fn is_delivered(world: &World) -> bool {
    timeout(Duration::ZERO, world.session.deliveries.all()).await.is_ok()
}

#[tokio::test]
async fn a_tunnel_is_delivered_when_the_server_has_its_end_and_not_before() {
    let mut world = World::new(&["github.com:9001"]);
    let server = world.server("203.0.113.10:9001").await;
    let mut client = world.connect("github.com:9001").await;
    let mut upstream = server.accept().await;
    send(&mut client, "last words\n").await;
    expect(&mut upstream, "last words\n").await;
    assert!(!is_delivered(&world).await, "more may come");
    drop(client);
    soon(world.session.deliveries.all()).await;
    // The server still has something to say, and nobody waits for it.
    expect_end(&mut upstream).await;
}

#[tokio::test]
async fn a_request_is_delivered_though_its_answer_is_not_there() {
    let mut world = World::new(&["github.com"]);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("github.com:80").await;
    let request = "POST /log HTTP/1.1\r\nHost: github.com\r\nContent-Length: 4\r\n\r\nlast";
    send(&mut client, request).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, request).await;
    assert!(!is_delivered(&world).await, "the program may want its answer");
    drop(client);
    soon(world.session.deliveries.all()).await;
    expect_end(&mut upstream).await;
}

#[tokio::test]
async fn a_refused_connection_has_nothing_to_deliver_once_it_is_gone() {
    let mut world = World::new(&[]);
    let client = world.connect("evil.example:443").await;
    assert!(!is_delivered(&world).await);
    drop(client);
    soon(world.session.deliveries.all()).await;
    world.assert_untouched();
}
