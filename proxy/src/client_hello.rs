//! A bounded reader for the TLS ClientHello: the one thing that netbox reads of TLS.
//!
//! It finds the server name (SNI, RFC 6066 §3) in the first flight, however that is cut into TCP segments and TLS
//! records (RFC 8446 §5.1 allows a handshake message to span records), and nothing else. It never alters or answers
//! anything: the bytes that were read are what is forwarded.
//!
//! Whoever judges by a name that two parties read must not be read differently by them. So whatever could mean two
//! things is [`Hello::Malformed`]: two names, two `server_name` extensions, a name of another type, a name that is no
//! host name (with a NUL, or an address), lengths that do not add up, bytes after the hello in its last record, other
//! records between its parts. What follows in further records (0-RTT data, RFC 8446 §4.2.10) is not looked at.
//!
//! The verdict depends on the bytes alone: once it is not [`Hello::Incomplete`], more bytes do not change it, and no
//! cut into segments does.

use netbox_config::HostName;

/// The longest ClientHello message that is read, its four bytes of header included. Real ones have 200 to 2,000 bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// Into how many TLS records a ClientHello may be cut. Clients that cut on purpose make less than ten.
pub const MAX_RECORDS: usize = 128;

/// How many bytes a caller must be ready to hold: the longest message in the most records.
pub const MAX_BYTES: usize = MAX_MESSAGE + MAX_RECORDS * RECORD_HEADER;

const RECORD_HEADER: usize = 5;
/// The most bytes of one plaintext record (RFC 8446 §5.1).
const MAX_RECORD: usize = 1 << 14;
const MESSAGE_HEADER: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// What the first bytes of a connection are to a TLS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// The start of a hello; more bytes are needed.
    Incomplete,
    /// A whole ClientHello, and the server name in it, if there is one.
    Whole {
        /// The server name, lower case, without a trailing dot.
        sni: Option<HostName>,
        /// Whether there is, or seems to be, another name in an Encrypted Client Hello (RFC 9849 §5).
        ech: bool,
    },
    /// No TLS handshake record of SSL 3.0 or later starts here.
    NotTls,
    /// It starts like TLS and is no hello that can be read in one way only, or exceeds the bounds.
    Malformed,
}

/// The message is not one that can be read in one way only.
struct Ambiguous;

/// Reads the ClientHello at the start of `bytes`, which hold everything that has arrived so far.
///
/// Takes time in proportion to [`MAX_RECORDS`] until the hello is complete, so it may be called for each new byte.
pub fn read(bytes: &[u8]) -> Hello {
    let looks_like_tls = match bytes {
        [] | [HANDSHAKE] => return Hello::Incomplete,
        // The minor version "MUST be ignored for all purposes" (RFC 8446 §5.1).
        [HANDSHAKE, 3, ..] => true,
        _ => false,
    };
    if !looks_like_tls {
        return Hello::NotTls;
    }
    match assemble(bytes) {
        Ok(None) => Hello::Incomplete,
        Ok(Some(message)) => match server_name(&message) {
            Ok((sni, ech)) => Hello::Whole { sni, ech },
            Err(Ambiguous) => Hello::Malformed,
        },
        Err(Ambiguous) => Hello::Malformed,
    }
}

/// Puts the message together out of its records, without the message header; `None` while some of it is missing.
fn assemble(bytes: &[u8]) -> Result<Option<Vec<u8>>, Ambiguous> {
    let mut fragments: Vec<&[u8]> = Vec::new();
    let mut header = Vec::with_capacity(MESSAGE_HEADER);
    let mut total = 0;
    let mut rest = bytes;
    loop {
        let (&[kind, major, _minor, high, low], body) = match rest.split_first_chunk::<RECORD_HEADER>() {
            Some(split) => split,
            // The header as far as it has come must be one that can still become right, as for whole ones below.
            None if rest.first().is_some_and(|kind| *kind != HANDSHAKE) => return Err(Ambiguous),
            None if rest.get(1).is_some_and(|major| *major != 3) => return Err(Ambiguous),
            None => return Ok(None),
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // A record of length 0 is forbidden for handshake messages (RFC 8446 §5.1).
        if kind != HANDSHAKE || major != 3 || length == 0 || length > MAX_RECORD || fragments.len() == MAX_RECORDS {
            return Err(Ambiguous);
        }
        let arrived = &body[..length.min(body.len())];
        let missing_header = MESSAGE_HEADER - header.len();
        header.extend_from_slice(&arrived[..missing_header.min(arrived.len())]);
        fragments.push(arrived);
        total += length;
        if header.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Ambiguous);
        }
        if let [_, high, middle, low] = header[..] {
            let announced = MESSAGE_HEADER + usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low);
            // Nothing may follow the hello in its record: keys change there (RFC 8446 §5.1).
            if announced > MAX_MESSAGE || total > announced {
                return Err(Ambiguous);
            }
            if total == announced && arrived.len() == length {
                return Ok(Some(fragments.concat().split_off(MESSAGE_HEADER)));
            }
        }
        if arrived.len() < length {
            return Ok(None);
        }
        rest = &body[length..];
    }
}

/// The server name of a ClientHello, and whether there is ECH (RFC 8446 §4.1.2, RFC 5246 §7.4.1.2), whose every length is checked.
fn server_name(message: &[u8]) -> Result<(Option<HostName>, bool), Ambiguous> {
    let mut hello = Reader(message);
    hello.take(2 + 32)?;
    hello.vector8(0, 32)?;
    let suites = hello.vector16(2)?;
    if suites.0.len() % 2 != 0 {
        return Err(Ambiguous);
    }
    hello.vector8(1, 255)?;
    // Before TLS 1.3 the extensions may be absent altogether.
    if hello.0.is_empty() {
        return Ok((None, false));
    }
    let mut extensions = hello.vector16(0)?;
    hello.end()?;
    let (mut sni, mut ech) = (None, false);
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16(0)?;
        if kind == SERVER_NAME && sni.replace(host_name(content)?).is_some() {
            return Err(Ambiguous);
        }
        ech |= kind == ENCRYPTED_CLIENT_HELLO;
    }
    Ok((sni, ech))
}

/// The one name of a `server_name` extension.
fn host_name(mut extension: Reader<'_>) -> Result<HostName, Ambiguous> {
    let mut list = extension.vector16(1)?;
    extension.end()?;
    if list.take(1)? != [HOST_NAME] {
        return Err(Ambiguous);
    }
    let name = list.vector16(1)?;
    list.end()?;
    HostName::parse_wire(name.0).map_err(|_| Ambiguous)
}

/// What is left to read of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Ambiguous> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Ambiguous)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number16(&mut self) -> Result<u16, Ambiguous> {
        let (&number, rest) = self.0.split_first_chunk::<2>().ok_or(Ambiguous)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(number))
    }

    /// A vector with a length of one byte, of `least` to `most` bytes.
    fn vector8(&mut self, least: u8, most: u8) -> Result<(), Ambiguous> {
        let length = self.take(1)?[0];
        if !(least..=most).contains(&length) {
            return Err(Ambiguous);
        }
        self.take(usize::from(length)).map(drop)
    }

    /// A vector with a length of two bytes, of at least `least` bytes.
    fn vector16(&mut self, least: u16) -> Result<Reader<'a>, Ambiguous> {
        let length = self.number16()?;
        if length < least {
            return Err(Ambiguous);
        }
        self.take(usize::from(length)).map(Reader)
    }

    fn end(&self) -> Result<(), Ambiguous> {
        if self.0.is_empty() { Ok(()) } else { Err(Ambiguous) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
