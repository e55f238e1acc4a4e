//! `netbox doctor`: can netbox isolate here; if not, why, and the exact fix; what is weaker here, and why.
//!
//! The answer is found by doing it: a real sandbox is built, and a real command run in it. Its steps come in order, so
//! all before the one that failed are known to work, and none after it was reached.

use std::env;
use std::fs;
use std::io::{Write, stdout};
use std::path::Path;

use netbox_launcher::{Embryo, Failure, Listeners, Outcome, Protected, Spec, Step};
use serde_json::{Value, json};

use crate::cli::{DoctorArguments, Weaker};
use crate::profiles;
use crate::run::NO_NETWORK;
use crate::via::{Call, NotCarried};
use crate::{protected, say, served_mounts, via, weaker};

/// Netbox cannot isolate here.
const CANNOT: u8 = 1;

/// What is known of one mechanism.
struct Check {
    name: &'static str,
    state: State,
    detail: String,
    errno: Option<i32>,
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Works,
    /// The sandbox stands, and something is less than it could be.
    Weaker,
    Fails,
    /// A step before it failed.
    NotReached,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            State::Works => "ok",
            State::Weaker => "weaker",
            State::Fails => "failed",
            State::NotReached => "not reached",
        }
    }
}

/// The mechanisms, and the steps of the set-up that each stands for, in order.
const MECHANISMS: [(&str, &[Step]); 11] = [
    ("descriptors", &[Step::Descriptors, Step::ControlSocket]),
    ("user namespaces", &[Step::Namespaces, Step::IdMaps, Step::Handshake]),
    ("mounts", &[Step::PrivateMounts, Step::Protection, Step::Automounts]),
    ("network interfaces", &[Step::Interfaces]),
    (NF_TABLES, &[Step::CaptureRules]),
    ("capture", &[Step::Listeners, Step::SelfTest]),
    ("resolver", &[Step::ResolverFiles]),
    ("/proc", &[Step::Proc, Step::LowPorts, Step::ReadOnlyKernelFiles]),
    ("/dev", &[Step::Devices, Step::Terminal]),
    (
        "confinement of the command",
        &[
            Step::HandOver,
            Step::Fork,
            Step::NestedUserNamespace,
            Step::Privileges,
            Step::SystemCallFilter,
            Step::WorkingDirectory,
        ],
    ),
    (UNIX_SOCKETS, &[Step::UnixSockets]),
];

/// Without it there is another way to capture connections.
const NF_TABLES: &str = "nf_tables";
const NO_NF_TABLES: &str = "there is none here, so connections are caught by routes, on the ports of the policy's rules, 80 and 443: on these no \
                            program inside can listen, and those to other ports are refused; nothing more gets out, but refused datagrams are not told";
const LOAD_NF_TABLES: &str =
    "sudo modprobe -a nf_tables nft_redir nft_fib_inet nft_reject_inet nft_log nft_limit nft_ct nft_chain_nat";

/// Whose wall is said by name: there is more than one way to build it.
const UNIX_SOCKETS: &str = "unix sockets";
const UNIX_WALL: &str = "connects are supervised (seccomp user notification), so those of the host are out of reach";

/// Runs the checks and prints them. The value is the exit code.
pub fn doctor(arguments: &DoctorArguments) -> u8 {
    if arguments.inside {
        // The command of the sandbox that was built to see whether one can be.
        return 0;
    }
    let closed = netbox_launcher::close_inherited(&[]);
    let profile = arguments.apparmor_profile.then_some(profiles::APPARMOR);
    if let Some(profile) = profile.or(arguments.seccomp_profile.then_some(profiles::SECCOMP)) {
        return conclude(stdout().lock().write_all(profile.as_bytes()), true);
    }
    let (protected, unprotected) = match protected::find(&[]) {
        Ok(found) => (found.protected, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    // What the environment allows, `run` is allowed too.
    let weaker = weaker::allowed(&[]).unwrap_or_default();
    let trial = closed.and_then(|()| trial(protected.clone(), weaker.contains(&Weaker::Proc)));
    let service = shared_service();
    let has_service = service.as_ref().is_none_or(|check| check.state == State::Works);
    let works = trial.is_ok() && unprotected.is_none() && has_service;
    let mut checks = mechanisms(&trial);
    checks.push(later_runs(unprotected));
    checks.extend(trial.as_ref().err().and_then(|failure| way_round(failure, protected)));
    checks.extend(service);
    checks.extend(circumstances(trial.as_ref().ok()));
    let printed = if arguments.json { print_json(&checks, works) } else { print(&checks, works) };
    conclude(printed, works)
}

/// The exit code, once all is said.
fn conclude(printed: std::io::Result<()>, works: bool) -> u8 {
    match printed {
        Err(error) => {
            say::error(format_args!("cannot write to stdout: {error}"), None);
            crate::FAILED
        }
        Ok(()) if works => 0,
        Ok(()) => CANNOT,
    }
}

/// What a sandbox that stood was like.
struct Stood {
    walls: Vec<String>,
}

impl Stood {
    fn has(&self, wall: &str) -> bool {
        self.walls.iter().any(|one| one == wall)
    }
}

/// Builds a sandbox and runs this program in it.
fn trial(protected: Vec<Protected>, allow_weaker_proc: bool) -> Result<Stood, Failure> {
    let directory = env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned());
    let spec = Spec {
        // In the command's process this is still netbox.
        program: "/proc/self/exe".into(),
        arguments: vec!["doctor".into(), "--inside".into()],
        environment: env::vars_os().collect(),
        directory,
        hidden: Vec::new(),
        interactive: false,
        devices: Vec::new(),
        protected,
        unix_sockets: Vec::new(),
        passed: Vec::new(),
        allow_weaker_proc,
        host_ports: Vec::new(),
        caught_ports: Vec::new(),
    };
    let (mut sandbox, listeners): (_, Listeners) = Embryo::conceive(&spec)?.deliver()?;
    sandbox.start(Box::new(|_, _| Ok(None)))?;
    let walls = sandbox.walls().to_vec();
    let outcome = sandbox.outcome();
    drop(listeners);
    let unexpected = |errno, detail: &str| Failure { step: Step::Fork, errno, detail: detail.to_owned() };
    match outcome {
        Outcome::Exited(0) => Ok(Stood { walls }),
        Outcome::Failed(failure) => Err(failure),
        Outcome::NotExecuted(errno) => Err(unexpected(errno, "`/proc/self/exe`")),
        Outcome::Exited(code) => Err(unexpected(0, &format!("the trial command exited with {code}"))),
        Outcome::Killed(signal) => Err(unexpected(0, &format!("the trial command was killed by signal {signal}"))),
        Outcome::Replaced(_) => Err(unexpected(0, "somebody moved a directory of netbox's meanwhile")),
        Outcome::Lost => Err(unexpected(0, "the sandbox's first process was killed")),
    }
}

fn mechanisms(trial: &Result<Stood, Failure>) -> Vec<Check> {
    let failed_at = trial.as_ref().err().map(|failure| {
        // Every step belongs to a mechanism; a test holds that.
        MECHANISMS.iter().position(|(_, steps)| steps.contains(&failure.step)).unwrap_or_default()
    });
    MECHANISMS
        .iter()
        .enumerate()
        .map(|(at, (name, _))| {
            let (state, failure) = match (failed_at, trial) {
                (Some(failed), Err(failure)) if at == failed => (State::Fails, Some(failure)),
                (Some(failed), _) if at > failed => (State::NotReached, None),
                (None, Ok(stood)) if *name == NF_TABLES && stood.has("routes") => {
                    let (detail, fix) = (NO_NF_TABLES.to_owned(), Some(LOAD_NF_TABLES.to_owned()));
                    return Check { name, state: State::Weaker, detail, errno: None, fix };
                }
                _ => (State::Works, None),
            };
            Check {
                name,
                state,
                detail: match failure {
                    Some(failure) => failure.to_string(),
                    None if *name == UNIX_SOCKETS && state == State::Works => UNIX_WALL.to_owned(),
                    None => String::new(),
                },
                errno: failure.map(|failure| failure.errno).filter(|errno| *errno != 0),
                fix: failure.and_then(fix),
            }
        })
        .collect()
}

/// Whether what decides later runs can be kept out of the command's reach.
fn later_runs(unprotected: Option<String>) -> Check {
    let state = if unprotected.is_some() { State::Fails } else { State::Works };
    Check { name: "later runs", state, detail: unprotected.unwrap_or_default(), errno: None, fix: None }
}

/// Whether the shared service listens that the environment has runs use. It grants or refuses when one attaches.
fn shared_service() -> Option<Check> {
    let placed = match via::path(None) {
        Ok(None) => return None,
        Ok(Some(path)) => Call::place(&path).map(|_| format!("one listens on `unix:{}` (NETBOX_VIA)", path.display())),
        Err(text) => Err(NotCarried::new(text)),
    };
    let (state, detail, fix) = match placed {
        Ok(detail) => (State::Works, detail, None),
        Err(why) => (State::Fails, format!("NETBOX_VIA: {}", why.text), why.hint),
    };
    Some(Check { name: "shared service", state, detail, errno: None, fix })
}

/// What would work if a wall might be missing.
fn way_round(failure: &Failure, protected: Vec<Protected>) -> Option<Check> {
    if failure.step != Step::Proc {
        return None;
    }
    let stood = trial(protected, true).is_ok();
    let detail =
        if stood { "`netbox run --allow-weaker proc` works here" } else { "`--allow-weaker proc` does not help here" };
    let state = if stood { State::Weaker } else { State::Fails };
    Some(Check { name: "a weaker /proc", state, detail: detail.to_owned(), errno: None, fix: None })
}

/// The exact fix, where a setting of this machine tells which one it is.
fn fix(failure: &Failure) -> Option<String> {
    let zero = |name: &str| setting(name).as_deref() == Some("0");
    let exact = match (failure.step, failure.errno) {
        (Step::Namespaces, libc::ENOSPC) => ["user", "net", "mnt", "pid", "ipc"]
            .iter()
            .map(|kind| format!("user/max_{kind}_namespaces"))
            .find(|name| zero(name))
            .map(|name| format!("sudo sysctl -w {}=15000", name.replace('/', "."))),
        (Step::Namespaces, libc::EPERM) if zero("kernel/unprivileged_userns_clone") => {
            Some("sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned())
        }
        (Step::Namespaces, libc::EPERM) if is_filtered() => Some(
            "a seccomp filter is in force here, as in a container: `netbox doctor --seccomp-profile` prints a profile that allows \
             what netbox takes, `clone3`, `unshare`, `mount` and a few others (Docker: `--security-opt seccomp=PROFILE`)"
                .to_owned(),
        ),
        (_, libc::EPERM | libc::EACCES) if setting("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") => {
            Some(profiles::how_to_install(&env::current_exe().unwrap_or_default()))
        }
        _ => None,
    };
    exact.or_else(|| failure.hint().map(str::to_owned))
}

/// What is weaker here than it could be, though `run` works.
fn circumstances(stood: Option<&Stood>) -> Vec<Check> {
    let check = |name, state, detail: &str| Check { name, state, detail: detail.to_owned(), errno: None, fix: None };
    let mut checks = Vec::new();
    if let Some(stood) = stood {
        checks.push(if stood.has("ipv6") {
            check("IPv6", State::Works, "")
        } else {
            check("IPv6", State::Weaker, "IPv6 is off in this kernel, so programs inside have IPv4 alone")
        });
        if stood.has("nft") && !stood.has("nflog") {
            let why = "the kernel does not log, so refused datagrams are not told";
            checks.push(Check {
                fix: Some("sudo modprobe -a nft_log nft_limit nfnetlink_log".to_owned()),
                ..check("nf_tables' log", State::Weaker, why)
            });
        }
        if !stood.has("proc") {
            checks.push(check("/proc of its own", State::Weaker, weaker::NO_PROC));
        }
        if stood.has("lo") {
            let why = "no kind of stub interface is available; programs that ask for one see loopback alone";
            checks.push(Check {
                fix: Some("sudo modprobe dummy".to_owned()),
                ..check("stub interface", State::Weaker, why)
            });
        }
    }
    if !netbox_proxy::facts::has_network() {
        checks.push(check("network", State::Weaker, NO_NETWORK));
    }
    if netbox_launcher::is_nested() {
        let why = "this is inside another netbox, which supervises connects and makes every connection: what both allow is \
                   reached, and `--unix-socket` lets nothing through";
        checks.push(check("nested", State::Weaker, why));
    }
    if fs::canonicalize("/etc/resolv.conf").is_err() {
        checks.push(check("resolv.conf", State::Weaker, "there is none; netbox answers on 127.0.0.1:53 inside"));
    }
    if let Some(why) = served_mounts::listed() {
        checks.push(check("served mounts", State::Weaker, &why));
    }
    if setting("kernel/core_pattern").is_some_and(|pattern| pattern.starts_with('@')) {
        let why = "the host takes core dumps at a socket (`sysctl kernel.core_pattern`), and the kernel brings it those of \
                   the command too; its handler reads what the command chose";
        checks.push(check("core dumps", State::Weaker, why));
    }
    if netbox_launcher::effective_uid() == 0 {
        checks.push(check(
            "root",
            State::Weaker,
            "what the command writes may later be run by root outside; netbox confines the network alone",
        ));
    }
    checks
}

/// A setting under `/proc/sys`.
fn setting(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_owned())
}

/// Whether a seccomp filter is in force for this process (proc(5): `Seccomp: 2`).
fn is_filtered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn print(checks: &[Check], works: bool) -> std::io::Result<()> {
    let mut out = stdout().lock();
    for check in checks {
        let separator = if check.detail.is_empty() { "" } else { ": " };
        writeln!(out, "{:12} {}{separator}{}", check.state.as_str(), check.name, check.detail)?;
        if let Some(fix) = &check.fix {
            writeln!(out, "{:12} fix: {fix}", "")?;
        }
    }
    let verdict =
        if works { "netbox can isolate here" } else { "netbox cannot isolate here, and `netbox run` refuses to run" };
    writeln!(out, "\n{verdict}")
}

fn print_json(checks: &[Check], works: bool) -> std::io::Result<()> {
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| {
            json!({
                "name": check.name,
                "state": check.state.as_str(),
                "detail": check.detail,
                "errno": check.errno,
                "fix": check.fix,
            })
        })
        .collect();
    writeln!(stdout().lock(), "{}", json!({ "ok": works, "checks": checks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_belongs_to_one_mechanism() {
        for step in Step::ALL {
            let count = MECHANISMS.iter().filter(|(_, steps)| steps.contains(&step)).count();
            assert_eq!(count, 1, "{step:?}");
        }
    }

    #[test]
    fn the_check_that_failed_is_followed_by_what_was_not_reached() {
        let failure = Failure { step: Step::CaptureRules, errno: libc::EOPNOTSUPP, detail: String::new() };
        let checks = mechanisms(&Err(failure));
        let states: Vec<_> = checks.iter().map(|check| check.state).collect();
        let failed = states.iter().position(|state| *state == State::Fails).expect("one failed");
        assert_eq!(checks[failed].name, "nf_tables");
        assert_eq!(checks[failed].errno, Some(libc::EOPNOTSUPP));
        assert!(checks[failed].fix.as_ref().is_some_and(|fix| fix.contains("modprobe")));
        assert!(states[..failed].iter().all(|state| *state == State::Works));
        assert!(states[failed + 1..].iter().all(|state| *state == State::NotReached));
    }
}
