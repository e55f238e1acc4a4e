//! Many rules. Asking every rule about every target would take these tests from a second to hours.

use netbox_config::{Decision, Host, HostFacts, HostName, Mode, Policy, Port, Rule, Target, Via};

use crate::FLAG;

const MANY: usize = 30_000;

fn is_allowed(policy: &Policy, text: &str) -> bool {
    let target = Target::parse_authority(text.as_bytes(), Via::Capture).unwrap();
    matches!(policy.decide(&target, &HostFacts::default()), Decision::Allow(_))
}

#[test]
fn thirty_thousand_rules_are_not_asked_one_by_one() {
    let texts = (0..MANY).map(|n| match n % 4 {
        0 => format!("host{n}.example.com"),
        1 => format!("*.zone{n}.example.com:8443"),
        2 => format!("198.{}.{}.{}", 64 + n / 65536, n / 256 % 256, n % 256),
        _ => format!("[2001:db8:{:x}:{:x}::/64]:22", n / 65536, n % 65536),
    });
    let rules: Vec<_> = texts.map(|text| Rule::parse(&text, FLAG).unwrap()).collect();
    let policy = Policy::new(Mode::Allowlist, rules, vec![]).unwrap();
    for n in 0..MANY {
        let (allowed, refused) = match n % 4 {
            0 => (format!("host{n}.example.com:443"), format!("xhost{n}.example.com:443")),
            1 => (format!("a.b.zone{n}.example.com:8443"), format!("zone{n}.example.com:8443")),
            2 => (
                format!("198.{}.{}.{}:443", 64 + n / 65536, n / 256 % 256, n % 256),
                format!("198.{}.{}.{}:443", 80 + n / 65536, n / 256 % 256, n % 256),
            ),
            _ => (
                format!("[2001:db8:{:x}:{:x}::9]:22", n / 65536, n % 65536),
                format!("[2001:db9:{:x}:{:x}::9]:22", n / 65536, n % 65536),
            ),
        };
        assert!(is_allowed(&policy, &allowed), "{allowed}");
        assert!(!is_allowed(&policy, &refused), "{refused}");
    }
}

#[test]
fn a_name_of_many_labels_costs_one_look_a_label() {
    let rules = (0..MANY).map(|n| Rule::parse(&format!("*.zone{n}.example"), FLAG).unwrap()).collect();
    let policy = Policy::new(Mode::Allowlist, rules, vec![]).unwrap();
    let longest = "a.".repeat(126) + "a";
    let name = HostName::parse_wire(longest.as_bytes()).unwrap();
    let target = Target::new(Host::Name(name.clone()), Port::HTTPS, Via::Dns);
    for _ in 0..1_000 {
        assert!(matches!(policy.decide(&target, &HostFacts::default()), Decision::Refuse(_)));
        assert!(!policy.may_resolve(&name));
    }
}
