//! The name server, over UDP and TCP (RFC 1035), authoritative for everything. It writes down every question.
//!
//! It shares no code with netbox: what one of them misunderstands the other must not.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;

use super::{PATIENCE, Shared};
use crate::arrivals::Arrival;
use crate::zone::Answer;

const TYPE_A: u16 = 1;
const TYPE_TXT: u16 = 16;
const TYPE_AAAA: u16 = 28;
const RCODE_SERVFAIL: u8 = 2;
const RCODE_NXDOMAIN: u8 = 3;
const HEADER: usize = 12;

/// Answers on both sockets, which have one address.
pub(super) fn start(udp: UdpSocket, tcp: TcpListener, shared: &Arc<Shared>) {
    let local = udp.local_addr().expect("a bound socket has an address");
    let for_udp = Arc::clone(shared);
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
            if let Some(reply) = reply(&buffer[..length], local, peer, &for_udp) {
                // The client may be gone.
                let _ = udp.send_to(&reply, peer);
            }
        }
    });
    let for_tcp = Arc::clone(shared);
    thread::spawn(move || {
        for stream in tcp.incoming().flatten() {
            let shared = Arc::clone(&for_tcp);
            thread::spawn(move || serve_stream(stream, local, &shared));
        }
    });
}

/// One question at a time, each behind its length (RFC 1035 §4.2.2).
fn serve_stream(mut stream: std::net::TcpStream, local: SocketAddr, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let peer = stream.peer_addr()?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut query)?;
        let Some(reply) = reply(&query, local, peer, shared) else { return Ok(()) };
        let length = u16::try_from(reply.len()).expect("an answer is short");
        stream.write_all(&[&length.to_be_bytes(), reply.as_slice()].concat())?;
    }
}

/// `None` for what is no question.
fn reply(query: &[u8], local: SocketAddr, peer: SocketAddr, shared: &Shared) -> Option<Vec<u8>> {
    let question = Question::parse(query)?;
    let line = format!("query type {}", question.kind);
    shared.arrivals.message(&Arrival::message_to("dns", local, peer), Some(question.name.clone()), line);
    let (rcode, records) = match shared.zone.answer(&question.name) {
        Answer::NoSuchName => (RCODE_NXDOMAIN, Vec::new()),
        Answer::Failure => (RCODE_SERVFAIL, Vec::new()),
        Answer::Silence => return None,
        Answer::Addresses(addresses) => (0, records(question.kind, &addresses)),
    };
    let count = u16::try_from(records.len()).expect("a name has few addresses");
    let recursion_desired = query[2] & 1;
    let mut reply = query[..2].to_vec();
    reply.extend([0x84 | recursion_desired, 0x80 | rcode]);
    reply.extend([0, 1]);
    reply.extend(count.to_be_bytes());
    reply.extend([0; 4]);
    reply.extend(&query[HEADER..question.end]);
    for data in records {
        reply.extend([0xc0, HEADER as u8]);
        reply.extend(question.kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 30]);
        reply.extend(u16::try_from(data.len()).expect("a record is short").to_be_bytes());
        reply.extend(data);
    }
    Some(reply)
}

fn records(kind: u16, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
    let of_address = |address: &IpAddr| match (kind, address) {
        (TYPE_A, IpAddr::V4(v4)) => Some(v4.octets().to_vec()),
        (TYPE_AAAA, IpAddr::V6(v6)) => Some(v6.octets().to_vec()),
        _ => None,
    };
    if kind == TYPE_TXT {
        let text = b"text from the test's name server";
        return vec![[&[text.len() as u8], text.as_slice()].concat()];
    }
    addresses.iter().filter_map(of_address).collect()
}

struct Question {
    name: String,
    kind: u16,
    /// Where the question section ends.
    end: usize,
}

impl Question {
    fn parse(query: &[u8]) -> Option<Self> {
        let mut labels = Vec::new();
        let mut at = HEADER;
        loop {
            let length = usize::from(*query.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
        let end = at + 4;
        (query.len() >= end).then(|| Self { name: labels.join("."), kind, end })
    }
}
