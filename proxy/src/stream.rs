//! One end of a connection that is carried: a socket as it is, or one behind TLS.
//!
//! Everything works on a shared reference, as with a bare socket: the two directions of a connection are two futures of one
//! task. A socket as it is costs nothing more than itself, and its pages can be spliced; one behind TLS is copied.

use std::io;
use std::net::IpAddr;

use bytes::BufMut;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::TcpStream;

use crate::tls::TlsStream;

/// One end of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Behind TLS. In a box, so that the others do not pay for its size.
    Tls(Box<TlsStream>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(stream)
    }
}

impl Stream {
    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// The address of the far side. `None`: it is gone.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.socket().peer_addr().ok().map(|peer| peer.ip())
    }

    /// The socket, if its bytes are those that are carried.
    pub(crate) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }

    /// Waits until there is something to read, or an end or an error.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            Self::Tls(stream) => stream.readable().await,
        }
    }

    /// Reads what is there into `buffer`, as much as there is room for; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing at the moment.
    pub(crate) fn try_read_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_read_buf(buffer),
            Self::Tls(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Writes as much of `bytes` as is taken at once.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is. Behind TLS nothing ever is, since what is ciphered has to be sent.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes all of `bytes`. Not safe to cancel, but by ending the connection.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => return stream.write_all(bytes).await,
        };
        while !bytes.is_empty() {
            stream.writable().await?;
            match stream.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that no more will be written. An error means that the connection has ended already.
    pub(crate) async fn half_close(&self) {
        if let Self::Tls(stream) = self {
            let _ = stream.close_notify().await;
        }
        let _ = shutdown(std::os::fd::AsRawFd::as_raw_fd(self.socket()), Shutdown::Write);
    }
}
