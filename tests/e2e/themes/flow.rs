//! Bytes: they arrive whole, as they come, and in both directions independently.

use crate::programs::{CURL, PYTHON, curl, probe};
use crate::tests;
use crate::world::World;

tests![
    a_stream_arrives_event_by_event needs [CURL],
    a_large_download_is_whole needs [CURL],
    a_large_upload_is_whole needs [CURL],
    a_large_download_over_https_is_whole needs [CURL],
    a_client_may_end_its_direction_first needs [PYTHON],
    what_was_sent_before_the_exit_arrives needs [PYTHON],
    a_websocket_stays_open_both_ways needs [PYTHON],
    a_connection_carries_request_after_request needs [CURL],
    many_connections_at_once needs [CURL],
    a_port_without_a_server_is_no_refusal needs [PYTHON],
];

const LARGE: &str = "33554432";

/// The second event waits for the test, and the test waits for the first: a proxy that held the answer back would
/// never let either go on.
fn a_stream_arrives_event_by_event(world: &World) {
    let host = world.zone().host("stream");
    let flags = ["--allow", &host.name];
    for (run, gate) in [(world.bare(), "stream-bare"), (world.netbox(&flags), "stream-netbox")] {
        let url = host.http(&format!("/events?gate={gate}"));
        let client = run.start(&curl(&["--no-buffer", &url]));
        client.wait_for_stdout("data: first\n");
        world.gates().open(gate);
        client.finish().exits_with(0).says("data: second\n");
    }
}

fn a_large_download_is_whole(world: &World) {
    let host = world.zone().host("download");
    downloads(world, &host.http(&format!("/big?n={LARGE}")), &host.name);
}

fn a_large_download_over_https_is_whole(world: &World) {
    let host = world.zone().host("download-https");
    downloads(world, &host.https(&format!("/big?n={LARGE}")), &host.name);
}

fn downloads(world: &World, url: &str, rule: &str) {
    let client = curl(&["--output", "/dev/null", "--write-out", "%{http_code} %{size_download}", url]);
    let whole = format!("200 {LARGE}");
    world.bare().exec(&client).exits_with(0).says(&whole);
    let outcome = world.netbox(&["--allow", rule]).exec(&client);
    outcome.exits_with(0).says(&whole);
    let received = outcome.event("close")["received"].as_u64().unwrap_or(0);
    assert!(received >= LARGE.parse().expect("a number"), "`close` counts what came: {outcome}");
}

fn a_large_upload_is_whole(world: &World) {
    let host = world.zone().host("upload");
    let file = world.path("home").join("upload");
    std::fs::write(&file, vec![b'x'; LARGE.parse().expect("a number")]).expect("own folder");
    let (data, url) = (format!("@{}", file.display()), host.http("/upload"));
    let client = curl(&["--data-binary", &data, &url]);
    let whole = format!("POST /upload body={LARGE}");
    world.bare().exec(&client).exits_with(0).says(&whole);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.exits_with(0).says(&whole);
    let sent = outcome.event("close")["sent"].as_u64().unwrap_or(0);
    assert!(sent >= LARGE.parse().expect("a number"), "`close` counts what went: {outcome}");
}

fn a_client_may_end_its_direction_first(world: &World) {
    let host = world.zone().host("half-close");
    let client = probe(world, &["half-close", &host.name, "9001", "100000"]);
    world.bare().exec(&client).says("answer: 100000 bytes before the end");
    let outcome = world.netbox(&["--allow", &host.port(9001)]).exec(&client);
    outcome.says("answer: 100000 bytes before the end");
    assert_eq!(outcome.event("close")["end"], "done", "{outcome}");
}

/// The program hands its bytes to the kernel and is gone, and netbox ends with it. It must not take them along.
fn what_was_sent_before_the_exit_arrives(world: &World) {
    const LENGTH: usize = 2_000_000;
    let host = world.zone().host("last-words");
    let script = format!(
        "import os, socket\ns = socket.create_connection(('{}', 9001))\ns.sendall(b'x' * {LENGTH})\nos._exit(0)",
        host.name
    );
    for run in [world.bare(), world.netbox(&["--allow", &host.port(9001)])] {
        let mark = world.mark();
        run.exec(&["python3", "-c", &script]).exits_with(0);
        let arrivals = world.arrivals(mark, &host);
        let whole = |line: &Option<String>| line.as_ref().is_some_and(|line| line.len() == LENGTH);
        assert!(arrivals.iter().any(|arrival| whole(&arrival.line)), "{} arrivals", arrivals.len());
    }
}

fn a_websocket_stays_open_both_ways(world: &World) {
    let host = world.zone().host("websocket");
    let client = probe(world, &["websocket", &host.name, "80", "over and out"]);
    world.bare().exec(&client).says("upgraded\nanswer: over and out");
    world.netbox(&["--allow", &host.name]).exec(&client).says("upgraded\nanswer: over and out");
}

fn a_connection_carries_request_after_request(world: &World) {
    let host = world.zone().host("keep-alive");
    let urls = [host.http("/one"), host.http("/two"), host.http("/three")];
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let client = curl(&urls);
    let third = "GET /three body=0 request=3";
    world.bare().exec(&client).says(third);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.exits_with(0).says(third);
    let paths: Vec<_> = outcome.decisions(&host.name).iter().map(|event| event["url"].to_string()).collect();
    assert_eq!(paths.len(), 3, "each request has its own decision: {outcome}");
    assert!(["/one", "/two", "/three"].iter().zip(&paths).all(|(path, url)| url.contains(path)), "{outcome}");
}

fn many_connections_at_once(world: &World) {
    let host = world.zone().host("at-once");
    let url = host.http("/[1-100]");
    let client = curl(&["--parallel", "--parallel-max", "50", "--header", "Connection: close", &url]);
    let count = |said: String| said.matches("hello at-once.example.com GET").count();
    assert_eq!(count(world.bare().exec(&client).stdout()), 100);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    assert_eq!(count(outcome.exits_with(0).stdout()), 100, "{outcome}");
    assert_eq!(outcome.event("exit")["allowed"], 100, "{outcome}");
}

/// The program sees a reset, and the event says that it was the far side's doing.
fn a_port_without_a_server_is_no_refusal(world: &World) {
    let host = world.zone().host("no-server");
    let client = probe(world, &["tcp", &host.name, "7777", "hello"]);
    world.bare().exec(&client).says("failed: ECONNREFUSED");
    let outcome = world.netbox(&["--allow", &host.port(7777)]).exec(&client);
    assert!(outcome.stdout().ends_with("reset\n"), "{outcome}");
    outcome.decided("error", &host.name, 7777, "refused");
}
