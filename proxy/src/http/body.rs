//! Chunked bodies: read strictly, framed anew (RFC 9112 §7.1).
//!
//! The size lines, the line ends and the trailer section that go on are written here; chunk extensions are dropped
//! (RFC 9112 §7.1.1 lets a recipient ignore them). Data goes on as it arrives, so that a stream is never held back for
//! the rest of its chunk, and chunks keep their bounds, which some programs take for those of their messages.

use std::fmt::Write as _;

use bytes::{Buf, BytesMut};

use super::fields::Fields;
use super::head::{HeadError, HeadScan, Lines};

/// The longest size line, extensions included.
const MAX_SIZE_LINE: usize = 4 * 1024;

/// The longest trailer section. It is held whole before anything of it goes on, for as long as the sender likes.
const MAX_TRAILERS: usize = 16 * 1024;

/// Reads one chunked body and writes it anew.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before a size line.
    Size,
    /// Before so many bytes of a chunk.
    Data(u64),
    /// Before the CRLF that ends a chunk.
    DataEnd,
    /// In the trailer section.
    Trailers(HeadScan),
    Done,
}

/// The body is not one that can be read in one way only. Says what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyError(pub(crate) &'static str);

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { state: State::Size }
    }

    /// Whether the body has ended. What is in the input then belongs to the next message.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Moves all that `input` has of the body to the end of `output`.
    pub(crate) fn advance(&mut self, input: &mut BytesMut, output: &mut BytesMut) -> Result<(), BodyError> {
        loop {
            self.state = match &mut self.state {
                State::Size => match size_line(input)? {
                    None => return Ok(()),
                    Some(0) => {
                        output.extend_from_slice(b"0\r\n");
                        State::Trailers(HeadScan::new(Lines::Strict))
                    }
                    Some(size) => {
                        // Writing into memory does not fail.
                        let _ = write!(output, "{size:x}\r\n");
                        State::Data(size)
                    }
                },
                State::Data(left) => {
                    let here = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                    output.extend_from_slice(&input[..here]);
                    input.advance(here);
                    *left -= here as u64;
                    if *left > 0 {
                        return Ok(());
                    }
                    State::DataEnd
                }
                State::DataEnd => {
                    if !b"\r\n".starts_with(&input[..input.len().min(2)]) {
                        return Err(BodyError("a chunk does not end where it says"));
                    }
                    if input.len() < 2 {
                        return Ok(());
                    }
                    input.advance(2);
                    output.extend_from_slice(b"\r\n");
                    State::Size
                }
                State::Trailers(scan) => match trailers(scan, input)? {
                    None => return Ok(()),
                    Some(trailers) => {
                        trailers.write_trailers(output);
                        State::Done
                    }
                },
                State::Done => return Ok(()),
            };
        }
    }
}

/// Takes a size line off the input: hexadecimal digits, then nothing or extensions, then CRLF.
fn size_line(input: &mut BytesMut) -> Result<Option<u64>, BodyError> {
    let Some(end) = input.iter().take(MAX_SIZE_LINE).position(|byte| *byte == b'\n') else {
        return if input.len() < MAX_SIZE_LINE { Ok(None) } else { Err(BodyError("a chunk's size line is too long")) };
    };
    let line = input.split_to(end + 1);
    let line = line.strip_suffix(b"\r\n").ok_or(BodyError("a chunk's size line does not end in CR LF"))?;
    if line.contains(&b'\r') {
        return Err(BodyError("a chunk's size line has a bare CR"));
    }
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if !matches!(line.get(digits), None | Some(b';')) {
        return Err(BodyError("a chunk's size is not a number"));
    }
    // No digits at all is an error of `from_str_radix`, and so is an overflow.
    let size = str::from_utf8(&line[..digits]).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.map(Some).ok_or(BodyError("a chunk's size is not a number"))
}

/// Takes the trailer section off the input, which is an empty line alone if there are no trailers.
fn trailers(scan: &mut HeadScan, input: &mut BytesMut) -> Result<Option<Fields>, BodyError> {
    if input.starts_with(b"\r\n") {
        input.advance(2);
        return Ok(Some(Fields::default()));
    }
    let wrong = |error| match error {
        HeadError::Malformed(what) | HeadError::Unsupported(what) => BodyError(what),
        HeadError::TooLarge => BodyError("the trailer section is too large"),
    };
    let section = scan.take(input).map_err(wrong)?;
    if section.as_ref().map_or(input.len(), |section| section.len()) > MAX_TRAILERS {
        return Err(wrong(HeadError::TooLarge));
    }
    section.map(|section| Fields::parse(&section)).transpose().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What goes on, and what is left, if the body is sound and whole.
    fn reframed(parts: &[&[u8]]) -> Result<(BytesMut, BytesMut), &'static str> {
        let (mut chunks, mut input, mut output) = (Chunks::new(), BytesMut::new(), BytesMut::new());
        for part in parts {
            input.extend_from_slice(part);
            chunks.advance(&mut input, &mut output).map_err(|error| error.0)?;
        }
        if chunks.is_done() { Ok((output, input)) } else { Err("incomplete") }
    }

    #[test]
    fn chunks_are_framed_anew() {
        for (body, expected, rest) in [
            ("0\r\n\r\n", "0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\nGET", "5\r\nhello\r\n0\r\n\r\n", "GET"),
            ("000A;a=b;c=\"d\"\r\n0123456789\r\n00\r\n\r\n", "a\r\n0123456789\r\n0\r\n\r\n", ""),
            ("1\r\n\r\r\n0\r\n\r\n", "1\r\n\r\r\n0\r\n\r\n", ""),
            ("0\r\nA:  b \r\n\r\n", "0\r\nA: b\r\n\r\n", ""),
            ("0\r\nHost: x\r\nContent-Length: 5\r\nConnection: a\r\nB: c\r\n\r\n", "0\r\nB: c\r\n\r\n", ""),
        ] {
            let (output, input) = reframed(&[body.as_bytes()]).unwrap();
            assert_eq!((&output[..], &input[..]), (expected.as_bytes(), rest.as_bytes()), "{body:?}");
        }
    }

    #[test]
    fn chunks_that_others_would_read_otherwise_are_refused() {
        for body in [
            "\r\n",
            ";a\r\n",
            "g\r\n",
            "0x5\r\nhello\r\n",
            "+5\r\nhello\r\n",
            "-1\r\n",
            " 5\r\nhello\r\n",
            "5 \r\nhello\r\n",
            "5\nhello\r\n",
            "5\r\nhelloX\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r0\r\n\r\n",
            "5;a\rb\r\nhello\r\n",
            "FFFFFFFFFFFFFFFF0\r\n",
            "10000000000000000\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA : b\r\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA: b\r\n c\r\n\r\n",
            "0\r\n\n",
        ] {
            let error = reframed(&[body.as_bytes()]).unwrap_err();
            assert_ne!(error, "incomplete", "{body:?}");
        }
        let endless_line = [b"5;".as_slice(), &[b'a'; MAX_SIZE_LINE]].concat();
        assert_eq!(reframed(&[&endless_line]), Err("a chunk's size line is too long"));
        let endless_trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(20_000)].concat();
        assert_eq!(reframed(&[&endless_trailers]), Err("the trailer section is too large"));
    }

    #[test]
    fn data_goes_on_before_its_chunk_is_whole() {
        let (mut chunks, mut input, mut output) = (Chunks::new(), BytesMut::from(&b"10\r\nhel"[..]), BytesMut::new());
        chunks.advance(&mut input, &mut output).unwrap();
        assert_eq!((&output[..], input.len()), (&b"10\r\nhel"[..], 0));
    }

    proptest! {
        #[test]
        fn splitting_does_not_change_the_body(body in "([0-2a]{1,2}(;b)?\r?\n[ab]{0,2}(\r\n)?){0,3}(0\r\n(a: b\r\n)?\r\n)?", cut in any::<prop::sample::Index>()) {
            let (early, late) = body.split_at(cut.index(body.len() + 1));
            prop_assert_eq!(reframed(&[early.as_bytes(), late.as_bytes()]), reframed(&[body.as_bytes()]));
        }

        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = reframed(&[&body]);
        }
    }
}
