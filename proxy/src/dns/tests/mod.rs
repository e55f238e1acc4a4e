//! Tests of name resolution over real sockets: a sandbox's servers on loopback, with scripted lookups behind them.

mod bytes;
mod cases;
mod hostile;
mod records;
mod rules;
mod streams;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::RData;
use netbox_config::{HostName, Mode, Policy, Rule, Source};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::forward::{Record, RecordKind, RecordSource};
use super::{Names, serve_tcp, serve_udp};
use crate::resolve::{LookupError, Pending, Resolver};
use crate::turns::Asked;

use bytes::query;

/// The address that every name has unless the script says otherwise.
const PUBLIC: [u8; 4] = [203, 0, 113, 10];

type Addresses = Result<Vec<IpAddr>, LookupError>;
type Records = Result<Vec<Record>, LookupError>;

/// Lookups by script, which write down what they were asked for: what would have left the host.
#[derive(Default)]
struct Script {
    asked: Mutex<Vec<String>>,
    addresses: HashMap<&'static str, Addresses>,
    records: HashMap<(&'static str, RecordKind), Records>,
    /// Lookups wait for this many permits first, if there are any to wait for.
    gate: Option<tokio::sync::Semaphore>,
}

impl Script {
    fn addresses(addresses: impl IntoIterator<Item = (&'static str, Addresses)>) -> Self {
        Self { addresses: addresses.into_iter().collect(), ..Self::default() }
    }

    async fn note(&self, question: String) {
        self.asked.lock().unwrap().push(question);
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
    }
}

impl Resolver for Script {
    fn addresses<'a>(&'a self, name: &'a HostName, _: Asked) -> Pending<'a, Addresses> {
        Box::pin(async move {
            self.note(name.to_string()).await;
            self.addresses.get(name.as_str()).cloned().unwrap_or_else(|| Ok(vec![PUBLIC.into()]))
        })
    }
}

impl RecordSource for Script {
    fn records<'a>(&'a self, name: &'a HostName, kind: RecordKind) -> Pending<'a, Records> {
        Box::pin(async move {
            self.note(format!("{name} {kind:?}")).await;
            let known = self.records.iter().find(|((owner, of), _)| *owner == name.as_str() && *of == kind);
            known.map_or(Err(LookupError::NoAddress), |(_, records)| records.clone())
        })
    }
}

/// One sandbox's name resolution.
struct World {
    names: Arc<Names>,
    script: Arc<Script>,
    udp: SocketAddr,
    tcp: SocketAddr,
    client: UdpSocket,
    _servers: JoinSet<()>,
}

fn name(text: &str) -> HostName {
    HostName::parse_wire(text.as_bytes()).unwrap()
}

fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Policy {
    let allow = allow.iter().map(|text| Rule::parse(text, Source::Flag("--allow")).unwrap());
    let deny = deny.iter().map(|text| Rule::parse_deny(text, Source::Flag("--deny")).unwrap());
    Policy::new(mode, allow.collect(), deny.collect()).unwrap()
}

impl World {
    /// A sandbox that may reach what is on the list, on a host where every name has an address.
    async fn allowing(allow: &[&str]) -> Self {
        Self::new(policy(Mode::Allowlist, allow, &[]), Script::default(), &[]).await
    }

    async fn scripted(allow: &[&str], script: Script) -> Self {
        Self::new(policy(Mode::Allowlist, allow, &[]), script, &[]).await
    }

    async fn new(policy: Policy, script: Script, search: &[&str]) -> Self {
        let script = Arc::new(script);
        let search = search.iter().map(|domain| name(domain)).collect();
        let names = Names::new(Arc::new(policy), script.clone(), script.clone(), search);
        Self::serving(Arc::new(names), script).await
    }

    async fn serving(names: Arc<Names>, script: Arc<Script>) -> Self {
        let udp_socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let tcp_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (udp, tcp) = (udp_socket.local_addr().unwrap(), tcp_listener.local_addr().unwrap());
        let mut servers = JoinSet::new();
        servers.spawn(serve_udp(names.clone(), udp_socket));
        servers.spawn(serve_tcp(names.clone(), tcp_listener));
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(udp).await.unwrap();
        Self { names, script, udp, tcp, client, _servers: servers }
    }

    /// Sends a datagram and takes the next one that comes.
    async fn ask(&self, message: &[u8]) -> Answer {
        self.client.send(message).await.unwrap();
        self.receive().await
    }

    async fn receive(&self) -> Answer {
        let mut buffer = vec![0; 65_536];
        let length = self.client.recv(&mut buffer).await.unwrap();
        Answer::new(buffer[..length].to_vec())
    }

    /// Whether a datagram is dropped: the answer to the next one comes first.
    async fn drops(&self, message: &[u8]) -> bool {
        self.client.send(message).await.unwrap();
        let marker = bytes::with_id(0xd209, query("localhost", bytes::A));
        self.ask(&marker).await.id() == 0xd209
    }

    async fn stream(&self) -> TcpStream {
        TcpStream::connect(self.tcp).await.unwrap()
    }

    /// Sends a message by stream and takes the answer.
    async fn ask_stream(&self, message: &[u8]) -> Answer {
        let mut stream = self.stream().await;
        streams::send(&mut stream, message).await;
        streams::receive(&mut stream).await
    }

    /// What was looked up on the host so far.
    fn asked(&self) -> Vec<String> {
        self.script.asked.lock().unwrap().clone()
    }

    fn name_of(&self, address: impl Into<IpAddr>) -> Option<String> {
        self.names.synthetic.name_of(address.into()).map(|name| name.to_string())
    }
}

/// An answer, as it came and as another implementation reads it.
struct Answer {
    bytes: Vec<u8>,
    message: Message,
}

impl Answer {
    fn new(bytes: Vec<u8>) -> Self {
        let message = Message::from_vec(&bytes).expect("an answer that others can read");
        assert!(bytes[2] & 0x80 != 0, "an answer says that it is one");
        Self { bytes, message }
    }

    fn id(&self) -> u16 {
        u16::from_be_bytes([self.bytes[0], self.bytes[1]])
    }

    /// The code, with the upper bits that stand in the OPT record.
    fn code(&self) -> ResponseCode {
        self.message.metadata.response_code
    }

    fn data(&self) -> Vec<&RData> {
        self.message.answers.iter().map(|record| &record.data).collect()
    }

    fn v4(&self) -> Ipv4Addr {
        match self.data()[..] {
            [RData::A(address)] => address.0,
            _ => panic!("one IPv4 address, not {:?}", self.message),
        }
    }

    fn v6(&self) -> Ipv6Addr {
        match self.data()[..] {
            [RData::AAAA(address)] => address.0,
            _ => panic!("one IPv6 address, not {:?}", self.message),
        }
    }

    /// NOERROR without a record in any section.
    fn is_empty(&self) -> bool {
        self.code() == ResponseCode::NoError && self.has_no_records()
    }

    fn has_no_records(&self) -> bool {
        self.bytes[6..10] == [0; 4]
    }

    /// The code of its Extended DNS Error, if it has one.
    fn extended_error(&self) -> Option<u16> {
        // The OPT record is the last one: root, type 41, eight more bytes, and then its options.
        let opt = self.bytes.windows(3).rposition(|bytes| bytes == [0, 0, 41])?;
        match *self.bytes.get(opt + 11..opt + 17)? {
            [0, 15, _, _, high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }
}
