//! Makes an answer out of what its query said and what there is to say.

use super::wire::{CLASS_IN, Echo, Rcode, kind};

/// What is answered.
#[derive(Debug)]
pub struct Reply {
    pub rcode: Rcode,
    /// Records of the question's name.
    pub answers: Vec<Answer>,
    /// Why, for those who understand it.
    pub extra: Option<Extra>,
}

/// One record of the answer section; its owner is the question's name.
#[derive(Debug)]
pub struct Answer {
    pub kind: u16,
    /// In seconds.
    pub ttl: u32,
    /// At most 65,535 bytes, without compression pointers.
    pub data: Vec<u8>,
}

/// An Extended DNS Error (RFC 8914): a code, and a text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    code: u16,
    text: &'static str,
}

impl Extra {
    /// "Blocked" (15): by the operator's policy.
    pub const NOT_LISTED: Self = Self { code: 15, text: "not listed, refused by netbox" };
    /// "Other" (0).
    pub const BUSY: Self = Self { code: 0, text: "too many lookups at once" };
    /// "Other" (0).
    pub const TOO_MANY_NAMES: Self = Self { code: 0, text: "too many different names below a wildcard" };
    /// "Other" (0).
    pub const NO_ADDRESS_LEFT: Self = Self { code: 0, text: "netbox has no address left for this name" };
    /// "Network Error" (23).
    pub const AWAY: Self = Self { code: 23, text: "the service that carries this sandbox is away" };
    /// "Network Error" (23).
    pub const LOOKUP_FAILED: Self = Self { code: 23, text: "the host could not look this name up" };
}

impl Reply {
    pub fn new(rcode: Rcode) -> Self {
        Self { rcode, answers: Vec::new(), extra: None }
    }

    pub fn with_answers(answers: Vec<Answer>) -> Self {
        Self { rcode: Rcode::NoError, answers, extra: None }
    }

    pub fn because(self, extra: Extra) -> Self {
        Self { extra: Some(extra), ..self }
    }

    /// The message, of at most `limit` bytes. Answers that do not fit are left out, all of them, and the TC flag says
    /// so (RFC 2181 §9). What is left is never longer than 512 bytes: a question has at most 259, and the texts of
    /// [`Extra`] are ours.
    pub fn encode(&self, echo: &Echo, limit: usize) -> Vec<u8> {
        let whole = self.encode_with(echo, &self.answers, false);
        if whole.len() <= limit { whole } else { self.encode_with(echo, &[], true) }
    }

    fn encode_with(&self, echo: &Echo, answers: &[Answer], truncated: bool) -> Vec<u8> {
        // A count that does not fit cannot be: the answers are bounded where they are made. It would be cut like a long
        // answer.
        let Ok(count) = u16::try_from(answers.len()) else { return self.encode_with(echo, &[], true) };
        let code = self.rcode as u16;
        // Repeated: opcode, RD, CD. Ours: QR and RA.
        let flags = echo.flags & 0x7910 | 0x8080 | u16::from(truncated) << 9 | code & 0xf;
        let questions = u16::from(!echo.question.is_empty());
        let additionals = u16::from(echo.edns.is_some());
        let mut message = Vec::with_capacity(512);
        for field in [echo.id, flags, questions, count, 0, additionals] {
            put(&mut message, field);
        }
        message.extend_from_slice(&echo.question);
        for answer in answers {
            // The name of the question, at offset 12.
            put(&mut message, 0xc00c);
            put(&mut message, answer.kind);
            put(&mut message, CLASS_IN);
            message.extend_from_slice(&answer.ttl.to_be_bytes());
            put_with_length(&mut message, &answer.data);
        }
        if let Some(edns) = echo.edns {
            self.put_opt(&mut message, edns.dnssec_ok, code);
        }
        message
    }

    /// The OPT record (RFC 6891 §6.1.2): root, type, our size, upper bits of the code, version 0, the DO flag as it
    /// came, options.
    fn put_opt(&self, message: &mut Vec<u8>, dnssec_ok: bool, code: u16) {
        message.push(0);
        put(message, kind::OPT);
        put(message, 1232);
        put(message, code >> 4 << 8);
        put(message, u16::from(dnssec_ok) << 15);
        let mut options = Vec::new();
        if let Some(extra) = self.extra {
            put(&mut options, 15);
            let mut error = extra.code.to_be_bytes().to_vec();
            error.extend_from_slice(extra.text.as_bytes());
            put_with_length(&mut options, &error);
        }
        put_with_length(message, &options);
    }
}

fn put(message: &mut Vec<u8>, value: u16) {
    message.extend_from_slice(&value.to_be_bytes());
}

/// A length in two bytes and as much of the data as that can say.
fn put_with_length(message: &mut Vec<u8>, data: &[u8]) {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    put(message, length);
    message.extend_from_slice(&data[..length.into()]);
}
