//! Reads a query (RFC 1035 §4.1, RFC 6891).
//!
//! A query that a stub resolver sends is a header, one question, and perhaps an OPT record. This reads that and no
//! more, in one pass over the bytes: every step moves forward, and a compression pointer in the question, which no
//! honest query has, is an error. So there is nothing that could loop, recurse or grow. A general parser would read
//! more than is needed here, of the most hostile input that there is.

use netbox_config::{HostName, NameError};

/// The longest query that is read; real ones have less than 600 bytes.
pub const MAX_QUERY: usize = 4096;

/// The least that every receiver of UDP takes, and the most that we send to one who says that it takes more (RFC 9715).
const UDP_SIZES: (u16, u16) = (512, 1232);

/// The record types that are named in this room.
pub mod kind {
    pub const A: u16 = 1;
    pub const PTR: u16 = 12;
    pub const AAAA: u16 = 28;
    pub const OPT: u16 = 41;
    pub const IXFR: u16 = 251;
    /// Also a type of its own to ask for, like MAILA and MAILB between it and [`IXFR`].
    pub const ANY: u16 = 255;
}

/// The class of the internet; no other is served.
pub const CLASS_IN: u16 = 1;

/// Response codes (RFC 1035 §4.1.1, RFC 6891 §6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    /// Needs an OPT record in the answer: its upper bits stand there.
    BadVers = 16,
}

/// What an answer repeats of its query, as far as it could be read.
#[derive(Debug, Default)]
pub struct Echo {
    pub id: u16,
    /// The header's flags as they came.
    pub flags: u16,
    /// The question's bytes as they came, its case included (draft-vixie-dnsext-dns0x20); empty where it could not be
    /// read.
    pub question: Vec<u8>,
    pub edns: Option<Edns>,
}

/// What the OPT record of a query says.
#[derive(Clone, Copy, Debug)]
pub struct Edns {
    /// The size of an answer that the asker takes by UDP.
    payload: u16,
    pub dnssec_ok: bool,
}

impl Echo {
    /// How long an answer by UDP may be.
    pub fn udp_limit(&self) -> usize {
        self.edns.map_or(UDP_SIZES.0, |edns| edns.payload.clamp(UDP_SIZES.0, UDP_SIZES.1)).into()
    }
}

/// The question of a well-formed query, class IN, of a type that can be answered.
#[derive(Debug)]
pub struct Question {
    /// The name, if it is a host name.
    pub name: Result<HostName, NameError>,
    pub kind: u16,
}

/// A query, or the code that it is answered with at once.
pub type Parsed = (Echo, Result<Question, Rcode>);

/// Reads a message; `None` if it deserves no answer: too short for a header, or itself an answer (answering those is
/// how two servers keep each other busy for ever).
pub fn parse(message: &[u8]) -> Option<Parsed> {
    let mut reader = Reader { message, at: 0 };
    let mut echo = Echo { id: reader.u16()?, flags: reader.u16()?, ..Echo::default() };
    let counts = Counts {
        questions: reader.u16()?,
        answers: reader.u16()?,
        authorities: reader.u16()?,
        additionals: reader.u16()?,
    };
    if echo.flags & 0x8000 != 0 {
        return None;
    }
    let question = parse_body(&mut reader, &counts, &mut echo);
    Some((echo, question))
}

struct Counts {
    questions: u16,
    answers: u16,
    authorities: u16,
    additionals: u16,
}

/// All after the header. Checks come in the order in which they can be answered best: with the question echoed where
/// there is one.
fn parse_body(reader: &mut Reader<'_>, counts: &Counts, echo: &mut Echo) -> Result<Question, Rcode> {
    if echo.flags & 0x7800 != 0 {
        return Err(Rcode::NotImp);
    }
    if counts.questions != 1 {
        return Err(Rcode::FormErr);
    }
    let start = reader.at;
    let labels = reader.labels().ok_or(Rcode::FormErr)?;
    let kind = reader.u16().ok_or(Rcode::FormErr)?;
    let class = reader.u16().ok_or(Rcode::FormErr)?;
    echo.question = reader.message[start..reader.at].to_vec();
    // Before the other sections are looked at: a zone transfer has a record there.
    if class != CLASS_IN || (kind::IXFR..=kind::ANY).contains(&kind) {
        return Err(Rcode::Refused);
    }
    if counts.answers != 0 || counts.authorities != 0 {
        return Err(Rcode::FormErr);
    }
    for _ in 0..counts.additionals {
        reader.additional(echo)?;
    }
    if reader.at != reader.message.len() {
        return Err(Rcode::FormErr);
    }
    Ok(Question { name: HostName::parse_labels(labels), kind })
}

/// A place in a message; it only moves forward.
struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name's labels, without the root's. Lengths of 64 and more are pointers and reserved forms (RFC 1035 §4.1.4):
    /// none.
    fn labels(&mut self) -> Option<Vec<&'a [u8]>> {
        let start = self.at;
        let mut labels = Vec::new();
        loop {
            match self.u8()? {
                0 if self.at - start <= 255 => return Some(labels),
                length @ 1..64 => labels.push(self.take(length.into())?),
                _ => return None,
            }
        }
    }

    /// One record of the additional section: an OPT is read, others (a signature, say) are passed over.
    fn additional(&mut self, echo: &mut Echo) -> Result<(), Rcode> {
        let owner_is_root = self.skip_owner().ok_or(Rcode::FormErr)?;
        let (kind, class, version, flags, data) = self.record().ok_or(Rcode::FormErr)?;
        if kind != kind::OPT {
            return Ok(());
        }
        if !owner_is_root || echo.edns.is_some() || !options_are_whole(data) {
            return Err(Rcode::FormErr);
        }
        echo.edns = Some(Edns { payload: class, dnssec_ok: flags & 0x8000 != 0 });
        if version == 0 { Ok(()) } else { Err(Rcode::BadVers) }
    }

    /// What follows a record's owner, with the TTL as an OPT record uses it: extended code (unused in a query),
    /// version, flags.
    fn record(&mut self) -> Option<(u16, u16, u8, u16, &'a [u8])> {
        let (kind, class) = (self.u16()?, self.u16()?);
        let (_code, version, flags) = (self.u8()?, self.u8()?, self.u16()?);
        let length = self.u16()?;
        Some((kind, class, version, flags, self.take(length.into())?))
    }

    /// Passes over a record's owner, which may end in a pointer; where that leads does not matter.
    fn skip_owner(&mut self) -> Option<bool> {
        let start = self.at;
        loop {
            match self.u8()? {
                0 => return Some(self.at == start + 1),
                length @ 1..64 => self.take(length.into()).map(|_| ())?,
                192.. => return self.u8().map(|_| false),
                _ => return None,
            }
        }
    }
}

/// Whether an OPT record's data is a sequence of options, whatever they are: none of them is used, and none leaves.
fn options_are_whole(data: &[u8]) -> bool {
    let mut reader = Reader { message: data, at: 0 };
    while reader.at < data.len() {
        let whole = reader.u16().and_then(|_code| reader.u16()).and_then(|length| reader.take(length.into()));
        if whole.is_none() {
            return false;
        }
    }
    true
}
