//! Where lines are written: a file or a pipe, or the datagram socket of a collector, which may go and come back.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::socket::{SockType, getsockopt, sockopt};

/// How often a collector that is gone is looked for, at most. Whoever writes does not wait for it: lines that come meanwhile
/// are lost.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines are written.
pub struct Destination {
    file: File,
    /// It takes a line by each call.
    pub(super) datagrams: bool,
    collector: Option<Collector>,
}

/// Somebody who listens at a path.
struct Collector {
    path: PathBuf,
    told: Box<dyn Fn(Collecting) + Send>,
    /// It has been told that nobody is there.
    is_lost: bool,
    looked: Option<Instant>,
}

/// What becomes of a collector.
#[derive(Debug)]
pub enum Collecting {
    /// It takes nothing more, and lines are lost.
    Lost(io::Error),
    /// It is there again, or another one is.
    Back,
}

impl From<File> for Destination {
    fn from(file: File) -> Self {
        let datagrams = getsockopt(&file, sockopt::SockType).is_ok_and(|kind| kind == SockType::Datagram);
        Self { file, datagrams, collector: None }
    }
}

impl Destination {
    /// The collector that listens at a path. Where it is gone, it is looked for again; `told` learns of both, on the thread
    /// that writes.
    ///
    /// # Errors
    /// Those of connect(2): nobody is there.
    pub fn collector(path: PathBuf, told: impl Fn(Collecting) + Send + 'static) -> io::Result<Self> {
        let file = connect(&path)?;
        let collector = Collector { path, told: Box::new(told), is_lost: false, looked: None };
        Ok(Self { file, datagrams: true, collector: Some(collector) })
    }

    /// Writes as one call does.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        match (&mut self.collector, written) {
            (Some(collector), Err(error)) if is_gone(&error) => {
                self.file = collector.look(error)?;
                let written = self.file.write(bytes)?;
                collector.is_back();
                Ok(written)
            }
            (_, written) => written,
        }
    }
}

impl AsFd for Destination {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Collector {
    /// Whoever is there now.
    fn look(&mut self, gone: io::Error) -> io::Result<File> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Err(self.lose(gone));
        }
        self.looked = Some(Instant::now());
        connect(&self.path).map_err(|error| self.lose(error))
    }

    fn lose(&mut self, error: io::Error) -> io::Error {
        if !std::mem::replace(&mut self.is_lost, true) {
            let kind = error.kind();
            (self.told)(Collecting::Lost(error));
            return kind.into();
        }
        error
    }

    fn is_back(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            (self.told)(Collecting::Back);
        }
    }
}

fn connect(path: &PathBuf) -> io::Result<File> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(File::from(OwnedFd::from(socket)))
}

/// Whether nobody is at the other end: its socket was closed (ECONNREFUSED, ECONNRESET), and then this one is not connected
/// (ENOTCONN; unix(7)).
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | NotConnected | NotFound)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_collector_that_comes_back_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("collector");
        assert!(Destination::collector(path.clone(), |_| ()).is_err(), "nobody is there");
        let first = UnixDatagram::bind(&path).unwrap();
        let (tell, told) = mpsc::channel();
        let mut destination = Destination::collector(path.clone(), move |news| tell.send(news).unwrap()).unwrap();
        let read = |socket: &UnixDatagram| {
            let mut bytes = [0; 64];
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert_eq!(destination.write(b"one\n").unwrap(), 4);
        assert_eq!(read(&first), "one\n");
        // Another one takes its place, and nothing is lost.
        drop(first);
        std::fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        assert_eq!(destination.write(b"two\n").unwrap(), 4);
        assert_eq!(read(&second), "two\n");
        assert!(told.try_recv().is_err(), "nobody has missed it");
        // It is gone, and is not looked for all the time.
        drop(second);
        assert!(destination.write(b"three\n").is_err() && destination.write(b"four\n").is_err());
        assert!(matches!(told.try_recv(), Ok(Collecting::Lost(_))) && told.try_recv().is_err(), "told once");
        std::fs::remove_file(&path).unwrap();
        let third = UnixDatagram::bind(&path).unwrap();
        if let Some(collector) = &mut destination.collector {
            assert!(collector.looked.is_some_and(|looked| looked.elapsed() < LOOK));
            collector.looked = None;
        }
        assert_eq!(destination.write(b"five\n").unwrap(), 5);
        assert_eq!(read(&third), "five\n");
        assert!(matches!(told.try_recv(), Ok(Collecting::Back)));
    }
}
