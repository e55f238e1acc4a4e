//! Where events go, as it is typed.

use std::ffi::OsString;
use std::path::PathBuf;

use netbox_config::service::EventsTarget;

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventDestination {
    File(PathBuf),
    Descriptor(i32),
    /// From the configuration of a service alone.
    UnixDatagram(PathBuf),
}

impl From<EventsTarget> for EventDestination {
    fn from(target: EventsTarget) -> Self {
        match target {
            EventsTarget::File(path) => Self::File(path),
            EventsTarget::UnixDatagram(path) => Self::UnixDatagram(path),
        }
    }
}

impl EventDestination {
    /// # Errors
    /// What was wrong with `fd:N`.
    pub fn parse(text: &OsString) -> Result<Self, String> {
        match text.to_str().and_then(|text| text.strip_prefix("fd:")) {
            None if text == "-" => Err("`--events -`: to write to stdout, name its descriptor: `fd:1`".into()),
            None if text.is_empty() => Err("`--events` needs a file or `fd:N`".into()),
            None => Ok(Self::File(PathBuf::from(text))),
            Some(digits) => match descriptor_number(digits) {
                Some(number) => Ok(Self::Descriptor(number)),
                None => Err(format!("`--events fd:{digits}`: write the number of an open descriptor, as in `fd:3`")),
            },
        }
    }
}

/// One spelling only: not `+3`, `03` or `-1`.
pub(super) fn descriptor_number(digits: &str) -> Option<i32> {
    digits.parse().ok().filter(|number: &i32| *number >= 0 && number.to_string() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_destination_is_a_file_or_a_plain_descriptor_number() {
        let parse = |text: &str| EventDestination::parse(&text.into());
        assert_eq!(parse("fd:3"), Ok(EventDestination::Descriptor(3)));
        assert_eq!(parse("out.jsonl"), Ok(EventDestination::File("out.jsonl".into())));
        for bad in ["fd:", "fd:+3", "fd:03", "fd:x", "fd:-1", "fd:99999999999", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
