//! HTTP on a captured connection, by `tests/cases/http.jsonl`.

use netbox_config::Mode;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::world::*;

/// A request that is answered by netbox, without a lookup or a dial. Gives the decision.
async fn answered(bytes: impl AsRef<[u8]>, status: &str, verdict: &str, reason: &str) -> Value {
    answered_in(World::new(&["github.com"]), bytes, status, verdict, reason).await
}

async fn answered_in(mut world: World, bytes: impl AsRef<[u8]>, status: &str, verdict: &str, reason: &str) -> Value {
    let mut client = world.connect("github.com:80").await;
    // A refusal may come before all of it has been taken.
    let _ = client.write_all(bytes.as_ref()).await;
    expect_answer(&mut client, status).await;
    drop(client);
    world.assert_untouched();
    one_decision(&world.events().await, verdict, reason).clone()
}

/// A request that arrives upstream like this. Gives both ends.
async fn forwarded(world: &mut World, bytes: &str, upstream_bytes: &str) -> (TcpStream, TcpStream) {
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("github.com:80").await;
    send(&mut client, bytes).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, upstream_bytes).await;
    (client, upstream)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n";

#[tokio::test]
async fn h001_a_request_passes_in_either_form() {
    for line in ["GET /", "GET http://github.com/", "GET http://github.com:80/"] {
        let mut world = World::new(&["github.com"]);
        let (mut client, mut upstream) =
            forwarded(&mut world, &format!("{line} HTTP/1.1\r\nHost: github.com\r\n\r\n"), GET).await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
        drop(client);
        expect_end(&mut upstream).await;
        let events = world.events().await;
        let decision = one_decision(&events, "allow", "listed");
        assert_eq!((&decision["method"], &decision["url"]), (&"GET".into(), &"http://github.com/".into()));
        let close = one_close(&events, "done");
        assert_eq!((&close["sent"], &close["received"]), (&GET.len().into(), &OK.len().into()));
        assert_eq!(close["addr"], "203.0.113.10:80");
    }
}

#[tokio::test]
async fn h006_a_request_without_host_is_malformed() {
    answered("GET / HTTP/1.1\r\n\r\n", "400", "error", "malformed").await;
    answered("GET http://github.com/ HTTP/1.1\r\n\r\n", "400", "error", "malformed").await;
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

#[tokio::test]
async fn h012_user_information_is_malformed() {
    answered("GET http://evil.example@github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n", "400", "error", "malformed")
        .await;
}

#[tokio::test]
async fn h013_user_information_that_looks_like_a_port_is_malformed() {
    answered(
        "GET http://github.com:80@evil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n",
        "400",
        "error",
        "malformed",
    )
    .await;
}

#[tokio::test]
async fn h017_a_question_mark_ends_the_authority() {
    answered(
        "GET http://evil.example?@github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n",
        "403",
        "deny",
        "host-mismatch",
    )
    .await;
}

#[tokio::test]
async fn h018_a_percent_sign_in_the_host_is_malformed() {
    answered("GET http://github.com%2eevil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n", "400", "error", "malformed")
        .await;
}

#[tokio::test]
async fn h021_a_scheme_without_authority_is_malformed() {
    answered("GET http:github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n", "400", "error", "malformed").await;
}

#[tokio::test]
async fn h024_https_is_not_fetched_in_clear_text() {
    answered("GET https://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n", "501", "deny", "unsupported").await;
}

#[tokio::test]
async fn h025_ftp_is_not_carried() {
    answered("GET ftp://github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n", "501", "deny", "unsupported").await;
}

#[tokio::test]
async fn h026_file_is_not_carried() {
    answered("GET file:///etc/passwd HTTP/1.1\r\nHost: github.com\r\n\r\n", "501", "deny", "unsupported").await;
}

#[tokio::test]
async fn h027_unix_is_not_carried() {
    answered("GET unix:/var/run/docker.sock:/info HTTP/1.1\r\nHost: github.com\r\n\r\n", "501", "deny", "unsupported")
        .await;
}

#[tokio::test]
async fn h028_urn_is_not_carried() {
    answered("GET urn:github.com HTTP/1.1\r\nHost: github.com\r\n\r\n", "501", "deny", "unsupported").await;
}

#[tokio::test]
async fn h029_another_port_is_another_target() {
    for request in [
        "GET http://github.com:22/ HTTP/1.1\r\nHost: github.com\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: github.com:22\r\n\r\n",
    ] {
        answered(request, "403", "deny", "host-mismatch").await;
    }
}

/// The second request is refused, and the server sees nothing of it.
async fn second_is_refused(first: &str, second: &str, pipelined: bool) {
    let mut world = World::new(&["github.com", "evil.example"]);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("github.com:80").await;
    send(&mut client, if pipelined { format!("{first}{second}") } else { first.to_owned() }).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    if !pipelined {
        send(&mut client, second).await;
    }
    let body = expect_answer(&mut client, "403").await;
    assert!(body.contains("`github.com:80` is refused: the request is for another host (host-mismatch)"), "{body}");
    expect_end(&mut upstream).await;
    drop(client);
    assert_eq!(*world.net.lookups.lock().unwrap(), ["github.com"]);
    let events = world.events().await;
    let reasons: Vec<_> =
        of(&events, "decision").iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["listed", "host-mismatch"]);
    let ids: Vec<_> = of(&events, "decision").iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(one_close(&events, "done")["id"], ids[0]);
}

#[tokio::test]
async fn h035_the_second_request_of_a_connection_is_judged() {
    second_is_refused(GET, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", false).await;
    second_is_refused(GET, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", false).await;
}

#[tokio::test]
async fn h036_a_pipelined_request_is_judged() {
    second_is_refused(GET, "GET http://evil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n", true).await;
    second_is_refused(GET, "GET http://github.com/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", true).await;
}

#[tokio::test]
async fn h043_a_length_and_chunks_together_are_refused() {
    let smuggled = "0\r\n\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for fields in
        ["Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"]
    {
        let request = format!("POST / HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n{smuggled}");
        answered(request, "400", "error", "malformed").await;
    }
}

#[tokio::test]
async fn h045_only_exactly_chunked_is_a_coding() {
    for (coding, status, verdict, reason) in [
        ("xchunked", "501", "deny", "unsupported"),
        ("\u{a0}chunked", "501", "deny", "unsupported"),
        ("chunked;q=1", "501", "deny", "unsupported"),
        ("chunked\u{b}", "400", "error", "malformed"),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
        answered(request, status, verdict, reason).await;
    }
    answered(
        "POST / HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "400",
        "error",
        "malformed",
    )
    .await;
}

#[tokio::test]
async fn h046_further_codings_are_not_carried() {
    answered(
        "POST / HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "501",
        "deny",
        "unsupported",
    )
    .await;
}

#[tokio::test]
async fn h048_a_list_of_lengths_is_malformed() {
    answered("POST / HTTP/1.1\r\nHost: github.com\r\nContent-Length: 5, 5\r\n\r\nhello", "400", "error", "malformed")
        .await;
    answered(
        "POST / HTTP/1.1\r\nHost: github.com\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "400",
        "error",
        "malformed",
    )
    .await;
}

#[tokio::test]
async fn h049_a_length_has_digits_only() {
    answered("POST / HTTP/1.1\r\nHost: github.com\r\nContent-Length: +5\r\n\r\nhello", "400", "error", "malformed")
        .await;
}

#[tokio::test]
async fn h051_a_chunk_size_that_overflows_is_refused() {
    let head = "POST / HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, &format!("{head}FFFFFFFFFFFFFFFF0\r\nx"), head).await;
    expect_answer(&mut client, "400").await;
    expect_reset(&mut upstream).await;
    drop(client);
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    assert_eq!(one_close(&events, "refused")["reason"], "malformed");
}

#[tokio::test]
async fn h056_a_folded_field_is_malformed() {
    answered("GET / HTTP/1.1\r\nHost: github.com\r\n evil.example\r\n\r\n", "400", "error", "malformed").await;
}

#[tokio::test]
async fn h057_a_space_before_the_colon_is_malformed() {
    answered("GET / HTTP/1.1\r\nHost : github.com\r\n\r\n", "400", "error", "malformed").await;
    answered("GET / HTTP/1.1\r\nHost: github.com\r\nHost : evil.example\r\n\r\n", "400", "error", "malformed").await;
}

#[tokio::test]
async fn h058_a_field_name_is_a_token() {
    for name in ["A\0", "A\u{1}", "A(B)", "A B", "\u{e4}", ""] {
        answered(format!("GET / HTTP/1.1\r\nHost: github.com\r\n{name}: x\r\n\r\n"), "400", "error", "malformed").await;
    }
}

#[tokio::test]
async fn h059_white_space_in_the_target_is_malformed() {
    answered("GET http://github.com/ x HTTP/1.1\r\nHost: github.com\r\n\r\n", "400", "error", "malformed").await;
    answered("GET /\tx HTTP/1.1\r\nHost: github.com\r\n\r\n", "400", "error", "malformed").await;
}

#[tokio::test]
async fn h060_http_0_9_is_not_http() {
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:80").await;
    send(&mut client, "GET http://github.com/\r\n").await;
    expect_reset(&mut client).await;
    world.assert_untouched();
    one_decision(&world.events().await, "deny", "not-http");
}

#[tokio::test]
async fn h063_an_upgrade_to_h2c_is_taken_out() {
    let mut world = World::new(&["github.com"]);
    let request = "GET / HTTP/1.1\r\nHost: github.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let (mut client, mut upstream) = forwarded(&mut world, request, GET).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    drop((client, upstream));
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn h065_a_101_that_was_not_asked_for_ends_the_connection() {
    for request in [GET.to_owned(), GET.replace("\r\n\r\n", "\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")] {
        let mut world = World::new(&["github.com"]);
        let (mut client, mut upstream) = forwarded(&mut world, &request, &request).await;
        send(&mut upstream, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n").await;
        expect_reset(&mut client).await;
        expect_end(&mut upstream).await;
        one_close(&world.events().await, "upstream");
    }
}

#[tokio::test]
async fn h073_a_response_that_can_be_read_in_two_ways_is_not_passed_on() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n".to_owned(),
        "HTTP/1.1 099 Odd\r\n\r\n".to_owned(),
        "HTTP/2 200\r\n\r\n".to_owned(),
        "ICY 200 OK\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", "A: b\r\n".repeat(10_000)),
        format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(1_000_000)),
    ] {
        let mut world = World::new(&["github.com"]);
        let (mut client, mut upstream) = forwarded(&mut world, GET, GET).await;
        let _ = upstream.write_all(response.as_bytes()).await;
        expect_reset(&mut client).await;
        drop(upstream);
        one_close(&world.events().await, "upstream");
    }
    let mut world = World::new(&["github.com"]);
    let (mut client, mut upstream) = forwarded(&mut world, GET, GET).await;
    let _ = upstream.write_all("HTTP/1.1 102 Processing\r\n\r\n".repeat(1000).as_bytes()).await;
    assert_eq!(rest(&mut client).await, "HTTP/1.1 102 Processing\r\n\r\n".repeat(33).as_bytes());
    drop((client, upstream));
    one_close(&world.events().await, "upstream");
}

#[tokio::test]
async fn h074_a_head_that_is_too_large_is_refused() {
    for fields in [
        format!("A: {}\r\n", "a".repeat(64 * 1024)),
        "A: b\r\n".repeat(10_000),
        format!("A: {}\r\n", "a".repeat(900)).repeat(1200),
    ] {
        answered(format!("GET / HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n"), "431", "error", "malformed").await;
    }
}

#[tokio::test]
async fn h079_forwarding_fields_decide_nothing() {
    let request = GET.replace(
        "\r\n\r\n",
        "\r\nVia: 1.1 evil.example\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: evil.example\r\n\r\n",
    );
    let mut world = World::new(&["github.com"]);
    drop(forwarded(&mut world, &request, &request).await);
    one_decision(&world.events().await, "allow", "listed");
}

#[tokio::test]
async fn h080_a_body_that_looks_like_a_request_stays_a_body() {
    let head = "DELETE /x HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let mut world = World::new(&["github.com"]);
    let chunked = format!("{head}{:X};ext=1\r\n{body}\r\n0\r\n\r\n", body.len());
    let expected = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (mut client, mut upstream) = forwarded(&mut world, &chunked, &expected).await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    drop((client, upstream));
    assert_eq!(of(&world.events().await, "decision").len(), 1);
}

#[tokio::test]
async fn connect_is_not_carried_on_a_captured_connection() {
    let decision =
        answered("CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\n\r\n", "403", "deny", "unsupported").await;
    assert_eq!(decision["hint"], "tcp://github.com:80");
}

#[tokio::test]
async fn http_2_in_clear_text_is_not_carried() {
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:80").await;
    send(&mut client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    expect_reset(&mut client).await;
    world.assert_untouched();
    assert_eq!(one_decision(&world.events().await, "deny", "unsupported")["hint"], "tcp://github.com:80");
}

#[tokio::test]
async fn a_listed_address_takes_any_host_but_a_denied_one() {
    let rules = &["203.0.113.10:80"];
    let mut world = World::new(rules);
    let server = world.server("203.0.113.10:80").await;
    let mut client = world.connect("203.0.113.10:80").await;
    let request = "GET / HTTP/1.1\r\nHost: whatever.example:81\r\n\r\n";
    send(&mut client, request).await;
    expect(&mut server.accept().await, request).await;
    drop(client);
    one_decision(&world.events().await, "allow", "listed");

    let mut world = World::with(Mode::Allowlist, rules, &["*.example"]);
    let mut client = world.connect("203.0.113.10:80").await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    let body = expect_answer(&mut client, "403").await;
    assert!(body.contains("rule: *.example (--allow)"), "{body}");
    drop(client);
    world.assert_untouched();
    assert_eq!(one_decision(&world.events().await, "deny", "denied")["rule"]["text"], "*.example");
}

#[tokio::test]
async fn in_audit_mode_another_host_passes_and_is_noted_unless_it_is_denied() {
    let request = "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n";
    let mut world = World::with(Mode::Audit, &["github.com"], &["*.example"]);
    drop(forwarded(&mut world, request, request).await);
    assert_eq!(one_decision(&world.events().await, "allow", "audit")["would"], "host-mismatch");
    let world = World::with(Mode::Audit, &["github.com"], &["*.example"]);
    answered_in(world, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403", "deny", "denied").await;
}

#[tokio::test]
async fn a_failure_of_the_far_side_is_a_reset_and_no_refusal() {
    let mut world = World::new(&["github.com"]);
    let mut client = world.connect("github.com:80").await;
    send(&mut client, GET).await;
    expect_reset(&mut client).await;
    one_decision(&world.events().await, "error", "refused");
}
