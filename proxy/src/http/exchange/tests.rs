//! Exchanges byte for byte, through a captured connection to port 80.

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::capture::tests::world::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A client and a server with netbox between them.
struct Between {
    world: World,
    client: TcpStream,
    server: TcpStream,
}

impl Between {
    /// The client has sent these bytes, and the server has received those.
    async fn sent(bytes: impl AsRef<[u8]>, received: impl AsRef<[u8]>) -> Self {
        let mut world = World::new(&["github.com"]);
        let server = world.server("203.0.113.10:80").await;
        let mut client = world.connect("github.com:80").await;
        send(&mut client, bytes).await;
        let mut server = server.accept().await;
        expect(&mut server, received).await;
        Self { world, client, server }
    }

    /// The same bytes on both sides.
    async fn passed(bytes: impl AsRef<[u8]>) -> Self {
        Self::sent(&bytes, &bytes).await
    }

    async fn up(&mut self, bytes: impl AsRef<[u8]>) {
        send(&mut self.client, &bytes).await;
        expect(&mut self.server, &bytes).await;
    }

    async fn down(&mut self, bytes: impl AsRef<[u8]>) {
        send(&mut self.server, &bytes).await;
        expect(&mut self.client, &bytes).await;
    }

    /// A response that reaches the client like this.
    async fn down_as(&mut self, bytes: impl AsRef<[u8]>, received: impl AsRef<[u8]>) {
        send(&mut self.server, bytes).await;
        expect(&mut self.client, received).await;
    }

    /// The client goes away. Gives the events.
    async fn done(self) -> Vec<Value> {
        drop((self.client, self.server));
        self.world.events().await
    }
}

#[tokio::test]
async fn requests_follow_each_other_on_one_upstream_connection() {
    let mut between = Between::passed(GET).await;
    between.down(OK).await;
    for _ in 0..3 {
        between.up("POST /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: 5\r\n\r\nhello").await;
        between.down("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    }
    assert_eq!(between.world.net.dials.lock().unwrap().len(), 1);
    let events = between.done().await;
    assert_eq!((of(&events, "decision").len(), of(&events, "close").len()), (4, 4));
    assert!(of(&events, "close").iter().all(|close| close["end"] == "done"));
}

#[tokio::test]
async fn server_sent_events_arrive_as_they_are_sent() {
    for (head, chunks) in [
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n", false),
    ] {
        let mut between = Between::passed(GET).await;
        between.down(head).await;
        for number in 0..5 {
            let event = format!("data: {number}\n\n");
            // The next one is sent only once this one was seen.
            between.down(if chunks { format!("{:x}\r\n{event}\r\n", event.len()) } else { event }).await;
        }
        // Also a part of a chunk.
        between.down(if chunks { "20\r\ndata: " } else { "data: " }).await;
        between.down("half ").await;
        between.done().await;
    }
}

#[tokio::test]
async fn a_body_is_sent_on_as_it_arrives() {
    let mut between = Between::passed("PUT /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: 10\r\n\r\n").await;
    between.up("hello").await;
    between.up("world").await;
    between.down(OK).await;
    between.up("PUT /x HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    between.up("5\r\nhel").await;
    between.up("lo\r\n").await;
    between.up("0\r\nSum: 1\r\n\r\n").await;
    between.down(OK).await;
    assert_eq!(of(&between.done().await, "close").len(), 2);
}

#[tokio::test]
async fn a_server_may_answer_while_the_body_is_still_sent() {
    let mut between =
        Between::passed("POST /x HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
    between.down("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n").await;
    between.up("1\r\nb\r\n").await;
    between.down("1\r\nB\r\n").await;
    between.up("0\r\n\r\n").await;
    between.down("0\r\n\r\n").await;
    between.up(GET).await;
    between.down(OK).await;
    between.done().await;
}

/// What the client sends after that could be taken for the body by one and for a request by the other.
#[tokio::test]
async fn an_answer_before_the_end_of_the_body_is_the_last_one() {
    let mut between = Between::passed("POST /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: 100\r\n\r\nhello").await;
    let refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    between.down(refusal).await;
    send(&mut between.client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_end(&mut between.client).await;
    expect_end(&mut between.server).await;
    one_close(&between.done().await, "done");
}

#[tokio::test]
async fn an_answer_arrives_although_the_server_stops_reading() {
    let mut between = Between::passed("PUT /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: 100000000\r\n\r\n").await;
    send(&mut between.server, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    between.server.shutdown().await.unwrap();
    expect(&mut between.client, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    drop(between.server);
    drop(between.client);
    one_close(&between.world.events().await, "done");
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it() {
    let mut between =
        Between::passed("PUT /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            .await;
    between.down("HTTP/1.1 100 Continue\r\n\r\n").await;
    between.up("hello").await;
    between.down("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
    between.down(OK).await;
    between.up(GET).await;
    between.done().await;
}

#[tokio::test]
async fn a_pipelined_request_waits_for_the_answer_before_it() {
    let mut between = Between::sent(format!("{GET}{GET}"), GET).await;
    // Had the second one been sent on, its first byte would come before the end of what is sent now.
    between.down("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
    assert_eq!(between.server.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    between.down("k").await;
    expect(&mut between.server, GET).await;
    between.down(OK).await;
    assert_eq!(of(&between.done().await, "decision").len(), 2);
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: github.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

#[tokio::test]
async fn a_websocket_becomes_a_tunnel_after_its_101() {
    let mut between = Between::sent(format!("{UPGRADE}early"), UPGRADE).await;
    between.down(format!("{SWITCHING}server's")).await;
    expect(&mut between.server, "early").await;
    // Whatever looks like a request is none any more.
    between.up("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    between.down(b"\x81\x02ok").await;
    between.client.shutdown().await.unwrap();
    expect_end(&mut between.server).await;
    between.down("bye").await;
    let events = between.done().await;
    one_decision(&events, "allow", "listed");
    let close = one_close(&events, "done");
    assert_eq!(close["received"], SWITCHING.len() + 8 + 4 + 3);
}

#[tokio::test]
async fn an_upgrade_that_is_declined_leaves_http() {
    let mut between = Between::passed(UPGRADE).await;
    between
        .down("HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: other\r\nContent-Length: 0\r\n\r\n")
        .await;
    between.up(GET).await;
    between.down(OK).await;
    send(&mut between.client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut between.client, "403").await;
}

#[tokio::test]
async fn a_101_before_the_end_of_the_body_ends_the_connection() {
    let upgrade = UPGRADE.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n");
    let mut between = Between::passed(upgrade).await;
    between.down(SWITCHING).await;
    expect_reset(&mut between.client).await;
    one_close(&between.done().await, "upstream");
}

#[tokio::test]
async fn responses_without_a_body_have_none() {
    for (request, response) in [
        (GET.replace("GET", "HEAD"), "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        (GET.replace("GET", "HEAD"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (GET.to_owned(), "HTTP/1.1 204 No Content\r\n\r\n"),
        (GET.to_owned(), "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"),
    ] {
        let mut between = Between::passed(request).await;
        between.down(response).await;
        between.up(GET).await;
        between.down(OK).await;
        between.done().await;
    }
}

#[tokio::test]
async fn a_response_goes_on_without_what_concerned_its_hop() {
    let mut between = Between::passed(GET).await;
    between
        .down_as(
            "HTTP/1.1 200 Fine\nServer: x\nX-Hop: 1\nConnection: X-Hop, Upgrade\nUpgrade: h2,h2c\nKeep-Alive: timeout=5\n\
             Content-Length: 0\nset-cookie: a\nSet-Cookie: b\n\n",
            "HTTP/1.1 200 Fine\r\nServer: x\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\nset-cookie: a\r\nSet-Cookie: b\r\n\r\n",
        )
        .await;
    between.up(GET).await;
    between.done().await;
}

#[tokio::test]
async fn trailers_and_the_bounds_of_chunks_are_kept() {
    let mut between = Between::passed(GET).await;
    between
        .down_as(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nTrailer: Sum\r\n\r\n003;x=y\r\nabc\r\n2\r\nde\r\n0\r\nSum: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nTrailer: Sum\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nSum: 5\r\n\r\n",
        )
        .await;
    between.done().await;
}

#[tokio::test]
async fn the_connection_ends_when_one_side_wants_it() {
    let closing = OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let mut between = Between::passed(GET).await;
    between.down(&closing).await;
    expect_end(&mut between.client).await;
    between.done().await;

    let mut between = Between::passed(GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).await;
    between.down_as(OK, &closing).await;
    expect_end(&mut between.client).await;
    expect_end(&mut between.server).await;
    between.done().await;

    let mut between = Between::passed("GET / HTTP/1.0\r\nHost: github.com\r\nConnection: keep-alive\r\n\r\n").await;
    between.down("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok").await;
    between.up(GET).await;
    between.done().await;
}

#[tokio::test]
async fn a_server_that_ends_an_idle_connection_ends_the_clients() {
    let mut between = Between::passed(GET).await;
    between.down(OK).await;
    drop(between.server);
    expect_end(&mut between.client).await;
    drop(between.client);
    one_close(&between.world.events().await, "done");
}

#[tokio::test]
async fn what_a_server_sends_unasked_is_never_passed_on() {
    let mut between = Between::passed(GET).await;
    between.down(OK).await;
    send(&mut between.server, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").await;
    expect_end(&mut between.client).await;

    let mut between = Between::passed(GET).await;
    between.down_as(format!("{OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), OK).await;
    expect_end(&mut between.client).await;
    expect_end(&mut between.server).await;
}

#[tokio::test]
async fn a_truncated_response_ends_early() {
    for (body, end) in [("Content-Length: 5\r\n\r\nhe", "he"), ("Transfer-Encoding: chunked\r\n\r\n5\r\nhe", "5\r\nhe")]
    {
        let mut between = Between::passed(GET).await;
        between.down(format!("HTTP/1.1 200 OK\r\n{body}")).await;
        drop(between.server);
        expect_end(&mut between.client).await;
        drop(between.client);
        let events = between.world.events().await;
        assert!(one_close(&events, "upstream")["received"].as_u64().unwrap() > end.len() as u64);
    }
}

#[tokio::test]
async fn a_server_that_ends_without_an_answer_is_a_reset() {
    let mut between = Between::passed(GET).await;
    drop(between.server);
    expect_reset(&mut between.client).await;
    one_close(&between.world.events().await, "upstream");
}

#[tokio::test]
async fn a_client_may_half_close_behind_its_request() {
    let mut between = Between::passed(GET).await;
    between.client.shutdown().await.unwrap();
    expect_end(&mut between.server).await;
    between.down(OK).await;
    expect_end(&mut between.client).await;
    one_close(&between.done().await, "done");
}

#[tokio::test]
async fn a_client_that_resets_resets_the_server() {
    let between = Between::passed(GET).await;
    let Between { world, client, mut server } = between;
    client.set_zero_linger().unwrap();
    drop(client);
    expect_reset(&mut server).await;
    one_close(&world.events().await, "reset");
}

#[tokio::test]
async fn a_large_body_passes_whole_both_ways() {
    let size = 20 << 20;
    let body: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
    let head = format!("PUT /x HTTP/1.1\r\nHost: github.com\r\nContent-Length: {size}\r\n\r\n");
    let mut between = Between::passed(&head).await;
    let (sent, received) = (body.clone(), body.clone());
    let (mut client, mut server) = (between.client, between.server);
    let sending = tokio::spawn(async move {
        send(&mut client, sent).await;
        client
    });
    let mut got = vec![0; received.len()];
    soon(tokio::io::AsyncReadExt::read_exact(&mut server, &mut got)).await.unwrap();
    assert!(got == received);
    client = sending.await.unwrap();
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
    let sending = tokio::spawn(async move {
        send(&mut server, [response.into_bytes(), body].concat()).await;
        server
    });
    expect(&mut client, format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")).await;
    soon(tokio::io::AsyncReadExt::read_exact(&mut client, &mut got)).await.unwrap();
    assert!(got == received);
    between.client = client;
    between.server = sending.await.unwrap();
    // The bounds of the bodies were kept: the next exchange follows.
    between.up(GET).await;
    between.down(OK).await;
    let events = between.done().await;
    assert_eq!(of(&events, "close")[0]["sent"], head.len() + size as usize);
}
