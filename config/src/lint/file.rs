//! What a policy file says by itself.

use std::collections::HashSet;

use super::{EMPTY_CEILING, EMPTY_PROFILE, Lint, MODE_MAKES_USELESS, UNUSED_PRESET, rules, service};
use crate::entry::{Entry, List};
use crate::expand::Expansions;
use crate::layer::Layer;
use crate::mode::Mode;
use crate::policy_file::{PolicyFile, Profile, Section};
use crate::presets;
use crate::service::ServiceSettings;
use crate::stack::{CommandLine, Stack};

/// So many profiles are held against the rest of the file; a file has hardly any.
const PROFILES: usize = 32;

pub(super) fn lints(file: &PolicyFile) -> Vec<Lint> {
    let mut lints = section(&file.base);
    for profile in file.profiles.values() {
        lints.extend(section(&profile.section));
    }
    for preset in file.presets.values() {
        lints.extend(entries(&preset.entries, List::Preset));
    }
    if let Some(service) = &file.service {
        lints.extend(service::lints(service));
    }
    lints.extend(unused_presets(file));
    lints.extend(empty_profiles(file));
    lints.extend(together(file));
    lints
}

pub(super) fn section(section: &Section) -> Vec<Lint> {
    let mut lints = entries(&section.allow, List::Allow);
    lints.extend(entries(&section.deny, List::Deny));
    if let Some((at, ceiling)) = &section.ceiling {
        lints.extend(entries(ceiling, List::Ceiling));
        if ceiling.is_empty() {
            let says = "nothing is inside an empty ceiling, so nothing is allowed";
            lints.push(
                Lint::new(&EMPTY_CEILING, at, says).with_hint("write what may be allowed, or leave it out".to_owned()),
            );
        }
    }
    if let Some((mode @ (Mode::None | Mode::Open), at)) = &section.mode
        && let Some(first) = section.allow.first()
    {
        let does = if *mode == Mode::None { "lets nothing pass" } else { "lets everything pass" };
        let says = format!("mode `{mode}` {does}, so the allow rules ({}) do nothing", first.source());
        lints.push(Lint::new(&MODE_MAKES_USELESS, at, says).with_hint("leave out one of the two".to_owned()));
    }
    lints
}

fn entries(entries: &[Entry], list: List) -> Vec<Lint> {
    let rules = entries.iter().filter_map(|entry| match entry {
        Entry::Rule(rule) => Some(rule),
        Entry::Preset(_) => None,
    });
    let lints = |rule| match list {
        List::Allow | List::Preset => rules::allow(rule),
        List::Deny | List::Ceiling => rules::bound(rule),
    };
    rules.flat_map(lints).collect()
}

/// A user's or a system's presets are for the files inside them too.
fn unused_presets(file: &PolicyFile) -> Vec<Lint> {
    if file.layer != Layer::Project {
        return Vec::new();
    }
    let of_section = |section: &Section| -> Vec<_> {
        let ceiling = section.ceiling.iter().flat_map(|(_, entries)| entries);
        section.allow.iter().chain(&section.deny).chain(ceiling).cloned().collect()
    };
    let mut used: Vec<Entry> = of_section(&file.base);
    used.extend(file.profiles.values().flat_map(|profile| of_section(&profile.section)));
    used.extend(file.service.iter().flat_map(ServiceSettings::sections).flat_map(of_section));
    used.extend(file.presets.values().flat_map(|preset| preset.entries.iter().cloned()));
    let named: HashSet<_> = used
        .iter()
        .filter_map(|entry| match entry {
            Entry::Preset(used) => Some(&*used.name),
            Entry::Rule(_) => None,
        })
        .collect();
    let unused = file.presets.iter().filter(|(name, _)| !named.contains(&***name));
    unused
        .map(|(name, preset)| {
            Lint::new(&UNUSED_PRESET, &preset.at, format!("nothing in this file uses the preset `{name}`"))
                .with_hint(format!("write `@{name}` in a list of rules, or leave it out"))
        })
        .collect()
}

fn empty_profiles(file: &PolicyFile) -> Vec<Lint> {
    let empty = file.profiles.iter().filter(|(_, profile)| {
        let Section { allow, deny, mode, ceiling } = &profile.section;
        allow.is_empty() && deny.is_empty() && mode.is_none() && ceiling.is_none()
    });
    empty
        .map(|(name, profile)| Lint::new(&EMPTY_PROFILE, &profile.at, format!("profile `{name}` changes nothing")))
        .collect()
}

/// What the rules of the file are to each other, without a profile and with each.
fn together(file: &PolicyFile) -> Vec<Lint> {
    let command_line = CommandLine::default();
    // What stands on this machine is not the file's matter.
    let mut nothing_derived = Expansions::default();
    presets::DERIVED.iter().for_each(|name| nothing_derived.insert(name, Vec::new()));
    let stack = Stack::new(&command_line).with_file(file);
    let with_rules = |profile: &Profile| !profile.section.allow.is_empty() || !profile.section.deny.is_empty();
    let profiles = file.profiles.iter().filter(|(_, profile)| with_rules(profile)).map(|(name, _)| Some(&**name));
    let profiles = profiles.take(PROFILES);
    // A file that leans on others is looked at together with them.
    let compiled = std::iter::once(None)
        .chain(profiles)
        .filter_map(|profile| stack.clone().with_profile(profile).compile(&nothing_derived).ok());
    let roles = file.service.iter().flat_map(|service| service.roles.keys()).take(PROFILES);
    let roles = roles.filter_map(|role| stack.for_role(role)?.compile(&nothing_derived).ok());
    compiled.chain(roles).flat_map(|compiled| compiled.lints()).collect()
}
