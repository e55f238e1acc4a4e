//! A host name, parsed once, in the one form that is compared, looked up, dialled and logged.

use std::borrow::Borrow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// A host name: lower-case A-labels, no trailing dot, 1 to 253 bytes, labels of 1 to 63 bytes out of `a-z 0-9 - _`, the
/// last label neither a number nor `0x` with hexadecimal digits, no hyphen at the very beginning.
///
/// The grammar is that of RFC 1123 §2.1 and RFC 5890 §2.3 with the underscore, which real names have; it is what the C
/// library takes as a host name (`res_hnok`). A name whose last label is a number is one that the C library and browsers
/// read as an IPv4 address (`127.1`, `0x7f000001`), so it is no name here: a name can never mean an address.
///
/// A label that starts with `xn--` is valid Punycode of a valid label (UTS 46): `xn--` alone and `xn--example-` decode to
/// another name for some parsers, so they are none for us.
///
/// Cloning is cheap (a shared string).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

/// Why a text is no host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or the root (`.`).
    #[error("the host name is empty")]
    Empty,
    /// A byte beyond ASCII in a name that a program sent. Names travel as A-labels.
    #[error("a host name is ASCII here, other scripts travel as `xn--` labels")]
    NotAscii,
    /// A character that no host name has. `at` is the byte offset.
    #[error("{} is no character of a host name", crate::quote(.character.encode_utf8(&mut [0; 4]).as_bytes()))]
    Character {
        /// The character.
        character: char,
        /// Its byte offset in the text.
        at: usize,
    },
    /// Two dots in a row, or a dot at the beginning. `at` is the byte offset of the dot too many.
    #[error("a label of the host name is empty")]
    EmptyLabel {
        /// The byte offset of the dot too many.
        at: usize,
    },
    /// A label of more than 63 bytes (RFC 1035 §2.3.4).
    #[error("a label of the host name has more than 63 bytes")]
    LongLabel {
        /// The byte offset of the label.
        at: usize,
    },
    /// More than 253 bytes, as text (RFC 1035 §2.3.4: 255 on the wire).
    #[error("the host name has more than 253 bytes")]
    Long,
    /// The last label is a number: `127.1`, `256.0.0.1`, `0x7f000001`, `foo.09`.
    #[error("the last label is a number, so it is no host name, and it is no IPv4 address in its usual form")]
    Numeric,
    /// A hyphen at the very beginning.
    #[error("a host name does not start with a hyphen")]
    LeadingHyphen,
    /// An `xn--` label that is not the Punycode of a valid label.
    #[error("an `xn--` label is not valid Punycode")]
    Punycode {
        /// The byte offset of the label.
        at: usize,
    },
    /// Text in another script that is no name, by UTS 46 and the grammar above.
    #[error("the host name is not valid under IDNA (UTS 46)")]
    Idna {
        /// The byte offset of the first character beyond ASCII.
        at: usize,
    },
    /// Characters that only look like, or disappear into, plain ASCII. `plain` is what they come to.
    #[error("some characters are folded away: they come to {}", crate::quote(.plain.as_bytes()))]
    Lookalike {
        /// The plain form.
        plain: String,
        /// The byte offset of the first of them.
        at: usize,
    },
}

impl HostName {
    /// Parses a name that a program sent: ASCII only, ASCII letters folded, one trailing dot dropped.
    ///
    /// Bytes beyond ASCII are refused before anything is folded: `to_lowercase` turns U+212A KELVIN SIGN into `k`.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong. Never panics, whatever the bytes.
    pub fn parse_wire(bytes: &[u8]) -> Result<Self, NameError> {
        match parse_grammar(bytes)? {
            // The whole name is asked about: what is valid in a label that runs from right to left depends on the others.
            (name, Some(at)) if to_a_labels(&name).as_deref() != Some(&*name) => Err(NameError::Punycode { at }),
            (name, _) => Ok(Self(name.into())),
        }
    }

    /// Parses a name out of the labels of a DNS message (without the empty root label), as [`HostName::parse_wire`].
    ///
    /// A label may hold any byte there, also a dot; such a label is refused, never joined into another name.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong.
    pub fn parse_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NameError> {
        let mut name = Vec::new();
        for label in labels {
            if !name.is_empty() {
                name.push(b'.');
            }
            if label.is_empty() {
                return Err(NameError::EmptyLabel { at: name.len() });
            }
            if let Some(dot) = label.iter().position(|b| *b == b'.') {
                return Err(NameError::Character { character: '.', at: name.len() + dot });
            }
            name.extend_from_slice(label);
            if name.len() > 253 {
                return Err(NameError::Long);
            }
        }
        Self::parse_wire(&name)
    }

    /// Parses a name that a person wrote in a rule: as [`HostName::parse_wire`], and other scripts become A-labels
    /// (IDNA 2008 by UTS 46, non-transitional).
    ///
    /// A label that is written with other characters and comes to plain ASCII (`ｇithub.com`, a zero-width space, the
    /// KELVIN SIGN) is refused with the plain form: who reviews a rule must see what it allows.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong.
    pub fn parse_rule(text: &str) -> Result<Self, NameError> {
        if text.is_ascii() {
            return Self::parse_wire(text.as_bytes());
        }
        // No name of this length comes to 253 bytes or less; UTS 46 need not be bothered.
        if text.len() > 1024 {
            return Err(NameError::Long);
        }
        if let Some((at, character)) = text.char_indices().find(|(_, c)| is_ascii_but_no_name(*c)) {
            return Err(NameError::Character { character, at });
        }
        let first = text.find(|c: char| !c.is_ascii()).unwrap_or(0);
        let plain = to_a_labels(text).ok_or(NameError::Idna { at: first })?;
        // Its `xn--` labels are what UTS 46 makes of valid ones, or has found to be valid.
        let (name, _) = parse_grammar(plain.as_bytes()).map_err(|error| match error {
            NameError::Numeric | NameError::Long => error,
            // The rest speaks of places in the plain form, not in the text.
            _ => NameError::Idna { at: first },
        })?;
        match lookalike(text.strip_suffix('.').unwrap_or(text), &name) {
            Some(at) => Err(NameError::Lookalike { plain, at }),
            None => Ok(Self(name.into())),
        }
    }

    /// The name: lower case, no trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NameError {
    /// The byte offset of what is wrong, where one place can be named.
    pub fn at(&self) -> usize {
        match self {
            Self::Character { at, .. }
            | Self::EmptyLabel { at }
            | Self::LongLabel { at }
            | Self::Punycode { at }
            | Self::Idna { at }
            | Self::Lookalike { at, .. } => *at,
            _ => 0,
        }
    }
}

impl Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// All that a name is but whether its `xn--` labels are valid: the name, and where the first of those begins.
fn parse_grammar(bytes: &[u8]) -> Result<(String, Option<usize>), NameError> {
    if !bytes.is_ascii() {
        return Err(NameError::NotAscii);
    }
    let name = bytes.strip_suffix(b".").unwrap_or(bytes);
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    let mut start = 0;
    for (at, &byte) in name.iter().enumerate() {
        match byte {
            b'.' if at == start => return Err(NameError::EmptyLabel { at }),
            b'.' => start = at + 1,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => {}
            _ => return Err(NameError::Character { character: char::from(byte), at }),
        }
    }
    if start == name.len() {
        return Err(NameError::EmptyLabel { at: start });
    }
    if name.len() > 253 {
        return Err(NameError::Long);
    }
    if name[0] == b'-' {
        return Err(NameError::LeadingHyphen);
    }
    // Only ASCII bytes are left, each of which is a character.
    let name: String = name.iter().map(|b| char::from(b.to_ascii_lowercase())).collect();
    if is_number(name.rsplit('.').next().unwrap_or_default()) {
        return Err(NameError::Numeric);
    }
    let mut punycode = None;
    for (at, label) in labels(&name) {
        if label.len() > 63 {
            return Err(NameError::LongLabel { at });
        }
        if label.starts_with("xn--") {
            punycode = punycode.or(Some(at));
        }
    }
    Ok((name, punycode))
}

/// Whether programs that follow the WHATWG URL standard ("ends in a number") or `inet_aton` read this label as a number.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hexadecimal || label.bytes().all(|b| b.is_ascii_digit())
}

fn is_ascii_but_no_name(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.')
}

/// The byte offset of a character that does not show in the name: it disappears, it stands for a dot, or its whole label
/// comes to plain ASCII.
fn lookalike(text: &str, name: &str) -> Option<usize> {
    let beyond_ascii = |start: usize, label: &str| label.find(|c: char| !c.is_ascii()).map(|at| start + at);
    let folded = labels(text)
        .zip(labels(name))
        .find_map(|((start, written), (_, plain))| beyond_ascii(start, written).filter(|_| !plain.starts_with("xn--")));
    let same_count = labels(text).count() == labels(name).count();
    let vanished = text.char_indices().find(|(_, c)| !c.is_ascii() && is_no_part(*c)).map(|(at, _)| at);
    vanished.or(folded).or_else(|| beyond_ascii(0, text).filter(|_| !same_count))
}

thread_local! {
    /// The characters that [`is_no_part`] was asked about last, each in the place that its number gives, with the answer. A
    /// long list in one script asks about the same few again and again.
    static ASKED: [Cell<Option<(char, bool)>>; 256] = const { [const { Cell::new(None) }; 256] };
}

/// Whether a character beyond ASCII disappears from a name, or stands for a dot.
fn is_no_part(c: char) -> bool {
    ASKED.with(|asked| {
        let place = &asked[c as usize % asked.len()];
        if let Some((_, answer)) = place.get().filter(|(known, _)| *known == c) {
            return answer;
        }
        let between = to_a_labels(&format!("a{c}a"));
        let answer = between.is_some_and(|plain| plain == "aa" || plain.contains('.'));
        place.set(Some((c, answer)));
        answer
    })
}

/// The labels with their byte offsets.
fn labels(name: &str) -> impl Iterator<Item = (usize, &str)> {
    name.split('.').scan(0, |next, label| {
        let at = *next;
        *next += label.len() + 1;
        Some((at, label))
    })
}

/// The lower-case A-labels by UTS 46, non-transitional; `None` if it is not valid. Length and grammar are ours to check.
fn to_a_labels(text: &str) -> Option<String> {
    let ascii = Uts46::new().to_ascii(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore).ok()?;
    Some(ascii.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_wire_are_folded_and_stripped_of_one_dot() {
        for (text, name) in [
            ("github.com", "github.com"),
            ("GitHub.COM.", "github.com"),
            ("localhost", "localhost"),
            ("_443._tcp.a_b.example", "_443._tcp.a_b.example"),
            ("r3---sn-x-.example", "r3---sn-x-.example"),
            ("1.2.3.4.example", "1.2.3.4.example"),
            ("0x0.st", "0x0.st"),
            ("127.0.0.1e0", "127.0.0.1e0"),
            ("0xg", "0xg"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            ("xn--d1abbgf6aiiy.xn--p1ai", "xn--d1abbgf6aiiy.xn--p1ai"),
        ] {
            assert_eq!(HostName::parse_wire(text.as_bytes()).unwrap().as_str(), name, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_says_why_and_where() {
        let character = |character, at| NameError::Character { character, at };
        for (text, error) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("..", NameError::EmptyLabel { at: 0 }),
            (".a", NameError::EmptyLabel { at: 0 }),
            ("a..b", NameError::EmptyLabel { at: 2 }),
            ("a..", NameError::EmptyLabel { at: 2 }),
            ("a b", character(' ', 1)),
            ("a\0b", character('\0', 1)),
            ("a:b", character(':', 1)),
            ("*.a", character('*', 0)),
            ("a%2eb", character('%', 1)),
            ("\u{212a}ernel.org", NameError::NotAscii),
            ("-a.example", NameError::LeadingHyphen),
            ("127.1", NameError::Numeric),
            ("a.09", NameError::Numeric),
            ("a.0x", NameError::Numeric),
            ("a.0XfF.", NameError::Numeric),
            ("a.xn--", NameError::Punycode { at: 2 }),
            ("xn--example-.example", NameError::Punycode { at: 0 }),
            ("xn--a.example", NameError::Punycode { at: 0 }),
        ] {
            assert_eq!(HostName::parse_wire(text.as_bytes()), Err(error), "{text}");
        }
    }

    #[test]
    fn labels_have_63_bytes_and_names_253() {
        let label = |length: usize| "a".repeat(length);
        let name = |last: usize| format!("{0}.{0}.{0}.{1}", label(63), label(last));
        assert!(HostName::parse_wire(name(61).as_bytes()).is_ok());
        assert!(HostName::parse_wire(format!("{}.", name(61)).as_bytes()).is_ok());
        assert_eq!(HostName::parse_wire(name(62).as_bytes()), Err(NameError::Long));
        assert_eq!(HostName::parse_wire(label(64).as_bytes()), Err(NameError::LongLabel { at: 0 }));
        assert_eq!(HostName::parse_wire(format!("a.{}", label(64)).as_bytes()), Err(NameError::LongLabel { at: 2 }));
    }

    #[test]
    fn a_dot_inside_a_dns_label_does_not_join_another_name() {
        let labels = |labels: &[&str]| HostName::parse_labels(labels.iter().map(|label| label.as_bytes()));
        assert_eq!(labels(&["a", "GitHub", "com"]).unwrap().as_str(), "a.github.com");
        assert_eq!(labels(&["evil.example", "github", "com"]), Err(NameError::Character { character: '.', at: 4 }));
        assert_eq!(labels(&["github", "com."]), Err(NameError::Character { character: '.', at: 10 }));
        assert_eq!(labels(&["github", "", "com"]), Err(NameError::EmptyLabel { at: 7 }));
        assert_eq!(labels(&[]), Err(NameError::Empty));
    }
}
