//! The shared service while it is operated: reload, drain, restart, and how it is seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::outcome::{Outcome, read_events};
use crate::programs::{CURL, PYTHON, SYSTEMD_ANALYZE, curl, own};
use crate::run::{Running, eventually};
use crate::service::{Service, household};
use crate::tests;
use crate::world::World;
use crate::zone::Host;

tests![
    a_narrower_file_ends_what_it_no_longer_allows_and_nothing_else needs [CURL],
    a_ceiling_that_is_lowered_binds_sandboxes_that_are_attached needs [CURL],
    a_bad_file_changes_nothing_and_is_told_with_its_place needs [CURL],
    addresses_come_and_go_with_a_reload needs [CURL],
    an_address_may_change_its_role_with_a_reload needs [CURL],
    a_reload_under_load_loses_no_request needs [CURL],
    a_drain_under_load_loses_nothing_that_was_taken needs [CURL],
    a_drained_service_lets_what_is_open_finish needs [CURL],
    the_second_signal_ends_what_does_not_finish needs [CURL],
    sockets_outlive_the_service_that_they_are_handed_to needs [PYTHON],
    events_of_all_tenants_go_to_one_file_that_may_be_rotated needs [CURL],
    a_line_for_the_journal_bears_its_priority needs [],
    metrics_are_sums_for_whoever_has_no_token needs [CURL],
    status_shows_who_is_carried_and_what_was_refused needs [CURL],
    only_the_owner_operates_the_service needs [],
    the_units_are_right_and_confine_the_service needs [SYSTEMD_ANALYZE],
];

/// A policy file of the test's, with this text.
pub(super) fn file(world: &World, text: &str) -> PathBuf {
    let file = world.fresh_path("files").with_extension("toml");
    write(&file, text);
    file
}

/// In one step: a service may read it at any moment.
pub(super) fn write(file: &Path, text: &str) {
    let scratch = file.with_extension("new");
    fs::write(&scratch, text).expect("own folder");
    fs::rename(scratch, file).expect("own folder");
}

/// How a service is.
fn status(world: &World, service: &Service<'_>) -> Value {
    serde_json::from_str(&ask(world, service, &["status", "--json"]).stdout()).expect("JSON")
}

/// How the connections of plain clients ended, by the events that were written there.
pub(super) fn ends_of(events: &Path) -> Vec<String> {
    let events = read_events(events);
    let closes = events.iter().filter(|event| event["event"] == "close");
    closes.map(|close| close["end"].as_str().expect("a word").to_owned()).collect()
}

/// `netbox proxy` with these words, for this service.
pub(super) fn ask(world: &World, service: &Service<'_>, words: &[&str]) -> Outcome {
    let words = [&["proxy"], words, &["--via", service.via()]].concat();
    world.netbox_words().within(household(world)).exec(&words)
}

/// A connection that is in the middle of it, until its gate opens.
fn streaming(world: &World, proxy: &str, host: &Host, gate: &str) -> Running {
    let url = host.http(&format!("/events?gate={gate}"));
    let client = world.bare().start(&curl(&["--no-buffer", "--proxy", proxy, &url]));
    client.wait_for_stdout("data: first\n");
    client
}

/// The address of the plain proxy, of all that a service listens on.
fn proxy_of(service: &Service<'_>) -> String {
    let listening = service.running().wait_for_stderr("listening on ");
    let address = listening.split(' ').find(|address| address.starts_with("127."));
    format!("http://{}", address.expect("a TCP address"))
}

fn a_narrower_file_ends_what_it_no_longer_allows_and_nothing_else(world: &World) {
    let (kept, gone) = (world.zone().host("reload-kept"), world.zone().host("reload-gone"));
    let file = file(world, &format!("allow = [\"{}\", \"{}\"]\n", kept.name, gone.name));
    let events = world.fresh_path("events");
    let (policy, written) = (file.to_string_lossy(), events.to_string_lossy());
    let flags = ["--listen", "127.0.0.1:0", "--config", &policy, "--events", &written];
    let service = Service::start(world, &flags);
    let proxy = proxy_of(&service);
    let stays = streaming(world, &proxy, &kept, "reload-stays");
    let ends = streaming(world, &proxy, &gone, "reload-ends");
    write(&file, &format!("allow = [\"{}\"]\n", kept.name));
    ask(world, &service, &["reload"]).exits_with(0).complains("read anew, 1 connection revoked");
    assert_ne!(ends.finish().code, Some(0));
    world.bare().exec(&curl(&["--proxy", &proxy, &gone.http("/")])).says("not-listed");
    world.gates().open("reload-stays");
    stays.finish().exits_with(0);
    // Wider again, by a signal.
    write(&file, &format!("allow = [\"{}\", \"{}\"]\n", kept.name, gone.name));
    let stays = streaming(world, &proxy, &kept, "reload-stays-again");
    service.running().signal(Signal::SIGHUP);
    service.running().wait_for_stderr("read anew; listening on ");
    world.bare().exec(&curl(&["--proxy", &proxy, &gone.http("/page")])).exits_with(0).says("GET /page");
    world.gates().open("reload-stays-again");
    stays.finish().exits_with(0);
    world.gates().open("reload-ends");
    service.stop().exits_with(0);
    assert_eq!(ends_of(&events), ["revoked", "done", "done", "done"]);
}

fn a_ceiling_that_is_lowered_binds_sandboxes_that_are_attached(world: &World) {
    let (kept, gone) = (world.zone().host("lowered-kept"), world.zone().host("lowered-gone"));
    let table = |rules: &str| format!("[service.user.{}]\nceiling = [{rules}]\n", world.identity.uid);
    let file = file(world, &table(&format!("\"{}\", \"{}\"", kept.name, gone.name)));
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let allow = format!("{},{}", kept.name, gone.name);
    let script = "curl --no-buffer --silent \"$0\"; echo \"ended $?\"; curl --silent --output /dev/null --write-out '%{http_code}\\n' \"$1\"";
    let (stream, page) = (gone.http("/events?gate=lowered-gone"), kept.http("/"));
    let running = service.netbox(&["--allow", &allow]).start(&["sh", "-c", script, &stream, &page]);
    running.wait_for_stdout("data: first\n");
    write(&file, &table(&format!("\"{}\"", kept.name)));
    ask(world, &service, &["reload"]).exits_with(0).complains("1 connection revoked");
    let outcome = running.finish();
    let lost =
        format!("warning: the service: --allow: `{}` has no effect: all of it is outside the ceiling", gone.name);
    outcome.complains("warning: the service has changed what it grants\n").complains(&lost);
    outcome.exits_with(0).does_not_say("ended 0").says("200\n");
    assert_eq!(outcome.events_of("close")[0]["end"], "revoked", "{outcome}");
    world.gates().open("lowered-gone");
    // What is asked for from now on is held to the new ceiling.
    let mark = world.mark();
    let refused = service.netbox(&["--allow", &allow]).exec(&curl(&["--include", &gone.http("/")]));
    refused.says("HTTP/1.1 403").refused(&gone.name, 80, "denied");
    world.assert_untouched(mark, &gone);
    service.stop().exits_with(0);
}

fn a_bad_file_changes_nothing_and_is_told_with_its_place(world: &World) {
    let host = world.zone().host("reload-bad");
    let good = format!("allow = [\"{}\"]\n", host.name);
    let file = file(world, &good);
    let service = Service::start(world, &["--listen", "127.0.0.1:0", "--config", &file.to_string_lossy()]);
    let proxy = proxy_of(&service);
    for (text, what) in [("allow = [\"*.com\"]\n", "1:11"), ("allow = [\n", ""), ("allows = []\n", "allows")] {
        write(&file, text);
        let outcome = ask(world, &service, &["reload"]);
        outcome.exits_with(125).complains(&file.file_name().expect("a name").to_string_lossy()).complains(what);
        world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/page")])).exits_with(0).says("GET /page");
        let failed = status(world, &service)["reloads_failed"].as_u64().expect("a number");
        service.running().signal(Signal::SIGHUP);
        assert!(eventually(|| status(world, &service)["reloads_failed"] == failed + 1));
    }
    let bad = status(world, &service);
    assert!(bad["reload_error"].is_string() && bad["reloads"] == 0, "{bad}");
    write(&file, &good);
    ask(world, &service, &["reload"]).exits_with(0);
    let well = status(world, &service);
    assert!(well["reload_error"].is_null() && well["reloads"] == 1, "{well}");
    let outcome = service.stop();
    let said = outcome.exits_with(0).stderr();
    assert_eq!(said.matches("error: nothing has changed: ").count(), 6, "each is said once: {outcome}");
    assert!(!said.contains("control socket: "), "{outcome}");
}

fn addresses_come_and_go_with_a_reload(world: &World) {
    let host = world.zone().host("reload-address");
    let text = |listen: &str| format!("allow = [\"{}\"]\n[service]\nlisten = [{listen}]\n", host.name);
    let file = file(world, &text(""));
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    write(&file, &text("\"127.0.0.1:0\""));
    let done = ask(world, &service, &["reload"]);
    let listening = done.exits_with(0).stderr();
    let address = listening.split([' ', '\n']).find(|word| word.starts_with("127.0.0.1:")).expect("an address");
    let proxy = format!("http://{address}");
    let stays = streaming(world, &proxy, &host, "reload-address");
    // It does not lead to itself.
    let own = curl(&["--proxy", &proxy, &proxy]);
    world.bare().exec(&own).says("is refused");
    write(&file, &text(""));
    ask(world, &service, &["reload"]).exits_with(0);
    let mut last = None;
    let is_closed = || {
        last = Some(world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/")])));
        last.as_ref().is_some_and(|outcome| outcome.code == Some(7))
    };
    assert!(eventually(is_closed), "{last:?}");
    world.gates().open("reload-address");
    stays.finish().exits_with(0);
    service.stop().exits_with(0);
}

fn an_address_may_change_its_role_with_a_reload(world: &World) {
    let (one, other) = (world.zone().host("role-one"), world.zone().host("role-other"));
    // A free port, which is the service's from then on.
    let port = world.in_inet(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        listener.local_addr().expect("bound").port()
    });
    let text = |role: &str| {
        format!(
            "[service.role.one]\nallow = [\"{}\"]\n[service.role.other]\nallow = [\"{}\"]\n\
             [[service.listener]]\naddress = \"127.0.0.1:{port}\"\nrole = \"{role}\"\n",
            one.name, other.name
        )
    };
    let file = file(world, &text("one"));
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let proxy = format!("http://127.0.0.1:{port}");
    let page = |host: &Host| world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/page")]));
    page(&one).says("GET /page");
    page(&other).says("not-listed");
    write(&file, &text("other"));
    ask(world, &service, &["reload"]).exits_with(0);
    // As soon as the one that was there before takes no more.
    assert!(eventually(|| page(&one).stdout().contains("not-listed")));
    page(&other).says("GET /page");
    service.stop().exits_with(0);
}

/// A client that asks for so many pages, many at once, each by a connection of its own.
fn load(world: &World, proxy: &str, host: &Host, count: usize) -> Running {
    let url = host.http(&format!("/[1-{count}]"));
    let client = ["--parallel", "--parallel-max", "20", "--no-keepalive", "--fail", "--header", "Connection: close"];
    world.bare().start(&curl(&[&client[..], &["--proxy", proxy, &url]].concat()))
}

fn a_reload_under_load_loses_no_request(world: &World) {
    let host = world.zone().host("reload-load");
    let events = world.fresh_path("events");
    let policy = |other: &str| format!("allow = [\"{}\", \"{other}\"]\n", host.name);
    let file = file(world, &policy("one.example.com"));
    let (named, written) = (file.to_string_lossy(), events.to_string_lossy());
    let service = Service::start(world, &["--listen", "127.0.0.1:0", "--config", &named, "--events", &written]);
    let proxy = proxy_of(&service);
    let client = load(world, &proxy, &host, 500);
    let mut reloads = 0;
    while !client.has_ended() {
        write(&file, &policy(if reloads % 2 == 0 { "other.example.com" } else { "one.example.com" }));
        ask(world, &service, &["reload"]).exits_with(0).complains("read anew; ");
        reloads += 1;
    }
    assert!(reloads > 1, "it was read anew while there was load");
    client.finish().exits_with(0);
    service.stop().exits_with(0);
    let ends = ends_of(&events);
    assert!(ends.len() == 500 && ends.iter().all(|end| end == "done"), "{ends:?}");
}

fn a_drain_under_load_loses_nothing_that_was_taken(world: &World) {
    let host = world.zone().host("drain-load");
    let events = world.fresh_path("events");
    let written = events.to_string_lossy();
    let service = Service::start(world, &["--listen", "127.0.0.1:0", "--allow", &host.name, "--events", &written]);
    let proxy = proxy_of(&service);
    let client = load(world, &proxy, &host, 2000);
    client.wait_for_stdout("GET /100");
    service.running().signal(Signal::SIGTERM);
    service.finish().exits_with(0);
    // What came too late was refused, and that is all.
    client.finish();
    let ends = ends_of(&events);
    assert!(!ends.is_empty() && ends.iter().all(|end| end == "done"), "{ends:?}");
}

fn a_drained_service_lets_what_is_open_finish(world: &World) {
    let host = world.zone().host("drain-finish");
    let events = world.fresh_path("events");
    let flags = ["--listen", "127.0.0.1:0", "--allow", &host.name, "--events", &events.to_string_lossy()];
    let service = Service::start(world, &flags);
    let proxy = proxy_of(&service);
    let url = host.http("/events?gate=drain-finish");
    let attached = service.netbox(&["--allow", &host.name]).start(&curl(&["--no-buffer", &url]));
    attached.wait_for_stdout("data: first\n");
    let plain = streaming(world, &proxy, &host, "drain-finish");
    ask(world, &service, &["drain"]).exits_with(0).complains("taking no more connections; 2 connections are open");
    // Nobody new: neither a plain client nor a sandbox.
    assert_eq!(world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/")])).code, Some(7));
    service.netbox(&["--allow", &host.name]).exec(&["true"]).exits_with(125).complains("about to end");
    assert!(!service.running().has_ended());
    world.gates().open("drain-finish");
    plain.finish().exits_with(0).says("data: second");
    attached.finish().exits_with(0).says("data: second");
    service.finish().exits_with(0);
    assert_eq!(ends_of(&events), ["done", "done"]);
}

fn the_second_signal_ends_what_does_not_finish(world: &World) {
    let host = world.zone().host("drain-second");
    for (flags, second) in [(&["--drain-timeout", "1h"][..], true), (&["--drain-timeout", "50ms"], false)] {
        let events = world.fresh_path("events");
        let written = events.to_string_lossy();
        let flags = [&["--listen", "127.0.0.1:0", "--allow", &host.name, "--events", &written], flags].concat();
        let service = Service::start(world, &flags);
        let proxy = proxy_of(&service);
        let held = streaming(world, &proxy, &host, "drain-second");
        service.running().signal(Signal::SIGTERM);
        service.running().wait_for_stderr("taking no more connections; 1 connection is open");
        if second {
            service.running().signal(Signal::SIGTERM);
        }
        service.finish().exits_with(0);
        assert_eq!(ends_of(&events), ["reset"]);
        assert_ne!(held.finish().code, Some(0));
    }
    world.gates().open("drain-second");
}

fn sockets_outlive_the_service_that_they_are_handed_to(world: &World) {
    let host = world.zone().host("activated");
    let folder = world.fresh_path("files");
    let (folder, url, netbox) = (folder.to_string_lossy(), host.http("/page"), world.netbox_path().to_string_lossy());
    let service = [&*netbox, "proxy", "serve", "--no-config", "--allow", &host.name];
    let words = own(world, PYTHON.name, "supervise.py", &[&[&*folder, &*url][..], &service].concat());
    let outcome = world.bare().exec(&words);
    outcome.exits_with(0).says("READY=1\nSTATUS=1 tenants, 0 connections, listening on ").says("control.sock");
    outcome.says("first: HTTP/1.1 200 OK").says("WATCHDOG=1").says("STOPPING=1").says("ended: 0");
    outcome.says("waited: HTTP/1.1 200 OK\nended: 0\n");
}

fn events_of_all_tenants_go_to_one_file_that_may_be_rotated(world: &World) {
    let host = world.zone().host("rotated");
    let events = world.fresh_path("events");
    let policy = format!(
        "allow = [\"{}\"]\n[service]\nlisten = [\"127.0.0.1:0\"]\nevents = \"{}\"\n",
        host.name,
        events.to_string_lossy()
    );
    let file = file(world, &policy);
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let proxy = proxy_of(&service);
    let attached = service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/attached")]));
    attached.exits_with(0);
    let moved = events.with_extension("1");
    fs::rename(&events, &moved).expect("own folder");
    service.running().signal(Signal::SIGUSR1);
    assert!(eventually(|| fs::symlink_metadata(&events).is_ok()));
    world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/plain")])).exits_with(0);
    service.stop().exits_with(0);
    let (before, after) = (read_events(&moved), read_events(&events));
    // The sandbox's own beginning and decision, under the number that its client knows.
    let session = &attached.event("start")["session"];
    let of_sandbox: Vec<_> = before.iter().filter(|event| event["session"] == *session).collect();
    let kinds: Vec<_> = of_sandbox.iter().map(|event| event["event"].as_str().expect("a word")).collect();
    assert_eq!(kinds, ["start", "decision", "close"], "{before:?}");
    assert_eq!((&of_sandbox[0]["argv0"], &of_sandbox[0]["uid"]), (&"curl".into(), &world.identity.uid.as_raw().into()));
    let kinds: Vec<_> = after.iter().map(|event| event["event"].as_str().expect("a word")).collect();
    assert_eq!(kinds, ["decision", "close", "exit"], "{after:?}");
}

fn a_line_for_the_journal_bears_its_priority(world: &World) {
    // The shell's standard error is a pipe, and systemd would name that one.
    let script = "export JOURNAL_STREAM=$(stat --dereference --format %d:%i /proc/self/fd/2); exec \"$0\" proxy status --via unix:/nonexistent/x";
    let netbox = world.netbox_path().to_string_lossy();
    let outcome = world.bare().exec(&["sh", "-c", script, &netbox]);
    outcome.exits_with(125).complains("<3>netbox: error: ");
    let script = "exec \"$0\" proxy status --via unix:/nonexistent/x";
    let outcome = world.bare().env("JOURNAL_STREAM", "1:1").exec(&["sh", "-c", script, &netbox]);
    assert!(outcome.stderr().starts_with("netbox: error: "), "{outcome}");
}

fn metrics_are_sums_for_whoever_has_no_token(world: &World) {
    let host = world.zone().host("metrics");
    let service =
        Service::start(world, &["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--allow", &host.name]);
    let listening = service.running().wait_for_stderr("listening on ");
    let addresses: Vec<_> = listening.split(' ').filter(|address| address.starts_with("127.")).collect();
    let [proxy, metrics] = addresses[..] else { panic!("two TCP addresses, not {listening}") };
    let proxy = format!("http://{proxy}");
    world.bare().exec(&curl(&["--proxy", &proxy, &host.http("/page")])).exits_with(0);
    world.bare().exec(&curl(&["--proxy", &proxy, "http://unlisted.example.com/"])).says("not-listed");
    service.netbox(&["--allow", &host.name]).exec(&curl(&[&host.http("/page")])).exits_with(0);
    let page = |path: &str| format!("http://{metrics}{path}");
    let text = world.bare().exec(&curl(&["--include", &page("/metrics")]));
    text.exits_with(0).says("application/openmetrics-text; version=1.0.0").says("\n# EOF\n");
    text.says("netbox_decisions_total{verdict=\"allow\",reason=\"listed\"} 2\n");
    text.says("netbox_decisions_total{verdict=\"deny\",reason=\"not-listed\"} 1\n");
    text.says("\nprocess_open_fds ").does_not_say("uid=").does_not_say("example.com");
    world.bare().exec(&curl(&["--fail", &page("/healthz"), &page("/readyz")])).exits_with(0);
    let own = page("/metrics");
    let wrong = curl(&["--include", "--header", "Authorization: Bearer netbox_0", &own]);
    world.bare().exec(&wrong).says("HTTP/1.1 401").does_not_say("netbox_");
    let named = curl(&["--include", "--header", "Host: metrics.example.com", &own]);
    world.bare().exec(&named).says("HTTP/1.1 421").does_not_say("netbox_");
    // Nobody who is carried gets there.
    world.bare().exec(&curl(&["--proxy", &proxy, &page("/metrics")])).says("is refused");
    service.stop().exits_with(0);
}

fn status_shows_who_is_carried_and_what_was_refused(world: &World) {
    let host = world.zone().host("status");
    let service = Service::start(world, &["--listen", "127.0.0.1:0"]);
    let script = "curl --silent --output /dev/null http://unlisted.example.com/; curl --no-buffer --silent \"$0\"";
    let url = host.http("/events?gate=status");
    let running = service.netbox(&["--allow", &host.name]).start(&["sh", "-c", script, &url]);
    running.wait_for_stdout("data: first\n");
    let status = status(world, &service);
    let tenants = status["tenants"].as_array().expect("a list");
    assert_eq!(tenants.len(), 2, "{status}");
    let sandbox = tenants.iter().find(|tenant| tenant["kind"] == "sandbox").expect("one of them");
    assert_eq!((&sandbox["name"], &sandbox["uid"]), (&"sh".into(), &world.identity.uid.as_raw().into()), "{status}");
    assert_eq!((&sandbox["open"], &sandbox["refused"]["not-listed"]), (&1.into(), &1.into()), "{status}");
    assert_eq!(sandbox["flows"][0]["target"], host.port(80), "{status}");
    assert_eq!(sandbox["refusals"][0]["hint"], "unlisted.example.com", "{status}");
    let table = ask(world, &service, &["status"]);
    table.exits_with(0).says("listening on ").says(&host.port(80)).says("to allow it: --allow 'unlisted.example.com'");
    let words = ["proxy", "status", "--json", "--watch", "--via", service.via()];
    let watching = world.netbox_words().within(household(world)).start(&words);
    watching.wait_for_stdout("}\n{");
    watching.signal(Signal::SIGINT);
    watching.finish();
    world.gates().open("status");
    running.finish().exits_with(0);
    service.stop().exits_with(0);
    let nobody = world.netbox_words().exec(&["proxy", "status", "--via", "unix:/nonexistent/control.sock"]);
    nobody.exits_with(125);
}

fn only_the_owner_operates_the_service(world: &World) {
    let service = Service::start(world, &[]);
    // The same user in another user namespace, as a program in a sandbox is. As real root all are in one.
    let elsewhere: &[&[&str]] = if world.identity.real_root { &[] } else { &[&["reload"], &["drain"], &["status"]] };
    for words in elsewhere {
        let words = [&["proxy"], *words, &["--via", service.via()]].concat();
        let outcome = world.netbox_words().exec(&words);
        outcome.exits_with(125).complains("in another user").complains("namespace");
    }
    service.stop().exits_with(0);
}

fn the_units_are_right_and_confine_the_service(world: &World) {
    let netbox = world.netbox_path().to_string_lossy().into_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd");
    let system = fs::read_to_string(source.join("system/netbox.service")).expect("the unit is there");
    // `ExecReload=` connects as the service's user to a socket that is root's and the group's.
    assert!(
        system.contains("\nSupplementaryGroups=netbox\n")
            && system.contains("\nExecReload=/usr/bin/netbox proxy reload\n")
    );
    for (kind, worst) in [("system", "20"), ("user", "70")] {
        let folder = world.fresh_path("files");
        fs::create_dir(&folder).expect("own folder");
        for unit in ["netbox.service", "netbox.socket"] {
            let text = fs::read_to_string(source.join(kind).join(unit)).expect("the unit is there");
            let text = text.replace("/usr/bin/netbox", &netbox).replace("SocketGroup=netbox", "SocketGroup=root");
            fs::write(folder.join(unit), text).expect("own folder");
        }
        let run = |words: &[&str]| {
            let manager = if kind == "user" { &["--user"][..] } else { &[] };
            let mut command = Command::new(SYSTEMD_ANALYZE.name);
            command.args(manager).args(words).args(["netbox.service"]).current_dir(&folder);
            command.env("HOME", &folder).env("XDG_RUNTIME_DIR", &folder).env("SYSTEMD_LOG_LEVEL", "warning");
            let output = command.output().expect("it is there");
            let text = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&text).into_owned())
        };
        let (is_right, text) = run(&["verify", "--man=no", "./netbox.socket"]);
        assert!(is_right && text.is_empty(), "{kind}: {text}");
        let (is_confined, text) = run(&["security", "--offline=true", "--threshold", worst]);
        assert!(is_confined, "{kind}: {text}");
    }
}
