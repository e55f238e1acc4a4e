//! One end of a control connection: frames in, frames out, and descriptors with them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::frames::{Decoder, Frame};
use super::wire::{MOST_DESCRIPTORS, WireError};

/// How much is read at once.
const READ: usize = 16 << 10;

/// As many descriptors as the kernel hands over at once (`SCM_MAX_FD`): those that there is no room for would be lost.
const MOST_AT_ONCE: usize = 253;

/// Linux's `MSG_CTRUNC`.
const CONTROL_TRUNCATED: u32 = 8;

/// Why nothing more can be received.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// What came is no conversation.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    stream: Arc<UnixStream>,
    decoder: Decoder,
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    stream: Arc<UnixStream>,
}

/// The halves of a control connection. It ends with the second of them.
#[must_use]
pub fn split(stream: UnixStream) -> (Receiver, Sender) {
    let stream = Arc::new(stream);
    (Receiver { stream: Arc::clone(&stream), decoder: Decoder::new() }, Sender { stream })
}

impl Receiver {
    /// The next frame, of at most `longest` bytes; `None` at the end. Safe to cancel.
    ///
    /// # Errors
    /// What has come is no frame, or the connection failed.
    pub async fn receive(&mut self, longest: usize) -> Result<Option<Frame>, ChannelError> {
        self.next(|decoder| decoder.next(longest)).await
    }

    /// The first frame, which comes without descriptors, of at most `longest` bytes. Those that have come already are the
    /// next one's.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub async fn receive_first(&mut self, longest: usize) -> Result<Option<Frame>, ChannelError> {
        self.next(|decoder| decoder.next_alone(longest)).await
    }

    /// What came with the first frame, where none follows that would have it.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.decoder.take_descriptors()
    }

    async fn next(
        &mut self,
        take: impl Fn(&mut Decoder) -> Result<Option<Frame>, WireError>,
    ) -> Result<Option<Frame>, ChannelError> {
        let Self { stream, decoder } = self;
        loop {
            if let Some(frame) = take(decoder)? {
                return Ok(Some(frame));
            }
            match stream.async_io(Interest::READABLE, || read(stream, decoder)).await?? {
                0 => return Ok(decoder.finish().map(|()| None)?),
                _ => continue,
            }
        }
    }
}

/// Reads what has come. The outer error is one of the connection.
fn read(stream: &UnixStream, decoder: &mut Decoder) -> io::Result<Result<usize, WireError>> {
    let mut bytes = [0; READ];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.bits() & CONTROL_TRUNCATED != 0 {
        return Ok(Err(WireError::DescriptorsLost));
    }
    Ok(decoder.feed(&bytes[..message.bytes], descriptors).map(|()| message.bytes))
}

impl Sender {
    /// Sends whole frames. One that is cancelled has broken the conversation off.
    ///
    /// # Errors
    /// The other side is gone.
    pub async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a frame and descriptors with its first bytes.
    ///
    /// # Errors
    /// The other side is gone, or there are too many descriptors.
    pub async fn send_with(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let stream = &*self.stream;
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                Ok(sendmsg(stream, &[IoSlice::new(frame)], &mut control, flags)?)
            })
            .await?;
        self.send(frame.get(sent..).unwrap_or_default()).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::service::frames::encode;
    use crate::service::wire::{LONGEST, Said};

    fn pair() -> ((Receiver, Sender), (Receiver, Sender)) {
        let (one, other) = UnixStream::pair().unwrap();
        (split(one), split(other))
    }

    #[tokio::test]
    async fn descriptors_come_with_the_frame_that_they_were_sent_with() {
        let ((_keep, sender), (mut receiver, _)) = pair();
        let file = File::open("/dev/null").unwrap();
        let end = encode(&Said::End {});
        sender.send(&end).await.unwrap();
        sender.send_with(&end, &[file.as_fd(), file.as_fd()]).await.unwrap();
        // The kernel hands over both frames at once, and what came with the second.
        let first = receiver.receive_first(LONGEST).await.unwrap().unwrap();
        let second = receiver.receive(LONGEST).await.unwrap().unwrap();
        assert_eq!((first.descriptors.len(), second.descriptors.len()), (0, 2));
    }

    #[tokio::test]
    async fn more_descriptors_than_any_frame_has_end_the_conversation_and_none_stays_open() {
        let ((_keep, sender), (mut receiver, _)) = pair();
        let (watched, other) = UnixStream::pair().unwrap();
        let many: Vec<_> = (0..MOST_DESCRIPTORS).map(|_| other.as_fd()).collect();
        let end = encode(&Said::End {});
        // Each send alone is within the bounds, and no frame is whole.
        sender.send_with(&end[..2], &many).await.unwrap();
        sender.send_with(&end[2..4], &many).await.unwrap();
        let error = receiver.receive(LONGEST).await.unwrap_err();
        assert!(matches!(error, ChannelError::Wire(WireError::Descriptors { .. })), "{error:?}");
        drop((receiver, other));
        // Every copy is closed: the other end reads the end.
        watched.readable().await.unwrap();
        assert_eq!(watched.try_read(&mut [0; 1]).unwrap(), 0);
    }

    #[tokio::test]
    async fn the_end_is_told_from_half_a_frame() {
        let ((keep, sender), (mut receiver, _other)) = pair();
        sender.send(&encode(&Said::End {})).await.unwrap();
        drop((keep, sender));
        assert!(receiver.receive(LONGEST).await.unwrap().is_some());
        assert!(receiver.receive(LONGEST).await.unwrap().is_none());
        let ((keep, sender), (mut receiver, _other)) = pair();
        sender.send(&encode(&Said::End {})[..9]).await.unwrap();
        drop((keep, sender));
        assert!(matches!(receiver.receive(LONGEST).await, Err(ChannelError::Wire(WireError::Half))));
    }
}
