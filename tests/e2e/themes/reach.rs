//! An unmodified program reaches an allowed name. No test sets a proxy variable: the programs know nothing of netbox.

use std::fs;
use std::sync::{Once, OnceLock};

use crate::outcome::Outcome;
use crate::programs::{CURL, GIT, JAVA, KEYTOOL, NODE, PYTHON, SSH, curl, own, probe};
use crate::servers::SSH_SOFTWARE;
use crate::tests;
use crate::world::World;
use crate::zone::{Host, PUBLIC_RESOLVER};

tests![
    curl_fetches_over_http needs [CURL],
    curl_fetches_over_https needs [CURL],
    git_clones_over_https needs [GIT],
    ssh_reads_the_remote_banner needs [SSH],
    node_fetches_over_http needs [NODE],
    node_fetches_over_https needs [NODE],
    java_fetches_over_http needs [JAVA],
    java_fetches_over_https needs [JAVA, KEYTOOL],
    python_talks_over_a_socket needs [PYTHON],
    a_server_may_speak_first needs [PYTHON],
    a_program_may_ask_a_public_resolver_over_udp needs [PYTHON],
    a_program_may_ask_a_public_resolver_over_tcp needs [PYTHON],
    a_name_with_ipv4_only needs [CURL],
    a_name_with_ipv6_only needs [CURL],
    a_client_may_insist_on_ipv4 needs [CURL],
    a_client_may_insist_on_ipv6 needs [CURL],
    a_name_below_a_wildcard needs [CURL],
    a_name_in_upper_case_and_with_a_dot needs [CURL],
    an_ipv4_address_by_its_rule needs [CURL],
    an_ipv6_address_by_its_rule needs [CURL],
    a_name_in_the_hosts_file_of_the_host needs [CURL],
];

/// Runs the client bare and under netbox, and asserts that both times it said so and reached the host, the second
/// time because netbox let it.
fn reaches<A: AsRef<str>>(world: &World, host: &Host, flags: &[&str], client: &[A], says: &str) -> Outcome {
    let mark = world.mark();
    world.bare().exec(client).exits_with(0).says(says);
    world.assert_reached(mark, host);
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(client);
    outcome.exits_with(0).says(says);
    world.assert_reached(mark, host);
    let judged = outcome.events_of("decision");
    assert!(judged.iter().any(|event| event["verdict"] == "allow"), "netbox was asked: {outcome}");
    assert!(judged.iter().all(|event| event["verdict"] == "allow"), "netbox refused nothing: {outcome}");
    outcome
}

fn curl_fetches_over_http(world: &World) {
    let host = world.zone().host("curl-http");
    let client = curl(&["http://curl-http.example.com/page"]);
    let outcome = reaches(world, &host, &["--allow", &host.name], &client, "hello curl-http.example.com GET /page");
    let decision = outcome.allowed(&host.name, 80, "listed");
    assert_eq!(decision["via"], "capture", "{outcome}");
    assert_eq!(decision["rule"]["text"], host.name.as_str(), "{outcome}");
}

fn curl_fetches_over_https(world: &World) {
    let host = world.zone().host("curl-https");
    let client = curl(&["https://curl-https.example.com/page"]);
    let outcome = reaches(world, &host, &["--allow", &host.name], &client, "hello curl-https.example.com GET /page");
    let decision = outcome.allowed(&host.name, 443, "listed");
    assert_eq!(decision["sni"], host.name.as_str(), "{outcome}");
}

fn git_clones_over_https(world: &World) {
    let host = world.zone().host("git-https");
    publish_repository(world);
    for (run, target) in [(world.bare(), "cloned-bare"), (world.netbox(&["--allow", &host.name]), "cloned-netbox")] {
        let mark = world.mark();
        let clone = run.exec(&["git", "clone", &host.https("/files/project.git"), target]);
        clone.exits_with(0);
        world.assert_reached(mark, &host);
        let text = fs::read_to_string(world.path("home").join(target).join("README"));
        assert_eq!(text.expect("the clone has the file"), "a file to clone\n");
    }
}

/// A bare repository as static files, which is what git's dumb protocol needs: `/files/project.git` of every host.
pub fn publish_repository(world: &World) {
    static PUBLISHED: Once = Once::new();
    PUBLISHED.call_once(|| make_repository(world));
}

fn make_repository(world: &World) {
    let work = world.path("home").join("work");
    fs::create_dir(&work).expect("own folder");
    fs::write(work.join("README"), "a file to clone\n").expect("own folder");
    let bare = world.path("files/project.git").to_string_lossy().into_owned();
    let identity = ["-c", "user.name=e2e", "-c", "user.email=e2e@example.com"];
    let steps: [&[&str]; 5] = [
        &["init", "--quiet", "--initial-branch=main"],
        &["add", "README"],
        &["commit", "--quiet", "--message=a commit"],
        &["clone", "--quiet", "--bare", ".", &bare],
        &["--git-dir", &bare, "update-server-info"],
    ];
    for step in steps {
        let words = [&["git"], &identity[..], step].concat();
        world.bare().folder(&work).exec(&words).exits_with(0);
    }
}

fn ssh_reads_the_remote_banner(world: &World) {
    let host = world.zone().host("ssh");
    let quiet = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"];
    let client = [&["ssh", "-v", "-F", "none"], &quiet[..], &[&host.name, "true"]].concat();
    let read = format!("remote software version {SSH_SOFTWARE}");
    world.bare().exec(&client).complains(&read);
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.port(22)]).exec(&client);
    outcome.complains(&read);
    outcome.allowed(&host.name, 22, "listed");
    let arrived = world.arrivals(mark, &host);
    let greeted = |line: &Option<String>| line.as_ref().is_some_and(|line| line.starts_with("SSH-2.0-OpenSSH"));
    assert!(arrived.iter().any(|arrival| greeted(&arrival.line)), "the client's banner arrived: {arrived:#?}");
}

fn node_fetches_over_http(world: &World) {
    let host = world.zone().host("node-http");
    let client = own(world, "node", "fetch.mjs", &[&host.http("/page")]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello node-http.example.com GET /page");
}

fn node_fetches_over_https(world: &World) {
    let host = world.zone().host("node-https");
    let client = own(world, "node", "fetch.mjs", &[&host.https("/page")]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello node-https.example.com GET /page");
}

fn java_fetches_over_http(world: &World) {
    let host = world.zone().host("java-http");
    let client = own(world, "java", "Fetch.java", &[&host.http("/page")]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello java-http.example.com GET /page");
}

fn java_fetches_over_https(world: &World) {
    let host = world.zone().host("java-https");
    let trust = format!("-Djavax.net.ssl.trustStore={}", java_trust_store(world));
    let program = world.path("programs/Fetch.java").to_string_lossy().into_owned();
    let client = ["java", &trust, "-Djavax.net.ssl.trustStorePassword=changeit", &program, &host.https("/page")];
    reaches(world, &host, &["--allow", &host.name], &client, "hello java-https.example.com GET /page");
}

/// Java reads no PEM file of authorities.
fn java_trust_store(world: &World) -> &'static str {
    static STORE: OnceLock<String> = OnceLock::new();
    STORE.get_or_init(|| {
        let store = world.path("authorities.p12").to_string_lossy().into_owned();
        let authority = world.path("ca.pem").to_string_lossy().into_owned();
        let into = ["-keystore", &store, "-storepass", "changeit", "-storetype", "PKCS12"];
        let import = ["keytool", "-importcert", "-noprompt", "-alias", "e2e", "-file", &authority];
        world.bare().exec(&[&import[..], &into].concat()).exits_with(0);
        store
    })
}

fn python_talks_over_a_socket(world: &World) {
    let host = world.zone().host("python-socket");
    let client = probe(world, &["tcp", &host.name, "5432", "first", "second"]);
    let outcome = reaches(world, &host, &["--allow", &host.port(5432)], &client, "answer: first\nanswer: second");
    outcome.allowed(&host.name, 5432, "listed");
}

fn a_server_may_speak_first(world: &World) {
    let host = world.zone().host("speaks-first");
    let client = probe(world, &["tcp", &host.name, "22"]);
    reaches(world, &host, &["--allow", &host.port(22)], &client, SSH_SOFTWARE);
}

fn a_program_may_ask_a_public_resolver_over_udp(world: &World) {
    asks_a_public_resolver(world, "own-resolver-udp", "udp");
}

fn a_program_may_ask_a_public_resolver_over_tcp(world: &World) {
    asks_a_public_resolver(world, "own-resolver-tcp", "tcp");
}

/// The program gets its answer from netbox: the resolver that it means to ask sees nothing.
fn asks_a_public_resolver(world: &World, label: &str, transport: &str) {
    let host = world.zone().host(label);
    let resolver = PUBLIC_RESOLVER.to_string();
    let client = probe(world, &["own-resolver", &resolver, transport, &host.name]);
    let mark = world.mark();
    let outcome = reaches(world, &host, &["--allow", &host.name], &client, &format!("hello {}", host.name));
    outcome.allowed(&host.name, 80, "listed");
    let queries = world.arrivals(mark, &host);
    let to_resolver = queries.iter().filter(|arrival| arrival.local.ip() == PUBLIC_RESOLVER).count();
    assert_eq!(to_resolver, 1, "only the bare run asked the public resolver: {queries:#?}");
}

fn a_name_with_ipv4_only(world: &World) {
    let host = world.zone().host_v4("ipv4-only");
    let client = curl(&["http://ipv4-only.example.com/"]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello ipv4-only.example.com");
}

fn a_name_with_ipv6_only(world: &World) {
    let host = world.zone().host_v6("ipv6-only");
    let client = curl(&["https://ipv6-only.example.com/"]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello ipv6-only.example.com");
}

fn a_client_may_insist_on_ipv4(world: &World) {
    let host = world.zone().host("insist-ipv4");
    let client = curl(&["--ipv4", "http://insist-ipv4.example.com/"]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello insist-ipv4.example.com");
}

fn a_client_may_insist_on_ipv6(world: &World) {
    let host = world.zone().host("insist-ipv6");
    let client = curl(&["--ipv6", "http://insist-ipv6.example.com/"]);
    reaches(world, &host, &["--allow", &host.name], &client, "hello insist-ipv6.example.com");
}

fn a_name_below_a_wildcard(world: &World) {
    let host = world.zone().host("below.wildcard");
    let client = curl(&["http://below.wildcard.example.com/"]);
    let outcome = reaches(world, &host, &["--allow", "*.wildcard.example.com"], &client, "hello below.wildcard");
    let decision = outcome.allowed(&host.name, 80, "listed");
    assert_eq!(decision["rule"]["text"], "*.wildcard.example.com", "{outcome}");
}

fn a_name_in_upper_case_and_with_a_dot(world: &World) {
    let host = world.zone().host("upper-case");
    let client = curl(&["http://UPPER-case.Example.COM./"]);
    let outcome = reaches(world, &host, &["--allow", &host.name], &client, "GET /");
    outcome.allowed(&host.name, 80, "listed");
}

fn an_ipv4_address_by_its_rule(world: &World) {
    let host = world.zone().host("address-v4");
    let (rule, url) = (format!("{}:80", host.v4()), format!("http://{}/", host.v4()));
    let outcome = reaches(world, &host, &["--allow", &rule], &curl(&[&url]), "GET /");
    outcome.allowed(&host.v4().to_string(), 80, "listed");
}

fn an_ipv6_address_by_its_rule(world: &World) {
    let host = world.zone().host("address-v6");
    let (rule, url) = (format!("[{}]:80", host.v6()), format!("http://[{}]/", host.v6()));
    let outcome = reaches(world, &host, &["--allow", &rule], &curl(&[&url]), "GET /");
    outcome.allowed(&host.v6().to_string(), 80, "listed");
}

/// netbox resolves as the host does, which is by more than DNS.
fn a_name_in_the_hosts_file_of_the_host(world: &World) {
    let host = world.host_in_hosts_file();
    let client = curl(&[host.http("/").leak() as &str]);
    let mark = world.mark();
    reaches(world, &host, &["--allow", &host.name], &client, "GET /");
    let arrived = world.arrivals(mark, &host);
    assert!(arrived.iter().all(|arrival| arrival.service != "dns"), "no name server was asked: {arrived:#?}");
}
