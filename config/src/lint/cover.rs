//! Rules that do nothing beside others: each target of theirs is covered, denied, or outside a ceiling.
//!
//! Each rule is held against the few that the index finds for its host, never against all, and of those against
//! [`COMPARED`] at most. So ten thousand rules take some milliseconds, and a file that is made to take long does not; where
//! there are more, nothing is said.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::{DEAD_RULE, Lint, LintKind, OUTSIDE_CEILING, SHADOWED_RULE};
use crate::address::{AddressClass, class_of_range};
use crate::ceiling::Ceiling;
use crate::index::{Index, parent};
use crate::pattern::HostPattern;
use crate::policy::Policy;
use crate::ports::Ports;
use crate::quote;
use crate::rule::Rule;
use crate::source::Source;

/// How many rules for the same hosts a rule is held against.
const COMPARED: usize = 32;

/// What the rules of a list do, which is what their ports and `*` mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Allow,
    Deny,
}

/// Rules, and where to find those about a host.
struct Rules<'a> {
    side: Side,
    rules: Vec<&'a Rule>,
    index: Index,
}

/// Places of rules.
type Found<'a> = Box<dyn Iterator<Item = usize> + 'a>;

impl<'a> Rules<'a> {
    fn new(side: Side, rules: Vec<&'a Rule>) -> Self {
        let index = Index::of(rules.iter().copied());
        Self { side, rules, index }
    }

    fn ports<'r>(&self, rule: &'r Rule) -> &'r Ports {
        match self.side {
            Side::Allow => rule.allowed_ports(),
            Side::Deny => rule.denied_ports(),
        }
    }

    /// The rules that cover all hosts of a pattern.
    fn covering<'s>(&'s self, pattern: &'s HostPattern) -> Found<'s> {
        let index = &self.index;
        let above = |base: &'s str| {
            let parents = std::iter::successors(parent(base), |name| parent(name));
            parents.flat_map(|base| index.below(base)).chain(index.of_every())
        };
        match pattern {
            HostPattern::Every => Box::new(index.of_every()),
            HostPattern::Exact(name) => Box::new(index.of_name(name)),
            HostPattern::Below(base) => Box::new(index.below(base.as_str()).chain(above(base.as_str()))),
            HostPattern::AtOrBelow(base) => {
                let same = index.below(base.as_str());
                let with_apex = same.filter(|place| matches!(self.rules[*place].pattern(), HostPattern::AtOrBelow(_)));
                Box::new(with_apex.chain(above(base.as_str())))
            }
            HostPattern::Range(range) => {
                let holds = move |place: &usize| match self.rules[*place].pattern() {
                    HostPattern::Range(other) => other.contains(range),
                    _ => false,
                };
                let ranges = index.of_address(range.addr()).filter(holds);
                // An allowed `*` is for names.
                let every = index.of_every().filter(|_| self.side == Side::Deny);
                Box::new(ranges.chain(every))
            }
        }
    }

    /// Whether a rule that covers the hosts of another does all else that the other does on their common ports.
    fn does_as_much(&self, cover: &Rule, rule: &Rule) -> bool {
        self.side == Side::Deny || ((cover.is_raw() || !rule.is_raw()) && lifts_as_much(cover, rule))
    }
}

/// Allow rules that add nothing to the others of the list.
pub(super) fn shadowed_allow(rules: Vec<&Rule>) -> Vec<Lint> {
    shadowed(&Rules::new(Side::Allow, rules))
}

/// Deny rules that add nothing to the others of the list.
pub(super) fn shadowed_deny(rules: Vec<&Rule>) -> Vec<Lint> {
    shadowed(&Rules::new(Side::Deny, rules))
}

/// What a preset brings covers others, and is not itself looked at.
fn shadowed(rules: &Rules<'_>) -> Vec<Lint> {
    let mut useless = HashSet::new();
    let mut lints = Vec::new();
    // From the last to the first, and against those that are left: of two that are alike the later one is told, and
    // without all that are told the list means the same.
    for (place, rule) in rules.rules.iter().enumerate().rev() {
        if !rule.source().presets().is_empty() {
            continue;
        }
        let others = rules.covering(rule.pattern()).take(COMPARED);
        let others = others.filter(|other| *other != place && !useless.contains(other)).map(|other| rules.rules[other]);
        let others: Vec<_> = others.filter(|other| rules.does_as_much(other, rule)).collect();
        let ports = rules.ports(rule);
        let alone = others.iter().find(|other| ports.is_covered_by(std::iter::once(rules.ports(other))));
        let more = match alone {
            Some(_) => "",
            None if ports.is_covered_by(others.iter().map(|other| rules.ports(other))) => " and other rules",
            None => continue,
        };
        let Some(by) = alone.or(others.first()) else { continue };
        useless.insert(place);
        let (text, other) = (quote(rule.text().as_bytes()), quote(by.text().as_bytes()));
        let says = format!("{text} adds nothing to {other} ({}){more}", by.source());
        lints.push(Lint::new(&SHADOWED_RULE, rule.source(), says).with_hint("leave it out".to_owned()));
    }
    lints
}

/// Allow rules all of whose targets are denied.
pub(super) fn dead(policy: &Policy) -> Vec<Lint> {
    without_effect(policy.allow(), &DEAD_RULE, denied(policy))
}

/// Allow rules that have no target inside some ceiling.
pub(super) fn outside_ceilings(policy: &Policy) -> Vec<Lint> {
    without_effect(policy.allow(), &OUTSIDE_CEILING, outside(policy))
}

/// The allow rules that have no effect in a policy and had one in `before`, with the reason.
pub(crate) fn lost<'p>(policy: &'p Policy, before: &Policy) -> Vec<(&'p Rule, String)> {
    let (is_denied, is_outside) = (denied(policy), outside(policy));
    let (was_denied, was_outside) = (denied(before), outside(before));
    let lost = policy.allow().iter().filter_map(|rule| Some((rule, is_denied(rule).or_else(|| is_outside(rule))?)));
    lost.filter(|(rule, _)| was_denied(rule).or_else(|| was_outside(rule)).is_none()).collect()
}

/// Why all of a rule is denied, if it is.
fn denied<'p>(policy: &'p Policy) -> impl Fn(&Rule) -> Option<String> + 'p {
    let deny = Rules::new(Side::Deny, policy.deny().iter().collect());
    move |rule| {
        let denying: Vec<_> = deny.covering(rule.pattern()).take(COMPARED).map(|place| deny.rules[place]).collect();
        let all = rule.allowed_ports().is_covered_by(denying.iter().map(|rule| deny.ports(rule)));
        let by = denying.first().filter(|_| all)?;
        Some(format!("{} ({}) denies all of it", quote(by.text().as_bytes()), by.source()))
    }
}

/// Why all of a rule is outside a ceiling, if it is.
fn outside<'p>(policy: &'p Policy) -> impl Fn(&Rule) -> Option<String> + 'p {
    let reaches: Vec<_> = policy.ceilings().iter().map(Reach::new).collect();
    move |rule| {
        let reach = reaches.iter().find(|reach| !reach.may_meet(rule))?;
        Some(format!("all of it is outside the ceiling at {}", reach.ceiling.source()))
    }
}

/// A lint for each rule of which `why` gives a reason, and one for each use of a preset none of whose rules is without.
fn without_effect(rules: &[Rule], kind: &'static LintKind, why: impl Fn(&Rule) -> Option<String>) -> Vec<Lint> {
    let mut lints = Vec::new();
    let mut uses: HashMap<(&Source, &str), Option<String>> = HashMap::new();
    for rule in rules {
        let why = why(rule);
        match (rule.source().presets().first(), why) {
            (None, None) => {}
            (None, Some(why)) => {
                let says = format!("{} has no effect: {why}", quote(rule.text().as_bytes()));
                lints.push(Lint::new(kind, rule.source(), says));
            }
            (Some(preset), why) => {
                let all = uses.entry((rule.source().written(), preset)).or_insert_with(|| why.clone());
                *all = all.take().and(why);
            }
        }
    }
    for ((source, preset), why) in uses {
        let says = why.map(|why| format!("nothing of `@{preset}` has an effect: {why}"));
        lints.extend(says.map(|says| Lint::new(kind, source, says)));
    }
    lints
}

/// Whether a rule that covers another lifts the guard wherever the other does: a range does that for its own class, one
/// address alone may be this machine's, and a public range may be the neighbours'.
fn lifts_as_much(cover: &Rule, rule: &Rule) -> bool {
    match (cover.pattern(), rule.pattern()) {
        (HostPattern::Range(wide), HostPattern::Range(range)) if wide != range => {
            let class = class_of_range(*range);
            class != AddressClass::Public
                && class == class_of_range(*wide)
                && range.prefix_len() < range.max_prefix_len()
        }
        _ => true,
    }
}

/// What lies inside a ceiling, as far as it takes to say that a rule lies outside.
struct Reach<'a> {
    ceiling: &'a Ceiling,
    /// The names at or below which it has some.
    at_or_above: HashSet<&'a str>,
    /// Its ranges, sorted.
    ranges: Vec<IpNet>,
}

impl<'a> Reach<'a> {
    fn new(ceiling: &'a Ceiling) -> Self {
        let mut reach = Self { ceiling, at_or_above: HashSet::new(), ranges: Vec::new() };
        for rule in ceiling.rules() {
            match rule.pattern() {
                HostPattern::Every => {}
                HostPattern::Range(range) => reach.ranges.push(*range),
                HostPattern::Exact(name) | HostPattern::Below(name) | HostPattern::AtOrBelow(name) => {
                    let names = std::iter::successors(Some(name.as_str()), |name| parent(name));
                    // A name that is there has its parents there.
                    let _ = names.take_while(|name| reach.at_or_above.insert(name)).count();
                }
            }
        }
        reach.ranges.sort_unstable();
        reach
    }

    /// Whether some target of the rule may be inside.
    fn may_meet(&self, rule: &Rule) -> bool {
        let index = self.ceiling.index();
        // Where there are more, it may.
        let on_its_ports = |found: Found<'_>| {
            let is_inside = |place: usize| {
                rule.allowed_ports().within(std::iter::once(self.ceiling.rules()[place].allowed_ports())).is_some()
            };
            found.enumerate().any(|(compared, place)| compared >= COMPARED || is_inside(place))
        };
        match rule.pattern() {
            HostPattern::Every => !self.at_or_above.is_empty() || index.of_every().next().is_some(),
            HostPattern::Exact(name) => on_its_ports(Box::new(index.of_name(name))),
            HostPattern::Below(base) | HostPattern::AtOrBelow(base) => {
                self.at_or_above.contains(base.as_str()) || on_its_ports(Box::new(index.of_name(base)))
            }
            HostPattern::Range(range) => {
                let first_inside = self.ranges.partition_point(|other| other < range);
                let inside = self.ranges.get(first_inside).is_some_and(|other| range.contains(other));
                inside || on_its_ports(Box::new(index.of_address(range.addr())))
            }
        }
    }
}
