//! Which file something is, whatever it is called.

use nix::sys::stat::{FileStat, SFlag};

/// A file, as its file system numbers it. The number is its own for as long as somebody has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl Inode {
    pub(crate) fn of(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// What kind of file it is: one of `S_IFREG`, `S_IFDIR`, `S_IFLNK` and their like.
pub(crate) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}
