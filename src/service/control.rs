//! The control socket: who connects, what they may have, and where it is carried.
//!
//! # Theory of operation
//!
//! 1. **Bind** ([`bind`]): in a directory that nobody else can write to, under a lock that the kernel gives back
//!    whatever this process dies of. A socket that is there is taken away only if nobody listens on it.
//! 2. **Know** ([`Peer`]): who connects is what the kernel says of the connection, at the moment of connect(2): user, groups,
//!    process, and the namespaces of that process. Nothing that a client sends or is called makes a difference.
//! 3. **Bound**: so many connections for each user, and fewer that have not said yet what they want.
//! 4. **Grant** ([`Grants`]): the user's entry, or a group's. Without one the service's own user gets what it asks for, inside
//!    of the service's own policy, and nobody else gets anything.
//! 5. **Carry** ([`lanes`]): this user's own sandboxes on the runtime of the service; every other user's on a thread of that
//!    user's alone, since whoever hands a listener over can have it hold up the thread that accepts on it.

mod counted;
mod host;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use netbox_config::{Granted, Policy};
use netbox_launcher::peer::{self, Namespace};
use netbox_proxy::Outer;
use netbox_proxy::events::Events;
use netbox_proxy::facts::Listening;
use netbox_proxy::service::attach::{self, REQUEST_DEADLINE};
use netbox_proxy::service::channel::{self, ChannelError, Receiver, Sender};
use netbox_proxy::service::frames::encode;
use netbox_proxy::service::handed::Networks;
use netbox_proxy::service::host::{Host, Peer, UserNamespace};
use netbox_proxy::service::registry::{Asking, Tenant};
use netbox_proxy::service::wire::What::{Attach, Drain, Reload, Status, Watch};
use netbox_proxy::service::wire::{LONGEST, Refused, RefusedFor, Told, What};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use counted::{Count, Counted};

use super::grants::Grants;
use super::lanes::Lanes;
use super::service::Service;
use super::socket::ControlSocket;
use super::telling::TellingOfUsers;
use crate::outer;
use crate::say::{self, Voice};

/// How long nothing is accepted after an error that would come again at once, such as no descriptor left.
const REST: Duration = Duration::from_millis(50);

/// How often whoever watches is told.
const WATCH: Duration = Duration::from_secs(1);

/// The service, for those who connect to its socket.
pub struct Control {
    service: Arc<Service>,
    grants: RwLock<Arc<Grants>>,
    /// Counts the grants that were replaced.
    generation: AtomicU64,
    /// Held by whoever grants again: of two, the later one puts the later grants in force.
    granting: Mutex<()>,
    networks: Networks,
    user_namespace: Namespace,
    own_uid: u32,
    lanes: Lanes,
    counts: Mutex<HashMap<u32, Count>>,
    told: Mutex<TellingOfUsers>,
    /// Where the service itself listens: no connection may lead there.
    listening: Listening,
    /// What the service tells.
    events: Events,
    /// Ends all conversations.
    stop: watch::Sender<bool>,
    /// The netbox that the service itself runs in, if it does.
    outer: Option<Outer>,
    voice: Voice,
}

impl Control {
    /// Of this process. Needs the runtime.
    ///
    /// # Errors
    /// The kernel does not tell one network namespace from another.
    pub fn new(
        service: Arc<Service>,
        grants: Arc<Grants>,
        listening: Listening,
        events: &Events,
        voice: Voice,
    ) -> Result<Arc<Self>, String> {
        let own = peer::own_network().map_err(|error| {
            format!("cannot tell network namespaces apart (`SO_NETNS_COOKIE`, Linux 5.14): {error}")
        })?;
        let user_namespace =
            Namespace::own_user().map_err(|error| format!("cannot look at `/proc/self/ns/user`: {error}"))?;
        let outer = outer::here();
        Ok(Arc::new(Self {
            outer,
            service,
            grants: RwLock::new(grants),
            generation: AtomicU64::new(0),
            granting: Mutex::default(),
            networks: Networks { own, of: peer::network_of },
            user_namespace,
            own_uid: netbox_launcher::effective_uid(),
            lanes: Lanes::new(Handle::current()),
            counts: Mutex::default(),
            told: Mutex::default(),
            listening,
            events: events.clone(),
            stop: watch::Sender::new(false),
            voice,
        }))
    }

    /// Serves those who connect until `closed` is done, and those who have connected until the end. `held`: the socket's name,
    /// which is given back when nobody may connect any more.
    pub async fn serve(
        self: Arc<Self>,
        listener: UnixListener,
        held: Option<ControlSocket>,
        closed: impl Future<Output = ()>,
    ) {
        let (mut conversations, mut stop) = (JoinSet::new(), self.stop.subscribe());
        let mut closed = pin!(closed);
        loop {
            tokio::select! {
                biased;
                () = &mut closed => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(conversations.spawn(Arc::clone(&self).converse(stream))),
                    Err(error) => {
                        self.voice.detail(format_args!("control socket: {error}"));
                        sleep(REST).await;
                    }
                },
                Some(_) = conversations.join_next() => {}
            }
        }
        // The name before the socket: whoever finds it finds somebody who listens.
        drop(held);
        drop(listener);
        // An error says that nobody is left to say so.
        let _ = stop.wait_for(|stop| *stop).await;
        // Each of those that are attached is told the sums.
        let all = async { while conversations.join_next().await.is_some() {} };
        let _ = timeout(attach::LAST_WORD_DEADLINE, all).await;
        conversations.shutdown().await;
    }

    /// Ends all conversations, and what was attached by them.
    pub fn end(&self) {
        self.stop.send_replace(true);
    }

    /// Grants what these say from now on, also to those who are carried already. How many connections that ends.
    pub fn grant_anew(&self, grants: Arc<Grants>) -> usize {
        *self.grants.write().unwrap_or_else(PoisonError::into_inner) = grants;
        // After they are in force, and before anybody is looked for: who joins meanwhile sees one or the other.
        self.generation.fetch_add(1, Ordering::SeqCst);
        let tenants = self.service.registry().tenants();
        tenants.iter().map(|(_, tenant)| self.grant_again(tenant)).sum()
    }

    /// Puts what a sandbox is granted now in the place of what it was, and tells its client, if that is something else. How
    /// many connections that ends.
    fn grant_again(&self, tenant: &Tenant) -> usize {
        let _one_at_a_time = self.granting.lock().unwrap_or_else(PoisonError::into_inner);
        let Tenant { asked: Some(Asking { peer, policy: asked, outbox }), session, .. } = tenant else { return 0 };
        let granted = block_in_place(|| self.grants().held(peer)).and_then(|held| {
            session.quota().set(&held.limits);
            self.service.registry().user(peer.uid).set(&held.user_limits);
            let granted = asked.grant(std::slice::from_ref(&held.bound));
            granted.map_err(|error| Refused::new(RefusedFor::Malformed, error.to_string()))
        });
        let (policy, told) = match granted {
            Ok(Granted { policy, warnings }) => {
                let (digest, mode) = (policy.digest(), policy.mode().to_string());
                (policy, Told::Granted { policy: digest, mode, warnings })
            }
            Err(Refused { text, .. }) => (Policy::closed(), Told::Revoked { text }),
        };
        let is_new = policy.digest() != session.policy().digest();
        let ended = session.replace_policy(Arc::new(policy));
        if is_new {
            // A client that does not read is given up by whoever converses with it.
            let _ = outbox.say(&told);
        }
        ended
    }

    fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn converse(self: Arc<Self>, stream: UnixStream) {
        let peer = match self.who(&stream) {
            Ok(peer) => peer,
            // Gone again.
            Err(error) => return self.voice.detail(format_args!("control socket: {error}")),
        };
        let (receiver, sender) = channel::split(stream);
        let ended = match Counted::enter(&self, peer.uid) {
            Ok(counted) => self.listen(&peer, receiver, sender, counted).await,
            Err(refused) => {
                attach::refuse(&sender, refused.clone()).await;
                Err(refused)
            }
        };
        // What could not be read anew was said where that was tried.
        if let Err(refused) = ended
            && refused.reason != RefusedFor::Failed
            && let Some(untold) = self.told().tell(peer.uid)
        {
            let (uid, pid) = (peer.uid, peer.pid);
            // What it says of the client's words is quoted and cut already.
            say::note(format_args!("control socket: uid {uid}, pid {pid}: {}: {}", refused.reason, refused.text));
            if untold > 0 {
                say::note(format_args!("control socket: {untold} more refusals of uid {uid} before that"));
            }
        }
    }

    /// Hears what is wanted, and does it.
    async fn listen(
        &self,
        peer: &Peer,
        mut receiver: Receiver,
        sender: Sender,
        mut counted: Counted<'_>,
    ) -> Result<(), Refused> {
        let wanted = match timeout(REQUEST_DEADLINE, receiver.receive_first(LONGEST)).await {
            Err(_) => Err(Refused::new(RefusedFor::Timeout, "nothing was asked for in time")),
            Ok(Ok(None) | Err(ChannelError::Io(_))) => return Ok(()),
            Ok(Err(ChannelError::Wire(error))) => Err(error.into()),
            Ok(Ok(Some(frame))) => frame.read_hello().map_err(Refused::from),
        };
        let asked = match wanted.map(|hello| hello.what) {
            Ok(What::Attach) if self.service.is_draining() => {
                Err(Refused::new(RefusedFor::Draining, "the service is about to end"))
            }
            Ok(What::Attach) => return attach::attach(self, peer, receiver, sender, || counted.speak()).await,
            Ok(what) => {
                counted.speak();
                let mut ends = self.ends();
                tokio::select! {
                    answered = self.answer(peer, what, receiver, &sender) => answered,
                    _ = async { ends.wait_for(|ends| *ends).await.is_ok() } => Ok(()),
                }
            }
            Err(refused) => Err(refused),
        };
        if let Err(refused) = &asked {
            attach::refuse(&sender, refused.clone()).await;
        }
        asked
    }

    /// Answers what is no request to attach.
    async fn answer(&self, peer: &Peer, what: What, mut receiver: Receiver, sender: &Sender) -> Result<(), Refused> {
        // See there: a handle besides what the kernel says.
        let is_own = |shown: &Vec<OwnedFd>| matches!(&shown[..], [handle] if self.is_own_user_namespace(handle));
        let is_here = peer.user_namespace != UserNamespace::Another && is_own(&receiver.take_descriptors());
        if !is_here {
            let text = "who asks is in another user namespace than the service, or that cannot be told";
            return Err(Refused::new(RefusedFor::Namespace, text));
        }
        let is_owner = peer.uid == self.own_uid || peer.uid == 0;
        let told = match what {
            Status => return self.tell_status(peer, is_owner, sender).await,
            Watch => {
                let telling = async {
                    loop {
                        self.tell_status(peer, is_owner, sender).await?;
                        sleep(WATCH).await;
                    }
                };
                // Nothing more is to come: what does, or the end, is the end.
                return tokio::select! {
                    told = telling => told,
                    _ = receiver.receive(LONGEST) => Ok(()),
                };
            }
            _ if !is_owner => {
                return Err(Refused::new(RefusedFor::User, "that is for whoever runs the service, and for root"));
            }
            Reload => self.service.reload().await.map_err(|why| Refused::new(RefusedFor::Failed, why))?,
            Drain => self.service.drain().await,
            Attach => return Ok(()),
        };
        tell(sender, &Told::Done { text: told }).await;
        Ok(())
    }

    async fn tell_status(&self, peer: &Peer, is_owner: bool, sender: &Sender) -> Result<(), Refused> {
        let status = self.service.status((!is_owner).then_some(peer.uid));
        match tell(sender, &Told::Status(Box::new(status))).await {
            true => Ok(()),
            false => Err(Refused::new(RefusedFor::Timeout, "the answer is not read")),
        }
    }

    /// Who is at the other end.
    fn who(&self, stream: &UnixStream) -> std::io::Result<Peer> {
        let peer = peer::Peer::of(stream)?;
        let user_namespace = match peer.user_namespace() {
            Some(namespace) if namespace == self.user_namespace => UserNamespace::Own,
            Some(_) => UserNamespace::Another,
            None => UserNamespace::Untold,
        };
        Ok(Peer { uid: peer.uid, groups: peer.groups, pid: peer.pid, user_namespace })
    }

    fn told(&self) -> MutexGuard<'_, TellingOfUsers> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<u32, Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells it, if it is read in time.
async fn tell(sender: &Sender, told: &Told) -> bool {
    matches!(timeout(attach::LAST_WORD_DEADLINE, sender.send(&encode(told))).await, Ok(Ok(())))
}
