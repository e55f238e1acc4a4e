//! What is said over the control connection of a sandbox while the service carries it.
//!
//! A service that is about to end takes no more connections, and those that were made would wait for nobody. So from then on
//! they are turned away here, as they are while there is no service, and what is open goes on.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use netbox_proxy::Listeners;
use netbox_proxy::away::{copy_for_connections, turn_away};
use netbox_proxy::events::{Events, Summary};
use netbox_proxy::service::channel::{ChannelError, Receiver, Sender};
use netbox_proxy::service::outlet::Outbox;
use netbox_proxy::service::wire::{LONGEST_ATTACH, Said, Sums, Told};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::judge::{Answer, Word, asker};
use super::{NotCarried, tell, worded};
use crate::policy::shown;
use crate::say::Voice;

/// How long the service may take, after the sandbox's end, to deliver what was sent and to tell the sums.
const LAST_WORD: Duration = Duration::from_secs(15);

/// How a conversation ended.
pub(super) enum Over {
    /// The sandbox has ended, and all was said.
    Done,
    /// The service is gone.
    Gone,
    /// It carries the sandbox no more.
    Ended(NotCarried),
}

impl Over {
    /// Nobody can be turned away.
    fn unserved(error: &io::Error) -> Self {
        Self::Ended(NotCarried::new(format!("the sandbox's listeners cannot be served: {error}")))
    }
}

/// What was said, and is to be answered.
pub(super) struct Conversation<'e> {
    events: &'e Events,
    path: &'e Path,
    listeners: &'e Listeners,
    voice: Voice,
    /// The service takes no more connections.
    pub(super) is_draining: bool,
    asked: HashMap<u64, SyncSender<Answer>>,
    next: u64,
    outbox: Outbox,
    sums: Sums,
    has_summary: bool,
}

impl<'e> Conversation<'e> {
    pub(super) fn new(events: &'e Events, path: &'e Path, listeners: &'e Listeners, voice: Voice) -> Self {
        let (asked, outbox, sums) = (HashMap::new(), Outbox::new(false), Sums::default());
        let (is_draining, has_summary) = (false, false);
        Self { events, path, listeners, voice, is_draining, asked, next: 0, outbox, sums, has_summary }
    }

    /// Holds it until it is over. `departure`: the sandbox has ended.
    pub(super) async fn hold(
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
        let mut turned_away: Pin<Box<dyn Future<Output = io::Result<()>>>> = Box::pin(pending());
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
                            let was_draining = self.is_draining;
                            if let Some(over) = self.hear(told) {
                                return over;
                            }
                            if self.is_draining && !was_draining {
                                match copy_for_connections(self.listeners) {
                                    Ok(copies) => turned_away = Box::pin(turn_away(copies)),
                                    Err(error) => return Over::unserved(&error),
                                }
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
                failed = &mut turned_away => {
                    return Over::unserved(&failed.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                }
            }
        }
    }

    /// Has a word said. An error means that the service reads nothing.
    fn say(&mut self, outbox: &Outbox, word: Word) -> Result<(), ()> {
        let said = match word {
            // It would be reset.
            Word::Judge { answer, .. } if self.is_draining => {
                let _ = answer.send(Answer::Away);
                return Ok(());
            }
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
            Told::Granted { warnings, .. } => {
                self.voice.warn("the service has changed what it grants");
                tell(&warnings, self.voice);
            }
            Told::Revoked { text } => {
                let text = worded(&text);
                self.voice
                    .warn(format_args!("the service has taken away what it granted, and there is no network: {text}"));
            }
            // The next one is looked for when this one ends.
            Told::Draining {} if self.is_draining => {}
            Told::Draining {} => {
                self.is_draining = true;
                self.voice.warn(format_args!(
                    "the service at {} is about to end: what is open may finish, and what the command connects to is reset \
                     until a service is there again",
                    shown(self.path)
                ));
            }
            // What was not asked for.
            Told::Status(_) | Told::Done { .. } => {}
        }
        None
    }

    /// Counts what was counted last, where the sums at the end were not told. Nobody is left waiting.
    pub(super) fn conclude(mut self) -> Sums {
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
