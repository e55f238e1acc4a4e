//! Where the shared service tells its events, while whoever takes them goes and comes.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::programs::{CURL, curl};
use crate::run::eventually;
use crate::service::Service;
use crate::tests;
use crate::world::World;

tests![
    a_collector_that_comes_back_is_found needs [CURL],
];

/// Somebody who takes events.
fn collector(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).expect("own folder");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    socket
}

/// What the next one is called.
fn next(collector: &UnixDatagram) -> std::io::Result<String> {
    let mut datagram = [0; 8192];
    let length = collector.recv(&mut datagram)?;
    let event: Value = serde_json::from_slice(&datagram[..length]).expect("one line is one event");
    Ok(event["event"].as_str().unwrap_or_default().to_owned())
}

fn a_collector_that_comes_back_is_found(world: &World) {
    let host = world.zone().host("collector");
    let path = world.fresh_path("files").with_extension("socket");
    let first = collector(&path);
    let file = world.fresh_path("files").with_extension("toml");
    let text = format!(
        "allow = [\"{}\"]\n[service]\nlisten = [\"127.0.0.1:0\"]\nmetrics = \"127.0.0.1:0\"\nevents = \"unix-datagram:{}\"\n",
        host.name,
        path.display()
    );
    fs::write(&file, text).expect("own folder");
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let listening = service.running().wait_for_stderr("listening on ");
    let addresses: Vec<_> = listening.split(' ').filter(|address| address.starts_with("127.")).collect();
    let [proxy, metrics] = addresses[..] else { panic!("two TCP addresses, not {listening}") };
    let (proxy, metrics) = (format!("http://{proxy}"), format!("http://{metrics}/metrics"));
    let ask = || {
        world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/")])).exits_with(0).says("hello");
    };
    ask();
    assert_eq!([(); 3].map(|()| next(&first).expect("it comes")), ["start", "decision", "close"]);
    // Nobody is there for a while.
    drop(first);
    ask();
    service.running().wait_for_stderr("error: nobody takes events at `unix-datagram:");
    let dropped = || world.bare().exec(&curl(&[&metrics])).stdout();
    assert!(eventually(|| dropped().contains("\nnetbox_events_dropped_total 2\n")), "{}", dropped());
    fs::remove_file(&path).expect("own folder");
    let second = collector(&path);
    second.set_nonblocking(true).expect("a socket");
    // It is looked for now and then, when there is something to tell.
    let is_found = || {
        ask();
        next(&second).is_ok()
    };
    assert!(eventually(is_found));
    service.running().wait_for_stderr("somebody takes events at `unix-datagram:");
    service.stop().exits_with(0);
    assert!(std::iter::from_fn(|| next(&second).ok()).any(|event| event == "exit"), "it goes on");
}
