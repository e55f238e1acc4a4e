//! Requests that the explicit door refuses, by `tests/cases/http.jsonl`. Nothing is looked up or dialled for any of them.

use super::*;

fn listed() -> World {
    World::new(&["github.com"])
}

/// 400 (431 where it is too large), whatever is behind the request.
async fn malformed(bytes: impl AsRef<[u8]>) -> Value {
    answered(listed(), bytes, "400", "error", "malformed").await
}

/// A request to the listed host with further fields and a body.
fn post(fields: &str, body: &str) -> String {
    format!("POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n\r\n{body}")
}

#[tokio::test]
async fn h006_a_request_without_host_is_malformed() {
    let decision = malformed("GET http://github.com/ HTTP/1.1\r\n\r\n").await;
    assert_eq!((&decision["host"], &decision["via"]), (&"http://github.com/".into(), &"http".into()));
}

#[tokio::test]
async fn h012_user_information_is_malformed() {
    malformed("GET http://evil.example@github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
}

#[tokio::test]
async fn h013_user_information_that_looks_like_a_port_is_malformed() {
    malformed("GET http://github.com:80@evil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
}

#[tokio::test]
async fn h017_a_question_mark_ends_the_authority() {
    let request = "GET http://evil.example?@github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n";
    let decision = answered(listed(), request, "403", "deny", "not-listed").await;
    assert_eq!(
        (&decision["host"], &decision["url"]),
        (&"evil.example".into(), &"http://evil.example?@github.com/".into())
    );
}

#[tokio::test]
async fn h018_a_percent_sign_in_the_host_is_malformed() {
    malformed("GET http://github.com%2eevil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
}

#[tokio::test]
async fn h021_a_scheme_without_authority_is_malformed() {
    malformed("GET http:github.com/ HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
}

async fn not_carried(target: &str) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: github.com\r\n\r\n");
    let decision = answered(listed(), request, "501", "deny", "unsupported").await;
    assert_eq!(decision["host"], target);
}

#[tokio::test]
async fn h024_https_is_neither_fetched_in_clear_text_nor_opened() {
    not_carried("https://github.com/").await;
}

#[tokio::test]
async fn h025_ftp_is_not_carried() {
    not_carried("ftp://github.com/").await;
}

#[tokio::test]
async fn h026_file_is_not_carried() {
    not_carried("file:///etc/passwd").await;
}

#[tokio::test]
async fn h027_unix_is_not_carried() {
    not_carried("unix:/var/run/docker.sock:/info").await;
}

#[tokio::test]
async fn h028_urn_is_not_carried() {
    not_carried("urn:github.com").await;
}

#[tokio::test]
async fn h029_another_port_is_not_listed() {
    let decision = answered(listed(), get("http://github.com:22/"), "403", "deny", "port-not-listed").await;
    assert_eq!((&decision["port"], &decision["hint"]), (&22.into(), &"github.com:22".into()));
}

#[tokio::test]
async fn h043_a_length_and_chunks_together_are_refused() {
    let smuggled = "0\r\n\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    malformed(post("Content-Length: 4\r\nTransfer-Encoding: chunked", smuggled)).await;
    malformed(post("Transfer-Encoding: chunked\r\nContent-Length: 4", smuggled)).await;
}

#[tokio::test]
async fn h045_only_exactly_chunked_is_a_coding() {
    for coding in ["xchunked", "\u{a0}chunked", "chunked;q=1", "Chunked", "identity"] {
        let request = post(&format!("Transfer-Encoding: {coding}"), "0\r\n\r\n");
        answered(listed(), request, "501", "deny", "unsupported").await;
    }
    malformed(post("Transfer-Encoding: chunked\u{b}", "0\r\n\r\n")).await;
    malformed(post("Transfer-Encoding:\r\n chunked", "0\r\n\r\n")).await;
}

#[tokio::test]
async fn h046_further_codings_are_not_carried() {
    let request = post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n");
    answered(listed(), request, "501", "deny", "unsupported").await;
}

#[tokio::test]
async fn h048_a_list_of_lengths_is_malformed() {
    malformed(post("Content-Length: 5, 5", "hello")).await;
    malformed(post("Content-Length: 5\r\nContent-Length: 5", "hello")).await;
}

#[tokio::test]
async fn h049_a_length_has_digits_only() {
    for length in ["+5", "-5", "0x5", "5 5", "", "18446744073709551616"] {
        malformed(post(&format!("Content-Length: {length}"), "hello")).await;
    }
}

#[tokio::test]
async fn h056_a_folded_field_is_malformed() {
    malformed("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n evil.example\r\n\r\n").await;
}

#[tokio::test]
async fn h057_a_space_before_the_colon_is_malformed() {
    malformed("GET http://github.com/ HTTP/1.1\r\nHost : github.com\r\n\r\n").await;
    malformed("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\nHost : evil.example\r\n\r\n").await;
}

#[tokio::test]
async fn h058_a_field_name_is_a_token() {
    for name in ["A\0", "A\u{1}", "A(B)", "A B", "\u{e4}", ""] {
        malformed(format!("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{name}: x\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn h059_white_space_in_the_target_is_malformed() {
    for target in ["http://github.com/ x", "http://github.com/\tx", "http://github.com /", "http:// github.com/"] {
        malformed(format!("GET {target} HTTP/1.1\r\nHost: github.com\r\n\r\n")).await;
    }
}

#[tokio::test]
async fn h060_http_0_9_is_malformed() {
    malformed("GET http://github.com/\r\n\r\n").await;
    // Its request is one line, after which nothing comes.
    let mut world = listed();
    let mut client = world.explicit().await;
    send(&mut client, "GET http://github.com/\r\n").await;
    client.shutdown().await.unwrap();
    expect_answer(&mut client, "400").await;
    world.assert_untouched();
}

#[tokio::test]
async fn h074_a_head_that_is_too_large_is_refused() {
    for fields in [
        format!("A: {}\r\n", "a".repeat(64 * 1024)),
        "A: b\r\n".repeat(10_000),
        format!("A: {}\r\n", "a".repeat(900)).repeat(1200),
    ] {
        for line in ["GET http://github.com/", "CONNECT github.com:443"] {
            let request = format!("{line} HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n");
            answered(listed(), request, "431", "error", "malformed").await;
        }
    }
}

#[tokio::test]
async fn a_host_that_differs_is_refused() {
    for host in ["evil.example", "github.com:22", "127.0.0.1", "github.com.evil.example"] {
        let request = format!("GET http://github.com/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let decision = answered(listed(), request, "403", "deny", "host-mismatch").await;
        assert_eq!(decision["host"], "github.com");
    }
    // What counts is the target, not the field.
    let request = "GET http://evil.example/ HTTP/1.1\r\nHost: github.com\r\n\r\n";
    answered(listed(), request, "403", "deny", "not-listed").await;
}

#[tokio::test]
async fn clear_text_to_the_port_of_tls_is_refused() {
    let decision = answered(listed(), get("http://github.com:443/"), "403", "deny", "not-tls").await;
    assert_eq!(decision["hint"], "tcp://github.com:443");
}

#[tokio::test]
async fn who_takes_the_proxy_for_a_server_is_told_what_it_is() {
    for request in [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut world = listed();
        let mut client = world.explicit().await;
        send(&mut client, request).await;
        let body = expect_answer(&mut client, "400").await;
        assert_eq!(
            body,
            "netbox: the request is refused: this is a proxy: it takes `http://host/path`, CONNECT and SOCKS5\n"
        );
        world.assert_untouched();
        drop(client);
        one_decision(&world.events().await, "error", "malformed");
    }
    // A listed host in `Host` makes no target.
    malformed("GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
}

#[tokio::test]
async fn http_2_is_malformed() {
    malformed("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
}

#[tokio::test]
async fn a_refused_head_request_gets_no_body() {
    let mut world = World::new(&[]);
    let mut client = world.explicit().await;
    send(&mut client, get("http://evil.example/").replace("GET", "HEAD")).await;
    let answer = String::from_utf8(rest(&mut client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_head_that_never_ends_is_answered_in_its_time() {
    let mut world = listed().limits(|limits| limits.head = std::time::Duration::from_millis(50));
    let mut client = world.explicit().await;
    send(&mut client, "CONNECT github.com:443 HTTP/1.1\r\nHost: github.com").await;
    expect_answer(&mut client, "400").await;
    world.assert_untouched();
    drop(client);
    let events = world.events().await;
    let decision = one_decision(&events, "error", "malformed");
    assert_eq!((&decision["host"], &decision["via"]), (&"github.com:443".into(), &"connect".into()));
}

#[tokio::test]
async fn half_a_head_makes_room_for_who_speaks() {
    let mut world = listed().limits(|limits| limits.half_open = 1);
    let mut half = world.explicit().await;
    send(&mut half, "GET http://github.com/ HTTP/1.1\r\nHost: git").await;
    half.writable().await.unwrap();
    let mut silent = world.explicit().await;
    expect_reset(&mut half).await;
    let mut last = world.explicit().await;
    expect_end(&mut silent).await;
    send(&mut last, "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut last, "403").await;
    drop((half, silent, last));
    let events = world.events().await;
    assert_eq!(events.iter().filter(|event| event["reason"] == "limit").count(), 1);
}

#[tokio::test]
async fn empty_lines_are_no_request_and_make_room_for_who_speaks() {
    let mut world = listed().limits(|limits| limits.half_open = 1);
    let mut empty = world.explicit().await;
    send(&mut empty, "\r\n\r\n").await;
    let mut other = world.explicit().await;
    expect_reset(&mut empty).await;
    send(&mut other, "\r\nGET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    expect_answer(&mut other, "403").await;
    drop((empty, other));
    let events = world.events().await;
    assert!(events.iter().any(|event| event["reason"] == "limit"), "{events:?}");
}

#[tokio::test]
async fn empty_lines_are_silence() {
    let mut world = listed().limits(|limits| limits.silence = std::time::Duration::from_millis(50));
    let mut empty = world.explicit().await;
    send(&mut empty, "\r\n").await;
    expect_end(&mut empty).await;
    drop(empty);
    assert_eq!(world.events().await, [0; 0]);
}

#[tokio::test]
async fn more_options_than_anybody_has_are_too_large() {
    for name in ["Connection", "Upgrade"] {
        let fields = format!("{name}: {}\r\n{name}: a\r\n", ["a"; 64].join(","));
        let request = format!("GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\n{fields}\r\n");
        answered(listed(), request, "431", "error", "malformed").await;
    }
}
