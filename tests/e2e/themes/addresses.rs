//! Addresses: those that nobody listed, those that are not public, and those that are the host itself.

use std::net::{IpAddr, Ipv4Addr};

use crate::outcome::Outcome;
use crate::programs::{CURL, PYTHON, curl, probe};
use crate::tests;
use crate::world::World;
use crate::zone::{METADATA, OWN};

tests![
    a_bare_ipv4_address_is_refused needs [CURL],
    a_bare_ipv6_address_is_refused needs [CURL],
    a_bare_address_over_https_gets_a_tls_alert needs [CURL],
    a_bare_address_on_another_port_cannot_be_reached needs [PYTHON],
    the_star_covers_no_addresses needs [CURL],
    an_ipv4_mapped_address_is_the_ipv4_address needs [CURL],
    a_name_with_a_private_address_is_refused needs [CURL],
    a_private_address_is_refused needs [CURL],
    a_rule_for_everything_opens_no_private_address needs [CURL],
    a_rule_that_names_a_private_address_opens_it needs [CURL],
    a_rule_that_names_a_private_address_opens_it_for_a_name needs [CURL],
    a_private_address_among_public_ones_is_not_dialled needs [CURL],
    the_metadata_address_is_refused needs [CURL],
    the_loopback_of_the_host_is_refused_by_name needs [CURL],
    a_name_below_localhost_is_judged_by_its_address needs [CURL, PYTHON],
    the_loopback_of_the_host_is_itself_in_mode_open needs [CURL],
    d059_a_name_that_is_rebound_is_vetted_anew needs [PYTHON],
    the_hosts_own_address_is_refused needs [CURL],
    an_address_of_the_link_is_unreachable_at_once needs [PYTHON],
];

/// Runs curl for the URL bare, which reaches the address, and then under netbox, where nothing arrives at it.
fn refused(world: &World, address: IpAddr, flags: &[&str], url: &str) -> Outcome {
    let client = curl(&["--include", "--insecure", url]);
    let mark = world.mark();
    world.bare().exec(&client).exits_with(0).says("hello");
    assert!(!world.arrivals_at(mark, address).is_empty(), "the bare run reaches {address}");
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(&client);
    outcome.does_not_say("hello");
    let arrived = world.arrivals_at(mark, address);
    assert!(arrived.is_empty(), "{address} was refused, and there arrived {arrived:#?}: {outcome}");
    outcome
}

/// The same where it is let through.
fn reached(world: &World, address: IpAddr, flags: &[&str], url: &str) -> Outcome {
    let mark = world.mark();
    let outcome = world.netbox(flags).exec(&curl(&[url]));
    outcome.exits_with(0).says("hello");
    assert!(!world.arrivals_at(mark, address).is_empty(), "{address} is reached: {outcome}");
    outcome
}

fn private(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

fn a_bare_ipv4_address_is_refused(world: &World) {
    let host = world.zone().host("bare-ipv4");
    let address = host.v4();
    let outcome = refused(world, address.into(), &["--allow", &host.name], &format!("http://{address}/"));
    outcome.exits_with(0).says("HTTP/1.1 403").says(&format!("{address}:80")).says("address-not-listed");
    outcome.refused(&address.to_string(), 80, "address-not-listed");
}

fn a_bare_ipv6_address_is_refused(world: &World) {
    let host = world.zone().host("bare-ipv6");
    let address = host.v6();
    let outcome = refused(world, address.into(), &["--allow", &host.name], &format!("http://[{address}]/"));
    outcome.exits_with(0).says("HTTP/1.1 403").says(&format!("[{address}]:80"));
    outcome.refused(&address.to_string(), 80, "address-not-listed");
}

fn a_bare_address_over_https_gets_a_tls_alert(world: &World) {
    let host = world.zone().host("bare-https");
    let address = host.v4();
    let outcome = refused(world, address.into(), &["--allow", &host.name], &format!("https://{address}/"));
    outcome.exits_with(35).complains("alert access denied");
    outcome.refused(&address.to_string(), 443, "address-not-listed");
}

fn a_bare_address_on_another_port_cannot_be_reached(world: &World) {
    let host = world.zone().host("bare-5432");
    let address = host.v4().to_string();
    let client = probe(world, &["tcp", &address, "5432", "hello"]);
    world.bare().exec(&client).says("answer: hello");
    let mark = world.mark();
    let outcome = world.netbox(&["--allow", &host.port(5432)]).exec(&client);
    outcome.does_not_say("answer").refused(&address, 5432, "address-not-listed");
    world.assert_untouched(mark, &host);
}

fn the_star_covers_no_addresses(world: &World) {
    let host = world.zone().host("star-address");
    let address = host.v4();
    let outcome = refused(world, address.into(), &["--allow", "*"], &format!("http://{address}/"));
    outcome.refused(&address.to_string(), 80, "address-not-listed");
    reached(world, host.v6().into(), &["--allow", "*"], &host.http("/"));
}

fn an_ipv4_mapped_address_is_the_ipv4_address(world: &World) {
    let host = world.zone().host("mapped");
    let address = host.v4();
    let url = format!("http://[::ffff:{address}]/");
    let outcome = refused(world, address.into(), &["--allow", "other.example.com"], &url);
    outcome.refused(&address.to_string(), 80, "address-not-listed");
    reached(world, address.into(), &["--allow", &format!("{address}:80")], &format!("http://{address}/"));
}

fn a_name_with_a_private_address_is_refused(world: &World) {
    let address = private(10);
    let host = world.zone().host_at("private", &[address.into()]);
    let outcome = refused(world, address.into(), &["--allow", &host.name], &host.http("/"));
    outcome.exits_with(0).says("HTTP/1.1 403").says("private.example.com:80").says("non-public");
    outcome.refused(&host.name, 80, "non-public");
}

fn a_private_address_is_refused(world: &World) {
    let address = private(11);
    let outcome = refused(world, address.into(), &["--allow", "*"], &format!("http://{address}/"));
    outcome.exits_with(0).says("HTTP/1.1 403");
    outcome.refused(&address.to_string(), 80, "address-not-listed");
}

fn a_rule_for_everything_opens_no_private_address(world: &World) {
    let address = private(12);
    let host = world.zone().host_at("private-everything", &[address.into()]);
    let everything = ["--allow", "0.0.0.0/0:80", "--allow", &host.name];
    refused(world, address.into(), &everything, &format!("http://{address}/")).refused(
        &address.to_string(),
        80,
        "non-public",
    );
    refused(world, address.into(), &everything, &host.http("/")).refused(&host.name, 80, "non-public");
}

fn a_rule_that_names_a_private_address_opens_it(world: &World) {
    let address = private(13);
    let url = format!("http://{address}/");
    let outcome = reached(world, address.into(), &["--allow", &format!("{address}:80")], &url);
    outcome.allowed(&address.to_string(), 80, "listed");
    reached(world, address.into(), &["--allow", "10.77.0.0/24:80"], &url);
}

/// The name has to be listed too: an address rule opens no name.
fn a_rule_that_names_a_private_address_opens_it_for_a_name(world: &World) {
    let address = private(14);
    let host = world.zone().host_at("private-named", &[address.into()]);
    let rule = format!("{address}:80");
    let outcome = refused(world, address.into(), &["--allow", &rule], &host.http("/"));
    outcome.refused(&host.name, 80, "not-listed");
    let outcome =
        refused(world, address.into(), &["--allow", &format!("{address}:443"), "--allow", &host.name], &host.http("/"));
    outcome.refused(&host.name, 80, "non-public");
    let outcome = reached(world, address.into(), &["--allow", &rule, "--allow", &host.name], &host.http("/"));
    outcome.allowed(&host.name, 80, "listed");
}

fn a_private_address_among_public_ones_is_not_dialled(world: &World) {
    let public = world.zone().host("mixed-public");
    let address = private(15);
    let host = world.zone().host_at("mixed", &[address.into(), public.v4().into()]);
    let mark = world.mark();
    reached(world, public.v4().into(), &["--allow", &host.name], &host.http("/"));
    let arrived = world.arrivals_at(mark, address.into());
    assert!(arrived.is_empty(), "the private address was dialled: {arrived:#?}");
}

/// By name, by number, and under a rule that covers the whole link-local range.
fn the_metadata_address_is_refused(world: &World) {
    let host = world.zone().host_at("metadata", &[METADATA.into()]);
    let by_name = refused(world, METADATA.into(), &["--allow", &host.name], &host.http("/latest/"));
    by_name.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "non-public");
    let by_number = format!("http://{METADATA}/latest/");
    let outcome = refused(world, METADATA.into(), &["--allow", "*"], &by_number);
    outcome.refused(&METADATA.to_string(), 80, "address-not-listed");
    let outcome = refused(world, METADATA.into(), &["--allow", "169.254.0.0/16:80"], &by_number);
    outcome.refused(&METADATA.to_string(), 80, "non-public");
}

/// No suffix makes an exception.
fn a_name_below_localhost_is_judged_by_its_address(world: &World) {
    let host = world.zone().host_named("evil.localhost", &[METADATA.into()]);
    world.bare().exec(&probe(world, &["lookup", &host.name])).says(&format!("address: {METADATA}\n"));
    // The client would take it for loopback by itself (RFC 6761), but leaves it to a proxy.
    let client = curl(&["--proxy", "http://127.0.0.1:61003", "http://evil.localhost/"]);
    let outcome = world.netbox(&["--allow", &host.name]).exec(&client);
    outcome.does_not_say("hello").refused(&host.name, 80, "non-public");
}

fn the_loopback_of_the_host_is_refused_by_name(world: &World) {
    let address = Ipv4Addr::LOCALHOST;
    let host = world.zone().host_at("loop", &[address.into()]);
    let outcome = refused(world, address.into(), &["--allow", &host.name], &host.http("/"));
    outcome.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "non-public");
}

fn the_hosts_own_address_is_refused(world: &World) {
    let host = world.zone().host_at("own", &[OWN.into()]);
    let outcome = refused(world, OWN.into(), &["--allow", &host.name], &host.http("/"));
    outcome.exits_with(0).says("HTTP/1.1 403").refused(&host.name, 80, "self");
    let outcome = refused(world, OWN.into(), &["--allow", "203.0.113.0/24:80"], &format!("http://{OWN}/"));
    outcome.refused(&OWN.to_string(), 80, "self");
}

fn the_loopback_of_the_host_is_itself_in_mode_open(world: &World) {
    // Of its own, since arrivals are told apart by their address.
    let address = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2));
    let host = world.zone().host_at("loopback-open", &[address]);
    let outcome = refused(world, address, &["--mode", "open"], &host.http("/"));
    outcome.refused(&host.name, 80, "self");
}

/// The name is public at first, so the program reaches it; then its owner points it at the host's loopback. Each
/// connection is looked up and judged on its own.
fn d059_a_name_that_is_rebound_is_vetted_anew(world: &World) {
    let host = world.zone().host("rebound");
    let script = format!(
        "import sys, urllib.request, urllib.error\n\
         def fetch():\n    \
             try: return urllib.request.urlopen('http://{}/').status\n    \
             except urllib.error.HTTPError as error: return error.code\n\
         print(fetch(), flush=True)\n\
         sys.stdin.readline()\n\
         print(fetch(), flush=True)\n",
        host.name
    );
    let mut running = world.netbox(&["--allow", &host.name]).stdin_open().start(&["python3", "-c", &script]);
    running.wait_for_stdout("200\n");
    let loopback = IpAddr::from(Ipv4Addr::new(127, 0, 0, 3));
    world.zone().rebind(&host, &[loopback]);
    let mark = world.mark();
    running.write(b"go on\n");
    let outcome = running.finish();
    outcome.exits_with(0).says("200\n403\n");
    let arrived = world.arrivals_named(mark, &host.name, &[loopback]);
    let arrived: Vec<_> = arrived.iter().filter(|arrival| arrival.service != "dns").collect();
    assert!(arrived.is_empty(), "nothing reaches the host's loopback: {arrived:#?}");
    outcome.decided("deny", &host.name, 80, "non-public");
}

/// A socket that is bound to the stub by the zone of its address could wait for an answer until the program gives up.
fn an_address_of_the_link_is_unreachable_at_once(world: &World) {
    let script = "
import errno, socket
for port in (80, 5432):
    address = socket.getaddrinfo('fe80::1%eth0', port, type=socket.SOCK_STREAM)[0][4]
    connection = socket.socket(socket.AF_INET6)
    connection.settimeout(60)
    print(port, errno.errorcode[connection.connect_ex(address)])
";
    let outcome = world.netbox(&["--allow", "other.example.com"]).exec(&["python3", "-c", script]);
    outcome.exits_with(0).says("80 ENETUNREACH").says("5432 EACCES");
    outcome.refused("fe80::1", 5432, "address-not-listed");
}
