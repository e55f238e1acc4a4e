//! `netbox run --via unix:PATH`: the shared service carries the sandbox's connections.
//!
//! # Theory of operation
//!
//! Everything of the sandbox is here as ever: namespaces, rules, the command. Its listeners are the service's, which judges
//! and dials, and this process asks it about connects. What is the user's own stays here: ports of this machine that were
//! opened into the sandbox, and ports of the sandbox that were opened here.
//!
//! 1. **Call** ([`Call::place`]), before anything is built: the socket's directory is one in which nobody but its owner can
//!    put a socket, whoever listens is that owner, root or this user, and it is in the namespaces of this process.
//! 2. **Attach** ([`Call::attach`]): the policy is asked for, and the listeners are handed over.
//! 3. **Hold** ([`lease`]): the connection is the lease, for both sides. When the service is gone there is no network
//!    until it is back; when it refuses, the run is over.

mod conversation;
pub mod judge;
pub mod lease;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netbox_config::{AskedPolicy, Policy};
use netbox_launcher::peer::{self, Namespace, Peer};
use netbox_proxy::Listeners;
use netbox_proxy::events::SessionId;
use netbox_proxy::service::channel::{self, Receiver, Sender};
use netbox_proxy::service::frames::encode;
use netbox_proxy::service::wire::{
    Attach, Handed, Hello, LONGEST_ATTACH, NamesUsed, Refused, RefusedFor, Told, VERSION, What,
};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use tokio::time::timeout;

use crate::policy::{self, shown};
use crate::say::Voice;
use crate::{cli, variables};

/// How long the service may take for an answer to a request.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// How long it may take to take a connection.
const CONNECT_SECONDS: i64 = 5;

/// What to do inside another netbox. A service of the machine around would reach more than that one allows.
const NESTED: &str = "inside another netbox there is no service of the machine around: give `--via` to the outer `netbox run`, or \
                      start a service in here, which asks the outer netbox";

/// Why the service does not carry the sandbox.
#[derive(Clone, Debug)]
pub struct NotCarried {
    pub text: String,
    pub hint: Option<String>,
    /// Whether it may be another matter in a moment.
    pub is_passing: bool,
}

impl NotCarried {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None, is_passing: false }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn passing(self) -> Self {
        Self { is_passing: true, ..self }
    }
}

impl From<Refused> for NotCarried {
    fn from(refused: Refused) -> Self {
        let is_passing = matches!(
            refused.reason,
            RefusedFor::Attached | RefusedFor::Draining | RefusedFor::Limit | RefusedFor::Timeout
        );
        let text = worded(&refused.text);
        let hint = match refused.reason {
            RefusedFor::Namespace if netbox_launcher::is_nested() => Some(NESTED.to_owned()),
            _ => refused.hint.map(|hint| netbox_config::escaped(hint.as_bytes()).to_string()),
        };
        Self { text: format!("the service refuses: {text}"), hint, is_passing }
    }
}

/// Why, in words of another process, which may have none.
fn worded(text: &str) -> String {
    match text.trim() {
        "" => "it does not say why".to_owned(),
        text => netbox_config::escaped(text.as_bytes()).to_string(),
    }
}

/// Tells what the service has to say about what it granted.
pub fn tell(warnings: &[String], voice: Voice) {
    warnings.iter().for_each(|warning| {
        voice.warn(format_args!("the service: {}", netbox_config::escaped(warning.as_bytes())));
    });
}

/// The path that the flag, or else the environment, gives.
///
/// # Errors
/// It is none.
pub fn path(flag: Option<&PathBuf>) -> Result<Option<PathBuf>, String> {
    if let Some(path) = flag {
        return Ok(Some(path.clone()));
    }
    let Some(text) = std::env::var_os(variables::VIA).filter(|text| !text.is_empty()) else { return Ok(None) };
    let path = text.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(cli::unix_path);
    path.map(Some).map_err(|why| format!("{}: {why}", variables::VIA))
}

/// A service that listens, and is whom it should be.
#[derive(Debug)]
pub struct Call {
    path: PathBuf,
    stream: UnixStream,
}

/// What is asked for, as often as that has to be.
#[derive(Clone, Debug)]
pub struct Wish {
    pub session: SessionId,
    pub argv0: OsString,
    pub policy: AskedPolicy,
    pub events: bool,
    pub first_id: u64,
    pub names: NamesUsed,
}

impl Wish {
    pub fn new(session: SessionId, argv0: OsString, policy: &Policy, events: bool) -> Self {
        let policy = AskedPolicy::of(policy);
        Self { session, argv0, policy, events, first_id: 1, names: NamesUsed::default() }
    }
}

/// What the service granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The policy's digest.
    pub policy: String,
    pub mode: String,
    pub warnings: Vec<String>,
}

/// An attached sandbox's control connection.
#[derive(Debug)]
pub struct Attached {
    pub receiver: Receiver,
    pub sender: Sender,
    pub grant: Grant,
}

impl Call {
    /// Connects, and finds out who is there. It may wait for a moment.
    ///
    /// # Errors
    /// Nobody is there, or somebody who must not be believed.
    pub fn place(path: &Path) -> Result<Self, NotCarried> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(NotCarried::new(format!("{} is a directory", shown(path))));
        };
        let (directory, owner) = policy::directory_of_one(directory).map_err(|refused| NotCarried {
            text: refused.text,
            hint: refused.hint.or_else(|| Some("start the service, or name its socket: `--via unix:PATH`".to_owned())),
            // It may be made anew with the service.
            is_passing: true,
        })?;
        let at = directory.join(name);
        let stream = dial(&at).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    format!("start it: `netbox proxy serve --listen unix:{}`", at.display())
                }
                _ if netbox_launcher::is_nested() => NESTED.to_owned(),
                _ => "ask whoever runs the service for access".to_owned(),
            };
            NotCarried::new(format!("no service listens on {}: {error}", shown(&at))).hint(hint).passing()
        })?;
        let cannot = |error: io::Error| NotCarried::new(format!("cannot tell who listens on {}: {error}", shown(&at)));
        let peer = Peer::of(&stream).map_err(cannot)?;
        let own = netbox_launcher::effective_uid();
        if ![own, owner, 0].contains(&peer.uid) {
            let text = format!("uid {} listens on {}, whose directory is of uid {owner}", peer.uid, shown(&at));
            return Err(NotCarried::new(text));
        }
        // Root's processes, and other users', may not be looked at. Their word is taken for the directory that is theirs.
        let is_elsewhere = peer.user_namespace().is_some_and(|theirs| Namespace::own_user().ok() != Some(theirs))
            || peer.network_namespace().is_some_and(|theirs| Namespace::own_network().ok() != Some(theirs));
        if is_elsewhere {
            let text = format!("what listens on {} is in another user or network namespace than netbox", shown(&at));
            let hint = netbox_launcher::is_nested().then(|| NESTED.to_owned());
            return Err(NotCarried { hint, ..NotCarried::new(text) });
        }
        Ok(Self { path: path.to_owned(), stream })
    }

    /// The conversation, in which nothing has been said yet. Needs the runtime.
    ///
    /// # Errors
    /// The runtime does not take it.
    pub fn open(self) -> Result<(Receiver, Sender), NotCarried> {
        let failed = |error: io::Error| NotCarried::new(format!("cannot ask the service: {error}"));
        self.stream.set_nonblocking(true).map_err(failed)?;
        Ok(channel::split(tokio::net::UnixStream::from_std(self.stream).map_err(failed)?))
    }

    /// Has the service carry these listeners. Needs the runtime.
    ///
    /// # Errors
    /// It does not.
    pub async fn attach(self, wish: &Wish, listeners: &Listeners) -> Result<Attached, NotCarried> {
        let failed = |error: io::Error| {
            NotCarried::new(format!("the service at {} is gone: {error}", shown(&self.path))).passing()
        };
        self.stream.set_nonblocking(true).map_err(failed)?;
        let (mut receiver, sender) = channel::split(tokio::net::UnixStream::from_std(self.stream).map_err(failed)?);
        let namespace = peer::own_user_namespace().map_err(failed)?;
        let handed = handed(listeners, &namespace);
        let (kinds, descriptors): (Vec<Handed>, Vec<BorrowedFd<'_>>) = handed.into_iter().unzip();
        let request = Attach {
            session: wish.session.to_string(),
            argv0: String::from_utf8_lossy(wish.argv0.as_bytes()).into_owned(),
            policy: wish.policy.clone(),
            descriptors: kinds,
            events: wish.events,
            first_id: wish.first_id,
            names: wish.names,
        };
        let request = encode(&request);
        if request.len() > LONGEST_ATTACH {
            return Err(NotCarried::new("the policy is longer than a service takes"));
        }
        let answer = timeout(ANSWER_DEADLINE, async {
            let sent = async {
                sender.send(&encode(&Hello { v: VERSION, what: What::Attach })).await?;
                sender.send_with(&request, &descriptors).await
            };
            // It may have refused, and gone, before all was sent: what it said is still there.
            let sent = sent.await;
            match receiver.receive(LONGEST_ATTACH).await {
                Ok(Some(frame)) => Ok(frame.read::<Told>()),
                Ok(None) => Err(sent.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
                Err(error) => Err(io::Error::other(error)),
            }
        });
        match answer.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)? {
            Ok(Told::Granted { policy, mode, warnings }) => {
                Ok(Attached { receiver, sender, grant: Grant { policy, mode, warnings } })
            }
            Ok(Told::Refused(refused)) => Err(refused.into()),
            Ok(_) => Err(NotCarried::new("the service answers something else than it was asked")),
            Err(error) => Err(NotCarried::new(format!("the service does not speak as this netbox does: {error}"))),
        }
    }
}

/// What is handed over.
fn handed<'l>(listeners: &'l Listeners, namespace: &'l OwnedFd) -> Vec<(Handed, BorrowedFd<'l>)> {
    let capture = listeners.capture.iter().map(|socket| (Handed::Capture, socket.as_fd()));
    let dns_udp = listeners.dns_udp.iter().map(|socket| (Handed::DnsUdp, socket.as_fd()));
    let dns_tcp = listeners.dns_tcp.iter().map(|socket| (Handed::DnsTcp, socket.as_fd()));
    let explicit = listeners.explicit.iter().map(|socket| (Handed::Explicit, socket.as_fd()));
    let namespace = std::iter::once((Handed::UserNamespace, namespace.as_fd()));
    capture.chain(dns_udp).chain(dns_tcp).chain(explicit).chain(namespace).collect()
}

/// Connects, and does not wait for ever for a service that takes nobody.
fn dial(path: &Path) -> io::Result<UnixStream> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // The time that connect(2) waits for room in the listener's queue (unix(7)).
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(CONNECT_SECONDS, 0))?;
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_reason() {
        assert_eq!(worded("no room\u{1b}[2J"), "no room\\x1b[2J");
        assert_eq!(worded(" \n"), "it does not say why");
        let refused = NotCarried::from(Refused::new(RefusedFor::Failed, ""));
        assert_eq!(refused.text, "the service refuses: it does not say why");
    }
}
