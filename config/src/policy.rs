//! The rules of one run and what they add up to.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::ceiling::Ceiling;
use crate::ech::Ech;
use crate::index::Index;
use crate::mode::Mode;
use crate::rule::{Rule, RuleRef};
use crate::rule_error::RuleError;

/// What may be reached: a mode, allow rules, deny rules and ceilings. Never changes once made; share it as `Arc<Policy>`.
///
/// Without allow rules nothing is allowed in mode `allowlist`. Deny rules win over every allow rule and in every mode, and
/// what is outside a [`Ceiling`] is allowed by no rule and in no mode.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    ceilings: Vec<Ceiling>,
    ech: Ech,
    pub(crate) allow_index: Index,
    pub(crate) deny_index: Index,
}

/// Rules that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Mode `none` with allow rules: one of the two is not meant.
    #[error(
        "mode `none` allows nothing, and {} ({}) is an allow rule; leave out one of the two",
        crate::quote(.0.text.as_bytes()),
        .0.source
    )]
    AllowInModeNone(RuleRef),
    /// A rule that was parsed by [`Rule::parse_deny`] and is too broad to allow.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl Policy {
    /// A policy of these rules.
    ///
    /// # Errors
    ///
    /// Mode `none` with allow rules; an allow rule over a public suffix.
    pub fn new(mode: Mode, allow: Vec<Rule>, deny: Vec<Rule>) -> Result<Self, PolicyError> {
        if let (Mode::None, Some(rule)) = (mode, allow.first()) {
            return Err(PolicyError::AllowInModeNone(rule.reference()));
        }
        allow.iter().try_for_each(Rule::check_breadth)?;
        Ok(Self::assemble(mode, allow, deny))
    }

    /// A policy that allows nothing: mode `none`, without rules.
    pub fn closed() -> Self {
        Self::assemble(Mode::None, Vec::new(), Vec::new())
    }

    /// A policy of these rules, each of which is fit for its list. In mode `none` allow rules say nothing.
    pub(crate) fn assemble(mode: Mode, allow: Vec<Rule>, deny: Vec<Rule>) -> Self {
        let (allow_index, deny_index) = (Index::new(&allow), Index::new(&deny));
        Self { mode, allow, deny, ceilings: Vec::new(), ech: Ech::Allow, allow_index, deny_index }
    }

    /// The same policy under these ceilings, outermost first, in place of those that it had.
    #[must_use]
    pub fn within(self, ceilings: Vec<Ceiling>) -> Self {
        Self { ceilings, ..self }
    }

    /// The same policy with this done about ECH.
    #[must_use]
    pub fn with_ech(self, ech: Ech) -> Self {
        Self { ech, ..self }
    }

    /// What is done about ECH, in every mode.
    pub fn ech(&self) -> Ech {
        self.ech
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The allow rules, as given.
    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    /// The ports that the allow rules cover, rule by rule: ranges with both ends included.
    pub fn allowed_ports(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.allow.iter().flat_map(|rule| rule.allowed_ports().ranges())
    }

    /// The deny rules, as given.
    pub fn deny(&self) -> &[Rule] {
        &self.deny
    }

    /// The ceilings, outermost first.
    pub fn ceilings(&self) -> &[Ceiling] {
        &self.ceilings
    }

    /// What the policy is, in 64 hexadecimal digits: SHA-256 over the mode and the sorted effective rules, those of
    /// each ceiling by themselves.
    ///
    /// Two policies that differ only in the order of rules, in repeated rules, in spelling (case, a trailing dot, another
    /// script) or in where the rules were written have the same digest.
    pub fn digest(&self) -> String {
        let side = |word: &'static str, rules: &[Rule], ports: fn(&Rule) -> &crate::Ports| {
            let line = |rule: &Rule| {
                let raw = if rule.is_raw() { "tcp://" } else { "" };
                format!("{word} {raw}{}:{}\n", rule.pattern(), ports(rule))
            };
            let mut lines: Vec<_> = rules.iter().map(line).collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        let mut lines = side("allow", &self.allow, Rule::allowed_ports);
        lines.extend(side("deny", &self.deny, Rule::denied_ports));
        let ceiling = |ceiling: &Ceiling| {
            let rules = side("within", ceiling.rules(), Rule::allowed_ports);
            format!("ceiling of {}\n{}", rules.len(), rules.concat())
        };
        let mut ceilings: Vec<_> = self.ceilings.iter().map(ceiling).collect();
        ceilings.sort_unstable();
        ceilings.dedup();
        lines.append(&mut ceilings);
        let mut hash = Sha256::new_with_prefix(format!("mode {}\n", self.mode));
        lines.iter().for_each(|line| hash.update(line));
        if self.ech == Ech::Refuse {
            hash.update("ech refuse\n");
        }
        hash.finalize().iter().fold(String::with_capacity(64), |mut digits, byte| {
            // Writing to a string does not fail.
            let _ = write!(digits, "{byte:02x}");
            digits
        })
    }
}
