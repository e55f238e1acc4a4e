//! The inner side: it asks the netbox around it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use netbox_config::{Reason, Refusal, Target, VettedAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ADDRESS, ADDRESSES, MAX_LIST, NESTED, list, parse_list};
use crate::dial::Dialed;
use crate::http::head::MAX_LINE;
use crate::http::response::ResponseHead;
use crate::pipeline::OpenError;
use crate::socket;

/// How long the outer netbox has for a lookup, and for dialling. It gives up before.
const PATIENCE: Duration = Duration::from_secs(30);

/// The netbox around this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    listener: SocketAddr,
}

/// A question that it has answered: it permits the target.
#[derive(Debug)]
pub(crate) struct Answered {
    stream: TcpStream,
    /// What it would dial.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Outer {
    /// It listens there for programs that are told of a proxy.
    #[must_use]
    pub fn at(listener: SocketAddr) -> Self {
        Self { listener }
    }

    /// Asks it for a target.
    pub(crate) async fn ask(&self, target: &Target) -> Result<Answered, OpenError> {
        in_time(Box::pin(async {
            // Where nobody listens, this network is not the outer's: a program in between has made it, and it leads nowhere.
            let Ok(mut stream) = TcpStream::connect(self.listener).await else {
                return Err(OpenError::Failed(Reason::Unreachable));
            };
            socket::no_delay(&stream);
            let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{NESTED}: 1\r\n\r\n");
            let head = said(&mut stream, request.as_bytes()).await?;
            let addresses = head.only(ADDRESSES).and_then(parse_list).filter(|_| head.status == 103);
            Ok(Answered { addresses: addresses.ok_or(NO_NETBOX)?, stream })
        }))
        .await
    }
}

impl Answered {
    /// Has it dial one of these.
    pub(crate) async fn dial(self, addresses: &[VettedAddr]) -> Result<Dialed, OpenError> {
        let Self { mut stream, .. } = self;
        in_time(Box::pin(async {
            let chosen = list(addresses.iter().map(|address| address.socket_addr().ip()));
            let head = said(&mut stream, format!("{chosen}\r\n").as_bytes()).await?;
            let dialed = head.only(ADDRESS).and_then(parse_list).filter(|_| head.status == 200);
            let dialed = dialed.as_deref().and_then(<[_]>::first).ok_or(NO_NETBOX)?;
            let among = addresses.iter().map(|address| address.socket_addr()).find(|address| address.ip() == *dialed);
            Ok(Dialed { stream, address: among.ok_or(NO_NETBOX)? })
        }))
        .await
    }
}

/// What speaks there does not speak as a netbox.
const NO_NETBOX: OpenError = OpenError::Failed(Reason::UpstreamProxy);

/// `act` is in a box, so that connections that lead straight out do not pay for its size.
async fn in_time<T>(act: Pin<Box<impl Future<Output = Result<T, OpenError>>>>) -> Result<T, OpenError> {
    timeout(PATIENCE, act).await.unwrap_or(Err(OpenError::Failed(Reason::Timeout)))
}

/// Says something, and reads what is answered. A refusal and a failure are errors.
async fn said(stream: &mut TcpStream, bytes: &[u8]) -> Result<ResponseHead, OpenError> {
    stream.write_all(bytes).await.map_err(|_| NO_NETBOX)?;
    let head = read_head(stream).await.map_err(|_| NO_NETBOX)?;
    let head = ResponseHead::parse(&head, "CONNECT").map_err(|_| NO_NETBOX)?;
    match (head.status, head.only("proxy-status").and_then(reason)) {
        (103 | 200, _) => Ok(head),
        (403, Some(reason)) => Err(OpenError::Refused(Refusal::new(reason).by_outer())),
        (502 | 504, Some(reason)) => Err(OpenError::Failed(reason)),
        _ => Err(NO_NETBOX),
    }
}

/// The word in a `Proxy-Status` of a netbox.
fn reason(status: &[u8]) -> Option<Reason> {
    let (_, details) = std::str::from_utf8(status).ok()?.strip_prefix("netbox; ")?.split_once("details=\"")?;
    details.strip_suffix('"')?.parse().ok()
}

/// Reads a head and not a byte more: what follows is the tunnel's.
async fn read_head(stream: &mut TcpStream) -> io::Result<Bytes> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = BytesMut::new();
    let mut glimpse = [0; 2048];
    loop {
        let length = stream.peek(&mut glimpse).await?;
        if length == 0 || head.len() > MAX_LIST.max(MAX_LINE) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let known = head.len();
        head.extend_from_slice(&glimpse[..length]);
        // The end may have begun in what was read before.
        let from = known.saturating_sub(END.len());
        let end = head[from..].windows(END.len()).position(|window| window == END).map(|at| from + at + END.len());
        stream.read_exact(&mut head[known..end.unwrap_or(known + length)]).await?;
        if let Some(end) = end {
            head.truncate(end);
            return Ok(head.freeze());
        }
    }
}
