//! What is done to one socket: read what has come, write all of it, end it in one of three ways.
//!
//! All of it works on a shared reference, so that the two directions of a connection can be two futures of one task
//! without a lock. Nothing is allocated for a socket from which nothing comes.

use std::borrow::Borrow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

use crate::callers::Origin;
use crate::delivery::Undelivered;
use crate::flow::{Flow, Revocation};
use crate::session::Session;
use crate::stream::Stream;
use tokio::time::timeout;

/// How much is read at once where it goes through a buffer of ours.
const READ: usize = 16 * 1024;

/// How long, and for how many bytes, an ended connection is still read, so that what was written last arrives.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// Silence after which the kernel asks whether the far side is still there, how often it asks, and at what distance.
const KEEP_ALIVE_IDLE: u32 = 60;
const KEEP_ALIVE_INTERVAL: u32 = 15;
const KEEP_ALIVE_COUNT: u32 = 8;

/// A socket, and what was read from it and not yet used.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) buffer: BytesMut,
    /// On the sandbox's side: held until what it sends has all been delivered.
    pub(crate) undelivered: Option<Undelivered>,
    /// On the sandbox's side: who is behind it.
    pub(crate) origin: Origin,
    /// On the sandbox's side: what is known of it.
    pub(crate) flow: Option<Arc<Flow>>,
}

impl Connection {
    pub(crate) fn new(stream: impl Into<Stream>) -> Self {
        Self {
            stream: stream.into(),
            buffer: BytesMut::new(),
            undelivered: None,
            origin: Origin::default(),
            flow: None,
        }
    }

    /// One of the sandbox's: who is behind it, and its flow. It counts as undelivered from now on.
    pub(crate) fn of_client(session: &Session, stream: impl Into<Stream>, origin: Origin, flow: Arc<Flow>) -> Self {
        let undelivered = Some(session.deliveries.begin());
        Self { undelivered, origin, flow: Some(flow), ..Self::new(stream) }
    }

    /// Waits until it is to end, since the policy no longer allows it.
    pub(crate) fn revocation(&self) -> Revocation {
        self.flow.as_ref().map_or_else(Revocation::never, Flow::revocation)
    }

    /// Reads what has come to the end of the buffer; 0 at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        read(&self.stream, &mut self.buffer).await
    }
}

/// Gives back the memory of a buffer in which there is nothing.
pub(crate) fn release(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

/// Waits for bytes and appends what has come; 0 at the end of the stream. Safe to cancel: nothing is lost.
pub(crate) async fn read(stream: &Stream, buffer: &mut BytesMut) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        buffer.reserve(READ);
        match stream.try_read_buf(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => release(buffer),
            other => return other,
        }
    }
}

/// Writes all of `bytes`. Not safe to cancel, but by ending the connection.
pub(crate) async fn write_all(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await
}

/// Ends a connection with RST: whoever reads gets an error and not an end.
pub(crate) fn reset(stream: impl Into<Stream>) {
    reset_once_dropped(&stream.into());
}

/// The same as soon as it is dropped.
pub(crate) fn reset_once_dropped(stream: &Stream) {
    // An error means that the connection has ended already.
    let _ = stream.socket().set_zero_linger();
}

/// Ends a connection such that what was written arrives. Closing at once would not do: bytes of the peer that nobody
/// has read turn the close into a reset, which takes what is on its way with it.
pub(crate) async fn finish(stream: impl Borrow<Stream>) {
    let stream = stream.borrow();
    stream.half_close().await;
    let mut buffer = BytesMut::new();
    let mut drained = 0;
    let drain = async {
        while let Ok(read @ 1..) = read(stream, &mut buffer).await {
            drained += read;
            buffer.clear();
            if drained >= LINGER_BYTES {
                break;
            }
        }
    };
    // Over the deadline means that the peer does not close; then the kernel may.
    let _ = timeout(LINGER, drain).await;
}

/// Sets what every socket of a tunnel needs: segments go out at once, since it is not for us to wait for more.
pub(crate) fn no_delay(stream: &TcpStream) {
    // A performance matter only, and an ended connection refuses it.
    let _ = stream.set_nodelay(true);
}

/// Lets the kernel find out when the far side has vanished: a tunnel has no deadline of its own.
pub(crate) fn keep_alive(stream: &TcpStream) {
    // Without them the tunnel still works; it may outlive its far side.
    let _ = setsockopt(stream, sockopt::KeepAlive, &true)
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_IDLE))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepInterval, &KEEP_ALIVE_INTERVAL))
        .and_then(|()| setsockopt(stream, sockopt::TcpKeepCount, &KEEP_ALIVE_COUNT));
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_looks_after_a_silent_far_side() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        keep_alive(&stream);
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle).unwrap(), KEEP_ALIVE_IDLE);
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepInterval).unwrap(), KEEP_ALIVE_INTERVAL);
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepCount).unwrap(), KEEP_ALIVE_COUNT);
    }
}
