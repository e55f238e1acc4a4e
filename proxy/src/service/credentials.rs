//! Who a plain client is: by the token that it proves, and by nothing else that it says.
//!
//! # Theory of operation
//!
//! 1. A token is 128 random bits ([`Token`]). It is shown once, to whoever makes it; the service knows its SHA-256. That is
//!    enough: nobody can try 2^128 tokens, so a slow hash with a salt, as passwords need it, would add nothing but work to
//!    each request.
//! 2. A client sends it as the password of `Proxy-Authorization: Basic` (RFC 7617), as that of SOCKS5 (RFC 1929), or as
//!    `Bearer` (RFC 6750). The name of the user beside it says nothing: a role is what the token is of.
//! 3. What was sent is hashed at once ([`Proof`]) and compared with every hash that there is, each in constant time.
//! 4. The client's connection becomes one of its role's session: it is judged by the role's policy, and told in the role's
//!    events. On HTTP every request is asked anew, and the next one may be of another role.
//! 5. A token that is taken away ends what was opened with it ([`Roles::replace`]).
//! 6. A listener may be for one role. Where that has no tokens, coming in there is enough: whose address it is says who may.
//!    A listener of no role asks for a token once one role has any; until then its clients are those of no role.
//!
//! A token is not printed, logged or passed on: no type here shows it, and `Proxy-Authorization` is for this hop alone.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use netbox_config::service::TokenHash;
use netbox_config::{Reason, Via};

use crate::budget::{Allowance, Budget};
use crate::events::{DecisionEvent, Events};
use crate::flow::Flow;
use crate::session::Session;
use crate::tls::Identity;

/// How many refused clients are told of: so many at once, and then one a second. Whoever reaches the port can have itself
/// refused without end.
const TOLD: Allowance = Allowance { most: 100, refill: Duration::from_secs(1) };

/// The longest credential that is looked at, in bytes; a token has 39.
const LONGEST: usize = 1024;

/// With or without padding: clients differ, and the token is the same.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A token, for whoever is to have it. Neither `Debug` nor `Display`: [`Token::reveal`] is the one way to see it.
pub struct Token(String);

impl Token {
    /// What it begins with, so that programs which look for secrets in the wrong place find it.
    pub const PREFIX: &'static str = "netbox_";

    /// A new one: 128 bits of the kernel's random numbers.
    ///
    /// # Errors
    /// Where the kernel gives none, which no supported one does.
    pub fn random() -> io::Result<Self> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        Ok(Self(format!("{}{:032x}", Self::PREFIX, u128::from_be_bytes(bits))))
    }

    /// The text. It is for the one who asked for it, and for nowhere else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the service knows of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.0.as_bytes())
    }
}

/// What a client sent to prove who it is, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof(TokenHash);

impl Proof {
    /// A password, or a token that stands alone.
    pub(crate) fn of(token: &[u8]) -> Self {
        Self(TokenHash::of(token))
    }

    /// What stands in `Proxy-Authorization`, given the values of all fields of that name. `None`: there is none, more than
    /// one, or it is no credential of a kind that can hold a token.
    pub(crate) fn of_fields<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (value, None) = (values.next()?.trim_ascii(), values.next()) else { return None };
        if value.len() > LONGEST {
            return None;
        }
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (scheme, credential) = value.split_at(space);
        let credential = credential.trim_ascii_start();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Some(Self::of(credential));
        }
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return None;
        }
        let decoded = BASE64.decode(credential).ok()?;
        // A user's name holds no colon (RFC 7617 §2); a password may.
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        Some(Self::of(&decoded[colon + 1..]))
    }
}

/// One role, as the service carries it.
#[derive(Clone)]
pub struct Role {
    /// Its name.
    pub name: Arc<str>,
    /// What its bearers prove.
    pub tokens: Vec<TokenHash>,
    /// What carries them.
    pub session: Arc<Session>,
}

/// The roles of a service. They may be replaced while clients are carried.
pub struct Roles {
    table: RwLock<Arc<Vec<Role>>>,
    /// What carries those who come in by a listener of no role, while no role has tokens.
    open: Arc<Session>,
    told: Budget,
}

impl Roles {
    /// These roles. `open` carries clients of no role, for as long as nobody can prove one.
    #[must_use]
    pub fn new(roles: Vec<Role>, open: Arc<Session>) -> Self {
        Self { table: RwLock::new(Arc::new(roles)), open, told: Budget::new(TOLD) }
    }

    /// Puts others in their place. What was opened with a token that is none of the same role any more is ended, as
    /// `revoked`, and so is what was opened without one where one is asked for now. Gives the number of connections that
    /// it ends.
    pub fn replace(&self, roles: Vec<Role>) -> usize {
        let new = Arc::new(roles);
        let old = std::mem::replace(&mut *self.table.write().unwrap_or_else(PoisonError::into_inner), Arc::clone(&new));
        // Whoever comes in from now on is held against the new ones, or finds that they have changed: see `admit`.
        let mut ended = 0;
        for role in old.iter() {
            let now = new.iter().find(|now| Arc::ptr_eq(&now.session, &role.session));
            let is_in = |flow: &Flow| match flow.bearer() {
                Some(token) => now.is_some_and(|now| find(&new, token).is_some_and(|found| found.name == now.name)),
                None => now.is_some_and(|now| now.tokens.is_empty()),
            };
            ended += end_unless(&role.session, is_in);
        }
        if new.iter().any(|role| !role.tokens.is_empty()) {
            ended += end_unless(&self.open, |_| false);
        }
        ended
    }

    /// The role that a token is of.
    #[must_use]
    pub fn of(&self, token: &[u8]) -> Option<Arc<str>> {
        find(&self.now(), TokenHash::of(token)).map(|role| Arc::clone(&role.name))
    }

    fn now(&self) -> Arc<Vec<Role>> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ends what a session carries that is not to stay.
fn end_unless(session: &Session, stays: impl Fn(&Flow) -> bool) -> usize {
    let flows = session.flows.live();
    flows.iter().filter(|flow| !flow.is_revoked() && !stays(flow)).inspect(|flow| flow.revoke()).count()
}

/// Goes through all of them, whichever it is.
fn find(roles: &[Role], token: TokenHash) -> Option<&Role> {
    let mut found = None;
    for role in roles {
        for known in &role.tokens {
            if *known == token {
                found = Some(role);
            }
        }
    }
    found
}

/// The way from a listener to the tenants behind it.
#[derive(Clone)]
pub struct TenantDoor {
    /// Who may come in.
    pub roles: Arc<Roles>,
    /// The one role that it is for, if it is for one.
    pub only: Option<Arc<str>>,
}

/// What is asked of whoever comes in at a listener for plain clients.
#[derive(Clone)]
pub struct Entrance {
    /// Whose its clients are.
    pub door: TenantDoor,
    /// That it speaks TLS with what is known by this.
    pub tls: Option<Arc<Identity>>,
}

/// A client that was let in: its token, or the listener, says whose it is.
#[derive(Clone)]
pub(crate) struct Bearer {
    pub(crate) session: Arc<Session>,
    pub(crate) flow: Arc<Flow>,
    proof: Option<Proof>,
}

/// Why a client is not let in.
pub(crate) enum TurnedAway {
    /// It has proved nothing.
    Unproved,
    /// Its tenant has as many connections as it may have.
    Full(Arc<Session>),
}

impl TenantDoor {
    /// Whether a token has to be proved: where one of the roles that it could be for has tokens.
    pub(crate) fn asks(&self) -> bool {
        let roles = self.roles.now();
        match &self.only {
            // One that is gone lets nobody in.
            Some(name) => roles.iter().find(|role| role.name == *name).is_none_or(|role| !role.tokens.is_empty()),
            None => roles.iter().any(|role| !role.tokens.is_empty()),
        }
    }

    /// Lets a client in; a moment later, if its tenant begins too many connections in a second. `before` is who it was until
    /// now: where that is the same, it stays so. `client` says from which address it
    /// comes.
    pub(crate) async fn enter(
        &self,
        proof: Option<Proof>,
        before: Option<&Bearer>,
        client: impl Fn() -> Option<IpAddr>,
    ) -> Result<Bearer, TurnedAway> {
        let bearer = self.admit(proof, before, client)?;
        if before.is_none_or(|before| !Arc::ptr_eq(&before.flow, &bearer.flow))
            && let Some(wait) = bearer.session.quota().connected()
        {
            tokio::time::sleep(wait).await;
        }
        Ok(bearer)
    }

    fn admit(
        &self,
        proof: Option<Proof>,
        before: Option<&Bearer>,
        client: impl Fn() -> Option<IpAddr>,
    ) -> Result<Bearer, TurnedAway> {
        loop {
            let roles = self.roles.now();
            let (session, proof) = self.whose(&roles, proof).ok_or(TurnedAway::Unproved)?;
            let is_same = |before: &&Bearer| {
                before.proof == proof && Arc::ptr_eq(&before.session, session) && !before.flow.is_revoked()
            };
            if let Some(before) = before.filter(is_same) {
                return Ok(before.clone());
            }
            let full = || TurnedAway::Full(Arc::clone(session));
            let most = session.limits.connections;
            if !session.quota().has_room_beside(session.connections(), most) {
                return Err(full());
            }
            let place = client().map(|client| session.quota().place_of(client, most).ok_or_else(full)).transpose()?;
            let flow = session.flows.enter_with(session.quota(), proof.map(|Proof(token)| token), place);
            // Whoever replaces the roles from now on finds the flow.
            if Arc::ptr_eq(&roles, &self.roles.now()) {
                return Ok(Bearer { session: Arc::clone(session), flow, proof });
            }
        }
    }

    /// What carries a client with this proof, and the proof, if it was needed.
    fn whose<'r>(&'r self, roles: &'r [Role], proof: Option<Proof>) -> Option<(&'r Arc<Session>, Option<Proof>)> {
        match &self.only {
            None if roles.iter().all(|role| role.tokens.is_empty()) => return Some((&self.roles.open, None)),
            None => {}
            Some(name) => {
                let role = roles.iter().find(|role| role.name == *name)?;
                if role.tokens.is_empty() {
                    return Some((&role.session, None));
                }
            }
        }
        let role = find(roles, proof?.0).filter(|role| self.only.as_ref().is_none_or(|only| *only == role.name))?;
        Some((&role.session, proof))
    }

    /// Tells of a client that was turned away with nothing proved, if there were not too many.
    pub(crate) fn tell(&self, outside: &Events, host: String, port: Option<u16>, via: Via) {
        let event = DecisionEvent::new(outside.next_id(), host, port, via, Reason::Unauthenticated);
        outside.decision_within(&self.roles.told, event);
    }
}

#[cfg(test)]
mod tests;
