//! From a target to a connection, for a program that waits for the answer.

use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Host, Port, Reason, Refusal, Target, Via};

use crate::callers::Origin;
use crate::dial::Dialed;
use crate::flow::{Asked, Flow};
use crate::judged::Judged;
use crate::pipeline::{self, Grant, OpenError, Vetted};
use crate::record::Record;
use crate::session::Session;
use crate::settled::Settled;
use crate::socket::Connection;

/// What was asked for is permitted, and nothing dialled yet.
pub(crate) struct Permitted {
    target: Target,
    grant: Grant,
    record: Record,
    pub(crate) vetted: Vetted,
}

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
    judge(session, origin, flow, host, port, via).await?.dial(session, flow).await
}

/// Judges, looks up and vets.
pub(crate) async fn judge(
    session: &Session,
    origin: &Origin,
    flow: &Arc<Flow>,
    host: Host,
    port: Port,
    via: Via,
) -> Result<Permitted, Shut> {
    let since = Instant::now();
    let target = pipeline::target(session, host, port, via);
    let grant = match pipeline::admit(session, flow, &Asked::Target(target.clone())) {
        Ok(grant) => grant,
        Err(refusal) => {
            Record::refused(&session.events, origin, &target, &refusal, since).refuse(&refusal);
            return Err(Shut::Refused(target, refusal));
        }
    };
    let record = Record::permitted(&session.events, origin, flow, &grant.permit, since);
    match pipeline::vet(session, &grant).await {
        Ok(vetted) => Ok(Permitted { target, grant, record, vetted }),
        Err(error) => Err(shut(record, target, error)),
    }
}

fn shut(mut record: Record, target: Target, error: OpenError) -> Shut {
    match error {
        OpenError::Refused(refusal) => {
            record.refuse(&refusal);
            Shut::Refused(target, refusal)
        }
        OpenError::Failed(reason) => {
            record.fail(reason);
            Shut::Failed(target, reason)
        }
    }
}

impl Permitted {
    /// Dials.
    pub(crate) async fn dial(self, session: &Session, flow: &Arc<Flow>) -> Result<Opened, Shut> {
        let Self { target, grant, record, vetted } = self;
        match vetted.dial(session, flow, &grant.policy).await {
            Ok(upstream) => Ok(Opened { target, grant, record, upstream }),
            Err(error) => Err(shut(record, target, error)),
        }
    }
}

impl Opened {
    /// What was dialled.
    pub(crate) fn upstream(&self) -> &Dialed {
        &self.upstream
    }

    /// Carries what the client sends from now on, to its end or until it comes to rest. It has been told that it may.
    pub(crate) async fn carry(self, session: Arc<Session>, client: Connection, flow: Arc<Flow>) -> Option<Settled> {
        let Self { target, grant, record, upstream } = self;
        Judged::new(session, client, flow, target, record).carry(grant, Some(upstream)).await
    }
}
