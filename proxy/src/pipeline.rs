//! The only way to a socket outside: judge, look up, vet, dial.
//!
//! Each step needs what only the one before it makes: [`open`] takes a `Permit`, which only `Policy::decide` makes, and
//! the dialler takes `VettedAddr`s, which only `Policy::vet` makes. What was judged is what is looked up and dialled.

use netbox_config::{Decision, Host, Mode, Permit, Port, Reason, Refusal, Target, VettedAddr, Via};

use crate::dial::Dialed;
use crate::dns::SyntheticTable;
use crate::resolve::LookupError;
use crate::session::Session;
use crate::socket;

/// Why there is no connection although there is a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// None of the addresses may be dialled. The first one's refusal.
    Refused(Refusal),
    /// The lookup or the far side failed.
    Failed(Reason),
}

/// The target of what came in. A synthetic address becomes the name that the sandbox was given it for.
pub(crate) fn target(session: &Session, host: Host, port: Port, via: Via) -> Target {
    let name = match &host {
        Host::Address(address) => session.names.synthetic.name_of(*address),
        Host::Name(_) => None,
    };
    Target::new(name.map_or(host, Host::Name), port, via)
}

/// Judges a target by the policy in force.
pub(crate) fn decide(session: &Session, target: &Target) -> Decision {
    let nameless = matches!(target.host(), Host::Address(address) if SyntheticTable::is_synthetic(*address));
    match session.policy().mode() {
        // No rule can mean it: nothing is there that it stands for.
        Mode::Allowlist | Mode::Audit | Mode::Open if nameless => {
            Decision::Refuse(Refusal::new(Reason::AddressNotListed))
        }
        _ => match session.policy().decide(target, &session.facts.current()) {
            // Whoever is told of the refusal is told what almost allowed it; a permit pays nothing for that.
            Decision::Refuse(refusal) => {
                let near = session.policy().near_miss(target, &refusal);
                Decision::Refuse(refusal.with_near_miss(near))
            }
            permit => permit,
        },
    }
}

/// Opens a connection to what is permitted.
pub(crate) async fn open(session: &Session, permit: &Permit) -> Result<Dialed, OpenError> {
    let addresses = match permit.target().host() {
        Host::Address(address) => vec![*address],
        Host::Name(name) => session.names.resolver.addresses(name).await.map_err(|error| match error {
            LookupError::NotFound | LookupError::NoAddress => OpenError::Failed(Reason::DnsNotFound),
            LookupError::Failed(_) => OpenError::Failed(Reason::DnsFailed),
        })?,
    };
    // After the lookup: the facts must be those of the moment of dialling.
    let facts = session.facts.current();
    let mut vetted: Vec<VettedAddr> = Vec::with_capacity(addresses.len());
    let mut refusal = None;
    for address in addresses {
        match session.policy().vet(permit, address, &facts) {
            Ok(address) => vetted.push(address),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    if vetted.is_empty() {
        return Err(refusal.map_or(OpenError::Failed(Reason::DnsNotFound), OpenError::Refused));
    }
    let dialed = session.dialer.dial(&vetted).await.map_err(|error| OpenError::Failed(error.reason()))?;
    socket::no_delay(&dialed.stream);
    socket::keep_alive(&dialed.stream);
    Ok(dialed)
}
