//! The thread that writes lines, and the queue before it.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::destination::Destination;

/// How many bytes may wait to be written: some 16,000 lines of the usual length.
pub const QUEUE_BYTES: usize = 4 << 20;

/// What a line in the queue takes besides its bytes.
const OVERHEAD: usize = 64;

/// How many bytes are written by one call, at most; whole lines.
const BATCH_BYTES: usize = 64 << 10;

/// How long the end of the sandbox waits for the sink.
pub const FLUSH_DEADLINE: Duration = Duration::from_secs(2);

/// Makes the last line, from the number of lines dropped before it.
pub type LastLine = Box<dyn FnOnce(u64) -> Vec<u8> + Send>;

enum Message {
    Line(Vec<u8>),
    /// What comes from now on goes there.
    Sink(Destination),
    Last(LastLine),
}

/// The queue's near end.
pub struct Writer {
    /// None once the last line has been sent, and where the thread could not be started.
    queue: Mutex<Option<Sender<Message>>>,
    /// The thread drops its end when it is done.
    done: Mutex<Receiver<()>>,
    flush_deadline: Duration,
    load: Arc<Load>,
}

/// What both ends of the queue know.
#[derive(Default)]
struct Load {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Load {
    fn drop_lines(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl Writer {
    /// Starts the thread. Where that fails, every line counts as dropped.
    pub fn new(sink: Destination, flush_deadline: Duration) -> Self {
        let (queue, lines) = mpsc::channel();
        let (finished, done) = mpsc::channel();
        let load = Arc::<Load>::default();
        let sink = Sink { destination: sink, torn: false, load: Arc::clone(&load) };
        let spawned = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            let _finished: Sender<()> = finished;
            sink.write_all_of(&lines);
        });
        Self { queue: Mutex::new(spawned.is_ok().then_some(queue)), done: Mutex::new(done), flush_deadline, load }
    }

    /// Queues a line, or drops it and counts that; never waits for the sink.
    pub fn send(&self, line: Vec<u8>) {
        let size = line.len() + OVERHEAD;
        if self.load.bytes.fetch_add(size, Ordering::Relaxed) + size > QUEUE_BYTES || !self.queue(Message::Line(line)) {
            self.load.bytes.fetch_sub(size, Ordering::Relaxed);
            self.load.drop_lines(1);
        }
    }

    /// Has what is queued from now on written there.
    pub fn redirect(&self, sink: Destination) {
        self.queue(Message::Sink(sink));
    }

    /// Queues the last line, however full the queue is, and waits until all is written or the flush deadline has
    /// passed.
    pub fn finish(&self, last: LastLine) {
        self.queue(Message::Last(last));
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An error either way: the thread is done, or it is not and is left to itself.
        let _ = self.done.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(self.flush_deadline);
    }

    pub fn dropped(&self) -> u64 {
        self.load.dropped.load(Ordering::Relaxed)
    }

    fn queue(&self, message: Message) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().is_some_and(|queue| queue.send(message).is_ok())
    }
}

/// The queue's far end.
struct Sink {
    destination: Destination,
    /// The last write ended within a line.
    torn: bool,
    load: Arc<Load>,
}

impl Sink {
    /// Writes until the last line, or until nobody can send any more.
    fn write_all_of(mut self, lines: &Receiver<Message>) {
        while let Ok(first) = lines.recv() {
            let mut batch = Batch::default();
            let (mut last, mut next) = (None, None);
            for message in std::iter::once(first).chain(std::iter::from_fn(|| lines.try_recv().ok())) {
                match message {
                    Message::Line(line) => batch.push(&line),
                    Message::Sink(sink) => next = Some(sink),
                    Message::Last(make) => last = Some(make),
                }
                if last.is_some() || next.is_some() || self.destination.datagrams || batch.bytes.len() >= BATCH_BYTES {
                    break;
                }
            }
            self.write(&batch);
            self.load.bytes.fetch_sub(batch.bytes.len() + batch.ends.len() * OVERHEAD, Ordering::Relaxed);
            if let Some(sink) = next {
                (self.destination, self.torn) = (sink, false);
            }
            if let Some(make) = last {
                let mut batch = Batch::default();
                batch.push(&make(self.load.dropped.load(Ordering::Relaxed)));
                self.write(&batch);
                return;
            }
        }
    }

    /// Writes a batch as far as the sink takes it, and counts the lines that it did not take whole.
    fn write(&mut self, batch: &Batch) {
        if self.torn && self.write_bytes(b"\n") == 1 {
            self.torn = false;
        }
        let written = if self.torn { 0 } else { self.write_bytes(&batch.bytes) };
        let whole = batch.whole_lines(written);
        self.torn |= batch.is_torn_at(written);
        self.load.drop_lines(batch.ends.len() - whole);
    }

    /// How many of the bytes were written before an error, if there was one.
    fn write_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.destination.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A descriptor that was handed to us may be non-blocking; this thread may wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(self.destination.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
                }
                Err(_) => break,
            }
        }
        written
    }
}

/// Lines to be written by one call, and where each ends.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    /// How many lines the first `written` bytes hold whole.
    fn whole_lines(&self, written: usize) -> usize {
        self.ends.partition_point(|&end| end <= written)
    }

    /// Whether the first `written` bytes end within a line.
    fn is_torn_at(&self, written: usize) -> bool {
        written != 0 && !self.ends.contains(&written)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn lines_go_where_they_are_directed_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let writer = Writer::new(File::create(&path).unwrap().into(), FLUSH_DEADLINE);
        writer.send(b"first\n".to_vec());
        // As when a log is rotated.
        std::fs::rename(&path, folder.path().join("events.1")).unwrap();
        writer.send(b"second\n".to_vec());
        writer.redirect(File::create(&path).unwrap().into());
        writer.send(b"third\n".to_vec());
        writer.finish(Box::new(|_| b"last\n".to_vec()));
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((&*read("events.1"), &*read("events")), ("first\nsecond\n", "third\nlast\n"));
    }

    #[test]
    fn a_write_that_stops_short_tears_at_most_one_line() {
        let mut batch = Batch::default();
        batch.push(b"abc\n");
        batch.push(b"de\n");
        for (written, whole, torn) in
            [(0, 0, false), (1, 0, true), (3, 0, true), (4, 1, false), (5, 1, true), (6, 1, true), (7, 2, false)]
        {
            assert_eq!((batch.whole_lines(written), batch.is_torn_at(written)), (whole, torn), "{written}");
        }
    }
}
