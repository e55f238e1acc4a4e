//! Events that are made or told elsewhere: those of a sandbox that the shared service carries.

use super::*;

#[derive(Default)]
struct Told {
    lines: Mutex<Vec<String>>,
    room: usize,
    counted: AtomicU64,
}

impl Outlet for Told {
    fn wants_lines(&self) -> bool {
        self.room > 0
    }

    fn line(&self, line: &[u8]) -> bool {
        let mut lines = self.lines.lock().unwrap();
        let has_room = lines.len() < self.room;
        if has_room {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
        }
        has_room
    }

    fn counted(&self) {
        self.counted.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_outlet_is_told_every_line_or_it_is_counted() {
    let told = Arc::new(Told { room: 1, ..Told::default() });
    let events = Events::told_to(vec![Arc::clone(&told) as Arc<dyn Outlet>], session(), 7);
    assert!(events.are_written());
    assert_eq!(events.next_id(), 7);
    events.decision(denied("a.example"));
    events.decision(denied("b.example"));
    events.close(close(End::Done));
    assert_eq!(first(&told.lines.lock().unwrap()[0])["host"], "a.example");
    assert_eq!((events.dropped(), told.counted.load(Ordering::Relaxed), events.summary().denied), (2, 3, 2));
}

#[test]
fn who_wants_no_lines_gets_none_and_hears_of_the_sums() {
    let told = Arc::new(Told::default());
    let events = Events::told_to(vec![Arc::clone(&told) as Arc<dyn Outlet>], session(), 1);
    events.decision(denied("a.example"));
    assert!(!events.are_written());
    assert_eq!((events.dropped(), told.counted.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn what_was_made_elsewhere_is_passed_on_if_it_is_one_line() {
    let long = format!("{{{}}}\n", " ".repeat(MAX_LINE));
    let text = told(|events| {
        assert!(events.relay("{\"event\":\"decision\"}\n"));
        for wrong in ["", "\n", "{}", "{}\n{}\n", "text\n", long.as_str()] {
            assert!(!events.relay(wrong), "{wrong:?}");
        }
    });
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("{\"event\":\"decision\"}\n"));
}

#[test]
fn sums_from_elsewhere_add_up() {
    let events = Events::new(session(), None);
    events.decision(denied("a.example"));
    let elsewhere = Events::new(session(), None);
    elsewhere.decision(denied("a.example"));
    elsewhere.decision(denied("b.example"));
    elsewhere.decision(DecisionEvent::new(1, "c.example", Some(443), Via::Capture, Reason::Listed));
    events.add(&elsewhere.summary(), 5);
    let summary = events.summary();
    let counts: Vec<_> = summary.refused.iter().map(|refused| (refused.host.as_str(), refused.count)).collect();
    assert_eq!(counts, [("a.example", 2), ("b.example", 1)]);
    assert_eq!((summary.allowed, summary.denied, events.dropped()), (1, 3, 5));
    // What is kept apart is bounded, whoever counted it.
    for number in 0..MAX_GROUPS {
        elsewhere.decision(denied(&format!("{number}.example")));
    }
    events.add(&elsewhere.summary(), 0);
    let summary = events.summary();
    assert_eq!(summary.refused.len(), MAX_GROUPS);
    let told: u64 = summary.refused.iter().map(|refused| refused.count).sum();
    assert_eq!(told + summary.others, summary.denied);
}

#[test]
fn the_number_of_a_session_is_read_as_it_is_shown() {
    let shown = session().to_string();
    assert_eq!(shown.parse(), Ok(session()));
    for wrong in ["", &shown[1..], &shown.to_uppercase(), &format!("{shown}0"), &shown.replace('a', "+")] {
        assert_eq!(wrong.parse::<SessionId>(), Err(NoSessionId), "{wrong}");
    }
}
