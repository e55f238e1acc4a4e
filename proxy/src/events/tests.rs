//! Tests of the events as a harness reads them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use netbox_config::{Mode, Reason, RuleRef, Via};
use serde_json::{Value, json};

use super::*;

mod elsewhere;
mod lines;
mod sinks;
mod sums;

const SESSION: [u8; 16] = [0xab; 16];

fn session() -> SessionId {
    SESSION.into()
}

fn file_of(end: impl Into<OwnedFd>) -> File {
    File::from(end.into())
}

/// What stands in the sink after `tell` and the `exit` event with code 0.
fn told(tell: impl FnOnce(&Events)) -> String {
    let sink = tempfile::tempfile().unwrap();
    let events = Events::new(session(), Some(sink.try_clone().unwrap().into()));
    tell(&events);
    events.exit(0);
    let mut text = String::new();
    let mut sink = sink;
    io::Seek::rewind(&mut sink).unwrap();
    sink.read_to_string(&mut text).unwrap();
    text
}

/// The first event as JSON, with the time checked and taken out.
fn first(text: &str) -> Value {
    let mut event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let time = event.as_object_mut().unwrap().remove("ts").unwrap();
    let time = time.as_str().unwrap();
    assert_eq!(time.len(), "2026-11-30T22:13:05.000250Z".len());
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    event
}

fn denied(host: &str) -> DecisionEvent {
    DecisionEvent::new(1, host, Some(443), Via::Capture, Reason::NotListed)
}

fn close(end: End) -> CloseEvent {
    CloseEvent {
        id: 1,
        host: "a.example".to_owned(),
        port: Some(443),
        addr: None,
        sent: 0,
        received: 0,
        duration: Duration::ZERO,
        end,
        sni: None,
        passed_late: None,
    }
}

#[test]
fn start_says_what_runs_and_under_what() {
    let text = told(|events| {
        events.start(Start {
            argv0: "git".to_owned(),
            mode: Mode::Allowlist,
            policy: "0f".repeat(32),
            walls: vec!["network".to_owned(), "seccomp".to_owned()],
            doors: vec!["--host-port 3000".to_owned()],
            pid: 4711,
        });
    });
    let expected = json!({
        "v": 1, "session": "ab".repeat(16), "event": "start", "argv0": "git", "mode": "allowlist",
        "policy": "0f".repeat(32), "walls": ["network", "seccomp"], "doors": ["--host-port 3000"], "pid": 4711,
    });
    assert_eq!(first(&text), expected);
}

#[test]
fn decision_has_every_field_that_is_known_and_no_other() {
    let bare = told(|events| events.decision(DecisionEvent::new(7, "a.example", None, Via::Dns, Reason::Udp)));
    let expected = json!({
        "v": 1, "session": "ab".repeat(16), "event": "decision", "id": 7, "verdict": "deny", "reason": "udp",
        "host": "a.example", "via": "dns",
    });
    assert_eq!(first(&bare), expected);

    let full = told(|events| {
        events.decision(DecisionEvent {
            rule: Some(RuleRef { text: "*.example:443".into(), source: "netbox.toml:3:10".into() }),
            would: Some(Reason::NotListed),
            sni: Some("a.example".to_owned()),
            method: Some("GET".to_owned()),
            url: Some("http://a.example/".to_owned()),
            process: Some(Process { pid: 12, exe: Some("/usr/bin/curl".to_owned()) }),
            hint: Some("a.example".to_owned()),
            near: Some("`*.a.example` is near".to_owned()),
            ..DecisionEvent::new(8, "a.example", Some(443), Via::Connect, Reason::Audit)
        });
    });
    let expected = json!({
        "v": 1, "session": "ab".repeat(16), "event": "decision", "id": 8, "verdict": "allow", "reason": "audit",
        "host": "a.example", "port": 443, "via": "connect", "would": "not-listed", "sni": "a.example",
        "rule": {"text": "*.example:443", "source": "netbox.toml:3:10"}, "method": "GET", "url": "http://a.example/",
        "process": {"pid": 12, "exe": "/usr/bin/curl"}, "hint": "a.example",
        "near": "`*.a.example` is near",
    });
    assert_eq!(first(&full), expected);
}

#[test]
fn close_tells_the_end_and_the_reason_of_a_late_refusal() {
    let text = told(|events| {
        events.close(CloseEvent {
            id: 3,
            host: "a.example".to_owned(),
            port: Some(443),
            addr: Some("203.0.113.7:443".parse().unwrap()),
            sent: 10,
            received: u64::MAX,
            duration: Duration::from_micros(1_999_999),
            ..close(End::Done)
        });
    });
    let expected = json!({
        "v": 1, "session": "ab".repeat(16), "event": "close", "id": 3, "addr": "203.0.113.7:443", "sent": 10,
        "received": u64::MAX, "duration_ms": 1999, "end": "done",
    });
    assert_eq!(first(&text), expected);

    let text = told(|events| {
        let passed = LatePass { would: Reason::SniMismatch, hint: Some("tcp://a.example:22".to_owned()) };
        events.close(CloseEvent { sni: Some("b.example".to_owned()), passed_late: Some(passed), ..close(End::Done) });
        let audited = &events.summary().audited[..];
        assert_eq!((&*audited[0].host, audited[0].reason, audited[0].count), ("a.example", Reason::SniMismatch, 1));
    });
    assert_eq!((&first(&text)["sni"], &first(&text)["would"]), (&json!("b.example"), &json!("sni-mismatch")));
    assert_eq!(first(&text)["hint"], "tcp://a.example:22");

    let refusal = LateRefusal { reason: Reason::SniMismatch, host: "a.example".to_owned(), port: Some(22), hint: None };
    let text = told(|events| events.close(close(End::Refused(refusal))));
    assert_eq!(first(&text)["end"], "refused");
    assert_eq!(first(&text)["reason"], "sni-mismatch");
}

#[test]
fn exit_counts_by_verdict_and_comes_last() {
    let text = told(|events| {
        events.decision(denied("a.example"));
        for reason in [Reason::Listed, Reason::Open, Reason::Audit, Reason::Timeout, Reason::Malformed, Reason::Denied]
        {
            events.decision(DecisionEvent::new(events.next_id(), "a.example", Some(1), Via::Http, reason));
        }
        let refusal = LateRefusal { reason: Reason::NotTls, host: String::new(), port: None, hint: None };
        events.close(close(End::Refused(refusal)));
    });
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "exit");
    assert_eq!((&last["code"], &last["events_dropped"]), (&json!(0), &json!(0)));
    assert_eq!((&last["allowed"], &last["denied"]), (&json!(3), &json!(3)));
    assert_eq!(text.lines().count(), 9);
}

#[test]
fn every_reason_has_its_verdict() {
    let verdicts = |wanted| Reason::ALL.into_iter().filter(move |&reason| Verdict::of(reason) == wanted);
    assert!(verdicts(Verdict::Allow).eq([Reason::Listed, Reason::Open, Reason::Audit]));
    let errors: Vec<_> = verdicts(Verdict::Error).map(Reason::as_str).collect();
    assert_eq!(
        errors,
        ["malformed", "dns-not-found", "dns-failed", "refused", "unreachable", "timeout", "upstream-proxy"]
    );
}

#[test]
fn sessions_differ() {
    assert_ne!(SessionId::random().unwrap(), SessionId::random().unwrap());
    assert_eq!(session().to_string(), "ab".repeat(16));
}
