//! What a program writes.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::LIMIT;

/// What a program writes, as it comes.
#[derive(Debug)]
pub struct Captured(Arc<(Mutex<Capture>, Condvar)>);

#[derive(Debug, Default)]
struct Capture {
    bytes: Vec<u8>,
    ended: bool,
}

impl Captured {
    /// Begins to read.
    pub fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::default(), Condvar::new()));
        let writer = Arc::clone(&shared);
        thread::spawn(move || {
            let (capture, changed): &(Mutex<Capture>, Condvar) = &writer;
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = pipe.read(&mut buffer).unwrap_or(0);
                let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
                capture.bytes.extend(&buffer[..length]);
                capture.ended = length == 0;
                changed.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        Self(shared)
    }

    /// Whether the bytes came to be as `wanted` before their end, or before the time was over.
    pub fn wait_for(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let (capture, changed) = &*self.0;
        let capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        let go_on = |capture: &mut Capture| !capture.ended && !wanted(&capture.bytes);
        let (capture, _) = changed.wait_timeout_while(capture, LIMIT, go_on).unwrap_or_else(PoisonError::into_inner);
        wanted(&capture.bytes)
    }

    /// What came so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// Everything, and whether the end was reached.
    pub(super) fn finish(self) -> (Vec<u8>, bool) {
        let (capture, changed) = &*self.0;
        let capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        let go_on = |capture: &mut Capture| !capture.ended;
        let limit = Duration::from_secs(10);
        let (mut capture, _) =
            changed.wait_timeout_while(capture, limit, go_on).unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut capture.bytes), capture.ended)
    }
}

impl std::fmt::Display for Captured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capture = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(formatter, "`{}`", String::from_utf8_lossy(&capture.bytes))
    }
}
