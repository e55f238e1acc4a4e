//! A policy that travels, and what of it is granted.

use netbox_config::{
    AskedError, AskedPolicy, Bound, Ceiling, Decision, Ech, Host, HostFacts, Mode, Policy, Rule, Source,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::oracle::{ADDRESSES, Spec};
use crate::properties::{PORTS, facts, mode, name, name_target, reason, specs, target};

fn rules(specs: &[Spec], source: &Source) -> Vec<Rule> {
    specs.iter().map(|spec| Rule::parse_deny(&spec.text(), source.clone()).unwrap()).collect()
}

fn ceiling(specs: &[Spec], source: &Source) -> Ceiling {
    Ceiling::new(source.clone(), rules(specs, source))
}

/// What anybody may ask for.
fn asked() -> impl Strategy<Value = Policy> {
    (mode(), specs(0..5), specs(0..3), prop::option::of(specs(1..5))).prop_map(|(mode, allow, deny, within)| {
        let source = Source::Flag("--asked");
        let policy = Policy::new(mode, rules(&allow, &source), rules(&deny, &source)).unwrap();
        policy.within(within.iter().map(|specs| ceiling(specs, &source)).collect())
    })
}

fn bound() -> impl Strategy<Value = Bound> {
    let widest = prop::option::of(select(&[Mode::Allowlist, Mode::Audit, Mode::Open, Mode::None][..]));
    (specs(0..3), prop::option::of(specs(0..5)), widest).prop_map(|(deny, within, widest)| {
        let source = Source::Flag("--owner");
        Bound {
            deny: rules(&deny, &source),
            ceilings: within.iter().map(|specs| ceiling(specs, &source)).collect(),
            mode: widest.map(|mode| (mode, source)),
            ech: Ech::Allow,
        }
    })
}

fn allows(policy: &Policy, target: &netbox_config::Target, facts: &HostFacts) -> bool {
    matches!(policy.decide(target, facts), Decision::Allow(_))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_asked_for_without_bounds_is_the_policy_itself(
        policy in asked(), facts in facts(), name in name(), at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let text = serde_json::to_string(&AskedPolicy::of(&policy)).unwrap();
        let granted = serde_json::from_str::<AskedPolicy>(&text).unwrap().grant(&[]).unwrap();
        prop_assert!(granted.warnings.is_empty());
        prop_assert_eq!(granted.policy.digest(), policy.digest());
        let address = target(Host::from_ip(ADDRESSES[at].text.parse().unwrap()), port);
        for target in [name_target(&name, port), address] {
            let (one, other) = (granted.policy.decide(&target, &facts), policy.decide(&target, &facts));
            prop_assert_eq!(reason(&one), reason(&other));
        }
    }

    #[test]
    fn nothing_is_granted_that_is_not_asked_for_or_that_a_bound_leaves_out(
        policy in asked(), outer in bound(), inner in bound(), facts in facts(), name in name(),
        at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let granted = AskedPolicy::of(&policy).grant(&[outer.clone(), inner.clone()]).unwrap().policy;
        let address = target(Host::from_ip(ADDRESSES[at].text.parse().unwrap()), port);
        for target in [name_target(&name, port), address] {
            if !allows(&granted, &target, &facts) {
                continue;
            }
            prop_assert!(allows(&policy, &target, &facts), "{} was not asked for", target);
            for bound in [&outer, &inner] {
                // Everything, in the widest mode, but for what the bound says.
                let widest = Policy::new(Mode::Open, Vec::new(), bound.deny.clone()).unwrap();
                let mut with_everything = bound.ceilings.clone();
                with_everything.extend(policy.ceilings().iter().cloned());
                let widest = widest.within(with_everything);
                let refused_by_bound = match widest.decide(&target, &facts) {
                    Decision::Allow(_) => false,
                    Decision::Refuse(refusal) => refusal.reason() == netbox_config::Reason::Denied,
                };
                prop_assert!(!refused_by_bound, "{} is left out", target);
                if let Some((mode, _)) = &bound.mode {
                    prop_assert!(!granted.mode().is_wider_than(*mode));
                }
            }
        }
    }
}

fn ask(json: &str) -> AskedPolicy {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_rule_keeps_its_place_and_a_deny_of_the_owner_comes_first() {
    let asked =
        ask(r#"{"mode":"allowlist","ech":"allow","allow":[{"rule":"example.com","at":"netbox.toml:3:10 via @web"}],
            "deny":[{"rule":"bad.example.com","at":"--deny"}]}"#);
    let deny = vec![Rule::parse_deny("worse.example.com", Source::Flag("--owner")).unwrap()];
    let granted = asked.grant(&[Bound { deny, ..Bound::default() }]).unwrap().policy;
    assert_eq!(&*granted.allow()[0].reference().source, "netbox.toml:3:10 via @web");
    let denied: Vec<_> = granted.deny().iter().map(Rule::text).collect();
    assert_eq!(denied, ["worse.example.com", "bad.example.com"]);
}

#[test]
fn rules_that_the_owner_leaves_without_effect_are_said() {
    let source = |text: &str| Source::Asked(text.into());
    let rule = |text: &str, at: &str| Rule::parse_deny(text, source(at)).unwrap();
    let bound = Bound {
        deny: vec![rule("evil.example.com", "config.toml:2:9")],
        ceilings: vec![Ceiling::new(source("config.toml:4:11"), vec![rule("*.example.com", "config.toml:4:12")])],
        ..Bound::default()
    };
    let asked = ask(r#"{"mode":"allowlist","ech":"allow","allow":[{"rule":"good.example.com","at":"--allow"},
            {"rule":"evil.example.com","at":"--allow"},{"rule":"example.org","at":"netbox.toml:3:10 via @web"},
            {"rule":"own.example.org","at":"--allow"}],
            "deny":[{"rule":"own.example.org","at":"--deny"}]}"#);
    let said = [
        "--allow: `evil.example.com` has no effect: `evil.example.com` (config.toml:2:9) denies all of it",
        "netbox.toml:3:10 via @web: `example.org` has no effect: all of it is outside the ceiling at config.toml:4:11",
    ];
    // Of the last one, whoever asks knows.
    assert_eq!(asked.grant(std::slice::from_ref(&bound)).unwrap().warnings, said);
    assert!(asked.grant(&[Bound::default()]).unwrap().warnings.is_empty());
    let many: Vec<_> = (0..9).map(|n| format!(r#"{{"rule":"{n}.example.org","at":"--allow"}}"#)).collect();
    let asked = ask(&format!(r#"{{"mode":"allowlist","ech":"allow","allow":[{}]}}"#, many.join(",")));
    let warnings = asked.grant(&[bound]).unwrap().warnings;
    assert_eq!((warnings.len(), &*warnings[5]), (6, "4 further allow rules have no effect"));
}

#[test]
fn a_mode_that_is_too_wide_is_narrowed_and_said() {
    let asked = ask(r#"{"mode":"open","ech":"allow"}"#);
    let bound = |mode, ech| Bound { mode: Some((mode, Source::Flag("config.toml:1:1"))), ech, ..Bound::default() };
    let granted = asked.grant(&[bound(Mode::Audit, Ech::Allow), bound(Mode::Allowlist, Ech::Refuse)]).unwrap();
    assert_eq!((granted.policy.mode(), granted.policy.ech()), (Mode::Allowlist, Ech::Refuse));
    assert_eq!(granted.warnings.len(), 2);
    assert_eq!(granted.warnings[0], "mode `open` is wider than `audit`, which config.toml:1:1 sets and which holds");
}

#[test]
fn one_rule_that_makes_no_sense_refuses_all() {
    for (json, part) in [
        (r#"{"mode":"allowlist","ech":"allow","allow":[{"rule":"*.com","at":"--allow"}]}"#, "*.com"),
        (r#"{"mode":"allowlist","ech":"allow","deny":[{"rule":"a b","at":"--deny"}]}"#, "--deny"),
        (
            r#"{"mode":"allowlist","ech":"allow","ceilings":[{"at":"x:1:1","rules":[{"rule":"","at":"x:1:2"}]}]}"#,
            "x:1:2",
        ),
        (r#"{"mode":"Open","ech":"allow"}"#, "no mode"),
        (r#"{"mode":"open","ech":""}"#, "ECH"),
    ] {
        let error = ask(json).grant(&[]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let rule = r#"{"rule":"example.com","at":"x"}"#;
    let many = vec![rule; AskedPolicy::MOST_RULES + 1].join(",");
    let many = ask(&format!(r#"{{"mode":"open","ech":"allow","allow":[{many}]}}"#));
    assert_eq!(many.grant(&[]).unwrap_err(), AskedError::Many(AskedPolicy::MOST_RULES + 1));
}
