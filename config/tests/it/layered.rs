//! What holds for every pile of policy files, against the oracle.

use std::net::IpAddr;
use std::path::Path;

use netbox_config::{
    CommandLine, Compiled, Decision, Entry, Expansions, FileFault, Host, HostFacts, HostName, Layer, List, Mode,
    PolicyFile, Source, Stack,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::oracle::{ADDRESSES, Spec, World};
use crate::properties::{PORTS, facts, name, name_target, reason, spec, specs, target};

/// What one layer says.
#[derive(Clone, Debug, Default)]
struct Said {
    allow: Vec<Spec>,
    deny: Vec<Spec>,
    ceiling: Option<Vec<Spec>>,
    mode: Option<Mode>,
}

fn modes() -> impl Strategy<Value = Option<Mode>> {
    prop::option::weighted(0.3, select(&[Mode::Allowlist, Mode::Audit, Mode::Open, Mode::None][..]))
}

fn said(may_have_ceiling: bool) -> impl Strategy<Value = Said> {
    let ceiling = prop::option::weighted(0.4, specs(1..5));
    (specs(0..4), specs(0..2), ceiling, modes()).prop_map(move |(allow, deny, ceiling, mode)| Said {
        allow,
        deny,
        ceiling: ceiling.filter(|_| may_have_ceiling),
        mode,
    })
}

fn list(specs: &[Spec]) -> String {
    format!("[{}]", specs.iter().map(|spec| format!("\"{}\"", spec.text())).collect::<Vec<_>>().join(", "))
}

fn file(layer: Layer, said: &Said) -> PolicyFile {
    let mut text = format!("allow = {}\ndeny = {}\n", list(&said.allow), list(&said.deny));
    if let Some(ceiling) = &said.ceiling {
        text += &format!("ceiling = {}\n", list(ceiling));
    }
    if let Some(mode) = said.mode {
        text += &format!("mode = \"{mode}\"\n");
    }
    PolicyFile::parse(layer, Path::new("netbox.toml"), text.as_bytes()).unwrap()
}

fn command_line(said: &Said) -> CommandLine {
    let entries = |specs: &[Spec], list| {
        specs.iter().map(|spec| Entry::parse(&spec.text(), list, Source::Flag("--rule")).unwrap()).collect()
    };
    CommandLine {
        allow: entries(&said.allow, List::Allow),
        deny: entries(&said.deny, List::Deny),
        mode: said.mode.map(|mode| (mode, Source::Flag("--mode"))),
    }
}

/// How wide a mode is, once more.
fn width(mode: Mode) -> usize {
    [Mode::None, Mode::Allowlist, Mode::Audit, Mode::Open].iter().position(|other| *other == mode).unwrap()
}

fn narrower(one: Mode, other: Mode) -> Mode {
    if width(one) <= width(other) { one } else { other }
}

/// The mode that holds, or nothing where the command line asks for more than the system leaves.
fn mode(system: Option<Mode>, user: Option<Mode>, project: Option<Mode>, typed: Option<Mode>) -> Option<Mode> {
    if let Some(typed) = typed {
        return (system.is_none_or(|system| width(typed) <= width(system))).then_some(typed);
    }
    let under = |outer: Option<Mode>, inner: Option<Mode>| match (outer, inner) {
        (Some(outer), Some(inner)) => Some(narrower(outer, inner)),
        (outer, inner) => outer.or(inner),
    };
    Some(under(under(system, user), project).unwrap_or(Mode::Allowlist))
}

/// A policy lets something pass that another does not.
fn is_more(
    inner: &Compiled,
    outer: &Compiled,
    target: &netbox_config::Target,
    address: IpAddr,
    facts: &HostFacts,
) -> bool {
    let Decision::Allow(permit) = inner.policy().decide(target, facts) else { return false };
    let Decision::Allow(outer_permit) = outer.policy().decide(target, facts) else { return true };
    permit.is_raw() && !outer_permit.is_raw()
        || inner.policy().vet(&permit, address, facts).is_ok()
            && outer.policy().vet(&outer_permit, address, facts).is_err()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn layers_add_up_to_what_the_oracle_says(
        system in said(true), user in said(true), project in said(false), typed in said(false), facts in facts(),
        name in name(), at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let files = [(Layer::System, &system), (Layer::User, &user), (Layer::Project, &project)].map(|(layer, said)| file(layer, said));
        let command_line = command_line(&typed);
        let stack = files.iter().fold(Stack::new(&command_line), |stack, file| stack.with_file(file));
        let mode = mode(system.mode, user.mode, project.mode, typed.mode);
        let compiled = match stack.compile(&Expansions::default()) {
            Ok(compiled) => compiled,
            Err(errors) => {
                let wider = errors.iter().any(|error| matches!(error.fault(), FileFault::WiderMode { .. }));
                let vain = errors.iter().any(|error| matches!(error.fault(), FileFault::AllowInModeNone { .. }));
                prop_assert_eq!(wider, mode.is_none());
                prop_assert_eq!(vain, typed.mode == Some(Mode::None) && !typed.allow.is_empty());
                prop_assert!(wider || vain);
                return Ok(());
            }
        };
        let all = [&system, &user, &project, &typed];
        let allow: Vec<_> = all.iter().flat_map(|said| said.allow.clone()).collect();
        let deny: Vec<_> = all.iter().flat_map(|said| said.deny.clone()).collect();
        let ceilings: Vec<_> = all.iter().filter_map(|said| said.ceiling.clone()).collect();
        let world = World { mode: mode.unwrap(), allow: &allow, deny: &deny, ceilings: &ceilings, facts: &facts };
        let policy = compiled.policy();
        prop_assert_eq!(policy.mode(), world.mode);
        let by_name = policy.decide(&name_target(&name, port), &facts);
        prop_assert_eq!(reason(&by_name), world.name(&name, port));
        let parsed = HostName::parse_wire(name.join(".").as_bytes()).unwrap();
        prop_assert_eq!(policy.may_resolve(&parsed), world.may_resolve(&name));
        let address: IpAddr = ADDRESSES[at].text.parse().unwrap();
        let by_address = policy.decide(&target(Host::from_ip(address), port), &facts);
        prop_assert_eq!(reason(&by_address), world.address(&ADDRESSES[at], port));
        if let Decision::Allow(permit) = by_name {
            let found = policy.vet(&permit, address, &facts).map_err(|refusal| refusal.reason());
            prop_assert_eq!(found.err(), world.vet(&ADDRESSES[at], port));
        }
        if let Decision::Allow(permit) = by_address {
            prop_assert!(policy.vet(&permit, address, &facts).is_ok());
        }
    }

    #[test]
    fn what_is_outside_a_ceiling_is_allowed_by_nothing(
        outer in said(true), inner in said(false), typed in said(false), facts in facts(), name in name(),
        at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let ceiling = outer.ceiling.clone().unwrap_or_default();
        let (outer, inner) = (file(Layer::System, &Said { ceiling: Some(ceiling.clone()), ..outer }), file(Layer::Project, &inner));
        let command_line = command_line(&typed);
        let Ok(compiled) = Stack::new(&command_line).with_file(&outer).with_file(&inner).compile(&Expansions::default()) else {
            return Ok(());
        };
        let world =
            World { mode: Mode::Open, allow: &[], deny: &[], ceilings: &[ceiling], facts: &HostFacts::default() };
        if let Decision::Allow(_) = compiled.policy().decide(&name_target(&name, port), &facts) {
            prop_assert!(world.is_name_inside(&name, port));
        }
        let address: IpAddr = ADDRESSES[at].text.parse().unwrap();
        if let Decision::Allow(_) = compiled.policy().decide(&target(Host::from_ip(address), port), &facts) {
            prop_assert!(world.is_address_inside(&ADDRESSES[at], port));
        }
    }
}

/// A rule that some rule of the others may be around.
fn inside(outer: Vec<Spec>) -> impl Strategy<Value = Vec<Spec>> {
    prop::collection::vec((spec(), prop::sample::select(outer), 0..4usize), 0..4).prop_map(|picks| {
        let narrow = |(fresh, known, how): (Spec, Spec, usize)| match how {
            0 => fresh,
            1 => Spec { ports: fresh.ports, ..known },
            2 => Spec { pattern: fresh.pattern, ..known },
            _ => known,
        };
        picks.into_iter().map(narrow).collect()
    })
}

fn outer_and_project() -> impl Strategy<Value = (Said, Said)> {
    let rules = prop::collection::vec(spec(), 1..8);
    let outer = (rules, specs(0..2), prop::option::weighted(0.2, specs(1..5)), modes())
        .prop_map(|(allow, deny, ceiling, mode)| Said { allow, deny, ceiling, mode });
    outer.prop_flat_map(|outer| {
        let project = (inside(outer.allow.clone()), specs(0..2), modes());
        let project = project.prop_map(|(allow, deny, mode)| Said { allow, deny, ceiling: None, mode });
        (Just(outer), project)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_that_is_proved_to_narrow_allows_nothing_more(
        (outer, project) in outer_and_project(), typed in said(false), facts in facts(), names in prop::collection::vec(name(), 8),
        at in 0..ADDRESSES.len(), port in select(PORTS),
    ) {
        let (user, project) = (file(Layer::User, &outer), file(Layer::Project, &project));
        let command_line = command_line(&Said { mode: None, ..typed });
        let stack = Stack::new(&command_line).with_file(&user).with_file(&project);
        if !stack.project_narrows(&Expansions::default()) {
            return Ok(());
        }
        let compiled = stack.compile(&Expansions::default()).unwrap();
        let without = stack.without(Layer::Project).compile(&Expansions::default()).unwrap();
        let address: IpAddr = ADDRESSES[at].text.parse().unwrap();
        for name in &names {
            prop_assert!(!is_more(&compiled, &without, &name_target(name, port), address, &facts), "{}", name.join("."));
            let name = HostName::parse_wire(name.join(".").as_bytes()).unwrap();
            prop_assert!(!compiled.policy().may_resolve(&name) || without.policy().may_resolve(&name));
        }
        for (address, port) in ADDRESSES.iter().flat_map(|address| PORTS.iter().map(move |port| (address, *port))) {
            let address: IpAddr = address.text.parse().unwrap();
            let host = target(Host::from_ip(address), port);
            prop_assert!(!is_more(&compiled, &without, &host, address, &facts), "{}:{}", address, port);
        }
    }
}
