//! What the command may inherit.
//!
//! An open descriptor wins over every namespace: a socket of the host stays in the host's network, a directory of the
//! host defeats the mounts. So from 3 up everything is closed, in every process of ours, but what was asked for by number
//! ([`passed`](crate::passed)). That, and 0, 1 and 2, are looked at:
//!
//! * files, pipes, connected unix stream and seqpacket sockets, and the harmless devices pass;
//! * a terminal stays outside: the command gets a pseudo-terminal in its place ([`terminal`](crate::terminal));
//! * an internet stream socket stays outside and is relayed through a pipe (connecting it elsewhere is a matter of two
//!   system calls);
//! * all else is refused: unix datagram and unconnected sockets, directories, other devices, and what has no file type
//!   at all (namespaces, pidfds, epoll, io_uring).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getpeername, getsockname, getsockopt, sockopt,
};
use nix::sys::stat::{SFlag, fstat, major, minor};
use nix::sys::statfs::{
    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, FsType, NSFS_MAGIC, PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs,
};
use nix::unistd::pipe2;

use crate::error::{At, Failure, Step};
use crate::inode::Inode;
use crate::protection::Protected;
use crate::relay::Relay;
use crate::sys;
use crate::terminal::Settings;

/// Closes everything from 3 up but `keep`, in the calling process.
///
/// For the very start of `main`, before anything of ours is open.
///
/// # Errors
/// close_range(2) fails (Linux 5.9).
pub fn close_inherited(keep: &[RawFd]) -> Result<(), Failure> {
    close_others(keep.to_vec()).at(Step::Descriptors, "close_range")
}

/// Closes everything from 3 up but these.
pub(crate) fn close_others(mut keep: Vec<RawFd>) -> nix::Result<()> {
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep {
        sys::close_range(first, kept - 1)?;
        first = first.max(kept + 1);
    }
    sys::close_range(first, RawFd::MAX)
}

/// Whether a descriptor of this number is open in this process.
pub fn is_open(number: RawFd) -> bool {
    sys::is_open(number)
}

/// A descriptor of our own for the file that the caller left open as `number`.
///
/// # Errors
/// `EBADF`: no such descriptor is open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    Ok(sys::duplicate(number)?)
}

/// The same, and the caller's number is closed: nothing else of this process uses it, and no program that it starts gets
/// it.
///
/// # Errors
/// `EBADF`: no such descriptor is open.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    let own = inherited(number)?;
    nix::unistd::close(number)?;
    Ok(own)
}

/// The three standard descriptors as the command will have them.
pub(crate) struct Standard {
    /// What stands in for the number, where it is not inherited as it is.
    pub(crate) replacements: [Option<OwnedFd>; 3],
    /// The pseudo-terminal that is to stand in for those that are terminals.
    pub(crate) terminal: Option<Settings>,
    relays: Vec<Relay>,
}

pub(crate) enum Verdict {
    Pass,
    Terminal,
    Relay,
    Refuse(&'static str),
}

impl Standard {
    /// Judges 0, 1 and 2 of this process. `attend`: the command is to have the terminal, if there is one.
    pub(crate) fn judge(protected: &[Protected], attend: bool) -> Result<Self, Failure> {
        let mut standard = Standard { replacements: [None, None, None], terminal: None, relays: Vec::new() };
        let mut terminals = [false; 3];
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        for (number, fd) in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].into_iter().enumerate() {
            match judge(fd, protected).at(Step::Descriptors, &format!("descriptor {number}"))? {
                Verdict::Pass => {}
                Verdict::Terminal => terminals[number] = true,
                Verdict::Refuse(what) => {
                    return Err(refusal(number as RawFd, what));
                }
                Verdict::Relay => {
                    let what = format!("a relay for descriptor {number}");
                    let socket = fd.try_clone_to_owned().at(Step::Descriptors, &what)?;
                    let (read, write) = pipe2(OFlag::O_CLOEXEC).at(Step::Descriptors, &what)?;
                    let (inside, from, to) = if number == 0 { (read, socket, write) } else { (write, read, socket) };
                    standard.replacements[number] = Some(inside);
                    standard.relays.push(Relay::new(from, to, number == 0));
                }
            }
        }
        standard.terminal = Settings::read(terminals, attend)?;
        Ok(standard)
    }

    /// The relays. The ends that belong to the command are closed here, so that end of file travels.
    pub(crate) fn into_relays(self) -> Vec<Relay> {
        drop(self.replacements);
        self.relays
    }
}

/// Why a descriptor is not handed to the command.
pub(crate) fn refusal(number: RawFd, what: &str) -> Failure {
    let detail = format!("descriptor {number} is {what}, through which the command could leave the sandbox");
    Failure::outcome(Step::Descriptors, detail)
}

pub(crate) fn judge(fd: BorrowedFd, protected: &[Protected]) -> nix::Result<Verdict> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    if flags.contains(OFlag::O_PATH) {
        return Ok(Verdict::Refuse("a path handle"));
    }
    let stat = fstat(fd)?;
    Ok(match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        // Whoever has a file open for reading can open it again for writing, on the mount that it was opened on.
        SFlag::S_IFREG if protected.iter().any(|one| one.holds(fd, Inode::of(&stat))) => {
            Verdict::Refuse("a file that decides later runs")
        }
        SFlag::S_IFREG => judge_file(fd, flags & OFlag::O_ACCMODE != OFlag::O_RDONLY || stat.st_mode & 0o222 != 0)?,
        SFlag::S_IFIFO => Verdict::Pass,
        SFlag::S_IFCHR => judge_device(major(stat.st_rdev), minor(stat.st_rdev), fd),
        SFlag::S_IFSOCK => judge_socket(fd)?,
        SFlag::S_IFDIR => Verdict::Refuse("a directory"),
        SFlag::S_IFBLK => Verdict::Refuse("a block device"),
        _ => Verdict::Refuse("neither a file nor a pipe nor a socket"),
    })
}

/// The kernel's handles and controls are regular files too, to fstat(2).
fn judge_file(fd: BorrowedFd, is_writable: bool) -> nix::Result<Verdict> {
    // linux/magic.h has it; nix does not.
    const PIDFS_MAGIC: FsType = FsType(0x5049_4446);
    let kind = fstatfs(fd)?.filesystem_type();
    let control = [PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];
    Ok(match kind {
        NSFS_MAGIC => Verdict::Refuse("a namespace handle"),
        PIDFS_MAGIC => Verdict::Refuse("a process handle"),
        _ if is_writable && control.contains(&kind) => Verdict::Refuse("a control file of the kernel"),
        _ => Verdict::Pass,
    })
}

/// Linux's `devices.txt`: 1 is memory (null 3, zero 5, full 7, random 8, urandom 9), and terminals say so themselves.
fn judge_device(major: u64, minor: u64, fd: BorrowedFd) -> Verdict {
    match (major, minor) {
        (1, 3 | 5 | 7 | 8 | 9) => Verdict::Pass,
        _ if nix::unistd::isatty(fd).unwrap_or(false) => Verdict::Terminal,
        _ => Verdict::Refuse("a device"),
    }
}

fn judge_socket(fd: BorrowedFd) -> nix::Result<Verdict> {
    let local: SockaddrStorage = getsockname(fd.as_raw_fd())?;
    let kind = getsockopt(&fd, sockopt::SockType)?;
    let connected = match getpeername::<SockaddrStorage>(fd.as_raw_fd()) {
        Ok(_) => true,
        // A pair's end whose peer has gone is connected to nobody, and can never be again.
        Err(Errno::ENOTCONN) => false,
        Err(errno) => return Err(errno),
    };
    Ok(match (local.family(), kind) {
        (Some(AddressFamily::Unix), SockType::Stream | SockType::SeqPacket) if connected => Verdict::Pass,
        (Some(AddressFamily::Unix), SockType::Stream | SockType::SeqPacket) => {
            Verdict::Refuse("an unconnected unix socket")
        }
        (Some(AddressFamily::Unix), _) => Verdict::Refuse("a unix datagram socket"),
        (Some(AddressFamily::Inet | AddressFamily::Inet6), SockType::Stream) if connected => Verdict::Relay,
        _ => Verdict::Refuse("a socket of the host's network"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    fn refused(fd: impl AsFd) -> Option<&'static str> {
        match judge(fd.as_fd(), &[]).unwrap() {
            Verdict::Refuse(what) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn files_pipes_and_connected_unix_streams_pass() {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let null = File::open("/dev/null").unwrap();
        for fd in [read.as_fd(), write.as_fd(), one.as_fd(), other.as_fd(), file.as_fd(), null.as_fd()] {
            assert!(matches!(judge(fd, &[]).unwrap(), Verdict::Pass));
        }
    }

    #[test]
    fn an_internet_stream_is_relayed_and_other_internet_sockets_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(matches!(judge(stream.as_fd(), &[]).unwrap(), Verdict::Relay));
        assert!(refused(&listener).is_some());
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagram.connect("127.0.0.1:9").unwrap();
        assert!(refused(&datagram).is_some());
    }

    #[test]
    fn what_reaches_the_host_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(refused(File::open(directory.path()).unwrap()), Some("a directory"));
        assert!(refused(UnixDatagram::pair().unwrap().0).is_some());
        assert!(refused(UnixListener::bind(directory.path().join("socket")).unwrap()).is_some());
        let namespace = File::open("/proc/self/ns/net").unwrap();
        let control = File::options().write(true).open("/proc/self/oom_score_adj").unwrap();
        let epoll = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty()).unwrap();
        assert_eq!(refused(&epoll.0), Some("neither a file nor a pipe nor a socket"));
        assert_eq!(refused(&namespace), Some("a namespace handle"));
        assert!(refused(&control).is_some());
        let reopened = File::open("/proc/self/oom_score_adj").unwrap();
        assert!(refused(&reopened).is_some(), "it can be opened again for writing");
        assert_eq!(refused(File::open("/proc/self/status").unwrap()), None, "reading tells no more than a pipe would");
    }

    #[test]
    fn a_file_that_decides_later_runs_is_refused_by_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("netbox/trust")).unwrap();
        for name in ["netbox/config.toml", "netbox/trust/one.json", "netbox.toml", "other"] {
            std::fs::write(top.join(name), "").unwrap();
        }
        std::fs::hard_link(top.join("netbox.toml"), top.join("link")).unwrap();
        let protected = [
            Protected::directory(&top.join("netbox"), 0o700).unwrap(),
            Protected::in_place(&top.join("netbox.toml")).unwrap(),
        ];
        for (name, is_refused) in [
            ("netbox/config.toml", true),
            ("netbox/trust/one.json", true),
            ("netbox.toml", true),
            ("link", true),
            ("other", false),
        ] {
            let file = File::open(top.join(name)).unwrap();
            let verdict = judge(file.as_fd(), &protected).unwrap();
            assert_eq!(matches!(verdict, Verdict::Refuse(_)), is_refused, "{name}");
        }
    }
}
