//! `netbox run`: from what was typed to an exit code.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use netbox_config::Mode;
use netbox_launcher::{Embryo, Failure, Listeners, Outcome, Spec};
use netbox_proxy::events::{Events, SessionId, Start};
use tokio::runtime::{self, Runtime};

use crate::cli::{EventDestination, RunArguments, Weaker};
use crate::environment::{self, Reach, Wishes};
use crate::event_sink::{self, EventSink};
use crate::interrupted::Interrupted;
use crate::place::Place;
use crate::policy::{self, Asking, Effective, Refused};
use crate::ports::Ports;
use crate::published::{self, Door};
use crate::say::{self, Voice};
use crate::session::{self, Carrier, Ended};
use crate::via::lease::{Lease, OWN_NUMBERS};
use crate::via::{Call, NotCarried, Wish};
use crate::{
    FAILED, USAGE, caught_ports, devices, dry_run, passed, protected, served_mounts, summary, unix_sockets, via, weaker,
};

const TIMED_OUT: u8 = 124;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What no wall of netbox's is about.
const ROOT: &str = "running as root: files that the command may write decide what root runs outside, such as those in /etc/cron.d, \
                    /etc/systemd/system and /usr/local/bin, or ~/.bashrc; confine files as well (bwrap), or use a user of its own";
/// For who waits for an answer from elsewhere.
pub const NO_NETWORK: &str =
    "there is no network here, but loopback alone, so that nothing of what the policy allows can be reached";
/// `--fail-on-block`.
const BLOCKED: u8 = 3;

/// Runs it. The value is the exit code.
pub fn run(arguments: RunArguments) -> u8 {
    let voice = Voice { quiet: arguments.quiet, verbose: arguments.verbose };
    let intent = match Intent::of(&arguments) {
        Ok(intent) => intent,
        Err(why) => return refuse(if why.is_usage { USAGE } else { FAILED }, &why.text, why.hint.as_deref()),
    };
    if arguments.dry_run {
        return match dry_run::print(
            &arguments.command,
            &intent.effective,
            &intent.ports,
            intent.via.as_deref(),
            arguments.json,
        ) {
            Ok(()) => 0,
            Err(error) => refuse(FAILED, &format!("cannot write to stdout: {error}"), None),
        };
    }
    let when = arguments.summary;
    match carry_out(arguments, voice, intent) {
        Ok(Ran { code, events, interrupted, .. }) => {
            summary::conclude(&events, code, when, voice);
            interrupted.into_iter().for_each(Interrupted::pass_on);
            code
        }
        Err(code) => code,
    }
}

/// What came of a run.
pub struct Ran {
    /// The exit code.
    pub code: u8,
    pub events: Events,
    /// Whether the command ran, to whatever end.
    pub has_run: bool,
    /// Where Ctrl-C at the terminal ended it: netbox is to end by it too.
    pub interrupted: Option<Interrupted>,
}

/// Runs what was typed.
///
/// # Errors
/// The command did not run, which was said. The value is the exit code.
pub fn carry_out(arguments: RunArguments, voice: Voice, intent: Intent) -> Result<Ran, u8> {
    let sink = intent.events.as_ref().map(EventSink::open).transpose().map_err(|why| refuse(FAILED, &why, None))?;
    warn(voice, &intent.effective);
    confine(arguments, voice, intent, sink).map_err(|why| refuse(FAILED, &why.text, why.hint.as_deref()))
}

/// What was typed, and makes sense.
pub struct Intent {
    pub effective: Effective,
    events: Option<EventDestination>,
    ports: Ports,
    /// `--pass-fd`.
    passed: Vec<i32>,
    /// `--via`.
    via: Option<PathBuf>,
    weaker: Vec<Weaker>,
}

impl Intent {
    /// # Errors
    /// It does not, or the project's file is not trusted.
    pub fn of(arguments: &RunArguments) -> Result<Self, Refused> {
        // First of all: what this process opens may get such a number too.
        let passed = passed::find(&arguments.pass_fd).map_err(Refused::usage)?;
        let asking = if arguments.dry_run { Asking::Nobody } else { Asking::Person };
        let pinned = arguments.project.trust_project.as_deref();
        let effective = policy::load(&arguments.policy, pinned, asking)?;
        let events = event_sink::destination(arguments.events.as_ref()).map_err(Refused::usage)?;
        passed::check(&passed, events.as_ref()).map_err(Refused::usage)?;
        let ports = Ports::new(&arguments.host_port, &arguments.publish).map_err(Refused::usage)?;
        let via = via::path(arguments.via.as_ref()).map_err(Refused::usage)?;
        let weaker = weaker::allowed(&arguments.allow_weaker).map_err(Refused::usage)?;
        Ok(Self { effective, events, ports, passed, via, weaker })
    }
}

/// Why netbox itself failed.
struct Fault {
    text: String,
    hint: Option<String>,
}

impl From<NotCarried> for Fault {
    fn from(NotCarried { text, hint, .. }: NotCarried) -> Self {
        Fault { text, hint }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let hint = failure.hint().map(str::to_owned);
        Fault { text: failure.to_string(), hint }
    }
}

const MORE_FILES: &str = "raise the limit with `ulimit -n`";
/// Below that, parts that netbox is made of do not begin at all.
const LEAST_DESCRIPTORS: u64 = 64;

fn room_for_files() -> Result<(), Fault> {
    let limit = netbox_launcher::descriptor_limit();
    if limit >= LEAST_DESCRIPTORS {
        return Ok(());
    }
    let text = format!("netbox may open {limit} files here, and needs {LEAST_DESCRIPTORS} at least");
    Err(Fault { text, hint: Some(MORE_FILES.to_owned()) })
}

fn fault(what: &str) -> impl Fn(std::io::Error) -> Fault + '_ {
    move |error| Fault { text: format!("cannot {what}: {error}"), hint: way_out(&error).map(str::to_owned) }
}

/// What to do about an error that the machine's limits make.
fn way_out(error: &std::io::Error) -> Option<&'static str> {
    matches!(error.raw_os_error(), Some(libc::EMFILE)).then_some(MORE_FILES)
}

/// From here on, an error means that the command did not run.
fn confine(arguments: RunArguments, voice: Voice, intent: Intent, sink: Option<EventSink>) -> Result<Ran, Fault> {
    let Intent { effective, ports, passed, via, weaker, .. } = intent;
    let id = SessionId::random().map_err(fault("draw a session number"))?;
    let directory = env::current_dir().map_err(fault("find the working directory"))?;
    let [program, rest @ ..] = arguments.command.as_slice() else {
        // clap has seen to it that there is one.
        return Err(Fault { text: "no command".into(), hint: None });
    };
    let keep: Vec<_> = passed.iter().copied().chain(sink.as_ref().map(EventSink::descriptor)).collect();
    netbox_launcher::close_inherited(&keep)?;
    room_for_files()?;
    let unix_sockets = unix_sockets::open(&arguments.unix_socket).map_err(|text| Fault { text, hint: None })?;
    for (typed, socket) in arguments.unix_socket.iter().zip(&unix_sockets) {
        unix_sockets::warning(typed, socket).iter().for_each(|warning| voice.warn(warning));
    }
    if netbox_launcher::is_nested() && !unix_sockets.is_empty() {
        return Err(Fault {
            text: "`--unix-socket` inside another netbox: that one supervises connects, and keeps this sandbox apart"
                .into(),
            hint: Some("give it to the outer `netbox run`, for the programs there".into()),
        });
    }
    let devices = devices::find(&arguments.dev).map_err(|text| Fault { text, hint: None })?;
    for (typed, device) in arguments.dev.iter().zip(&devices) {
        devices::warning(typed, device).iter().for_each(|warning| voice.warn(warning));
    }
    let published = published::open(&ports.published, voice).map_err(|(text, hint)| Fault { text, hint })?;
    let protected = protected::find(&effective.files).map_err(|text| Fault { text, hint: None })?;
    let (programs, files) = (protected.programs, protected.files);
    protected.warnings.iter().for_each(|warning| voice.warn(warning));
    let reach = Reach {
        sockets: unix_sockets.iter().map(|socket| socket.path().to_owned()).collect(),
        host_ports: ports.inside(),
        descriptors: passed.clone(),
    };
    let spec = Spec {
        program: program.clone(),
        arguments: rest.to_vec(),
        environment: environment(&arguments, reach, &id, voice),
        directory,
        hidden: sink.iter().filter_map(|sink| sink.place.clone()).collect(),
        interactive: true,
        devices,
        protected: protected.protected,
        unix_sockets,
        passed,
        allow_weaker_proc: weaker.contains(&Weaker::Proc),
        host_ports: ports.inside(),
        caught_ports: caught_ports::of(effective.compiled.policy(), &ports),
    };
    netbox_launcher::look_names_up_as_written();
    // Before anything is built: most of what can be wrong with the service shows here.
    let call = via.as_deref().map(Call::place).transpose()?;

    // Pid 1 is cloned from the one thread that there is; what needs threads is made while it builds the sandbox.
    let embryo = Embryo::conceive(&spec)?;
    netbox_launcher::become_carrier();
    let written_to = sink.as_ref().and_then(|sink| sink.place.clone()).and_then(Place::of);
    let events = Events::new(id, sink.map(|sink| sink.destination));
    let policy = Arc::new(effective.compiled.into_policy());
    if policy.mode() != Mode::None && !netbox_proxy::facts::has_network() {
        voice.warn(NO_NETWORK);
    }
    let names = session::names(Arc::clone(&policy));
    let runtime = runtime().map_err(fault("start the proxy"))?;
    let (mut sandbox, listeners) = embryo.deliver()?;
    let lease = match (call, via) {
        (Some(call), Some(path)) => {
            let wish = Wish::new(id, program.clone(), &policy, events.are_written());
            events.number_from(OWN_NUMBERS);
            Some(lease(call, path, wish, &listeners, &runtime, voice)?)
        }
        _ => None,
    };

    if !sandbox.has_own_proc() {
        voice.warn(weaker::NO_PROC);
    }
    if voice.verbose {
        served_mounts::listed().iter().for_each(|text| voice.detail(text));
    }
    voice.detail(format_args!("session {id}, walls: {}", sandbox.walls().join(" ")));
    let granted = lease.as_ref().map(Lease::grant);
    events.start(Start {
        argv0: spec.program.to_string_lossy().into_owned(),
        mode: granted.map_or(policy.mode(), |granted| granted.mode.parse().unwrap_or(policy.mode())),
        policy: granted.map_or_else(|| policy.digest(), |granted| granted.policy.clone()),
        walls: sandbox.walls().to_vec(),
        doors: doors(&arguments, &published),
        pid: sandbox.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default(),
    });
    let doors = session::Doors { host: &ports, published };
    let carrier = Carrier { names, lease };
    let keeping = sandbox.has_terminal().then(say::keep);
    let ended =
        runtime.block_on(session::hold(&mut sandbox, listeners, doors, carrier, events.clone(), arguments.timeout));
    let costs = sandbox.costs().clone();
    drop(sandbox);
    // The sandbox is gone, and the terminal is the person's.
    drop(keeping);
    voice.detail(format_args!("the walls took: {costs}"));
    // Lookups may still sit on their threads; nobody waits for them.
    runtime.shutdown_background();

    let has_run = matches!(
        ended,
        Ended::TimedOut | Ended::Interrupted(_) | Ended::Sandbox(Outcome::Exited(_) | Outcome::Killed(_))
    );
    let code = exit_code(&arguments, &events, &ended);
    let interrupted = if let Ended::Interrupted(interrupted) = ended { Some(interrupted) } else { None };
    for program in programs.iter().filter(|program| !program.is_kept()) {
        say::alarm(protected::replacement(program));
    }
    for file in files.iter().filter(|file| !file.is_kept()) {
        say::alarm(protected::replacement_of_file(file));
    }
    if let Some(place) = written_to.filter(|place| !place.is_kept()) {
        voice.warn(event_sink::replacement(&place));
    }
    Ok(Ran { code, events, has_run, interrupted })
}

/// Has the service carry the sandbox.
fn lease(
    call: Call,
    path: PathBuf,
    wish: Wish,
    listeners: &Listeners,
    runtime: &Runtime,
    voice: Voice,
) -> Result<Lease, Fault> {
    let copies = session::carried(listeners).map_err(fault("copy the listeners"))?;
    let attached = runtime.block_on(call.attach(&wish, &copies))?;
    via::tell(&attached.grant.warnings, voice);
    Ok(Lease::new(path, wish, attached, copies, voice))
}

/// What was opened beside the policy, for the events.
fn doors(arguments: &RunArguments, published: &[Door]) -> Vec<String> {
    let host_ports = arguments.host_port.iter().map(|door| format!("--host-port {}", door.text));
    let published = published.iter().map(|door| format!("--publish {}:{}", door.port, door.sandbox_port));
    let sockets = arguments.unix_socket.iter().map(|path| format!("--unix-socket {}", path.display()));
    let devices = arguments.dev.iter().map(|path| format!("--dev {}", path.display()));
    let passed = arguments.pass_fd.iter().map(|number| format!("--pass-fd {number}"));
    host_ports.chain(published).chain(sockets).chain(devices).chain(passed).collect()
}

/// The command's environment. Tells those who asked what is not in it.
fn environment(arguments: &RunArguments, reach: Reach, id: &SessionId, voice: Voice) -> Vec<(OsString, OsString)> {
    let wishes = Wishes { proxy: arguments.proxy_env, settings: &arguments.env, clear: arguments.env_clear };
    let caller: Vec<_> = env::vars_os().collect();
    let environment = environment::compose(&caller, &id.to_string(), &wishes, &reach);
    if !environment.removed.is_empty() {
        let names: Vec<_> = environment.removed.iter().map(|name| name.to_string_lossy()).collect();
        voice.detail(format_args!(
            "left out of the environment, since what they name is out of reach inside (`--env NAME` keeps one): {}",
            names.join(" ")
        ));
    }
    environment.variables
}

fn runtime() -> std::io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// What is said before anything runs.
fn warn(voice: Voice, effective: &Effective) {
    effective.warn(voice);
    effective.warn_inside(voice);
    if netbox_launcher::effective_uid() == 0 {
        voice.warn(ROOT);
    }
}

fn exit_code(arguments: &RunArguments, events: &Events, ended: &Ended) -> u8 {
    let program =
        || netbox_config::quote(arguments.command.first().map(|word| word.as_encoded_bytes()).unwrap_or_default());
    match ended {
        Ended::Proxy(error) => {
            let text = format!("the proxy failed, and the sandbox was ended: {error}");
            refuse(FAILED, &text, way_out(error))
        }
        Ended::Service(why) => refuse(FAILED, &format!("{}, and the sandbox was ended", why.text), why.hint.as_deref()),
        Ended::TimedOut => {
            refuse(TIMED_OUT, "the time that `--timeout` gives is over, and the command was ended", None)
        }
        Ended::Sandbox(Outcome::Exited(0)) if arguments.fail_on_block => {
            let summary = events.summary();
            if summary.denied + summary.malformed > 0 { BLOCKED } else { 0 }
        }
        Ended::Sandbox(Outcome::Exited(code)) => *code,
        Ended::Sandbox(Outcome::Killed(signal)) => killed_by(*signal),
        Ended::Interrupted(_) => killed_by(libc::SIGINT),
        Ended::Sandbox(Outcome::NotExecuted(libc::ENOENT)) => {
            refuse(NOT_FOUND, &format!("command not found: {}", program()), None)
        }
        Ended::Sandbox(Outcome::NotExecuted(errno)) => {
            let error = std::io::Error::from_raw_os_error(*errno);
            refuse(NOT_EXECUTABLE, &format!("cannot execute {}: {error}", program()), None)
        }
        Ended::Sandbox(Outcome::Failed(failure)) => refuse(FAILED, &failure.to_string(), failure.hint()),
        Ended::Sandbox(Outcome::Replaced(names)) => {
            let why: Vec<_> = names.iter().map(protected::account).collect();
            refuse(FAILED, &why.join("; "), Some(protected::IF_IT_WAS_YOU))
        }
        Ended::Sandbox(Outcome::Lost) => {
            refuse(FAILED, "the sandbox's first process was killed, and the command with it", None)
        }
    }
}

fn killed_by(signal: i32) -> u8 {
    // Numbers of signals are below 65.
    128u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
}

fn refuse(code: u8, why: &str, hint: Option<&str>) -> u8 {
    say::error(why, hint);
    code
}
