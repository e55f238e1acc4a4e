//! A sandbox whose resolver and dialler are scripted and watched.

use std::collections::HashMap;
use std::fs::File;
use std::future::Future;
use std::io::{Read, Seek};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netbox_config::{Ech, HostFacts, HostName, Mode, Policy, Rule, Source, VettedAddr};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::capture::handle;
use crate::dial::{DialError, Dialed, Dialer};
use crate::dns::{HostRecords, Names};
use crate::events::{Events, SessionId};
use crate::explicit;
use crate::facts::Facts;
use crate::original_destination::Original;
use crate::resolve::{LookupError, Pending, Resolver};
use crate::service::credentials::Entrance;
use crate::session::{Limits, Session};
use crate::turns::Asked;

/// The address of `github.com` in the cases.
pub const SERVER: &str = "203.0.113.10";

/// A fatal alert `access_denied`.
pub const ALERT: &[u8] = &[0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x31];

/// Names and addresses, and what was asked for.
#[derive(Default)]
pub struct Net {
    names: Mutex<HashMap<String, Result<Vec<IpAddr>, LookupError>>>,
    servers: Mutex<HashMap<SocketAddr, SocketAddr>>,
    pub lookups: Mutex<Vec<String>>,
    pub dials: Mutex<Vec<SocketAddr>>,
}

impl Resolver for Net {
    fn addresses<'a>(&'a self, name: &'a HostName, _: Asked) -> Pending<'a, Result<Vec<IpAddr>, LookupError>> {
        self.lookups.lock().unwrap().push(name.to_string());
        let answer = self.names.lock().unwrap().get(name.as_str()).cloned();
        Box::pin(async { answer.unwrap_or(Err(LookupError::NotFound)) })
    }
}

impl Dialer for Net {
    fn dial<'a>(&'a self, addresses: &'a [VettedAddr]) -> Pending<'a, Result<Dialed, DialError>> {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.socket_addr()).collect();
        self.dials.lock().unwrap().extend(&addresses);
        let servers = self.servers.lock().unwrap();
        let found = addresses.iter().find_map(|address| Some((*address, *servers.get(address)?)));
        Box::pin(async move {
            let (address, server) = found.ok_or(DialError::Refused)?;
            Ok(Dialed { stream: TcpStream::connect(server).await?, address })
        })
    }
}

/// The sandbox, and the world around it.
pub struct World {
    pub session: Arc<Session>,
    pub net: Arc<Net>,
    /// What is asked of those who come in by the explicit listener.
    pub entrance: Option<Arc<Entrance>>,
    events: File,
    connections: Vec<JoinHandle<()>>,
}

/// Awaits what must happen soon.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("it happens soon")
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| Rule::parse(text, Source::Flag("--allow")).unwrap()).collect()
}

/// A policy to put in the place of another one.
pub fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Arc<Policy> {
    Arc::new(Policy::new(mode, rules(allow), rules(deny)).unwrap())
}

impl World {
    /// A sandbox with these allow rules. `github.com`, `api.github.com` and `evil.example` resolve, each to an address of
    /// its own.
    pub fn new(allow: &[&str]) -> Self {
        Self::with(Mode::Allowlist, allow, &[])
    }

    pub fn with(mode: Mode, allow: &[&str], deny: &[&str]) -> Self {
        Self::under(Policy::new(mode, rules(allow), rules(deny)).unwrap())
    }

    /// The same without ECH.
    pub fn without_ech(mode: Mode, allow: &[&str]) -> Self {
        Self::under(Policy::new(mode, rules(allow), Vec::new()).unwrap().with_ech(Ech::Refuse))
    }

    fn under(policy: Policy) -> Self {
        let net = Arc::new(Net::default());
        for (name, address) in
            [("github.com", SERVER), ("api.github.com", "203.0.113.11"), ("evil.example", "203.0.113.66")]
        {
            net.names.lock().unwrap().insert(name.to_owned(), Ok(vec![address.parse().unwrap()]));
        }
        let policy = Arc::new(policy);
        let records = Arc::new(HostRecords::new());
        let resolver: Arc<dyn Resolver> = Arc::clone(&net) as _;
        let names = Arc::new(Names::new(policy, resolver, records, Vec::new()));
        let events = tempfile::tempfile().unwrap();
        let sink = Events::new(SessionId::from([0; 16]), Some(events.try_clone().unwrap().into()));
        let facts = HostFacts { own: vec!["198.51.100.1".parse().unwrap()], ..HostFacts::default() };
        let mut session = Session::new(names, sink, Facts::fixed(facts));
        session.dialer = Arc::clone(&net) as _;
        Self { session: Arc::new(session), net, entrance: None, events, connections: Vec::new() }
    }

    /// The same with other limits. Before any connection.
    pub fn limits(mut self, set: impl FnOnce(&mut Limits)) -> Self {
        set(&mut Arc::get_mut(&mut self.session).unwrap().limits);
        self
    }

    /// The same on a host with these addresses, where netbox listens here. Before any connection.
    pub fn on_host(mut self, own: &[&str], listeners: &[&str]) -> Self {
        let facts = HostFacts {
            own: own.iter().map(|address| address.parse().unwrap()).collect(),
            listeners: listeners.iter().map(|address| address.parse().unwrap()).collect(),
            ..HostFacts::default()
        };
        Arc::get_mut(&mut self.session).unwrap().facts = Facts::fixed(facts);
        self
    }

    /// What a name resolves to.
    pub fn resolves(&self, name: &str, answer: Result<&[&str], LookupError>) {
        let answer = answer.map(|addresses| addresses.iter().map(|address| address.parse().unwrap()).collect());
        self.net.names.lock().unwrap().insert(name.to_owned(), answer);
    }

    /// A server that is reached by dialling `address`.
    pub async fn server(&self, address: &str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.net.servers.lock().unwrap().insert(address.parse().unwrap(), listener.local_addr().unwrap());
        Server(listener)
    }

    /// A program's connection to `host:port`, where the host is a name that it has looked up before, or an address.
    pub async fn connect(&mut self, target: &str) -> TcpStream {
        let (host, port) = target.rsplit_once(':').unwrap();
        let port = port.parse().unwrap();
        let original = match target.parse() {
            Ok(address) => address,
            Err(_) => {
                let name = HostName::parse_wire(host.as_bytes()).unwrap();
                let listed = self.session.policy().may_resolve(&name);
                SocketAddr::new(self.session.names.synthetic.assign(&name, listed).unwrap().0.into(), port)
            }
        };
        let (client, accepted) = pair().await;
        let original = Original { address: original, is_listener: false };
        self.connections.push(tokio::spawn(handle(Arc::clone(&self.session), accepted, original)));
        client
    }

    /// A program's connection to the explicit listener.
    pub async fn explicit(&mut self) -> TcpStream {
        let (client, accepted) = pair().await;
        self.connections.push(tokio::spawn(explicit::handle(
            Arc::clone(&self.session),
            self.entrance.clone(),
            accepted,
        )));
        client
    }

    /// An address at which one connection finds the explicit listener.
    pub async fn explicit_at(&mut self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, session) = (listener.local_addr().unwrap(), Arc::clone(&self.session));
        self.connections.push(tokio::spawn(async move {
            let (accepted, _) = listener.accept().await.unwrap();
            explicit::handle(session, None, accepted).await;
        }));
        address
    }

    /// Waits until every connection has ended, and gives the events that were written.
    pub async fn events(mut self) -> Vec<Value> {
        for connection in self.connections.drain(..) {
            soon(connection).await.unwrap();
        }
        self.written()
    }

    /// Ends every connection at once, and gives the events that were written.
    pub async fn aborted(mut self) -> Vec<Value> {
        for connection in self.connections.drain(..) {
            connection.abort();
            assert!(soon(connection).await.unwrap_err().is_cancelled());
        }
        self.written()
    }

    fn written(&mut self) -> Vec<Value> {
        self.session.events.exit(0);
        let mut text = String::new();
        self.events.rewind().unwrap();
        self.events.read_to_string(&mut text).unwrap();
        let mut events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.pop().unwrap()["event"], "exit");
        events
    }

    /// That nothing was looked up, and nothing dialled.
    pub fn assert_untouched(&self) {
        assert_eq!(*self.net.lookups.lock().unwrap(), Vec::<String>::new());
        assert_eq!(*self.net.dials.lock().unwrap(), Vec::<SocketAddr>::new());
    }
}

/// Both ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// A listener behind a dialled address.
pub struct Server(TcpListener);

impl Server {
    pub async fn accept(&self) -> TcpStream {
        soon(self.accept_any()).await
    }

    /// The next connection, which may never come.
    pub async fn accept_any(&self) -> TcpStream {
        self.0.accept().await.unwrap().0
    }
}

/// Sends bytes.
pub async fn send(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    soon(stream.write_all(bytes.as_ref())).await.unwrap();
}

/// Receives exactly these bytes next.
pub async fn expect(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    let mut received = vec![0; bytes.len()];
    let got = soon(stream.read_exact(&mut received)).await;
    assert!(got.is_ok(), "{got:?} instead of {:?}", String::from_utf8_lossy(bytes));
    assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(bytes));
}

/// Receives all that is still to come, up to an orderly end.
pub async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    soon(stream.read_to_end(&mut received)).await.unwrap();
    received
}

/// Nothing more is to come, and the end is an orderly one.
pub async fn expect_end(stream: &mut TcpStream) {
    assert_eq!(String::from_utf8_lossy(&rest(stream).await), "");
}

/// The connection is reset before any byte.
pub async fn expect_reset(stream: &mut TcpStream) {
    let mut byte = [0];
    let error = soon(stream.read(&mut byte)).await.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// A response with this status, with `Proxy-Status`, which ends the connection. Gives its body.
pub async fn expect_answer(stream: &mut TcpStream, status: &str) -> String {
    let response = String::from_utf8(rest(stream).await).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {response:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    assert!(head.contains("\r\nProxy-Status: netbox; error=http_request_"), "{head}");
    assert!(head.contains("\r\nConnection: close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

/// The events of one kind.
pub fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

/// The one decision, with this verdict and reason; and a close event exactly if it was allowed.
pub fn one_decision<'a>(events: &'a [Value], verdict: &str, reason: &str) -> &'a Value {
    let decisions = of(events, "decision");
    assert_eq!(decisions.len(), 1, "{events:?}");
    assert_eq!((&decisions[0]["verdict"], &decisions[0]["reason"]), (&verdict.into(), &reason.into()), "{events:?}");
    assert_eq!(of(events, "close").len(), usize::from(verdict == "allow"), "{events:?}");
    decisions[0]
}

/// The one close event, which ends like this.
pub fn one_close<'a>(events: &'a [Value], end: &str) -> &'a Value {
    let closes = of(events, "close");
    assert_eq!(closes.len(), 1, "{events:?}");
    assert_eq!(closes[0]["end"], end, "{events:?}");
    closes[0]
}
