//! Where the body of a message ends (RFC 9112 §6.3), where that can be read in one way only.

use super::fields::Fields;
use super::head::HeadError;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; 0 where there is no body.
    Length(u64),
    /// Chunks (RFC 9112 §7.1).
    Chunked,
    /// Until the sender closes the connection: responses only.
    UntilClose,
}

/// The version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

impl Version {
    /// From the minor version, as `httparse` gives it; it takes 0 and 1 only.
    pub(crate) fn new(minor: Option<u8>) -> Self {
        if minor == Some(0) { Self::Http10 } else { Self::Http11 }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// The framing of a request. `Content-Length` and `Transfer-Encoding` together, either of them twice, or a coding other
/// than exactly `chunked` are where two servers disagree: they are refused, never repaired.
pub(crate) fn of_request(version: Version, fields: &Fields) -> Result<Framing, HeadError> {
    Ok(of_fields(version, fields)?.unwrap_or(Framing::Length(0)))
}

/// The framing of the final response to a request with this method.
pub(crate) fn of_response(method: &str, status: u16, version: Version, fields: &Fields) -> Result<Framing, HeadError> {
    let framing = of_fields(version, fields)?;
    // These have no body, whatever they say about one.
    if method == "HEAD" || status == 204 || status == 304 || status < 200 {
        return Ok(Framing::Length(0));
    }
    Ok(framing.unwrap_or(Framing::UntilClose))
}

fn of_fields(version: Version, fields: &Fields) -> Result<Option<Framing>, HeadError> {
    let mut lengths = fields.all("content-length");
    let mut codings = fields.all("transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(HeadError::Malformed("both `Content-Length` and `Transfer-Encoding`")),
        (Some(length), None) if lengths.next().is_none() => content_length(length).map(Framing::Length).map(Some),
        (Some(_), None) => Err(HeadError::Malformed("more than one `Content-Length`")),
        (None, Some(_)) if version == Version::Http10 => Err(HeadError::Malformed("`Transfer-Encoding` in HTTP/1.0")),
        (None, Some(coding)) if coding == b"chunked" && codings.next().is_none() => Ok(Some(Framing::Chunked)),
        (None, Some(_)) => Err(HeadError::Unsupported("a transfer coding other than `chunked`")),
    }
}

/// Digits and nothing else. No list of equal values either: RFC 9112 §6.3 lets a proxy refuse it.
fn content_length(value: &[u8]) -> Result<u64, HeadError> {
    const WRONG: HeadError = HeadError::Malformed("`Content-Length` is not a number");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(WRONG);
    }
    let digit = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    value.iter().try_fold(0, digit).ok_or(WRONG)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(&Bytes::from(format!("{text}\r\n"))).unwrap()
    }

    #[test]
    fn a_request_is_framed_in_one_way_or_refused() {
        use Framing::{Chunked, Length};
        for (text, expected) in [
            ("", Some(Length(0))),
            ("Content-Length: 0\r\n", Some(Length(0))),
            ("content-length:  5 \r\n", Some(Length(5))),
            ("Content-Length: 18446744073709551615\r\n", Some(Length(u64::MAX))),
            ("Transfer-Encoding: chunked\r\n", Some(Chunked)),
            ("transfer-encoding:\tchunked \r\n", Some(Chunked)),
            ("Content-Length: 18446744073709551616\r\n", None),
            ("Content-Length: +5\r\n", None),
            ("Content-Length: -5\r\n", None),
            ("Content-Length: 0x5\r\n", None),
            ("Content-Length: 5, 5\r\n", None),
            ("Content-Length: 5 5\r\n", None),
            ("Content-Length:\r\n", None),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", None),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", None),
            ("Transfer-Encoding: xchunked\r\n", None),
            ("Transfer-Encoding: Chunked\r\n", None),
            ("Transfer-Encoding: chunked;q=1\r\n", None),
            ("Transfer-Encoding: gzip, chunked\r\n", None),
            ("Transfer-Encoding: identity\r\n", None),
            ("Transfer-Encoding:\r\n", None),
        ] {
            assert_eq!(of_request(Version::Http11, &fields(text)).ok(), expected, "{text:?}");
        }
        assert!(of_request(Version::Http10, &fields("Transfer-Encoding: chunked\r\n")).is_err());
    }

    #[test]
    fn a_response_without_a_body_has_none_whatever_it_says() {
        let length = fields("Content-Length: 5\r\n");
        for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("GET", 100)] {
            assert_eq!(
                of_response(method, status, Version::Http11, &length),
                Ok(Framing::Length(0)),
                "{method} {status}"
            );
        }
        assert_eq!(of_response("GET", 200, Version::Http11, &length), Ok(Framing::Length(5)));
        assert_eq!(of_response("GET", 200, Version::Http11, &fields("")), Ok(Framing::UntilClose));
        let both = fields("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
        assert!(of_response("GET", 200, Version::Http11, &both).is_err());
        assert!(of_response("HEAD", 200, Version::Http11, &both).is_err());
    }
}
