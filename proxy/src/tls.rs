//! TLS of a listener for plain clients: the way to the proxy, never what is carried through it.
//!
//! What a client sends through its tunnel stays between it and its server; this is only about the hop to netbox, on which
//! its token travels. rustls does the protocol; here its state is joined to a socket, without a task or a descriptor more.

use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::BufMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;

/// The protocol that is spoken inside (RFC 7301). A client that wants another one only is told so.
const ALPN: &[u8] = b"http/1.1";

/// What a TLS listener is known by. It may be replaced while clients are carried; who is there keeps what it came in by.
pub struct Identity(RwLock<Arc<ServerConfig>>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// No certificate in the file.
    #[error("there is no certificate in it (`-----BEGIN CERTIFICATE-----`)")]
    NoCertificate,
    /// Not PEM, or not all of it.
    #[error("it is not PEM: {0}")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// No private key that can be read.
    #[error("there is no private key in it that can be read (`-----BEGIN PRIVATE KEY-----`, without a passphrase)")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// The two do not fit, or are of a kind that is not known.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(#[source] rustls::Error),
}

impl Identity {
    /// From the certificate, with those above it, and its private key, both in PEM.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        Ok(Self(RwLock::new(config(certificates, key)?)))
    }

    /// Puts another one in its place, for those who come from now on.
    pub fn replace(&self, with: Self) {
        let with = with.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = with;
    }

    fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, IdentityError> {
    let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(IdentityError::Certificate)?;
    if chain.is_empty() {
        return Err(IdentityError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(IdentityError::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(IdentityError::Pair)?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).map_err(IdentityError::Pair)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// A socket behind TLS.
pub(crate) struct TlsStream {
    socket: TcpStream,
    /// Locked for as long as no byte has to be waited for, and by one task alone.
    state: Mutex<ServerConnection>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Shakes hands. Whoever calls has a deadline for it.
    ///
    /// # Errors
    /// The client is gone, or speaks no TLS that is known here. It has been told, where it could be.
    pub(crate) async fn accept(socket: TcpStream, identity: &Identity) -> io::Result<Self> {
        let state = ServerConnection::new(identity.now()).map_err(io::Error::other)?;
        let stream = Self { socket, state: Mutex::new(state) };
        loop {
            stream.flush().await?;
            if !stream.state().is_handshaking() {
                return Ok(stream);
            }
            stream.socket.readable().await?;
            let taken = stream.take(&mut stream.state());
            match taken {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    // An alert says why, if there is room for it.
                    let _ = stream.push(&mut stream.state());
                    return Err(error);
                }
            }
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// See [`Stream::readable`](crate::stream::Stream::readable).
    pub(crate) async fn readable(&self) -> io::Result<()> {
        loop {
            if self.has_something(&mut self.state())? {
                return Ok(());
            }
            self.socket.readable().await?;
        }
    }

    /// See [`Stream::try_read_buf`](crate::stream::Stream::try_read_buf). An end that the client has not said is an error:
    /// somebody else may have cut it off.
    pub(crate) fn try_read_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        let mut state = self.state();
        if !self.has_something(&mut state)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut reader = state.reader();
        let bytes = reader.fill_buf()?;
        let length = bytes.len().min(buffer.remaining_mut());
        buffer.put_slice(&bytes[..length]);
        reader.consume(length);
        Ok(length)
    }

    /// See [`Stream::write_all`](crate::stream::Stream::write_all). It has been handed to the socket when this returns.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // As much as there is room for.
            let written = self.state().writer().write(bytes)?;
            bytes = &bytes[written..];
            self.flush().await?;
        }
        Ok(())
    }

    /// Says that no more will be written (RFC 8446 §6.1).
    pub(crate) async fn close_notify(&self) -> io::Result<()> {
        self.state().send_close_notify();
        self.flush().await
    }

    /// Hands all that waits to the socket.
    async fn flush(&self) -> io::Result<()> {
        loop {
            let pushed = self.push(&mut self.state());
            match pushed {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.socket.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    fn push(&self, state: &mut ServerConnection) -> io::Result<()> {
        while state.wants_write() {
            if state.write_tls(&mut Raw(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether there is something to read, or the end.
    fn has_something(&self, state: &mut ServerConnection) -> io::Result<bool> {
        loop {
            match state.reader().fill_buf() {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.take(state) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            // What the protocol itself has to answer, if it can be at once; else it goes with what is written next.
            match self.push(state) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Takes what has come, and deciphers it. 0 at the end.
    fn take(&self, state: &mut ServerConnection) -> io::Result<usize> {
        let taken = state.read_tls(&mut Raw(&self.socket))?;
        state.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(taken)
    }

    fn state(&self) -> MutexGuard<'_, ServerConnection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket, for what is never to wait.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
