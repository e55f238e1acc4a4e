//! What becomes of the addresses of a permitted target, and the hints of refusals.

use std::net::IpAddr;

use netbox_config::{Decision, HostFacts, Mode, Permit, Policy, Reason, Refusal};

use crate::{host, policy, target};

fn permit(policy: &Policy, text: &str, facts: &HostFacts) -> Permit {
    match policy.decide(&target(text), facts) {
        Decision::Allow(permit) => permit,
        Decision::Refuse(refusal) => panic!("{text}: {}", refusal.reason()),
    }
}

/// `ok address:port` or the reason.
fn vetted(policy: &Policy, text: &str, address: &str, facts: &HostFacts) -> String {
    let address: IpAddr = address.parse().unwrap();
    match policy.vet(&permit(policy, text, facts), address, facts) {
        Ok(vetted) => format!("ok {}", vetted.socket_addr()),
        Err(refusal) => {
            assert_eq!(refusal.address(), Some(address.to_canonical()));
            refusal.reason().to_string()
        }
    }
}

#[test]
fn a_listed_name_reaches_public_addresses_only() {
    let listed = policy(Mode::Allowlist, &["a.example:*"], &[]);
    let facts = host(&["203.0.113.77"], &["198.51.100.0/24"]);
    for (address, expected) in [
        ("203.0.113.10", "ok 203.0.113.10:443"),
        ("::ffff:203.0.113.10", "ok 203.0.113.10:443"),
        ("2001:db8::1", "ok [2001:db8::1]:443"),
        ("64:ff9b::203.0.113.10", "ok [64:ff9b::cb00:710a]:443"),
        ("203.0.113.77", "self"),
        ("64:ff9b::203.0.113.77", "self"),
        ("198.51.100.1", "non-public"),
        ("64:ff9b::198.51.100.1", "non-public"),
        ("10.0.0.7", "non-public"),
        ("::ffff:10.0.0.7", "non-public"),
        ("64:ff9b::10.0.0.7", "non-public"),
        ("2002:a00:7::1", "non-public"),
        ("::ffff:0:10.0.0.7", "non-public"),
        ("127.0.0.1", "non-public"),
        ("::1", "non-public"),
        ("0.0.0.0", "non-public"),
        ("::", "non-public"),
        ("169.254.169.254", "non-public"),
        ("168.63.129.16", "non-public"),
        ("198.18.0.1", "non-public"),
        ("fd00::1", "non-public"),
        ("255.255.255.255", "non-public"),
    ] {
        assert_eq!(vetted(&listed, "a.example:443", address, &facts), expected, "{address}");
    }
    assert_eq!(vetted(&listed, "a.example:4100", "127.0.0.1", &facts), "self");
}

#[test]
fn an_address_rule_lifts_the_guard_on_its_own_ports() {
    let allow =
        ["a.example:*", "10.0.0.0/8", "127.0.0.1:3000", "0.0.0.0/0:9", "203.0.113.77:22", "tcp://[fd00::/8]:5432"];
    let policy = policy(Mode::Allowlist, &allow, &[]);
    let facts = host(&["203.0.113.77", "10.0.0.5"], &[]);
    for (port, address, expected) in [
        (443, "10.0.0.7", "ok 10.0.0.7:443"),
        (22, "10.0.0.7", "non-public"),
        (443, "::ffff:10.0.0.7", "ok 10.0.0.7:443"),
        // What a rule for an IPv4 range lifts, it lifts for IPv4 addresses.
        (443, "64:ff9b::10.0.0.7", "non-public"),
        (443, "2002:a00:7::1", "non-public"),
        (443, "192.168.0.7", "non-public"),
        (443, "10.0.0.5", "self"),
        (3000, "127.0.0.1", "ok 127.0.0.1:3000"),
        (3000, "127.0.0.2", "non-public"),
        (9, "192.168.0.7", "non-public"),
        (9, "203.0.113.10", "ok 203.0.113.10:9"),
        (22, "203.0.113.77", "ok 203.0.113.77:22"),
        (443, "203.0.113.77", "self"),
        (5432, "fd00::7", "ok [fd00::7]:5432"),
        (5432, "fd00:ec2::254", "non-public"),
    ] {
        assert_eq!(vetted(&policy, &format!("a.example:{port}"), address, &facts), expected, "{address} {port}");
    }
}

#[test]
fn denied_ranges_hold_for_names_and_in_open_mode() {
    let deny = ["10.0.0.0/8", "203.0.113.0/28:25", "2001:db8:bad::/48"];
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        let policy = policy(mode, &["*:*", "10.0.0.0/8:*"], &deny);
        for (port, address, expected) in [
            (443, "10.0.0.7", "denied"),
            (443, "64:ff9b::10.0.0.7", "denied"),
            (443, "2002:a00:7::1", "denied"),
            (25, "203.0.113.1", "denied"),
            (443, "203.0.113.1", "ok 203.0.113.1:443"),
            (443, "2001:db8:bad::1", "denied"),
        ] {
            let found = vetted(&policy, &format!("a.example:{port}"), address, &HostFacts::default());
            assert_eq!(found, expected, "{mode} {address} {port}");
        }
    }
}

#[test]
fn the_guard_is_off_in_open_mode_but_for_loopback_and_on_in_audit() {
    let facts = host(&["10.0.0.5"], &[]);
    let (open, audit) = (policy(Mode::Open, &[], &[]), policy(Mode::Audit, &[], &[]));
    for address in ["10.0.0.7", "169.254.169.254"] {
        assert!(vetted(&open, "a.example:443", address, &facts).starts_with("ok "), "{address}");
        assert_eq!(vetted(&audit, "a.example:443", address, &facts), "non-public");
    }
    let named = policy(Mode::Open, &["127.0.0.1"], &[]);
    assert!(vetted(&named, "a.example:443", "127.0.0.1", &facts).starts_with("ok "));
    for address in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "64:ff9b::7f00:1"] {
        assert_eq!(vetted(&open, "a.example:443", address, &facts), "self", "{address}");
        assert_eq!(vetted(&audit, "a.example:443", address, &facts), "non-public", "{address}");
    }
    assert_eq!(vetted(&open, "a.example:443", "10.0.0.5", &facts), "self");
    assert_eq!(vetted(&open, "a.example:4100", "127.0.0.1", &facts), "self");
}

#[test]
fn a_permit_for_an_address_is_for_that_address() {
    let policy = policy(Mode::Allowlist, &["203.0.113.0/24", "10.0.0.0/8"], &[]);
    let facts = HostFacts::default();
    assert_eq!(vetted(&policy, "203.0.113.5:443", "203.0.113.5", &facts), "ok 203.0.113.5:443");
    assert_eq!(vetted(&policy, "203.0.113.5:443", "::ffff:203.0.113.5", &facts), "ok 203.0.113.5:443");
    assert_eq!(vetted(&policy, "203.0.113.5:443", "203.0.113.6", &facts), "address-not-listed");
    assert_eq!(vetted(&policy, "10.0.0.1:443", "10.0.0.1", &facts), "ok 10.0.0.1:443");
}

#[test]
fn what_the_host_became_since_the_decision_counts() {
    let policy = policy(Mode::Allowlist, &["203.0.113.0/24"], &[]);
    let permit = permit(&policy, "203.0.113.5:443", &HostFacts::default());
    let address = "203.0.113.5".parse().unwrap();
    let refusal = policy.vet(&permit, address, &host(&["203.0.113.5"], &[])).unwrap_err();
    assert_eq!(refusal.reason(), Reason::SelfAddress);
}

#[test]
fn a_refusal_hints_at_the_rule_that_would_allow_it() {
    let policy = policy(Mode::Allowlist, &["b.example:22", "0.0.0.0/0:9"], &["denied.example"]);
    for (text, hint) in [
        ("a.example:443", Some("a.example")),
        ("a.example:80", Some("a.example")),
        ("a.example:8443", Some("a.example:8443")),
        ("b.example:443", Some("b.example:443")),
        ("10.1.2.3:5432", Some("10.1.2.3:5432")),
        ("10.1.2.3:9", Some("10.1.2.3:9")),
        ("203.0.113.5:443", Some("203.0.113.5:443")),
        ("[2001:db8::1]:443", Some("[2001:db8::1]:443")),
        ("198.18.0.5:443", None),
        ("224.0.0.1:443", None),
        ("127.0.0.1:4100", None),
        ("denied.example:443", None),
    ] {
        let Decision::Refuse(refusal) = policy.decide(&target(text), &host(&[], &[])) else { panic!("{text}") };
        assert_eq!(refusal.hint(&target(text)).as_deref(), hint, "{text}");
    }
}

#[test]
fn the_proxys_refusals_have_hints_where_a_rule_helps() {
    let target = target("a.example:443");
    for (reason, hint) in [
        (Reason::NotTls, Some("tcp://a.example:443")),
        (Reason::SniMissing, Some("tcp://a.example:443")),
        (Reason::NotHttp, Some("tcp://a.example:443")),
        (Reason::Unsupported, Some("tcp://a.example:443")),
        (Reason::SniMismatch, None),
        (Reason::HostMismatch, None),
        (Reason::Malformed, None),
        (Reason::Udp, None),
        (Reason::ModeNone, None),
        (Reason::Limit, None),
        (Reason::NonPublic, None),
    ] {
        assert_eq!(Refusal::new(reason).hint(&target).as_deref(), hint, "{reason}");
    }
    let inside = Refusal::new(Reason::NonPublic).with_address("::ffff:10.0.0.7".parse().unwrap());
    assert_eq!(inside.hint(&target).as_deref(), Some("10.0.0.7:443"));
    let six = Refusal::new(Reason::NonPublic).with_address("fd00::7".parse().unwrap());
    assert_eq!(six.hint(&target).as_deref(), Some("[fd00::7]:443"));
}

#[test]
fn where_a_name_leads_is_no_reason_to_open_the_machine_or_its_credentials() {
    let inside = |host: &str, address: &str| {
        let refusal = Refusal::new(Reason::NonPublic).with_address(address.parse().unwrap());
        refusal.hint(&target(&format!("{host}:80")))
    };
    for address in ["127.0.0.1", "::1", "169.254.169.254", "168.63.129.16"] {
        assert_eq!(inside("a.example", address), None, "{address}");
    }
    assert_eq!(inside("127.0.0.1", "127.0.0.1").as_deref(), Some("127.0.0.1:80"), "it was asked for by itself");
}

#[test]
fn a_name_that_only_wildcards_cover_may_be_made_up() {
    let made_up = |policy: &Policy, name: &str| {
        policy.lists_by_wildcard_alone(&netbox_config::HostName::parse_wire(name.as_bytes()).unwrap())
    };
    let listed = policy(Mode::Allowlist, &["*.a.example", "b.a.example", ".c.example"], &[]);
    for (name, expected) in [("x.a.example", true), ("b.a.example", false), ("c.example", true)] {
        assert_eq!(made_up(&listed, name), expected, "{name}");
    }
    for mode in [Mode::Audit, Mode::Open] {
        assert!(!made_up(&policy(mode, &[], &[]), "x.a.example"), "every name is open");
    }
    let ceiling = |rule: &str| {
        let rule = netbox_config::Rule::parse(rule, netbox_config::Source::Flag("--allow")).unwrap();
        netbox_config::Ceiling::new(netbox_config::Source::Flag("ceiling"), vec![rule])
    };
    let under = |rule| policy(Mode::Open, &[], &[]).within(vec![ceiling(rule)]);
    assert!(made_up(&under("*.a.example"), "x.a.example"), "but for a ceiling");
    assert!(!made_up(&under("x.a.example"), "x.a.example"));
}
