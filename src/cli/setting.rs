//! `--env`: a variable of the command's environment, as it is typed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use netbox_config::quote;

use crate::variables;

/// A variable for the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: OsString,
    /// `None`: as the caller has it, if it does.
    pub value: Option<OsString>,
}

impl Setting {
    /// Parses `NAME=VALUE`, or `NAME`.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn parse(text: OsString) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
            None => (bytes, None),
        };
        if name.is_empty() {
            return Err("a variable needs a name; write `NAME=VALUE`, or `NAME` for the value that you have".into());
        }
        let name = OsStr::from_bytes(name);
        if variables::is_own(name) {
            return Err(format!("{} is netbox's own: it tells the command where it is", quote(name.as_bytes())));
        }
        Ok(Self { name: name.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_name_with_or_without_a_value() {
        for (text, name, value) in
            [("A=1", "A", Some("1")), ("A=", "A", Some("")), ("A=b=c", "A", Some("b=c")), ("A", "A", None)]
        {
            let expected = Setting { name: name.into(), value: value.map(Into::into) };
            assert_eq!(Setting::parse(text.into()), Ok(expected), "{text}");
        }
        for bad in ["", "=1", "NETBOX=0", "NETBOX_ALLOW=*", "NETBOX_SESSION"] {
            assert!(Setting::parse(bad.into()).is_err(), "{bad}");
        }
    }
}
