//! The shared cases, driven from their files: a new line is a new test.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use netbox_config::{
    CheckTarget, CommandLine, Decision, Expansions, Host, HostFacts, HostName, Layer, Mode, Policy, PolicyFile, Port,
    Reason, Rule, Source, Stack, Target, Via,
};
use serde_json::Value;

use crate::FLAG;

/// Cases of `config` that other rooms have to show. A new case is either driven here or has to be put here with a reason.
const LEFT: [(&str, &str); 4] = [
    ("C047", "trust: `the_command_cannot_widen_the_next_run`, end to end"),
    ("C050", "trust: `a_file_that_is_swapped_all_the_time_never_counts`, end to end"),
    ("C051", "nested: `c051_the_inner_one_widens_nothing`, end to end"),
    ("C052", "the service's reload"),
];

/// What `netbox check` takes and a program's protocol does not: a URL, a host without a port.
const ONLY_FOR_CHECK: [&str; 3] = ["T059", "T105", "T194"];

struct Case {
    id: String,
    line: Value,
}

impl Case {
    fn text(&self, key: &str) -> &str {
        self.line[key].as_str().unwrap_or_else(|| panic!("{}: `{key}` is no text", self.id))
    }

    fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.line.get(key).and_then(Value::as_array);
        list.map(|list| list.iter().map(|item| item.as_str().unwrap()).collect()).unwrap_or_default()
    }

    fn input(&self) -> Vec<u8> {
        match self.line.get("input_hex").and_then(Value::as_str) {
            Some(hex) => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
            None => self.text("input").as_bytes().to_vec(),
        }
    }

    fn policy(&self) -> Policy {
        let rule = |text| Rule::parse(text, FLAG).unwrap_or_else(|error| panic!("{}: {error}", self.id));
        Policy::new(Mode::Allowlist, self.texts("policy").into_iter().map(rule).collect(), vec![]).unwrap()
    }

    fn facts(&self) -> HostFacts {
        let own = self.texts("host_addresses").into_iter().map(|text| text.parse().unwrap()).collect();
        HostFacts { own, ..HostFacts::default() }
    }

    /// The test resolver's answer.
    fn resolve(&self, name: &HostName) -> Vec<IpAddr> {
        let answer = self.line["resolve"].get(name.as_str()).and_then(Value::as_array);
        let answer = answer.unwrap_or_else(|| panic!("{}: {name} was allowed and has no addresses", self.id));
        answer.iter().map(|text| text.as_str().unwrap().parse().unwrap()).collect()
    }

    fn is_fine(&self, outcome: &str) -> bool {
        self.text("expect") == outcome || self.texts("also_ok").contains(&outcome)
    }

    fn check(&self, door: &str, outcome: &str, failures: &mut Vec<String>) {
        if !self.is_fine(outcome) {
            failures.push(format!(
                "{} by {door}: {outcome}, not {}: {}",
                self.id,
                self.text("expect"),
                self.text("why")
            ));
        }
    }
}

/// The cases of a file, of which there are at least `least`: a file that is missing, empty or cut short fails.
fn read(file: &str, least: usize) -> Vec<Case> {
    let path = format!("{}/../tests/cases/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let cases: Vec<_> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{path}: {error}: {line}"));
            Case { id: line["id"].as_str().unwrap().to_owned(), line }
        })
        .collect();
    assert!(cases.len() >= least, "{path} has {} cases, not {least}", cases.len());
    cases
}

/// What becomes of a target: judged, its name looked up, its addresses vetted.
fn outcome(case: &Case, target: &Target) -> &'static str {
    let (policy, facts) = (case.policy(), case.facts());
    let permit = match policy.decide(target, &facts) {
        Decision::Allow(permit) => permit,
        Decision::Refuse(refusal) if refusal.reason() == Reason::Malformed => return "error",
        Decision::Refuse(_) => return "deny",
    };
    let addresses = match target.host() {
        Host::Name(name) => case.resolve(name),
        Host::Address(address) => vec![*address],
    };
    match addresses.into_iter().any(|address| policy.vet(&permit, address, &facts).is_ok()) {
        true => "allow",
        false => "deny",
    }
}

#[test]
fn target_cases_hold_at_every_door() {
    let mut failures = Vec::new();
    for case in read("target.jsonl", 161) {
        assert_eq!(case.text("layer"), "target", "{}", case.id);
        let input = case.input();
        for via in [Via::Connect, Via::Http, Via::Socks5, Via::Capture] {
            let outcome = Target::parse_authority(&input, via).map_or("error", |target| outcome(&case, &target));
            case.check(via.as_str(), outcome, &mut failures);
        }
        let by_dns = dns_target(&input).map_or("error", |target| outcome(&case, &target));
        case.check("dns", by_dns, &mut failures);
    }
    assert_eq!(failures, [""; 0]);
}

/// The target of a captured connection whose name came by DNS: the labels of a question, and the port of the connect.
/// What is no name there is taken as an authority.
fn dns_target(input: &[u8]) -> Option<Target> {
    let authority = Target::parse_authority(input, Via::Dns).ok();
    let Some(colon) = input.iter().rposition(|b| *b == b':') else { return authority };
    let name =
        HostName::parse_labels(input[..colon].strip_suffix(b".").unwrap_or(&input[..colon]).split(|b| *b == b'.'));
    let port = Port::parse(&input[colon + 1..]);
    match (name, port) {
        (Ok(name), Ok(port)) => Some(Target::new(Host::Name(name), port, Via::Dns)),
        _ => authority,
    }
}

#[test]
fn target_cases_hold_for_netbox_check() {
    let mut failures = Vec::new();
    for case in read("target.jsonl", 161) {
        let Ok(input) = String::from_utf8(case.input()) else { continue };
        if ONLY_FOR_CHECK.contains(&case.id.as_str()) {
            assert!(CheckTarget::parse(&input).is_ok(), "{}", case.id);
            assert!(Target::parse_authority(input.as_bytes(), Via::Connect).is_err(), "{}", case.id);
            continue;
        }
        let by_check = CheckTarget::parse(&input).map_or("error", |typed| outcome(&case, typed.target()));
        case.check("check", by_check, &mut failures);
    }
    assert_eq!(failures, [""; 0]);
}

#[test]
fn rule_cases_hold() {
    let mut failures = Vec::new();
    let mut driven = BTreeMap::new();
    for case in read("config.jsonl", 34) {
        let outcome = match case.text("input") {
            input if input.starts_with("load rule ") => {
                let rules = case.texts("policy");
                assert_eq!(rules.len(), 1, "{}", case.id);
                match Rule::parse(rules[0], FLAG) {
                    Ok(_) => "allow",
                    Err(error) => {
                        assert!(error.offset() <= rules[0].len(), "{}: {error}", case.id);
                        "error"
                    }
                }
            }
            _ if case.id == "C054" => deny_and_allow(&case.texts("policy")),
            _ => continue,
        };
        case.check("a rule", outcome, &mut failures);
        driven.insert(case.id, outcome);
    }
    assert_eq!(failures, [""; 0]);
    assert!(driven.len() >= 25, "{driven:?}");
}

/// The policy's rules as allow and as deny rules.
fn deny_and_allow(rules: &[&str]) -> &'static str {
    let parse = |text: &&str| Rule::parse(text, FLAG).unwrap();
    let (allow, deny): (Vec<_>, Vec<_>) = (rules.iter().map(parse).collect(), rules.iter().map(parse).collect());
    let policy = Policy::new(Mode::Allowlist, allow, deny).unwrap();
    let mut targets = rules.iter().map(|rule| crate::target(&format!("{rule}:443")));
    let refused = |target: Target| {
        let decision = policy.decide(&target, &HostFacts::default());
        matches!(decision, Decision::Refuse(refusal) if refusal.reason() == Reason::Denied)
    };
    if targets.all(refused) { "deny" } else { "allow" }
}

/// What a policy file of this text comes to for `github.com`: an error, or whether it is allowed.
fn file_outcome(text: &[u8]) -> &'static str {
    let nothing = CommandLine::default();
    let Ok(file) = PolicyFile::parse(Layer::Project, Path::new("netbox.toml"), text) else { return "error" };
    let Ok(compiled) = Stack::new(&nothing).with_file(&file).compile(&Expansions::default()) else { return "error" };
    match compiled.policy().decide(&crate::target("github.com:443"), &HostFacts::default()) {
        Decision::Allow(_) => "open",
        Decision::Refuse(_) => "allow",
    }
}

/// The files that a case is about; for these, "allow" means that the file is taken and denies every host.
fn files_of(id: &str) -> Option<Vec<Vec<u8>>> {
    let hundred_thousand = || format!("allow = [\n{}]", "  \"host.example\",\n".repeat(100_000)).into_bytes();
    let files = match id {
        "C001" => vec![b"allow = []".to_vec()],
        "C002" => vec![b"".to_vec(), b"version = 1\ndeny = [\"evil.example\"]".to_vec(), b"[profile.x]".to_vec()],
        "C003" => vec![b"alow = [\"github.com\"]".to_vec()],
        "C004" => vec![
            b"allow = [\"github.com\"".to_vec(),
            b"allow = [\"github.com".to_vec(),
            b"allow".to_vec(),
            b"<html>".to_vec(),
            b"allow = [\"github.com\"]\n\xff".to_vec(),
            b"\x7fELF\x02\x01\x01\0".to_vec(),
            b"allow = [\"github.com\"]\0".to_vec(),
        ],
        "C045" => vec![hundred_thousand(), vec![b'#'; 10 << 20]],
        _ => return None,
    };
    Some(files)
}

#[test]
fn file_cases_hold() {
    let mut failures = Vec::new();
    let mut driven = 0;
    for case in read("config.jsonl", 34) {
        for text in files_of(&case.id).unwrap_or_default() {
            case.check("a file", file_outcome(&text), &mut failures);
            driven += 1;
        }
    }
    assert_eq!(failures, [""; 0]);
    assert_eq!(driven, 14);
}

/// "Refuse at load with line number": the same rules as in `rule_cases_hold`, in a file.
#[test]
fn rule_cases_hold_in_a_file_and_name_their_line() {
    let mut refused = 0;
    for case in read("config.jsonl", 34) {
        if !case.text("input").starts_with("load rule ") {
            continue;
        }
        let rule = case.texts("policy")[0].escape_default().to_string().replace("\\u{0}", "\\u0000");
        let text = format!("# rules\nallow = [\n  \"{rule}\",\n]");
        match PolicyFile::parse(Layer::Project, Path::new("netbox.toml"), text.as_bytes()) {
            Ok(_) => assert!(case.is_fine("allow"), "{}", case.id),
            Err(errors) => {
                assert!(case.is_fine("error"), "{}: {errors}", case.id);
                assert!(errors.to_string().starts_with("netbox.toml:3:"), "{}: {errors}", case.id);
                assert_eq!(errors.len(), 1, "{}: {errors}", case.id);
                refused += 1;
            }
        }
    }
    assert!(refused >= 23, "{refused}");
}

#[test]
fn every_config_case_is_driven_or_left_to_another_room_by_name() {
    let left: BTreeMap<_, _> = LEFT.into_iter().collect();
    for case in read("config.jsonl", 34) {
        let input = case.text("input");
        let driven = input.starts_with("load rule ") || files_of(&case.id).is_some() || case.id == "C054";
        assert!(driven != left.contains_key(case.id.as_str()), "{}: {input}", case.id);
    }
}

#[test]
fn an_empty_list_allows_nothing() {
    let case = read("config.jsonl", 34).into_iter().find(|case| case.id == "C001").unwrap();
    assert_eq!(case.text("input"), "allow = []");
    let policy = case.policy();
    for text in ["github.com:443", "localhost:80", "127.0.0.1:80", "203.0.113.10:443", "[2001:db8::1]:443"] {
        let decision = policy.decide(&crate::target(text), &HostFacts::default());
        assert!(matches!(decision, Decision::Refuse(_)), "{text}");
    }
}

#[test]
fn the_mixed_answer_dials_only_what_is_public() {
    let case = read("target.jsonl", 161).into_iter().find(|case| case.id == "T263").unwrap();
    let (policy, facts) = (case.policy(), case.facts());
    let target = Target::parse_authority(&case.input(), Via::Connect).unwrap();
    let Decision::Allow(permit) = policy.decide(&target, &facts) else { panic!("{target} is listed") };
    let Host::Name(name) = target.host() else { panic!("{target} is a name") };
    let vetted = case.resolve(name).into_iter().filter_map(|address| policy.vet(&permit, address, &facts).ok());
    let dialled: Vec<_> = vetted.map(|address| address.socket_addr().to_string()).collect();
    assert_eq!(dialled, ["203.0.113.10:443"]);
}

#[test]
fn a_case_names_its_rule_by_the_source_that_was_given() {
    let source = Source::File { path: Path::new("netbox.toml").into(), line: 3, column: 10 };
    let rule = Rule::parse("github.com", source).unwrap();
    let policy = Policy::new(Mode::Allowlist, vec![rule], vec![]).unwrap();
    let Decision::Allow(permit) = policy.decide(&crate::target("github.com:443"), &HostFacts::default()) else {
        panic!("github.com is listed")
    };
    let rule = permit.rule().unwrap();
    assert_eq!((&*rule.text, &*rule.source), ("github.com", "netbox.toml:3:10"));
}
