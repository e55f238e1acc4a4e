use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<RequestHead, HeadError> {
    RequestHead::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

/// The head as it goes on.
fn forwarded(text: &str) -> String {
    let mut out = BytesMut::new();
    parse(text).unwrap().write(&mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

/// The outcome of a request line with one `Host`.
fn line(line: &str) -> Result<RequestHead, HeadError> {
    parse(&format!("{line}\r\nHost: a.example\r\n\r\n"))
}

/// The outcome of fields behind a plain request line.
fn fields(fields: &str) -> Result<RequestHead, HeadError> {
    parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n"))
}

#[test]
fn a_plain_request_goes_on_as_it_is() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "POST /a?b=c&d=%20 HTTP/1.1\r\nHOST: a.example:8080\r\nx-A:  b c\r\ncontent-length: 5\r\nX-a: d\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET //b.example/ HTTP/1.0\r\n\r\n",
        "X-Own!method /ä HTTP/1.1\r\nHost: [2001:db8::1]:80\r\nCookie: \u{e4}\r\nEmpty: \r\n\r\n",
        "PUT /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nTrailer: A\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nVia: 1.1 x\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n",
    ] {
        assert_eq!(forwarded(text), text.replace(":  ", ": "));
    }
}

#[test]
fn the_absolute_form_becomes_the_origin_form() {
    for (target, path) in [
        ("http://a.example", "/"),
        ("http://a.example/", "/"),
        ("HTTP://A.example:80/b?c", "/b?c"),
        ("http://a.example?c", "/?c"),
    ] {
        assert_eq!(
            forwarded(&format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n")),
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
        );
    }
    assert_eq!(
        forwarded("GET http://a.example:8080/ HTTP/1.0\r\nA: b\r\n\r\n"),
        "GET / HTTP/1.0\r\nHost: a.example:8080\r\nA: b\r\n\r\n"
    );
}

#[test]
fn the_absolute_form_wins_over_the_host_field() {
    assert_eq!(
        forwarded("GET http://a.example:8080/ HTTP/1.1\r\nA: b\r\nHOST: B.example\r\n\r\n"),
        "GET / HTTP/1.1\r\nA: b\r\nHOST: a.example:8080\r\n\r\n"
    );
}

#[test]
fn options_of_a_whole_server_has_an_asterisk() {
    for (target, path) in [("http://a.example", "*"), ("http://a.example/", "/"), ("http://a.example?b", "/?b")] {
        assert_eq!(
            forwarded(&format!("OPTIONS {target} HTTP/1.1\r\nHost: a.example\r\n\r\n")),
            format!("OPTIONS {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
        );
    }
}

#[test]
fn fields_for_this_hop_alone_stay_behind() {
    assert_eq!(
        forwarded(
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: X-Mine, keep-alive\r\nKeep-Alive: timeout=5\r\nx-mine: 1\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\nUpgrade: websocket\r\nB: c\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive\r\nB: c\r\n\r\n"
    );
    assert_eq!(
        forwarded(
            "POST / HTTP/1.1\r\nConnection: close, host\r\nconnection: content-length\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"
        ),
        "POST / HTTP/1.1\r\nConnection: close\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn an_upgrade_goes_on_unless_it_leads_to_http() {
    let websocket = "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    assert_eq!(forwarded(websocket), websocket);
    assert_eq!(
        forwarded(
            "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: h2c, websocket, HTTP/2.0\r\nConnection: Upgrade\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );
    assert_eq!(
        forwarded(
            "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        ),
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
    );
    for protocol in ["h2c", "H2C", "TLS/1.0", "HTTP/2.0", "h2c , h2"] {
        let request = fields(&format!("Host: a.example\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n"));
        assert_eq!(request.unwrap().upgrade(), None, "{protocol}");
    }
}

#[test]
fn request_lines_that_others_read_otherwise_are_refused() {
    for text in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET / x HTTP/1.1",
        "GET http://a.example/ x HTTP/1.1",
        "GET /",
        "GET http://a.example/",
        "GET / HTTP/0.9",
        "GET / HTTP/1.2",
        "GET / HTTP/2.0",
        "GET / HTTP/11",
        "GET / http/1.1",
        "GE T / HTTP/1.1",
        "G\u{7f}T / HTTP/1.1",
        "GET /\u{0} HTTP/1.1",
        "GET /\u{1} HTTP/1.1",
        "GET /a\rb HTTP/1.1",
        "GET a.example HTTP/1.1",
        "GET a.example:80 HTTP/1.1",
        "GET * HTTP/1.1",
        "OPTIONS *x HTTP/1.1",
        "GET ://a.example/ HTTP/1.1",
        "GET http:/a.example/ HTTP/1.1",
        "GET http:a.example/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http://b.example@a.example/ HTTP/1.1",
        "GET http://a.example:80@b.example/ HTTP/1.1",
        "GET http://a.example%2eb.example/ HTTP/1.1",
        "GET http://a.example#@b.example/ HTTP/1.1",
        "GET http://a.example\\@b.example/ HTTP/1.1",
        "GET http://a.example:/ HTTP/1.1",
        "GET http://a.example:0/ HTTP/1.1",
        "GET http://a.example:+80/ HTTP/1.1",
        "GET http://127.1/ HTTP/1.1",
        "GET http://2130706433/ HTTP/1.1",
        "GET http://2001:db8::1/ HTTP/1.1",
        "CONNECT a.example HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT http://a.example:80/ HTTP/1.1",
    ] {
        assert!(line(text).is_err(), "{text:?}");
    }
}

#[test]
fn other_schemes_are_not_carried() {
    for scheme in
        ["https://a.example/", "ftp://a.example/", "file:///etc/passwd", "unix:/run/x.sock:/info", "urn:a.example"]
    {
        let refused = line(&format!("GET {scheme} HTTP/1.1"));
        assert!(matches!(refused, Err(HeadError::Unsupported(_))), "{scheme}");
    }
}

#[test]
fn there_is_one_host() {
    assert!(fields("").is_err());
    assert!(fields("Host:\r\n").is_err());
    assert!(fields("Host: a.example\r\nhost: a.example\r\n").is_err());
    for host in [
        "a.example, b.example",
        "a.example b.example",
        "http://a.example",
        "a.example/",
        "a@b.example",
        "127.1",
        "a.example:",
    ] {
        assert!(fields(&format!("Host: {host}\r\n")).is_err(), "{host:?}");
    }
    let authority = |text: &str| fields(&format!("Host: {text}\r\n")).unwrap().host.unwrap();
    assert_eq!(authority("A.Example.").to_string(), "a.example");
    assert_eq!(authority("a.example:8080").to_string(), "a.example:8080");
    assert_eq!(authority("[2001:DB8::1]:80").to_string(), "[2001:db8::1]:80");
    assert_eq!(authority("203.0.113.10").to_string(), "203.0.113.10");
}

#[test]
fn fields_that_others_read_otherwise_are_refused() {
    for text in [
        "Host : a.example\r\n",
        "Host: a.example\r\n b.example\r\n",
        "Host: a.example\r\n\tb\r\n",
        " Host: a.example\r\n",
        "Host: a.example\r\nA\u{0}: b\r\n",
        "Host: a.example\r\nA\u{1}B: b\r\n",
        "Host: a.example\r\nA(B): b\r\n",
        "Host: a.example\r\nA B: c\r\n",
        "Host: a.example\r\n: b\r\n",
        "Host: a.example\r\nA\r\n",
        "Host: a.example\r\nA: b\u{0}\r\n",
        "Host: a.example\r\nA: b\rc\r\n",
        "Host: a.example\r\nA: b\u{b}\r\n",
        "Host: a.example\r\nTransfer-Encoding: chunked\u{b}\r\n",
        "Host: a.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ] {
        assert!(fields(text).is_err(), "{text:?}");
    }
}

#[test]
fn persistence_follows_the_version_and_the_connection_field() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let request = parse(&format!("GET / HTTP/{version}\r\nHost: a.example\r\n{connection}\r\n")).unwrap();
        assert_eq!(request.wants_to_persist(), expected, "{version} {connection:?}");
    }
}

proptest! {
    /// What goes on is read by the next parser as what was judged here.
    #[test]
    fn what_goes_on_parses_to_the_same(
        method in "GET|POST|OPTIONS|X",
        target in "(/[!-~]{0,9})|(http://a\\.example(:8[0-9])?(/[a-z?]{0,5})?)",
        fields in "([A-Za-z-]{1,12}:[ \t]{0,2}[ -~]{0,12}[ \t]{0,2}\r\n){0,5}",
    ) {
        let Ok(request) = parse(&format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")) else { return Ok(()) };
        let mut out = BytesMut::new();
        request.write(&mut out);
        let again = RequestHead::parse(&out.clone().freeze()).unwrap();
        let host = match &request.form {
            Form::Absolute(authority, _) => Some(authority.of_http()),
            _ => request.host.clone(),
        };
        prop_assert_eq!((&again.method, &again.host, again.framing), (&request.method, &host, request.framing));
        let mut twice = BytesMut::new();
        again.write(&mut twice);
        prop_assert_eq!(out, twice);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[ -~\r\n:/]{0,100}") {
        let _ = RequestHead::parse(&Bytes::from(bytes));
        let _ = parse(&text);
    }
}
