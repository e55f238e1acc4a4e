//! Tokens at rest: as hashes.

use std::fmt;

use sha2::{Digest, Sha256};

/// The SHA-256 of a token. A token is 128 random bits, so that nobody can try all of them: a slow hash with a salt, as
/// passwords need it, would add nothing but the work of each request.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// What stands before the digits.
    pub const PREFIX: &'static str = "sha256:";

    /// The hash of a token as its bearer sends it.
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Parses `sha256:` and 64 hexadecimal digits in lower case. The error quotes nothing: what stands there may be a token.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(Self::PREFIX)?.as_bytes();
        let mut bytes = [0; 32];
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// In constant time: how much of a hash is right is not to be measured.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |differing, (one, other)| differing | (one ^ other));
        // Hides from the optimiser that the rest of the loop could be left out.
        std::hint::black_box(differing) == 0
    }
}

impl Eq for TokenHash {}

impl fmt::Display for TokenHash {
    /// As it stands in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_what_sha256sum_prints() {
        let hash = TokenHash::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(TokenHash::parse(text), Some(hash));
        assert_ne!(TokenHash::of(b"abd"), hash);
        for wrong in [
            "",
            "sha256:",
            &text[..text.len() - 1],
            &text[..text.len() - 2],
            &text["sha256:".len()..],
            &text.to_uppercase(),
            &format!("{text}0"),
            &format!("{text} "),
            &text.replace("sha256", "sha512"),
            &text.replace('a', "g"),
        ] {
            assert_eq!(TokenHash::parse(wrong), None, "{wrong}");
        }
    }
}
