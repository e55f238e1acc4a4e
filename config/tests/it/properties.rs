//! What holds for every policy and every input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbox_config::{
    AddressClass, CheckTarget, Decision, Host, HostFacts, HostName, Mode, Policy, Port, Reason, Rule, Source, Target,
    Via, classify, quote, split_rules,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::FLAG;
use crate::oracle::{ADDRESSES, Pattern, RANGES, Spec, World, is_special};

/// Few labels and few ports, so that rules and targets meet often.
const LABELS: &[&str] = &["a", "b", "aa", "xn--bcher-kva"];
const TOPS: &[&str] = &["example", "test"];
pub(crate) const PORTS: &[u16] = &[1, 22, 80, 443, 4100, 8443, 65535];

pub(crate) fn name() -> impl Strategy<Value = Vec<&'static str>> {
    (prop::collection::vec(select(LABELS), 0..3), select(TOPS)).prop_map(|(mut labels, top)| {
        labels.push(top);
        labels
    })
}

fn ports() -> impl Strategy<Value = Option<Vec<(u16, u16)>>> {
    let range = (select(PORTS), select(PORTS)).prop_map(|(one, two)| (one.min(two), one.max(two)));
    let single = select(PORTS).prop_map(|port| (port, port));
    prop::option::of(prop::collection::vec(prop_oneof![single, range], 1..3))
}

pub(crate) fn spec() -> impl Strategy<Value = Spec> {
    let pattern = prop_oneof![
        1 => Just(Pattern::Every),
        3 => name().prop_map(Pattern::Exact),
        3 => name().prop_map(Pattern::Below),
        2 => name().prop_map(Pattern::AtOrBelow),
        6 => select(RANGES).prop_map(Pattern::Range),
    ];
    (pattern, ports()).prop_map(|(pattern, ports)| Spec { pattern, ports })
}

pub(crate) fn facts() -> impl Strategy<Value = HostFacts> {
    let own = prop::sample::subsequence(vec!["203.0.113.10", "10.0.0.7", "2001:db8::1", "127.0.0.1"], 0..3);
    let on_link =
        prop::sample::subsequence(vec!["203.0.113.0/24", "10.0.0.0/8", "2001:db8::/64", "169.254.0.0/16"], 0..3);
    (own, on_link).prop_map(|(own, on_link)| crate::host(&own, &on_link))
}

pub(crate) fn mode() -> impl Strategy<Value = Mode> {
    select(&[Mode::Allowlist, Mode::Audit, Mode::Open][..])
}

pub(crate) fn specs(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Spec>> {
    prop::collection::vec(spec(), count)
}

fn policy(mode: Mode, allow: &[Spec], deny: &[Spec]) -> Policy {
    let allow = allow.iter().map(|spec| Rule::parse(&spec.text(), FLAG).unwrap()).collect();
    let deny = deny.iter().map(|spec| Rule::parse_deny(&spec.text(), FLAG).unwrap()).collect();
    Policy::new(mode, allow, deny).unwrap()
}

pub(crate) fn target(host: Host, port: u16) -> Target {
    Target::new(host, Port::new(port).unwrap(), Via::Capture)
}

pub(crate) fn name_target(labels: &[&str], port: u16) -> Target {
    target(Host::Name(HostName::parse_wire(labels.join(".").as_bytes()).unwrap()), port)
}

pub(crate) fn reason(decision: &Decision) -> Reason {
    match decision {
        Decision::Allow(permit) => permit.reason(),
        Decision::Refuse(refusal) => refusal.reason(),
    }
}

/// Text near the grammars: pieces that mean something to some parser.
fn near_grammar() -> impl Strategy<Value = String> {
    let pieces = &[
        "github",
        "com",
        ".",
        "..",
        "*",
        "*.",
        ":",
        "::",
        "443",
        "0",
        "65536",
        ",",
        "-",
        "[",
        "]",
        "/",
        "8",
        "32",
        "@",
        "%",
        "://",
        "tcp://",
        "https://",
        "xn--",
        "bcher-kva",
        "10.0.0.1",
        "::ffff:",
        "2001:db8",
        "0x7f",
        " ",
        "\0",
        "\n",
        "ü",
        "\u{200b}",
        "\u{3002}",
        "\u{ff0f}",
        "\u{212a}",
        "\u{2100}",
        "рф",
        "?",
        "#",
        "\\",
        "_",
        "@git",
    ][..];
    prop::collection::vec(select(pieces), 0..10).prop_map(|pieces| pieces.concat())
}

pub(crate) fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![near_grammar(), any::<String>()]
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![any_text().prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..300)]
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
    // Within the forms that carry IPv4 addresses.
    let heads = select(&["::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::", "2002::", "2001::", "::"][..]);
    let carrying = (heads, any::<u32>(), any::<bool>()).prop_map(|(head, bits, early)| {
        let head = head.parse::<Ipv6Addr>().unwrap().to_bits();
        IpAddr::V6(Ipv6Addr::from_bits(head | u128::from(bits) << if early { 80 } else { 0 }))
    });
    let known = select(ADDRESSES.iter().map(|address| address.text).collect::<Vec<_>>());
    prop_oneof![v4, v6, carrying, known.prop_map(|text| text.parse().unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_outside_the_rules_is_ever_allowed_and_nothing_inside_refused(
        mode in mode(), allow in specs(0..6), deny in specs(0..3), facts in facts(),
        name in name(), at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let policy = policy(mode, &allow, &deny);
        let world = World { mode, allow: &allow, deny: &deny, ceilings: &[], facts: &facts };
        let by_name = policy.decide(&name_target(&name, port), &facts);
        prop_assert_eq!(reason(&by_name), world.name(&name, port));
        let address: IpAddr = ADDRESSES[at].text.parse().unwrap();
        let by_address = policy.decide(&target(Host::from_ip(address), port), &facts);
        prop_assert_eq!(reason(&by_address), world.address(&ADDRESSES[at], port));
        if let Decision::Allow(permit) = by_name {
            let found = policy.vet(&permit, address, &facts).map_err(|refusal| refusal.reason());
            prop_assert_eq!(found.err(), world.vet(&ADDRESSES[at], port));
        }
        if let Decision::Allow(permit) = by_address {
            let vetted = policy.vet(&permit, address, &facts);
            prop_assert_eq!(vetted.map(|vetted| vetted.socket_addr().ip()), Ok(address));
        }
    }

    #[test]
    fn deny_always_wins(
        mode in mode(), allow in specs(0..6), mut deny in specs(0..3), at in 0..4usize, name in name(), port in select(PORTS),
        place in any::<prop::sample::Index>(),
    ) {
        let written = [None, Some(vec![(port, port)]), Some(vec![(1, 65535)]), None];
        let pattern = match at {
            0 => Pattern::Every,
            1 => Pattern::AtOrBelow(name.clone()),
            2 if name.len() > 1 => Pattern::Below(name[1..].to_vec()),
            _ => Pattern::Exact(name.clone()),
        };
        deny.insert(place.index(deny.len() + 1), Spec { pattern, ports: written[at].clone() });
        let policy = policy(mode, &allow, &deny);
        let target = name_target(&name, port);
        let Decision::Refuse(refusal) = policy.decide(&target, &HostFacts::default()) else {
            return Err(TestCaseError::fail("allowed"));
        };
        prop_assert_eq!(refusal.reason(), Reason::Denied);
        prop_assert!(refusal.rule().is_some());
    }

    #[test]
    fn a_denied_address_is_never_vetted(
        mode in mode(), allow in specs(0..6), facts in facts(), at in 0..RANGES.len(), address in any_address(),
        port in select(PORTS),
    ) {
        let mut allow = allow;
        allow.push(Spec { pattern: Pattern::Every, ports: Some(vec![(1, 65535)]) });
        let deny = [Spec { pattern: Pattern::Range(RANGES[at]), ports: None }];
        let policy = policy(mode, &allow, &deny);
        let Decision::Allow(permit) = policy.decide(&name_target(&["a", "example"], port), &facts) else {
            return Err(TestCaseError::fail("`*:*` allows it"));
        };
        let range: netbox_config::IpNet = RANGES[at].text.parse().unwrap();
        if range.contains(&address.to_canonical()) {
            prop_assert!(policy.vet(&permit, address, &facts).is_err());
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_vetted_only_by_a_rule_that_names_it(
        audit in any::<bool>(), allow in specs(0..6), facts in facts(), address in any_address(), port in select(PORTS),
    ) {
        let mode = if audit { Mode::Audit } else { Mode::Allowlist };
        let mut rules = allow;
        rules.push(Spec { pattern: Pattern::Every, ports: Some(vec![(1, 65535)]) });
        let policy = policy(mode, &rules, &[]);
        let Decision::Allow(permit) = policy.decide(&name_target(&["a", "example"], port), &facts) else {
            return Err(TestCaseError::fail("`*:*` allows it"));
        };
        let Ok(vetted) = policy.vet(&permit, address, &facts) else { return Ok(()) };
        prop_assert_eq!(vetted.socket_addr().port(), port);
        let dialled = vetted.socket_addr().ip();
        prop_assert_eq!(dialled, address.to_canonical());
        let special = classify(dialled) != AddressClass::Public
            || matches!(dialled, IpAddr::V4(v4) if is_special(v4))
            || facts.on_link.iter().any(|prefix| prefix.contains(&dialled));
        let naming = rules.iter().any(|spec| match &spec.pattern {
            Pattern::Range(range) => {
                let net: netbox_config::IpNet = range.text.parse().unwrap();
                let on_link = facts.on_link.iter().any(|prefix| prefix.contains(&net) && prefix.contains(&dialled));
                net.contains(&dialled) && (range.class != "none" || on_link)
            }
            _ => false,
        });
        prop_assert!(!special || naming, "{} was vetted", dialled);
    }

    #[test]
    fn the_table_agrees_with_the_standard_library(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(classify(address.into()) != AddressClass::Public, is_special(address), "{}", address);
        prop_assert_eq!(classify(address.to_ipv6_mapped().into()), classify(address.into()));
    }

    #[test]
    fn an_ipv6_address_is_no_more_public_than_what_it_carries(bits in any::<u32>(), middle in any::<u16>()) {
        let v4 = Ipv4Addr::from_bits(bits);
        let [a, b] = [(bits >> 16) as u16, bits as u16];
        let forms = [
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, a, b),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
            Ipv6Addr::new(0x64, 0xff9b, 1, middle, 0, 0, a, b),
            Ipv6Addr::new(0x2002, a, b, middle, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, a, b, 0, middle, !0xcb00, !0x710a),
            Ipv6Addr::new(0x2001, 0, 0xcb00, 0x710a, 0, middle, !a, !b),
        ];
        for form in forms {
            prop_assert!(classify(v4.into()) == AddressClass::Public || classify(form.into()) != AddressClass::Public, "{}", form);
        }
    }

    #[test]
    fn normalising_twice_is_normalising_once(text in any_text()) {
        if let Ok(name) = HostName::parse_wire(text.as_bytes()) {
            prop_assert_eq!(&HostName::parse_wire(name.as_str().as_bytes()).unwrap(), &name);
            prop_assert_eq!(&HostName::parse_wire(text.to_ascii_uppercase().as_bytes()).unwrap(), &name);
            prop_assert_eq!(&HostName::parse_rule(&text).unwrap(), &name);
            prop_assert_eq!(&HostName::parse_labels(name.as_str().split('.').map(str::as_bytes)).unwrap(), &name);
            prop_assert!(name.as_str().len() <= 253 && !name.as_str().ends_with('.'));
        }
        if let Ok(name) = HostName::parse_rule(&text) {
            prop_assert!(name.as_str().is_ascii());
            prop_assert_eq!(&HostName::parse_rule(name.as_str()).unwrap(), &name);
            prop_assert_eq!(&HostName::parse_wire(name.as_str().as_bytes()).unwrap(), &name);
        }
        if let Ok(target) = Target::parse_authority(text.as_bytes(), Via::Connect) {
            let shown = target.to_string();
            prop_assert_eq!(Target::parse_authority(shown.as_bytes(), Via::Connect).unwrap(), target.clone());
            prop_assert_eq!(CheckTarget::parse(&shown).unwrap().into_target(), target);
        }
        if let Ok(rule) = Rule::parse(&text, FLAG) {
            let again = Rule::parse(&rule.to_string(), FLAG).unwrap();
            prop_assert_eq!(again.to_string(), rule.to_string());
            let digest = |rule| Policy::new(Mode::Allowlist, vec![rule], vec![]).unwrap().digest();
            prop_assert_eq!(digest(again), digest(rule));
        }
    }

    #[test]
    fn one_trailing_dot_is_dropped_and_a_second_is_an_error(name in name()) {
        let name = name.join(".");
        let parsed = HostName::parse_wire(name.as_bytes()).unwrap();
        prop_assert_eq!(HostName::parse_wire(format!("{name}.").as_bytes()), Ok(parsed));
        let two = name + "..";
        prop_assert!(HostName::parse_wire(two.as_bytes()).is_err());
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in any_bytes()) {
        let name = HostName::parse_wire(&bytes);
        prop_assert!(name.is_err() || bytes.is_ascii());
        let _ = HostName::parse_labels(bytes.split(|b| *b == b'.'));
        let _ = Host::parse_wire(&bytes);
        let _ = Port::parse(&bytes);
        if let Err(error) = Target::parse_authority(&bytes, Via::Socks5) {
            prop_assert!(!error.to_string().contains(char::is_control));
        }
        let shown = quote(&bytes).to_string();
        prop_assert!(!shown.contains(char::is_control) && shown.chars().count() < 1100);
    }

    #[test]
    fn no_text_makes_the_rules_parser_panic_and_errors_are_fit_to_print(text in any_text()) {
        for error in [Rule::parse(&text, FLAG).err(), Rule::parse_deny(&text, FLAG).err(), split_rules(&text).err()].into_iter().flatten() {
            let shown = error.to_string();
            prop_assert!(!shown.contains(char::is_control), "{}", shown);
            prop_assert!(error.offset() <= text.len());
            prop_assert!(error.column() <= text.chars().count() + 1);
        }
        if let Err(error) = CheckTarget::parse(&text) {
            prop_assert!(!error.to_string().contains(char::is_control));
        }
        let _ = text.parse::<Mode>();
    }

    #[test]
    fn a_list_of_rules_is_split_into_those_rules(rules in prop::collection::vec(spec(), 1..5)) {
        let texts: Vec<_> = rules.iter().map(Spec::text).collect();
        let after_ports = |pair: &[Spec]| pair[0].ports.is_some() && pair[1].text() == "*";
        match split_rules(&texts.join(",")) {
            Ok(split) => prop_assert_eq!(split, texts),
            Err(_) => prop_assert!(rules.windows(2).any(after_ports)),
        }
    }

    #[test]
    fn the_hint_allows_what_was_refused(
        allow in specs(0..4), facts in facts(), name in name(), address in any_address(), port in select(PORTS),
    ) {
        let before = policy(Mode::Allowlist, &allow, &[]);
        let after = |hint: &str| {
            let mut rules = before.allow().to_vec();
            rules.push(Rule::parse(hint, Source::Flag("--hint")).unwrap());
            Policy::new(Mode::Allowlist, rules, vec![]).unwrap()
        };
        for target in [name_target(&name, port), target(Host::from_ip(address), port)] {
            let Decision::Refuse(refusal) = before.decide(&target, &facts) else { continue };
            let Some(hint) = refusal.hint(&target) else { continue };
            let decision = after(&hint).decide(&target, &facts);
            prop_assert!(matches!(decision, Decision::Allow(_)), "{}: {} {:?}", target, hint, decision);
        }
        let name_target = name_target(&name, port);
        if let Decision::Allow(permit) = before.decide(&name_target, &facts)
            && let Err(refusal) = before.vet(&permit, address, &facts)
            && let Some(hint) = refusal.hint(&name_target)
        {
            let after = after(&hint);
            let Decision::Allow(permit) = after.decide(&name_target, &facts) else {
                return Err(TestCaseError::fail("an added rule refuses"));
            };
            prop_assert!(after.vet(&permit, address, &facts).is_ok(), "{}: {}", address, hint);
        }
    }
}
