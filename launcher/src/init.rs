//! Pid 1 of the sandbox.
//!
//! Theory of operation. Born by `clone3` as a copy of netbox, in a user, network, mount, pid and ipc namespace of its
//! own, it builds the sandbox from inside: the mounts first, then the network, which it proves. In between it makes the
//! command's process, one user namespace below, which gets ready meanwhile. The listeners go out to netbox. At netbox's word
//! the command's process executes the program, and pid 1 becomes a plain init: it reaps, passes signals on, and ends with the
//! command. When it ends, for whatever reason, the kernel kills every process of the pid namespace.
//!
//! Stages: [`tie_to_netbox`], [`build`], [`make_command`], [`network::set_up`], [`hand_over`], [`Unborn::start`],
//! [`Life::supervise`].
//!
//! It never runs anything of the user's and keeps nothing of the host's: no descriptor but the channel to netbox. It is
//! not dumpable, and its user namespace is above the command's, so the command can neither trace it nor take its
//! descriptors nor signal it (signals from inside its namespace reach pid 1 only where it has a handler: nowhere).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, setpgid, setsid};

use crate::automounts;
use crate::command::{Spec, become_command};
use crate::control_groups;
use crate::costs::{Costs, Stopwatch};
use crate::descriptors::{self, Standard};
use crate::devices;
use crate::error::{At, Failure, Step};
use crate::further_sockets;
use crate::id_maps;
use crate::message::{Channel, Order, Report};
use crate::mounts;
use crate::network::{self, Network};
use crate::passed::{self, Passed};
use crate::proc_mount::{PROC, Proc};
use crate::protection;
use crate::resolver_files;
use crate::supervisor;
use crate::sys;
use crate::terminal::Inside;

/// One side's ends of all that netbox and pid 1 speak over: netbox's, or pid 1's.
pub(crate) struct Channels {
    /// Orders and reports.
    pub(crate) main: Channel,
    /// To the supervisor in netbox.
    pub(crate) supervisor: Channel,
    /// For further sockets of the sandbox's.
    pub(crate) sockets: Channel,
}

impl Channels {
    /// Both sides.
    pub(crate) fn pair() -> nix::Result<(Channels, Channels)> {
        let (main, supervisor, sockets) = (Channel::pair()?, Channel::pair()?, Channel::pair()?);
        let ours = Channels { main: main.0, supervisor: supervisor.0, sockets: sockets.0 };
        let theirs = Channels { main: main.1, supervisor: supervisor.1, sockets: sockets.1 };
        Ok((ours, theirs))
    }
}

/// Pid 1's whole life. The channels are its ends; netbox's are already closed. `nested`: it is inside another netbox.
pub(crate) fn run(spec: &Spec, nested: bool, standard: Standard, passed: Passed, channels: Channels) -> ! {
    let Channels { main, supervisor, sockets } = channels;
    match live(spec, nested, standard, passed, &main, supervisor, sockets) {
        Ok(()) => sys::process::leave(0),
        Err(failure) => {
            // When netbox is gone there is nobody to tell.
            let _ = main.report(&Report::Failed(failure), &[]);
            sys::process::leave(1)
        }
    }
}

fn live(
    spec: &Spec,
    nested: bool,
    mut standard: Standard,
    passed: Passed,
    channel: &Channel,
    supervisor: Channel,
    sockets: Channel,
) -> Result<(), Failure> {
    let settings = standard.terminal.take();
    let mask = tie_to_netbox(standard, passed, [channel, &supervisor, &sockets])?;
    let mut watch = Stopwatch::start();
    let Built { proc, lacks_resolver } = build(spec, &mut watch)?;
    let (mut terminal, master) = settings.as_ref().map(Inside::make).transpose()?.unzip();
    let command = make_command(spec, nested, &mask, &supervisor)?;
    watch.lap("the command's process");
    let network = network::set_up(lacks_resolver, &spec.host_ports, &spec.caught_ports, &mut watch)?;
    let mut walls = vec!["userns", "pidns", "mountns", "ipcns", "seccomp", "unix"];
    walls.extend(&network.walls);
    walls.extend(proc.is_fresh.then_some(PROC));
    walls.extend(nested.then_some("nested"));
    // It gets ready while netbox takes the listeners.
    command.map(&proc)?;
    hand_over(channel, network, &walls, &watch.stop(), master)?;
    let Some(Order::Go { foreground }) = channel.next_order().at(Step::Fork, "the channel to netbox")? else {
        // Netbox changed its mind, or is gone.
        return Ok(());
    };
    let life = Life::begin(command.pid)?;
    let visible = terminal.as_mut().filter(|_| foreground);
    command.start(channel, visible)?;
    life.supervise(command.channel, channel, supervisor, sockets, terminal)
}

/// Stage 1. From here on, netbox's end is this process's end. Returns the signal mask that netbox had.
fn tie_to_netbox(standard: Standard, passed: Passed, channels: [&Channel; 3]) -> Result<SigSet, Failure> {
    let step = Step::Handshake;
    prctl::set_pdeathsig(Signal::SIGKILL).at(step, "PR_SET_PDEATHSIG")?;
    // getppid(2) is 0 across a pid namespace, so that a parent which died before the line above cannot be told that
    // way. The channel tells: its other end is closed, and this wait reads end of file.
    match channels[0].next_order().at(step, "the channel to netbox")? {
        Some(Order::Mapped) => {}
        _ => sys::process::leave(1),
    }
    prctl::set_dumpable(false).at(step, "PR_SET_DUMPABLE")?;
    // From here on the keys of the user's terminal are no signals to anyone in the sandbox.
    setsid().at(step, "setsid")?;
    for (number, replacement) in standard.replacements.iter().enumerate() {
        if let Some(fd) = replacement {
            sys::place_at(fd, number as i32).at(step, "descriptor")?;
        }
    }
    // All that netbox had open is closed; `standard` and its relays are forgotten, not dropped, as their numbers go.
    std::mem::forget(standard);
    let mut keep = passed.settle().at(step, "descriptor")?;
    keep.extend(channels.map(|channel| channel.as_fd().as_raw_fd()));
    descriptors::close_others(keep).at(step, "close_range")?;
    let mut mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut mask)).at(step, "sigprocmask")?;
    Ok(mask)
}

/// What stage 2 leaves.
struct Built {
    proc: Proc,
    /// Whether programs ask 127.0.0.1 for names, since no file tells them whom to ask (resolv.conf(5)).
    lacks_resolver: bool,
}

/// Stage 2. All the mounts that the command is to see.
fn build(spec: &Spec, watch: &mut Stopwatch) -> Result<Built, Failure> {
    mounts::make_private()?;
    watch.lap("private mounts");
    let table = protection::hold(&spec.protected, &spec.hidden)?;
    watch.lap("next run");
    automounts::cover(&table)?;
    watch.lap("automounts");
    let lacks_resolver = resolver_files::place("/etc/resolv.conf")?.is_none();
    mounts::put_resolver_files(&spec.hidden, &spec.unix_sockets, &table)?;
    watch.lap("resolver files and masks");
    let proc = Proc::mount(spec.allow_weaker_proc)?;
    proc.allow_low_ports()?;
    watch.lap("proc");
    control_groups::protect()?;
    mounts::protect_kernel_files(id_maps::is_root(), proc.is_fresh)?;
    watch.lap("kernel files");
    devices::put(&spec.devices)?;
    watch.lap("devices");
    Ok(Built { proc, lacks_resolver })
}

/// The command's process, before it executes the program.
struct Unborn {
    pid: Pid,
    channel: Channel,
}

/// Stage 3. Forks the command's process, and puts it into a process group of its own. It goes on by itself until all but the
/// program is there, and waits: for its user namespace to be mapped, for netbox, and for the word.
fn make_command(spec: &Spec, nested: bool, mask: &SigSet, supervisor: &Channel) -> Result<Unborn, Failure> {
    let step = Step::Fork;
    let (ours, theirs) = Channel::pair().at(step, "a channel")?;
    let pid = match sys::fork().at(step, "fork")? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop(ours);
            become_command(spec, nested, mask, &theirs, supervisor);
            sys::process::leave(1)
        }
    };
    drop(theirs);
    setpgid(pid, pid).at(step, "setpgid")?;
    // Pid 1 holds no end of the user's pipes, so that their other ends see the command close them.
    let null = File::options().read(true).write(true).open("/dev/null").at(step, "`/dev/null`")?;
    for number in 0..3 {
        sys::place_at(&null, number).at(step, "`/dev/null`")?;
    }
    passed::close(&spec.passed).at(step, "close_range")?;
    Ok(Unborn { pid, channel: ours })
}

impl Unborn {
    /// Maps its user namespace.
    fn map(&self, proc: &Proc) -> Result<(), Failure> {
        match self.channel.next_report().at(Step::Fork, "the channel to the command")? {
            Some((Report::Ready(own), _)) => {
                let step = Step::NestedUserNamespace;
                let directory = proc.directory_of(self.pid, &own);
                id_maps::write_nested(
                    &directory.ok_or_else(|| Failure::outcome(step, "the command's number in `/proc`"))?,
                )?;
                self.channel.order(Order::Mapped).at(step, "the channel to the command")
            }
            Some((Report::Failed(failure), _)) => Err(failure),
            _ => Err(Failure::outcome(Step::Fork, "the command's process ended without a word")),
        }
    }

    /// Stage 6. Puts it into the foreground of `terminal`, and gives it the word.
    fn start(&self, netbox: &Channel, terminal: Option<&mut Inside>) -> Result<(), Failure> {
        let step = Step::Fork;
        if let Some(terminal) = terminal {
            terminal.bring_forward(self.pid, false);
            netbox.report(&Report::Foreground, &[]).at(step, "the channel to netbox")?;
        }
        match self.channel.order(Order::Go { foreground: false }) {
            // It has failed meanwhile, and what it said is the reason, which is read later.
            Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
            told => told.at(step, "the channel to the command"),
        }
    }
}

/// Stage 5. The listeners go out and are closed here, and so is the other end of the command's terminal.
fn hand_over(
    channel: &Channel,
    network: Network,
    walls: &[&str],
    costs: &Costs,
    master: Option<OwnedFd>,
) -> Result<(), Failure> {
    let (counts, mut descriptors) = network.listeners.to_descriptors();
    descriptors.extend(master.iter().map(AsRawFd::as_raw_fd));
    let report = Report::Ready(format!("{counts}\n{}\n{}", walls.join(" "), costs.to_text()));
    channel.report(&report, &descriptors).at(Step::HandOver, "the channel to netbox")
}

/// Takes one order from a channel and carries it out. `false`: nobody is there to give another.
type Serve = fn(&Channel) -> bool;

/// The command's life.
struct Life {
    command: Pid,
    /// SIGCHLD.
    children: SignalFd,
}

impl Life {
    /// Before the command may run: afterwards nothing of it may fail.
    fn begin(command: Pid) -> Result<Self, Failure> {
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { command, children: SignalFd::with_flags(&children, flags).at(Step::Fork, "signalfd")? })
    }

    /// Stage 7. Until the command ends, or netbox does.
    ///
    /// `birth`: the channel to the command's process, which `exec` closes. Until then it may be stopped by a key, or wait for
    /// a file system, as long as it likes, and orders are carried out all the while.
    fn supervise(
        self,
        birth: Channel,
        channel: &Channel,
        supervisor: Channel,
        sockets: Channel,
        mut terminal: Option<Inside>,
    ) -> Result<(), Failure> {
        let Self { command, children } = self;
        let step = Step::Fork;
        let mut birth = Some(birth);
        // Netbox's end is closed when nobody is left who could ask, which may be seen before the last one is reaped.
        let mut servants: Vec<(Channel, Serve)> =
            vec![(supervisor, supervisor::pairs::serve), (sockets, further_sockets::serve)];
        let (mut turn, mut is_stopped) = (0, false);
        loop {
            // Reap first: a child may have ended before the signal descriptor was there.
            while let Some(status) = reap(command).at(step, "waitpid")? {
                if !libc::WIFSTOPPED(status) {
                    // Its last words come before its end.
                    let report = birth.take().map(|birth| last_words(&birth)).transpose()?.flatten();
                    let _ = channel.report(&report.unwrap_or(Report::Ended(status)), &[]);
                    return Ok(());
                }
                // Signals have small numbers. When netbox is gone, so is this process.
                let signal = libc::WSTOPSIG(status) as u8;
                let _ = channel.report(&Report::Stopped { signal, turn }, &[]);
                is_stopped = true;
            }
            let descriptors = [channel.as_fd().as_fd(), children.as_fd()];
            let servants_of = servants.iter().map(|(channel, _)| channel.as_fd().as_fd());
            let descriptors = descriptors.into_iter().chain(servants_of);
            let descriptors = descriptors.chain(birth.iter().map(|birth| birth.as_fd().as_fd()));
            let mut polled: Vec<_> = descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(Failure::new(step, errno, "poll")),
            }
            let mut ready: Vec<bool> =
                polled.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
            let is_born = birth.is_some() && ready.pop().unwrap_or(false);
            let requests = ready.split_off(2);
            let &[order, child] = ready.as_slice() else { continue };
            if is_born
                && let Some(birth) = birth.take()
                && let Some(report) = last_words(&birth)?
            {
                let _ = channel.report(&report, &[]);
                return Ok(());
            }
            if child {
                while let Ok(Some(_)) = children.read_signal() {}
            }
            if order {
                match channel.next_order().at(step, "the channel to netbox")? {
                    Some(Order::Signal { number, group }) => pass_on(command, number, group),
                    Some(Order::Foreground(foreground)) => {
                        set_foreground(terminal.as_mut(), foreground, command, is_stopped);
                        let _ = channel.report(&Report::Foreground, &[]);
                    }
                    Some(Order::Continue { turn: next, foreground }) => {
                        if let Some(foreground) = foreground {
                            set_foreground(terminal.as_mut(), foreground, command, is_stopped);
                        }
                        (turn, is_stopped) = (next, false);
                        pass_on(command, libc::SIGCONT, true);
                        let _ = channel.report(&Report::Foreground, &[]);
                    }
                    Some(_) => {}
                    None => return Ok(()),
                }
            }
            let mut requests = requests.into_iter();
            servants.retain(|(channel, serve)| !requests.next().unwrap_or(false) || serve(channel));
        }
    }
}

/// What the command's process has said, before it executed the program or died. `None`: nothing.
///
/// # Errors
/// One of its steps failed, or it spoke out of turn.
fn last_words(birth: &Channel) -> Result<Option<Report>, Failure> {
    match birth.next_report().at(Step::Fork, "the channel to the command")? {
        Some((Report::Failed(failure), _)) => Err(failure),
        Some((not_executed @ Report::NotExecuted(_), _)) => Ok(Some(not_executed)),
        Some(_) => Err(Failure::outcome(Step::Fork, "the command's process spoke out of turn")),
        None => Ok(None),
    }
}

/// Reaps whatever has ended. The command's wait status, when it has ended or was stopped.
///
/// # Errors
/// Those of waitpid(2). ECHILD is one: the command is a child until it is found here.
fn reap(command: Pid) -> nix::Result<Option<i32>> {
    loop {
        match sys::wait_for_any(libc::WNOHANG | libc::WUNTRACED) {
            Ok(Some((pid, status))) if pid == command => return Ok(Some(status)),
            Ok(None) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn set_foreground(terminal: Option<&mut Inside>, foreground: bool, command: Pid, is_stopped: bool) {
    match terminal {
        Some(terminal) if foreground => terminal.bring_forward(command, is_stopped),
        Some(terminal) => terminal.clear_foreground(),
        None => {}
    }
}

fn pass_on(command: Pid, number: i32, group: bool) {
    if let Ok(signal) = Signal::try_from(number) {
        // ESRCH: it has ended, and the next turn reaps it.
        let _ = if group { killpg(command, signal) } else { kill(command, signal) };
    }
}
