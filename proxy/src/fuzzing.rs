//! Doors for the fuzz targets (`fuzz/`) to the parsers of hostile bytes, which are private otherwise. Compiled with
//! `--cfg fuzzing` alone.
//!
//! What can be said without another parser is asserted here; the targets compare with parsers of other people.

use bytes::{Bytes, BytesMut};
use netbox_config::{Host, Port};

pub use crate::client_hello::{Hello, read as client_hello};
use crate::dns::reply::Reply;
use crate::dns::wire;
use crate::explicit::socks5;
pub use crate::first_bytes::{Classifier, FirstBytes};
use crate::http::body::Chunks;
use crate::http::head::{HeadScan, Lines};
use crate::http::request::{Authority, Form, RequestHead};
use crate::http::response::ResponseHead;
use crate::service::credentials::Proof;
use crate::service::frames::{Decoder, encode};
use crate::service::wire::{Attach, LONGEST, LONGEST_ATTACH, Said};

/// What was made of a request.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Whom the request is for, as it is judged: what stands in the request target, else in `Host`.
    pub authority: Option<String>,
    /// What would go to the server.
    pub forwarded: Vec<u8>,
}

/// Reads a request's head at the start of `bytes`; `None` if it is refused or not whole.
///
/// # Panics
///
/// When what is forwarded is not read as the same request again.
#[must_use]
pub fn request(bytes: &[u8]) -> Option<Request> {
    let parsed = parse_request(bytes)?;
    let mut forwarded = BytesMut::new();
    parsed.write(&mut forwarded);
    // CONNECT is answered here and never forwarded.
    if parsed.method != "CONNECT" {
        let again = parse_request(&forwarded).expect("what is forwarded is a request");
        let mut twice = BytesMut::new();
        again.write(&mut twice);
        assert_eq!(forwarded, twice, "forwarding settles");
        assert_eq!((&again.method, again.framing), (&parsed.method, parsed.framing));
        assert!(!matches!(again.form, Form::Absolute(..)), "the server sees no absolute form");
        let host = again.host.as_ref().map(|host| (host.host.clone(), host.http_port()));
        assert_eq!(host, judged(&parsed), "the server reads the judged host");
    }
    let authority = match &parsed.form {
        Form::Authority(host, port) => Some(Authority { host: host.clone(), port: Some(*port) }.to_string()),
        Form::Absolute(authority, _) => Some(authority.to_string()),
        _ => parsed.host.as_ref().map(ToString::to_string),
    };
    Some(Request { method: parsed.method, authority, forwarded: forwarded.to_vec() })
}

fn parse_request(bytes: &[u8]) -> Option<RequestHead> {
    let head = HeadScan::new(Lines::Strict).take(&mut BytesMut::from(bytes)).ok()??;
    RequestHead::parse(&head).ok()
}

fn judged(request: &RequestHead) -> Option<(Host, Port)> {
    match &request.form {
        Form::Absolute(authority, _) => Some((authority.host.clone(), authority.http_port())),
        _ => request.host.as_ref().map(|host| (host.host.clone(), host.http_port())),
    }
}

/// Reads a response's head, and asserts that what the client gets is read as the same response.
///
/// # Panics
///
/// When it is not.
pub fn response(bytes: &[u8], method: &str) {
    let Ok(Some(head)) = HeadScan::new(Lines::Lenient).take(&mut BytesMut::from(bytes)) else { return };
    let Ok(parsed) = ResponseHead::parse(&head, method) else { return };
    let mut written = BytesMut::new();
    parsed.write(false, &mut written);
    let head = HeadScan::new(Lines::Strict).take(&mut written).expect("lines that end").expect("a whole head");
    assert!(written.is_empty(), "nothing follows the head");
    let again = ResponseHead::parse(&head, method).expect("what goes on is a response");
    assert_eq!((again.status, again.framing), (parsed.status, parsed.framing));
}

/// Reads a chunked body that arrives in two parts, and asserts that what goes on is read as the same body, and that the
/// cut makes no difference.
///
/// # Panics
///
/// When it is not, or does.
pub fn chunks(bytes: &[u8], cut: usize) {
    let whole = reframe(&[bytes]);
    let (early, late) = bytes.split_at(cut % (bytes.len() + 1));
    assert_eq!(whole, reframe(&[early, late]), "a cut changes nothing");
    if let Some((body, _)) = whole {
        assert_eq!(reframe(&[&body]), Some((body.clone(), BytesMut::new())), "framing anew settles");
    }
}

fn reframe(parts: &[&[u8]]) -> Option<(BytesMut, BytesMut)> {
    let (mut chunks, mut input, mut output) = (Chunks::new(), BytesMut::new(), BytesMut::new());
    for part in parts {
        input.extend_from_slice(part);
        chunks.advance(&mut input, &mut output).ok()?;
    }
    chunks.is_done().then_some((output, input))
}

/// Whether a user name and password of SOCKS5 are one, and how many bytes of it were taken.
#[must_use]
pub fn socks5_login(bytes: &[u8]) -> Option<Result<usize, ()>> {
    socks5::login(bytes).map_err(drop).transpose().map(|read| read.map(|(_, length)| length))
}

/// Whether the value of a `Proxy-Authorization` field holds something that could be a token.
#[must_use]
pub fn proxy_authorization(value: &[u8]) -> bool {
    Proof::of_fields(std::iter::once(value)).is_some()
}

/// What a SOCKS5 greeting is, and how many bytes of it were taken.
#[must_use]
pub fn socks5_greeting(bytes: &[u8]) -> Option<Result<usize, ()>> {
    socks5::greeting(bytes, 0).map_err(drop).transpose().map(|read| read.map(|((), length)| length))
}

/// Whom a SOCKS5 request is for, and how many bytes of it were taken.
#[must_use]
pub fn socks5_request(bytes: &[u8]) -> Option<Result<(Host, Port, usize), ()>> {
    let read = socks5::request(bytes).map_err(drop).transpose()?;
    Some(read.map(|((host, port), length)| (host, port, length)))
}

/// A DNS query and a refusal of it.
#[derive(Debug)]
pub struct Query {
    /// The name and the type asked for, where they are to be answered; the name in lower case.
    pub question: Option<(String, u16)>,
    /// An answer to it.
    pub answer: Vec<u8>,
}

/// Reads a DNS query; `None` if it deserves no answer.
#[must_use]
pub fn dns_query(bytes: &[u8]) -> Option<Query> {
    let (echo, question) = wire::parse(bytes)?;
    let rcode = question.as_ref().map_or_else(|rcode| *rcode, |_| wire::Rcode::Refused);
    let answer = Reply::new(rcode).encode(&echo, echo.udp_limit());
    assert!(answer.len() <= echo.udp_limit(), "an answer fits");
    let question = question.ok().and_then(|question| Some((question.name.ok()?.to_string(), question.kind)));
    Some(Query { question, answer })
}

/// A head, for those that need one.
#[must_use]
pub fn head(bytes: &[u8]) -> Option<Bytes> {
    HeadScan::new(Lines::Strict).take(&mut BytesMut::from(bytes)).ok()?
}

/// Reads what a client says on a control connection, which arrives in two parts, up to what it does not understand, and
/// asserts that the cut makes no difference and that every message is read again as it is written.
///
/// # Panics
///
/// When it does, or is not.
pub fn control(bytes: &[u8], cut: usize) {
    let (early, late) = bytes.split_at(cut % (bytes.len() + 1));
    assert_eq!(conversation(&[bytes]), conversation(&[early, late]), "a cut changes nothing");
}

/// The messages of a conversation, and whether it broke off.
fn conversation(parts: &[&[u8]]) -> (Vec<String>, bool) {
    let (mut decoder, mut messages) = (Decoder::new(), Vec::new());
    for part in parts {
        if decoder.feed(part, Vec::new()).is_err() {
            return (messages, true);
        }
        loop {
            let longest = if messages.len() == 1 { LONGEST_ATTACH } else { LONGEST };
            let frame = match decoder.next(longest) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return (messages, true),
            };
            let message = match messages.len() {
                0 => frame.read_hello().map(|hello| again(&hello)),
                1 => frame.read::<Attach>().map(|attach| {
                    // Whatever the rules are, they are rules or an error.
                    drop(attach.policy.grant(&[]));
                    again(&attach)
                }),
                _ => frame.read::<Said>().map(|said| again(&said)),
            };
            match message {
                Ok(message) => messages.push(message),
                Err(_) => return (messages, true),
            }
        }
    }
    (messages, decoder.finish().is_err())
}

fn again<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) -> String {
    let mut decoder = Decoder::new();
    decoder.feed(&encode(message), Vec::new()).expect("no descriptors");
    let frame = decoder.next(usize::MAX).expect("a frame").expect("a whole frame");
    assert_eq!(&frame.read::<T>().expect("the same message"), message);
    format!("{message:?}")
}
