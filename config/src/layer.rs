//! The layers of a policy, from outside in.

use std::fmt;

/// Where a policy file stands, hence what it may hold and whom it binds. Ordered from outside in: an outer layer's deny
/// rules and ceilings bind every inner one, and an inner layer takes nothing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// `/etc/netbox/config.toml`: the machine's, never skipped.
    System,
    /// `~/.config/netbox/config.toml`: the person's own.
    User,
    /// `netbox.toml`, or the file that `--config` names.
    Project,
    /// Flags and `NETBOX_*` variables.
    CommandLine,
}

impl Layer {
    /// The word in output: `system`, `user`, `project`, `command-line`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
            Self::CommandLine => "command-line",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
