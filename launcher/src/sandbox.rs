//! Netbox's side of the sandbox: it is born, it stands, it runs, it ends.
//!
//! [`Embryo::conceive`] clones pid 1, from the still single-threaded `main`. While pid 1 builds the sandbox, the caller
//! may prepare the proxy. [`Embryo::deliver`] waits for the listeners, [`Sandbox::start`] gives the word, and
//! [`Sandbox::news`] tells when the command was stopped and how it ended. A sandbox that is dropped is killed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::command::Spec;
use crate::costs::{Costs, Stopwatch};
use crate::descriptors::Standard;
use crate::error::{At, Failure, Step};
use crate::further_sockets::SocketMaker;
use crate::id_maps;
use crate::init::{self, Channels};
use crate::message::{Channel, Order, Report};
use crate::network::Listeners;
use crate::passed::Passed;
use crate::proc_mount::PROC;
use crate::protection::{Replaced, Watch};
use crate::relay::{Relay, Relays};
use crate::supervisor::{self, AllowedSocket, Judge, Known, Supervision};
use crate::sys::{self, Cloned};
use crate::terminal::{Settings, Terminal};

const NAMESPACES: i32 =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;

/// Pid 1, until it is reaped.
#[derive(Debug)]
struct Init(Option<Pid>);

impl Init {
    /// Waits until pid 1, and with it every process of the sandbox, is gone.
    fn reap(&mut self) {
        if let Some(pid) = self.0.take() {
            while let Err(Errno::EINTR) = waitpid(pid, None) {}
        }
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Not reaped yet, so the number is still its own.
            let _ = kill(pid, Signal::SIGKILL);
            self.reap();
        }
    }
}

/// A sandbox whose pid 1 is building it.
pub struct Embryo {
    init: Init,
    /// Behind `init`, see [`Sandbox`].
    watch: Watch,
    channel: Channel,
    sockets: Channel,
    /// Where no netbox around this one does it.
    supervision: Option<Supervision>,
    allowed: Vec<AllowedSocket>,
    relays: Vec<Relay>,
    terminal: Option<Settings>,
    costs: Costs,
}

impl Embryo {
    /// Clones pid 1 into the new namespaces.
    ///
    /// Must be called on the thread that stays to the end (pid 1 is killed when it ends: PR_SET_PDEATHSIG), and while
    /// it is the only one.
    ///
    /// # Errors
    /// The step that failed. Nothing is left behind.
    pub fn conceive(spec: &Spec) -> Result<Self, Failure> {
        // A caller that ignores SIGCHLD would have its children reaped by the kernel, and their ends untold.
        sys::signal::set_disposition(Signal::SIGCHLD, false).at(Step::Handshake, "SIGCHLD")?;
        let mut standard = Standard::judge(&spec.protected, spec.interactive)?;
        let passed = Passed::judge(&spec.passed, &spec.protected)?;
        let nested = supervisor::is_supervised();
        let (channels, theirs) = Channels::pair().at(Step::ControlSocket, "")?;
        let mut watch = Stopwatch::start();
        match sys::clone3(NAMESPACES).at(Step::Namespaces, "")? {
            Cloned::Child => {
                // First of all: with netbox's end open here, its death would never read as end of file.
                drop(channels);
                init::run(spec, nested, standard, passed, theirs)
            }
            Cloned::Parent(pid) => {
                drop(theirs);
                let init = Init(Some(pid));
                let terminal = standard.terminal.take();
                let mut relays = standard.into_relays();
                relays.extend(passed.into_relays().at(Step::Descriptors, "close_range")?);
                let go_on = || channels.main.order(Order::Mapped).at(Step::Handshake, "the channel to pid 1");
                // Where pid 1 is gone already, what it said is the reason, and not that it is gone.
                let reason = |failure| last_words(&channels.main).unwrap_or(failure);
                id_maps::write_outer(pid).and_then(|()| go_on()).map_err(reason)?;
                watch.lap("namespaces");
                let costs = watch.stop();
                // Now there may be threads, and they are ready before pid 1 is.
                let handle = sys::process::open(pid).at(Step::Protection, "pidfd_open")?;
                let watch = Watch::start(&spec.protected, handle)?;
                let Channels { main: channel, supervisor, sockets } = channels;
                let supervision = if nested { None } else { Some(Supervision::start(supervisor)?) };
                let allowed = spec.unix_sockets.clone();
                Ok(Embryo { init, watch, channel, sockets, supervision, allowed, relays, terminal, costs })
            }
        }
    }

    /// Waits until the sandbox stands and has proved itself.
    ///
    /// # Errors
    /// The step that failed. Nothing is left behind.
    pub fn deliver(self) -> Result<(Sandbox, Listeners), Failure> {
        let step = Step::HandOver;
        match self.channel.next_report().at(step, "the channel to pid 1")? {
            Some((Report::Ready(text), mut descriptors)) => {
                let (counts, text) = text.split_once('\n').unwrap_or_default();
                let (walls, costs_inside) = text.split_once('\n').unwrap_or_default();
                // Its end comes last.
                let settings = self.terminal.as_ref();
                let ends = settings.and_then(|settings| Some((settings, descriptors.pop()?)));
                let terminal = ends.map(|(settings, master)| Terminal::begin(settings, master)).transpose()?;
                let listeners = Listeners::from_descriptors(counts, descriptors)
                    .ok_or_else(|| Failure::outcome(step, "pid 1 sent other sockets than it announced"))?;
                let walls = walls.split(' ').map(str::to_owned).collect();
                let mut costs = self.costs;
                costs.add_text(costs_inside);
                let relays = Some(Relays::start(self.relays));
                // There is at least one, or there were no `Listeners`.
                let inside = listeners.capture[0].as_fd().try_clone_to_owned().at(step, "a listener")?;
                let known = Known {
                    allowed: self.allowed,
                    doors: listeners.doors(),
                    caught_ports: listeners.caught_ports().unwrap_or_default(),
                };
                let sandbox = Sandbox {
                    init: self.init,
                    watch: Some(self.watch),
                    channel: self.channel,
                    sockets: SocketMaker::new(self.sockets),
                    nested: self.supervision.is_none(),
                    inside,
                    known: Some(known),
                    supervision: self.supervision,
                    relays,
                    terminal,
                    turn: 0,
                    is_asked_to_stop: false,
                    goes_on: false,
                    walls,
                    costs,
                };
                Ok((sandbox, listeners))
            }
            Some((Report::Failed(failure), _)) => Err(failure),
            _ => Err(Failure::outcome(step, "the sandbox's first process ended without a word")),
        }
    }
}

/// What pid 1 has said of its failure. It says nothing else before it is told to go on.
fn last_words(channel: &Channel) -> Option<Failure> {
    if !is_readable(channel) {
        return None;
    }
    match channel.next_report() {
        Ok(Some((Report::Failed(failure), _))) => Some(failure),
        _ => None,
    }
}

fn is_readable(channel: &Channel) -> bool {
    let mut polled = [PollFd::new(channel.as_fd().as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// What pid 1 tells.
#[derive(Clone, Debug)]
pub enum News {
    /// A signal of this number stopped the command.
    Stopped(i32),
    /// It ended.
    Ended(Outcome),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The command exited with this code.
    Exited(u8),
    /// A signal of this number killed the command.
    Killed(i32),
    /// The program could not be executed: the error number of execve(2).
    NotExecuted(i32),
    /// A last step failed; the command did not run.
    Failed(Failure),
    /// Names that decide later runs were replaced; the sandbox was killed.
    Replaced(Vec<Replaced>),
    /// Pid 1 ended without a word. Whatever the command did, it is gone.
    Lost,
}

/// A sandbox that stands.
pub struct Sandbox {
    init: Init,
    /// Until the end. Behind `init`: it puts right what it finds when nobody is left in the sandbox.
    watch: Option<Watch>,
    channel: Channel,
    sockets: SocketMaker,
    nested: bool,
    /// A socket of the sandbox's network.
    inside: OwnedFd,
    /// Until the start.
    known: Option<Known>,
    /// Until the end.
    supervision: Option<Supervision>,
    relays: Option<Relays>,
    /// Where a standard descriptor is a terminal.
    terminal: Option<Terminal>,
    /// How often the command was ordered to go on.
    turn: u16,
    /// Whether it was asked to stop, and has not been stopped since.
    is_asked_to_stop: bool,
    /// Whether it was ordered to since this process was last continued.
    goes_on: bool,
    walls: Vec<String>,
    costs: Costs,
}

impl Sandbox {
    /// The mechanisms in force, each by one word, for people and for the `start` event.
    pub fn walls(&self) -> &[String] {
        &self.walls
    }

    /// Whether `/proc` belongs to its pid namespace; else it is the one that was there, as far as that may be.
    pub fn has_own_proc(&self) -> bool {
        self.walls.iter().any(|wall| wall == PROC)
    }

    /// Whether it is inside another netbox, which supervises the connects.
    pub fn is_nested(&self) -> bool {
        self.nested
    }

    /// What it took to build them. Complete when the command has ended: its process puts up some walls itself, while others
    /// are built.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The pid of the sandbox's first process, as seen here.
    pub fn pid(&self) -> Option<i32> {
        self.init.0.map(Pid::as_raw)
    }

    /// Makes further sockets of the sandbox's network, once the command has been started.
    pub fn sockets(&self) -> SocketMaker {
        self.sockets.clone()
    }

    /// Starts the command, once. Whoever holds the listeners must be accepting by now. `judge` is asked about TCP connects
    /// until the sandbox is dropped; not in one that is nested.
    ///
    /// # Errors
    /// The command cannot be supervised, or pid 1 is gone.
    pub fn start(&mut self, judge: Box<Judge>) -> Result<(), Failure> {
        let known = self.known.take().ok_or_else(|| Failure::outcome(Step::Fork, "it was started before"))?;
        if let Some(supervision) = &self.supervision {
            supervision.brief(self.inside.as_fd(), known, judge)?;
        }
        let foreground = self.terminal.as_mut().is_some_and(Terminal::resume);
        let told = self.channel.order(Order::Go { foreground }).at(Step::Fork, "the channel to pid 1");
        told.map_err(|failure| last_words(&self.channel).unwrap_or(failure))
    }

    /// Passes a signal on to the command, or to its whole process group, as a terminal's keys do.
    pub fn signal(&mut self, number: i32, group: bool) {
        self.is_asked_to_stop |= number == libc::SIGTSTP;
        // Pid 1 that is gone has taken the command with it.
        let _ = self.channel.order(Order::Signal { number, group });
    }

    /// Does as the command did when it was stopped by this signal: this process, and with it the job of the shell's that it
    /// is, stops, and returns when both go on. Where the command was stopped since it wants a terminal that it can have, it
    /// gets it and goes on at once.
    pub fn stop_along(&mut self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        let is_asked_to_stop = std::mem::take(&mut self.is_asked_to_stop);
        match &mut self.terminal {
            Some(terminal) => {
                let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
                if wants_terminal && terminal.attend_on_demand() {
                    self.order_to_go_on(Some(true));
                    if is_asked_to_stop {
                        // It stopped for the terminal before that reached it, and going on has undone it.
                        self.signal(libc::SIGTSTP, true);
                    }
                    return;
                }
                // Without a sandbox, a key or the terminal would have stopped everyone in this group.
                let by_key = signal == Signal::SIGTSTP && terminal.is_attending();
                terminal.leave();
                self.stop(signal, wants_terminal || by_key);
            }
            // A key was a signal to everyone here. What stops in another way may go on in another way.
            None if signal == Signal::SIGTSTP => self.stop(signal, false),
            None => {}
        }
    }

    fn stop(&mut self, signal: Signal, group: bool) {
        let _ = sys::signal::stop_by(signal, group);
        // Also where this process could not be stopped.
        self.goes_on = false;
        self.go_on();
        self.goes_on = true;
    }

    /// Has the command go on, in the foreground of its terminal if this process is in the foreground of the user's. To be
    /// called when this process has been continued, by SIGCONT.
    pub fn go_on(&mut self) {
        let foreground = self.terminal.as_mut().map(Terminal::resume);
        // The SIGCONT that ended a stop of our own is told as well, and the command need not get it twice.
        if !std::mem::take(&mut self.goes_on) {
            self.order_to_go_on(foreground);
        } else if let Some(foreground) = foreground {
            let _ = self.channel.order(Order::Foreground(foreground));
        }
    }

    fn order_to_go_on(&mut self, foreground: Option<bool>) {
        self.turn = self.turn.wrapping_add(1);
        // Pid 1 that is gone has taken the command with it.
        let _ = self.channel.order(Order::Continue { turn: self.turn, foreground });
    }

    /// Has the command's terminal be as large as the user's. `false`: it has none.
    pub fn resize(&self) -> bool {
        self.terminal.as_ref().map(Terminal::resize).is_some()
    }

    /// Whether the command has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Whether it has one in the place of this process's controlling terminal, in whose foreground this process is.
    pub fn is_in_foreground(&self) -> bool {
        self.terminal.as_ref().is_some_and(Terminal::is_foreground)
    }

    /// Whether the last that was typed at the command's terminal was the key that interrupts, which so was no signal out here.
    pub fn is_interrupt_typed(&self) -> bool {
        self.terminal.as_ref().is_some_and(Terminal::is_interrupt_typed)
    }

    /// Ends every process of the sandbox at once.
    pub fn kill(&self) {
        if let Some(pid) = self.init.0 {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// What pid 1 has told. `None`: nothing. To be asked until then whenever [`AsFd::as_fd`] is readable. At the end every
    /// process of the sandbox is gone.
    pub fn news(&mut self) -> Option<News> {
        while is_readable(&self.channel) {
            match self.channel.next_report() {
                Ok(Some((Report::Stopped { signal, turn }, _))) if turn == self.turn => {
                    return Some(News::Stopped(signal.into()));
                }
                Ok(Some((Report::Stopped { .. }, _))) => {}
                Ok(Some((Report::Foreground, _))) => self.terminal.iter_mut().for_each(Terminal::has_foreground),
                report => return Some(News::Ended(self.end(report))),
            }
        }
        None
    }

    /// Waits for the end, and until every process of the sandbox is gone. A command that stops is not continued.
    pub fn outcome(&mut self) -> Outcome {
        loop {
            match self.channel.next_report() {
                Ok(Some((Report::Stopped { .. } | Report::Foreground, _))) => {}
                report => return self.end(report),
            }
        }
    }

    fn end(&mut self, report: nix::Result<Option<(Report, Vec<OwnedFd>)>>) -> Outcome {
        let outcome = match report {
            Ok(Some((Report::Ended(status), _))) if status & 0x7f == 0 => Outcome::Exited((status >> 8) as u8),
            Ok(Some((Report::Ended(status), _))) => Outcome::Killed(status & 0x7f),
            Ok(Some((Report::NotExecuted(errno), _))) => Outcome::NotExecuted(errno),
            Ok(Some((Report::Failed(failure), _))) => Outcome::Failed(failure),
            _ => Outcome::Lost,
        };
        // While pid 1, and all that is left of the sandbox, comes to its end.
        let arrival = self.supervision.take().map(|supervision| supervision.arrival());
        self.watch.iter_mut().for_each(Watch::stop);
        self.init.reap();
        let outcome = match (outcome, &arrival) {
            (Outcome::Failed(failure), Some(arrival)) => Outcome::Failed(arrival.fault().unwrap_or(failure)),
            (outcome, _) => outcome,
        };
        self.costs.add_text(arrival.as_ref().map_or("", |arrival| arrival.costs()));
        let replaced = self.watch.take().map(|mut watch| watch.finish()).unwrap_or_default();
        if let Some(relays) = self.relays.take() {
            relays.drain();
        }
        let outcome = if replaced.is_empty() { outcome } else { Outcome::Replaced(replaced) };
        if let Some(terminal) = &mut self.terminal {
            // A shell tells with a code over 128 that a signal killed what it ran.
            terminal.finish(!matches!(outcome, Outcome::Exited(0..=128)));
        }
        outcome
    }

    /// Whether all that the command wrote to its terminal, if it has one, is written to the user's. To be asked after the
    /// end, and again whenever [`progress`](Self::progress) is readable.
    pub fn is_written(&mut self) -> bool {
        self.terminal.as_mut().is_none_or(Terminal::is_written)
    }

    /// See [`is_written`](Self::is_written).
    pub fn progress(&self) -> Option<BorrowedFd<'_>> {
        self.terminal.as_ref().map(Terminal::progress)
    }
}

impl AsFd for Sandbox {
    /// Readable when there are [`news`](Sandbox::news).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd().as_fd()
    }
}
