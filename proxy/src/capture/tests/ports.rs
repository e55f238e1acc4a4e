//! Ports other than 80 and 443, where either side may speak first.

use std::time::Duration;

use netbox_config::Mode;
use tokio::io::AsyncWriteExt;

use super::world::*;

#[tokio::test]
async fn http_on_any_port_is_judged_per_request() {
    let mut world = World::new(&["github.com:3000", "evil.example:3000"]);
    let server = world.server("203.0.113.10:3000").await;
    let mut client = world.connect("github.com:3000").await;
    let request = "GET /x HTTP/1.1\r\nHost: github.com:3000\r\n\r\n";
    send(&mut client, request).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, request).await;
    send(&mut upstream, "HTTP/1.1 204 No Content\r\n\r\n").await;
    expect(&mut client, "HTTP/1.1 204 No Content\r\n\r\n").await;
    send(&mut client, request.replace("github.com", "evil.example")).await;
    expect_answer(&mut client, "403").await;
    expect_end(&mut upstream).await;
    drop(client);
    let events = world.events().await;
    let reasons: Vec<_> =
        of(&events, "decision").iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["listed", "host-mismatch"]);
}

#[tokio::test]
async fn the_first_request_for_another_host_is_refused_and_the_server_sees_nothing() {
    let mut world = World::new(&["github.com:3000"]);
    let server = world.server("203.0.113.10:3000").await;
    let mut client = world.connect("github.com:3000").await;
    let mut upstream = server.accept().await;
    send(&mut client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut client, "403").await;
    expect_end(&mut upstream).await;
    drop(client);
    one_decision(&world.events().await, "deny", "host-mismatch");
}

/// A protocol in which the client speaks first, and not in lines.
#[tokio::test]
async fn another_protocol_passes_at_once() {
    let mut world = World::new(&["github.com:5432"]);
    let server = world.server("203.0.113.10:5432").await;
    let mut client = world.connect("github.com:5432").await;
    let startup = b"\0\0\0\x08\x04\xd2\x16\x2f";
    send(&mut client, startup).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, startup).await;
    send(&mut upstream, "N").await;
    expect(&mut client, "N").await;
    drop((client, upstream));
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    assert_eq!(one_close(&events, "done")["sent"], 8);
}

#[tokio::test]
async fn a_word_without_an_end_passes_after_a_moment_and_is_watched_on() {
    let mut world = World::new(&["github.com:7"]);
    let server = world.server("203.0.113.10:7").await;
    let mut client = world.connect("github.com:7").await;
    send(&mut client, "ping").await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, "ping").await;
    send(&mut upstream, "pong").await;
    expect(&mut client, "pong").await;
    send(&mut client, " and more\n").await;
    expect(&mut upstream, " and more\n").await;
    // Its first line is known now.
    send(&mut client, "GET / HTTP/1.1\r\n").await;
    expect(&mut upstream, "GET / HTTP/1.1\r\n").await;
    drop((client, upstream));
    one_close(&world.events().await, "done");
}

#[tokio::test]
async fn a_word_that_becomes_a_request_line_never_gets_its_end() {
    let mut world = World::new(&["github.com:7"]);
    let server = world.server("203.0.113.10:7").await;
    let mut client = world.connect("github.com:7").await;
    send(&mut client, "brew").await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, "brew").await;
    send(&mut client, " / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_reset(&mut client).await;
    expect_reset(&mut upstream).await;
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    assert_eq!(one_close(&events, "refused")["reason"], "unsupported");
}

#[tokio::test]
async fn a_method_without_an_end_is_held_and_refused() {
    let mut world = World::new(&["github.com:7"]).limits(|limits| limits.first_bytes = Duration::from_millis(50));
    let server = world.server("203.0.113.10:7").await;
    let mut client = world.connect("github.com:7").await;
    send(&mut client, "GET / HTTP/1.1").await;
    let mut upstream = server.accept().await;
    expect_reset(&mut client).await;
    expect_end(&mut upstream).await;
    one_decision(&world.events().await, "error", "malformed");
}

/// A server that takes the end for the end of the line has nothing of it: there is no end.
#[tokio::test]
async fn a_released_word_that_ends_as_a_request_line_is_not_ended() {
    for (word, rest) in [("BREW", " http://evil.example/ HTTP/1.1"), ("\r\n", "GET http://evil.example/ HTTP/1.0 ")] {
        let mut world = World::new(&["github.com:7"]).limits(|limits| limits.word = Duration::from_millis(20));
        let server = world.server("203.0.113.10:7").await;
        let mut client = world.connect("github.com:7").await;
        send(&mut client, word).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, word).await;
        send(&mut client, rest).await;
        client.shutdown().await.unwrap();
        expect(&mut upstream, rest).await;
        expect_reset(&mut upstream).await;
        assert_eq!(one_close(&world.events().await, "refused")["reason"], "unsupported");
    }
}

#[tokio::test]
async fn blanks_that_some_server_knows_make_a_request_line() {
    for blank in [&b"\xa0"[..], b"\x85", b"\x1c", b"\x0b"] {
        let mut world = World::new(&["github.com:7"]);
        let server = world.server("203.0.113.10:7").await;
        let mut client = world.connect("github.com:7").await;
        let line = [b"GET", blank, b"http://evil.example/", blank, b"HTTP/1.1\r\nHost: evil.example\r\n\r\n"].concat();
        send(&mut client, line).await;
        expect_answer(&mut client, "400").await;
        drop(client);
        expect_end(&mut server.accept().await).await;
        one_decision(&world.events().await, "error", "malformed");
    }
}

#[tokio::test]
async fn a_program_that_only_listens_gets_its_half_close_passed_on() {
    let mut world = World::new(&["github.com:13"]);
    let server = world.server("203.0.113.10:13").await;
    let mut client = world.connect("github.com:13").await;
    client.shutdown().await.unwrap();
    let mut upstream = server.accept().await;
    expect_end(&mut upstream).await;
    send(&mut upstream, "what time it is").await;
    drop(upstream);
    assert_eq!(rest(&mut client).await, b"what time it is");
    one_close(&world.events().await, "done");
}

#[tokio::test]
async fn raw_is_not_looked_at() {
    for bytes in ["GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "SSH-2.0-x\r\n", "\x16\x03\x01\0\0"] {
        let mut world = World::new(&["tcp://github.com:443"]);
        let server = world.server("203.0.113.10:443").await;
        let mut client = world.connect("github.com:443").await;
        send(&mut client, bytes).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, bytes).await;
        drop((client, upstream));
        assert_eq!(one_decision(&world.events().await, "allow", "listed")["rule"]["text"], "tcp://github.com:443");
    }
}

#[tokio::test]
async fn an_idle_connection_that_is_cut_is_told_all_the_same() {
    let mut world = World::new(&["github.com:22,443"]);
    let server = world.server("203.0.113.10:22").await;
    let client = world.connect("github.com:22").await;
    let other = world.connect("github.com:443").await;
    let upstream = server.accept().await;
    let events = world.aborted().await;
    assert_eq!(of(&events, "decision").len(), 2);
    assert!(of(&events, "decision").iter().all(|event| event["reason"] == "listed"));
    assert!(of(&events, "close").iter().all(|event| event["end"] == "reset"));
    assert_eq!(of(&events, "close").len(), 2);
    drop((client, other, upstream));
}

#[tokio::test]
async fn a_probe_of_443_is_allowed_and_reaches_nobody() {
    let mut world = World::new(&["github.com"]);
    drop(world.connect("github.com:443").await);
    world.net.lookups.lock().unwrap().clear();
    let events = world.events().await;
    one_decision(&events, "allow", "listed");
    assert_eq!(one_close(&events, "done").get("addr"), None);
}

#[tokio::test]
async fn a_silent_connection_to_443_is_ended_in_its_time() {
    let mut world = World::new(&["github.com"]).limits(|limits| limits.silence = Duration::from_millis(50));
    let mut client = world.connect("github.com:443").await;
    expect_end(&mut client).await;
    drop(client);
    world.assert_untouched();
    one_close(&world.events().await, "timeout");
}

#[tokio::test]
async fn audit_and_open_modes_let_any_protocol_pass_on_any_port() {
    for (mode, reason, would) in
        [(Mode::Audit, "audit", "not-listed".into()), (Mode::Open, "open", serde_json::Value::Null)]
    {
        let mut world = World::with(mode, &[], &[]);
        let server = world.server("203.0.113.10:443").await;
        let mut client = world.connect("github.com:443").await;
        send(&mut client, "SSH-2.0-x\r\n").await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, "SSH-2.0-x\r\n").await;
        drop((client, upstream));
        let events = world.events().await;
        let decision = one_decision(&events, "allow", reason);
        assert_eq!(decision["would"], would);
        // The rule that would let it pass, which one for the host would not.
        let hint = (mode == Mode::Audit).then_some("tcp://github.com:443");
        assert_eq!(decision["hint"].as_str(), hint);
    }
}

/// Whether the server has spoken before or not.
#[tokio::test]
async fn half_a_hello_on_any_port_makes_room_for_who_speaks() {
    for banner in ["", "220 ready\r\n"] {
        let mut world = World::new(&["github.com:25"]).limits(|limits| limits.half_open = 1);
        let server = world.server("203.0.113.10:25").await;
        let mut ends = Vec::new();
        for _ in 0..2 {
            let mut client = world.connect("github.com:25").await;
            let mut upstream = server.accept().await;
            send(&mut upstream, banner).await;
            expect(&mut client, banner).await;
            send(&mut client, b"\x16\x03\x01\x02\x00\x01\x00").await;
            ends.push((client, upstream));
        }
        let [(one, _), (other, _)] = &mut ends[..] else { panic!("two") };
        // Whichever was seen first has waited longest.
        tokio::select! {
            () = expect_reset(one) => {}
            () = expect_reset(other) => {}
        }
        drop(ends);
        let events = world.events().await;
        let told = of(&events, if banner.is_empty() { "decision" } else { "close" });
        assert_eq!(told.iter().filter(|event| event["reason"] == "limit").count(), 1, "{events:?}");
    }
}
