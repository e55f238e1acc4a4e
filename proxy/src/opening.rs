//! Waits for the first bytes of a client until it is known what they are.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, timeout_at};

use crate::client_hello;
use crate::first_bytes::{Classifier, FirstBytes, LineWatch, Undecided};
use crate::session::Session;
use crate::socket;
use crate::stream::Stream;

/// The first bytes so far. What was read is in the connection's buffer.
#[derive(Debug)]
pub(crate) struct Opening {
    classifier: Classifier,
    since: Instant,
    first_byte: Option<Instant>,
}

/// How long is waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the first byte. `None`: for ever.
    pub(crate) silence: Option<Duration>,
    /// From the first byte on. `None`: for ever.
    pub(crate) partial: Option<Duration>,
    /// For more, after a first word that is no known HTTP method. `None`: as for anything else.
    pub(crate) word: Option<Duration>,
}

/// What came of the waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// It is known what they are.
    Known(FirstBytes),
    /// A word that may be let go, if what follows is watched.
    Word,
    /// Nothing came in time.
    Silent,
    /// What came does not tell, and the rest did not come in time or within the bounds.
    Partial,
    /// The client said that it sends nothing.
    Ended,
    /// The client reset the connection.
    Gone,
    /// Others needed its place among those that have said half a word.
    GivenUp,
}

impl Opening {
    pub(crate) fn new() -> Self {
        Self { classifier: Classifier::default(), since: Instant::now(), first_byte: None }
    }

    /// Waits. Safe to cancel, and to call again.
    pub(crate) async fn wait(&mut self, stream: &Stream, buffer: &mut BytesMut, patience: &Patience) -> First {
        loop {
            let so_far = self.classifier.look(buffer);
            let FirstBytes::Undecided(undecided) = so_far else { return First::Known(so_far) };
            let now = Instant::now();
            let (deadline, late) = match (undecided, patience.word) {
                (Undecided::Nothing, _) => (patience.silence.map(|silence| self.since + silence), First::Silent),
                (Undecided::Word, Some(word)) => (Some(now + word), First::Word),
                _ => {
                    let first_byte = *self.first_byte.get_or_insert(now);
                    (patience.partial.map(|partial| first_byte + partial), First::Partial)
                }
            };
            if buffer.len() >= client_hello::MAX_BYTES {
                return late;
            }
            let read = socket::read(stream, buffer);
            let read = match deadline {
                Some(deadline) => timeout_at(deadline, read).await,
                None => Ok(read.await),
            };
            match read {
                Ok(Ok(0)) if buffer.is_empty() => return First::Ended,
                Ok(Ok(0)) => return First::Known(self.classifier.at_end(&so_far)),
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return First::Gone,
                Err(_) => return late,
            }
        }
    }

    /// Waits where silence is nothing to be ended for. From its first byte on the connection has a place among those that
    /// are half open: what it holds is as much as theirs. Safe to cancel, and to call again.
    pub(crate) async fn wait_once_begun(
        &mut self,
        stream: &Stream,
        buffer: &mut BytesMut,
        patience: &Patience,
        session: &Session,
    ) -> First {
        if buffer.is_empty() {
            match socket::read(stream, buffer).await {
                Ok(0) => return First::Ended,
                Ok(_) => {}
                Err(_) => return First::Gone,
            }
        }
        session.while_half_open(self.wait(stream, buffer, patience)).await.unwrap_or(First::GivenUp)
    }

    /// The watch over what follows the bytes that were waited for.
    pub(crate) fn into_watch(self) -> LineWatch {
        self.classifier.into_watch()
    }
}
