//! `tests/cases/target.jsonl` at the doors of a program that is told of no proxy: the name is asked for by DNS, and what it was
//! answered is connected to; an address is connected to as it is.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::RData;
use netbox_config::HostName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use super::target_cases::{Case, cases, tell};
use super::world::*;
use crate::client_hello::tests::hello;
use crate::dns;
use crate::dns::synthetic::SyntheticTable;

/// What a program knows of a host.
#[derive(Debug, PartialEq)]
enum Found {
    /// The address that it connects to.
    Address(IpAddr),
    /// There is none, and so no connection.
    Nothing,
}

/// How a program finds the case's host. `None`: no question can hold it.
async fn find(world: &World, host: &[u8]) -> Option<Found> {
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    if let Some(address) = str::from_utf8(bare).ok().and_then(|text| text.parse::<IpAddr>().ok()) {
        return Some(Found::Address(address));
    }
    let labels: Vec<_> = host.strip_suffix(b".").unwrap_or(host).split(|byte| *byte == b'.').collect();
    if labels.iter().any(|label| label.is_empty() || label.len() > 63) {
        return None;
    }
    let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    for label in labels {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label);
    }
    query.extend(b"\0\0\x01\0\x01");
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(server.local_addr().unwrap()).await.unwrap();
    let serving = tokio::spawn(dns::serve_udp(Arc::clone(&world.session.names), server));
    client.send(&query).await.unwrap();
    let mut answer = [0; 1500];
    let length = soon(client.recv(&mut answer)).await.unwrap();
    serving.abort();
    let message = Message::from_vec(&answer[..length]).unwrap();
    match message.answers.first().map(|record| &record.data) {
        Some(RData::A(address)) => Some(Found::Address(address.0.into())),
        Some(other) => panic!("{other:?}"),
        None => {
            assert_ne!(message.metadata.response_code, ResponseCode::ServFail, "it was decided");
            Some(Found::Nothing)
        }
    }
}

/// What a program would say to it first.
fn first_words(host: &[u8], port: u16) -> Vec<u8> {
    let name = HostName::parse_wire(host);
    match (port, name) {
        (443, Ok(name)) => hello(name.as_str()),
        (443, Err(_)) => hello("x.example"),
        (80, _) => b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        _ => b"\0".to_vec(),
    }
}

/// What became of the case, if it can be expressed.
async fn drive(case: &Case) -> Option<Result<(), String>> {
    let input = case.input();
    let port = case.port()?;
    let host = &input[..input.iter().rposition(|byte| *byte == b':')?];
    let (mut world, _servers) = case.world().await;
    let found = find(&world, host).await?;
    let asked = std::mem::take(&mut *world.net.lookups.lock().unwrap());
    let address = match found {
        Found::Nothing => None,
        // The program's own loopback, where nothing of netbox is.
        Found::Address(address) if address.is_loopback() && !host.contains(&b':') => None,
        Found::Address(address) => Some(address),
    };
    let (outcome, reason) = match address {
        None => ("nothing", String::new()),
        Some(address) => {
            let mut client = world.connect(&SocketAddr::new(address, port).to_string()).await;
            // A refusal may come before all of it has been taken.
            let _ = client.write_all(&first_words(host, port)).await;
            let _ = client.shutdown().await;
            let _ = soon(client.read_to_end(&mut Vec::new())).await;
            drop(client);
            let events = world.events().await;
            let decisions = of(&events, "decision");
            assert_eq!(decisions.len(), 1, "{}: {events:?}", case.id);
            let verdict = decisions[0]["verdict"].as_str().unwrap();
            let outcome = ["allow", "deny", "error"].into_iter().find(|word| *word == verdict).unwrap();
            (outcome, decisions[0]["reason"].as_str().unwrap().to_owned())
        }
    };
    let also = case.texts("also_ok");
    let expected: Vec<_> = case.line["expect"].as_str().into_iter().chain(also).collect();
    let fine = match outcome {
        // Where there is no address, there is no connection, and what was asked for reaches nobody.
        "nothing" => expected.iter().any(|expected| ["deny", "error"].contains(expected)),
        outcome => expected.contains(&outcome),
    };
    // Only what is listed is looked up, and then refused for its addresses, or for the port, which a question does not have.
    let late = ["non-public", "self", "port-not-listed"];
    let quiet = outcome == "allow" || asked.is_empty() || late.contains(&&*reason);
    let failure = || format!("{}: {outcome} ({reason}) at {address:?}, not {expected:?}; asked {asked:?}", case.id);
    let real = address.is_some_and(|address| !SyntheticTable::is_synthetic(address) && !host.contains(&b':'));
    let is_address = HostName::parse_wire(host).is_err();
    Some(if fine && quiet && (!real || is_address) { Ok(()) } else { Err(failure()) })
}

#[tokio::test]
async fn targets_hold_by_dns_and_a_captured_connect() {
    let (mut failures, mut driven) = (Vec::new(), 0);
    for case in cases() {
        match drive(&case).await {
            None => {}
            Some(Ok(())) => driven += 1,
            Some(Err(failure)) => failures.push(failure),
        }
    }
    assert_eq!(failures, [""; 0]);
    assert!(driven >= 140, "{driven} cases");
    tell("DNS and a captured connect", driven);
}
