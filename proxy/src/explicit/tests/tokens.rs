//! A listener of the shared service, where a token says whose a request is.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as CODER;
use netbox_config::service::TokenHash;

use super::*;
use crate::service::credentials::{Entrance, Role, Roles, TenantDoor};

const CHALLENGES: &str = "\r\nProxy-Authenticate: Basic realm=\"netbox\", charset=\"UTF-8\"\r\nProxy-Authenticate: Bearer realm=\"netbox\"\r\n";
/// The method with a password, and the answers to one.
const PASSWORD: &[u8] = &[5, 1, 2];
const LOGIN: &[u8] = &[5, 2];
const LOGGED_IN: &[u8] = &[1, 0];
const WRONG: &[u8] = &[1, 1];

/// The listener, and the roles `ci` (token `one`), which may reach `github.com`, and `dev` (token `two`), which may reach
/// `api.github.com`.
struct Service {
    outside: World,
    ci: World,
    dev: World,
    roles: Arc<Roles>,
}

impl Service {
    fn new() -> Self {
        Self::for_role(None)
    }

    fn for_role(only: Option<&str>) -> Self {
        let (ci, dev) = (World::new(&["github.com:80,443,9"]), World::new(&["api.github.com"]));
        let mut outside = World::with(Mode::None, &[], &[]);
        let known = vec![role("ci", "one", &ci), role("dev", "two", &dev)];
        let roles = Arc::new(Roles::new(known, World::new(&[]).session));
        let door = TenantDoor { roles: Arc::clone(&roles), only: only.map(Arc::from) };
        outside.entrance = Some(Arc::new(Entrance { door, tls: None }));
        Self { outside, ci, dev, roles }
    }

    /// What was told of those outside, of `ci` and of `dev`, once all connections have ended.
    async fn events(self) -> [Vec<Value>; 3] {
        [self.outside.events().await, self.ci.events().await, self.dev.events().await]
    }

    async fn client(&mut self) -> TcpStream {
        self.outside.explicit().await
    }

    /// That nobody was let in: nothing was looked up, dialled or told in a role's name.
    async fn assert_closed(self) -> Vec<Value> {
        for world in [&self.outside, &self.ci, &self.dev] {
            world.assert_untouched();
        }
        let [outside, ci, dev] = self.events().await;
        assert_eq!((ci, dev), (Vec::new(), Vec::new()));
        outside
    }
}

fn role(name: &str, token: &str, world: &World) -> Role {
    Role { name: name.into(), tokens: vec![TokenHash::of(token.as_bytes())], session: Arc::clone(&world.session) }
}

fn basic(user: &str, token: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", CODER.encode(format!("{user}:{token}")))
}

fn connect_with(target: &str, field: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{field}\r\n")
}

fn get_with(url: &str, field: &str) -> String {
    get(url).replace("\r\n\r\n", &format!("\r\n{field}\r\n"))
}

/// The head and the body of a response whose length it says, and with which the connection does not end.
async fn challenged(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(client.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"), "{head}");
    assert!(head.contains(CHALLENGES), "{head}");
    assert!(head.contains("\r\nConnection: keep-alive\r\n"), "{head}");
    let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    soon(client.read_exact(&mut body)).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// A login with this name and this password.
fn login(user: &[u8], password: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    [&[1, length(user)], user, &[length(password)], password].concat()
}

#[tokio::test]
async fn h070_a_token_is_taken_in_any_case_of_its_scheme_and_with_or_without_padding() {
    let mut service = Service::new();
    let server = service.ci.server("203.0.113.10:443").await;
    let unpadded = basic("a", "one").replace('=', "");
    for field in [basic("a", "one").replace("Basic", "bAsIc"), unpadded, "Proxy-Authorization: bEaReR one\r\n".into()] {
        let mut client = service.client().await;
        send(&mut client, connect_with("github.com:443", &field)).await;
        expect(&mut client, ESTABLISHED).await;
        drop(server.accept().await);
    }
    let mut service = Service::new();
    for field in [
        &b"Proxy-Authorization: Basic \xff\xfe\xfd"[..],
        b"Proxy-Authorization: Basic YTpvbmU===",
        b"Proxy-Authorization: Basic one",
        b"Proxy-Authorization: Basic",
        b"Proxy-Authorization: ",
        b"Proxy-Authorization: Bearer \xff\xfe",
        b"Proxy-Authorization: Digest one",
        b"Proxy-Authorization: Bearer one\r\nProxy-Authorization: Bearer one",
        b"Authorization: Bearer one",
    ] {
        let mut client = service.client().await;
        let head = b"CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\n";
        send(&mut client, [&head[..], field, b"\r\n\r\n"].concat()).await;
        challenged(&mut client).await;
    }
    let events = service.assert_closed().await;
    assert_eq!(reasons(&events), ["unauthenticated"; 9]);
}

#[tokio::test]
async fn h071_every_request_of_a_connection_is_asked_for_its_token() {
    let mut service = Service::new();
    let server = service.ci.server("203.0.113.10:80").await;
    let mut client = service.client().await;
    send(&mut client, get_with("http://github.com/a", &basic("", "one"))).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, "GET /a HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    send(&mut client, get("http://github.com/b")).await;
    let told = challenged(&mut client).await;
    assert!(
        told.starts_with("netbox: nobody is let in here without a token that is known (unauthenticated)\n"),
        "{told}"
    );
    // The connection is still good, and so is the one to the server.
    send(&mut client, get_with("http://github.com/c", &basic("", "one"))).await;
    expect(&mut upstream, "GET /c HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    drop((client, upstream));
    let [outside, events, _] = service.events().await;
    let decision = one_decision(&outside, "deny", "unauthenticated");
    assert_eq!(
        (&decision["host"], &decision["port"], &decision["via"]),
        (&"github.com".into(), &80.into(), &"http".into())
    );
    assert_eq!(reasons(&events), ["listed"; 2]);
    let sent = CODER.encode(":one");
    assert!(events.iter().chain(&outside).all(|event| !event.to_string().contains(&sent)), "{events:?}");
}

#[tokio::test]
async fn m001_nobody_is_let_in_without_a_token_and_the_connection_stays_usable() {
    let mut service = Service::new();
    let server = service.ci.server("203.0.113.10:443").await;
    let mut client = service.client().await;
    for field in ["", "Proxy-Authorization: Bearer three\r\n"] {
        send(&mut client, connect_with("github.com:443", field)).await;
        challenged(&mut client).await;
    }
    let body = "x".repeat(64 * 1024);
    let post =
        format!("POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    send(&mut client, post).await;
    challenged(&mut client).await;
    for world in [&service.outside, &service.ci, &service.dev] {
        world.assert_untouched();
    }
    send(&mut client, connect_with("github.com:443", &basic("netbox", "one"))).await;
    expect(&mut client, ESTABLISHED).await;
    server.accept().await;
}

#[tokio::test]
async fn a_connection_ends_where_the_next_request_cannot_be_found() {
    let large =
        format!("POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\nContent-Length: {}\r\n\r\n", 64 * 1024 + 1);
    for request in [
        // What is behind it is meant for a tunnel.
        connect("github.com:443") + "GET http://github.com/ HTTP/1.1\r\n",
        large,
        "POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
            .to_owned(),
        "GET http://github.com/ HTTP/1.1\r\nHost: github.com\r\nConnection: close\r\n\r\n".to_owned(),
        "GET http://github.com/ HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let mut service = Service::new();
        let mut client = service.client().await;
        send(&mut client, &request).await;
        expect_answer(&mut client, "407").await;
        drop(client);
        one_decision(&service.assert_closed().await, "deny", "unauthenticated");
    }
}

#[tokio::test]
async fn nobody_asks_without_a_token_for_ever() {
    let mut service = Service::new();
    let mut client = service.client().await;
    for _ in 1..16 {
        send(&mut client, connect("github.com:443")).await;
        challenged(&mut client).await;
    }
    send(&mut client, connect("github.com:443")).await;
    expect_answer(&mut client, "407").await;
    assert_eq!(reasons(&service.assert_closed().await), ["unauthenticated"; 16]);
}

#[tokio::test]
async fn those_who_are_turned_away_fill_no_log() {
    let mut service = Service::new();
    for _ in 0..10 {
        let mut client = service.client().await;
        for _ in 1..16 {
            send(&mut client, connect("github.com:443")).await;
            challenged(&mut client).await;
        }
    }
    let events = service.assert_closed().await;
    let told = reasons(&events).len();
    assert!((100..150).contains(&told), "{told}");
}

#[tokio::test]
async fn m005_what_a_client_calls_itself_says_nothing() {
    for (user, token) in [("dev", "one"), ("ci", "one"), ("dev@ci", "one"), ("role=dev;uid=0", "one"), ("", "one")] {
        let mut service = Service::new();
        let server = service.ci.server("203.0.113.10:443").await;
        let mut client = service.client().await;
        let role = "Role: dev\r\nX-Netbox-Role: dev\r\nCookie: role=dev\r\nUser-Agent: dev\r\n";
        send(&mut client, connect_with("github.com:443", &(role.to_owned() + &basic(user, token)))).await;
        expect(&mut client, ESTABLISHED).await;
        drop((client, server.accept().await));
        let mut client = service.client().await;
        send(&mut client, connect_with("api.github.com:443", &(role.to_owned() + &basic(user, token)))).await;
        expect_answer(&mut client, "403").await;
        drop(client);
        service.dev.assert_untouched();
        assert_eq!(reasons(&service.events().await[1]), ["listed", "not-listed"], "{user}");
    }
    // Neither a name, nor a hash, nor a name with the token as the user's.
    for field in [basic("ci", ""), basic("ci", "ci"), basic("one", ""), basic("ci", &TokenHash::of(b"one").to_string())]
    {
        let mut service = Service::new();
        let mut client = service.client().await;
        send(&mut client, connect_with("github.com:443", &(field + "Role: ci\r\n"))).await;
        challenged(&mut client).await;
        drop(client);
        service.assert_closed().await;
    }
}

#[tokio::test]
async fn a_listener_of_one_role_takes_its_tokens_alone() {
    let mut service = Service::for_role(Some("dev"));
    let server = service.dev.server("203.0.113.11:443").await;
    let mut client = service.client().await;
    send(&mut client, connect_with("github.com:443", &basic("", "one"))).await;
    challenged(&mut client).await;
    send(&mut client, connect_with("api.github.com:443", &basic("", "two"))).await;
    expect(&mut client, ESTABLISHED).await;
    server.accept().await;
    service.ci.assert_untouched();
}

#[tokio::test]
async fn each_request_of_a_connection_is_judged_by_whose_it_is() {
    let mut service = Service::new();
    service.dev.resolves("github.com", Ok(&["203.0.113.10"]));
    let server = service.ci.server("203.0.113.10:80").await;
    let others = service.dev.server("203.0.113.11:80").await;
    let mut client = service.client().await;
    send(&mut client, get_with("http://github.com/", &basic("", "one"))).await;
    let mut upstream = server.accept().await;
    expect(&mut upstream, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
    send(&mut upstream, OK).await;
    expect(&mut client, OK).await;
    send(&mut client, get_with("http://api.github.com/", &basic("", "two"))).await;
    let mut other = others.accept().await;
    expect(&mut other, "GET / HTTP/1.1\r\nHost: api.github.com\r\n\r\n").await;
    send(&mut other, OK).await;
    expect(&mut client, OK).await;
    expect_end(&mut upstream).await;
    // What one role has opened is nothing to the other.
    send(&mut client, get_with("http://github.com/", &basic("", "two"))).await;
    expect_answer(&mut client, "403").await;
    drop(client);
    let [_, ci, dev] = service.events().await;
    assert_eq!((reasons(&ci), reasons(&dev)), (vec!["listed"], vec!["listed", "not-listed"]));
}

#[tokio::test]
async fn m011_no_role_uses_a_connection_that_another_has_opened() {
    let mut service = Service::new();
    // Both may reach it.
    let allow = policy(Mode::Allowlist, &["github.com:80"], &[]);
    service.dev.session.replace_policy(allow);
    let (of_ci, of_dev) = (service.ci.server("203.0.113.10:80").await, service.dev.server("203.0.113.10:80").await);
    let mut client = service.client().await;
    for (server, token) in [(&of_ci, "one"), (&of_dev, "two"), (&of_ci, "one")] {
        send(&mut client, get_with("http://github.com/", &basic("", token))).await;
        let mut upstream = server.accept().await;
        expect(&mut upstream, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
        send(&mut upstream, OK).await;
        expect(&mut client, OK).await;
    }
}

#[tokio::test]
async fn m004_a_token_that_is_taken_away_ends_what_it_has_opened() {
    let mut service = Service::new();
    let server = service.ci.server("203.0.113.10:9").await;
    let mut tunnels = Vec::new();
    for _ in 0..2 {
        let mut client = service.client().await;
        send(&mut client, connect_with("github.com:9", &basic("", "one"))).await;
        expect(&mut client, ESTABLISHED).await;
        let mut upstream = server.accept().await;
        send(&mut client, "\0").await;
        expect(&mut upstream, "\0").await;
        tunnels.push((client, upstream));
    }
    let idle_server = service.ci.server("203.0.113.10:80").await;
    let mut idle = service.client().await;
    send(&mut idle, get_with("http://github.com/", &basic("", "one"))).await;
    let mut upstream = idle_server.accept().await;
    expect(&mut upstream, "GET / HTTP/1.1\r\nHost: github.com\r\n\r\n").await;
    send(&mut upstream, OK).await;
    expect(&mut idle, OK).await;
    let kept = vec![role("ci", "new", &service.ci), role("dev", "two", &service.dev)];
    assert_eq!(service.roles.replace(kept), 3);
    for (mut client, mut upstream) in tunnels {
        expect_reset(&mut client).await;
        expect_reset(&mut upstream).await;
    }
    send(&mut idle, get_with("http://github.com/", &basic("", "one"))).await;
    challenged(&mut idle).await;
    let mut client = service.client().await;
    send(&mut client, connect_with("github.com:9", &basic("", "one"))).await;
    challenged(&mut client).await;
    drop((idle, client));
    let [_, events, _] = service.events().await;
    let ends: Vec<_> = of(&events, "close").iter().map(|event| event["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["done", "revoked", "revoked"]);
}

#[tokio::test]
async fn a_role_with_as_many_connections_as_it_may_have_is_told_so() {
    let mut service = Service::new();
    service.ci = World::new(&["github.com:9"]).limits(|limits| limits.connections = 1);
    service.roles.replace(vec![role("ci", "one", &service.ci)]);
    let server = service.ci.server("203.0.113.10:9").await;
    let mut first = service.client().await;
    send(&mut first, connect_with("github.com:9", &basic("", "one"))).await;
    expect(&mut first, ESTABLISHED).await;
    let upstream = server.accept().await;
    let mut second = service.client().await;
    send(&mut second, connect_with("github.com:9", &basic("", "one"))).await;
    let told = expect_answer(&mut second, "403").await;
    assert_eq!(told, "netbox: whoever this is has reached a limit of theirs (limit)\n");
    drop((first, second, upstream));
    assert_eq!(reasons(&service.events().await[1]), ["limit", "listed"]);
}

#[tokio::test]
async fn s047_a_client_that_offers_no_password_is_told_that_one_is_needed() {
    for greeting in [&[5, 1, 0][..], &[5, 2, 0, 1], &[5, 1, 0xff]] {
        let mut service = Service::new();
        let mut client = service.client().await;
        send(&mut client, [greeting, &named(b"github.com", 443)].concat()).await;
        assert_eq!(all(&mut client).await, [5, 0xff]);
        drop(client);
        one_decision(&service.assert_closed().await, "deny", "unauthenticated");
    }
}

#[tokio::test]
async fn s050_a_login_of_another_version_is_no_login() {
    for version in [0, 2, 5, 255] {
        let mut service = Service::new();
        let mut client = service.client().await;
        send(&mut client, PASSWORD).await;
        expect(&mut client, LOGIN).await;
        let mut bytes = login(b"ci", b"one");
        bytes[0] = version;
        send(&mut client, [bytes, named(b"github.com", 443)].concat()).await;
        assert_eq!(all(&mut client).await, WRONG);
        drop(client);
        one_decision(&service.assert_closed().await, "error", "malformed");
    }
}

#[tokio::test]
async fn s051_the_longest_login_is_read_and_proves_nothing() {
    let long = [b'x'; 255];
    for login in [login(&long, &long), login(b"", b""), login(&long, b"onf"), login(b"one", b"")] {
        let mut service = Service::new();
        let mut client = service.client().await;
        send(&mut client, [PASSWORD, &login, &named(b"github.com", 443)].concat()).await;
        assert_eq!(all(&mut client).await, [LOGIN, WRONG].concat());
        drop(client);
        one_decision(&service.assert_closed().await, "deny", "unauthenticated");
    }
}

#[tokio::test]
async fn a_password_of_socks5_says_the_role() {
    for user in [&b""[..], b"dev", &[0xff; 255]] {
        let mut service = Service::new();
        let server = service.ci.server("203.0.113.10:443").await;
        let mut client = service.client().await;
        // In pieces, and with other methods beside it.
        for byte in [&[5, 3, 0, 1, 2][..], &login(user, b"one")].concat() {
            send(&mut client, [byte]).await;
        }
        expect(&mut client, [LOGIN, LOGGED_IN].concat()).await;
        send(&mut client, named(b"github.com", 443)).await;
        expect(&mut client, SUCCEEDED).await;
        drop((client, server.accept().await));
        let mut client = service.client().await;
        send(&mut client, [PASSWORD, &login(user, b"one"), &named(b"api.github.com", 443)].concat()).await;
        let refused = all(&mut client).await;
        assert_eq!(refused, [LOGIN, LOGGED_IN, &[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]].concat());
        drop(client);
        service.dev.assert_untouched();
        assert_eq!(reasons(&service.events().await[1]), ["listed", "not-listed"]);
    }
}

#[tokio::test]
async fn half_a_login_is_waited_for_no_longer_than_half_a_head() {
    let mut service = Service::new();
    service.outside = service.outside.limits(|limits| limits.head = std::time::Duration::from_millis(50));
    let mut client = service.client().await;
    send(&mut client, [PASSWORD, &[1, 2, b'c']].concat()).await;
    expect(&mut client, LOGIN).await;
    expect_reset(&mut client).await;
    one_decision(&service.assert_closed().await, "error", "malformed");
}
