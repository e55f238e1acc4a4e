//! What `[service]` says by itself.

use std::sync::Arc;

use super::{Lint, TOKEN_IN_CLEAR, UNPROVABLE_ROLE, errors, file};
use crate::service::{Listener, Role, ServiceSettings};

pub(super) fn lints(service: &ServiceSettings) -> Vec<Lint> {
    let mut lints: Vec<_> = service.exposed().iter().map(errors::lint).collect();
    lints.extend(service.sections().flat_map(file::section));
    lints.extend(tokens_in_clear(service));
    lints.extend(unprovable_roles(service));
    lints
}

fn tokens_in_clear(service: &ServiceSettings) -> Vec<Lint> {
    let listeners = service.listeners.iter().filter(|listener| {
        !listener.is_loopback() && listener.tls.is_none() && service.asks_for_token(listener.role.as_deref())
    });
    let lint = |listener: &Listener| {
        let says = format!("tokens come to `{}` as they are, for whoever sees the traffic", listener.address);
        Lint::new(&TOKEN_IN_CLEAR, &listener.source, says)
            .with_hint("give it `tls`, unless only this machine's containers reach it".to_owned())
    };
    listeners.map(lint).collect()
}

fn unprovable_roles(service: &ServiceSettings) -> Vec<Lint> {
    let has_listener = |name: &str| service.listeners.iter().any(|listener| listener.role.as_deref() == Some(name));
    let roles = service.roles().filter(|(name, role)| !role.has_tokens() && !has_listener(name));
    let lint = |(name, role): (&Arc<str>, &Role)| {
        Lint::new(&UNPROVABLE_ROLE, role.source(), format!("nobody can be the role `{name}`")).with_hint(format!(
            "make a token with `netbox proxy token new {name}`, or name it in a `[[service.listener]]`"
        ))
    };
    roles.map(lint).collect()
}
