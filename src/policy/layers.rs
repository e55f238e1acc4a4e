//! The layers of a service, kept: its roles, and what binds its users, are compiled from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use netbox_config::service::Principal;
use netbox_config::{CommandLine, Compiled, Expansions, PolicyFile, ServiceSettings, Stack};

use super::Refused;
use super::load::of_files;

/// What the policies of a service are made from.
#[derive(Debug)]
pub struct Layers {
    /// From outside in.
    pub(super) files: Vec<PolicyFile>,
    pub(super) command_line: CommandLine,
    pub(super) profile: Option<String>,
    pub(super) expansions: Expansions,
}

impl Layers {
    fn stack(&self) -> Stack<'_> {
        self.files.iter().fold(Stack::new(&self.command_line), Stack::with_file).with_profile(self.profile.as_deref())
    }

    /// The `[service]` that is in force.
    pub fn settings(&self) -> Option<&ServiceSettings> {
        self.stack().service()
    }

    /// The policy of each role.
    ///
    /// # Errors
    /// What a role says does not fit the other layers.
    #[allow(dead_code)]
    pub fn roles(&self) -> Result<BTreeMap<Arc<str>, Compiled>, Refused> {
        let stack = self.stack();
        let names = self.settings().into_iter().flat_map(ServiceSettings::roles).map(|(name, _)| name);
        let stacks = names.filter_map(|name| Some((name, stack.for_role(name)?)));
        stacks.map(|(name, stack)| Ok((Arc::clone(name), stack.compile(&self.expansions).map_err(of_files)?))).collect()
    }

    /// What binds the sandboxes of a user or a group: a policy that allows nothing, whose deny rules and ceilings are to be
    /// added to what is asked for, and whose mode is the widest. Without a table of its own, what binds everybody.
    ///
    /// # Errors
    /// What the table says does not fit the other layers.
    pub fn bounds(&self, principal: Option<&Principal>) -> Result<Compiled, Refused> {
        self.stack().for_principal(principal).compile(&self.expansions).map_err(of_files)
    }
}
