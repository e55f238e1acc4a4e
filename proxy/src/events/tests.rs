//! Tests of the events as a harness reads them.

use std::io::{self, Read};
use std::os::fd::OwnedFd;

use netbox_config::Mode;
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Value, json};

use super::*;

mod elsewhere;

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
    let events = Events::new(session(), Some(sink.try_clone().unwrap()));
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
fn nothing_is_written_after_exit() {
    let text = told(|events| {
        events.exit(5);
        events.decision(denied("late.example"));
    });
    assert_eq!(text.lines().count(), 1);
    assert_eq!(first(&text)["code"], 5);
}

#[test]
fn a_full_disk_is_counted() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let events = Events::new(session(), Some(full));
    (0..10).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.dropped(), 11);
    assert_eq!(events.summary().denied, 10);
}

#[test]
fn a_closed_pipe_is_counted() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let events = Events::new(session(), Some(file_of(writer)));
    (0..10).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.dropped(), 11);
}

/// Nobody reads until all is said: what does not fit the queue is dropped, nobody waited, and `exit` tells how many.
#[test]
fn a_queue_that_is_full_drops_and_tells_how_many() {
    let (mut reader, writer) = io::pipe().unwrap();
    let events = Events::with_flush_deadline(session(), Some(file_of(writer)), Duration::from_secs(60));
    let host = "x".repeat(250);
    let said = 2 * writer::QUEUE_BYTES / host.len();
    (0..said).for_each(|_| events.decision(denied(&host)));
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    events.exit(0);
    let dropped = events.dropped();
    // The only other end of the pipe is the events thread's, which has ended.
    let text = reading.join().unwrap().unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(dropped > 0);
    assert_eq!(last["events_dropped"], dropped);
    assert_eq!(text.lines().count() as u64 - 1 + dropped, said as u64);
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn exit_gives_up_a_sink_that_takes_nothing() {
    let (_reader, writer) = io::pipe().unwrap();
    let events = Events::with_flush_deadline(session(), Some(file_of(writer)), Duration::from_millis(1));
    (0..4096).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.summary().denied, 4096);
}

#[test]
fn a_descriptor_that_does_not_block_is_waited_for() {
    let (mut reader, writer) = io::pipe().unwrap();
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    let events = Events::with_flush_deadline(session(), Some(file_of(writer)), Duration::from_secs(60));
    (0..2000).for_each(|_| events.decision(denied("a.example")));
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    events.exit(0);
    assert_eq!(reading.join().unwrap().unwrap().lines().count(), 2001);
    assert_eq!(events.dropped(), 0);
}

#[test]
fn what_was_reached_is_summed_by_host_and_is_bounded() {
    let events = Events::new(session(), None);
    let reached = |host: &str, sent, received, end| CloseEvent {
        host: host.to_owned(),
        addr: Some("203.0.113.7:443".parse().unwrap()),
        sent,
        received,
        ..close(end)
    };
    events.close(reached("a.example", 10, 100, End::Done));
    events.close(reached("b\n.example", 1, u64::MAX, End::Reset));
    events.close(reached("a.example", 5, 7, End::Timeout));
    events.close(reached("b\n.example", 1, 1, End::Done));
    // Neither of these got anywhere.
    events.close(close(End::Done));
    let late = |host: &str| {
        End::Refused(LateRefusal { reason: Reason::NotTls, host: host.to_owned(), port: Some(443), hint: None })
    };
    events.close(reached("c.example", 0, 1, late("c.example")));
    // This did, and was refused for what came then.
    events.close(reached("d.example", 7, 0, late("d.example")));
    let host =
        |host: &str, count, sent, received| Reached { host: host.to_owned(), port: Some(443), count, sent, received };
    let summary = events.summary();
    let expected =
        [host("a.example", 2, 15, 107), host("b\\u000a.example", 2, 2, u64::MAX), host("d.example", 1, 7, 0)];
    assert_eq!(summary.reached, expected);
    assert_eq!((summary.denied, summary.others_reached), (2, 0));

    (0..1000).for_each(|number| events.close(reached(&format!("{number}.example"), 1, 1, End::Done)));
    let summary = events.summary();
    assert_eq!((summary.reached.len() as u64, summary.others_reached), (MAX_GROUPS as u64, 1003 - MAX_GROUPS as u64));
}

#[test]
fn the_summary_groups_and_is_bounded() {
    let events = Events::new(session(), None);
    for _ in 0..3 {
        let (hint, near) = (Some("a.example:8443".to_owned()), Some("near\n".to_owned()));
        events.decision(DecisionEvent { hint, near, ..denied("a.example") });
    }
    events.decision(DecisionEvent::new(9, "a.example", Some(22), Via::Capture, Reason::PortNotListed));
    events.decision(DecisionEvent::new(9, "a\nb", None, Via::Connect, Reason::Malformed));
    let rule = Some(RuleRef { text: "*.d.example".into(), source: "a\u{1b}/netbox.toml:3:10".into() });
    let by_rule = DecisionEvent::new(9, "d.d.example", Some(443), Via::Capture, Reason::Denied);
    events.decision(DecisionEvent { rule, ..by_rule });
    events.decision(DecisionEvent::new(9, "b.example", Some(443), Via::Capture, Reason::DnsNotFound));
    let passed = DecisionEvent::new(9, "c.example", Some(443), Via::Capture, Reason::Audit);
    events.decision(DecisionEvent { would: Some(Reason::NotListed), hint: Some("c.example".to_owned()), ..passed });
    let group = |host: &str, port, reason, count, hint: Option<&str>| Refused {
        host: host.to_owned(),
        port,
        reason,
        count,
        hint: hint.map(str::to_owned),
        near: None,
        by: None,
    };
    let near = Some("near\\u000a".to_owned());
    let by = Some("`*.d.example` (a\\u001b/netbox.toml:3:10)".to_owned());
    let expected = Summary {
        allowed: 1,
        denied: 5,
        malformed: 1,
        failed: 1,
        refused: vec![
            Refused { near, ..group("a.example", Some(443), Reason::NotListed, 3, Some("a.example:8443")) },
            group("a.example", Some(22), Reason::PortNotListed, 1, None),
            group("a\\u000ab", None, Reason::Malformed, 1, None),
            Refused { by, ..group("d.d.example", Some(443), Reason::Denied, 1, None) },
        ],
        audited: vec![group("c.example", Some(443), Reason::NotListed, 1, Some("c.example"))],
        others_audited: 0,
        failures: vec![group("b.example", Some(443), Reason::DnsNotFound, 1, None)],
        reached: Vec::new(),
        others_reached: 0,
        others: 0,
    };
    assert_eq!(events.summary(), expected);

    (0..1000).for_each(|number| events.decision(denied(&format!("{number}.example"))));
    events.decision(denied("a.example"));
    let summary = events.summary();
    assert_eq!((summary.refused.len(), summary.denied), (MAX_GROUPS, 1006));
    assert_eq!(summary.refused[0].count, 4);
    let kept: u64 = summary.refused.iter().map(|group| group.count).sum();
    assert_eq!(kept + summary.others, summary.denied + summary.malformed);
}

#[test]
fn what_passes_in_audit_mode_is_kept_with_the_rule_for_all_of_it() {
    let events = Events::new(session(), None);
    let passed = |host: &str, hint: &str| {
        let passed = DecisionEvent::new(9, host, Some(443), Via::Capture, Reason::Audit);
        events.decision(DecisionEvent { would: Some(Reason::NotListed), hint: Some(hint.to_owned()), ..passed });
    };
    for hint in ["a.example", "tcp://a.example:443", "a.example"] {
        passed("a.example", hint);
    }
    let audited = events.summary().audited;
    assert_eq!((audited.len(), audited[0].count), (1, 3));
    assert_eq!(audited[0].hint.as_deref(), Some("tcp://a.example:443"));
    (0..MAX_AUDITED + 1).for_each(|number| passed(&format!("{number}.example"), "any"));
    let summary = events.summary();
    assert_eq!((summary.audited.len(), summary.others_audited), (MAX_AUDITED, 2));
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

#[test]
fn a_text_is_cut_at_its_budget_and_shows_it() {
    assert_eq!(line::cut("abcdef", 6), "abcdef");
    assert_eq!(line::cut("abcdefg", 6), "abc…");
    assert_eq!(line::cut("abc\u{1b}", 6), "abc…");
    assert_eq!(line::cut("ééé", 6), "ééé");
    assert_eq!(line::cut("éééé", 6), "é…");
    assert_eq!(line::cut("a\"\\\u{202e}\u{7f}", 99), "a\\\"\\\\\\u202e\\u007f");
    assert_eq!(line::cut("\u{e0041}", 99), "\\udb40\\udc41");
}

/// Texts that are long, or full of what must be escaped, or anything.
fn hostile() -> impl Strategy<Value = String> {
    let nasty =
        "[\u{0}-\u{20}\"\\\\\u{7f}-\u{a0}\u{ad}\u{61c}\u{200b}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}]";
    prop_oneof![
        any::<String>(),
        string_regex(&format!("{nasty}{{0,40}}")).unwrap(),
        string_regex(&format!("{nasty}{{3000,4000}}")).unwrap(),
        ".{2000,6000}",
        Just("\u{e0041}".repeat(5000)),
    ]
}

fn check_line(line: &str, texts: &[(&str, &str)]) -> Result<(), TestCaseError> {
    prop_assert!(line.len() <= MAX_LINE, "{} bytes", line.len());
    prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
    let raw = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    prop_assert!(!line.trim_end_matches('\n').chars().any(raw));
    let event: Value = serde_json::from_str(line).map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (pointer, text) in texts {
        let shown = event.pointer(pointer).and_then(Value::as_str).unwrap();
        match shown.strip_suffix('…') {
            Some(beginning) if shown != *text => prop_assert!(text.starts_with(beginning)),
            _ => prop_assert_eq!(shown, *text),
        }
    }
    Ok(())
}

/// One line as it is written.
fn line_of(fill: impl FnOnce(&mut Line) -> &'static str) -> String {
    let mut line = Line::new();
    let event = fill(&mut line);
    String::from_utf8(line.finish(session(), event)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_texts_give_one_bounded_line(
        [host, text, source, sni, method, url, exe, hint, near] in proptest::array::uniform9(hostile()),
        id: u64, port: u16, pid: u32,
    ) {
        let decision = DecisionEvent {
            rule: Some(RuleRef { text: text.as_str().into(), source: source.as_str().into() }),
            would: Some(Reason::AddressNotListed),
            sni: Some(sni.clone()),
            method: Some(method.clone()),
            url: Some(url.clone()),
            process: Some(Process { pid, exe: Some(exe.clone()) }),
            hint: Some(hint.clone()),
            near: Some(near.clone()),
            ..DecisionEvent::new(id, host.as_str(), Some(port), Via::Connect, Reason::AddressNotListed)
        };
        let line = line_of(|line| { line.decision(&decision); "decision" });
        check_line(&line, &[
            ("/host", &host), ("/rule/text", &text), ("/rule/source", &source), ("/sni", &sni), ("/method", &method),
            ("/url", &url), ("/process/exe", &exe), ("/hint", &hint), ("/near", &near),
        ])?;
    }

    #[test]
    fn any_command_gives_one_bounded_line(
        argv0 in hostile(), policy in hostile(), walls in proptest::collection::vec(hostile(), 0..12),
        doors in proptest::collection::vec(hostile(), 0..12),
    ) {
        let line = line_of(|line| {
            line.text("argv0", &argv0, line::ARGV0);
            line.text("policy", &policy, line::DIGEST);
            line.list("walls", &walls, line::WALLS);
            line.list("doors", &doors, line::DOORS);
            line.number("pid", u32::MAX.into());
            "start"
        });
        check_line(&line, &[("/argv0", &argv0), ("/policy", &policy)])?;
    }
}

/// The longest decision that there can be: every text over its budget, every number and word at its longest.
#[test]
fn the_budgets_add_up() {
    let long = "\u{1b}".repeat(5000);
    let decision = DecisionEvent {
        rule: Some(RuleRef { text: long.as_str().into(), source: long.as_str().into() }),
        would: Some(Reason::AddressNotListed),
        sni: Some(long.clone()),
        method: Some(long.clone()),
        url: Some(long.clone()),
        process: Some(Process { pid: u32::MAX, exe: Some(long.clone()) }),
        hint: Some(long.clone()),
        near: Some(long.clone()),
        ..DecisionEvent::new(u64::MAX, long, Some(u16::MAX), Via::Connect, Reason::AddressNotListed)
    };
    let line = line_of(|line| {
        line.decision(&decision);
        "decision"
    });
    assert!(line.len() <= MAX_LINE, "{} bytes", line.len());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_refusals_is_counted_and_leaves_room_for_what_is_allowed() {
    let text = told(|events| {
        for _ in 0..REFUSALS.most + 5 {
            events.decision(denied("evil.example"));
        }
        events.decision(DecisionEvent::new(2, "example.com", Some(443), Via::Capture, Reason::Listed));
    });
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts = |verdict: &str| lines.iter().filter(|line| line["verdict"] == verdict).count();
    assert_eq!((verdicts("deny"), verdicts("allow")), (10_000, 1));
    let exit = lines.last().unwrap();
    assert_eq!((&exit["denied"], &exit["events_dropped"]), (&json!(10_005), &json!(5)));
}
