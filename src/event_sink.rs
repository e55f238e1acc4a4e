//! The file that events are written to, opened once, before the command could put something else in its place.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use netbox_proxy::events::{Collecting, Destination};

use crate::cli::EventDestination;
use crate::place::Place;
use crate::policy::shown;
use crate::{say, variables};

/// An open sink.
pub struct EventSink {
    pub destination: Destination,
    /// Where it lies, if it has a place: the sandbox sees a mask there.
    pub place: Option<PathBuf>,
}

/// What the flag, or else the environment, says.
///
/// # Errors
/// What is wrong with it.
pub fn destination(flag: Option<&OsString>) -> Result<Option<EventDestination>, String> {
    let text = flag.cloned().or_else(|| env::var_os(variables::EVENTS).filter(|value| !value.is_empty()));
    text.as_ref().map(EventDestination::parse).transpose()
}

impl EventSink {
    /// # Errors
    /// One line that names the file or the descriptor, and says what is wrong with it.
    pub fn open(destination: &EventDestination) -> Result<Self, String> {
        match destination {
            EventDestination::File(path) => {
                open_file(path).map_err(|why| format!("`--events {}`: {why}", path.display()))
            }
            EventDestination::Descriptor(number) => {
                let file = netbox_launcher::inherited(*number)
                    .and_then(writable)
                    .map_err(|error| format!("`--events fd:{number}`: {error}"))?;
                Ok(EventSink { destination: file.into(), place: None })
            }
            EventDestination::UnixDatagram(path) => {
                let place = format!("unix-datagram:{}", path.display());
                let refused = format!("events to `{place}`");
                let collector = Destination::collector(path.clone(), move |news| tell(&place, &news));
                let destination = collector.map_err(|error| format!("{refused}: {error}"))?;
                Ok(EventSink { destination, place: None })
            }
        }
    }

    /// The number to keep open.
    pub fn descriptor(&self) -> i32 {
        self.destination.as_fd().as_raw_fd()
    }
}

/// Says what becomes of whoever takes the events at a socket.
fn tell(place: &str, news: &Collecting) {
    match news {
        Collecting::Lost(error) => say::error(
            format_args!("nobody takes events at `{place}`: {error}"),
            Some("they are lost, and counted as dropped, until somebody listens there again"),
        ),
        Collecting::Back => say::note(format_args!("somebody takes events at `{place}` again")),
    }
}

/// What to say where the file is no longer at its place. Somebody may have put it elsewhere to begin a new one.
pub fn replacement(place: &Place) -> String {
    format!(
        "{} is no longer the file that the events were written to; where a program might replace it, use `--events fd:N`",
        shown(&place.path)
    )
}

fn open_file(path: &Path) -> Result<EventSink, String> {
    // O_NONBLOCK: a FIFO without a reader is refused rather than waited on.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => "a symbolic link, and netbox does not follow one here".to_owned(),
        _ => error.to_string(),
    })?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        let hint = if metadata.file_type().is_fifo() || metadata.file_type().is_char_device() {
            "; open it in the shell and name the descriptor: `--events fd:3 3>FILE`"
        } else {
            ""
        };
        return Err(format!("not a regular file{hint}"));
    }
    if metadata.uid() != netbox_launcher::effective_uid() {
        return Err("the file belongs to another user".into());
    }
    if metadata.nlink() != 1 {
        // Under its other name the command could reach it.
        return Err("the file has another name (a hard link)".into());
    }
    let place = path.canonicalize().map_err(|error| error.to_string())?;
    Ok(EventSink { destination: file.into(), place: Some(place) })
}

fn writable(fd: OwnedFd) -> io::Result<File> {
    // A write of nothing fails with EBADF on a descriptor that is open for reading only.
    let mut file = File::from(fd);
    io::Write::write(&mut file, b"")?;
    Ok(file)
}
