//! An HTTP/1.1 server (RFC 9112) with the few resources that the tests ask for.
//!
//! | path | answer |
//! | --- | --- |
//! | `/big?n=N` | N bytes |
//! | `/events?gate=G` | a stream of two server-sent events; the second one waits for the gate |
//! | `/files/…` | a file, as git's dumb protocol wants it |
//! | `/private/…` | the same to whom has the password, and 401 to others |
//! | any, with `Upgrade: websocket` | a websocket that echoes (RFC 6455) |
//! | any other | one line about the request: `hello HOST METHOD PATH body=BYTES request=NUMBER` |

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha1::{Digest as _, Sha1};

use super::Connection;

/// Who may see what is private, and by which password.
pub const PASSWORD: (&str, &str) = ("somebody", "a-password-of-the-tests");

/// RFC 6455 §1.3.
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const WEBSOCKET_CLOSE: u8 = 8;

/// Answers request after request until the client has enough.
pub(super) fn serve(stream: impl Read + Write, connection: &Connection) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    for number in 1.. {
        let Some(request) = Request::read(&mut stream)? else { break };
        let arrivals = &connection.shared.arrivals;
        arrivals.message(&arrivals.entry(connection.entry), request.host_name(), request.line.clone());
        arrivals.first_bytes(connection.entry, None, None);
        answer(&mut stream, &request, number, connection)?;
        if request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            break;
        }
    }
    Ok(())
}

struct Request {
    line: String,
    method: String,
    path: String,
    query: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body_length: u64,
}

impl Request {
    /// `None` at the end of the connection.
    fn read(stream: &mut BufReader<impl Read + Write>) -> io::Result<Option<Self>> {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(None);
        }
        let mut headers = Vec::new();
        loop {
            let header = read_line(stream)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').ok_or_else(malformed)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut words = line.split(' ');
        let (method, target) = words.next().zip(words.next()).ok_or_else(malformed)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let mut request = Self { line, method, path, query, headers, body_length: 0 };
        request.body_length = request.read_body(stream)?;
        Ok(Some(request))
    }

    fn read_body(&self, stream: &mut BufReader<impl Read + Write>) -> io::Result<u64> {
        if self.header("expect").is_some() {
            stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if self.header("transfer-encoding").is_none() {
            let length = self.header("content-length").map_or(Ok(0), str::parse).map_err(|_| malformed())?;
            return io::copy(&mut stream.take(length), &mut io::sink());
        }
        let mut total = 0;
        loop {
            let size = u64::from_str_radix(&read_line(stream)?, 16).map_err(|_| malformed())?;
            total += io::copy(&mut stream.take(size), &mut io::sink())?;
            read_line(stream)?;
            if size == 0 {
                return Ok(total);
            }
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn has_password(&self) -> bool {
        let (user, password) = PASSWORD;
        let basic = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
        self.header("authorization") == Some(&basic)
    }

    /// The host of the `Host` header, without a port.
    fn host_name(&self) -> Option<String> {
        let host = self.header("host")?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        Some(name.to_ascii_lowercase())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

fn answer(
    stream: &mut BufReader<impl Read + Write>,
    request: &Request,
    number: u32,
    connection: &Connection,
) -> io::Result<()> {
    let Request { method, path, body_length, .. } = request;
    if let Some(key) = request.header("sec-websocket-key") {
        return echo_websocket(stream, key);
    }
    let out = stream.get_mut();
    match path.as_str() {
        "/big" => {
            let size = request.parameter("n").and_then(|n| n.parse().ok()).ok_or_else(malformed)?;
            out.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes())?;
            io::copy(&mut io::repeat(b'x').take(size), out)?;
        }
        "/redirect" => {
            let to = request.parameter("to").ok_or_else(malformed)?;
            out.write_all(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes())?;
        }
        "/events" => {
            let gate = request.parameter("gate").ok_or_else(malformed)?;
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            write_chunk(out, b"data: first\n\n")?;
            if connection.shared.gates.pass(gate) {
                write_chunk(out, b"data: second\n\n")?;
            }
            write_chunk(out, b"")?;
        }
        _ => {
            let private = path.strip_prefix("/private/");
            let file = path.strip_prefix("/files/").or(private);
            let file = file.map(|file| read_file(&connection.shared.files, file));
            let (status, body) = match file {
                _ if private.is_some() && !request.has_password() => {
                    ("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"tests\"", b"who is there?\n".to_vec())
                }
                Some(Some(bytes)) => ("200 OK", bytes),
                Some(None) => ("404 Not Found", b"no such file\n".to_vec()),
                None => {
                    let host = request.header("host").unwrap_or("-");
                    let line = format!("hello {host} {method} {path} body={body_length} request={number}\n");
                    ("200 OK", line.into_bytes())
                }
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n");
            let sent: &[u8] = if method == "HEAD" { b"" } else { &body };
            out.write_all(&[head.as_bytes(), sent].concat())?;
        }
    }
    out.flush()
}

fn read_file(files: &Path, relative: &str) -> Option<Vec<u8>> {
    let relative = Path::new(relative);
    let plain = relative.components().all(|component| matches!(component, Component::Normal(_)));
    plain.then(|| fs::read(files.join(relative)).ok()).flatten()
}

fn write_chunk(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())?;
    out.flush()
}

/// Echoes unfragmented messages of up to 125 bytes, which is all that the tests send.
fn echo_websocket(stream: &mut BufReader<impl Read + Write>, key: &str) -> io::Result<()> {
    let accept = BASE64.encode(Sha1::digest(format!("{key}{WEBSOCKET_GUID}")));
    let switching = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.get_mut().write_all(switching.as_bytes())?;
    stream.get_mut().flush()?;
    loop {
        let mut head = [0; 6];
        stream.read_exact(&mut head)?;
        let [first, length, mask @ ..] = head;
        let mut message = vec![0; (length & 0x7f).into()];
        stream.read_exact(&mut message)?;
        message.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        stream.get_mut().write_all(&[&[first, length & 0x7f], message.as_slice()].concat())?;
        stream.get_mut().flush()?;
        if first & 0x0f == WEBSOCKET_CLOSE {
            return Ok(());
        }
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(1 << 16).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed request")
}
