//! Which records are asked for, and what becomes of what a name server answers.

use std::future::Future;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::proto::op::MessageType;
use hickory_resolver::proto::rr::rdata::{
    A as Ipv4Record, CNAME as Alias, MX as Mail, SOA as Start, SRV as Service, TXT as Text,
};
use hickory_resolver::proto::rr::{Name, Record as Answered, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::bytes::*;
use super::*;
use crate::dns::answer::SERVICES;
use crate::dns::forward::{HostRecords, MAX_RECORD_BYTES, MAX_RECORDS};

/// A name server of the host's, by script: it gets a query and whether it came by stream, and fills in the answer.
struct NameServer {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

type Reaction = fn(&mut Message, bool);

impl NameServer {
    async fn new(reaction: Reaction) -> Self {
        // The same port for both, as name servers have it; whichever is free for one may be taken for the other.
        let (socket, listener) = loop {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()).await {
                break (socket, listener);
            }
        };
        let address = socket.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                socket.send_to(&answered(&buffer[..length], reaction, false), peer).await.unwrap();
            }
        });
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                while let Ok(length) = stream.read_u16().await {
                    let mut query = vec![0; length.into()];
                    stream.read_exact(&mut query).await.unwrap();
                    let answer = answered(&query, reaction, true);
                    stream.write_all(&streams::framed(&answer)).await.unwrap();
                }
            }
        });
        Self { address, _tasks: tasks }
    }

    fn records(&self) -> HostRecords {
        let address = self.address;
        HostRecords::with(Box::new(move || {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = address.port();
                connection
            });
            let server = NameServerConfig::new(address.ip(), true, connections.to_vec());
            Ok((
                ResolverConfig::from_parts(None, vec![domain("search.example.")], vec![server]),
                ResolverOpts::default(),
            ))
        }))
    }
}

fn answered(query: &[u8], reaction: Reaction, by_stream: bool) -> Vec<u8> {
    let mut message = Message::from_vec(query).unwrap();
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_available = true;
    reaction(&mut message, by_stream);
    message.to_vec().unwrap()
}

fn domain(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn record(owner: &str, data: RData) -> Answered {
    Answered::from_rdata(domain(owner), 86_400, data)
}

/// The same answer to whatever is asked, through the name server and our own.
async fn answer(reaction: Reaction, kind: u16) -> (World, Answer) {
    let server = NameServer::new(reaction).await;
    let script = Arc::new(Script::default());
    let policy = Arc::new(policy(Mode::Allowlist, &["github.com"], &[]));
    let names = Names::new(policy, script.clone(), Arc::new(server.records()), Vec::new());
    let world = World::serving(Arc::new(names), script).await;
    let answer = world.ask_stream(&query("github.com", kind)).await;
    (world, answer)
}

/// As many records as an answer by stream can hold; also more bytes than are kept.
pub async fn a_thousand_records_are_cut() {
    let short: Reaction = |message, by_stream| {
        message.metadata.truncation = !by_stream;
        let texts = (0..if by_stream { 1000 } else { 0 }).map(|number| RData::TXT(Text::new(vec![number.to_string()])));
        message.answers = texts.map(|text| record("github.com.", text)).collect();
    };
    assert_eq!(answer(short, TXT).await.1.data().len(), MAX_RECORDS);
    let long: Reaction = |message, by_stream| {
        message.metadata.truncation = !by_stream;
        let texts = (0..if by_stream { 50 } else { 0 }).map(|_| RData::TXT(Text::new(vec!["x".repeat(250); 4])));
        message.answers = texts.map(|text| record("github.com.", text)).collect();
    };
    assert_eq!(answer(long, TXT).await.1.data().len(), MAX_RECORD_BYTES / 1004);
}

pub async fn a_loop_of_aliases_fails() {
    let reaction: Reaction = |message, _| {
        let (one, other) = ("github.com.", "loop.example.");
        message.answers =
            vec![record(one, RData::CNAME(Alias(domain(other)))), record(other, RData::CNAME(Alias(domain(one))))];
    };
    let answer = answer(reaction, TXT).await.1;
    assert!(answer.has_no_records(), "{:?}", answer.message);
}

pub async fn a_server_that_always_truncates_fails() {
    let reaction: Reaction = |message, _| message.metadata.truncation = true;
    let answer = answer(reaction, TXT).await.1;
    assert!(answer.has_no_records(), "{:?}", answer.message);
}

/// Runs `lookup` where nothing ever answers; the clock moves on by itself.
async fn at_the_deadline<T>(lookup: impl Future<Output = T>) -> (T, Duration) {
    let start = tokio::time::Instant::now();
    (lookup.await, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_fails_at_the_deadline() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = NameServer { address: silent.local_addr().unwrap(), _tasks: JoinSet::new() };
    let (asked, records) = (name("github.com"), server.records());
    let (outcome, elapsed) = at_the_deadline(records.records(&asked, RecordKind::Txt)).await;
    assert!(matches!(outcome, Err(LookupError::Failed(_))), "{outcome:?}");
    assert!(elapsed <= crate::dns::forward::RECORDS_DEADLINE);
}

#[tokio::test]
async fn records_are_rebuilt_without_anything_beside_them() {
    let reaction: Reaction = |message, _| {
        message.answers = vec![
            record("github.com.", RData::MX(Mail::new(10, domain("mail.github.com.")))),
            record("github.com.", RData::A(Ipv4Record(PUBLIC.into()))),
            record("github.com.", RData::TXT(Text::new(vec!["not asked for".to_owned()]))),
        ];
        message.additionals = vec![record("mail.github.com.", RData::A(Ipv4Record(PUBLIC.into())))];
        message.authorities = vec![record("github.com.", RData::TXT(Text::new(vec!["beside".to_owned()])))];
    };
    let answer = answer(reaction, MX).await.1;
    let expected = [
        &[0xc0, 0x0c, 0, 15, 0, 1, 0, 0, 1, 44, 0, 19, 0, 10][..],
        // Spelled out: there is nothing to point to.
        b"\x04mail\x06github\x03com\x00",
    ]
    .concat();
    assert_eq!(answer.bytes[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(answer.bytes[28..], expected);
}

#[tokio::test]
async fn records_of_an_alias_count_but_not_those_of_another_zone() {
    let text: Reaction = |message, _| {
        message.answers = vec![
            record("github.com.", RData::CNAME(Alias(domain("other.example.")))),
            record("other.example.", RData::TXT(Text::new(vec!["hello".to_owned()]))),
        ];
    };
    let answer_to_text = answer(text, TXT).await.1;
    assert!(matches!(answer_to_text.data()[..], [RData::TXT(_)]), "{:?}", answer_to_text.message);
    assert_eq!(answer_to_text.message.answers[0].name, domain("github.com."));

    let start: Reaction = |message, _| {
        let zone = Start::new(domain("ns.example."), domain("root.example."), 1, 2, 3, 4, 5);
        message.answers = vec![
            record("github.com.", RData::CNAME(Alias(domain("other.example.")))),
            record("other.example.", RData::SOA(zone)),
        ];
    };
    assert!(answer(start, SOA).await.1.is_empty());
}

#[tokio::test]
async fn failures_of_the_host_keep_their_meaning() {
    let codes: [(Reaction, ResponseCode); 4] = [
        (|message, _| message.metadata.response_code = ResponseCode::NXDomain, ResponseCode::NXDomain),
        (|_, _| {}, ResponseCode::NoError),
        (|message, _| message.metadata.response_code = ResponseCode::ServFail, ResponseCode::ServFail),
        (|message, _| message.metadata.response_code = ResponseCode::Refused, ResponseCode::ServFail),
    ];
    for (reaction, code) in codes {
        let answer = answer(reaction, TXT).await.1;
        assert_eq!(answer.code(), code);
        assert!(answer.has_no_records());
    }
}

#[tokio::test]
async fn the_question_goes_out_as_it_is_without_a_search_domain() {
    let reaction: Reaction = |message, _| {
        let asked = message.queries[0].clone();
        assert_eq!(asked.query_type(), RecordType::TXT);
        let text = RData::TXT(Text::new(vec![asked.name().to_ascii()]));
        message.answers = vec![Answered::from_rdata(asked.name().clone(), 5, text)];
    };
    let (_world, answer) = answer(reaction, TXT).await;
    assert!(answer.bytes.ends_with(b"\x0bgithub.com."), "{:?}", answer.message);
}

#[tokio::test]
async fn types_that_carry_no_address_are_asked_for_and_no_others() {
    let world = World::allowing(&["github.com"]).await;
    for kind in 0..600 {
        if ![A, AAAA].contains(&kind) {
            world.ask(&query("github.com", kind)).await;
        }
    }
    let expected = ["Ns", "Cname", "Soa", "Mx", "Txt", "Srv", "Naptr", "Caa"].map(|kind| format!("github.com {kind}"));
    assert_eq!(world.asked(), expected);
}

#[tokio::test]
async fn a_service_of_a_listed_host_is_asked_for() {
    let target = Service::new(0, 5, 27017, domain("db1.example.com."));
    let data = [&[0, 0, 0, 5, 0x69, 0x89][..], &labels("db1.example.com")].concat();
    let script = Script {
        records: [(("_mongodb._tcp.db.example.com", RecordKind::Srv), Ok(vec![Record { ttl: 60, data }]))].into(),
        ..Script::default()
    };
    let world = World::scripted(&["db.example.com"], script).await;
    let answer = world.ask(&query("_mongodb._tcp.db.example.com", SRV)).await;
    assert!(matches!(answer.data()[..], [RData::SRV(service)] if *service == target), "{:?}", answer.message);
    assert_eq!(world.asked(), ["_mongodb._tcp.db.example.com Srv"]);
}

#[tokio::test]
async fn a_service_label_cannot_carry_a_secret() {
    let world = World::allowing(&["db.example.com", "_odd._tcp.db.example.com"]).await;
    for asked in [
        "_secret._tcp.db.example.com",
        "_mongodb._secret.db.example.com",
        "_mongodb._udp.db.example.com",
        "_mongodb._tcp.secret.db.example.com",
        "_mongodb._tcp._mongodb._tcp.db.example.com",
        "x._mongodb._tcp.db.example.com",
        "_mongodb._tcp.example.com",
        "_tcp.db.example.com",
        "_mongodb._tcp",
    ] {
        assert!(world.ask(&query(asked, SRV)).await.is_empty(), "{asked}");
    }
    for kind in [TXT, MX, CNAME, SOA] {
        assert!(world.ask(&query("_mongodb._tcp.db.example.com", kind)).await.is_empty());
    }
    assert_eq!(world.asked(), [""; 0]);
    world.ask(&query("_odd._tcp.db.example.com", SRV)).await;
    assert_eq!(world.asked(), ["_odd._tcp.db.example.com Srv"], "a rule can name one");
}

#[test]
fn the_services_are_sorted_and_valid() {
    assert!(SERVICES.is_sorted());
    for service in SERVICES {
        assert!(service.starts_with('_') && service.len() <= 16 && RecordKind::of(SRV) == Some(RecordKind::Srv));
    }
}
