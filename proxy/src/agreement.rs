//! Whether what a program says agrees with where it connects to.
//!
//! A listed name is a promise about whom the bytes are for. TLS and HTTP name a host of their own, and a server that
//! stands for many hosts goes by that one: it must be the one that was judged. Where the target is an address there is
//! no such promise, and a name in the bytes can only be denied, never allowed by.
//!
//! In the modes `audit` and `open` a difference passes, unless a deny rule covers the other name or a ceiling leaves it
//! out.

use netbox_config::{Ech, Host, HostName, Mode, Permit, Policy, Port, Reason, Refusal};

use crate::dns::Names;
use crate::first_bytes::FirstBytes;
use crate::http::request::Authority;

/// What becomes of a connection after its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// They may go on, and all that follows. With the reason for which they would be refused, where only the mode lets
    /// them pass.
    Tunnel(Option<Reason>),
    /// Each request must be judged. With the same.
    Requests(Option<Reason>),
    /// They may not.
    Refuse(Refusal),
}

/// Judges first bytes that were recognised.
pub(crate) fn agree(names: &Names, policy: &Policy, permit: &Permit, first: &FirstBytes) -> Agreement {
    let port = permit.target().port();
    let result = match first {
        FirstBytes::Malformed | FirstBytes::Undecided(_) => Err(Refusal::new(Reason::Malformed)),
        FirstBytes::Tls { ech: true, .. } if policy.ech() == Ech::Refuse => Err(Refusal::new(Reason::Unsupported)),
        FirstBytes::Tls { sni, .. } => match name_in_tls(names, policy, permit, sni.as_ref()) {
            Ok(None) if port == Port::HTTP => differs(policy, Reason::NotHttp),
            judged => judged,
        },
        FirstBytes::Http if port == Port::HTTPS => differs(policy, Reason::NotTls),
        FirstBytes::Http => Ok(None),
        FirstBytes::Http2 => differs(policy, Reason::Unsupported),
        FirstBytes::Other if port == Port::HTTPS => differs(policy, Reason::NotTls),
        FirstBytes::Other if port == Port::HTTP => differs(policy, Reason::NotHttp),
        FirstBytes::Other => Ok(None),
    };
    match result {
        Err(refusal) => Agreement::Refuse(refusal),
        Ok(would) if *first == FirstBytes::Http => Agreement::Requests(would),
        Ok(would) => Agreement::Tunnel(would),
    }
}

fn name_in_tls(
    names: &Names,
    policy: &Policy,
    permit: &Permit,
    sni: Option<&HostName>,
) -> Result<Option<Reason>, Refusal> {
    let target = permit.target();
    match (target.host(), sni) {
        (Host::Name(judged), Some(sni)) if means(names, sni, judged) => Ok(None),
        (Host::Name(_), None) if target.port() == Port::HTTPS => differs(policy, Reason::SniMissing),
        (_, None) => Ok(None),
        (Host::Name(_), Some(sni)) => other_name(policy, sni, target.port(), Reason::SniMismatch),
        (Host::Address(_), Some(sni)) => not_denied(policy, sni, target.port()).map(|()| None),
    }
}

/// Judges an authority of a request: `Host`, or that of the absolute form.
pub(crate) fn authority(
    names: &Names,
    policy: &Policy,
    permit: &Permit,
    authority: &Authority,
) -> Result<Option<Reason>, Refusal> {
    let target = permit.target();
    let same_port = authority.port.is_none_or(|port| port == target.port());
    match (target.host(), &authority.host) {
        (Host::Name(judged), Host::Name(name)) if means(names, name, judged) && same_port => Ok(None),
        (Host::Name(_), Host::Name(name)) => other_name(policy, name, target.port(), Reason::HostMismatch),
        (Host::Name(_), Host::Address(_)) => differs(policy, Reason::HostMismatch),
        (Host::Address(_), Host::Name(name)) => not_denied(policy, name, target.port()).map(|()| None),
        (Host::Address(_), Host::Address(_)) => Ok(None),
    }
}

/// Whether a name means the judged one: it is the same, or it is the judged one without a search domain of the host's. A
/// program looks `mirror` up as `mirror.corp.example`, and goes on saying `mirror`.
fn means(names: &Names, name: &HostName, judged: &HostName) -> bool {
    let rest = judged.as_str().strip_prefix(name.as_str());
    rest.is_some_and(|rest| {
        let domain = rest.strip_prefix('.');
        rest.is_empty()
            || domain.is_some_and(|domain| names.search_domains.iter().any(|known| known.as_str() == domain))
    })
}

/// Another name than the judged one.
fn other_name(policy: &Policy, name: &HostName, port: Port, reason: Reason) -> Result<Option<Reason>, Refusal> {
    let difference = differs(policy, reason)?;
    match policy.forbids_name(name, port) {
        Some(refusal) => Err(refusal),
        None => Ok(difference),
    }
}

/// A difference: refused, or noted where the mode lets it pass.
fn differs(policy: &Policy, reason: Reason) -> Result<Option<Reason>, Refusal> {
    match policy.mode() {
        Mode::Audit | Mode::Open => Ok(Some(reason)),
        _ => Err(Refusal::new(reason)),
    }
}

fn not_denied(policy: &Policy, name: &HostName, port: Port) -> Result<(), Refusal> {
    match policy.denies_name(name, port) {
        Some(rule) => Err(Refusal::new(Reason::Denied).with_rule(rule)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use netbox_config::{Ceiling, Policy, Rule, Source};

    use super::*;
    use crate::dns::HostRecords;
    use crate::resolve::HostResolver;

    #[tokio::test]
    async fn a_name_may_be_said_without_a_search_domain_of_the_hosts() {
        let name = |text: &str| HostName::parse_wire(text.as_bytes()).unwrap();
        let rule = Rule::parse("mirror.corp.example", Source::Flag("--allow")).unwrap();
        let policy = Arc::new(Policy::new(Mode::Allowlist, vec![rule], Vec::new()).unwrap());
        let domains = vec![name("corp.example")];
        let names = Names::new(policy, Arc::new(HostResolver::new()), Arc::new(HostRecords::new()), domains);
        let table = [
            ("mirror", "mirror.corp.example", true),
            ("mirror.corp.example", "mirror.corp.example", true),
            ("a.mirror", "a.mirror.corp.example", true),
            ("mirror.corp", "mirror.corp.example", false),
            ("mirror", "mirror.other.example", false),
            ("mir", "mirror.corp.example", false),
            ("mirror", "mirrorcorp.example", false),
            ("mirror.corp.example", "mirror", false),
        ];
        for (said, judged, same) in table {
            assert_eq!(means(&names, &name(said), &name(judged)), same, "{said} for {judged}");
        }
    }

    #[test]
    fn another_name_passes_in_audit_mode_unless_it_is_denied_or_outside_a_ceiling() {
        let name = |text: &str| HostName::parse_wire(text.as_bytes()).unwrap();
        let rule = |text: &str| Rule::parse_deny(text, Source::Flag("--rule")).unwrap();
        let ceiling = Ceiling::new(Source::Flag("--ceiling"), vec![rule(".example.com")]);
        let policy = Policy::new(Mode::Audit, vec![], vec![rule("denied.example.com")]).unwrap().within(vec![ceiling]);
        let judged = |text: &str| {
            other_name(&policy, &name(text), Port::HTTPS, Reason::SniMismatch).map_err(|refusal| refusal.reason())
        };
        assert_eq!(judged("inside.example.com"), Ok(Some(Reason::SniMismatch)));
        assert_eq!(judged("denied.example.com"), Err(Reason::Denied));
        assert_eq!(judged("outside.example"), Err(Reason::Denied));
    }
}
