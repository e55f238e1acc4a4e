//! One attached sandbox, from its request to its end.
//!
//! # Theory of operation
//!
//! 1. **Ask.** The request comes whole within [`REQUEST_DEADLINE`], or not at all.
//! 2. **Check.** The descriptors are the listeners of one sandbox ([`handed`]), which nobody else has attached.
//! 3. **Grant.** The owner of the service says what the user may have at most; what is asked for inside of that is the
//!    policy. One rule that makes no sense refuses all.
//! 4. **Carry.** The session serves the listeners as it does anywhere. The client's questions are answered meanwhile.
//! 5. **End.** When the client says that the sandbox has ended, what was sent is still delivered, and the sums are told. They
//!    are told too when the service ends. When the connection ends without a word, everything ends with it.
//!
//! The client is not waited for by anybody but its own tasks: what it does not read is dropped or ends it, and questions
//! beyond [`MESSAGES`] wait.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netbox_config::Granted;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::channel::{ChannelError, Receiver, Sender};
use super::frames::encode;
use super::handed::{self, HandedOver};
use super::host::{Host, Peer, UserNamespace};
use super::outlet::Outbox;
use super::registry::{Asking, Claim, MOST_OF_REQUESTS, NoClaim, Tenant, TenantKind};
use super::wire::{Asker, Attach, LONGEST, LONGEST_ATTACH, NamesUsed, Refused, RefusedFor, Said, Sums, Told};
use crate::budget::{Allowance, Budget};
use crate::callers::{Callers, Connect};
use crate::dns::SyntheticTable;
use crate::events::{Events, Outlet, Process, SessionId, Totals};
use crate::serve::{Listeners, serve_until};
use crate::session::Session;

/// How long the request may take, from the first byte of the conversation.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// How long a last word may take to be read.
pub const LAST_WORD_DEADLINE: Duration = Duration::from_secs(5);

/// How long the end of a sandbox's connections may take before something must be holding it up.
const STUCK: Duration = Duration::from_secs(1);

/// How many bytes of the name that a sandbox gives itself are kept.
const LONGEST_NAME: usize = 256;

/// How many messages a client may send: so many at once, and then 10,000 a second.
const MESSAGES: Allowance = Allowance { most: 10_000, refill: Duration::from_micros(100) };

/// How long one that sends more is not read.
const REST: Duration = Duration::from_millis(10);

/// How many connects may be under way whose ends are to be told.
const CONNECTS: usize = 1024;

/// Refuses a client, whoever it is, and waits a moment for it to read that.
pub async fn refuse(sender: &Sender, refused: Refused) {
    let frame = encode(&Told::Refused(refused));
    let _ = timeout(LAST_WORD_DEADLINE, sender.send(&frame)).await;
}

/// Carries the sandbox of a client that wants to attach one, until its end. Dropping it ends the sandbox's connections.
/// `spoken` is called once the request has come.
///
/// # Errors
/// Why it is not carried, or no more. The client has been told.
pub async fn attach(
    host: &dyn Host,
    peer: &Peer,
    mut receiver: Receiver,
    sender: Sender,
    spoken: impl FnOnce(),
) -> Result<(), Refused> {
    let asked = timeout(REQUEST_DEADLINE, receiver.receive(LONGEST_ATTACH)).await;
    spoken();
    let admitted = match asked {
        Err(_) => Err(Refused::new(RefusedFor::Timeout, "the request took too long")),
        Ok(Err(ChannelError::Io(_)) | Ok(None)) => return Ok(()),
        Ok(Err(ChannelError::Wire(error))) => Err(error.into()),
        Ok(Ok(Some(frame))) => {
            let bytes = frame.text.len();
            frame.read_attach().map_err(Refused::from).and_then(|(attach, descriptors)| {
                let handed = handed::check(descriptors, &host.networks())?;
                admit(host, peer, attach, bytes, handed)
            })
        }
    };
    let carried = match admitted {
        Ok(admitted) => carry(host, peer, admitted, receiver, &sender).await,
        Err(refused) => Err(refused),
    };
    if let Err(refused) = &carried {
        refuse(&sender, refused.clone()).await;
    }
    carried
}

/// What is carried.
struct Admitted {
    attach: Attach,
    session: SessionId,
    listeners: Listeners,
    generation: u64,
    granted: Granted,
    claim: Claim,
}

/// `bytes`: those of the request.
fn admit(
    host: &dyn Host,
    peer: &Peer,
    mut attach: Attach,
    bytes: usize,
    handed: HandedOver,
) -> Result<Admitted, Refused> {
    let shown = handed.user_namespace.as_ref();
    let is_here =
        peer.user_namespace != UserNamespace::Another && shown.is_some_and(|handle| host.is_own_user_namespace(handle));
    if !is_here {
        let text = "the client is in another user namespace than the service, or that cannot be told";
        return Err(Refused::new(RefusedFor::Namespace, text));
    }
    let malformed = |text: String| Refused::new(RefusedFor::Malformed, text);
    let session = attach.session.parse::<SessionId>().map_err(|error| malformed(error.to_string()))?;
    attach.argv0.truncate(attach.argv0.floor_char_boundary(LONGEST_NAME));
    // Before the policy is made: that is what takes the memory.
    let descriptors = attach.descriptors.len();
    let claim = host.registry().claim(handed.network, peer.uid, bytes, descriptors).map_err(|why| match why {
        NoClaim::Taken => {
            Refused::new(RefusedFor::Attached, "these listeners are of a sandbox that is attached already")
        }
        NoClaim::TooMuch => {
            let mebibytes = MOST_OF_REQUESTS >> 20;
            let text = format!("the policies of this user's sandboxes come to more than {mebibytes} MiB");
            Refused::new(RefusedFor::Limit, text)
        }
        NoClaim::NoDescriptors => no_descriptors(),
    })?;
    let generation = host.generation();
    let granted = host.grant(peer, &attach.policy)?;
    Ok(Admitted { attach, session, listeners: handed.listeners, generation, granted, claim })
}

fn no_descriptors() -> Refused {
    Refused::new(RefusedFor::Limit, "this user's sandboxes have as many descriptors of the service as they may have")
}

async fn carry(
    host: &dyn Host,
    peer: &Peer,
    admitted: Admitted,
    mut receiver: Receiver,
    sender: &Sender,
) -> Result<(), Refused> {
    let Admitted { attach, session: id, listeners, generation, granted, claim: _claim } = admitted;
    let policy = Arc::new(granted.policy);
    let outbox = Arc::new(Outbox::new(attach.events));
    let mut outlets = host.outlets(peer, id);
    outlets.push(Arc::clone(&outbox) as Arc<dyn Outlet>);
    let events = Events::told_to(outlets, id, attach.first_id);
    let mut session = host.session(peer, Arc::clone(&policy), events.clone(), &listeners);
    if events.are_written() {
        session.callers = Callers::with_room_for(CONNECTS);
    }
    begin_after(&mut session, attach.names);
    let session = Arc::new(session);
    // Before anybody can grant something else, who tells of it afterwards.
    let (mode, warnings) = (policy.mode().to_string(), granted.warnings);
    let unread = |_| Refused::new(RefusedFor::Limit, "the answers are not read");
    outbox.say(&Told::Granted { policy: policy.digest(), mode, warnings }).map_err(unread)?;
    let asked = Asking { peer: peer.clone(), policy: attach.policy, outbox: Arc::clone(&outbox) };
    let registration = host.registry().enter(Tenant {
        kind: TenantKind::Sandbox,
        uid: Some(peer.uid),
        pid: Some(peer.pid),
        name: attach.argv0,
        asked: Some(asked),
        session: Arc::clone(&session),
        since: SystemTime::now(),
    });
    host.joined(registration.tenant(), generation);

    let lane = host.lane(peer)?;
    let copies = if lane.is_users_own { listeners.copies() } else { Ok(Vec::new()) };
    let copies = copies.map_err(|error| Refused::new(RefusedFor::Limit, format!("no descriptor is left: {error}")))?;
    let user = host.registry().user(peer.uid);
    let held = user.share().and_then(|share| share.hold(copies.len() as u64));
    let _held = held.ok_or_else(no_descriptors)?;
    let (departed, departure) = oneshot::channel::<()>();
    let served = serve_until(Arc::clone(&session), listeners, async {
        // Dropped without a word, the sandbox is gone too.
        let _ = departure.await;
    });
    let mut served = Served { task: lane.runtime.spawn(served), copies };
    let conversation = Conversation { session: &session, outbox: &outbox, connects: HashMap::new() };
    let ended = converse(conversation, departed, &mut served, host.ends(), &mut receiver, sender).await;
    served.end().await;
    ended
}

/// Until the sandbox has ended and its client has been told all, or the connection is over.
async fn converse(
    mut conversation: Conversation<'_>,
    departed: oneshot::Sender<()>,
    served: &mut Served,
    mut ends: watch::Receiver<bool>,
    receiver: &mut Receiver,
    sender: &Sender,
) -> Result<(), Refused> {
    let Conversation { session, outbox, .. } = conversation;
    let mut departed = Some(departed);
    let mut delivered = pin!(outbox.deliver(sender, || sums(session)));
    let budget = Budget::new(MESSAGES);
    let mut drained = pin!(session.closed());
    let mut is_draining = false;
    loop {
        tokio::select! {
            // The client does not read, or is gone: what it says next is not heard any more.
            _ = &mut delivered => return Ok(()),
            ended = &mut served.task => {
                if departed.is_none() {
                    break;
                }
                // A listener that the runtime cannot use, or a fault of ours: no network rather than half of one.
                let text = ended.map_or_else(|error| error.to_string(), |served| match served {
                    Ok(()) => "it ended by itself".to_owned(),
                    Err(error) => error.to_string(),
                });
                return Err(Refused::new(RefusedFor::Descriptors, format!("the listeners cannot be served: {text}")));
            }
            // Nobody is left to say so: then it does not end.
            true = async { ends.wait_for(|ends| *ends).await.is_ok() }, if departed.is_some() => {
                served.end().await;
                break;
            }
            // What had connected before has been taken: what connects from now on is the client's.
            () = &mut drained, if !is_draining => {
                is_draining = true;
                let unread = |_| Refused::new(RefusedFor::Limit, "the answers are not read");
                outbox.say(&Told::Draining {}).map_err(unread)?;
            }
            frame = receiver.receive(LONGEST) => {
                let frame = match frame {
                    // The lease has ended.
                    Ok(None) | Err(ChannelError::Io(_)) => return Ok(()),
                    Ok(Some(frame)) => frame,
                    Err(ChannelError::Wire(error)) => return Err(error.into()),
                };
                match frame.read::<Said>()? {
                    Said::End {} => {
                        if let Some(departed) = departed.take() {
                            let _ = departed.send(());
                        }
                    }
                    said => conversation.hear(said)?,
                }
                while !budget.take() {
                    sleep(REST).await;
                }
            }
        }
    }
    let (summary, events_dropped) = (Box::new(session.events.summary()), session.events.dropped());
    outbox.say_last(&Told::Summary { summary, events_dropped });
    let _ = timeout(LAST_WORD_DEADLINE, delivered).await;
    Ok(())
}

/// The serving of a sandbox, which ends with this.
struct Served {
    task: JoinHandle<std::io::Result<()>>,
    copies: Vec<OwnedFd>,
}

impl Served {
    /// Ends it. Whoever handed a listener over has it open too, and can make it a blocking one at any moment, for both: then
    /// accept(2) waits although something was there a moment ago, and with it the thread that carries this user's sandboxes.
    /// A listener that is shut down wakes it.
    async fn end(&mut self) {
        self.task.abort();
        if self.task.is_finished() || timeout(STUCK, &mut self.task).await.is_ok() {
            return;
        }
        for copy in &self.copies {
            let _ = rustix::net::shutdown(copy, rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an attached client has said.
struct Conversation<'a> {
    session: &'a Session,
    outbox: &'a Outbox,
    /// Those that it will tell the end of.
    connects: HashMap<u64, Connect>,
}

impl Conversation<'_> {
    fn hear(&mut self, said: Said) -> Result<(), Refused> {
        match said {
            Said::Judge { n, destination, process } => {
                // What is for a door of netbox's own says later what it wants.
                let is_own = destination.ip().to_canonical().is_loopback();
                let allow = is_own || self.session.may_connect(destination, || process.map(Process::from));
                if let Some(connect) = self.session.callers.begin(destination).filter(|_| allow) {
                    self.connects.insert(n, connect);
                }
                if self.connects.len() > CONNECTS {
                    return Err(Refused::new(RefusedFor::Limit, "too many connects are under way"));
                }
                let unread = |_| Refused::new(RefusedFor::Limit, "the answers are not read");
                self.outbox.say(&Told::Verdict { n, allow }).map_err(unread)?;
            }
            Said::Connected { n, source, process } => {
                if let Some(connect) = self.connects.remove(&n) {
                    connect.made(source, Box::new(move || process.map(Process::from)));
                }
            }
            Said::Failed { n } => drop(self.connects.remove(&n)),
            Said::RefusedUdp { destination } => self.session.note_udp_refused(destination),
            // The end is heard elsewhere.
            Said::End {} => {}
        }
        Ok(())
    }
}

impl From<Asker> for Process {
    fn from(Asker { pid, exe }: Asker) -> Self {
        Self { pid, exe }
    }
}

/// The sums as they are.
fn sums(session: &Session) -> Sums {
    let Totals { allowed, denied, malformed, failed } = session.events.totals();
    let (listed, refused) = session.names.synthetic.used();
    Sums { allowed, denied, malformed, failed, names: NamesUsed { listed, refused } }
}

/// Addresses that stood for names of the sandbox before stand for none from now on.
fn begin_after(session: &mut Session, used: NamesUsed) {
    if used == NamesUsed::default() {
        return;
    }
    if let Some(names) = Arc::get_mut(&mut session.names) {
        names.synthetic = SyntheticTable::beginning_after(used.listed, used.refused);
    }
}

#[cfg(test)]
mod tests;
