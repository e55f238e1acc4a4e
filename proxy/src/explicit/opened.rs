//! From a target to a connection, for a program that waits for the answer.

use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Host, Port, Reason, Refusal, Target, Via};

use crate::callers::Origin;
use crate::dial::Dialed;
use crate::flow::{Asked, Flow};
use crate::judged::Judged;
use crate::pipeline::{self, Grant, OpenError};
use crate::record::Record;
use crate::session::Session;
use crate::socket::Connection;

/// A connection to what was asked for.
pub(crate) struct Opened {
    target: Target,
    grant: Grant,
    record: Record,
    upstream: Dialed,
}

/// Why there is none. It has been recorded.
#[derive(Debug)]
pub(crate) enum Shut {
    /// Neither the policy nor a check that goes with it lets it through.
    Refused(Target, Refusal),
    /// It is permitted, and the lookup or the far side failed.
    Failed(Target, Reason),
}

/// Judges, looks up, vets and dials.
pub(crate) async fn open(
    session: &Session,
    origin: &Origin,
    flow: &Arc<Flow>,
    host: Host,
    port: Port,
    via: Via,
) -> Result<Opened, Shut> {
    let since = Instant::now();
    let target = pipeline::target(session, host, port, via);
    let grant = match pipeline::admit(session, flow, &Asked::Target(target.clone())) {
        Ok(grant) => grant,
        Err(refusal) => {
            Record::refused(&session.events, origin, &target, &refusal, since).refuse(&refusal);
            return Err(Shut::Refused(target, refusal));
        }
    };
    let mut record = Record::permitted(&session.events, origin, flow, &grant.permit, since);
    match pipeline::open(session, flow, &grant).await {
        Ok(upstream) => Ok(Opened { target, grant, record, upstream }),
        Err(OpenError::Refused(refusal)) => {
            record.refuse(&refusal);
            Err(Shut::Refused(target, refusal))
        }
        Err(OpenError::Failed(reason)) => {
            record.fail(reason);
            Err(Shut::Failed(target, reason))
        }
    }
}

impl Opened {
    /// Carries what the client sends from now on. It has been told that it may.
    pub(crate) async fn carry(self, session: Arc<Session>, client: Connection, flow: Arc<Flow>) {
        let Self { target, grant, record, upstream } = self;
        Judged::new(session, client, flow, target, record).carry(grant, Some(upstream)).await;
    }
}
