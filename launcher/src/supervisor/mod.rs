//! The wall against unix sockets that have a path: every `connect(2)` and `listen(2)` of the sandbox is supervised.
//!
//! # Theory of operation
//!
//! A network namespace does not cut unix sockets that lie in the file system. Through one of them a program would ask
//! a service of the host to do what it must not do itself, and such sockets come and go anywhere a user may write. So
//! the command's system-call filter traps two calls, for the command and all that it starts, and netbox answers them
//! from outside (seccomp_unotify(2)):
//!
//! * `listen`: if the socket is a unix socket of the sandbox, bound to a file, then that file is the sandbox's own. Its
//!   inode is remembered, and pinned by a path handle so that its number comes to mean no other ([`inodes`]). The kernel
//!   then performs the call. Only sockets that listen can be connected to, so this set is all that the sandbox may reach.
//! * `connect`: netbox takes a copy of the socket and of the address, and performs the call itself, on what it has
//!   looked at ([`connect`]). A path is resolved in the view of the process ([`resolve`]) to a path handle; what that
//!   handle refers to must be in the set, and is what is then connected to, however the names change meanwhile.
//!
//! Never may the kernel go on with a `connect` after a look at its arguments: between the look and the call another
//! thread can put another socket in the place of the descriptor, or another address into the memory, and does it in a
//! few milliseconds when it tries. So internet sockets are connected by netbox too. They belong to the sandbox's network
//! wherever they are connected from, and are captured there. Going on with `listen` is harmless: who swaps the descriptor
//! ends up with a listening socket that is not in the set.
//!
//! As real root, the command may become other users. A connect is then made as the user who makes it, since the file must
//! be open to that user, and the peer asks who it is (SO_PEERCRED).
//!
//! A datagram socket takes an address with each message, in memory that no filter can see. So the filter refuses unix
//! datagram sockets (EACCES), and what `socketpair` makes of that type is a pair of type SEQPACKET instead ([`pairs`]).
//!
//! A Landlock domain of a program's own would not bind a connect that netbox makes. So `landlock_create_ruleset` is
//! supervised too: inside, Landlock is of a version that knows nothing of networks ([`landlock`]).
//!
//! So is RLIMIT_CORE, since a limit of 0 would have the kernel start the host's handler of core dumps ([`core_limit`]).
//!
//! What a program can notice: a connection's peer sees pid 0 in SO_PEERCRED; a connect that waits is interrupted by
//! signals that kill and no other; a pair of datagram sockets reads end of file when one end is closed. One such filter
//! can be in force for a process: a second one is refused by the kernel (EBUSY). So a netbox inside a netbox has none; the
//! one around it supervises all that is inside, and keeps the two apart ([`walls`]).
//!
//! If netbox dies, so does the sandbox; in between, the calls fail with ENOSYS. A call that netbox cannot understand, or
//! has no thread left for, fails too. [`pool`] has the threads.
//!
//! What it costs (`benches/connects.rs`; three runs on two processors, Linux 6.18): a TCP connect over loopback 43 to 46 us
//! instead of 15 to 21, a unix connect 18 to 31 instead of 3 to 4. With 32 threads 26,000 connects a second instead of
//! 33,000 to 53,000 (TCP), and 24,000 to 39,000 instead of 90,000 to 154,000 (unix).
//!
//! Linux 7.1 can do the unix part by itself (Landlock, LANDLOCK_ACCESS_FS_RESOLVE_UNIX). Connects would be supervised
//! there too, for the judge below, so that this wall stands on every kernel alike.

mod caller;
mod connect;
mod core_limit;
mod host;
mod inodes;
mod judge;
mod landlock;
mod listen;
mod notification;
pub(crate) mod pairs;
mod pool;
mod proof;
mod resolve;
mod target;
mod walls;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{io, thread};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

pub use caller::{Caller, Identity};
pub use inodes::AllowedSocket;
pub use judge::{Judge, Made};
pub(crate) use proof::{ask_for_a_wall, is_supervised, prove};

use crate::error::{At, Failure, Step};
use crate::message::{Channel, Report};
use crate::sys;
use inodes::Inodes;
use notification::{Listener, Notification};
use pool::Pool;
use target::Target;
use walls::Walls;

/// What the answers are made from.
struct Supervisor {
    networks: Networks,
    inodes: Inodes,
    walls: Walls,
    host: host::Sockets,
    pairs: Mutex<Channel>,
    judge: Box<Judge>,
    /// Netbox's listeners on the loopback inside.
    doors: Vec<SocketAddr>,
    /// The ports on which netbox listens on every address; none where connections are redirected to it.
    caught_ports: Vec<u16>,
}

/// What netbox knows of a sandbox.
pub(crate) struct Known {
    /// Sockets of the host that may be connected to.
    pub(crate) allowed: Vec<AllowedSocket>,
    /// Netbox's listeners on the loopback inside.
    pub(crate) doors: Vec<SocketAddr>,
    /// The ports on which netbox listens on every address.
    pub(crate) caught_ports: Vec<u16>,
}

/// Which network a socket is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// The sandbox's, which is captured.
    Sandbox,
    /// One that a program inside made. It leads nowhere.
    Below,
    /// Another one.
    Outside,
}

/// Tells networks from each other. A descriptor can come along from outside: by inheritance, or sent by a program of the
/// host's over a socket of the sandbox's.
struct Networks {
    own: u64,
    sandbox: u64,
}

impl Networks {
    fn of(&self, socket: BorrowedFd) -> Network {
        match sys::socket::network_namespace(socket) {
            Ok(network) if network == self.sandbox => Network::Sandbox,
            // Root outside administers networks of others too, but the own is the one that sockets come from.
            Ok(network) if network != self.own && sys::socket::is_administered(socket) => Network::Below,
            _ => Network::Outside,
        }
    }
}

/// The supervision of one sandbox. Ends when dropped; the threads of calls that still wait end soon after.
pub(crate) struct Supervision {
    pool: Arc<Pool>,
    /// To the first thread.
    briefing: Sender<Briefing>,
    arrival: Arc<Arrival>,
}

/// What came of the command's listener: what its process took for its own walls, as it travels; or why the listener could not
/// be received. Set once nothing more can come.
#[derive(Default)]
pub(crate) struct Arrival(OnceLock<nix::Result<String>>);

impl Arrival {
    /// What the command's process took; nothing before its walls stand.
    pub(crate) fn costs(&self) -> &str {
        self.0.get().and_then(|arrived| arrived.as_deref().ok()).unwrap_or_default()
    }

    /// Why the listener was lost, if it was: the command's process knows only that nobody answers it. To be asked when pid 1
    /// has ended, so that nothing more comes.
    pub(crate) fn fault(&self) -> Option<Failure> {
        self.0.wait().as_ref().err().map(|errno| Failure::new(Step::UnixSockets, *errno, "the listener of the command"))
    }
}

/// What the answers follow from.
struct Briefing {
    networks: Networks,
    known: Known,
    descriptors: usize,
    judge: Box<Judge>,
}

impl Supervision {
    /// Starts to wait for the command's listener, which comes on `channel` before the command may run, and for the
    /// [briefing](Self::brief). Until both are there, no call is answered.
    pub(crate) fn start(channel: Channel) -> Result<Self, Failure> {
        let step = Step::UnixSockets;
        sys::thread::make_interruptible().at(step, "sigaction")?;
        resolve::is_available().at(step, "openat2")?;
        let pool = Arc::new(Pool::default());
        let waiting = Arc::clone(&pool);
        let (briefing, briefed) = mpsc::channel::<Briefing>();
        let arrival = Arc::new(Arrival::default());
        let told = Arc::clone(&arrival);
        let begin = move || {
            let (listener, arrived) = match receive_listener(&channel) {
                Ok((listener, costs)) => (listener, Ok(costs)),
                Err(errno) => (None, Err(errno)),
            };
            let _ = told.0.set(arrived);
            // Without one, the command was never made, or may not run.
            if let (Some(listener), Ok(briefing)) = (listener, briefed.recv()) {
                waiting.run(Arc::new((Listener::new(listener), Supervisor::new(briefing, channel))));
            }
        };
        thread::Builder::new().name("supervisor".into()).spawn(begin).at(step, "a thread")?;
        Ok(Supervision { pool, briefing, arrival })
    }

    /// See there.
    pub(crate) fn arrival(&self) -> Arc<Arrival> {
        Arc::clone(&self.arrival)
    }

    /// Has calls answered from now on, once. `inside`: a socket of the sandbox's network.
    pub(crate) fn brief(&self, inside: BorrowedFd, known: Known, judge: Box<Judge>) -> Result<(), Failure> {
        let step = Step::UnixSockets;
        let own = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).at(step, "socket")?;
        let number = |socket: BorrowedFd| sys::socket::network_namespace(socket).at(step, "SO_NETNS_COOKIE");
        let networks = Networks { own: number(own.as_fd())?, sandbox: number(inside)? };
        let briefing = Briefing { networks, known, descriptors: descriptor_limit(), judge };
        // Where nobody takes it, pid 1 is gone, and what it said is the reason.
        let _ = self.briefing.send(briefing);
        Ok(())
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        self.pool.stop();
    }
}

/// With what the command's process took. No listener where none was sent.
fn receive_listener(channel: &Channel) -> nix::Result<(Option<OwnedFd>, String)> {
    match channel.next_report()? {
        Some((Report::Listener(costs), descriptors)) => {
            // It was sent, and this process may have no more of them.
            let listener = descriptors.into_iter().next().ok_or(Errno::EMFILE)?;
            Ok((Some(listener), costs))
        }
        _ => Ok((None, String::new())),
    }
}

/// How many descriptors this process may have: each listening socket of the sandbox costs one. The limit is raised before
/// ([`become_carrier`](crate::become_carrier)).
fn descriptor_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

impl Supervisor {
    fn new(Briefing { networks, known, descriptors, judge }: Briefing, channel: Channel) -> Self {
        let Known { allowed, doors, caught_ports } = known;
        Self {
            networks,
            inodes: Inodes::new(allowed, descriptors),
            walls: Walls::default(),
            host: host::Sockets::default(),
            pairs: Mutex::new(channel),
            judge,
            doors,
            caught_ports,
        }
    }

    /// Answers one call. `crowded`: no thread is left for another one, so that this one must not wait.
    fn answer(&self, notification: Notification, crowded: bool) {
        let call = notification.request().call;
        let answer = match call {
            libc::SYS_connect => self.connect(&notification, crowded).map(|()| 0),
            libc::SYS_landlock_create_ruleset => match landlock::judge(&notification) {
                Some(answer) => answer,
                None => return notification.go_on(),
            },
            libc::SYS_setrlimit | libc::SYS_prlimit64 => match core_limit::judge(&notification) {
                Some(answer) => answer,
                None => return notification.go_on(),
            },
            libc::SYS_listen => {
                // Whatever it was, the kernel may go on: at worst the socket is not in the set.
                self.listen(&notification);
                return notification.go_on();
            }
            libc::SYS_socketpair => self.make_pair(&notification).map(|()| 0),
            _ => Err(Errno::ENOSYS),
        };
        notification.answer(answer);
    }

    fn pairs(&self) -> std::sync::MutexGuard<'_, Channel> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn io_to_errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EACCES, Errno::from_raw)
}
