//! What the layers of a run add up to, with the way that each rule came.

use crate::layer::Layer;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::source::Source;

/// The policy of a run, and what there is to say of it.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) policy: Policy,
    /// The layers of the allow rules, the deny rules and the ceilings, in their order.
    pub(crate) layers: [Vec<Layer>; 3],
    pub(crate) mode_source: Option<(Layer, Source)>,
    pub(crate) profile: Option<String>,
    pub(crate) warnings: Vec<String>,
}

/// What a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It allows.
    Allow,
    /// It denies.
    Deny,
    /// It is one of those that all that is allowed has to be inside of: of the ceiling with this place in
    /// [`Policy::ceilings`].
    Ceiling(usize),
}

/// A rule that is in force.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveRule<'a> {
    /// The layer whose list it is in, or whose list named the preset.
    pub layer: Layer,
    /// What it is for.
    pub kind: Kind,
    /// The rule. Its [`Source`] tells the place, and the presets on the way ([`Source::presets`]).
    pub rule: &'a Rule,
}

impl Kind {
    /// The key of a policy file: `allow`, `deny`, `ceiling`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ceiling(_) => "ceiling",
        }
    }
}

impl Compiled {
    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy, by value.
    pub fn into_policy(self) -> Policy {
        self.policy
    }

    /// Every rule that is in force: those that allow, then those that deny, then those of the ceilings; from outside in.
    ///
    /// A ceiling without rules is in [`Policy::ceilings`] alone.
    pub fn rules(&self) -> impl Iterator<Item = EffectiveRule<'_>> {
        let [allow, deny, ceilings] = &self.layers;
        let of = |kind| move |(rule, layer): (_, &Layer)| EffectiveRule { layer: *layer, kind, rule };
        let ceilings = self.policy.ceilings().iter().zip(ceilings).enumerate();
        let inside = ceilings.flat_map(move |(place, (ceiling, layer))| {
            ceiling.rules().iter().map(move |rule| EffectiveRule { layer: *layer, kind: Kind::Ceiling(place), rule })
        });
        let allow = self.policy.allow().iter().zip(allow).map(of(Kind::Allow));
        allow.chain(self.policy.deny().iter().zip(deny).map(of(Kind::Deny))).chain(inside)
    }

    /// Which layer set the mode, and where; nothing where the mode is the default.
    pub fn mode_source(&self) -> Option<(Layer, &Source)> {
        self.mode_source.as_ref().map(|(layer, source)| (*layer, source))
    }

    /// The profile that was chosen.
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// What should be said before anything runs, a line for each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
