//! Files and pipes that take what is written, slowly, in part or not at all.

use super::*;

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
    let events = Events::new(session(), Some(full.into()));
    (0..10).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.dropped(), 11);
    assert_eq!(events.summary().denied, 10);
}

#[test]
fn a_closed_pipe_is_counted() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let events = Events::new(session(), Some(file_of(writer).into()));
    (0..10).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.dropped(), 11);
}

/// Nobody reads until all is said: what does not fit the queue is dropped, nobody waited, and `exit` tells how many.
#[test]
fn a_queue_that_is_full_drops_and_tells_how_many() {
    let (mut reader, writer) = io::pipe().unwrap();
    let events = Events::with_flush_deadline(session(), Some(file_of(writer).into()), Duration::from_secs(60));
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
    let events = Events::with_flush_deadline(session(), Some(file_of(writer).into()), Duration::from_millis(1));
    (0..4096).for_each(|_| events.decision(denied("a.example")));
    events.exit(0);
    assert_eq!(events.summary().denied, 4096);
}

#[test]
fn a_descriptor_that_does_not_block_is_waited_for() {
    let (mut reader, writer) = io::pipe().unwrap();
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).unwrap();
    let events = Events::with_flush_deadline(session(), Some(file_of(writer).into()), Duration::from_secs(60));
    (0..2000).for_each(|_| events.decision(denied("a.example")));
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    events.exit(0);
    assert_eq!(reading.join().unwrap().unwrap().lines().count(), 2001);
    assert_eq!(events.dropped(), 0);
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
