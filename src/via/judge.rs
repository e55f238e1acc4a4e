//! Connects of the sandbox, judged by the service: asked over the control connection, and waited for a bounded time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use netbox_launcher::{Caller, EXPLICIT_PORT, Identity, Judge, Made};
use netbox_proxy::service::wire::Asker;
use netbox_proxy::{ANSWERED_PORTS, Session};
use tokio::sync::mpsc::UnboundedSender;

use crate::connects;

/// How long the program that connects waits for the answer. None is a refusal.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is to be said to the service.
pub enum Word {
    /// May a program connect there? The answer goes to whoever asked.
    Judge { destination: SocketAddr, process: Option<Asker>, answer: SyncSender<Answer> },
    /// The connect with that number was made.
    Connected { n: u64, source: SocketAddr, caller: Caller },
    /// It was not.
    Failed { n: u64 },
    /// The rules inside refused a datagram.
    RefusedUdp { destination: SocketAddr },
}

/// An answer of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may be made; the number is for what becomes of it.
    Allow(u64),
    Refuse,
    /// Nobody is there.
    Away,
}

/// Judges connects: by the service what it carries, by `local` what leads to the user's own ports. Whose they are is told
/// where `told` says that somebody wants to know.
pub fn judge(words: UnboundedSender<Word>, local: &Arc<Session>, told: bool) -> Box<Judge> {
    let local = connects::judge(local);
    Box::new(move |destination, who| {
        let is_loopback = destination.ip().is_loopback();
        if is_loopback && destination.port() != EXPLICIT_PORT {
            return local(destination, who);
        }
        // Those that are answered in their own protocol are judged when they arrive.
        let is_judged = !is_loopback && !ANSWERED_PORTS.contains(&destination.port());
        if !is_judged && !told {
            return Ok(None);
        }
        let process = if is_judged && told { who().map(asker) } else { None };
        match ask(&words, destination, process) {
            Answer::Allow(n) if told => Ok(Some(Connect { words: words.clone(), n: Some(n) }.into_made())),
            Answer::Allow(_) => Ok(None),
            Answer::Refuse => Err(libc::EACCES),
            // What is answered when it arrives is then reset; all else learns here that there is no network.
            Answer::Away if is_judged => Err(libc::ENETUNREACH),
            Answer::Away => Ok(None),
        }
    })
}

fn ask(words: &UnboundedSender<Word>, destination: SocketAddr, process: Option<Asker>) -> Answer {
    let (answer, answered) = sync_channel(1);
    if words.send(Word::Judge { destination, process, answer }).is_err() {
        return Answer::Away;
    }
    answered.recv_timeout(PATIENCE).unwrap_or(Answer::Away)
}

/// A connect that the service waits to hear of.
struct Connect {
    words: UnboundedSender<Word>,
    n: Option<u64>,
}

impl Connect {
    fn into_made(mut self) -> Made {
        Box::new(move |source, caller| {
            if let Some(n) = self.n.take() {
                let _ = self.words.send(Word::Connected { n, source, caller });
            }
        })
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if let Some(n) = self.n.take() {
            let _ = self.words.send(Word::Failed { n });
        }
    }
}

/// A process as it is told to the service. A path is text of any kind.
pub fn asker(identity: Identity) -> Asker {
    Asker { pid: identity.pid, exe: identity.exe.map(|exe| exe.to_string_lossy().into_owned()) }
}
