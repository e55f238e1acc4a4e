//! `netbox run --via`: sandboxes that the shared service carries.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::programs::{CURL, PYTHON, curl, own, probe};
use crate::run::{Run, eventually};
use crate::service::{Service, household};
use crate::tests;
use crate::world::World;
use crate::zone::UDP_ECHO;

tests![
    what_is_listed_passes_and_all_else_is_refused_by_the_service needs [CURL],
    connects_are_refused_by_the_services_word needs [PYTHON],
    refused_datagrams_are_told needs [PYTHON],
    a_program_that_is_told_of_a_proxy_finds_the_service needs [CURL],
    each_sandbox_has_its_own_policy needs [CURL],
    what_the_owner_denies_is_denied_to_all needs [CURL],
    a_ceiling_of_the_user_bounds_what_is_asked_for needs [CURL],
    ports_of_the_two_loopbacks_stay_the_clients_own needs [CURL, PYTHON],
    exit_codes_are_those_of_a_run_without needs [],
    fail_on_block_hears_of_the_services_refusals needs [CURL],
    the_summary_tells_what_the_service_refused needs [CURL],
    the_end_of_a_client_ends_its_connections needs [CURL],
    the_environment_names_the_service_too needs [CURL],
    dry_run_names_the_service needs [],
    a_service_that_is_not_there_is_said_and_nothing_runs needs [],
    a_directory_that_others_may_write_to_is_not_believed needs [],
    a_client_in_another_user_namespace_is_refused needs [],
    one_service_at_a_time_has_a_socket needs [],
    doctor_looks_for_the_service_that_the_environment_names needs [],
];

fn what_is_listed_passes_and_all_else_is_refused_by_the_service(world: &World) {
    let (listed, other) = (world.zone().host("service-listed"), world.zone().host("service-other"));
    let service = Service::start(world, &[]);
    let urls = [listed.http("/page"), listed.https("/secret"), other.http("/")];
    let client = curl(&["--include", &urls[0], &urls[1], &urls[2]]);
    world.bare().exec(&client).says("hello service-other");
    let mark = world.mark();
    let outcome = service.netbox(&["--allow", &listed.name]).exec(&client);
    outcome.exits_with(0).says("hello service-listed.example.com GET /page").says("GET /secret").says("HTTP/1.1 403");
    let decision = outcome.allowed(&listed.name, 80, "listed");
    assert_eq!((&decision["rule"]["source"], &decision["via"]), (&"--allow".into(), &"capture".into()), "{outcome}");
    // Who made the connect is told by netbox, beside the connection itself: where that comes late, it is told of nobody.
    let names_the_process = || {
        let outcome = service.netbox(&["--allow", &listed.name]).exec(&curl(&[&urls[0]]));
        let decision = outcome.allowed(&listed.name, 80, "listed");
        decision["process"]["exe"].as_str().is_some_and(|exe| exe.ends_with("curl"))
    };
    assert!(eventually(names_the_process), "no decision names the process");
    outcome.allowed(&listed.name, 443, "listed");
    outcome.refused(&other.name, 80, "not-listed");
    assert_eq!(outcome.events_of("close").len(), 2, "{outcome}");
    let (exit, start) = (outcome.event("exit"), outcome.event("start"));
    assert_eq!((&exit["allowed"], &exit["denied"], &exit["events_dropped"]), (&2.into(), &1.into(), &0.into()));
    let sessions: Vec<_> = outcome.events.iter().map(|event| &event["session"]).collect();
    assert!(sessions.iter().all(|session| *session == &start["session"]), "{outcome}");
    world.assert_untouched(mark, &other);
    service.stop().exits_with(0);
}

fn connects_are_refused_by_the_services_word(world: &World) {
    let (listed, other) = (world.zone().host("service-connect"), world.zone().host("service-no-connect"));
    let service = Service::start(world, &[]);
    let client = probe(world, &["tcp", &listed.name, "5432", "hello"]);
    let outcome = service.netbox(&["--allow", &format!("tcp://{}", listed.port(5432))]).exec(&client);
    outcome.exits_with(0).says("hello").allowed(&listed.name, 5432, "listed");
    let client = probe(world, &["tcp", &other.name, "5432", "hello"]);
    world.bare().exec(&client).exits_with(0).says("hello");
    let untouched = world.mark();
    let outcome = service.netbox(&["--allow", &listed.name]).exec(&client);
    let decision = outcome.refused(&other.name, 5432, "not-listed");
    assert!(decision["process"]["pid"].as_u64().is_some(), "{outcome}");
    outcome.says("failed: EACCES");
    world.assert_untouched(untouched, &other);
}

fn refused_datagrams_are_told(world: &World) {
    let service = Service::start(world, &[]);
    let address = UDP_ECHO.to_string();
    let outcome = service.netbox(&["--mode", "open"]).exec(&probe(world, &["udp", &address, "4433", "ping"]));
    outcome.refused(&address, 4433, "udp");
}

fn a_program_that_is_told_of_a_proxy_finds_the_service(world: &World) {
    let host = world.zone().host("service-explicit");
    let service = Service::start(world, &[]);
    let url = host.http("/page");
    let outcome = service.netbox(&["--allow", &host.name, "--proxy-env", "http"]).exec(&curl(&[&url]));
    outcome.exits_with(0).says("GET /page");
    assert_eq!(outcome.allowed(&host.name, 80, "listed")["via"], "http", "{outcome}");
}

fn each_sandbox_has_its_own_policy(world: &World) {
    let (here, there) = (world.zone().host("service-here"), world.zone().host("service-there"));
    let service = Service::start(world, &[]);
    let (to_here, to_there) = (here.http("/[1-50]"), there.http("/[1-50]"));
    let client = curl(&["--parallel", "--parallel-max", "10", &to_here, &to_there]);
    let runs = [(&here, &there), (&there, &here)];
    let running = runs.map(|(allowed, _)| service.netbox(&["--allow", &allowed.name]).start(&client));
    for (running, (allowed, refused)) in running.into_iter().zip(runs) {
        let outcome = running.finish();
        let verdicts = |host: &str, verdict: &str| {
            outcome.decisions(host).iter().filter(|decision| decision["verdict"] == verdict).count()
        };
        let counts = [&allowed.name, &refused.name].map(|host| (verdicts(host, "allow"), verdicts(host, "deny")));
        assert_eq!(counts, [(50, 0), (0, 50)], "{outcome}");
    }
}

fn what_the_owner_denies_is_denied_to_all(world: &World) {
    let host = world.zone().host("service-denied");
    let service = Service::start(world, &["--deny", &host.name]);
    let url = host.http("/");
    for flags in [&["--allow", host.name.as_str()][..], &["--mode", "open"]] {
        let mark = world.mark();
        let outcome = service.netbox(flags).exec(&curl(&["--include", &url]));
        let decision = outcome.says("HTTP/1.1 403").refused(&host.name, 80, "denied");
        assert_eq!(decision["rule"]["source"], "--deny", "{outcome}");
        world.assert_untouched(mark, &host);
    }
}

fn a_ceiling_of_the_user_bounds_what_is_asked_for(world: &World) {
    let (inside, outside) = (world.zone().host("service-inside"), world.zone().host("service-outside"));
    let file = world.fresh_path("files").with_extension("toml");
    let uid = world.identity.uid;
    let text = format!("[service.user.{uid}]\nceiling = [\"{}\"]\nmode = \"allowlist\"\n", inside.name);
    fs::write(&file, text).expect("own folder");
    let service = Service::start(world, &["--config", &file.to_string_lossy()]);
    let urls = [inside.http("/"), outside.http("/")];
    let client = curl(&["--include", &urls[0], &urls[1]]);
    let mark = world.mark();
    let flags = ["--allow", &inside.name, "--allow", &outside.name];
    let outcome = service.netbox(&flags).exec(&client);
    outcome.says("hello service-inside").says("HTTP/1.1 403").allowed(&inside.name, 80, "listed");
    // Whoever wrote the rule counts on it.
    outcome.complains(&format!(
        "netbox: warning: the service: --allow: `{}` has no effect: all of it is outside the ceiling at {}:2:1\n",
        outside.name,
        file.display()
    ));
    outcome.refused(&outside.name, 80, "denied");
    world.assert_untouched(mark, &outside);
    // What is asked for beyond it is not granted, and that is said.
    let outcome = service.netbox(&["--mode", "open"]).exec(&client);
    outcome.complains("mode `open` is wider than `allowlist`").refused(&outside.name, 80, "denied");
    assert_eq!(outcome.event("start")["mode"], "allowlist", "{outcome}");
}

fn ports_of_the_two_loopbacks_stay_the_clients_own(world: &World) {
    let service = Service::start(world, &[]);
    let client = curl(&["http://127.0.0.1:8080/page"]);
    world.bare().exec(&client).says("GET /page");
    let outcome = service.netbox(&["--host-port", "8080"]).exec(&client);
    outcome.exits_with(0).says("GET /page").allowed("127.0.0.1", 8080, "listed");
    assert_eq!(outcome.event("exit")["allowed"], 1, "{outcome}");
    let words = own(world, PYTHON.name, "serve.py", &["127.0.0.1", "8766", "sh", "-c", "echo ready; cat"]);
    let serving = service.netbox(&["--publish", "8767:8766"]).stdin_open().start(&words);
    serving.wait_for_stdout("ready");
    world.bare().exec(&curl(&["http://127.0.0.1:8767/"])).exits_with(0).says("served inside");
    serving.finish().exits_with(0);
}

fn exit_codes_are_those_of_a_run_without(world: &World) {
    let service = Service::start(world, &[]);
    for (words, code) in [(&["sh", "-c", "exit 7"][..], 7), (&["no-such-program"], 127), (&["/"], 126)] {
        service.netbox(&["--mode", "none"]).exec(words).exits_with(code);
    }
    service.netbox(&["--timeout", "300ms"]).exec(&["sleep", "60"]).exits_with(124);
    let running = service.netbox(&["--mode", "none"]).start(&["sh", "-c", "echo runs; exec sleep 60"]);
    running.wait_for_stdout("runs");
    running.signal(Signal::SIGTERM);
    running.finish().exits_with(128 + 15);
}

fn fail_on_block_hears_of_the_services_refusals(world: &World) {
    let host = world.zone().host("service-block");
    let service = Service::start(world, &[]);
    let url = host.http("/");
    // With and without lines of events: the sums are told in any case.
    service.netbox(&["--fail-on-block"]).exec(&curl(&[&url])).exits_with(3);
    let words = ["run", "--no-config", "--via", service.via(), "--fail-on-block", "--"];
    let words = [&words[..], &curl(&[&url])].concat();
    world.netbox_words().within(household(world)).exec(&words).exits_with(3);
    service.netbox(&["--fail-on-block", "--allow", &host.name]).exec(&curl(&[&url])).exits_with(0);
}

fn the_summary_tells_what_the_service_refused(world: &World) {
    let (listed, other) = (world.zone().host("service-sums"), world.zone().host("service-no-sums"));
    let service = Service::start(world, &[]);
    let (one, two) = (listed.http("/"), other.http("/"));
    let outcome = service.netbox(&["--allow", &listed.name, "--summary", "always"]).exec(&curl(&[&one, &two]));
    outcome.complains("1 allowed, 1 refused").complains("reached service-sums.example.com:80");
    outcome.complains("refused service-no-sums.example.com:80 (not-listed); to allow it: --allow 'service-no-sums");
}

/// A stream whose second part never comes; the client is killed.
fn the_end_of_a_client_ends_its_connections(world: &World) {
    let host = world.zone().host("service-killed-client");
    let service = Service::start(world, &[]);
    let before = service.sockets();
    let stream = host.http("/events?gate=service-killed-client");
    let running = service.netbox(&["--allow", &host.name]).start(&curl(&["--no-buffer", &stream]));
    running.wait_for_stdout("data");
    assert!(service.sockets() > before, "it is carried");
    running.signal(Signal::SIGKILL);
    drop(running);
    assert!(eventually(|| service.sockets() == before), "{} sockets, and {before} before", service.sockets());
    world.gates().open("service-killed-client");
    service.stop().exits_with(0);
}

fn the_environment_names_the_service_too(world: &World) {
    let host = world.zone().host("service-environment");
    let service = Service::start(world, &["--deny", &host.name]);
    let url = host.http("/");
    let run = |value: &str| {
        let run = world.netbox(&["--no-config", "--allow", &host.name]).within(household(world));
        run.env("NETBOX_VIA", value).exec(&curl(&["--include", &url]))
    };
    run(service.via()).refused(&host.name, 80, "denied");
    run("").allowed(&host.name, 80, "listed");
    run("control.sock").exits_with(2).complains("NETBOX_VIA: write the path of a unix socket from `/`");
}

fn dry_run_names_the_service(world: &World) {
    let words = ["run", "--no-config", "--via", "unix:/run/netbox/control.sock", "--dry-run", "--json", "--", "true"];
    let outcome = world.netbox_words().exec(&words);
    let object: Value = serde_json::from_str(&outcome.exits_with(0).stdout()).expect("JSON");
    assert_eq!(object["via"], "unix:/run/netbox/control.sock");
}

fn a_service_that_is_not_there_is_said_and_nothing_runs(world: &World) {
    let folder = world.fresh_path("files");
    fs::create_dir(&folder).expect("own folder");
    let via = format!("unix:{}/control.sock", folder.display());
    let outcome = world.netbox(&["--no-config", "--via", &via]).exec(&["echo", "it runs"]);
    outcome.exits_with(125).does_not_say("it runs").complains("no service listens on");
    outcome.complains(&format!("hint: start it: `netbox proxy serve --listen {via}`"));
}

fn a_directory_that_others_may_write_to_is_not_believed(world: &World) {
    let service = Service::start(world, &[]);
    let folder = service.socket().parent().expect("a directory").to_owned();
    service.netbox(&["--mode", "none"]).exec(&["true"]).exits_with(0);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("own folder");
    let outcome = service.netbox(&["--mode", "none"]).exec(&["echo", "it runs"]);
    outcome.exits_with(125).does_not_say("it runs").complains("may be written to by others");
    let outcome = Run::serve(world, &["--listen", service.via()]).exec::<&str>(&[]);
    outcome.exits_with(125).complains("may be written to by others");
}

fn a_client_in_another_user_namespace_is_refused(world: &World) {
    if world.identity.real_root {
        // There, everybody is in one.
        return;
    }
    let service = Service::start(world, &[]);
    let outcome = world.netbox(&["--no-config", "--via", service.via()]).exec(&["echo", "it runs"]);
    outcome.exits_with(125).does_not_say("it runs").complains("another user namespace");
    service.running().wait_for_stderr("namespace: the client is in another user namespace");
}

fn one_service_at_a_time_has_a_socket(world: &World) {
    let service = Service::start(world, &[]);
    let outcome = Run::serve(world, &["--listen", service.via()]).within(household(world)).exec::<&str>(&[]);
    outcome.exits_with(125).complains("another netbox listens on");
    service.netbox(&["--mode", "none"]).exec(&["true"]).exits_with(0);
    let socket = service.socket().to_owned();
    service.stop().exits_with(0);
    assert!(fs::symlink_metadata(&socket).is_err(), "it is taken away at the end");
    Service::start_at(world, &socket, &[]).stop().exits_with(0);
}

fn doctor_looks_for_the_service_that_the_environment_names(world: &World) {
    let service = Service::start(world, &[]);
    let doctor = || {
        let run = world.netbox_words().within(household(world)).env("NETBOX_VIA", service.via());
        run.exec(&["doctor", "--json"])
    };
    let check = |outcome: &crate::outcome::Outcome| {
        let report: Value = serde_json::from_str(&outcome.stdout()).expect("JSON");
        let checks = report["checks"].as_array().expect("a list").clone();
        checks.into_iter().find(|check| check["name"] == "shared service").expect("it is looked for")
    };
    let outcome = doctor();
    assert_eq!(check(outcome.exits_with(0))["state"], "ok", "{outcome}");
    fs::remove_file(service.socket()).expect("own folder");
    let outcome = doctor();
    assert_eq!(check(outcome.exits_with(1))["state"], "failed", "{outcome}");
}
