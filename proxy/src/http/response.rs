//! The head of a response.

use bytes::{BufMut, Bytes, BytesMut};

use super::fields::{Fields, NextHop};
use super::framing::{self, Framing, Version};
use super::head::{HeadError, MAX_FIELDS};
use super::request::is_http;

/// A response without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    version: Version,
    phrase: Bytes,
    fields: Fields,
}

impl ResponseHead {
    /// Parses a head that `HeadScan` found, up to and with its empty line: a response to a request with this method.
    pub(crate) fn parse(head: &Bytes, method: &str) -> Result<Self, HeadError> {
        let mut parsed = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut parsed);
        let end = match response.parse(head) {
            Ok(httparse::Status::Complete(end)) => end,
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
            _ => return Err(HeadError::Malformed("the head of the response is malformed")),
        };
        let (Some(status @ 100..), true) = (response.code, end == head.len()) else {
            return Err(HeadError::Malformed("the head of the response is malformed"));
        };
        let version = Version::new(response.version);
        let fields = Fields::new(head, response.headers)?;
        Ok(Self {
            status,
            framing: framing::of_response(method, status, version, &fields)?,
            version,
            phrase: Bytes::copy_from_slice(response.reason.unwrap_or_default().as_bytes()),
            fields,
        })
    }

    /// The value of a field that is there once.
    pub(crate) fn only(&self, name: &str) -> Option<&[u8]> {
        self.fields.only(name)
    }

    /// Whether the final response is still to come (RFC 9110 §15.2). 101 is final: no HTTP follows it.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Whether the server goes on using the connection after this response.
    pub(crate) fn persists(&self) -> bool {
        let says = match self.version {
            Version::Http11 => !self.fields.has("connection", "close"),
            Version::Http10 => self.fields.has("connection", "keep-alive") && !self.fields.has("connection", "close"),
        };
        says && self.framing != Framing::UntilClose
    }

    /// Whether this 101 changes to one of the protocols that were asked for, and to nothing else.
    pub(crate) fn switches_to(&self, asked: &str) -> bool {
        let mut chosen = self.fields.list("upgrade").peekable();
        let asked_for = |protocol: &[u8]| asked.split(',').any(|a| a.trim().as_bytes().eq_ignore_ascii_case(protocol));
        chosen.peek().is_some() && chosen.all(asked_for)
    }

    /// Writes the head for the client. `close`: the connection ends after this response.
    pub(crate) fn write(&self, close: bool, out: &mut BytesMut) {
        out.put_slice(self.version.as_str().as_bytes());
        out.put_slice(format!(" {:03} ", self.status).as_bytes());
        out.put_slice(&self.phrase);
        out.put_slice(b"\r\n");
        let mut connection = Vec::new();
        if close && !self.is_interim() && self.status != 101 {
            connection.push("close");
        } else if self.fields.has("connection", "keep-alive") {
            connection.push("keep-alive");
        }
        self.fields.write(&NextHop { connection, upgrade: self.upgrade(), keep_alive: !close, host: None }, out);
    }

    /// `Upgrade` means something with 101 and 426 (RFC 9110 §15.2.2, §15.5.22). In any other response it offers what
    /// would not be let through.
    fn upgrade(&self) -> Option<String> {
        if self.status != 101 && self.status != 426 {
            return None;
        }
        let kept = self.fields.list("upgrade").filter(|protocol| !is_http(protocol));
        let kept: Vec<_> = kept.map(String::from_utf8_lossy).collect();
        (!kept.is_empty()).then(|| kept.join(", "))
    }
}
