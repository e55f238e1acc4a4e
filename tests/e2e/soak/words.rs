//! What the clients of a soak say, and what has to come back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::control::request;
use crate::zone::Host;

/// The port of the server that sends back what it gets.
const ECHO: u16 = 9000;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pages, and the echo.
pub fn rule(host: &Host) -> String {
    format!("{}:80,{ECHO}", host.name)
}

pub fn connect_to(host: &Host) -> String {
    let target = host.port(ECHO);
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

pub fn patient(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

pub fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(otherwise())) }
}

pub fn is(answer: io::Result<(u16, String)>, wanted: u16) -> io::Result<()> {
    let (status, body) = answer?;
    expect(status == wanted, || format!("{status} {body}"))
}

pub fn is_page(stream: &mut TcpStream, host: &Host) -> io::Result<()> {
    let (status, body) = request(stream, &host.name, "/page")?;
    expect(status == 200 && body.starts_with(&format!("hello {} GET /page", host.name)), || format!("{status} {body}"))
}

/// Sends a request, and gives the status of the answer, whose head is read and no more.
pub fn status(stream: &mut TcpStream, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes())?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let status = head.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&head).into_owned()))
}

pub fn established(mut stream: TcpStream, host: &Host) -> io::Result<TcpStream> {
    let status = status(&mut stream, &connect_to(host))?;
    expect(status == 200, || status.to_string())?;
    Ok(stream)
}

/// A tunnel to the echo of this host.
pub fn tunnel(proxy: &str, host: &Host) -> io::Result<TcpStream> {
    established(patient(TcpStream::connect(proxy)?)?, host)
}

/// The same by SOCKS5 (RFC 1928), which has to be answered with this code.
pub fn socks5(proxy: &str, host: &Host, code: u8) -> io::Result<TcpStream> {
    let mut stream = patient(TcpStream::connect(proxy)?)?;
    stream.write_all(&[5, 1, 0])?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen)?;
    let length = u8::try_from(host.name.len()).map_err(io::Error::other)?;
    stream.write_all(&[&[5, 1, 0, 3, length], host.name.as_bytes(), &ECHO.to_be_bytes()].concat())?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    expect(reply[1] == code, || format!("{reply:?}"))?;
    Ok(stream)
}

/// What is sent comes back.
pub fn echo(mut stream: impl Read + Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back)?;
    expect(back == bytes, || "other bytes came back".to_owned())
}
