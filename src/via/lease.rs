//! The lease: the control connection while the sandbox runs, and what is done while there is none.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::{Future, pending, poll_fn};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::mpsc::SyncSender;
use std::task::{Poll, ready};
use std::time::Duration;

use netbox_proxy::Listeners;
use netbox_proxy::away::{copy, turn_away};
use netbox_proxy::events::{Events, Summary};
use netbox_proxy::service::channel::{ChannelError, Receiver, Sender};
use netbox_proxy::service::outlet::Outbox;
use netbox_proxy::service::wire::{LONGEST_ATTACH, Said, Sums, Told};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::judge::{Answer, Word, asker};
use super::{Attached, Call, Grant, NotCarried, Wish, worded};
use crate::policy::shown;
use crate::say::Voice;

/// How long the service may take, after the sandbox's end, to deliver what was sent and to tell the sums.
const LAST_WORD: Duration = Duration::from_secs(15);

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

/// How a conversation ended.
enum Over {
    /// The sandbox has ended, and all was said.
    Done,
    /// The service is gone.
    Gone,
    /// It carries the sandbox no more.
    Ended(NotCarried),
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
        loop {
            let Attached { receiver, sender, .. } = match attached.take() {
                Some(attached) => attached,
                None => {
                    voice.warn(format_args!(
                        "the service at {} is away: what the command connects to is reset until it is back",
                        shown(&path)
                    ));
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
            let mut conversation = Conversation::new(events);
            let over = conversation.hold(receiver, &sender, &mut words, departure.as_mut()).await;
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

/// What was said, and is to be answered.
struct Conversation<'e> {
    events: &'e Events,
    asked: HashMap<u64, SyncSender<Answer>>,
    next: u64,
    outbox: Outbox,
    sums: Sums,
    has_summary: bool,
}

impl<'e> Conversation<'e> {
    fn new(events: &'e Events) -> Self {
        let (asked, outbox) = (HashMap::new(), Outbox::new(false));
        Self { events, asked, next: 0, outbox, sums: Sums::default(), has_summary: false }
    }

    async fn hold(
        &mut self,
        mut receiver: Receiver,
        sender: &Sender,
        words: &mut UnboundedReceiver<Word>,
        mut departure: Pin<&mut impl Future<Output = ()>>,
    ) -> Over {
        let outbox = std::mem::take(&mut self.outbox);
        let mut delivered = pin!(outbox.deliver(sender, Sums::default));
        let mut has_departed = false;
        let mut is_delivered = false;
        let mut patience: Pin<Box<dyn Future<Output = ()>>> = Box::pin(pending());
        loop {
            tokio::select! {
                // What has been said is heard before the end.
                biased;
                frame = receiver.receive(LONGEST_ATTACH) => {
                    let told = match frame {
                        Ok(Some(frame)) => frame.read::<Told>(),
                        Ok(None) | Err(ChannelError::Io(_)) => {
                            return if self.has_summary && has_departed { Over::Done } else { Over::Gone };
                        }
                        Err(ChannelError::Wire(error)) => Err(error),
                    };
                    match told {
                        Ok(told) => {
                            if let Some(over) = self.hear(told) {
                                return over;
                            }
                            if self.has_summary && has_departed {
                                return Over::Done;
                            }
                        }
                        Err(error) => {
                            let text = format!("the service does not speak as this netbox does: {error}");
                            return Over::Ended(NotCarried::new(text));
                        }
                    }
                }
                result = &mut delivered, if !is_delivered => match result {
                    Ok(()) => is_delivered = true,
                    Err(_) => return Over::Gone,
                },
                Some(word) = words.recv(), if !has_departed => {
                    if self.say(&outbox, word).is_err() {
                        return Over::Gone;
                    }
                }
                () = &mut departure, if !has_departed => {
                    has_departed = true;
                    // What was refused at the very end.
                    while let Ok(word) = words.try_recv() {
                        let _ = self.say(&outbox, word);
                    }
                    outbox.say_last(&Said::End {});
                    patience = Box::pin(sleep(LAST_WORD));
                }
                () = &mut patience => return Over::Done,
            }
        }
    }

    /// Has a word said. An error means that the service reads nothing.
    fn say(&mut self, outbox: &Outbox, word: Word) -> Result<(), ()> {
        let said = match word {
            Word::Judge { destination, process, answer } => {
                let n = self.next;
                self.next += 1;
                self.asked.insert(n, answer);
                Said::Judge { n, destination, process }
            }
            Word::Connected { n, source, caller } => {
                Said::Connected { n, source, process: caller.identify().map(asker) }
            }
            Word::Failed { n } => Said::Failed { n },
            Word::RefusedUdp { destination } => Said::RefusedUdp { destination },
        };
        outbox.say(&said).map_err(|_| ())
    }

    fn hear(&mut self, told: Told) -> Option<Over> {
        match told {
            Told::Verdict { n, allow } => {
                let answer = if allow { Answer::Allow(n) } else { Answer::Refuse };
                // Whoever asked may not wait any more.
                self.asked.remove(&n).map(|asked| asked.send(answer));
            }
            Told::Event { line } => {
                self.events.relay(&line);
            }
            Told::Sums(sums) => self.sums = sums,
            Told::Summary { summary, events_dropped } => {
                self.events.add(&summary, events_dropped);
                self.has_summary = true;
            }
            Told::Refused(refused) => return Some(Over::Ended(NotCarried { is_passing: false, ..refused.into() })),
            Told::Revoked { text } => {
                let text = format!("the service has ended this sandbox's lease: {}", worded(&text));
                return Some(Over::Ended(NotCarried::new(text)));
            }
            // The next one is looked for when this one ends.
            // What was not asked for.
            Told::Status(_) | Told::Done { .. } => {}
            Told::Draining {} => {}
            Told::Granted { .. } => {
                return Some(Over::Ended(NotCarried::new("the service answers something that it was not asked")));
            }
        }
        None
    }

    /// Counts what was counted last, where the sums at the end were not told. Nobody is left waiting.
    fn conclude(mut self) -> Sums {
        for (_, asked) in self.asked.drain() {
            let _ = asked.send(Answer::Away);
        }
        if !self.has_summary {
            let Sums { allowed, denied, malformed, failed, .. } = self.sums;
            let others = denied + malformed;
            self.events.add(&Summary { allowed, denied, malformed, failed, others, ..Summary::default() }, 0);
        }
        self.sums
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
