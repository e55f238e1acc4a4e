//! A machine that differs from the test host: other mounts, another network namespace, other settings. All of it is done by
//! the child itself, in namespaces of its own; nobody else sees it.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;

use crate::child::{check, write};

/// What the child does, in this order, with the power that it has in its user namespace until it executes the program.
#[derive(Debug, Default)]
pub struct Surroundings(Vec<Deed>);

#[derive(Debug)]
enum Deed {
    Unshare(libc::c_int),
    Mount {
        source: CString,
        target: CString,
        kind: Option<&'static CStr>,
        flags: libc::c_ulong,
        options: &'static CStr,
    },
    Write(&'static CStr, &'static [u8]),
}

impl Surroundings {
    /// A file system of this kind at this place.
    pub fn mounted(self, kind: &'static CStr, target: &str, options: &'static CStr) -> Self {
        let (source, target) = (c"netbox-test".to_owned(), path(Path::new(target)));
        self.and_mount(Deed::Mount { source, target, kind: Some(kind), flags: 0, options })
    }

    /// This file or folder at this place.
    pub fn bound(self, source: &Path, target: &str) -> Self {
        let (source, target) = (path(source), path(Path::new(target)));
        self.and_mount(Deed::Mount { source, target, kind: None, flags: libc::MS_BIND, options: c"" })
    }

    /// What is mounted at this place is read-only.
    pub fn read_only(self, target: &str) -> Self {
        let (source, target) = (c"none".to_owned(), path(Path::new(target)));
        let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
        self.and_mount(Deed::Mount { source, target, kind: None, flags, options: c"" })
    }

    /// A network namespace of its own, with nothing in it that is up, where each of these settings is made.
    pub fn alone(mut self, settings: &[(&'static CStr, &'static [u8])]) -> Self {
        self.0.push(Deed::Unshare(libc::CLONE_NEWNET));
        self.0.extend(settings.iter().map(|(path, text)| Deed::Write(path, text)));
        self
    }

    fn and_mount(mut self, mount: Deed) -> Self {
        if !self.0.iter().any(|deed| matches!(deed, Deed::Mount { .. })) {
            self.0.push(Deed::Unshare(libc::CLONE_NEWNS));
        }
        self.0.push(mount);
        self
    }

    /// For the child, between fork and exec: it allocates nothing.
    pub fn enter(&self) -> io::Result<()> {
        self.0.iter().try_for_each(Deed::do_it)
    }
}

impl Deed {
    fn do_it(&self) -> io::Result<()> {
        match self {
            // SAFETY: it takes no pointers, and the child has one thread.
            Deed::Unshare(flags) => check(unsafe { libc::unshare(*flags) }),
            Deed::Mount { source, target, kind, flags, options } => {
                let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
                // SAFETY: every string ends in a zero byte and lives throughout; the kernel only reads them.
                check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, *flags, options.as_ptr().cast()) })
            }
            Deed::Write(path, text) => write(path, text),
        }
    }
}

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without zero bytes")
}
