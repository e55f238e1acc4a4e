//! One client's course: bare, in audit mode, with just its hosts allowed, and with each of them missing; with the preset
//! that stands for its hosts, and with the file that `netbox learn` writes.

use std::ffi::{OsStr, OsString};
use std::{fmt, fs};

use libtest_mimic::{Completion, Failed};
use serde_json::Value;

use crate::clients::Client;
use crate::learned::{Destination, Learned};
use crate::machine::{As, Machine, Room};

/// Runs a client's course. Where `required`, what cannot run has failed.
pub fn run(machine: &Machine, client: &Client, required: bool) -> Result<Completion, Failed> {
    let skip = |why: String| if required { Err(why.into()) } else { Ok(Completion::ignored_with(why)) };
    if let Some(program) = machine.missing(client.needs) {
        return skip(format!("`{program}` is not installed where every user finds it"));
    }
    if !machine.can_be(client.who) {
        return skip("only root can run it".to_owned());
    }
    let bare = start(machine, client, None);
    if !bare.succeeded() {
        return skip(format!("its registry cannot be reached, without netbox either: {bare}"));
    }

    let (learned, audit) = learn(machine, client);
    let listed = start(machine, client, Some(&flags("allowlist", learned.rules(None))));
    listed.assert_success(client);
    assert_eq!(listed.refused(), 0, "refusals of {listed}");
    let hosts_alone = |decision: &Decision| learned.destinations.contains(&decision.destination);
    assert!(listed.decisions().all(|decision| decision.reason == "listed" && hosts_alone(&decision)), "{listed}");
    let mut counts = format!("audit: {}; listed: {}", audit.counts(), listed.counts());

    for (number, missing) in (1..).zip(&learned.destinations) {
        let outcome = start(machine, client, Some(&flags("allowlist", learned.rules(Some(missing)))));
        assert!(
            outcome.code != Some(0) && !outcome.made,
            "it does not take a host that it was seen to take: {outcome}"
        );
        assert_names(&outcome, missing);
        counts += &format!("; without host {number} of {}: {}", learned.destinations.len(), outcome.counts());
    }
    if let Some(preset) = client.preset {
        counts += &format!("; with {preset}: {}", with_preset(machine, client, &learned, preset).counts());
    }
    // Root's apt works in a folder of apt's own user, and a policy file there does not count.
    if client.who == As::User {
        let outcome = with_learned_file(machine, client, &learned);
        counts += &format!("; with what it was learned to need: {}", outcome.counts());
    }
    println!("{}: {counts}", client.fact);
    Ok(Completion::Completed)
}

/// Runs it in audit mode until nothing is refused any more: an address that is not public is, until a rule names it.
fn learn(machine: &Machine, client: &Client) -> (Learned, Outcome) {
    let mut learned = Learned::default();
    loop {
        let outcome = start(machine, client, Some(&flags("audit", learned.addresses.iter().cloned())));
        if learned.learn(&outcome) {
            outcome.assert_success(client);
            assert!(outcome.allowed() > 0, "it reached something, and no event tells of it: {outcome}");
            return (learned, outcome);
        }
    }
}

/// Asserts that the missing host was refused as such, and that the person is told which rule would allow it.
fn assert_names(outcome: &Outcome, missing: &Destination) {
    let of_it: Vec<_> = outcome.decisions().filter(|decision| decision.destination == *missing).collect();
    let refused = |decision: &Decision| {
        let unlisted = ["not-listed", "port-not-listed", "address-not-listed"].contains(&decision.reason.as_str());
        decision.verdict == "deny" && unlisted
    };
    assert!(!of_it.is_empty() && of_it.iter().all(refused), "the missing host was not refused: {outcome}");
    let told = format!("refused {} (", missing.rule());
    let told = outcome.stderr.lines().find(|line| line.contains(&told));
    assert!(told.is_some_and(|line| line.contains("to allow it: --allow '")), "the person is not told: {outcome}");
}

/// Runs it with the preset alone, which is enough, and is what allows each connection.
fn with_preset(machine: &Machine, client: &Client, learned: &Learned, preset: &str) -> Outcome {
    let rules = learned.addresses.iter().cloned().chain([preset.to_owned()]);
    let outcome = start(machine, client, Some(&flags("allowlist", rules)));
    outcome.assert_success(client);
    assert_eq!(outcome.refused(), 0, "refusals of {outcome}");
    let via = format!(" via {preset} (");
    let by_preset = |event: &Value| event["rule"]["source"].as_str().is_some_and(|source| source.contains(&via));
    assert!(outcome.events_of("decision").all(|event| by_preset(&event)), "a rule of another source: {outcome}");
    outcome
}

/// Lets `netbox learn` write a file, and runs it with that: where it was written, which is trusted, and elsewhere.
fn with_learned_file(machine: &Machine, client: &Client, learned: &Learned) -> Outcome {
    let room = machine.room(client.who);
    let addresses = learned.addresses.iter().flat_map(|rule| ["--allow".to_owned(), rule.clone()]).collect::<Vec<_>>();
    let netbox = |words: &[&str]| [words.iter().map(|word| (*word).to_owned()).collect(), addresses.clone()].concat();
    let taught = start_in(machine, client, &room, Some(&netbox(&["learn", "--yes"])));
    taught.assert_success(client);
    let file = room.work.join("netbox.toml");
    assert!(file.exists(), "nothing was written: {taught}");
    start_in(machine, client, &room, Some(&netbox(&["run"]))).assert_success(client);

    let file = file.to_string_lossy();
    let elsewhere = machine.room(client.who);
    let outcome = start_in(machine, client, &elsewhere, Some(&netbox(&["run", "--config", &file])));
    outcome.assert_success(client);
    assert_eq!(outcome.refused(), 0, "refusals of {outcome}");
    assert!(outcome.allowed() > 0, "it reached something, and no event tells of it: {outcome}");
    outcome
}

fn flags(mode: &str, rules: impl IntoIterator<Item = String>) -> Vec<String> {
    let rules = rules.into_iter().flat_map(|rule| ["--allow".to_owned(), rule]);
    ["--no-config".to_owned(), "--mode".to_owned(), mode.to_owned()].into_iter().chain(rules).collect()
}

/// Runs the client in a room of its own, with netbox and these flags around it or bare.
fn start(machine: &Machine, client: &Client, flags: Option<&[String]>) -> Outcome {
    let words = flags.map(|flags| [&["run".to_owned()], flags].concat());
    start_in(machine, client, &machine.room(client.who), words.as_deref())
}

/// Runs the client in a room, with netbox and these words to it around it or bare.
fn start_in(machine: &Machine, client: &Client, room: &Room, netbox: Option<&[String]>) -> Outcome {
    let mut words: Vec<OsString> = (client.words)(machine, room).into_iter().map(OsString::from).collect();
    if let Some(netbox) = netbox {
        let netbox = [machine.netbox.as_os_str()].into_iter().chain(netbox.iter().map(OsStr::new));
        let events = [OsStr::new("--events"), room.events.as_os_str(), OsStr::new("--")];
        words = netbox.chain(events).map(OsStr::to_owned).chain(words).collect();
    }
    // Of the run before, in the same room.
    let _ = fs::remove_file(&room.events);
    let mut command = machine.command(client.who, room, &words[0]);
    command.args(&words[1..]).envs(client.environment.iter().copied());
    let output = command.output().expect("`timeout` (package coreutils)");
    Outcome {
        line: words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
        code: output.status.code(),
        made: room.has(client.makes),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        events: fs::read_to_string(&room.events).unwrap_or_default(),
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    line: String,
    code: Option<i32>,
    /// Whether the file that shows success is there.
    made: bool,
    /// See there.
    pub stdout: String,
    /// What it wrote on standard error.
    pub stderr: String,
    events: String,
}

/// A `decision` event.
#[derive(Debug)]
pub struct Decision {
    /// On what.
    pub destination: Destination,
    /// See the documentation of events, as for the others.
    pub verdict: String,
    /// See there.
    pub reason: String,
    /// See there.
    pub hint: Option<String>,
}

impl Outcome {
    /// The decisions, in order.
    ///
    /// # Panics
    ///
    /// When an event is none.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.events_of("decision").map(move |event| Decision {
            destination: Destination {
                host: text(&event["host"]).expect("a decision has a host"),
                port: event["port"].as_u64().expect("a decision has a port"),
            },
            verdict: text(&event["verdict"]).expect("a decision has a verdict"),
            reason: text(&event["reason"]).expect("a decision has a reason"),
            hint: text(&event["hint"]),
        })
    }

    fn events_of(&self, kind: &str) -> impl Iterator<Item = Value> {
        let events = self.events.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"));
        events.filter(move |event| event["event"] == kind)
    }

    fn succeeded(&self) -> bool {
        self.code == Some(0) && self.made
    }

    #[track_caller]
    fn assert_success(&self, client: &Client) {
        assert!(self.succeeded(), "it works without netbox, but not with it: {self}");
        (client.shows)(self);
    }

    /// How many connections the `exit` event counts as allowed.
    fn allowed(&self) -> u64 {
        self.counted("allowed")
    }

    /// How many it counts as refused.
    fn refused(&self) -> u64 {
        self.counted("denied")
    }

    fn counted(&self, field: &str) -> u64 {
        let exit = self.events_of("exit").last().unwrap_or_else(|| panic!("no `exit` event of {self}"));
        exit[field].as_u64().expect("the `exit` event counts")
    }

    fn counts(&self) -> String {
        format!("{} allowed, {} refused", self.allowed(), self.refused())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, code, made, stdout, stderr, events } = self;
        writeln!(formatter, "`{line}`\ncode {code:?}, result made: {made}")?;
        write!(formatter, "--- stdout\n{stdout}--- stderr\n{stderr}--- events\n{events}")
    }
}
