//! Runs a program on the test host, with or without netbox around it, and bounds how long it may take.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::child::{Birth, Kernel};
use crate::outcome::{Outcome, read_events};
use crate::surroundings::Surroundings;
use crate::system_files;
use crate::terminal::Terminal;
use crate::world::World;

/// A program that takes longer hangs. The slowest, a Java compiler on a busy machine, takes a tenth of that.
const LIMIT: Duration = Duration::from_secs(90);

/// A program about to be started.
#[derive(Debug)]
pub struct Run<'w> {
    world: &'w World,
    before: Vec<OsString>,
    events: Option<PathBuf>,
    environment: Vec<(String, OsString)>,
    folder: PathBuf,
    stdin: Input,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    birth: Birth,
}

#[derive(Debug)]
enum Input {
    Nothing,
    Bytes(Vec<u8>),
    From(OwnedFd),
    Open,
}

impl<'w> Run<'w> {
    /// With `netbox run` and these flags before it, or bare.
    pub(crate) fn new(world: &'w World, flags: Option<&[&str]>) -> Self {
        let mut before = Vec::new();
        let events = flags.map(|_| world.fresh_path("events"));
        if let (Some(flags), Some(events)) = (flags, &events) {
            before.extend([world.identity.netbox.clone().into(), "run".into()]);
            before.extend(flags.iter().map(OsString::from));
            before.extend(["--events".into(), events.clone().into(), "--".into()]);
        }
        let environment = world.environment().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let birth = Birth {
            descriptors: Vec::new(),
            kernel: Kernel::Willing,
            terminal: None,
            system: None,
            surroundings: Surroundings::default(),
            user_namespace: None,
        };
        let folder = world.path("home");
        Self { world, before, events, environment, folder, stdin: Input::Nothing, stdout: None, stderr: None, birth }
    }

    /// `netbox proxy serve` with these flags, on a port of the system's choice.
    pub(crate) fn proxy(world: &'w World, flags: &[&str]) -> Self {
        let events = world.fresh_path("events");
        let mut run = Self::new(world, None).program(world.identity.netbox.clone().into_os_string());
        run.before.extend(["proxy", "serve", "--listen", "127.0.0.1:0"].map(OsString::from));
        run.before.extend(flags.iter().map(OsString::from));
        run.before.extend(["--events".into(), events.clone().into()]);
        run.events = Some(events);
        run
    }

    /// `netbox proxy serve` with these flags, and nothing else.
    pub(crate) fn serve(world: &'w World, flags: &[&str]) -> Self {
        let mut run = Self::new(world, None).program(world.identity.netbox.clone().into_os_string());
        run.before.extend(["proxy", "serve"].iter().chain(flags).map(OsString::from));
        run
    }

    /// In this user namespace, with others.
    pub fn within(mut self, user_namespace: Option<OwnedFd>) -> Self {
        self.birth.user_namespace = user_namespace;
        self
    }

    /// The program itself; `exec` then has the arguments alone.
    pub fn program(mut self, program: OsString) -> Self {
        self.before.push(program);
        self
    }

    /// One more environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// The folder to start in; the home folder else.
    pub fn folder(mut self, folder: &Path) -> Self {
        self.folder = folder.to_owned();
        self
    }

    /// These bytes as standard input, and then its end; an empty one else.
    pub fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = Input::Bytes(bytes.to_vec());
        self
    }

    /// This descriptor as standard input.
    pub fn stdin_from(mut self, descriptor: impl Into<OwnedFd>) -> Self {
        self.stdin = Input::From(descriptor.into());
        self
    }

    /// A pipe as standard input that the test writes to with `Running::write`.
    pub fn stdin_open(mut self) -> Self {
        self.stdin = Input::Open;
        self
    }

    /// This descriptor as standard output, which is then not in the outcome.
    pub fn stdout_to(mut self, descriptor: impl Into<OwnedFd>) -> Self {
        self.stdout = Some(descriptor.into());
        self
    }

    /// This terminal, as a shell in a window of its own has it.
    pub fn on(mut self, terminal: &Terminal) -> Self {
        self.birth.terminal = Some(terminal.inner());
        self.stdin_from(terminal.inner()).stdout_to(terminal.inner()).stderr_to(terminal.inner())
    }

    /// This descriptor as standard error, which is then not in the outcome.
    pub fn stderr_to(mut self, descriptor: impl Into<OwnedFd>) -> Self {
        self.stderr = Some(descriptor.into());
        self
    }

    /// A further descriptor that the program inherits under this number.
    pub fn descriptor(mut self, descriptor: impl Into<OwnedFd>, number: RawFd) -> Self {
        self.birth.descriptors.push((descriptor.into(), number));
        self
    }

    /// With this limit on open descriptors.
    pub fn descriptor_limit(self, limit: u64) -> Self {
        self.under(&["prlimit", &format!("--nofile={limit}:{limit}")])
    }

    /// Started by this program, whose last argument it is.
    pub fn under(mut self, words: &[&str]) -> Self {
        self.before.splice(0..0, words.iter().map(OsString::from));
        self
    }

    /// On a machine that differs like this.
    pub fn surroundings(mut self, surroundings: Surroundings) -> Self {
        self.birth.surroundings = surroundings;
        self
    }

    /// The system policy file of this name (`system_files`).
    pub fn system(mut self, name: &str) -> Self {
        self.birth.system = Some(system_files::folder(name));
        self
    }

    /// What the kernel refuses to it.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.birth.kernel = kernel;
        self
    }

    /// Runs it to its end.
    pub fn exec<A: AsRef<str>>(self, arguments: &[A]) -> Outcome {
        self.start(arguments).finish()
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// When the program cannot be executed.
    pub fn start<A: AsRef<str>>(self, arguments: &[A]) -> Running {
        let mut words = self.before;
        words.extend(arguments.iter().map(|argument| argument.as_ref().into()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(self.environment).current_dir(self.folder);
        let (stdin, input) = match self.stdin {
            Input::Nothing => (Stdio::null(), None),
            Input::Bytes(bytes) => (Stdio::piped(), Some(bytes)),
            Input::From(descriptor) => (descriptor.into(), None),
            Input::Open => (Stdio::piped(), None),
        };
        let stdout = self.stdout.map_or_else(Stdio::piped, Stdio::from);
        let stderr = self.stderr.map_or_else(Stdio::piped, Stdio::from);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        self.birth.prepare(&mut command, &self.world.identity);
        let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut child = spawn(&mut command).unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        if let Some(bytes) = input {
            let mut stdin = child.stdin.take().expect("stdin is a pipe");
            // A program that reads no further is no fault of this thread.
            thread::spawn(move || stdin.write_all(&bytes));
        }
        Running {
            line,
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(Captured::start),
            stderr: child.stderr.take().map(Captured::start),
            exit: open_pidfd(&child),
            child,
            events: self.events,
        }
    }
}

/// A program that a test has just written may still be open for writing in a child of another test, between its fork and
/// its exec.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut child = command.spawn();
    eventually(|| {
        let is_busy = child.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy);
        if is_busy {
            child = command.spawn();
        }
        !is_busy
    });
    child
}

/// A program that was started. One that is dropped is killed.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    /// Readable when the program ended.
    exit: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<Captured>,
    stderr: Option<Captured>,
    events: Option<PathBuf>,
}

impl Running {
    /// Its process: netbox, when it is around the program.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// The events that are written by now.
    pub fn events_so_far(&self) -> Vec<Value> {
        self.events.as_deref().map_or_else(Vec::new, read_events)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it has not been waited for");
    }

    /// Writes to its standard input.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes).expect("the program reads its input");
    }

    /// Ends its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until it has written `text`.
    ///
    /// # Panics
    ///
    /// When it ends without, or does not for a long time.
    pub fn wait_for_stdout(&self, text: &str) {
        let stdout = self.stdout.as_ref().expect("stdout is captured");
        if !stdout.wait_for(|bytes| find(bytes, text.as_bytes())) {
            let stderr = self.stderr.as_ref().expect("stderr is captured");
            panic!("`{}` never wrote `{text}` but {stdout}, and on stderr {stderr}", self.line);
        }
    }

    /// Waits until it has written a whole line with `text` in it on standard error, and gives what comes behind that.
    ///
    /// # Panics
    ///
    /// When it ends without, or does not for a long time.
    pub fn wait_for_stderr(&self, text: &str) -> String {
        let stderr = self.stderr.as_ref().expect("stderr is captured");
        let found = |bytes: &[u8]| {
            let said = String::from_utf8_lossy(bytes).into_owned();
            let (_, behind) = said.split_once(text)?;
            Some(behind.split_once('\n')?.0.to_owned())
        };
        if !stderr.wait_for(|bytes| found(bytes).is_some()) {
            panic!("`{}` never wrote `{text}` but {stderr}", self.line);
        }
        found(&stderr.bytes()).expect("it was there")
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        readable(&self.exit, Duration::ZERO)
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it does not end in time, or when it has ended but somebody it started still has its output open.
    pub fn finish(mut self) -> Outcome {
        self.stdin = None;
        let ended = readable(&self.exit, LIMIT);
        if !ended {
            self.child.kill().expect("a child can be killed");
        }
        let status = self.child.wait().expect("a child can be waited for");
        let (stdout, out_ended) = self.stdout.take().map_or((Vec::new(), true), Captured::finish);
        let (stderr, err_ended) = self.stderr.take().map_or((Vec::new(), true), Captured::finish);
        let outcome = Outcome {
            line: self.line.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout,
            stderr,
            events: self.events.as_deref().map_or_else(Vec::new, read_events),
        };
        if self.events.is_some() && !self.line.contains(" --dry-run ") {
            outcome.assert_begun();
        }
        assert!(ended, "it did not end in {LIMIT:?}: {outcome}");
        assert!(out_ended && err_ended, "it ended, and something that it started still has its output open: {outcome}");
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program writes, as it comes.
#[derive(Debug)]
pub struct Captured(Arc<(Mutex<Capture>, Condvar)>);

#[derive(Debug, Default)]
struct Capture {
    bytes: Vec<u8>,
    ended: bool,
}

impl Captured {
    /// Begins to read.
    pub fn start(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::default(), Condvar::new()));
        let writer = Arc::clone(&shared);
        thread::spawn(move || {
            let (capture, changed): &(Mutex<Capture>, Condvar) = &writer;
            let mut buffer = vec![0; 1 << 16];
            loop {
                let length = pipe.read(&mut buffer).unwrap_or(0);
                let mut capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
                capture.bytes.extend(&buffer[..length]);
                capture.ended = length == 0;
                changed.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        Self(shared)
    }

    /// Whether the bytes came to be as `wanted` before their end, or before the time was over.
    pub fn wait_for(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let (capture, changed) = &*self.0;
        let capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        let go_on = |capture: &mut Capture| !capture.ended && !wanted(&capture.bytes);
        let (capture, _) = changed.wait_timeout_while(capture, LIMIT, go_on).unwrap_or_else(PoisonError::into_inner);
        wanted(&capture.bytes)
    }

    /// What came so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// Everything, and whether the end was reached.
    fn finish(self) -> (Vec<u8>, bool) {
        let (capture, changed) = &*self.0;
        let capture = capture.lock().unwrap_or_else(PoisonError::into_inner);
        let go_on = |capture: &mut Capture| !capture.ended;
        let limit = Duration::from_secs(10);
        let (mut capture, _) =
            changed.wait_timeout_while(capture, limit, go_on).unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut capture.bytes), capture.ended)
    }
}

impl std::fmt::Display for Captured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capture = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(formatter, "`{}`", String::from_utf8_lossy(&capture.bytes))
    }
}

/// Whether `text` is in `bytes`.
fn find(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// Polls `probe` until it holds, for twenty seconds at most.
pub fn eventually(mut probe: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !probe() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

fn open_pidfd(child: &Child) -> OwnedFd {
    // SAFETY: pidfd_open takes no pointers, and the child has not been waited for.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    assert!(descriptor >= 0, "pidfd_open: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}

fn readable(descriptor: &OwnedFd, limit: Duration) -> bool {
    let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).expect("a limit below a day");
    poll(&mut polled, limit).expect("a descriptor can be polled") > 0
}

/// A file as a descriptor to inherit.
pub fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display())).into()
}
