//! The head of a request: parsed strictly, judged by what was parsed, forwarded as what was parsed.

use std::fmt;
use std::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};
use netbox_config::{Host, Port, Target, TargetError, Via};

use super::fields::{Fields, NextHop};
use super::framing::{self, Framing, Version};
use super::head::{HeadError, MAX_FIELDS};

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) form: Form,
    /// What stands in `Host`; `None` in HTTP/1.0 only.
    pub(crate) host: Option<Authority>,
    pub(crate) framing: Framing,
    version: Version,
    fields: Fields,
}

/// The form of the request target (RFC 9112 §3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A path, perhaps with a query: it starts with `/`.
    Origin(Bytes),
    /// `http://authority` and what follows it.
    Absolute(Authority, Bytes),
    /// `*`, with OPTIONS alone.
    Asterisk,
    /// `host:port`, with CONNECT alone.
    Authority(Host, Port),
}

/// A host, perhaps with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: Option<Port>,
}

impl RequestHead {
    /// Parses a head that `HeadScan` found, up to and with its empty line.
    pub(crate) fn parse(head: &Bytes) -> Result<Self, HeadError> {
        let mut parsed = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut parsed);
        let end = match request.parse(head) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Err(HeadError::Malformed("the head ends early")),
            Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
            Err(httparse::Error::Version) => {
                return Err(HeadError::Malformed("the version is not HTTP/1.0 or HTTP/1.1"));
            }
            Err(httparse::Error::HeaderName) => return Err(HeadError::Malformed("the name of a field is malformed")),
            Err(httparse::Error::HeaderValue) => return Err(HeadError::Malformed("the value of a field is malformed")),
            Err(_) => return Err(HeadError::Malformed("the request line is malformed")),
        };
        // The two must agree on where the head ends; `httparse` alone decides what is in it.
        let (Some(method), Some(target), true) = (request.method, request.path, end == head.len()) else {
            return Err(HeadError::Malformed("the head ends early"));
        };
        let version = Version::new(request.version);
        let fields = Fields::new(head, request.headers)?;
        Ok(Self {
            method: method.to_owned(),
            form: Form::parse(method, &head.slice_ref(target.as_bytes()))?,
            host: host(version, &fields)?,
            framing: framing::of_request(version, &fields)?,
            version,
            fields,
        })
    }

    /// Whether the request has a field of this name, given in lower case.
    pub(crate) fn says(&self, name: &str) -> bool {
        self.fields.only(name).is_some()
    }

    /// Whether the client wants to go on using the connection (RFC 9112 §9.3).
    pub(crate) fn wants_to_persist(&self) -> bool {
        match self.version {
            Version::Http11 => !self.fields.has("connection", "close"),
            Version::Http10 => self.fields.has("connection", "keep-alive") && !self.fields.has("connection", "close"),
        }
    }

    /// The values of `Proxy-Authorization`.
    pub(crate) fn proxy_authorization(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.all("proxy-authorization")
    }

    /// Whether the client waits for a word before it sends the body (RFC 9110 §10.1.1).
    pub(crate) fn expects_a_word(&self) -> bool {
        self.fields.all("expect").next().is_some()
    }

    /// The protocols that the client asks to change to, as they are asked for upstream; `None` if there are none.
    ///
    /// Never another HTTP: what followed would be requests that nobody judges. So `h2c` is taken out
    /// (RFC 9113 §3.1 made it obsolete), and `TLS/1.0` (RFC 2817), behind which is HTTP too.
    pub(crate) fn upgrade(&self) -> Option<String> {
        if self.version == Version::Http10 || !self.fields.has("connection", "upgrade") {
            return None;
        }
        let kept = self.fields.list("upgrade").filter(|protocol| !is_http(protocol));
        let kept: Vec<_> = kept.map(String::from_utf8_lossy).collect();
        (!kept.is_empty()).then(|| kept.join(", "))
    }

    /// The path and query, for the log; what stands there for the other forms.
    pub(crate) fn path(&self) -> &[u8] {
        match &self.form {
            Form::Origin(path) | Form::Absolute(_, path) => path,
            Form::Asterisk => b"*",
            Form::Authority(..) => b"",
        }
    }

    /// Writes the head for the server: origin form, the same version, the same fields but those for this hop alone.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        out.put_slice(self.method.as_bytes());
        out.put_slice(b" ");
        match &self.form {
            // The last proxy asks about the server as a whole (RFC 9112 §3.2.4).
            Form::Absolute(_, path) if path.is_empty() && self.method == "OPTIONS" => out.put_slice(b"*"),
            // `http://host` and `http://host?query` have the path `/` (RFC 9112 §3.2.1).
            Form::Absolute(_, path) if !path.starts_with(b"/") => out.put_slice(b"/"),
            _ => {}
        }
        out.put_slice(self.path());
        out.put_slice(b" ");
        out.put_slice(self.version.as_str().as_bytes());
        out.put_slice(b"\r\n");
        // In the absolute form `Host` counts for nothing (RFC 9112 §3.2.2): what was judged goes on, in its place.
        let host = match &self.form {
            Form::Absolute(authority, _) => Some(authority.of_http().to_string()),
            _ => None,
        };
        let mut connection = Vec::new();
        if self.fields.has("connection", "close") {
            connection.push("close");
        } else if self.fields.has("connection", "keep-alive") {
            connection.push("keep-alive");
        }
        self.fields.write(&NextHop { connection, upgrade: self.upgrade(), keep_alive: false, host }, out);
    }
}

impl Form {
    fn parse(method: &str, target: &Bytes) -> Result<Self, HeadError> {
        if method == "CONNECT" {
            return match Authority::parse(target) {
                Ok(Authority { host, port: Some(port) }) => Ok(Self::Authority(host, port)),
                _ => Err(HeadError::Malformed("CONNECT without `host:port`")),
            };
        }
        match &target[..] {
            [b'/', ..] => Ok(Self::Origin(target.clone())),
            b"*" if method == "OPTIONS" => Ok(Self::Asterisk),
            _ => Self::parse_absolute(target),
        }
    }

    fn parse_absolute(target: &Bytes) -> Result<Self, HeadError> {
        let colon = target.iter().position(|byte| *byte == b':').unwrap_or(0);
        let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let scheme = &target[..colon];
        if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !scheme.iter().all(is_scheme) {
            return Err(HeadError::Malformed("the request target is malformed"));
        }
        if !scheme.eq_ignore_ascii_case(b"http") {
            return Err(HeadError::Unsupported("a scheme other than `http`"));
        }
        let Some(after) = target[colon..].strip_prefix(b"://") else {
            return Err(HeadError::Malformed("the request target has no authority"));
        };
        let end = after.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(after.len());
        let (authority, path) = after.split_at(end);
        // A fragment is never sent (RFC 9112 §3.2): here it could be what another parser takes for the host's end.
        if path.starts_with(b"#") {
            return Err(HeadError::Malformed("the request target has a fragment"));
        }
        let authority = Authority::parse(authority).map_err(|_| HeadError::Malformed("the authority is malformed"))?;
        Ok(Self::Absolute(authority, target.slice_ref(path)))
    }
}

impl Authority {
    /// Parses `host` or `host:port`, by the one parser that all targets go through.
    fn parse(bytes: &[u8]) -> Result<Self, TargetError> {
        match Target::parse_authority(bytes, Via::Http) {
            Ok(target) => Ok(Self { host: target.host().clone(), port: Some(target.port()) }),
            Err(TargetError::NoPort { .. }) => match Host::parse_wire(bytes) {
                Ok(host) => Ok(Self { host, port: None }),
                Err(source) => Err(TargetError::Host { text: Vec::new(), source }),
            },
            Err(error) => Err(error),
        }
    }
}

impl Authority {
    /// The port, where the scheme is `http`.
    pub(crate) fn http_port(&self) -> Port {
        self.port.unwrap_or(Port::HTTP)
    }

    /// The same, without the port that `http` has anyway (RFC 9110 §4.2.3).
    fn of_http(&self) -> Self {
        Self { host: self.host.clone(), port: self.port.filter(|port| *port != Port::HTTP) }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            host => write!(f, "{host}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The one `Host` of a request (RFC 9112 §3.2).
fn host(version: Version, fields: &Fields) -> Result<Option<Authority>, HeadError> {
    let mut hosts = fields.all("host");
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::Http10 => Ok(None),
        (None, _) => Err(HeadError::Malformed("there is no `Host`")),
        (Some(_), Some(_)) => Err(HeadError::Malformed("more than one `Host`")),
        (Some(host), None) => match Authority::parse(host) {
            Ok(authority) => Ok(Some(authority)),
            Err(_) => Err(HeadError::Malformed("`Host` is malformed")),
        },
    }
}

/// Whether a protocol of `Upgrade` is HTTP, or leads to it.
pub(crate) fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default().trim_ascii();
    [b"h2c".as_slice(), b"h2", b"h3", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

#[cfg(test)]
mod tests;
