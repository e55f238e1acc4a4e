//! What is mounted where, from the text of `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Of the file system, as `major:minor`.
    pub(crate) device: String,
    /// Which directory or file of the file system is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    /// The file system's type.
    pub(crate) kind: String,
}

/// The mounts, in their order. A line that is none is left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    Some(Mount {
        device: words.next()?.to_owned(),
        root: unescape(words.next()?).into(),
        point: unescape(words.next()?).into(),
        kind: file_system.split(' ').next()?.to_owned(),
    })
}

/// mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
pub(crate) fn unescape(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let text = "36 35 98:0 /mnt1 /my\\040root rw,noatime master:1 - ext3 /dev/root rw,errors=continue\nno mount\n";
        let expected =
            Mount { device: "98:0".into(), root: "/mnt1".into(), point: "/my root".into(), kind: "ext3".into() };
        assert_eq!(parse(text), [expected]);
        assert_eq!(unescape("a\\134b\\09"), "a\\b\\09");
    }
}
