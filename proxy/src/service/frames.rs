//! Messages of the control protocol as they travel: taken out of what has come, and read.

use std::os::fd::OwnedFd;

use bytes::{Buf, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::wire::{Attach, Handed, Hello, MOST_DESCRIPTORS, VERSION, WireError};

/// What came and was not taken yet.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    descriptors: Vec<OwnedFd>,
    /// Those that belong to the conversation have come and were taken. Any more would be held for as long as half a frame is.
    has_taken: bool,
}

/// One frame.
#[derive(Debug)]
pub struct Frame {
    /// What should be JSON.
    pub text: Bytes,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

impl Decoder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what has come.
    ///
    /// # Errors
    /// More descriptors than any frame may have.
    pub fn feed(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), WireError> {
        let came = self.descriptors.len() + descriptors.len();
        let most = if self.has_taken { 0 } else { MOST_DESCRIPTORS };
        if came > most {
            return Err(WireError::Descriptors { announced: most, came });
        }
        self.buffer.extend_from_slice(bytes);
        self.descriptors.extend(descriptors);
        Ok(())
    }

    /// What came with frames that were taken alone. No more may come.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.has_taken = true;
        std::mem::take(&mut self.descriptors)
    }

    /// The next frame, of at most `longest` bytes, if it is whole, with all descriptors that have come.
    ///
    /// # Errors
    /// It is longer.
    pub fn next(&mut self, longest: usize) -> Result<Option<Frame>, WireError> {
        let Some(frame) = self.next_alone(longest)? else { return Ok(None) };
        self.has_taken |= !self.descriptors.is_empty();
        Ok(Some(Frame { descriptors: std::mem::take(&mut self.descriptors), ..frame }))
    }

    /// The same for a frame that has none: one that was sent before another one may arrive together with what came with that.
    ///
    /// # Errors
    /// It is longer.
    pub fn next_alone(&mut self, longest: usize) -> Result<Option<Frame>, WireError> {
        let Some(head) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > longest {
            return Err(WireError::Long(length, longest));
        }
        if self.buffer.len() - 4 < length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(Frame { text: self.buffer.split_to(length).freeze(), descriptors: Vec::new() }))
    }

    /// At the end of the stream.
    ///
    /// # Errors
    /// It ended within a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(WireError::Half) }
    }
}

impl Frame {
    /// Reads a message that comes without descriptors.
    ///
    /// # Errors
    /// It is another one, or none, or descriptors came with it.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, WireError> {
        let message = parse(&self.text)?;
        match self.descriptors.len() {
            0 => Ok(message),
            came => Err(WireError::Descriptors { announced: 0, came }),
        }
    }

    /// Reads the first message.
    ///
    /// # Errors
    /// As [`Frame::read`]; of another version nothing but that is said.
    pub fn read_hello(self) -> Result<Hello, WireError> {
        /// Whatever else another version has.
        #[derive(Deserialize)]
        struct Any {
            v: u32,
        }
        let Any { v } = parse(&self.text)?;
        if v == VERSION { self.read() } else { Err(WireError::Version(v)) }
    }

    /// Reads the request to carry a sandbox, with what was handed over, each with what it is said to be.
    ///
    /// # Errors
    /// It is another message, or none, or other descriptors came than it counts.
    pub fn read_attach(self) -> Result<(Attach, Vec<(Handed, OwnedFd)>), WireError> {
        let attach: Attach = parse(&self.text)?;
        let (announced, came) = (attach.descriptors.len(), self.descriptors.len());
        if announced != came {
            return Err(WireError::Descriptors { announced, came });
        }
        let handed = attach.descriptors.iter().copied().zip(self.descriptors).collect();
        Ok((attach, handed))
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(text).map_err(|error| {
        // What it quotes came from the other side.
        let text = netbox_config::escaped(error.to_string().as_bytes()).to_string();
        WireError::Malformed(text.chars().take(200).collect())
    })
}

/// A message as it travels.
///
/// # Panics
/// Never: every message has text keys and no value that JSON lacks.
#[must_use]
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut frame = vec![0; 4];
    #[allow(clippy::expect_used, reason = "see above; a vector takes what it is given")]
    serde_json::to_writer(&mut frame, message).expect("messages are JSON");
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}
