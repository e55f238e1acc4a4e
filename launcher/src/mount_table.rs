//! What is mounted where, from the text of `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::io;
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
    /// Whether nothing can be written through it.
    pub(crate) is_read_only: bool,
}

/// Kinds of file systems that lead to another machine, or to the one that this is a guest of.
const OF_OTHER_MACHINES: [&str; 15] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "prl_fs", "smb3",
    "vboxsf", "virtiofs",
];
/// What looks like one that a program serves, and stays on this machine all the same.
const PLUMBING: [&str; 5] =
    ["fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.snapfuse", "fuse.squashfuse", "fuse.squashfuse_ll"];

/// A place whose files somebody serves: another machine, or a program (FUSE). It acts on what is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedMount {
    /// Where it is.
    pub point: PathBuf,
    /// The file system's type, such as `nfs4` or `fuse.sshfs`.
    pub kind: String,
}

/// The places that this process sees whose files others serve, and that are not read-only.
///
/// # Errors
/// `/proc` cannot be read.
pub fn served_mounts() -> io::Result<Vec<ServedMount>> {
    Ok(served(parse(&std::fs::read_to_string("/proc/self/mountinfo")?)))
}

fn served(table: Vec<Mount>) -> Vec<ServedMount> {
    let is_served = |mount: &Mount| {
        let kind = mount.kind.as_str();
        let by_program = kind == "fuse" || (kind.starts_with("fuse.") && !PLUMBING.contains(&kind));
        !mount.is_read_only && (by_program || OF_OTHER_MACHINES.contains(&kind))
    };
    let mounts = table.into_iter().filter(is_served);
    mounts.map(|mount| ServedMount { point: mount.point, kind: mount.kind }).collect()
}

/// The mounts, in their order. A line that is none is left out.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut words = mount.split(' ').skip(2);
    let (device, root, point, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let mut words = file_system.split(' ');
    let (kind, options_of_all) = (words.next()?, words.nth(1).unwrap_or_default());
    Some(Mount {
        device: device.to_owned(),
        root: unescape(root).into(),
        point: unescape(point).into(),
        kind: kind.to_owned(),
        is_read_only: [options, options_of_all].iter().any(|options| options.split(',').any(|option| option == "ro")),
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
        let expected = Mount {
            device: "98:0".into(),
            root: "/mnt1".into(),
            point: "/my root".into(),
            kind: "ext3".into(),
            is_read_only: false,
        };
        assert_eq!(parse(text), [expected]);
        assert_eq!(unescape("a\\134b\\09"), "a\\b\\09");
    }

    #[test]
    fn what_others_serve_is_named_unless_it_is_read_only() {
        let text = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    2 1 0:5 / /home/a/remote rw - fuse.sshfs a@host:/ rw\n\
                    3 1 0:6 / /share rw - nfs4 server:/share rw\n\
                    4 1 0:7 / /once ro - nfs4 server:/once rw\n\
                    5 1 0:8 / /cd rw - 9p cd ro\n\
                    6 1 0:9 / /merged rw - fuse.fuse-overlayfs x rw\n\
                    7 1 0:10 / /windows rw - fuseblk /dev/sda3 rw\n";
        let found = served(parse(text)).into_iter().map(|mount| (mount.point.display().to_string(), mount.kind));
        let expected = [("/home/a/remote", "fuse.sshfs"), ("/share", "nfs4")];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(point, kind)| (point.to_owned(), kind.to_owned())));
    }
}
