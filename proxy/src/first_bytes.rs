//! What a program speaks, from its first bytes: TLS, HTTP/1, HTTP/2 in clear text, or something else.
//!
//! Only what a server could take for TLS or HTTP/1 matters here, since only those name a host of their own. So the
//! tests are wider than the grammars: whatever could be read as a request line counts as HTTP, and the strict parser
//! of `http::head` then refuses what is odd. TLS begins with byte 22, HTTP with a token (after empty lines, which
//! servers skip): no bytes are both.
//!
//! A line without its end is undecided. Whoever holds the bytes may let go of a mere [`Undecided::Word`] and keep
//! watching what follows with the [`LineWatch`]: no server acts on half a request line.

use netbox_config::HostName;

use crate::client_hello::{self, Hello};

/// The methods that a client may be expected to send in pieces; any other token counts as HTTP once its line is whole.
/// RFC 9110 §9.3, RFC 5789, RFC 9113 §3.4 (`PRI`), RFC 4918 (WebDAV).
const METHODS: [&str; 18] = [
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LOCK",
    "MKCOL",
    "MOVE",
    "OPTIONS",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "REPORT",
    "TRACE",
    "UNLOCK",
];

/// No method above is longer than this.
const LONGEST_METHOD: usize = 9;

/// What the first bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// More bytes are needed. Says what it looks like up to now.
    Undecided(Undecided),
    /// A whole ClientHello.
    Tls {
        /// Its server name.
        sni: Option<HostName>,
        /// Whether it bears an Encrypted Client Hello.
        ech: bool,
    },
    /// A line that a server could take for the request line of HTTP/1 (or of HTTP/0.9 with a version).
    Http,
    /// The connection preface of HTTP/2 (RFC 9113 §3.4), without TLS.
    Http2,
    /// Neither TLS nor HTTP.
    Other,
    /// It starts as TLS does and cannot be read in one way only.
    Malformed,
}

/// What bytes that do not yet tell look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// There are none.
    Nothing,
    /// The start of a ClientHello.
    Tls,
    /// The start of a line whose first word is, or may become, a well-known method.
    Method,
    /// The start of a line with some other first word, or empty lines.
    Word,
}

/// Looks at a growing buffer, each byte of it once.
#[derive(Debug, Default)]
pub struct Classifier {
    line: LineWatch,
    seen: usize,
}

impl Classifier {
    /// What `bytes` are: everything that has arrived so far, of which the last call saw a beginning.
    pub fn look(&mut self, bytes: &[u8]) -> FirstBytes {
        match bytes {
            [] => return FirstBytes::Undecided(Undecided::Nothing),
            [22, ..] => {
                return match client_hello::read(bytes) {
                    Hello::Incomplete => FirstBytes::Undecided(Undecided::Tls),
                    Hello::Whole { sni, ech } => FirstBytes::Tls { sni, ech },
                    Hello::NotTls => FirstBytes::Other,
                    Hello::Malformed => FirstBytes::Malformed,
                };
            }
            _ => {}
        }
        let fresh = bytes.get(self.seen..).unwrap_or_default();
        self.seen = bytes.len();
        match self.line.feed(fresh) {
            Some(Line::Http) => FirstBytes::Http,
            Some(Line::Http2) => FirstBytes::Http2,
            Some(Line::Other) => FirstBytes::Other,
            None if self.line.may_be_method() => FirstBytes::Undecided(Undecided::Method),
            None => FirstBytes::Undecided(Undecided::Word),
        }
    }

    /// What the bytes are, now that no more will come.
    pub fn at_end(&self, so_far: &FirstBytes) -> FirstBytes {
        match so_far {
            FirstBytes::Undecided(Undecided::Tls) => FirstBytes::Malformed,
            // A server might take the end for the end of the line.
            FirstBytes::Undecided(_) if self.line.ends_in_version() => FirstBytes::Http,
            FirstBytes::Undecided(_) => FirstBytes::Other,
            decided => decided.clone(),
        }
    }

    /// The watch over what comes after the bytes that were looked at.
    pub fn into_watch(self) -> LineWatch {
        self.line
    }
}

/// What a line turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It could be taken for a request line.
    Http,
    /// The first line of the preface of HTTP/2.
    Http2,
    /// It could not.
    Other,
}

/// Follows a connection's first line, in constant memory, until it is known what it is.
#[derive(Clone, Debug, Default)]
pub struct LineWatch {
    stage: Stage,
    /// The first word, as far as it may be a method.
    method: Word<LONGEST_METHOD>,
    /// The word that the line is in.
    word: Word<6>,
    /// Whether the last word that has ended was a version.
    version: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// In the empty lines that servers skip (RFC 9112 §2.2).
    #[default]
    Leading,
    /// In the first word.
    Method,
    /// Behind it.
    Line,
    Decided(Line),
}

impl LineWatch {
    /// Takes the next bytes; says what the line is as soon as that is known, and the same from then on.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<Line> {
        for &byte in bytes {
            if let Stage::Decided(line) = self.stage {
                return Some(line);
            }
            self.stage = self.step(byte);
        }
        match self.stage {
            Stage::Decided(line) => Some(line),
            _ => None,
        }
    }

    fn step(&mut self, byte: u8) -> Stage {
        match self.stage {
            // Some servers skip white space there too.
            Stage::Leading if is_blank(byte) || is_line_end(byte) => Stage::Leading,
            Stage::Leading | Stage::Method if is_token(byte) => {
                self.method.push(byte);
                Stage::Method
            }
            Stage::Method if is_blank(byte) => Stage::Line,
            Stage::Line => {
                if !is_blank(byte) && !is_line_end(byte) {
                    self.word.push(byte);
                    return Stage::Line;
                }
                if self.word.length > 0 {
                    self.version = self.word.is_version();
                    self.word = Word::default();
                }
                match byte {
                    // Some servers end a line at a bare CR.
                    b'\n' | b'\r' if self.version => Stage::Decided(self.request_line()),
                    b'\n' => Stage::Decided(Line::Other),
                    _ => Stage::Line,
                }
            }
            Stage::Decided(line) => Stage::Decided(line),
            Stage::Leading | Stage::Method => Stage::Decided(Line::Other),
        }
    }

    fn request_line(&self) -> Line {
        if self.method.whole() == Some(b"PRI") { Line::Http2 } else { Line::Http }
    }

    fn may_be_method(&self) -> bool {
        match (self.stage, self.method.whole()) {
            (Stage::Method, Some(start)) => METHODS.iter().any(|method| method.as_bytes().starts_with(start)),
            (Stage::Line, Some(word)) => METHODS.iter().any(|method| method.as_bytes() == word),
            _ => false,
        }
    }

    /// Whether what there is of the line would be a request line, if it ended here.
    pub fn ends_in_version(&self) -> bool {
        self.stage == Stage::Line && if self.word.length > 0 { self.word.is_version() } else { self.version }
    }
}

/// The first `N` bytes of a word, and how long it is.
#[derive(Clone, Debug)]
struct Word<const N: usize> {
    start: [u8; N],
    length: usize,
}

impl<const N: usize> Default for Word<N> {
    fn default() -> Self {
        Self { start: [0; N], length: 0 }
    }
}

impl<const N: usize> Word<N> {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.start.get_mut(self.length) {
            *place = byte;
        }
        self.length = self.length.saturating_add(1);
    }

    /// The word, if all of it was kept.
    fn whole(&self) -> Option<&[u8]> {
        self.start.get(..self.length)
    }
}

impl Word<6> {
    /// Whether it starts with `HTTP/` and a digit, in any case.
    fn is_version(&self) -> bool {
        self.length > 5 && self.start[..5].eq_ignore_ascii_case(b"HTTP/") && self.start[5].is_ascii_digit()
    }
}

/// What some reader takes for white space within a line: that of ASCII, and in a line that is read as Latin-1 what Unicode
/// counts as such (Python's `split`).
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | 0x1c..=0x1f | 0x85 | 0xa0)
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// A character of a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first_bytes(bytes: &[u8]) -> FirstBytes {
        Classifier::default().look(bytes)
    }

    #[test]
    fn first_bytes_tell_the_protocol() {
        use FirstBytes::{Http, Http2, Other, Undecided as U};
        use Undecided::{Method, Nothing, Tls, Word};
        let table: &[(&[u8], FirstBytes)] = &[
            (b"", U(Nothing)),
            (b"GET / HTTP/1.1\r\n", Http),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", Http),
            (b"get / http/1.0\n", Http),
            (b"GET\t/\tHTTP/1.1 \t\r\n", Http),
            (b"GET /\0 HTTP/1.1\r\n", Http),
            (b"GET / HTTP/1.1\rHost: x", Http),
            (b"BREW / HTTP/1.1\r\n", Http),
            (b"GET / HTTP/2.0\r\n", Http),
            (b"GET / HTTP/9\r\n", Http),
            (b"PRI * HTTP/2.0\r\n", Http2),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Http2),
            (b"G", U(Method)),
            (b"GET", U(Method)),
            (b"GET / HTTP/1.1", U(Method)),
            (b"GETX", U(Word)),
            (b"\r\n", U(Word)),
            (b"ping", U(Word)),
            (b"PONG", U(Word)),
            (b"PONG / HTTP/1.1", U(Word)),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Other),
            (b"SSH-2.0-Go\r\n", Other),
            (b"EHLO mail.example.com\r\n", Other),
            (b"HTTP/1.1 200 OK\r\n", Other),
            (b"GET /\r\n", Other),
            (b"GET / HTTP/1.1 x\r\n", Other),
            (b"GET / XHTTP/1.1\r\n", Other),
            (b"GET / HTTP/x\r\n", Other),
            (b"*1\r\n$4\r\nPING\r\n", Other),
            (b"AMQP\0\0\x09\x01", Other),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", Other),
            (b" GET / HTTP/1.1\r\n", Http),
            (b"\t \r\nGET / HTTP/1.1\r\n", Http),
            (b"\xffGET / HTTP/1.1\r\n", Other),
            (b"GET\xa0/\x85HTTP/1.1\x1c\r\n", Http),
            (b"\x1f\x0bGET\x0c/\x0bHTTP/1.1\r\n", Http),
            (b"\x16", U(Tls)),
            (b"\x16\x03\x01\x02\x00\x01\x00", U(Tls)),
            (b"\x16\x02\x01", Other),
            (b"\x16\x03\x01\x00\x00", FirstBytes::Malformed),
        ];
        for (bytes, expected) in table {
            assert_eq!(first_bytes(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_end_decides_what_was_undecided() {
        let table: &[(&[u8], FirstBytes)] = &[
            (b"", FirstBytes::Other),
            (b"ping", FirstBytes::Other),
            (b"GET", FirstBytes::Other),
            (b"GET / HTTP/1.1", FirstBytes::Http),
            (b"foo / http/1.1 ", FirstBytes::Http),
            (b"\x16\x03", FirstBytes::Malformed),
            (b"\x01", FirstBytes::Other),
        ];
        for (bytes, expected) in table {
            let mut classifier = Classifier::default();
            let so_far = classifier.look(bytes);
            assert_eq!(classifier.at_end(&so_far), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_released_word_that_becomes_a_request_line_is_seen() {
        let mut classifier = Classifier::default();
        assert_eq!(classifier.look(b"PI"), FirstBytes::Undecided(Undecided::Word));
        let mut watch = classifier.into_watch();
        assert_eq!(watch.feed(b"NG / HT"), None);
        assert_eq!(watch.feed(b"TP/1.1\r"), Some(Line::Http));
        assert_eq!(watch.feed(b"anything"), Some(Line::Http));
    }

    fn lines() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "[\r\n]{0,2}[A-Z]{0,8}[ \t]{0,2}[!-~]{0,8}[ \t\r]{0,2}(HTTP/)?[0-9.]{0,3}[ \r]{0,2}\n?.{0,9}"
                .prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn splitting_does_not_change_the_verdict(bytes in lines(), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(bytes.len() + 1);
            let mut classifier = Classifier::default();
            let early = classifier.look(&bytes[..cut]);
            let late = classifier.look(&bytes);
            prop_assert_eq!(&late, &first_bytes(&bytes));
            if !matches!(early, FirstBytes::Undecided(_)) {
                prop_assert_eq!(early, late);
            }
        }
    }
}
