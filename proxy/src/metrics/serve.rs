//! The listener for metrics: a few pages over HTTP, one request for each connection.
//!
//! A page that any program on this machine may read is one that a browser on it may read, and a web site may have its name
//! point here (DNS rebinding). So a request must be for an address, or for `localhost`: a name that somebody else could own
//! is not answered, unless a token comes along. A token that is nobody's is told so, also where none was needed: whoever sends
//! one counts on it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Viewer;
use super::text::CONTENT_TYPE;
use crate::half_open::HalfOpen;
use crate::http::head::MAX_FIELDS;
use crate::socket;
use crate::stream::Stream;

/// How long a request may take, and how long its head may be.
const DEADLINE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 16 * 1024;

/// How many connections are served at once. Further ones wait.
const MOST: usize = 256;

/// How many of them may not have said yet what they want. The one that has waited longest is ended for the next.
const MOST_SILENT: usize = 64;

/// How long nothing is accepted after an error that would come again at once.
const REST: Duration = Duration::from_millis(50);

/// The service, as whoever watches it sees it.
pub trait Observed: Send + Sync {
    /// OpenMetrics text, as far as that one may see.
    fn metrics(&self, viewer: &Viewer) -> String;

    /// Whether new connections are taken.
    fn is_ready(&self) -> bool;

    /// Whose token that is. `None`: nobody's.
    fn viewer(&self, token: &[u8]) -> Option<Viewer>;
}

/// Serves until dropped.
pub async fn serve_metrics(listener: TcpListener, observed: Arc<dyn Observed>) {
    let (places, silent) = (Arc::new(Semaphore::new(MOST)), Arc::new(HalfOpen::default()));
    let mut connections = JoinSet::new();
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (observed, silent) = (Arc::clone(&observed), Arc::clone(&silent));
                connections.spawn(async move {
                    let _place = place;
                    // Whoever is late gets no answer.
                    let _ = timeout(DEADLINE, answer(stream.into(), &silent, &*observed)).await;
                });
            }
            Err(_) => sleep(REST).await,
        }
    }
}

async fn answer(stream: Stream, silent: &HalfOpen, observed: &dyn Observed) {
    let Some(Some(page)) = silent.wait(MOST_SILENT, asked(&stream, observed)).await else { return };
    if socket::write_all(&stream, page.response().as_bytes()).await.is_ok() {
        socket::finish(stream).await;
    }
}

/// Reads a request, and says what is answered. `None`: it has gone.
async fn asked(stream: &Stream, observed: &dyn Observed) -> Option<Page> {
    let mut buffer = BytesMut::new();
    loop {
        if socket::read(stream, &mut buffer).await.ok()? == 0 {
            return None;
        }
        match page(&buffer, observed) {
            Some(page) => return Some(page),
            None if buffer.len() >= MOST_BYTES => return Some(Page::plain(431, "the request is too long")),
            None => {}
        }
    }
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The request was HEAD.
    is_head: bool,
}

impl Page {
    fn plain(status: u16, text: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n"), is_head: false }
    }

    fn response(&self) -> String {
        let Self { status, content_type, body, is_head } = self;
        let reason = match status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        // Who is not known is told how to be (RFC 9110 §15.5.2).
        let challenge = if *status == 401 { "WWW-Authenticate: Bearer realm=\"netbox\"\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status} {reason}\r\n{challenge}Content-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
            body.len(),
            if *is_head { "" } else { body }
        )
    }
}

/// The answer to a request. `None`: it is not whole.
fn page(bytes: &[u8], observed: &dyn Observed) -> Option<Page> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Page::plain(400, "this is no request")),
    }
    let (Some(method), Some(path)) = (request.method, request.path) else {
        return Some(Page::plain(400, "this is no request"));
    };
    let field = |name: &str| {
        let mut found = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        let first = found.next().map(|field| field.value);
        // Two of them say nothing.
        first.filter(|_| found.next().is_none())
    };
    let has_token = request.headers.iter().any(|field| field.name.eq_ignore_ascii_case("authorization"));
    let viewer = match field("authorization").and_then(bearer).and_then(|token| observed.viewer(token)) {
        Some(viewer) => viewer,
        None if has_token => return Some(Page::plain(401, "that is the token of no role")),
        None => Viewer::Anybody,
    };
    let is_ours = field("host").and_then(|host| std::str::from_utf8(host).ok()).is_some_and(is_nobodys_name);
    if !is_ours && viewer == Viewer::Anybody {
        return Some(Page::plain(421, "ask for this page by address, or with the token of a role"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Some(Page::plain(405, "GET it"));
    }
    let page = match path.split('?').next().unwrap_or_default() {
        "/metrics" => Page { content_type: CONTENT_TYPE, body: observed.metrics(&viewer), ..Page::plain(200, "") },
        "/healthz" => Page::plain(200, "it lives"),
        "/readyz" if observed.is_ready() => Page::plain(200, "it takes connections"),
        "/readyz" => Page::plain(503, "it takes no more connections"),
        _ => Page::plain(404, "there are /metrics, /healthz and /readyz"),
    };
    Some(Page { is_head: method == "HEAD", ..page })
}

/// The token in `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

/// Whether a `Host` is one that no web site can have: an address, or `localhost`.
fn is_nobodys_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use tokio::net::TcpStream;

    use super::*;
    use crate::capture::tests::world::soon;

    struct Service {
        is_ready: bool,
    }

    impl Observed for Service {
        fn metrics(&self, viewer: &Viewer) -> String {
            match viewer {
                Viewer::Anybody => "sums
"
                .into(),
                Viewer::Role(name) => format!(
                    "{name}
"
                ),
                Viewer::Admin => "all
"
                .into(),
            }
        }

        fn is_ready(&self) -> bool {
            self.is_ready
        }

        fn viewer(&self, token: &[u8]) -> Option<Viewer> {
            match token {
                b"secret" => Some(Viewer::Admin),
                b"token-of-ci" => Some(Viewer::Role("ci".into())),
                _ => None,
            }
        }
    }

    fn answered(request: &str) -> (u16, String) {
        let page = page(request.as_bytes(), &Service { is_ready: true }).expect("a whole request");
        (page.status, page.body.trim_end().to_owned())
    }

    fn get(path: &str, fields: &str) -> (u16, String) {
        answered(&format!("GET {path} HTTP/1.1\r\n{fields}\r\n"))
    }

    #[test]
    fn a_name_that_somebody_could_own_is_not_answered() {
        for host in
            ["127.0.0.1:9464", "127.0.0.1", "[::1]:9464", "[::1]", "localhost:9464", "LOCALHOST", "203.0.113.9:1"]
        {
            assert_eq!(get("/metrics", &format!("Host: {host}\r\n")), (200, "sums".into()), "{host}");
        }
        for fields in [
            "",
            "Host: evil.example\r\n",
            "Host: evil.example:9464\r\n",
            "Host: 127.0.0.1.evil.example\r\n",
            "Host: localhost.evil.example:9464\r\n",
            "Host: localhost:\r\n",
            "Host: 127.0.0.1\r\nHost: evil.example\r\n",
            "Host: \r\n",
            "Host: 127.1\r\n",
        ] {
            for path in ["/metrics", "/healthz", "/readyz", "/"] {
                assert_eq!(get(path, fields).0, 421, "{fields}");
            }
        }
    }

    #[test]
    fn tenants_are_for_whoever_has_the_token() {
        let with = |value: &str| get("/metrics", &format!("Host: 127.0.0.1\r\nAuthorization: {value}\r\n"));
        assert_eq!(with("Bearer secret").1, "all");
        assert_eq!(with("bearer  secret").1, "all");
        assert_eq!(with("Bearer token-of-ci").1, "ci");
        assert_eq!(get("/metrics", "Host: metrics.example\r\nAuthorization: Bearer secret\r\n").1, "all");
    }

    #[test]
    fn a_token_that_is_nobodys_is_told_so() {
        let twice = "Bearer secret\r\nAuthorization: Bearer secret";
        for wrong in ["Bearer wrong", "Bearer", "Bearer ", "Basic secret", "secret", "Bearer secret x", "", twice] {
            for (path, host) in [("/metrics", "127.0.0.1"), ("/healthz", "127.0.0.1"), ("/metrics", "evil.example")] {
                let fields = format!("Host: {host}\r\nAuthorization: {wrong}\r\n");
                assert_eq!(get(path, &fields).0, 401, "{wrong}");
            }
        }
        let request = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n";
        let response = page(request, &Service { is_ready: true }).unwrap().response();
        let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"netbox\"\r\n";
        assert!(response.starts_with(head) && !response.contains("sums"), "{response}");
    }

    #[test]
    fn there_are_three_pages() {
        let host = "Host: 127.0.0.1\r\n";
        assert_eq!(get("/healthz", host).0, 200);
        assert_eq!(get("/readyz?x", host).0, 200);
        assert_eq!(get("/", host).0, 404);
        assert_eq!(get("/metrics/", host).0, 404);
        assert_eq!(answered("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").0, 405);
        assert_eq!(answered("GET\r\n\r\n").0, 400);
        assert_eq!(page(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n", &Service { is_ready: true }), None);
        let page = page(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", &Service { is_ready: false }).unwrap();
        assert_eq!(page.status, 503);
    }

    #[tokio::test]
    async fn pages_are_served_and_who_says_nothing_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_metrics(listener, Arc::new(Service { is_ready: true })));
        let mut silent = Vec::new();
        for _ in 0..MOST_SILENT + 8 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        for (method, body) in [("GET", "sums\n"), ("HEAD", "")] {
            let mut client = TcpStream::connect(address).await.unwrap();
            for part in [method, " /metrics HTTP/1.1\r\nHost: 127", ".0.0.1\r\n\r\n"] {
                client.write_all(part.as_bytes()).await.unwrap();
            }
            let mut response = String::new();
            soon(client.read_to_string(&mut response)).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
            assert!(response.contains("\r\nContent-Length: 5\r\n"), "{response}");
            assert_eq!(response.split_once("\r\n\r\n").unwrap().1, body);
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(MOST_BYTES));
        client.write_all(long.as_bytes()).await.unwrap();
        let mut response = String::new();
        soon(client.read_to_string(&mut response)).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
        serving.abort();
    }
}
