//! What one side of a control connection has to say, on its way: never waited for by those who have it to say.
//!
//! Lines of events may come faster than the client reads them. They wait here, up to a bound, and what finds no room is
//! dropped and counted, as with any other sink of events. Answers are not dropped: a client that asks on and on and reads
//! none of them has left the conversation.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::channel::Sender;
use super::frames::encode;
use super::wire::{Sums, Told};
use crate::events::Outlet;

/// How many bytes of event lines may wait.
const MOST_LINES: usize = 1 << 20;

/// How many bytes of answers may wait.
const MOST_ANSWERS: usize = 256 << 10;

/// How often the sums are told, at most.
const SUMS_INTERVAL: Duration = Duration::from_millis(100);

/// What waits to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
    wants_lines: bool,
    counted: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: Vec<u8>,
    lines: Vec<u8>,
    is_last: bool,
}

/// The client does not read its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread;

impl Outbox {
    /// Nothing yet; lines of events only where they are wanted.
    #[must_use]
    pub fn new(wants_lines: bool) -> Self {
        Self { wants_lines, ..Self::default() }
    }

    /// Has this said.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn say<T: Serialize>(&self, message: &T) -> Result<(), Unread> {
        let mut waiting = self.waiting();
        if waiting.is_last || waiting.answers.len() > MOST_ANSWERS {
            return Err(Unread);
        }
        waiting.answers.extend(encode(message));
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    /// Has this said, after all that waits, and nothing afterwards.
    pub fn say_last<T: Serialize>(&self, message: &T) {
        let mut waiting = self.waiting();
        if !std::mem::replace(&mut waiting.is_last, true) {
            waiting.lines.extend(encode(message));
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Sends what there is to say until the last has been said. `sums` tells them as they are.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn deliver(&self, sender: &Sender, sums: impl Fn() -> Sums) -> io::Result<()> {
        let mut next_sums = Instant::now();
        loop {
            let (bytes, is_last) = self.take();
            sender.send(&bytes).await?;
            if is_last {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = sleep_until(next_sums), if self.counted.load(Ordering::Acquire) => {
                    // Before they are read: what is counted from now on is told the next time.
                    self.counted.store(false, Ordering::Release);
                    next_sums = Instant::now() + SUMS_INTERVAL;
                    sender.send(&encode(&Told::Sums(sums()))).await?;
                }
            }
        }
    }

    fn take(&self) -> (Vec<u8>, bool) {
        let mut waiting = self.waiting();
        let mut bytes = std::mem::take(&mut waiting.answers);
        bytes.append(&mut waiting.lines);
        (bytes, waiting.is_last)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet for Outbox {
    fn wants_lines(&self) -> bool {
        self.wants_lines
    }

    fn line(&self, line: &[u8]) -> bool {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        let mut waiting = self.waiting();
        if waiting.is_last || waiting.lines.len() > MOST_LINES {
            return false;
        }
        waiting.lines.extend(encode(&Told::Event { line: line.to_owned() }));
        drop(waiting);
        self.wake.notify_one();
        true
    }

    fn counted(&self) {
        if !self.counted.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;
    use crate::service::channel::split;
    use crate::service::wire::LONGEST;

    #[tokio::test]
    async fn what_finds_no_room_is_not_taken_and_nothing_waits_for_the_client() {
        let outbox = Outbox::new(true);
        let line = format!("{}\n", "x".repeat(4000));
        let taken = (0..10_000).take_while(|_| outbox.line(line.as_bytes())).count();
        assert!((200..400).contains(&taken), "{taken}");
        assert_eq!(outbox.say(&Told::Verdict { n: 1, allow: true }), Ok(()), "answers have room of their own");
        let answers = (0..1_000_000).take_while(|n| outbox.say(&Told::Verdict { n: *n, allow: true }).is_ok()).count();
        assert!(answers < 10_000, "{answers}");
    }

    #[tokio::test]
    async fn the_last_word_comes_last_and_ends_it() {
        let (one, other) = UnixStream::pair().unwrap();
        let ((_keep, sender), (mut receiver, _other)) = (split(one), split(other));
        let outbox = Outbox::new(true);
        assert!(outbox.line(b"{}\n"));
        outbox.say_last(&Told::Revoked { text: "it is over".into() });
        assert!(!outbox.line(b"{}\n"));
        assert_eq!(outbox.say(&Told::Draining {}), Err(Unread));
        outbox.deliver(&sender, Sums::default).await.unwrap();
        let mut told = Vec::new();
        for _ in 0..2 {
            told.push(receiver.receive(LONGEST).await.unwrap().unwrap().read::<Told>().unwrap());
        }
        assert_eq!(told, [Told::Event { line: "{}\n".into() }, Told::Revoked { text: "it is over".into() }]);
    }

    #[tokio::test(start_paused = true)]
    async fn sums_are_told_when_they_change_and_not_all_the_time() {
        let (one, other) = UnixStream::pair().unwrap();
        let ((_keep, sender), (mut receiver, _other)) = (split(one), split(other));
        let outbox = Outbox::new(false);
        assert!(!outbox.wants_lines());
        let deliver = outbox.deliver(&sender, Sums::default);
        let count = async {
            outbox.counted();
            let frame = receiver.receive(LONGEST).await.unwrap().unwrap();
            assert_eq!(frame.read::<Told>().unwrap(), Told::Sums(Sums::default()));
            let before = Instant::now();
            outbox.counted();
            receiver.receive(LONGEST).await.unwrap().unwrap();
            assert!(before.elapsed() >= SUMS_INTERVAL);
        };
        tokio::select! {
            ended = deliver => panic!("{ended:?}"),
            () = count => {}
        }
    }
}
