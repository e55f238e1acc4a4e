//! The fields of a head: looked up by name, and written on without those that concern one connection only.

use bytes::{BufMut, Bytes, BytesMut};

use super::head::{HeadError, MAX_FIELDS};

/// The most elements that `Connection` and `Upgrade` may have, each over all of its fields. Every other field is compared
/// with each of them.
const MAX_OPTIONS: usize = 64;

/// The fields in the order in which they came, in their own spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<Field>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: Bytes,
    value: Bytes,
}

/// What is said to the next hop about the connection itself. It replaces what the last hop said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextHop {
    /// The options of `Connection`, besides `upgrade`; no field if there are none.
    pub(crate) connection: Vec<&'static str>,
    /// The protocols of `Upgrade`.
    pub(crate) upgrade: Option<String>,
    /// Whether `Keep-Alive` goes on: a server's word for how long it keeps the connection, which holds for the client
    /// too, since the two connections end together. Clients lean on it so as not to race with the end.
    pub(crate) keep_alive: bool,
    /// What stands in `Host`, in place of what the client wrote there.
    pub(crate) host: Option<String>,
}

/// The fields that concern one connection (RFC 9110 §7.6.1, RFC 7540 §3.2.1): never forwarded as they came.
/// `Transfer-Encoding` is one too; it is written anew with the body.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

/// The fields that decide whom a message is for and where it ends: `Connection` cannot have them removed.
const FIXED: [&str; 3] = ["content-length", "host", "transfer-encoding"];

impl Fields {
    /// Takes over what `httparse` found in `head`.
    pub(crate) fn new(head: &Bytes, parsed: &[httparse::Header<'_>]) -> Result<Self, HeadError> {
        let field = |header: &httparse::Header<'_>| Field {
            name: head.slice_ref(header.name.as_bytes()),
            value: head.slice_ref(header.value),
        };
        let fields = Self(parsed.iter().map(field).collect());
        match ["connection", "upgrade"].iter().any(|name| fields.list(name).nth(MAX_OPTIONS).is_some()) {
            true => Err(HeadError::TooLarge),
            false => Ok(fields),
        }
    }

    /// Parses fields that stand alone, up to and with the empty line: the trailer section of a chunked body.
    pub(crate) fn parse(section: &Bytes) -> Result<Self, HeadError> {
        let mut parsed = [httparse::EMPTY_HEADER; MAX_FIELDS];
        match httparse::parse_headers(section, &mut parsed) {
            Ok(httparse::Status::Complete((length, fields))) if length == section.len() => Self::new(section, fields),
            Err(httparse::Error::TooManyHeaders) => Err(HeadError::TooLarge),
            _ => Err(HeadError::Malformed("a trailer field is malformed")),
        }
    }

    /// The values of every field of this name, given in lower case.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |field| field.is(name)).map(|field| &field.value[..])
    }

    /// The value of a field of this name that is there once, given in lower case.
    pub(crate) fn only(&self, name: &str) -> Option<&[u8]> {
        let mut found = self.0.iter().filter(|field| field.is(name));
        found.next().filter(|_| found.next().is_none()).map(|field| &field.value[..])
    }

    /// The elements of a comma-separated list, over all fields of this name (RFC 9110 §5.6.1), without empty ones.
    pub(crate) fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.all(name).flat_map(|value| value.split(|b| *b == b',')).map(<[u8]>::trim_ascii).filter(|e| !e.is_empty())
    }

    /// Whether the list of this name has this element, in any case.
    pub(crate) fn has(&self, name: &str, element: &str) -> bool {
        self.list(name).any(|found| found.eq_ignore_ascii_case(element.as_bytes()))
    }

    /// Writes the fields for the next hop, and the empty line. `next` takes the place of what stood there; order and
    /// spelling are kept otherwise.
    pub(crate) fn write(&self, next: &NextHop, out: &mut BytesMut) {
        let mut options: Vec<&str> = next.connection.clone();
        if next.upgrade.is_some() {
            options.push("upgrade");
        }
        let mut connection = (!options.is_empty()).then(|| options.join(", "));
        let mut upgrade = next.upgrade.clone();
        let mut host = next.host.clone();
        if let (Some(value), None) = (&host, self.all("host").next()) {
            write_field(b"Host", value.as_bytes(), out);
        }
        for field in &self.0 {
            let replaced = match &field.name {
                name if next.host.is_some() && name.eq_ignore_ascii_case(b"host") => host.take(),
                name if next.keep_alive && name.eq_ignore_ascii_case(b"keep-alive") => {
                    write_field(name, &field.value, out);
                    None
                }
                name if name.eq_ignore_ascii_case(b"connection") => connection.take(),
                name if name.eq_ignore_ascii_case(b"upgrade") => upgrade.take(),
                _ if self.is_for_this_hop(field) => None,
                _ => {
                    write_field(&field.name, &field.value, out);
                    None
                }
            };
            if let Some(value) = replaced {
                write_field(&field.name, value.as_bytes(), out);
            }
        }
        if let Some(value) = connection {
            write_field(b"Connection", value.as_bytes(), out);
        }
        if let Some(value) = upgrade {
            write_field(b"Upgrade", value.as_bytes(), out);
        }
        out.put_slice(b"\r\n");
    }

    /// Writes a trailer section and the empty line. Fields that would have to stand in the head are left out
    /// (RFC 9110 §6.5.1).
    pub(crate) fn write_trailers(&self, out: &mut BytesMut) {
        for field in self.0.iter().filter(|field| !field.is_any(&HOP_BY_HOP) && !field.is_any(&FIXED)) {
            write_field(&field.name, &field.value, out);
        }
        out.put_slice(b"\r\n");
    }

    fn is_for_this_hop(&self, field: &Field) -> bool {
        let named = || self.list("connection").any(|option| field.name.eq_ignore_ascii_case(option));
        field.is_any(&HOP_BY_HOP) || (!field.is_any(&FIXED) && named())
    }
}

impl Field {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    fn is_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }
}

fn write_field(name: &[u8], value: &[u8], out: &mut BytesMut) {
    out.put_slice(name);
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}
