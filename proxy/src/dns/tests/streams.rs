//! Queries by stream.

use std::os::fd::AsFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::bytes::{A, TXT, query, with_id};
use super::*;
use crate::dns::serve::{MAX_WAITING, STREAM_DEADLINE};

pub fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

pub async fn send(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(&framed(message)).await.unwrap();
}

pub async fn receive(stream: &mut TcpStream) -> Answer {
    let mut bytes = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut bytes).await.unwrap();
    Answer::new(bytes)
}

/// Whether the server ends the stream without a word.
async fn is_ended(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn queries_in_one_write_are_answered_in_their_order() {
    let world = World::allowing(&["github.com"]).await;
    let mut stream = world.stream().await;
    let questions = ["github.com", "evil.example", "localhost", "github.com"];
    let queries = (0_u16..).zip(questions).flat_map(|(id, name)| framed(&with_id(id, query(name, A))));
    stream.write_all(&queries.collect::<Vec<_>>()).await.unwrap();
    for id in 0..4 {
        assert_eq!(receive(&mut stream).await.id(), id);
    }
    assert_eq!(world.asked(), ["github.com", "github.com"]);
}

#[tokio::test]
async fn a_message_in_single_bytes_is_read() {
    let world = World::allowing(&["github.com"]).await;
    let mut stream = world.stream().await;
    stream.set_nodelay(true).unwrap();
    for byte in framed(&query("github.com", A)) {
        stream.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(receive(&mut stream).await.v4(), Ipv4Addr::new(198, 18, 1, 1));
}

#[tokio::test]
async fn what_is_no_query_ends_the_stream() {
    let world = World::allowing(&["github.com"]).await;
    let answer = bytes::with_flags(0x8180, query("github.com", A));
    for bytes in
        [vec![0, 0], vec![0, 5, 1, 2, 3, 4, 5], framed(&answer), vec![0xff, 0xff], b"GET / HTTP/1.1\r\n".to_vec()]
    {
        let mut stream = world.stream().await;
        stream.write_all(&bytes).await.unwrap();
        assert!(is_ended(&mut stream).await, "{bytes:?}");
    }
    assert!(world.asked().is_empty());
}

/// The clock is stopped; it moves on when all are idle, which is when nothing but the deadline is left to wait for.
#[tokio::test(start_paused = true)]
async fn a_stream_that_says_too_little_is_ended() {
    let world = World::allowing(&["github.com"]).await;
    for beginning in [&[][..], &[0], &[0, 50, 1, 2, 3]] {
        let started = tokio::time::Instant::now();
        let mut stream = world.stream().await;
        stream.write_all(beginning).await.unwrap();
        assert!(is_ended(&mut stream).await);
        assert!(started.elapsed() >= STREAM_DEADLINE);
    }
}

#[tokio::test]
async fn a_stream_that_has_waited_longest_makes_room_for_a_new_one() {
    let world = World::allowing(&["github.com"]).await;
    let mut open = Vec::new();
    for _ in 0..MAX_WAITING {
        let mut stream = world.stream().await;
        send(&mut stream, &query("localhost", A)).await;
        receive(&mut stream).await;
        open.push(stream);
    }
    let mut one_more = world.stream().await;
    send(&mut one_more, &query("localhost", A)).await;
    assert_eq!(receive(&mut one_more).await.v4(), Ipv4Addr::LOCALHOST);
    assert!(is_ended(&mut open[0]).await);
    send(&mut open[MAX_WAITING - 1], &query("localhost", A)).await;
    assert_eq!(receive(&mut open[MAX_WAITING - 1]).await.v4(), Ipv4Addr::LOCALHOST);
}

#[tokio::test]
async fn an_answer_that_is_too_long_for_a_datagram_comes_by_stream() {
    let texts: Vec<_> = (0..20).map(|number| Record { ttl: 60, data: [&[99][..], &[number; 99]].concat() }).collect();
    let script = Script { records: [(("github.com", RecordKind::Txt), Ok(texts))].into(), ..Script::default() };
    let world = World::scripted(&["github.com"], script).await;
    for message in [query("github.com", TXT), bytes::with_edns(query("github.com", TXT))] {
        let answer = world.ask(&message).await;
        assert!(answer.message.metadata.truncation && answer.has_no_records() && answer.bytes.len() <= 512);
        assert_eq!(world.ask_stream(&message).await.data().len(), 20);
    }
}

#[tokio::test]
async fn the_size_that_an_asker_takes_is_kept_between_512_and_1232() {
    let texts: Vec<_> = (0..5).map(|number| Record { ttl: 60, data: [&[199][..], &[number; 199]].concat() }).collect();
    let script = Script { records: [(("github.com", RecordKind::Txt), Ok(texts))].into(), ..Script::default() };
    let world = World::scripted(&["github.com"], script).await;
    for (size, whole) in [(0, false), (512, false), (1000, false), (1232, true), (65_535, true)] {
        let message = bytes::with_additional(query("github.com", TXT), &[bytes::opt(size, 0, 0, &[])]);
        assert_eq!(world.ask(&message).await.data().len() == 5, whole, "{size}");
    }
}

#[tokio::test]
async fn lookups_beyond_the_limit_fail_at_once_and_the_others_go_on() {
    let script = Script { gate: Some(Semaphore::new(0)), ..Script::default() };
    let world = World::scripted(&["*.github.com", "known.example"], script).await;
    let limit = u16::try_from(crate::dns::LOOKUPS_IN_FLIGHT / 4 * 3).unwrap();
    for id in 0..limit {
        world.client.send(&with_id(id, query(&format!("n{id}.github.com"), A))).await.unwrap();
    }
    let over = with_id(0xffff, bytes::with_edns(query("over.github.com", A)));
    let answer = world.ask(&over).await;
    assert_eq!((answer.id(), answer.code()), (0xffff, ResponseCode::ServFail));
    assert_eq!(world.ask_stream(&over).await.code(), ResponseCode::ServFail, "one limit for both");
    assert_eq!(world.ask(&query("evil.example", A)).await.code(), ResponseCode::NoError, "no lookup, no limit");
    // What a rule spells out has places of its own.
    world.client.send(&query("known.example", A)).await.unwrap();
    while !world.asked().contains(&"known.example".to_owned()) {
        tokio::task::yield_now().await;
    }
    world.script.gate.as_ref().unwrap().add_permits(usize::from(limit) + 1);
    for _ in 0..=limit {
        assert_eq!(world.receive().await.code(), ResponseCode::NoError);
    }
    assert!(!world.asked().contains(&"over.github.com".to_owned()));
    world.script.gate.as_ref().unwrap().add_permits(1);
    assert_eq!(world.ask(&over).await.code(), ResponseCode::NoError, "the places are free again");
}

#[tokio::test]
async fn the_end_of_a_server_ends_its_streams() {
    let mut world = World::allowing(&["github.com"]).await;
    let mut stream = world.stream().await;
    send(&mut stream, &query("localhost", A)).await;
    receive(&mut stream).await;
    world._servers.shutdown().await;
    assert!(is_ended(&mut stream).await);
    assert!(TcpStream::connect(world.tcp).await.is_err());
    let socket = UdpSocket::bind(world.udp).await;
    assert!(socket.is_ok(), "its port is free");
}

#[tokio::test]
async fn a_socket_that_somebody_shuts_down_is_served_no_more_and_holds_up_nobody() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let theirs = socket.as_fd().try_clone_to_owned().unwrap();
    let world = World::allowing(&["github.com"]).await;
    let mut server = tokio::spawn(serve_udp(world.names.clone(), socket));
    // It is not connected, and so the call fails; the socket is shut down all the same.
    assert!(rustix::net::shutdown(&theirs, rustix::net::Shutdown::Both).is_err());
    tokio::time::timeout(std::time::Duration::from_secs(20), &mut server).await.expect("it ends").unwrap();
}
