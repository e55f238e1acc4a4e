//! Plain clients of the shared service: roles by token and by listener, over TCP and over TLS.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::Value;

use super::reach::publish_repository;
use crate::outcome::Outcome;
use crate::programs::{CURL, GIT, PIP, PYTHON, curl, own};
use crate::proxy::Proxy;
use crate::tests;
use crate::world::World;

tests![
    curl_proves_a_role_by_a_token needs [CURL],
    git_proves_a_role_by_a_token needs [GIT],
    pip_proves_a_role_by_a_token needs [PIP, PYTHON],
    curl_reaches_the_proxy_over_tls needs [CURL],
    m001_nobody_comes_in_without_a_token needs [CURL],
    m004_a_token_that_was_taken_away_ends_what_it_has_opened needs [CURL],
    m005_the_role_is_that_of_the_token_alone needs [CURL],
    m010_a_proxy_for_other_machines_needs_a_token_or_a_word needs [CURL],
    a_listener_of_a_role_says_who_comes needs [CURL],
    a_token_is_made_shown_once_and_known_by_its_hash needs [CURL],
    the_files_of_a_tls_listener_are_checked needs [],
    events_go_where_the_configuration_says needs [CURL],
];

/// The configuration of a service, in a folder of its own.
struct Service<'w> {
    world: &'w World,
    folder: PathBuf,
}

impl<'w> Service<'w> {
    fn new(world: &'w World, text: &str) -> Self {
        let folder = world.fresh_path("service");
        fs::create_dir_all(&folder).expect("own folder");
        let service = Self { world, folder };
        service.write("service.toml", text);
        service
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("own folder");
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path("service.toml")).expect("own folder")
    }

    fn token(&self, role: &str, flags: &[&str]) -> Outcome {
        let file = self.path("service.toml");
        let words = [&["proxy", "token", "new", role, "--config", &file], flags].concat();
        self.world.netbox_words().exec(&words)
    }

    /// A token of this role, which the file knows from now on.
    fn new_token(&self, role: &str) -> String {
        let outcome = self.token(role, &["--write"]);
        outcome.exits_with(0);
        outcome.stdout().trim().to_owned()
    }

    fn start(&self) -> Started {
        let proxy = self.world.proxy(&["--config", &self.path("service.toml")]);
        let addresses = proxy.address.split(' ').map(ToOwned::to_owned).collect();
        Started { proxy, addresses }
    }

    /// The files of a TLS listener on loopback.
    fn with_certificate(self) -> Self {
        let key = KeyPair::generate().expect("a key can be generated");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        self.write("proxy.crt", &params.self_signed(&key).expect("it signs itself").pem());
        self.write("proxy.key", &key.serialize_pem());
        self.close("proxy.key", 0o600);
        self
    }

    fn close(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).expect("own file");
    }
}

/// A service that listens. The last address is the one of the command line, which is for no role.
struct Started {
    proxy: Proxy,
    addresses: Vec<String>,
}

impl Started {
    fn url(&self, credentials: &str) -> String {
        let address = self.addresses.last().expect("it listens");
        if credentials.is_empty() { format!("http://{address}") } else { format!("http://{credentials}@{address}") }
    }
}

/// What curl with these flags gets from there.
fn fetch(world: &World, flags: &[&str], url: &str) -> Outcome {
    world.bare().exec(&curl(&[flags, &[url]].concat()))
}

/// Has curl say the code of the answer.
const CODE: [&str; 2] = ["--write-out", "%{http_code} %{http_connect}"];

/// Two roles that may reach a host each.
fn two_roles(ci: &str, dev: &str) -> String {
    format!("[service]\n[service.role.ci]\nallow = [\"{ci}\"]\n[service.role.dev]\nallow = [\"{dev}\"]\n")
}

fn curl_proves_a_role_by_a_token(world: &World) {
    let (host, other) = (world.zone().host("role-curl"), world.zone().host("role-curl-other"));
    let service = Service::new(world, &two_roles(&host.name, &other.name));
    let (ci, dev) = (service.new_token("ci"), service.new_token("dev"));
    let started = service.start();
    let address = started.addresses[0].clone();
    let bearer = format!("Proxy-Authorization: Bearer {ci}");
    let url = started.url("");
    for target in [host.http("/page"), host.https("/page")] {
        let login_url = started.url(&format!("x:{ci}"));
        let (login, socks) = (format!("anybody:{ci}"), format!("socks5h://anybody:{ci}@{address}"));
        for client in [
            curl(&["--proxy", &url, "--proxy-user", &login, &target]),
            curl(&["--proxy", &url, "--proxy-user", &login, "--proxy-anyauth", &target]),
            curl(&["--proxy", &url, "--proxy-header", &bearer, &target]),
            curl(&["--proxy", &login_url, &target]),
            curl(&["--proxy", &socks, &target]),
        ] {
            world.bare().exec(&client).exits_with(0).says(&format!("hello {} GET /page", host.name));
        }
    }
    let mark = world.mark();
    fetch(world, &["--proxy", &started.url(&format!("ci:{dev}"))], &host.http("/"))
        .says("is refused: no rule allows this host (not-listed)");
    world.assert_untouched(mark, &host);
    let outcome = started.proxy.stop();
    outcome.exits_with(0);
    let roles = |verdict: &str| -> Vec<_> {
        let judged = outcome.events_of("decision").into_iter().filter(|event| event["verdict"] == verdict);
        judged.map(|event| event["role"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(roles("allow"), ["ci"; 10], "{outcome}");
    // `--proxy-anyauth` asks without a token first.
    assert_eq!(roles("deny").iter().filter(|role| *role == "dev").count(), 1, "{outcome}");
    for token in [ci, dev] {
        let told = format!("{:?}{}", outcome.events_of("decision"), outcome.stderr());
        assert!(!told.contains(&token), "no token is told");
    }
}

fn git_proves_a_role_by_a_token(world: &World) {
    let (host, other) = (world.zone().host("role-git"), world.zone().host("role-git-other"));
    publish_repository(world);
    let service = Service::new(world, &two_roles(&host.name, &other.name));
    let token = service.new_token("ci");
    let started = service.start();
    for (number, url) in [host.http("/files/project.git"), host.https("/files/project.git")].iter().enumerate() {
        let setting = format!("http.proxy={}", started.url(&format!("git:{token}")));
        let folder = format!("cloned-role-{number}");
        world.bare().exec(&["git", "-c", &setting, "clone", url, &folder]).exits_with(0);
        let text = fs::read_to_string(world.path("home").join(folder).join("README"));
        assert_eq!(text.expect("the clone has the file"), "a file to clone\n");
    }
    let setting = format!("http.proxy={}", started.url(""));
    let outcome = world.bare().exec(&["git", "-c", &setting, "clone", &host.https("/files/project.git"), "not-cloned"]);
    outcome.exits_with(128).complains("407");
    started.proxy.stop().exits_with(0);
}

fn pip_proves_a_role_by_a_token(world: &World) {
    let (host, other) = (world.zone().host("role-pip"), world.zone().host("role-pip-other"));
    let wheel = "demo-1.0-py3-none-any.whl";
    let file = world.path("files").join(wheel).to_string_lossy().into_owned();
    world.bare().exec(&own(world, "python3", "wheel.py", &[&file])).exits_with(0);
    let service = Service::new(world, &two_roles(&host.name, &other.name));
    let token = service.new_token("ci");
    let started = service.start();
    let (url, authority) = (host.https(&format!("/files/{wheel}")), world.path("ca.pem"));
    let client = ["pip3", "--disable-pip-version-check", "download", "--no-deps", "--no-index", "--no-cache-dir"];
    let told = ["--cert", &authority.to_string_lossy(), "--dest", "downloads-role", &url].map(str::to_owned);
    let run = world.bare().env("https_proxy", started.url(&format!("pip:{token}")));
    run.exec(&[&client.map(str::to_owned)[..], &told].concat()).exits_with(0).says("Successfully downloaded demo");
    let outcome = started.proxy.stop();
    assert_eq!(outcome.allowed(&host.name, 443, "listed")["role"], "ci", "{outcome}");
}

fn curl_reaches_the_proxy_over_tls(world: &World) {
    let (host, other) = (world.zone().host("role-tls"), world.zone().host("role-tls-other"));
    let service = Service::new(world, "").with_certificate();
    let (certificate, key) = (service.path("proxy.crt"), service.path("proxy.key"));
    let listener = format!(
        "[[service.listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n"
    );
    service.write("service.toml", &(two_roles(&host.name, &other.name) + &listener));
    let token = service.new_token("ci");
    let started = service.start();
    let url = format!("https://ci:{token}@{}", started.addresses[0]);
    for target in [host.http("/page"), host.https("/page")] {
        let client = curl(&["--proxy", &url, "--proxy-cacert", &certificate, &target]);
        world.bare().exec(&client).exits_with(0).says(&format!("hello {} GET /page", host.name));
    }
    let bare = format!("https://{}", started.addresses[0]);
    let flags = [&["--proxy", &bare, "--proxy-cacert", &certificate][..], &CODE].concat();
    fetch(world, &flags, &host.https("/")).exits_with(56).says("407");
    // In clear it says nothing.
    let plain = format!("http://ci:{token}@{}", started.addresses[0]);
    let outcome = fetch(world, &["--proxy", &plain], &host.http("/"));
    assert!(outcome.stdout().is_empty() && !outcome.stderr().is_empty(), "{outcome}");
    started.proxy.stop().exits_with(0);
}

/// Neither a lookup nor a dial, and then a token on the same connection.
fn m001_nobody_comes_in_without_a_token(world: &World) {
    let (host, other) = (world.zone().host("role-none"), world.zone().host("role-none-other"));
    let service = Service::new(world, &two_roles(&host.name, &other.name));
    let token = service.new_token("ci");
    let started = service.start();
    let address = started.addresses[0].clone();
    let mark = world.mark();
    let code = |proxy: &str, url: &str| fetch(world, &[&["--proxy", proxy][..], &CODE].concat(), url);
    for credentials in ["", "ci:wrong", "wrong:", "dev:ci"] {
        let url = started.url(credentials);
        code(&url, &host.http("/")).says("407 000");
        code(&url, &host.https("/")).exits_with(56).says("407");
        let socks = format!("socks5h://{credentials}{}{address}", if credentials.is_empty() { "" } else { "@" });
        code(&socks, &host.http("/")).exits_with(97);
    }
    world.assert_untouched(mark, &host);
    for target in [host.http("/"), host.https("/")] {
        let url = started.url(&format!("ci:{token}"));
        let flags = ["--proxy", &url, "--proxy-anyauth", "--write-out", "made %{num_connects}"];
        let outcome = fetch(world, &flags, &target);
        outcome.exits_with(0).says("hello").says("made 1");
    }
    let outcome = started.proxy.stop();
    let judged = outcome.decisions(&host.name);
    let turned_away = judged.iter().filter(|event| event["reason"] == "unauthenticated").count();
    // Of `--proxy-anyauth` the first attempt, too.
    assert_eq!((turned_away, judged.len()), (10, 12), "{outcome}");
}

fn m004_a_token_that_was_taken_away_ends_what_it_has_opened(world: &World) {
    let (host, other) = (world.zone().host("role-gone"), world.zone().host("role-gone-other"));
    let service = Service::new(world, &two_roles(&host.name, &other.name));
    let token = service.new_token("ci");
    let started = service.start();
    let url = started.url(&format!("ci:{token}"));
    let held = host.https("/events?gate=role-gone");
    let client = world.bare().start(&curl(&["--no-buffer", "--proxy", &url, &held]));
    client.wait_for_stdout("data: first");
    let other_token = service.new_token("ci");
    service.write(
        "service.toml",
        &service.text().replace(&hash_of(&service.text()), &format!("sha256:{}", "00".repeat(32))),
    );
    started.proxy.reload();
    let outcome = client.finish();
    assert_ne!(outcome.stdout().matches("data:").count(), 2, "{outcome}");
    fetch(world, &["--proxy", &url, CODE[0], CODE[1]], &host.http("/")).says("407");
    let now = started.url(&format!("ci:{other_token}"));
    fetch(world, &["--proxy", &now], &host.http("/")).exits_with(0).says("hello");
    let outcome = started.proxy.stop();
    let ends: Vec<_> = outcome.events_of("close").iter().map(|event| event["end"].clone()).collect();
    assert_eq!(ends, ["revoked", "done"], "{outcome}");
}

/// The first hash in a file.
fn hash_of(text: &str) -> String {
    let at = text.find("sha256:").expect("a token was written");
    text[at..at + "sha256:".len() + 64].to_owned()
}

fn m005_the_role_is_that_of_the_token_alone(world: &World) {
    let (host, other) = (world.zone().host("role-own"), world.zone().host("role-own-other"));
    let service = Service::new(world, "").with_certificate();
    let (certificate, key) = (service.path("proxy.crt"), service.path("proxy.key"));
    let listener = format!(
        "[[service.listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n"
    );
    service.write("service.toml", &(two_roles(&host.name, &other.name) + &listener));
    let token = service.new_token("ci");
    service.new_token("dev");
    let started = service.start();
    let [over_tls, address] = &started.addresses[..] else { panic!("two, not {:?}", started.addresses) };
    let mark = world.mark();
    for user in ["dev", "role=dev", "dev%40ci", "%3Buid%3D0%3B"] {
        let url = started.url(&format!("{user}:{token}"));
        let claims = ["--proxy-header", "X-Role: dev", "--header", "Role: dev", "--user-agent", "role=dev"];
        let flags = [&["--proxy", &url][..], &claims].concat();
        let outcome = fetch(world, &flags, &other.http("/?role=dev"));
        outcome.does_not_say("hello");
    }
    // The name by which the proxy is called (SNI), whosever it is.
    let (_, port) = over_tls.rsplit_once(':').expect("an address with a port");
    for name in ["dev", "dev.proxy.example.com", "ci.example.com", &other.name] {
        let (url, place) = (format!("https://dev:{token}@{name}:{port}"), format!("{name}:{port}:127.0.0.1"));
        let flags = ["--proxy", &url, "--proxy-insecure", "--resolve", &place];
        for target in [other.http("/"), other.https("/")] {
            let outcome = fetch(world, &flags, &target);
            outcome.does_not_say("hello");
            assert!(
                [outcome.stdout(), outcome.stderr()].concat().contains("403")
                    || outcome.stdout().contains("not-listed"),
                "{outcome}"
            );
        }
        fetch(world, &flags, &host.http("/")).exits_with(0).says("hello");
    }
    // And the one inside the tunnel is the target's, and no role's.
    let (url, inside) = (started.url(&format!("dev:{token}")), format!("dev:443:{}:443", host.name));
    let outcome = fetch(world, &["--proxy", &url, "--connect-to", &inside, "--insecure"], "https://dev/");
    outcome.does_not_say("hello");
    let socks = format!("socks5h://dev:{token}@{address}");
    fetch(world, &["--proxy", &socks], &other.http("/")).exits_with(97);
    // Names of roles and hashes are no tokens.
    for token in ["dev", "ci", &hash_of(&service.text())] {
        let url = started.url(&format!("dev:{}", token.replace(':', "%3A")));
        fetch(world, &["--proxy", &url, CODE[0], CODE[1]], &other.http("/")).says("407");
    }
    world.assert_untouched(mark, &other);
    let outcome = started.proxy.stop();
    outcome.exits_with(0);
    let roles: Vec<_> = outcome.events_of("decision").iter().filter_map(|event| event["role"].as_str()).collect();
    assert!(!roles.is_empty() && roles.iter().all(|role| *role == "ci"), "{outcome}");
}

fn m010_a_proxy_for_other_machines_needs_a_token_or_a_word(world: &World) {
    let host = world.zone().host("role-open");
    let listener = |more: &str| {
        format!("[service.role.ci]\nallow = [\"{}\"]\n[[service.listener]]\naddress = \"0.0.0.0:0\"\n{more}", host.name)
    };
    for more in ["", "role = \"ci\"\n"] {
        let service = Service::new(world, &listener(more));
        let file = service.path("service.toml");
        let outcome = world.netbox_words().exec(&["proxy", "serve", "--config", &file]);
        outcome.exits_with(125).complains("other machines reach `0.0.0.0:0`").complains("service.toml:4:12");
        world.netbox_words().exec(&["policy", "lint", &file]).exits_with(2).says("exposed-listener");
        let token = service.new_token("ci");
        let started = service.start();
        let url = format!("http://ci:{token}@{}", started.addresses[0]);
        fetch(world, &["--proxy", &url], &host.http("/")).exits_with(0).says("hello");
        let url = format!("http://{}", started.addresses[0]);
        fetch(world, &["--proxy", &url, CODE[0], CODE[1]], &host.http("/")).says("407");
        started.proxy.stop().exits_with(0);
    }
    let started = Service::new(world, &listener("role = \"ci\"\nany = true\n")).start();
    let url = format!("http://{}", started.addresses[0]);
    fetch(world, &["--proxy", &url], &host.http("/")).exits_with(0).says("hello");
    started.proxy.stop().exits_with(0);
}

fn a_listener_of_a_role_says_who_comes(world: &World) {
    let (host, other) = (world.zone().host("role-listener"), world.zone().host("role-listener-other"));
    let listeners = "[[service.listener]]\naddress = \"127.0.0.1:0\"\nrole = \"ci\"\n\
                     [[service.listener]]\naddress = \"127.0.0.1:0\"\nrole = \"dev\"\n";
    let text = format!("deny = [\"no.{}\"]\n{}{listeners}", host.name, two_roles(&host.name, &other.name));
    let started = Service::new(world, &text).start();
    let [ci, dev, nobody] = &started.addresses[..] else { panic!("three: {:?}", started.addresses) };
    for (address, host, reached) in
        [(ci, &host, true), (ci, &other, false), (dev, &other, true), (dev, &host, false), (nobody, &host, false)]
    {
        let outcome = fetch(world, &["--proxy", &format!("http://{address}")], &host.http("/"));
        match reached {
            true => outcome.exits_with(0).says("hello"),
            false => outcome.says("is refused: no rule allows this host (not-listed)"),
        };
    }
    let outcome = started.proxy.stop();
    let roles: Vec<_> = outcome.events_of("decision").iter().map(|event| event["role"].clone()).collect();
    assert_eq!(roles[..4], ["ci", "ci", "dev", "dev"], "{outcome}");
    assert!(roles[4].is_null(), "{outcome}");
    // The summary is about all of them.
    assert_eq!(
        (&outcome.event("exit")["allowed"], &outcome.event("exit")["denied"]),
        (&2.into(), &3.into()),
        "{outcome}"
    );
}

fn a_token_is_made_shown_once_and_known_by_its_hash(world: &World) {
    let (host, other) = (world.zone().host("role-made"), world.zone().host("role-made-other"));
    let service = Service::new(world, &("# mine\n".to_owned() + &two_roles(&host.name, &other.name)));
    let before = service.text();
    let shown = service.token("ci", &[]);
    shown.exits_with(0).complains("add its hash to `tokens` of `[service.role.ci]`");
    let token = shown.stdout().trim().to_owned();
    assert!(token.starts_with("netbox_") && token.len() == 39, "{token}");
    assert!(!shown.stderr().contains(&token) && shown.stderr().contains("\"sha256:"), "{shown}");
    assert_eq!(service.text(), before);
    service
        .token("nobody", &[])
        .exits_with(2)
        .complains("there is no role `nobody`")
        .complains("there are `ci`, `dev`");
    let started = service.start();
    // No role has tokens yet, so nobody is asked for one.
    let bare = started.url("");
    let anybody = || fetch(world, &["--proxy", &bare, CODE[0], CODE[1]], &host.http("/"));
    anybody().says("403");
    let token = service.new_token("ci");
    assert!(service.text().starts_with("# mine\n") && !service.text().contains(&token), "{}", service.text());
    started.proxy.reload();
    anybody().says("407");
    let url = started.url(&format!("ci:{token}"));
    fetch(world, &["--proxy", &url], &host.http("/")).exits_with(0).says("hello");
    started.proxy.stop().exits_with(0);
}

fn the_files_of_a_tls_listener_are_checked(world: &World) {
    let service = Service::new(world, "").with_certificate();
    let (certificate, key) = (service.path("proxy.crt"), service.path("proxy.key"));
    let text = format!(
        "[[service.listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"{certificate}\", key = \"{key}\" }}\n"
    );
    service.write("service.toml", &text);
    let file = service.path("service.toml");
    let serve = || world.netbox_words().exec(&["proxy", "serve", "--config", &file]);
    service.close("proxy.key", 0o604);
    serve().exits_with(125).complains("service.toml:2:12: the key of a listener: ").complains("may be read by others");
    service.close("proxy.key", 0o600);
    service.write("proxy.key", "nothing");
    serve().exits_with(125).complains("there is no private key in it");
    fs::remove_file(&certificate).expect("own file");
    serve().exits_with(125).complains("the certificate of a listener: there is no file");
}

/// To a file, or to a socket, of which each datagram is a line.
fn events_go_where_the_configuration_says(world: &World) {
    let host = world.zone().host("role-events");
    let service = Service::new(world, "");
    let socket = UnixDatagram::bind(service.path("socket")).expect("own folder");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    for target in [service.path("events.jsonl"), format!("unix-datagram:{}", service.path("socket"))] {
        let text =
            format!("allow = [\"{}\"]\n[service]\nlisten = [\"127.0.0.1:0\"]\nevents = \"{target}\"\n", host.name);
        service.write("service.toml", &text);
        let file = service.path("service.toml");
        let running = world.netbox_words().start(&["proxy", "serve", "--config", &file]);
        let url = format!("http://{}", running.wait_for_stderr("netbox: listening on "));
        fetch(world, &["--proxy", &url], &host.http("/")).exits_with(0).says("hello");
        running.signal(Signal::SIGTERM);
        running.finish().exits_with(0);
    }
    let kinds = |lines: Vec<String>| -> Vec<_> {
        let events = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("one line is one event"));
        events.map(|event| event["event"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let written = fs::read_to_string(service.path("events.jsonl")).expect("it was written");
    let told = (0..4).map(|_| {
        let mut datagram = [0; 8192];
        let length = socket.recv(&mut datagram).expect("a datagram comes");
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    });
    let expected = ["start", "decision", "close", "exit"];
    assert_eq!(kinds(written.lines().map(ToOwned::to_owned).collect()), expected);
    assert_eq!(kinds(told.collect()), expected);
}
