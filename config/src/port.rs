//! One TCP port, parsed once.

use std::fmt;
use std::num::NonZeroU16;

/// A TCP port, 1 to 65535. Port 0 means "any" to the kernel and is no port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(NonZeroU16);

/// Why a text is no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// There is nothing where the port should be.
    #[error("the port is missing")]
    Empty,
    /// A character that is no ASCII digit: a sign, a space, hexadecimal, another script's digit.
    #[error("a port is digits only")]
    NotDigits,
    /// A service name such as `https`. What it means depends on a file of the machine, so it is no port.
    #[error("a service is written by its number")]
    ServiceName,
    /// `0443`: some parsers read octal.
    #[error("a port has no leading zero")]
    LeadingZero,
    /// Port 0.
    #[error("ports are 1 to 65535")]
    Zero,
    /// More than 65535.
    #[error("ports are 1 to 65535")]
    TooLarge,
}

impl Port {
    /// HTTPS, 443.
    pub const HTTPS: Self = Self::literal(443);
    /// HTTP, 80.
    pub const HTTP: Self = Self::literal(80);

    /// The port of this number; `None` for 0.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// Parses decimal digits without sign, space or leading zero, 1 to 65535.
    ///
    /// Stricter than `u16::from_str`, which takes `+443` and `0443`: two parsers that differ on a spelling are a way
    /// around a policy.
    ///
    /// # Errors
    ///
    /// [`PortError`] says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, PortError> {
        let (first, rest) = bytes.split_first().ok_or(PortError::Empty)?;
        if !bytes.iter().all(u8::is_ascii_digit) {
            let word = first.is_ascii_alphabetic() && rest.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
            return Err(if word { PortError::ServiceName } else { PortError::NotDigits });
        }
        if *first == b'0' {
            return Err(if rest.is_empty() { PortError::Zero } else { PortError::LeadingZero });
        }
        if bytes.len() > 5 {
            return Err(PortError::TooLarge);
        }
        // Five digits fit in a u32.
        let number = bytes.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        u16::try_from(number).ok().and_then(Self::new).ok_or(PortError::TooLarge)
    }

    /// The number, never 0.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    pub(crate) const fn literal(number: u16) -> Self {
        match NonZeroU16::new(number) {
            Some(port) => Self(port),
            None => panic!("evaluated at compile time, on the constants above only"),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimal_ports_are_ports() {
        for (text, expected) in [
            ("1", Ok(1)),
            ("443", Ok(443)),
            ("65535", Ok(65535)),
            ("", Err(PortError::Empty)),
            ("0", Err(PortError::Zero)),
            ("00", Err(PortError::LeadingZero)),
            ("0443", Err(PortError::LeadingZero)),
            ("65536", Err(PortError::TooLarge)),
            ("65979", Err(PortError::TooLarge)),
            ("4294967739", Err(PortError::TooLarge)),
            ("99999999999999999999999999", Err(PortError::TooLarge)),
            ("+443", Err(PortError::NotDigits)),
            ("-1", Err(PortError::NotDigits)),
            ("4 43", Err(PortError::NotDigits)),
            ("443 ", Err(PortError::NotDigits)),
            ("0x1bb", Err(PortError::NotDigits)),
            ("４４３", Err(PortError::NotDigits)),
            ("٤٤٣", Err(PortError::NotDigits)),
            ("https", Err(PortError::ServiceName)),
        ] {
            assert_eq!(Port::parse(text.as_bytes()).map(Port::get), expected, "{text}");
        }
    }

    #[test]
    fn every_port_parses_from_its_own_display() {
        for number in 1..=u16::MAX {
            let port = Port::new(number).unwrap();
            assert_eq!(Port::parse(port.to_string().as_bytes()), Ok(port));
        }
        assert_eq!(Port::new(0), None);
    }
}
