//! Moves one body from one socket to another, as it arrives and no further than its end.

use bytes::BytesMut;

use super::body::{BodyError, Chunks};
use super::framing::Framing;
use crate::meter::Meter;
use crate::socket;
use crate::stream::Stream;
use crate::tunnel::{PumpError, Pumped, pump};

/// Why a body did not arrive whole.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// The sender reset the connection.
    Read,
    /// The receiver takes no more.
    Write,
    /// No more may be moved.
    Limit,
    /// The sender ended the connection before the body's end.
    Truncated,
    /// The sender's chunks are malformed.
    Malformed(BodyError),
}

impl From<PumpError> for RelayError {
    fn from(error: PumpError) -> Self {
        match error {
            PumpError::Read => Self::Read,
            PumpError::Write => Self::Write,
            PumpError::Limit => Self::Limit,
        }
    }
}

/// Where a message comes from: a socket, and what was read from it already.
pub(crate) struct Source<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) buffer: &'a mut BytesMut,
}

/// Where it goes to. `moved` counts what was written.
pub(crate) struct Sink<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) moved: &'a Meter,
}

impl Sink<'_> {
    /// Writes all of `bytes`.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), RelayError> {
        socket::write_all(self.stream, bytes).await.map_err(|_| RelayError::Write)?;
        Ok(self.moved.count(bytes.len()).await.map_err(PumpError::from)?)
    }
}

/// Sends `head` and the body behind it. Nothing is held back for more: what has arrived is written before more is
/// waited for, and goes with the head in one segment where it is there already.
pub(crate) async fn message(
    head: BytesMut,
    framing: Framing,
    from: Source<'_>,
    to: &Sink<'_>,
) -> Result<(), RelayError> {
    match framing {
        Framing::Length(length) => plain(head, length, from, to).await.and_then(|ended| match ended {
            Pumped::Limit => Ok(()),
            Pumped::End => Err(RelayError::Truncated),
        }),
        Framing::UntilClose => plain(head, u64::MAX, from, to).await.map(drop),
        Framing::Chunked => chunked(head, from, to).await,
    }
}

async fn plain(mut out: BytesMut, length: u64, from: Source<'_>, to: &Sink<'_>) -> Result<Pumped, RelayError> {
    let held = usize::try_from(length).map_or(from.buffer.len(), |length| length.min(from.buffer.len()));
    out.unsplit(from.buffer.split_to(held));
    to.write(&out).await?;
    drop(out);
    let left = length - held as u64;
    if left == 0 {
        return Ok(Pumped::Limit);
    }
    Ok(pump(from.stream, to.stream, left, to.moved).await?)
}

async fn chunked(mut out: BytesMut, from: Source<'_>, to: &Sink<'_>) -> Result<(), RelayError> {
    let mut chunks = Chunks::new();
    loop {
        let read = chunks.advance(from.buffer, &mut out);
        to.write(&out).await?;
        out.clear();
        read.map_err(RelayError::Malformed)?;
        if chunks.is_done() {
            return Ok(());
        }
        match socket::read(from.stream, from.buffer).await {
            Ok(0) => return Err(RelayError::Truncated),
            Ok(_) => {}
            Err(_) => return Err(RelayError::Read),
        }
    }
}
