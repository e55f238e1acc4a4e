//! The lease: the control connection while the sandbox runs, and what is done while there is none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use netbox_proxy::Listeners;
use netbox_proxy::away::{copy, turn_away};
use netbox_proxy::events::Events;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::conversation::{Conversation, Over};
use super::judge::{Answer, Word};
use super::{Attached, Call, Grant, NotCarried, Wish};
use crate::policy::shown;
use crate::say::Voice;

/// How long until it is called again while it is away. Doubles up to the second.
const FIRST_CALL: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Names that the service may have given addresses since it told last. An address that stood for a name stands for no other
/// one under the next lease.
const NAMES_UNTOLD: usize = 1024;

/// So many numbers each lease has for its decisions. Those of this process begin where no lease comes.
const NUMBERS: u64 = 1 << 32;
pub const OWN_NUMBERS: u64 = 1 << 52;

/// A sandbox that the service carries.
pub struct Lease {
    path: PathBuf,
    wish: Wish,
    attached: Attached,
    listeners: Listeners,
    words: UnboundedReceiver<Word>,
    talk: UnboundedSender<Word>,
    voice: Voice,
}

impl Lease {
    /// `listeners` are copies of those that were handed over.
    pub fn new(path: PathBuf, wish: Wish, attached: Attached, listeners: Listeners, voice: Voice) -> Self {
        let (talk, words) = unbounded_channel();
        Self { path, wish, attached, listeners, words, talk, voice }
    }

    /// What was granted at first.
    pub fn grant(&self) -> &Grant {
        &self.attached.grant
    }

    /// Where words for the service go.
    pub fn words(&self) -> UnboundedSender<Word> {
        self.talk.clone()
    }

    /// Holds it until the sandbox has ended (`departure`) and what it sent is delivered. What is told goes to `events`.
    ///
    /// # Errors
    /// The service has ended the lease, or refuses a new one.
    pub async fn hold(self, events: &Events, departure: impl Future<Output = ()>) -> Result<(), NotCarried> {
        let Self { path, mut wish, attached, listeners, mut words, talk, voice } = self;
        // Kept, so that there may always be a word.
        let _talk = talk;
        let has_departed = Cell::new(false);
        let mut departure = pin!(departure);
        // Asked again after it has come, it has come.
        let mut departure = pin!(poll_fn(|context| {
            if !has_departed.get() {
                ready!(departure.as_mut().poll(context));
                has_departed.set(true);
            }
            Poll::Ready(())
        }));
        let mut attached = Some(attached);
        let mut is_announced = false;
        loop {
            let Attached { receiver, sender, .. } = match attached.take() {
                Some(attached) => attached,
                None => {
                    if !is_announced {
                        voice.warn(format_args!(
                            "the service at {} is away: what the command connects to is reset until it is back",
                            shown(&path)
                        ));
                    }
                    let away = Away { path: &path, wish: &wish, listeners: &listeners };
                    match away.wait(&mut words, departure.as_mut()).await? {
                        Some(attached) => {
                            voice.warn("the service is back");
                            attached
                        }
                        None => return Ok(()),
                    }
                }
            };
            let mut conversation = Conversation::new(events, &path, &listeners, voice);
            let over = conversation.hold(receiver, &sender, &mut words, departure.as_mut()).await;
            is_announced = conversation.is_draining;
            let sums = conversation.conclude();
            let before = |told: usize, known: usize| told.max(known).saturating_add(NAMES_UNTOLD);
            wish.names.listed = before(sums.names.listed, wish.names.listed);
            wish.names.refused = before(sums.names.refused, wish.names.refused);
            wish.first_id = (wish.first_id / NUMBERS + 1) * NUMBERS;
            match over {
                Over::Done => return Ok(()),
                // Nobody is left to be carried, and the service has gone before it could say goodbye.
                Over::Gone if has_departed.get() => return Ok(()),
                Over::Gone => {}
                Over::Ended(why) => return Err(why),
            }
        }
    }
}

/// A sandbox that nobody carries.
struct Away<'a> {
    path: &'a PathBuf,
    wish: &'a Wish,
    listeners: &'a Listeners,
}

impl Away<'_> {
    /// Until the service carries it again, or the sandbox has ended.
    async fn wait(
        &self,
        words: &mut UnboundedReceiver<Word>,
        mut departure: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Attached>, NotCarried> {
        let copies =
            copy(self.listeners).map_err(|error| NotCarried::new(format!("no descriptor is left: {error}")))?;
        let mut turned_away = pin!(turn_away(copies));
        let mut called = pin!(self.call());
        loop {
            tokio::select! {
                biased;
                () = &mut departure => return Ok(None),
                attached = &mut called => return attached.map(Some),
                Some(word) = words.recv() => {
                    if let Word::Judge { answer, .. } = word {
                        let _ = answer.send(Answer::Away);
                    }
                }
                failed = &mut turned_away => {
                    let why = failed.err().map(|error| error.to_string()).unwrap_or_default();
                    return Err(NotCarried::new(format!("the sandbox's listeners cannot be served: {why}")));
                }
            }
        }
    }

    /// Calls until it is carried, or refused for good.
    async fn call(&self) -> Result<Attached, NotCarried> {
        let mut pause = FIRST_CALL;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let path = self.path.clone();
            let placed = spawn_blocking(move || Call::place(&path)).await;
            let placed = placed.unwrap_or_else(|error| Err(NotCarried::new(error.to_string())));
            let attached = match placed {
                Ok(call) => call.attach(self.wish, self.listeners).await,
                Err(why) => Err(why),
            };
            match attached {
                Err(why) if why.is_passing => {}
                attached => return attached,
            }
        }
    }
}
