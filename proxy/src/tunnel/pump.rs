//! Moves the bytes of one direction.
//!
//! # Theory of operation
//!
//! It copies at first, through a block that all of a thread share, and holds only what the other side does not take; a quiet
//! one holds neither that nor a pipe. Once it is a stream ([`BUSY`] bytes without a pause) it gets a pipe, and bytes move by
//! splice(2): from the socket's queue to the pipe to the other socket's queue, pages and not copies. Pipes are a shared good:
//! Linux shrinks those of an unprivileged user after the first 1,024 (`/proc/sys/fs/pipe-user-pages-soft`, in pages), so at
//! most [`PIPES`] are in use, [`OF_A_TENANT`] by one tenant of a service, a pause gives one back, and whoever gets none goes
//! on copying.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::meter::{Meter, UsedUp};
use crate::quota::Spliced;
use crate::socket;
use crate::stream::Stream;

/// How much is read at once, at first and once as much has come as that. What cannot be written at once is held.
const SMALL: usize = 8 * 1024;
const LARGE: usize = 64 * 1024;

/// How many directions of this process may hold so much; whoever is not among them goes on with little. Whoever stops reading
/// must not make netbox hold much for it.
const HOLD_LARGE: usize = 256;

static LARGE_IN_USE: Semaphore = Semaphore::const_new(HOLD_LARGE);

/// After how many bytes without a pause a direction counts as a stream.
const BUSY: u64 = 512 * 1024;

/// After how many bytes it is others' turn, whose connections the same thread carries, and as how many a step counts at least.
const TURN: usize = 8 * 1024 * 1024;
const STEP: usize = 64 * 1024;

/// What counts as a pause, after which a direction gives back what it holds.
const PAUSE: Duration = Duration::from_millis(500);

/// How many pipes this process uses for splicing at most, and the size that each is given, which is the most that an
/// unprivileged user can have (`/proc/sys/fs/pipe-max-size`): a quarter of what a user has before the kernel shrinks
/// pipes (16,384 pages). Fewer and larger ones move more: each wake-up then moves what has come meanwhile.
const PIPES: usize = 16;
const PIPE_SIZE: i32 = 1024 * 1024;

/// How many of them one tenant of a service has at most: a stream that its reader holds up keeps its own for as long. Whoever
/// gets none is not slower for that, as turns are counted in bytes, but costs more of the processor.
const OF_A_TENANT: usize = PIPES / 2;

/// A smaller pipe is slower than copying.
const LEAST_PIPE_SIZE: i32 = 64 * 1024;

static PIPES_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// The source has no more.
    End,
    /// As much was moved as there was to move.
    Limit,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PumpError {
    /// The source.
    Read,
    /// The destination.
    Write,
    /// Neither: no more may be moved.
    Limit,
}

impl From<UsedUp> for PumpError {
    fn from(_: UsedUp) -> Self {
        Self::Limit
    }
}

/// Moves at most `limit` bytes from one socket to another, and never reads more than that. `moved` grows by what has
/// been written.
pub(crate) async fn pump(from: &Stream, to: &Stream, limit: u64, moved: &Meter) -> Result<Pumped, PumpError> {
    let mut pump = Pump { from, to, left: limit, moved, turn: 0 };
    loop {
        let pages = match pump.copy().await? {
            Copied::Ended(ended) => return Ok(ended),
            Copied::Busy(pages) => pages,
        };
        if let Some(ended) = pump.splice(&pages).await? {
            return Ok(ended);
        }
        // A pause, in which there is neither buffer nor pipe.
    }
}

struct Pump<'a> {
    from: &'a Stream,
    to: &'a Stream,
    left: u64,
    moved: &'a Meter,
    /// How much of its turn it has used.
    turn: usize,
}

/// Why nothing more is copied.
enum Copied<'a> {
    Ended(Pumped),
    Busy(Pages<'a>),
}

/// Two sockets whose bytes are those that are carried, and a pipe for them.
struct Pages<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    pipe: Pipe,
}

thread_local! {
    /// Where every pump of a thread copies through, one after the other: nothing stays in it.
    static BLOCK: RefCell<Box<[u8]>> = RefCell::new(vec![0; LARGE].into());
}

impl<'a> Pump<'a> {
    /// Copies until it is a stream and there is a pipe to be had.
    async fn copy(&mut self) -> Result<Copied<'a>, PumpError> {
        // Bytes without a pause, and since when there are none.
        let (mut run, mut silent_since) = (0, None);
        loop {
            if self.left == 0 {
                return Ok(Copied::Ended(Pumped::Limit));
            }
            // Where the pump rests.
            self.from.readable().await.map_err(|_| PumpError::Read)?;
            let large = if run >= LARGE as u64 { LARGE_IN_USE.try_acquire().ok() } else { None };
            let Some((read, held)) = self.copy_once(if large.is_some() { LARGE } else { SMALL })? else {
                silent_since.get_or_insert_with(Instant::now);
                continue;
            };
            if read == 0 {
                return Ok(Copied::Ended(Pumped::End));
            }
            if silent_since.take().is_some_and(|since| since.elapsed() > PAUSE) {
                run = 0;
            }
            socket::write_all(self.to, &held).await.map_err(|_| PumpError::Write)?;
            drop(held);
            self.count(read).await?;
            run += read as u64;
            if run >= BUSY
                && self.left > BUSY
                && let (Some(from), Some(to)) = (self.from.plain(), self.to.plain())
                && let Some(pipe) = Pipe::acquire(self.moved)
            {
                return Ok(Copied::Busy(Pages { from, to, pipe }));
            }
        }
    }

    /// Reads `most` bytes at most, and writes what is taken at once. Gives how many were read, 0 at the end, and what is still
    /// to be written. `None`: there is nothing at the moment.
    fn copy_once(&self, most: usize) -> Result<Option<(usize, Vec<u8>)>, PumpError> {
        BLOCK.with_borrow_mut(|block| {
            let room = &mut block[..self.portion(most)];
            let read = match self.from.try_read_buf(&mut &mut *room) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(PumpError::Read),
            };
            let bytes = &room[..read];
            let written = match bytes {
                [] => 0,
                _ => match self.to.try_write(bytes) {
                    Ok(written) => written,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(_) => return Err(PumpError::Write),
                },
            };
            Ok(Some((read, bytes[written..].to_vec())))
        })
    }

    /// Moves pages through a pipe, which is empty whenever the source is waited for.
    /// `None`: there is a pause.
    async fn splice(&mut self, pages: &Pages<'_>) -> Result<Option<Pumped>, PumpError> {
        let Pages { from, pipe, .. } = pages;
        loop {
            if self.left == 0 {
                return Ok(Some(Pumped::Limit));
            }
            let length = self.portion(pipe.size);
            let filled = from.try_io(Interest::READABLE, || splice_some(from, &pipe.writer, length));
            match filled {
                Ok(0) => return Ok(Some(Pumped::End)),
                Ok(filled) => {
                    self.drain(pages, filled).await?;
                    if !self.is_readable_before_a_pause().await? {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.is_readable_before_a_pause().await? {
                        return Ok(None);
                    }
                }
                Err(_) => return Err(PumpError::Read),
            }
        }
    }

    async fn drain(&mut self, Pages { to, pipe, .. }: &Pages<'_>, mut filled: usize) -> Result<(), PumpError> {
        while filled > 0 {
            to.writable().await.map_err(|_| PumpError::Write)?;
            match to.try_io(Interest::WRITABLE, || splice_some(&pipe.reader, to, filled)) {
                Ok(0) => return Err(PumpError::Write),
                Ok(written) => {
                    filled -= written;
                    self.count(written).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(PumpError::Write),
            }
        }
        Ok(())
    }

    /// Waits for the source, but not longer than a [`PAUSE`].
    async fn is_readable_before_a_pause(&self) -> Result<bool, PumpError> {
        match timeout(PAUSE, self.from.readable()).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(_)) => Err(PumpError::Read),
            Err(_) => Ok(false),
        }
    }

    /// How much is moved at once, of this at most.
    fn portion(&self, most: usize) -> usize {
        self.moved.portion(usize::try_from(self.left).unwrap_or(usize::MAX).min(most))
    }

    async fn count(&mut self, bytes: usize) -> Result<(), PumpError> {
        self.left -= bytes as u64;
        self.moved.count(bytes).await?;
        // A socket that is always ready is never waited for.
        self.turn += bytes.max(STEP);
        if self.turn >= TURN {
            self.turn = 0;
            yield_now().await;
        }
        Ok(())
    }
}

/// One call of splice(2) that never waits.
fn splice_some(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
    Ok(splice(from, None, to, None, length, flags)?)
}

/// A pipe for splicing, counted in [`PIPES_IN_USE`].
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    size: usize,
    _place: Spliced,
}

impl Pipe {
    /// A pipe that is worth it, for bytes that are counted there, or none.
    fn acquire(moved: &Meter) -> Option<Self> {
        let place = moved.splice(OF_A_TENANT)?;
        let taken = PIPES_IN_USE.fetch_add(1, Ordering::Relaxed);
        let pipe = if taken < PIPES { Self::open(place) } else { None };
        if pipe.is_none() {
            PIPES_IN_USE.fetch_sub(1, Ordering::Relaxed);
        }
        pipe
    }

    fn open(place: Spliced) -> Option<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
        // Over the user's limit this fails, and the pipe keeps the size that it has.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
        let size = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).ok().filter(|size| *size >= LEAST_PIPE_SIZE)?;
        Some(Self { reader, writer, size: usize::try_from(size).ok()?, _place: place })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES_IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
