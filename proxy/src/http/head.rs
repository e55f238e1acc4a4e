//! Where a head ends, and how large it may be.
//!
//! The scan only finds the end and keeps the limits; `request` and `response` parse what it found. A request's lines
//! end in CRLF and nothing else: a bare LF is where two parsers part. A response may use LF alone, as old servers do;
//! it comes from whom the policy allows, and what is forwarded is written anew.

use bytes::{Buf, Bytes, BytesMut};
use netbox_config::Reason;

/// The most bytes of a head, start line and fields together.
pub(crate) const MAX_HEAD: usize = 64 * 1024;
/// The most bytes of one line. Servers take 4 to 16 KiB.
pub(crate) const MAX_LINE: usize = 32 * 1024;
/// The most fields.
pub(crate) const MAX_FIELDS: usize = 256;

/// Why a head is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// It does not follow the grammar, or could be read in two ways. Says what is wrong.
    #[error("{0}")]
    Malformed(&'static str),
    /// It exceeds [`MAX_HEAD`], [`MAX_LINE`] or [`MAX_FIELDS`].
    #[error("the head of the message is too large")]
    TooLarge,
    /// It asks for something that netbox does not carry. Says what.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl HeadError {
    /// The word for events.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Malformed(_) | Self::TooLarge => Reason::Malformed,
            Self::Unsupported(_) => Reason::Unsupported,
        }
    }
}

/// Whose head it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Every line ends in CRLF.
    Strict,
    /// A line may end in LF alone.
    Lenient,
}

/// A search for the end of a head in a growing buffer, which looks at each byte once.
#[derive(Debug)]
pub(crate) struct HeadScan {
    ends: Lines,
    seen: usize,
    line_start: usize,
    lines: usize,
}

impl HeadScan {
    pub(crate) fn new(ends: Lines) -> Self {
        Self { ends, seen: 0, line_start: 0, lines: 0 }
    }

    /// Takes the head off the front of `buffer` once it is whole; empty lines before it are dropped (RFC 9112 §2.2).
    ///
    /// `buffer` holds everything that has arrived; between two calls it may only have grown.
    pub(crate) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, HeadError> {
        if self.seen == 0 {
            self.skip_empty_lines(buffer);
            // Half an empty line: what it becomes is seen with the next byte.
            if buffer[..] == b"\r"[..] {
                return Ok(None);
            }
        }
        while let Some(at) = buffer[self.seen..].iter().position(|byte| *byte == b'\n') {
            let end = self.seen + at;
            let line = &buffer[self.line_start..end];
            let content = match (line, self.ends) {
                ([content @ .., b'\r'], _) => content,
                (content, Lines::Lenient) => content,
                (_, Lines::Strict) => return Err(HeadError::Malformed("a line does not end in CR LF")),
            };
            if content.len() > MAX_LINE || end >= MAX_HEAD {
                return Err(HeadError::TooLarge);
            }
            self.seen = end + 1;
            self.line_start = self.seen;
            if content.is_empty() {
                return Ok(Some(buffer.split_to(self.seen).freeze()));
            }
            self.lines += 1;
            if self.lines > MAX_FIELDS + 1 {
                return Err(HeadError::TooLarge);
            }
        }
        self.seen = buffer.len();
        if buffer.len() >= MAX_HEAD || buffer.len() - self.line_start > MAX_LINE + 1 {
            return Err(HeadError::TooLarge);
        }
        Ok(None)
    }

    fn skip_empty_lines(&self, buffer: &mut BytesMut) {
        loop {
            match &buffer[..] {
                [b'\r', b'\n', ..] => buffer.advance(2),
                [b'\n', ..] if self.ends == Lines::Lenient => buffer.advance(1),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(bytes: &[u8], ends: Lines) -> Result<Option<Bytes>, HeadError> {
        HeadScan::new(ends).take(&mut BytesMut::from(bytes))
    }

    #[test]
    fn a_head_ends_at_the_empty_line_and_the_rest_stays() {
        let mut buffer = BytesMut::from(&b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody\r\n\r\n"[..]);
        let head = HeadScan::new(Lines::Strict).take(&mut buffer);
        assert_eq!(head, Ok(Some(Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))));
        assert_eq!(&buffer[..], b"body\r\n\r\n");
    }

    #[test]
    fn a_bare_lf_ends_a_line_of_a_response_only() {
        let bytes = b"HTTP/1.0 200 OK\nA: b\n\nx";
        assert_eq!(scan(bytes, Lines::Lenient), Ok(Some(Bytes::from_static(b"HTTP/1.0 200 OK\nA: b\n\n"))));
        assert!(matches!(scan(bytes, Lines::Strict), Err(HeadError::Malformed(_))));
        assert!(matches!(scan(b"GET / HTTP/1.1\r\nHost: a\n\r\n", Lines::Strict), Err(HeadError::Malformed(_))));
    }

    #[test]
    fn limits_hold_before_the_end_is_seen() {
        let long_line = [b"GET /".to_vec(), vec![b'a'; MAX_LINE]];
        let many_fields = [b"GET / HTTP/1.1\r\n".to_vec(), b"a: b\r\n".repeat(MAX_FIELDS + 1)];
        let field = [b"a: ".as_slice(), &[b'b'; 1000], b"\r\n"].concat();
        let long_head = [b"GET / HTTP/1.1\r\n".as_slice(), &field.repeat(70)].concat();
        for bytes in [long_line.concat(), many_fields.concat(), long_head] {
            assert_eq!(scan(&bytes, Lines::Strict), Err(HeadError::TooLarge));
        }
    }

    proptest! {
        #[test]
        fn splitting_does_not_change_the_end(bytes in "[\r\nab]{0,40}", cut in any::<prop::sample::Index>()) {
            for ends in [Lines::Strict, Lines::Lenient] {
                let cut = cut.index(bytes.len() + 1);
                let mut whole = BytesMut::from(bytes.as_bytes());
                let expected = HeadScan::new(ends).take(&mut whole);
                let mut buffer = BytesMut::from(&bytes.as_bytes()[..cut]);
                let mut scan = HeadScan::new(ends);
                let mut found = scan.take(&mut buffer);
                if found == Ok(None) {
                    buffer.extend_from_slice(&bytes.as_bytes()[cut..]);
                    found = scan.take(&mut buffer);
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
