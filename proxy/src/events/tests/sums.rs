//! What the summary at the end is made of.

use super::*;

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
