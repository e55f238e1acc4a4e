//! A policy on its way to somebody else who enforces it: what is asked for, and what binds it there.
//!
//! The shared service carries the sandboxes of many. Each asks for the policy that its own layers add up to; the service
//! has it only as text, whoever sent it, so every rule is parsed again. What it grants is what is asked for inside of what
//! its owner sets for that user ([`Bound`]): the bounds lie outside of every layer that was asked with.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ceiling::Ceiling;
use crate::compiled::Compiled;
use crate::ech::{Ech, EchError};
use crate::lint::cover;
use crate::mode::{Mode, ModeError};
use crate::policy::Policy;
use crate::quote::quote;
use crate::rule::Rule;
use crate::rule_error::RuleError;
use crate::source::Source;

/// How many rules without effect are told of one by one.
const MOST_TOLD: usize = 5;

/// The policy that somebody asks for: the rules of all its layers, outermost first, each with where it was written.
///
/// Whatever is in it may be wrong; [`AskedPolicy::grant`] finds out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedPolicy {
    mode: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<AskedRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<AskedRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ceilings: Vec<AskedCeiling>,
    ech: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedRule {
    rule: String,
    at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedCeiling {
    at: String,
    rules: Vec<AskedRule>,
}

/// What binds whatever is asked for.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// They win over every rule that is asked for.
    pub deny: Vec<Rule>,
    /// What is allowed has to be inside each.
    pub ceilings: Vec<Ceiling>,
    /// The widest mode, and where that is set.
    pub mode: Option<(Mode, Source)>,
    /// Refused wins.
    pub ech: Ech,
}

/// What was granted.
#[derive(Debug)]
pub struct Granted {
    /// The policy that holds.
    pub policy: Policy,
    /// What of the request was not granted as it was asked for, and is to be said.
    pub warnings: Vec<String>,
}

/// What is asked for makes no sense. Whoever asks with netbox's own words never sees one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskedError {
    /// A rule, with its source.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The mode.
    #[error(transparent)]
    Mode(#[from] ModeError),
    /// What is to be done about ECH.
    #[error(transparent)]
    Ech(#[from] EchError),
    /// More rules than [`AskedPolicy::MOST_RULES`].
    #[error("{0} rules, and a sandbox has at most {most}", most = AskedPolicy::MOST_RULES)]
    Many(usize),
}

impl AskedPolicy {
    /// The most rules that one may have, all lists together.
    pub const MOST_RULES: usize = 40_000;

    /// To ask for this policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let rules = |rules: &[Rule]| -> Vec<_> { rules.iter().map(AskedRule::of).collect() };
        let ceiling =
            |ceiling: &Ceiling| AskedCeiling { at: ceiling.source().to_string(), rules: rules(ceiling.rules()) };
        Self {
            mode: policy.mode().to_string(),
            allow: rules(policy.allow()),
            deny: rules(policy.deny()),
            ceilings: policy.ceilings().iter().map(ceiling).collect(),
            ech: policy.ech().as_str().to_owned(),
        }
    }

    /// What of it holds inside these bounds, outermost first: nothing that is not asked for, and nothing that one of them
    /// leaves out.
    ///
    /// # Errors
    /// It makes no sense. Then nothing of it is granted: a rule that was left out might have been one that denies.
    pub fn grant(&self, bounds: &[Bound]) -> Result<Granted, AskedError> {
        let count = self.allow.len() + self.deny.len();
        let count = self.ceilings.iter().fold(count, |count, ceiling| count.saturating_add(ceiling.rules.len() + 1));
        if count > Self::MOST_RULES {
            return Err(AskedError::Many(count));
        }
        let parse = |rules: &[AskedRule], parse: fn(&str, Source) -> Result<Rule, RuleError>| {
            rules.iter().map(|asked| parse(&asked.rule, asked.source())).collect::<Result<Vec<_>, _>>()
        };
        let allow = parse(&self.allow, Rule::parse)?;
        let mut deny: Vec<_> = bounds.iter().flat_map(|bound| &bound.deny).cloned().collect();
        deny.extend(parse(&self.deny, Rule::parse_deny)?);
        let mut ceilings: Vec<_> = bounds.iter().flat_map(|bound| &bound.ceilings).cloned().collect();
        for ceiling in &self.ceilings {
            ceilings.push(Ceiling::new(asked(&ceiling.at), parse(&ceiling.rules, Rule::parse_deny)?));
        }
        let mut warnings = Vec::new();
        let mut mode: Mode = self.mode.parse()?;
        for (widest, source) in bounds.iter().filter_map(|bound| bound.mode.as_ref()) {
            if mode.is_wider_than(*widest) {
                warnings.push(format!("mode `{mode}` is wider than `{widest}`, which {source} sets and which holds"));
                mode = *widest;
            }
        }
        let ech = self.ech.parse::<Ech>()?;
        let refuses = ech == Ech::Refuse || bounds.iter().any(|bound| bound.ech == Ech::Refuse);
        let ech = if refuses { Ech::Refuse } else { Ech::Allow };
        let policy = Policy::assemble(mode, allow, deny).within(ceilings).with_ech(ech);
        let binds = bounds.iter().any(|bound| !bound.deny.is_empty() || !bound.ceilings.is_empty());
        if binds && mode != Mode::None {
            warnings.extend(without_effect(&policy, bounds));
        }
        Ok(Granted { policy, warnings })
    }
}

/// Which of the rules that are asked for the bounds leave without effect: whoever wrote them counts on them. Those that had
/// none in what was asked for are for whoever asks to tell.
fn without_effect(policy: &Policy, bounds: &[Bound]) -> Vec<String> {
    let of_bounds = |count: fn(&Bound) -> usize| bounds.iter().map(count).sum::<usize>();
    let (deny, ceilings) = (of_bounds(|bound| bound.deny.len()), of_bounds(|bound| bound.ceilings.len()));
    let before = Policy::assemble(policy.mode(), Vec::new(), policy.deny()[deny..].to_vec());
    let before = before.within(policy.ceilings()[ceilings..].to_vec());
    let lost = cover::lost(policy, &before);
    let told = lost.iter().take(MOST_TOLD);
    let told =
        told.map(|(rule, why)| format!("{}: {} has no effect: {why}", rule.source(), quote(rule.text().as_bytes())));
    let more = lost.len().saturating_sub(MOST_TOLD);
    let more = (more > 0).then(|| format!("{more} further allow rules have no effect"));
    told.chain(more).collect()
}

impl AskedRule {
    fn of(rule: &Rule) -> Self {
        Self { rule: rule.text().to_owned(), at: rule.source().to_string() }
    }

    fn source(&self) -> Source {
        asked(&self.at)
    }
}

/// No place is longer than a path; what is cut is for people alone.
fn asked(at: &str) -> Source {
    const LONGEST: usize = 8 << 10;
    Source::Asked(Arc::from(&at[..at.floor_char_boundary(LONGEST)]))
}

impl Bound {
    /// What a policy of the service's own sets for whoever attaches ([`Stack::for_principal`](crate::Stack::for_principal)):
    /// its deny rules, its ceilings, and its mode as the widest.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let policy = compiled.policy();
        let source = compiled.mode_source().map(|(_, source)| source.clone());
        Self {
            deny: policy.deny().to_vec(),
            ceilings: policy.ceilings().to_vec(),
            mode: source.map(|source| (policy.mode(), source)),
            ech: policy.ech(),
        }
    }
}
