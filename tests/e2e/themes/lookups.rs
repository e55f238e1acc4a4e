//! Names: what the program is told about them, and what the host's name server gets to hear.

use crate::outcome::Outcome;
use crate::programs::{PYTHON, probe};
use crate::tests;
use crate::world::{SEARCH_DOMAIN, World};
use crate::zone::{Host, NAME_SERVER, PUBLIC_RESOLVER};

tests![
    a_lookup_of_an_unlisted_name_never_leaves needs [PYTHON],
    a_lookup_of_a_listed_name_gives_addresses_of_the_sandboxs_own needs [PYTHON],
    two_names_on_one_address_get_two_addresses needs [PYTHON],
    a_name_has_one_address_however_often_it_is_asked_for needs [PYTHON],
    a_listed_name_that_does_not_exist_does_not_exist needs [PYTHON],
    a_lookup_that_fails_on_the_host_fails needs [PYTHON],
    a_text_record_of_a_listed_name_is_passed_on needs [PYTHON],
    a_text_record_of_an_unlisted_name_is_not_asked_for needs [PYTHON],
    a_denied_name_is_not_asked_for needs [PYTHON],
    an_unlisted_name_below_the_hosts_search_domain_does_not_exist needs [PYTHON],
    the_resolver_file_inside_does_not_name_the_hosts_server needs [],
    a_lookup_alone_is_no_refusal needs [PYTHON],
    d050_the_hosts_own_name_server_is_not_reached needs [PYTHON],
    d051_names_are_not_asked_for_among_neighbours needs [PYTHON],
    d052_names_are_not_asked_for_by_tls_or_quic needs [PYTHON],
];

/// The addresses that a probe printed.
fn addresses(outcome: &Outcome) -> Vec<String> {
    outcome.stdout().lines().filter_map(|line| line.strip_prefix("address: ")).map(str::to_owned).collect()
}

/// RFC 2544 and RFC 5180: ranges for benchmarks, which lead nowhere.
#[track_caller]
fn assert_synthetic(outcome: &Outcome) {
    let found = addresses(outcome);
    let synthetic = |address: &String| {
        address.starts_with("198.18.")
            || address.starts_with("198.19.")
            || address.starts_with("2001:2:0:")
            || address.starts_with("2001:2::")
    };
    assert!(!found.is_empty() && found.iter().all(synthetic), "addresses of the sandbox's own: {outcome}");
}

fn a_lookup_of_an_unlisted_name_never_leaves(world: &World) {
    let host = world.zone().host("lookup-unlisted");
    let client = probe(world, &["lookup", &host.name]);
    let mark = world.mark();
    world.bare().exec(&client).says(&format!("address: {}", host.v4()));
    assert!(!world.arrivals(mark, &host).is_empty(), "the bare lookup reaches the name server");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    outcome.exits_with(0);
    assert_synthetic(&outcome);
    world.assert_untouched(mark, &host);
}

fn a_lookup_of_a_listed_name_gives_addresses_of_the_sandboxs_own(world: &World) {
    let host = world.zone().host_v4("lookup-listed");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&probe(world, &["lookup", &host.name]));
    assert_synthetic(&outcome);
    let found = addresses(&outcome);
    assert!(found.iter().any(|address| address.contains('.')), "an IPv4 address: {outcome}");
    assert!(found.iter().any(|address| address.contains(':')), "an IPv6 address, though the host has none: {outcome}");
    let asked = world.arrivals(mark, &host);
    assert!(asked.iter().all(|arrival| arrival.local.ip() == NAME_SERVER) && !asked.is_empty(), "{asked:#?}");
}

fn two_names_on_one_address_get_two_addresses(world: &World) {
    let host = world.zone().host("lookup-one");
    let other = world.zone().host_at("lookup-two", &host.addresses);
    let words = ["lookup", &host.name, ";", "lookup", &other.name];
    let outcome = several(world, &["--allow", &host.name, "--allow", &other.name], &words);
    assert_synthetic(&outcome);
    let found = addresses(&outcome);
    let unique: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!((found.len(), unique.len()), (4, 4), "two addresses each, all different: {outcome}");
}

fn a_name_has_one_address_however_often_it_is_asked_for(world: &World) {
    let host = world.zone().host("lookup-again");
    let words = ["lookup", &host.name, ";", "lookup", &host.name, ";", "lookup", &host.name];
    let outcome = several(world, &["--allow", &host.name], &words);
    assert_synthetic(&outcome);
    let found = addresses(&outcome);
    let unique: std::collections::HashSet<_> = found.iter().collect();
    assert_eq!((found.len(), unique.len()), (6, 2), "the same two addresses each time: {outcome}");
}

/// Several probes in one sandbox, with `;` between them.
fn several(world: &World, flags: &[&str], words: &[&str]) -> Outcome {
    let probes = words.split(|word| *word == ";").map(|words| probe(world, words).join(" "));
    world.netbox(flags).exec(&["sh", "-c", &probes.collect::<Vec<_>>().join(" && ")])
}

fn a_listed_name_that_does_not_exist_does_not_exist(world: &World) {
    let host = world.zone().host_missing("lookup-missing");
    let client = probe(world, &["lookup", &host.name]);
    world.bare().exec(&client).says("failed: EAI_NONAME");
    let mark = world.mark();
    world.netbox(&["--allow", &host.name]).exec(&client).says("failed: EAI_NONAME");
    assert!(!world.arrivals(mark, &host).is_empty(), "the host was asked");
}

fn a_lookup_that_fails_on_the_host_fails(world: &World) {
    let host = world.zone().host_failing("lookup-failing");
    let client = probe(world, &["lookup", &host.name]);
    world.bare().exec(&client).says("failed: EAI_AGAIN");
    world.netbox(&["--allow", &host.name]).exec(&client).says("failed: EAI_AGAIN");
}

/// The probe for a record of one name, as a program would ask that has a resolver of its own.
fn ask(world: &World, kind: &str, host: &Host) -> Vec<String> {
    probe(world, &["resolve", &PUBLIC_RESOLVER.to_string(), "udp", kind, &host.name])
}

fn a_text_record_of_a_listed_name_is_passed_on(world: &World) {
    let host = world.zone().host("text-listed");
    let client = ask(world, "TXT", &host);
    world.bare().exec(&client).says("text: text from the test's name server");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.says("rcode: 0").says("text: text from the test's name server");
    let asked = world.arrivals(mark, &host);
    assert!(asked.iter().all(|arrival| arrival.local.ip() == NAME_SERVER), "the host's server was asked: {asked:#?}");
}

fn a_text_record_of_an_unlisted_name_is_not_asked_for(world: &World) {
    let host = world.zone().host("text-unlisted");
    let client = ask(world, "TXT", &host);
    world.bare().exec(&client).says("text: ");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    outcome.says("rcode: 0").does_not_say("text: ");
    world.assert_untouched(mark, &host);
}

fn a_denied_name_is_not_asked_for(world: &World) {
    let host = world.zone().host("lookup-denied");
    let client = probe(world, &["lookup", &host.name]);
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "*.example.com", "--deny", &host.name]).exec(&client);
    assert_synthetic(&outcome);
    world.assert_untouched(mark, &host);
}

/// Else every unqualified name would seem to exist.
fn an_unlisted_name_below_the_hosts_search_domain_does_not_exist(world: &World) {
    let label = format!("lookup-search.{}", SEARCH_DOMAIN.trim_end_matches(".example.com"));
    let host = world.zone().host(&label);
    let client = probe(world, &["lookup", &host.name]);
    world.bare().exec(&client).says("address: ");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    outcome.says("failed: EAI_NONAME");
    world.assert_untouched(mark, &host);
}

fn the_resolver_file_inside_does_not_name_the_hosts_server(world: &World) {
    let server = NAME_SERVER.to_string();
    let client = ["cat", "/etc/resolv.conf"];
    world.bare().exec(&client).says(&server);
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    outcome.exits_with(0).does_not_say(&server).says("nameserver ").says(SEARCH_DOMAIN);
}

fn a_lookup_alone_is_no_refusal(world: &World) {
    let host = world.zone().host("lookup-alone");
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&probe(world, &["lookup", &host.name]));
    assert_synthetic(&outcome);
    assert_eq!(outcome.event("exit")["denied"], 0, "{outcome}");
}

/// No rule leads there: every query ends at netbox, whatever server it is for.
fn d050_the_hosts_own_name_server_is_not_reached(world: &World) {
    let host = world.zone().host("lookup-server");
    let server = NAME_SERVER.to_string();
    for transport in ["udp", "tcp"] {
        let client = probe(world, &["resolve", &server, transport, "TXT", &host.name]);
        let mark = world.mark();
        world.bare().exec(&client).says("text: ");
        assert!(!world.arrivals(mark, &host).is_empty(), "the bare query reaches the name server");
        let mark = world.mark();
        let flags = ["--allow", "other.example.com", "--allow", &format!("{server}:53")];
        world.netbox(&flags).exec(&client).says("rcode: 0").does_not_say("text: ");
        world.assert_untouched(mark, &host);
    }
}

/// A datagram to such a port fails at once.
fn fails_by_udp(world: &World, address: &str, port: u16) {
    let client = probe(world, &["udp", address, &port.to_string(), "a name"]);
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    assert!(outcome.stdout().starts_with("failed: E"), "{address} {port}: {outcome}");
}

/// Multicast DNS, LLMNR and NetBIOS (RFC 6762, 4795, 1002).
fn d051_names_are_not_asked_for_among_neighbours(world: &World) {
    for (address, port) in [("224.0.0.251", 5353), ("224.0.0.252", 5355), ("10.0.2.255", 137)] {
        fails_by_udp(world, address, port);
    }
}

/// RFC 7858 and 9250.
fn d052_names_are_not_asked_for_by_tls_or_quic(world: &World) {
    let resolver = PUBLIC_RESOLVER.to_string();
    fails_by_udp(world, &resolver, 853);
    let client = probe(world, &["tcp", &resolver, "853", "a name"]);
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&client);
    outcome.refused(&resolver, 853, "address-not-listed");
}
