//! The only way to a socket outside: judge, look up, vet, dial.
//!
//! Each step needs what only the one before it makes: [`open`] takes a `Permit`, which only `Policy::decide` makes, and
//! the dialler takes `VettedAddr`s, which only `Policy::vet` makes. What was judged is what is looked up and dialled.

use std::net::IpAddr;
use std::sync::Arc;

use netbox_config::{Decision, Host, HostName, Mode, Permit, Policy, Port, Reason, Refusal, Target, VettedAddr, Via};

use crate::dial::Dialed;
use crate::dns::SyntheticTable;
use crate::flow::{Asked, Flow};
use crate::nesting::{Answered, Outer};
use crate::resolve::LookupError;
use crate::session::Session;
use crate::{socket, turns};

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

/// A permit, and the policy that gave it: what else belongs to the decision is judged by that one.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) policy: Arc<Policy>,
    pub(crate) permit: Permit,
}

impl Grant {
    /// What is permitted, and nothing else.
    pub(crate) fn target(&self) -> &Target {
        self.permit.target()
    }
}

/// Judges what a connection is for by the policy in force, and notes in its flow what it is permitted.
pub(crate) fn admit(session: &Session, flow: &Flow, asked: &Asked) -> Result<Grant, Refusal> {
    loop {
        let policy = session.policy();
        let permit = match judge(session, &policy, asked) {
            Decision::Allow(permit) => permit,
            Decision::Refuse(refusal) => return Err(refusal),
        };
        flow.permitted(asked.clone(), permit.is_raw());
        // Whoever replaces the policy from now on finds the flow.
        if session.names.policy.is(&policy) {
            return Ok(Grant { policy, permit });
        }
    }
}

/// Makes a grant one by the policy in force, where that has changed since.
pub(crate) fn renew(session: &Session, flow: &Flow, grant: &mut Grant) -> Result<(), Refusal> {
    while !session.names.policy.is(&grant.policy) {
        let policy = session.policy();
        // With all that is known by now.
        session.confirm(flow, &grant.policy)?;
        let Some(permitted) = flow.seen().permitted else { return Err(Refusal::new(Reason::Revoked)) };
        match judge(session, &policy, &permitted.asked) {
            Decision::Allow(permit) => *grant = Grant { policy, permit },
            Decision::Refuse(refusal) => return Err(refusal),
        }
    }
    Ok(())
}

/// Judges what a connection is for by this policy.
pub(crate) fn judge(session: &Session, policy: &Policy, asked: &Asked) -> Decision {
    match asked {
        Asked::Target(target) => decide(session, policy, target),
        Asked::HostPort(door) => policy.decide_host_port(door, &session.facts.current()),
    }
}

/// Judges a target by this policy.
pub(crate) fn decide(session: &Session, policy: &Policy, target: &Target) -> Decision {
    let nameless = matches!(target.host(), Host::Address(address) if SyntheticTable::is_synthetic(*address));
    match policy.mode() {
        // No rule can mean it: nothing is there that it stands for.
        Mode::Allowlist | Mode::Audit | Mode::Open if nameless => {
            Decision::Refuse(Refusal::new(Reason::AddressNotListed))
        }
        _ => match policy.decide(target, &session.facts.current()) {
            // Whoever is told of the refusal is told what almost allowed it; a permit pays nothing for that.
            Decision::Refuse(refusal) => {
                let near = policy.near_miss(target, &refusal);
                Decision::Refuse(refusal.with_near_miss(near))
            }
            permit => permit,
        },
    }
}

/// A name is data, also here: what DNS would not ask any more is not asked for a connection either.
fn may_ask(session: &Session, policy: &Policy, name: &HostName) -> Result<turns::Asked, OpenError> {
    let asked = session.names.asked(policy, name);
    let is_left = session.names.may_still_ask(asked);
    is_left.then_some(asked).ok_or_else(|| OpenError::Refused(Refusal::new(Reason::Limit)))
}

/// Looks up the name of a permitted target.
async fn look_up(session: &Session, policy: &Policy, name: &HostName) -> Result<Vec<IpAddr>, OpenError> {
    let asked = may_ask(session, policy, name)?;
    let names = &session.names;
    match names.resolver.addresses(name, asked).await {
        Ok(addresses) => {
            names.found(policy, name);
            Ok(addresses)
        }
        Err(LookupError::NotFound | LookupError::NoAddress) => Err(OpenError::Failed(Reason::DnsNotFound)),
        Err(LookupError::Failed(_)) => Err(OpenError::Failed(Reason::DnsFailed)),
    }
}

/// What may be dialled for a permit. At least one address.
pub(crate) struct Vetted {
    addresses: Vec<VettedAddr>,
    /// By the netbox around this one, which then dials.
    answered: Option<Answered>,
}

/// Opens a connection to what is permitted, and notes in the flow where it leads.
pub(crate) async fn open(session: &Session, flow: &Flow, grant: &Grant) -> Result<Dialed, OpenError> {
    vet(session, grant).await?.dial(session, flow, &grant.policy).await
}

/// Finds the addresses of what is permitted, and vets them.
pub(crate) async fn vet(session: &Session, grant: &Grant) -> Result<Vetted, OpenError> {
    let Grant { policy, permit } = grant;
    let (addresses, answered) = match (permit.target().host(), &session.outer) {
        // Loopback is that of the machine, or sandbox, which this netbox runs on.
        (Host::Address(address), Some(outer)) if !address.is_loopback() => ask(outer, permit.target()).await?,
        (Host::Address(address), _) => (vec![*address], None),
        (Host::Name(name), Some(outer)) => {
            may_ask(session, policy, name)?;
            let answered = ask(outer, permit.target()).await?;
            session.names.found(policy, name);
            answered
        }
        (Host::Name(name), None) => (look_up(session, policy, name).await?, None),
    };
    // After the lookup: the facts must be those of the moment of dialling.
    let facts = session.facts.current();
    let mut vetted: Vec<VettedAddr> = Vec::with_capacity(addresses.len());
    let mut refusal = None;
    for address in addresses {
        match policy.vet(permit, address, &facts) {
            Ok(address) => vetted.push(address),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    if vetted.is_empty() {
        return Err(refusal.map_or(OpenError::Failed(Reason::DnsNotFound), OpenError::Refused));
    }
    Ok(Vetted { addresses: vetted, answered })
}

async fn ask(outer: &Outer, target: &Target) -> Result<(Vec<IpAddr>, Option<Answered>), OpenError> {
    let mut answered = outer.ask(target).await?;
    Ok((std::mem::take(&mut answered.addresses), Some(answered)))
}

impl Vetted {
    /// The addresses.
    pub(crate) fn addresses(&self) -> &[VettedAddr] {
        &self.addresses
    }

    /// Drops those that somebody else does not agree with.
    pub(crate) fn keep(&mut self, agrees: impl FnMut(&VettedAddr) -> bool) {
        self.addresses.retain(agrees);
    }

    /// Connects to one of them, and notes in the flow where it leads. `policy` is the one that vetted.
    pub(crate) async fn dial(self, session: &Session, flow: &Flow, policy: &Arc<Policy>) -> Result<Dialed, OpenError> {
        let dialed = match self.answered {
            Some(answered) => answered.dial(&self.addresses).await?,
            None => {
                let dialed = session.dialer.dial(&self.addresses).await;
                dialed.map_err(|error| OpenError::Failed(error.reason()))?
            }
        };
        socket::no_delay(&dialed.stream);
        socket::keep_alive(&dialed.stream);
        flow.reached(dialed.address);
        session.confirm(flow, policy).map_err(OpenError::Refused)?;
        Ok(dialed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::tests::world::World;
    use crate::dns::MADE_UP_NAMES;

    /// Asks for a connection to port 443 of a name. Nobody listens there.
    async fn ask(world: &World, name: &str) -> OpenError {
        let host = Host::parse_wire(name.as_bytes()).unwrap();
        let target = target(&world.session, host, Port::HTTPS, Via::Connect);
        let flow = world.session.enter();
        let grant = admit(&world.session, &flow, &Asked::Target(target)).expect("it is allowed");
        open(&world.session, &flow, &grant).await.expect_err("nobody listens")
    }

    fn asked(world: &World) -> Vec<String> {
        std::mem::take(&mut *world.net.lookups.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn made_up_names_leave_slowly_also_by_connections() {
        let world = World::new(&["*.github.com", "github.com"]);
        // The first one exists.
        assert_eq!(ask(&world, "api.github.com").await, OpenError::Failed(Reason::Refused));
        for number in 1..MADE_UP_NAMES.most {
            let name = format!("n{number}.github.com");
            assert_eq!(ask(&world, &name).await, OpenError::Failed(Reason::DnsNotFound));
        }
        assert_eq!(asked(&world).len(), MADE_UP_NAMES.most as usize);
        let limit = OpenError::Refused(Refusal::new(Reason::Limit));
        assert_eq!(ask(&world, "secret.github.com").await, limit);
        assert_eq!(asked(&world), [""; 0], "no query leaves");
        for free in ["api.github.com", "github.com"] {
            assert_eq!(ask(&world, free).await, OpenError::Failed(Reason::Refused));
            assert_eq!(asked(&world), [free]);
        }
        tokio::time::advance(MADE_UP_NAMES.refill).await;
        assert_eq!(ask(&world, "secret.github.com").await, OpenError::Failed(Reason::DnsNotFound));
        assert_eq!(ask(&world, "another.github.com").await, limit);
    }

    #[tokio::test]
    async fn where_every_name_is_open_none_is_counted_or_kept() {
        let world = World::new(&["*"]);
        for _ in 0..=MADE_UP_NAMES.most {
            ask(&world, "github.com").await;
        }
        assert_eq!(asked(&world).len(), MADE_UP_NAMES.most as usize + 1);
        let name = HostName::parse_wire(b"github.com").unwrap();
        assert!(!world.session.names.synthetic.knows(&name));
    }
}
