//! What the sandboxes of a user, or of a group's members, are held to.

use super::ServiceSettings;
use super::limits::TenantLimits;
use crate::policy_file::Section;
use crate::source::Source;

/// A user's table, or that of several groups together: a ceiling, deny rules and limits for the sandboxes that the user
/// attaches. It allows nothing itself.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Where its name stands; of several groups the first.
    pub(crate) at: Source,
    /// Its `allow` is empty, its ceiling there.
    pub(crate) section: Section,
    pub(crate) limits: TenantLimits,
    pub(crate) user_limits: TenantLimits,
}

impl Principal {
    /// Where its name stands.
    pub fn source(&self) -> &Source {
        &self.at
    }

    /// How much each of the sandboxes may use, as far as the table says.
    pub fn limits(&self) -> TenantLimits {
        self.limits
    }

    /// How much all of them may use together, as far as the table says.
    pub fn user_limits(&self) -> TenantLimits {
        self.user_limits
    }

    /// What a member of both groups is held to: one ceiling with the rules of both, and the deny rules of both.
    fn joined(mut self, other: &Self) -> Self {
        self.section.deny.extend(other.section.deny.iter().cloned());
        if let (Some((_, rules)), Some((_, more))) = (&mut self.section.ceiling, &other.section.ceiling) {
            rules.extend(more.iter().cloned());
        }
        // A mode that is not given leaves every mode open.
        self.section.mode = match (self.section.mode, &other.section.mode) {
            (Some(one), Some(other)) => Some(if other.0.is_wider_than(one.0) { other.clone() } else { one }),
            _ => None,
        };
        self.limits = self.limits.widest(other.limits);
        self.user_limits = self.user_limits.widest(other.user_limits);
        self
    }
}

/// A user or a group as the system knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
}

impl Member {
    /// Whether a table of this name is its own: by name or, written in digits, by number.
    fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.id.to_string() == name
    }
}

/// The name of the table of all users who have none of their own.
pub(super) const ANY_USER: &str = "*";

impl ServiceSettings {
    /// What a user is held to: by the table of its own; else by those of its groups, together; else by that of `"*"`.
    /// `None`: no table speaks of it.
    pub fn principal(&self, user: &Member, groups: &[Member]) -> Option<Principal> {
        let own = self.users.iter().find(|(name, _)| &***name != ANY_USER && user.is(name));
        if let Some((_, own)) = own {
            return Some(own.clone());
        }
        let of_groups = self.groups.iter().filter(|(name, _)| groups.iter().any(|group| group.is(name)));
        let joined = of_groups.map(|(_, group)| group).fold(None, |joined: Option<Principal>, group| match joined {
            Some(joined) => Some(joined.joined(group)),
            None => Some(group.clone()),
        });
        joined.or_else(|| self.users.get(ANY_USER).cloned())
    }

    /// The names of users and groups that have tables, with where each stands: some may be unknown to the system.
    pub fn named_principals(&self) -> impl Iterator<Item = (&'static str, &str, &Source)> {
        let users = self.users.iter().filter(|(name, _)| &***name != ANY_USER);
        users
            .map(|(name, principal)| ("user", &**name, &principal.at))
            .chain(self.groups.iter().map(|(name, principal)| ("group", &**name, &principal.at)))
    }
}
