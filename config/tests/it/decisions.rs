//! What is decided about a target before anything is looked up.

use netbox_config::{Decision, HostFacts, HostName, Mode, Policy, PolicyError, Port, Reason, Rule, Via};

use crate::{FLAG, host, policy, target};

/// `reason rule` of a permit or a refusal.
fn decided(policy: &Policy, text: &str, facts: &HostFacts) -> String {
    let (reason, rule) = match policy.decide(&target(text), facts) {
        Decision::Allow(permit) => (permit.reason(), permit.rule()),
        Decision::Refuse(refusal) => (refusal.reason(), refusal.rule()),
    };
    match rule {
        Some(rule) => format!("{reason} {}", rule.text),
        None => reason.to_string(),
    }
}

fn check(policy: &Policy, facts: &HostFacts, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(decided(policy, text, facts), *expected, "{text}");
    }
}

#[test]
fn names_match_by_label_and_port() {
    let allow = ["github.com", "*.example.com", ".example.org", "ssh.example.net:22,2200-2299", "all.example:*"];
    check(
        &policy(Mode::Allowlist, &allow, &[]),
        &HostFacts::default(),
        &[
            ("github.com:443", "listed github.com"),
            ("GITHUB.COM.:80", "listed github.com"),
            ("github.com:22", "port-not-listed"),
            ("api.github.com:443", "not-listed"),
            ("evilgithub.com:443", "not-listed"),
            ("com:443", "not-listed"),
            ("example.com:443", "not-listed"),
            ("a.example.com:443", "listed *.example.com"),
            ("a.b.example.com:443", "listed *.example.com"),
            ("a.example.com:8443", "port-not-listed"),
            ("aexample.com:443", "not-listed"),
            ("example.org:443", "listed .example.org"),
            ("a.b.example.org:80", "listed .example.org"),
            ("ssh.example.net:22", "listed ssh.example.net:22,2200-2299"),
            ("ssh.example.net:2250", "listed ssh.example.net:22,2200-2299"),
            ("ssh.example.net:443", "port-not-listed"),
            ("all.example:1", "listed all.example:*"),
            ("all.example:65535", "listed all.example:*"),
        ],
    );
}

#[test]
fn addresses_match_by_range_and_port_and_never_by_star() {
    let allow = ["*:*", "203.0.113.0/24", "10.1.0.0/16:5432", "[2001:db8::/32]:443", "127.0.0.1:3000", "0.0.0.0/0:9"];
    check(
        &policy(Mode::Allowlist, &allow, &[]),
        &HostFacts::default(),
        &[
            ("any.example:1", "listed *:*"),
            ("203.0.113.5:443", "listed 203.0.113.0/24"),
            ("203.0.114.5:443", "port-not-listed"),
            ("10.1.2.3:5432", "listed 10.1.0.0/16:5432"),
            ("10.1.2.3:443", "port-not-listed"),
            ("[::ffff:10.1.2.3]:5432", "listed 10.1.0.0/16:5432"),
            ("[64:ff9b::a01:203]:5432", "address-not-listed"),
            ("[2002:a01:203::]:5432", "address-not-listed"),
            ("[2001:db8::5]:443", "listed [2001:db8::/32]:443"),
            ("[2001:db9::5]:443", "address-not-listed"),
            ("127.0.0.1:3000", "listed 127.0.0.1:3000"),
            ("127.0.0.2:3000", "port-not-listed"),
            // Covered by a range that names nothing.
            ("8.8.8.8:9", "listed 0.0.0.0/0:9"),
            ("10.1.2.3:9", "non-public"),
            ("169.254.169.254:9", "non-public"),
            ("0.0.0.0:9", "non-public"),
        ],
    );
    check(
        &policy(Mode::Allowlist, &["*:*"], &[]),
        &HostFacts::default(),
        &[("203.0.113.5:443", "address-not-listed"), ("127.0.0.1:80", "address-not-listed")],
    );
}

#[test]
fn a_metadata_address_takes_its_own_rule() {
    let wide = ["169.254.0.0/16", "100.64.0.0/10", "168.63.0.0/16", "fd00::/8"];
    check(
        &policy(Mode::Allowlist, &wide, &[]),
        &HostFacts::default(),
        &[
            ("169.254.1.1:80", "listed 169.254.0.0/16"),
            ("169.254.169.254:80", "non-public"),
            ("100.64.0.1:80", "listed 100.64.0.0/10"),
            ("100.100.100.200:80", "non-public"),
            ("168.63.1.1:80", "listed 168.63.0.0/16"),
            ("168.63.129.16:80", "non-public"),
            ("[fd00::1]:80", "listed fd00::/8"),
            ("[fd00:ec2::254]:80", "non-public"),
        ],
    );
    check(
        &policy(Mode::Allowlist, &["169.254.169.254:80"], &[]),
        &HostFacts::default(),
        &[("169.254.169.254:80", "listed 169.254.169.254:80"), ("169.254.169.253:80", "address-not-listed")],
    );
}

#[test]
fn deny_wins_in_every_mode() {
    let allow = ["*:*", "a.example", "10.0.0.0/8:*", "203.0.113.0/24", "tcp://raw.example:1"];
    let deny = ["a.example", "*.b.example:22", "10.1.0.0/16", "tcp://raw.example:1", "*.com"];
    for mode in [Mode::Allowlist, Mode::Audit, Mode::Open] {
        check(
            &policy(mode, &allow, &deny),
            &HostFacts::default(),
            &[
                ("a.example:443", "denied a.example"),
                // A deny rule without ports covers every port.
                ("a.example:9999", "denied a.example"),
                ("x.b.example:22", "denied *.b.example:22"),
                ("10.1.2.3:80", "denied 10.1.0.0/16"),
                ("[::ffff:10.1.2.3]:80", "denied 10.1.0.0/16"),
                ("[64:ff9b::a01:203]:80", "denied 10.1.0.0/16"),
                ("[64:ff9b:1:a01:2:300::]:80", "denied 10.1.0.0/16"),
                ("[2002:a01:203::1]:80", "denied 10.1.0.0/16"),
                ("[::ffff:0:10.1.2.3]:80", "denied 10.1.0.0/16"),
                ("[::10.1.2.3]:80", "denied 10.1.0.0/16"),
                ("[2001:0:a01:203::]:80", "denied 10.1.0.0/16"),
                ("raw.example:1", "denied tcp://raw.example:1"),
                ("github.com:443", "denied *.com"),
            ],
        );
        let others = policy(mode, &allow, &deny);
        for text in ["x.b.example:443", "b.example:22", "10.2.0.1:80", "raw.example:2"] {
            assert!(matches!(others.decide(&target(text), &HostFacts::default()), Decision::Allow(_)), "{mode} {text}");
        }
    }
}

#[test]
fn a_denied_star_covers_addresses_too() {
    let all = policy(Mode::Open, &[], &["*"]);
    let some = policy(Mode::Open, &[], &["*:25"]);
    for text in ["a.example:25", "203.0.113.5:25", "[2001:db8::1]:25", "127.0.0.1:25"] {
        assert_eq!(decided(&all, text, &HostFacts::default()), "denied *");
        assert_eq!(decided(&some, text, &HostFacts::default()), "denied *:25");
    }
    assert_eq!(decided(&some, "203.0.113.5:26", &HostFacts::default()), "open");
}

#[test]
fn mode_none_refuses_everything_and_takes_no_allow_rules() {
    check(
        &policy(Mode::None, &[], &["a.example"]),
        &host(&[], &[]),
        &[("a.example:443", "mode-none"), ("127.0.0.1:4100", "mode-none"), ("203.0.113.5:80", "mode-none")],
    );
    let allow = vec![Rule::parse("github.com", FLAG).unwrap()];
    let error = Policy::new(Mode::None, allow, vec![]).unwrap_err();
    assert!(matches!(error, PolicyError::AllowInModeNone(_)));
    assert_eq!(
        error.to_string(),
        "mode `none` allows nothing, and `github.com` (--allow) is an allow rule; leave out one of the two"
    );
}

#[test]
fn audit_lets_pass_what_is_public_and_says_what_it_would_be() {
    let audit = policy(Mode::Audit, &["github.com", "10.0.0.0/8:22", "0.0.0.0/0:9"], &["bad.example"]);
    let facts = host(&["203.0.113.77"], &["203.0.113.0/26"]);
    for (text, reason, would) in [
        ("github.com:443", "listed", None),
        ("github.com:22", "audit", Some(Reason::PortNotListed)),
        ("other.example:443", "audit", Some(Reason::NotListed)),
        ("198.51.100.1:443", "audit", Some(Reason::PortNotListed)),
        ("[2001:db8::1]:443", "audit", Some(Reason::AddressNotListed)),
        ("10.0.0.1:22", "listed", None),
        ("10.0.0.1:23", "non-public", None),
        ("10.0.0.1:9", "non-public", None),
        ("192.168.0.1:22", "non-public", None),
        ("203.0.113.5:443", "non-public", None),
        ("203.0.113.77:443", "self", None),
        ("127.0.0.1:4100", "self", None),
        ("bad.example:443", "denied", None),
    ] {
        let (found, found_would) = match audit.decide(&target(text), &facts) {
            Decision::Allow(permit) => (permit.reason(), permit.would()),
            Decision::Refuse(refusal) => (refusal.reason(), None),
        };
        assert_eq!((found.as_str(), found_would), (reason, would), "{text}");
    }
}

#[test]
fn open_passes_all_but_denied_and_self() {
    check(
        &policy(Mode::Open, &["203.0.113.77:80"], &["bad.example"]),
        &host(&["203.0.113.77", "10.0.0.5"], &[]),
        &[
            ("any.example:1", "open"),
            ("127.0.0.1:80", "self"),
            ("169.254.169.254:80", "open"),
            ("10.0.0.6:80", "open"),
            ("10.0.0.5:80", "self"),
            ("203.0.113.77:443", "self"),
            ("203.0.113.77:80", "open 203.0.113.77:80"),
            ("127.0.0.1:4100", "self"),
            ("bad.example:443", "denied bad.example"),
        ],
    );
}

#[test]
fn netboxs_own_listeners_are_self_whatever_the_rules() {
    let mut facts = host(&["203.0.113.77"], &[]);
    facts.listeners.push("[::]:4200".parse().unwrap());
    check(
        &policy(Mode::Allowlist, &["127.0.0.0/8:*", "127.0.0.1:*", "203.0.113.77:*", "0.0.0.0:*", "[::1]:*"], &[]),
        &facts,
        &[
            ("127.0.0.1:4100", "self"),
            ("[::ffff:127.0.0.1]:4100", "self"),
            ("[64:ff9b::7f00:1]:4100", "self"),
            // Linux connects to loopback.
            ("0.0.0.0:4100", "self"),
            ("[::]:4100", "self"),
            ("127.0.0.2:4100", "listed 127.0.0.0/8:*"),
            ("127.0.0.1:4101", "listed 127.0.0.0/8:*"),
            ("203.0.113.77:4100", "listed 203.0.113.77:*"),
            // A listener on every address.
            ("127.0.0.2:4200", "self"),
            ("203.0.113.77:4200", "self"),
            ("[::1]:4200", "self"),
            ("203.0.113.78:4200", "address-not-listed"),
        ],
    );
}

#[test]
fn the_hosts_own_address_takes_a_rule_for_exactly_it() {
    let facts = host(&["203.0.113.77", "10.0.0.5", "127.0.0.1", "2001:db8::77"], &["203.0.113.0/24"]);
    check(
        &policy(Mode::Allowlist, &["203.0.113.0/24", "10.0.0.0/8"], &[]),
        &facts,
        &[
            ("203.0.113.77:443", "self"),
            ("203.0.113.78:443", "listed 203.0.113.0/24"),
            ("10.0.0.5:443", "self"),
            ("10.0.0.6:443", "listed 10.0.0.0/8"),
            ("[2001:db8::77]:443", "self"),
            ("[2002:cb00:714d::1]:443", "self"),
            // Loopback is the guard's matter.
            ("127.0.0.1:443", "address-not-listed"),
        ],
    );
    check(
        &policy(Mode::Allowlist, &["203.0.113.77", "10.0.0.5:22", "[2001:db8::77]"], &[]),
        &facts,
        &[
            ("203.0.113.77:443", "listed 203.0.113.77"),
            ("203.0.113.77:22", "self"),
            ("10.0.0.5:22", "listed 10.0.0.5:22"),
            ("10.0.0.5:443", "self"),
            ("[2001:db8::77]:443", "listed [2001:db8::77]"),
        ],
    );
}

#[test]
fn a_neighbour_takes_a_rule_within_its_network() {
    let facts = host(&[], &["203.0.113.0/24", "2001:db8:1::/64"]);
    check(
        &policy(Mode::Allowlist, &["203.0.0.0/16", "2001:db8::/32"], &[]),
        &facts,
        &[
            ("203.0.112.1:443", "listed 203.0.0.0/16"),
            ("203.0.113.1:443", "non-public"),
            ("[2001:db8:2::1]:443", "listed 2001:db8::/32"),
            ("[2001:db8:1::1]:443", "non-public"),
        ],
    );
    check(
        &policy(Mode::Allowlist, &["203.0.113.0/28", "[2001:db8:1::5]", "[2002:cb00:7101::/48]"], &[]),
        &facts,
        &[
            ("203.0.113.1:443", "listed 203.0.113.0/28"),
            ("203.0.113.99:443", "address-not-listed"),
            ("[2001:db8:1::5]:443", "listed [2001:db8:1::5]"),
            // A neighbour inside a 6to4 address.
            ("[2002:cb00:7101::1]:443", "listed [2002:cb00:7101::/48]"),
        ],
    );
    // A prefix that spans everything is no neighbourhood that `0.0.0.0/0` could name.
    check(
        &policy(Mode::Allowlist, &["0.0.0.0/0", "198.51.100.0/24"], &[]),
        &host(&[], &["0.0.0.0/0"]),
        &[("203.0.113.1:443", "non-public"), ("198.51.100.1:443", "listed 198.51.100.0/24")],
    );
}

#[test]
fn a_metadata_service_on_link_takes_its_own_rule_too() {
    check(
        &policy(Mode::Allowlist, &["169.254.0.0/16"], &[]),
        &host(&[], &["169.254.0.0/16"]),
        &[("169.254.169.254:80", "non-public"), ("169.254.7.7:80", "listed 169.254.0.0/16")],
    );
}

#[test]
fn a_raw_rule_makes_the_permit_raw_and_is_the_one_named() {
    let policy = policy(Mode::Allowlist, &["*.example.com:*", "tcp://db.example.com:5432"], &[]);
    for (text, raw, rule) in [
        ("db.example.com:5432", true, "tcp://db.example.com:5432"),
        ("db.example.com:443", false, "*.example.com:*"),
        ("other.example.com:5432", false, "*.example.com:*"),
    ] {
        let Decision::Allow(permit) = policy.decide(&target(text), &HostFacts::default()) else { panic!("{text}") };
        assert_eq!((permit.is_raw(), &*permit.rule().unwrap().text), (raw, rule), "{text}");
        assert_eq!(permit.target(), &target(text));
    }
}

#[test]
fn of_several_rules_the_one_written_first_is_named() {
    let facts = HostFacts::default();
    check(
        &policy(Mode::Allowlist, &["*", ".example.com", "a.example.com"], &[]),
        &facts,
        &[("a.example.com:443", "listed *")],
    );
    check(
        &policy(Mode::Allowlist, &["a.example.com", "*"], &["*.example.org", "a.example.org"]),
        &facts,
        &[("a.example.com:443", "listed a.example.com"), ("a.example.org:443", "denied *.example.org")],
    );
}

#[test]
fn a_query_leaves_only_for_a_name_that_has_an_allowed_port() {
    let name = |text: &str| HostName::parse_wire(text.as_bytes()).unwrap();
    let allow = ["a.example", "*.b.example:22", "c.example:1-100"];
    let deny = ["x.b.example", "c.example:1-50", "a.example:443", "y.b.example:20-30"];
    let listed = policy(Mode::Allowlist, &allow, &deny);
    for (text, leaves) in [
        ("a.example", true),
        ("b.example", false),
        ("z.b.example", true),
        ("x.b.example", false),
        ("y.b.example", false),
        ("c.example", true),
        ("d.example", false),
    ] {
        assert_eq!(listed.may_resolve(&name(text)), leaves, "{text}");
    }
    let together = policy(Mode::Allowlist, &["c.example:1-100"], &["c.example:1-50", "*.example:51-99", "*:100"]);
    assert!(!together.may_resolve(&name("c.example")));
    for mode in [Mode::Open, Mode::Audit] {
        let others = policy(mode, &[], &deny);
        for (text, leaves) in [("x.b.example", false), ("c.example", true), ("d.example", true)] {
            assert_eq!(others.may_resolve(&name(text)), leaves, "{mode} {text}");
        }
    }
    assert!(!policy(Mode::None, &[], &[]).may_resolve(&name("a.example")));
}

#[test]
fn a_name_in_the_bytes_is_judged_against_denies() {
    let name = HostName::parse_wire(b"a.example").unwrap();
    let policy = policy(Mode::Allowlist, &["203.0.113.5"], &["*.other.example", "a.example:443"]);
    let denied = |port| policy.denies_name(&name, Port::new(port).unwrap()).map(|rule| rule.text.to_string());
    assert_eq!(denied(443).as_deref(), Some("a.example:443"));
    assert_eq!(denied(80), None);
}

#[test]
fn the_way_of_arrival_does_not_change_the_decision() {
    let policy = policy(Mode::Allowlist, &["github.com"], &[]);
    for via in [Via::Connect, Via::Http, Via::Socks5, Via::Capture, Via::Dns] {
        let target = netbox_config::Target::parse_authority(b"github.com:443", via).unwrap();
        let Decision::Allow(permit) = policy.decide(&target, &HostFacts::default()) else { panic!("{via}") };
        assert_eq!(permit.target().via(), via);
    }
}

#[test]
fn the_digest_is_of_what_the_rules_mean() {
    let digest = |mode, allow: &[&str], deny: &[&str]| policy(mode, allow, deny).digest();
    let base = digest(Mode::Allowlist, &["github.com", "bücher.example"], &["a.example"]);
    assert_eq!(base.len(), 64);
    assert!(base.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{base}");
    for same in [
        digest(Mode::Allowlist, &["bücher.example", "GITHUB.com."], &["a.example"]),
        digest(Mode::Allowlist, &["xn--bcher-kva.example", "github.com:443,80", "github.com"], &["a.example:*"]),
    ] {
        assert_eq!(same, base);
    }
    for other in [
        digest(Mode::Audit, &["github.com", "bücher.example"], &["a.example"]),
        digest(Mode::Allowlist, &["github.com"], &["a.example"]),
        digest(Mode::Allowlist, &["github.com", "bücher.example", "a.example"], &[]),
        digest(Mode::Allowlist, &["github.com", "bücher.example"], &["a.example:443"]),
        digest(Mode::Allowlist, &["github.com", "tcp://bücher.example:80,443"], &["a.example"]),
    ] {
        assert_ne!(other, base);
    }
}
