//! Requests in absolute form that travel, by `tests/cases/http.jsonl` and beyond: each is judged, and goes to its own
//! server.

use super::*;
use crate::resolve::LookupError;

const GET: &str = "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n";
const EVIL: &str = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";

/// A request that arrives upstream like this. Gives both ends.
async fn forwarded(world: &mut World, bytes: impl AsRef<[u8]>, upstream_bytes: &str) -> (TcpStream, TcpStream) {
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.explicit().await;
    send(&mut client, bytes).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, upstream_bytes).await;
    (client, upstream)
}

/// That the server has said nothing which could be passed on.
async fn expect_502(client: &mut TcpStream) {
    let answer = String::from_utf8(rest(client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("\r\nProxy-Status: netbox; error=http_response_incomplete\r\n"), "{answer}");
}

#[tokio::test]
async fn h001_a_request_passes_in_origin_form() {
    for url in ["http://github.com/", "http://github.com:80/", "HTTP://GitHub.com./", "http://github.com"] {
        let mut world = World::new(&["github.com"]);
        let request = format!("GET {url} HTTP/1.1\r\nHost: github.com\r\n\r\n");
        let (mut client, mut upstream) = forwarded(&mut world, request, GET).await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
        drop(client);
        expect_end(&mut upstream).await;
        let events = world.events().await;
        let decision = one_decision(&events, "allow", "listed");
        assert_eq!(
            (&decision["host"], &decision["port"], &decision["via"]),
            (&"github.com".into(), &80.into(), &"http".into())
        );
        assert_eq!((&decision["method"], &decision["rule"]["text"]), (&"GET".into(), &"github.com".into()));
        let close = one_close(&events, "done");
        assert_eq!((&close["sent"], &close["received"]), (&GET.len().into(), &OK.len().into()));
        assert_eq!(close["addr"], "203.0.113.10:80");
    }
}

#[tokio::test]
async fn h007_http_1_0_without_host_gets_it_from_the_target() {
    let mut world = World::new(&["github.com"]);
    let expected = "GET / HTTP/1.0\r\nHost: github.com\r\n\r\n";
    let (mut client, mut upstream) = forwarded(&mut world, "GET http://github.com/ HTTP/1.0\r\n\r\n", expected).await;
    send(&mut upstream, "HTTP/1.0 200 OK\r\n\r\nto the end").await;
    drop(upstream);
    assert_eq!(rest(&mut client).await, b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nto the end");
    drop(client);
    one_close(&world.events().await, "done");
}

/// The second request is refused, and the first one's server sees nothing of it.
async fn second_is_refused(second: &str, pipelined: bool, reason: &str) {
    let mut world = World::new(&["github.com"]);
    let first = get("http://github.com/");
    let bytes = if pipelined { format!("{first}{second}") } else { first };
    let (mut client, mut upstream) = forwarded(&mut world, bytes, GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    if !pipelined {
        send(&mut client, second).await;
    }
    expect_answer(&mut client, "403").await;
    expect_end(&mut upstream).await;
    assert_eq!(*world.net.lookups.lock().unwrap(), ["github.com"]);
    assert_eq!(world.net.dials.lock().unwrap().len(), 1);
    drop(client);
    let events = world.events().await;
    assert_eq!(reasons(&events), ["listed", reason]);
    let ids: Vec<_> = of(&events, "decision").iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(one_close(&events, "done")["id"], ids[0]);
}

#[tokio::test]
async fn h035_the_second_request_of_a_connection_is_judged() {
    second_is_refused(EVIL, false, "not-listed").await;
    second_is_refused("GET http://github.com/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", false, "host-mismatch").await;
    second_is_refused("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", false, "not-listed").await;
    second_is_refused("CONNECT github.com:22 HTTP/1.1\r\nHost: github.com\r\n\r\n", false, "port-not-listed").await;
}

#[tokio::test]
async fn h036_a_pipelined_request_is_judged() {
    second_is_refused(EVIL, true, "not-listed").await;
    second_is_refused("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", true, "not-listed").await;
}

#[tokio::test]
async fn h037_each_host_has_a_connection_of_its_own() {
    let mut world = World::new(&["a.example", "b.example"]);
    world.resolves("a.example", Ok(&["203.0.113.20"]));
    world.resolves("b.example", Ok(&["203.0.113.21"]));
    let (server_a, server_b) = (world.server("203.0.113.20:80").await, world.server("203.0.113.21:80").await);
    let mut client = world.explicit().await;
    let mut upstreams = Vec::new();
    for (name, server) in [("a", &server_a), ("b", &server_b), ("a", &server_a)] {
        send(&mut client, get(&format!("http://{name}.example/"))).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, format!("GET / HTTP/1.1\r\nHost: {name}.example\r\n\r\n")).await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
        upstreams.push(upstream);
    }
    // The same host again travels on the connection that is there.
    send(&mut client, get("http://a.example/2")).await;
    expect(&mut upstreams[2], "GET /2 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
    expect_end(&mut upstreams[0]).await;
    expect_end(&mut upstreams[1]).await;
    drop((client, upstreams));
    assert_eq!(world.net.dials.lock().unwrap().len(), 3);
    assert_eq!(reasons(&world.events().await), ["listed"; 4]);
}

#[tokio::test]
async fn another_port_is_another_connection() {
    let mut world = World::new(&["github.com:80,8080"]);
    let other = world.server("203.0.113.10:8080").await;
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    send(&mut client, get("http://github.com:8080/")).await;
    expect(&mut other.accept().await, "GET / HTTP/1.1\r\nHost: github.com:8080\r\n\r\n").await;
    expect_end(&mut upstream).await;
}

#[tokio::test]
async fn a_connection_may_become_a_tunnel() {
    let mut world = World::new(&["github.com:80,9"]);
    let server = world.server("203.0.113.10:9").await;
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    send(&mut client, connect("github.com:9")).await;
    expect(&mut client, ESTABLISHED).await;
    expect_end(&mut upstream).await;
    send(&mut client, b"\0\x01").await;
    expect(&mut server.accept().await, b"\0\x01").await;
    drop(client);
    let events = world.events().await;
    let vias: Vec<_> = of(&events, "decision").iter().map(|event| event["via"].as_str().unwrap()).collect();
    assert_eq!(vias, ["http", "connect"]);
}

#[tokio::test]
async fn h051_a_chunk_size_that_overflows_is_refused() {
    let fields = "Host: github.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut world = World::new(&["github.com"]);
    let request = format!("POST http://github.com/ HTTP/1.1\r\n{fields}FFFFFFFFFFFFFFFF0\r\nx");
    let (mut client, mut upstream) = forwarded(&mut world, request, &format!("POST / HTTP/1.1\r\n{fields}")).await;
    expect_answer(&mut client, "400").await;
    expect_reset(&mut upstream).await;
    drop(client);
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    assert_eq!(one_close(&events, "refused")["reason"], "malformed");
}

#[tokio::test]
async fn h063_an_upgrade_to_h2c_is_taken_out() {
    let fields = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let request = format!("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{fields}");
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, request, GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn h065_a_101_that_was_not_asked_for_ends_the_connection() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/") + EVIL, GET).await;
    send(&mut upstream, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n").await;
    expect_502(&mut client).await;
    expect_end(&mut upstream).await;
    drop(client);
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    one_close(&events, "upstream");
}

#[tokio::test]
async fn h073_a_response_that_can_be_read_in_two_ways_is_answered_with_502() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
        "ICY 200 OK\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", "A: b\r\n".repeat(10_000)),
        format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(1_000_000)),
    ] {
        let mut world = World::new(&["github.com"]);
        let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
        let _ = upstream.write_all(response.as_bytes()).await;
        expect_502(&mut client).await;
        drop(upstream);
        drop(client);
        one_close(&world.events().await, "upstream");
    }
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
    let _ = upstream.write_all("HTTP/1.1 102 Processing\r\n\r\n".repeat(1000).as_bytes()).await;
    assert_eq!(rest(&mut client).await, "HTTP/1.1 102 Processing\r\n\r\n".repeat(33).as_bytes());
    drop((client, upstream));
    one_close(&world.events().await, "upstream");
}

#[tokio::test]
async fn h079_forwarding_fields_decide_nothing() {
    let fields = "Via: 1.1 evil.example\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: evil.example\r\n\r\n";
    let request = format!("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{fields}");
    let mut world = World::new(&["github.com"]);
    let expected = format!("GET / HTTP/1.1\r\nHost: github.com\r\n{fields}");
    drop(forwarded(&mut world, request, &expected).await);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn h080_a_body_that_looks_like_a_request_stays_a_body() {
    let fields = "Host: github.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let size = EVIL.len();
    let mut world = World::new(&["github.com"]);
    let chunked = format!("DELETE http://github.com/x HTTP/1.1\r\n{fields}{size:X};ext=1\r\n{EVIL}\r\n0\r\n\r\n");
    let expected = format!("DELETE /x HTTP/1.1\r\n{fields}{size:x}\r\n{EVIL}\r\n0\r\n\r\n");
    let (mut client, mut upstream) = forwarded(&mut world, chunked, &expected).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    drop((client, upstream));
    assert_eq!(reasons(&world.events().await), ["listed"]);
}

#[tokio::test]
async fn fields_for_the_proxy_alone_stay_behind() {
    let fields = "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nConnection: keep-alive, X-Hop\r\n\
                  X-Hop: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nAccept: */*\r\n\r\n";
    let request = format!("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{fields}");
    let mut world = World::new(&["github.com"]);
    let expected = "GET / HTTP/1.1\r\nHost: github.com\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n";
    drop(forwarded(&mut world, request, expected).await);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn server_sent_events_arrive_as_they_are_sent() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    // The next one is sent only once the one before was seen.
    for bytes in [head, "9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", "20\r\ndata: ", "half "] {
        send(&mut upstream, bytes).await;
        expect(&mut client, bytes).await;
    }
}

#[tokio::test]
async fn a_websocket_goes_on_as_a_tunnel() {
    let fields = "Host: github.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut world = World::new(&["github.com"]);
    let request = format!("GET http://github.com/ws HTTP/1.1\r\n{fields}");
    let (mut client, mut upstream) = forwarded(&mut world, request, &format!("GET /ws HTTP/1.1\r\n{fields}")).await;
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    send(&mut upstream, switching).await;
    expect(&mut client, switching).await;
    send(&mut client, "\u{1}up").await;
    expect(&mut upstream, "\u{1}up").await;
    send(&mut upstream, "down").await;
    expect(&mut client, "down").await;
}

#[tokio::test]
async fn failures_of_the_far_side_are_no_refusals() {
    for (answer, error, reason) in [
        (Err(LookupError::NotFound), "dns_error", "dns-not-found"),
        (Err(LookupError::Failed("x".into())), "dns_error", "dns-failed"),
        // Nobody listens there.
        (Ok(&["203.0.113.10"][..]), "connection_refused", "refused"),
    ] {
        for request in [get("http://github.com/"), connect("github.com:443")] {
            let mut world = World::new(&["github.com"]);
            world.resolves("github.com", answer.clone());
            let mut client = world.explicit().await;
            send(&mut client, request).await;
            let response = String::from_utf8(rest(&mut client).await).unwrap();
            assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
            assert!(response.contains(&format!("\r\nProxy-Status: netbox; error={error}\r\n")), "{response}");
            assert!(response.contains(" is allowed, and failed: "), "{response}");
            drop(client);
            one_decision(&world.events().await, "error", reason);
        }
    }
}

/// The client may repeat the request, and knows whether it may: netbox does not.
#[tokio::test]
async fn a_used_connection_that_ends_is_passed_on_as_its_end() {
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, get("http://github.com/"), GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    send(&mut client, get("http://github.com/")).await;
    expect(&mut upstream, GET).await;
    drop(upstream);
    assert_eq!(all(&mut client).await, b"");
    drop(client);
    assert_eq!(of(&world.events().await, "close")[1]["end"], "upstream");
}
