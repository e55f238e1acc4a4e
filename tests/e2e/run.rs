//! Runs a program on the test host, with or without netbox around it, and bounds how long it may take.

mod captured;
mod running;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::{Birth, Kernel};
use crate::outcome::Outcome;
use crate::surroundings::Surroundings;
use crate::system_files;
use crate::terminal::Terminal;
use crate::world::World;

pub use captured::Captured;
pub use running::Running;

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
        Running::new(line, child, self.events)
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

/// A file as a descriptor to inherit.
pub fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display())).into()
}
