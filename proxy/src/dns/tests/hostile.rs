//! Whatever a program sends: nothing panics, nothing unlisted is looked up, and what is answered is an answer.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tokio::runtime::Runtime;

use super::bytes::*;
use super::*;
use crate::dns::answer::{finish, plan};
use crate::dns::reply::Reply;
use crate::dns::wire::{MAX_QUERY, Rcode, parse};

const ASKED: [&str; 12] = [
    "github.com",
    "a.github.com",
    "evil.example",
    "deep.evil.example",
    "localhost",
    "use-application-dns.net",
    "x.corp.example",
    "1.1.18.198.in-addr.arpa",
    "_mongodb._tcp.github.com",
    "_x._tcp.github.com",
    "",
    "1.2.3.4",
];

/// What is done with one message, as the servers do it: the answer, and what was looked up.
async fn exchange(message: &[u8]) -> (Option<Vec<u8>>, Vec<String>) {
    let script = Arc::new(Script::default());
    let names = Names::new(
        Arc::new(policy(Mode::Allowlist, &["github.com", "*.github.com"], &["secret.github.com"])),
        script.clone(),
        script.clone(),
        vec![name("corp.example")],
    );
    let answer = match parse(message) {
        None => None,
        Some((echo, question)) => {
            let reply = match question {
                Ok(question) => finish(&names, plan(&names, question)).await,
                Err(code) => Reply::new(code),
            };
            Some(reply.encode(&echo, echo.udp_limit()))
        }
    };
    let asked = script.asked.lock().unwrap().clone();
    (answer, asked)
}

fn is_listed(name: &str) -> bool {
    (name == "github.com" || name.ends_with(".github.com")) && name != "secret.github.com"
}

/// Query bytes as they should be, then damaged in some places and cut.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let kinds = select(vec![A, AAAA, PTR, TXT, SRV, HTTPS, AXFR, ANY, OPT]);
    let options = vec(any::<u8>(), 0..20);
    let damage = vec((any::<Index>(), any::<u8>()), 0..6);
    (select(&ASKED[..]), kinds, proptest::option::of(options), damage, any::<Index>(), any::<bool>()).prop_map(
        |(name, kind, options, damage, end, cut)| {
            let mut message = query(name, kind);
            if let Some(options) = options {
                message = with_additional(message, &[opt(1232, 0, 0, &options)]);
            }
            for (place, byte) in damage {
                let place = place.index(message.len());
                message[place] = byte;
            }
            if cut {
                message.truncate(end.index(message.len()));
            }
            message
        },
    )
}

fn check(message: &[u8]) -> Result<(), TestCaseError> {
    let runtime = Runtime::new().unwrap();
    let (answer, asked) = runtime.block_on(exchange(message));
    for question in asked {
        let name = question.split(' ').next().unwrap();
        prop_assert!(is_listed(name), "asked for {}", name);
    }
    let answerable = message.len() >= 12 && message[2] & 0x80 == 0;
    prop_assert_eq!(answer.is_some(), answerable);
    if let Some(bytes) = answer {
        prop_assert!(bytes.len() <= 1232);
        prop_assert_eq!(&bytes[..2], &message[..2]);
        prop_assert!(Message::from_vec(&bytes).is_ok(), "{:02x?}", bytes);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes(message in vec(any::<u8>(), 0..600)) {
        check(&message)?;
    }

    #[test]
    fn almost_queries(message in damaged()) {
        check(&message)?;
    }

    /// What is taken for a query is the same query to another implementation: nobody who looks at the bytes later sees
    /// another name.
    #[test]
    fn what_is_read_is_what_others_read(message in damaged()) {
        if let Some((echo, Ok(question))) = parse(&message) {
            // The other one looks into options, and may find one that it does not like.
            if let Ok(other) = Message::from_vec(&message) {
                prop_assert_eq!(other.edns.is_some(), echo.edns.is_some());
            }
            let mut alone = message[..12 + echo.question.len()].to_vec();
            alone[6..12].fill(0);
            let other = Message::from_vec(&alone);
            prop_assert!(other.is_ok(), "{:?}", other);
            let other = other.unwrap();
            prop_assert_eq!(other.queries.len(), 1);
            prop_assert_eq!(u16::from(other.queries[0].query_type()), question.kind);
            if let Ok(name) = question.name {
                // By its labels: as a text, some of what a zone file would not take is escaped.
                let labels = other.queries[0].name().iter();
                let theirs: Vec<_> = labels.map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
                prop_assert_eq!(theirs.join("."), name.to_string());
            }
        }
    }

    #[test]
    fn a_name_of_any_labels_is_itself_or_refused(labels in vec(vec(any::<u8>(), 1..64), 0..5)) {
        let mut wire = Vec::new();
        for label in &labels {
            wire.push(u8::try_from(label.len()).unwrap());
            wire.extend(label);
        }
        wire.push(0);
        check(&raw_query(&wire, A))?;
        if let Some((_, Ok(question))) = parse(&raw_query(&wire, A))
            && let Ok(name) = question.name
        {
            let joined = labels.join(&b'.').to_ascii_lowercase();
            prop_assert_eq!(name.as_str().as_bytes(), joined);
        }
    }
}

#[tokio::test]
async fn answers_are_dropped() {
    let world = World::allowing(&["github.com"]).await;
    assert!(world.drops(&with_flags(0x8180, query("github.com", A))).await);
    assert!(world.drops(&with_flags(0xf980, query("github.com", A))).await);
    assert!(world.drops(&[]).await);
    assert!(world.drops(&query("github.com", A)[..11]).await);
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn what_is_no_host_name_is_refused() {
    let world = World::new(policy(Mode::Open, &[], &[]), Script::default(), &[]).await;
    let odd: [&[u8]; 8] = [
        b"\x00",
        b"\x0bgithub.com\x00",
        b"\x06git\x00ub\x03com\x00",
        b"\x07\xc3\xa9vil!x\x03com\x00",
        b"\x03127\x011\x00",
        b"\x0a0x7f000001\x00",
        b"\x0a2130706433\x00",
        b"\x0dMy Printer_1 \x05local\x00",
    ];
    for labels in odd {
        // The second one's label has 10 bytes and a dot in it; its length is right for all 11.
        for kind in [A, AAAA, TXT, PTR] {
            let answer = world.ask(&with_edns(raw_query(labels, kind))).await;
            assert!(matches!(answer.code(), ResponseCode::Refused | ResponseCode::FormErr), "{labels:?}");
            assert!(answer.has_no_records());
        }
    }
    assert_eq!(world.asked(), [""; 0]);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_malformed() {
    let world = World::allowing(&["github.com"]).await;
    for length in [MAX_QUERY - 40, MAX_QUERY, MAX_QUERY + 1, 20_000] {
        let mut message = query("github.com", A);
        message.resize(length, 0);
        assert_eq!(world.ask(&message).await.code(), ResponseCode::FormErr, "{length}");
    }
    let padding = [&[0, 12, 0x03, 0xe8][..], &[0; 1000]].concat();
    let padded = with_additional(query("github.com", A), &[opt(1232, 0, 0, &padding)]);
    assert_eq!(world.ask(&padded).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
}

#[test]
fn other_records_in_the_additional_section_are_passed_over() {
    // A signature (TSIG, class ANY) with a name that ends in a pointer.
    let signature = [&b"\x03key\xc0\x0c"[..], &[0, 250, 0, 255, 0, 0, 0, 0, 0, 3, 1, 2, 3]].concat();
    let (echo, question) =
        parse(&with_additional(query("github.com", A), &[signature.clone(), opt(1232, 0, 0, &[])])).unwrap();
    assert_eq!(question.unwrap().name, Ok(name("github.com")));
    assert!(echo.edns.is_some());
    let cut = with_additional(query("github.com", A), &[signature[..signature.len() - 1].to_vec()]);
    assert_eq!(parse(&cut).unwrap().1.unwrap_err(), Rcode::FormErr);
    let more_than_there_are = with_additional(query("github.com", A), &[]);
    let mut more_than_there_are = more_than_there_are;
    more_than_there_are[10..12].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(parse(&more_than_there_are).unwrap().1.unwrap_err(), Rcode::FormErr);
}
