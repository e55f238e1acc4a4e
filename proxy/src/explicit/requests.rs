//! HTTP with the absolute form of a request target (RFC 9112 §3.2.2): every request is judged on its own.
//!
//! The upstream connection belongs to the client's one alone, and to one target: a request for another gets a new one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Policy, Reason, Refusal, Target, Via};

use super::connect;
use crate::agreement::{self, Agreement};
use crate::callers::Origin;
use crate::events::DecisionEvent;
use crate::first_bytes::FirstBytes;
use crate::flow::{Asked, Flow, Revocation};
use crate::http::answer::Answer;
use crate::http::exchange::{Door, Left, exchange};
use crate::http::head::HeadError;
use crate::http::request::{Form, RequestHead};
use crate::pipeline::{self, Grant, OpenError};
use crate::record::Record;
use crate::refuse::Telling;
use crate::service::credentials::{Bearer, Proof, TenantDoor, TurnedAway};
use crate::session::Session;
use crate::settled::Settled;
use crate::socket::Connection;

/// Carries a connection that speaks HTTP, to its end or until it comes to rest: requests one after the other, until one of them
/// is CONNECT.
pub(crate) async fn serve(
    session: Arc<Session>,
    tenants: Option<&TenantDoor>,
    client: Connection,
    flow: Arc<Flow>,
) -> Option<Settled> {
    let origin = client.origin.clone();
    let (outside, in_charge) = (&session, Arc::clone(&session));
    let mut door = Requests { outside, tenants, bearer: None, session: in_charge, origin, flow, way: None, last: None };
    match exchange(client, None, &mut door, &session).await {
        Left::Nothing => None,
        Left::Tunnel(tunnel) => Some(Settled::Tunnel(tunnel)),
        Left::Request(client, request) => {
            let Requests { session, flow, .. } = door;
            connect::serve(session, client, flow, *request).await
        }
    }
}

/// Judges the requests of one connection.
struct Requests<'a> {
    /// Whom it is told that nobody known has asked.
    outside: &'a Session,
    /// Whose its requests can be; nothing where they are the session's.
    tenants: Option<&'a TenantDoor>,
    /// Who asked last.
    bearer: Option<Bearer>,
    /// Whose the request is: the bearer's, where one is needed.
    session: Arc<Session>,
    origin: Origin,
    flow: Arc<Flow>,
    /// Where the upstream connection leads.
    way: Option<Way>,
    /// The request that was admitted last.
    last: Option<Last>,
}

struct Way {
    target: Target,
    address: SocketAddr,
    /// The policy by which the address was vetted.
    vetted_by: Arc<Policy>,
}

impl Way {
    fn serves(&self, target: &Target, grant: &Grant) -> bool {
        self.target == *target && Arc::ptr_eq(&self.vetted_by, &grant.policy)
    }
}

struct Last {
    target: Target,
    method: String,
    /// It travels on a connection that has carried another before.
    reused: bool,
}

impl Requests<'_> {
    /// What must hold besides the target: a protocol for the port, and a `Host` that says the same.
    fn agrees(&self, grant: &Grant, request: &RequestHead) -> Result<Option<Reason>, Refusal> {
        let Grant { policy, permit } = grant;
        if permit.is_raw() {
            return Ok(None);
        }
        let mut would = match self.session.agree(&self.flow, grant, &FirstBytes::Http) {
            Agreement::Tunnel(would) | Agreement::Requests(would) => would,
            Agreement::Refuse(refusal) => return Err(refusal),
        };
        if let Some(host) = &request.host {
            would = would.or(agreement::authority(&self.session.names, policy, permit, host)?);
            self.flow.requested(request.host.iter().cloned());
            self.session.confirm(&self.flow, policy)?;
        }
        Ok(would)
    }
}

impl Door for Requests<'_> {
    /// Every request is asked anew: the next one on a connection may be somebody else's.
    async fn identify(&mut self, client: &mut Connection, request: &RequestHead) -> Result<(), Answer> {
        let Some(door) = self.tenants else { return Ok(()) };
        let proof = Proof::of_fields(request.proxy_authorization());
        match door.enter(proof, self.bearer.as_ref(), || client.stream.peer()).await {
            Ok(bearer) => {
                if !Arc::ptr_eq(&bearer.flow, &self.flow) {
                    // A connection that was made for one role carries nothing of another.
                    self.way = None;
                    self.session = Arc::clone(&bearer.session);
                    self.flow = Arc::clone(&bearer.flow);
                    client.flow = Some(Arc::clone(&bearer.flow));
                }
                self.bearer = Some(bearer);
                Ok(())
            }
            Err(TurnedAway::Unproved) => {
                let (host, port, via) = asked_for(request);
                door.tell(&self.outside.events, host, port, via);
                Err(Answer::unauthenticated())
            }
            Err(TurnedAway::Full(session)) => {
                let (host, port, via) = asked_for(request);
                let event = DecisionEvent::new(session.events.next_id(), host, port, via, Reason::Limit);
                session.events.decision(event);
                Err(Answer::full())
            }
        }
    }

    fn revocation(&self) -> Revocation {
        self.bearer.as_ref().map_or_else(Revocation::never, |bearer| bearer.flow.revocation())
    }

    async fn admit(&mut self, request: &RequestHead, upstream: &mut Option<Connection>) -> Result<Record, Telling> {
        let since = Instant::now();
        let told = |answer| Telling::Http(answer, Some(request.method.clone()));
        let Form::Absolute(authority, _) = &request.form else {
            let host = request.host.as_ref().map(ToString::to_string).unwrap_or_default();
            super::refused(&self.session, &self.origin, Via::Http, host.as_bytes(), Reason::Malformed);
            return Err(told(Answer::unreadable(&HeadError::Malformed(
                "this is a proxy: it takes `http://host/path`, CONNECT and SOCKS5",
            ))));
        };
        let target = pipeline::target(&self.session, authority.host.clone(), authority.http_port(), Via::Http);
        let refused = |mut record: Record, refusal: Refusal| {
            record.refuse(&refusal);
            told(Answer::refused(&target, &refusal, self.session.events.role()))
        };
        let decision = pipeline::admit(&self.session, &self.flow, &Asked::Target(target.clone()));
        let mut record = Record::of(&self.session.events, &self.origin, &self.flow, &target, &decision, since);
        record.saw_request(&request.method, request.path());
        let grant = match decision {
            Ok(grant) => grant,
            Err(refusal) => return Err(refused(record, refusal)),
        };
        match self.agrees(&grant, request) {
            Ok(would) => would.into_iter().for_each(|would| record.would_be(would)),
            Err(refusal) => return Err(refused(record, refusal)),
        }
        let way = self.way.take().filter(|way| upstream.is_some() && way.serves(&target, &grant));
        let reused = way.is_some();
        let way = match way {
            Some(way) => {
                self.flow.reached(way.address);
                if let Err(refusal) = self.session.confirm(&self.flow, &grant.policy) {
                    return Err(refused(record, refusal));
                }
                way
            }
            None => {
                *upstream = None;
                match pipeline::open(&self.session, &self.flow, &grant).await {
                    Ok(dialed) => {
                        *upstream = Some(Connection::new(dialed.stream));
                        Way { target: target.clone(), address: dialed.address, vetted_by: Arc::clone(&grant.policy) }
                    }
                    Err(OpenError::Refused(refusal)) => return Err(refused(record, refusal)),
                    Err(OpenError::Failed(reason)) => {
                        record.fail(reason);
                        return Err(told(Answer::unreached(&target, reason)));
                    }
                }
            }
        };
        record.allow(way.address);
        self.way = Some(way);
        self.last = Some(Last { target, method: request.method.clone(), reused });
        Ok(record)
    }

    fn leaves(&self, request: &RequestHead) -> bool {
        matches!(request.form, Form::Authority(..))
    }

    fn unreadable(&mut self, error: &HeadError, bytes: &[u8]) -> Telling {
        let mut words = bytes.split(|byte| b" \r\n".contains(byte)).skip_while(|word| word.is_empty());
        let via = if words.next() == Some(b"CONNECT") { Via::Connect } else { Via::Http };
        super::refused(&self.session, &self.origin, via, words.next().unwrap_or_default(), error.reason());
        Telling::Http(Answer::unreadable(error), None)
    }

    fn given_up(&mut self) {
        super::refused(&self.session, &self.origin, Via::Http, b"", Reason::Limit);
    }

    /// A server may end a connection that has been used before at any moment. Then it is for the client to know whether
    /// the request may be repeated, and it does where the connection ends as it would have without a proxy
    /// (RFC 9112 §9.3.1).
    fn failed(&self) -> Telling {
        match &self.last {
            Some(Last { target, method, reused: false }) => {
                Telling::Http(Answer::unanswered(target), Some(method.clone()))
            }
            _ => Telling::Reset,
        }
    }
}

/// What a request is for, as far as it says so.
fn asked_for(request: &RequestHead) -> (String, Option<u16>, Via) {
    match &request.form {
        Form::Authority(host, port) => (host.to_string(), Some(port.get()), Via::Connect),
        Form::Absolute(authority, _) => (authority.host.to_string(), Some(authority.http_port().get()), Via::Http),
        Form::Origin(_) | Form::Asterisk => {
            (request.host.as_ref().map(ToString::to_string).unwrap_or_default(), None, Via::Http)
        }
    }
}
