//! HTTP on a connection whose target was judged: every request must be for that target.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Reason, Refusal, Target};

use crate::agreement;
use crate::callers::Origin;
use crate::flow::Flow;
use crate::http::answer::Answer;
use crate::http::exchange::Door;
use crate::http::head::HeadError;
use crate::http::request::{Form, RequestHead};
use crate::pipeline::{self, Grant, OpenError};
use crate::record::Record;
use crate::refuse::Telling;
use crate::session::Session;
use crate::socket::Connection;

/// Judges the requests of one such connection.
pub(crate) struct JudgedHttp {
    session: Arc<Session>,
    flow: Arc<Flow>,
    grant: Grant,
    /// What the first bytes would have been refused for, in audit mode.
    would: Option<Reason>,
    /// The connection's record, which becomes that of its first request.
    record: Option<Record>,
    origin: Origin,
    /// Where the upstream connection leads.
    address: Option<SocketAddr>,
}

impl JudgedHttp {
    pub(crate) fn new(
        session: Arc<Session>,
        flow: Arc<Flow>,
        grant: Grant,
        would: Option<Reason>,
        record: Record,
        address: Option<SocketAddr>,
    ) -> Self {
        let origin = record.origin().clone();
        Self { session, flow, grant, would, record: Some(record), origin, address }
    }

    fn target(&self) -> &Target {
        self.grant.target()
    }

    fn record(&mut self) -> Record {
        let next = || {
            let permit = &self.grant.permit;
            Record::permitted(&self.session.events, &self.origin, &self.flow, permit, Instant::now())
        };
        self.record.take().unwrap_or_else(next)
    }

    fn judge(&self, request: &RequestHead) -> Result<Option<Reason>, Refusal> {
        let absolute = match &request.form {
            Form::Authority(..) => return Err(Refusal::new(Reason::Unsupported)),
            Form::Absolute(authority, _) => Some(authority),
            Form::Origin(_) | Form::Asterisk => None,
        };
        let (names, Grant { policy, permit }) = (&self.session.names, &self.grant);
        let mut would = self.would;
        for authority in absolute.into_iter().chain(&request.host) {
            would = would.or(agreement::authority(names, policy, permit, authority)?);
        }
        self.flow.requested(absolute.into_iter().chain(&request.host).cloned());
        self.session.confirm(&self.flow, policy)?;
        Ok(would)
    }
}

impl Door for JudgedHttp {
    async fn admit(&mut self, request: &RequestHead, upstream: &mut Option<Connection>) -> Result<Record, Telling> {
        let renewed = pipeline::renew(&self.session, &self.flow, &mut self.grant);
        let mut record = self.record();
        record.saw_request(&request.method, request.path());
        let refused = |mut record: Record, refusal: Refusal, target: &Target| {
            record.refuse(&refusal);
            Telling::Http(Answer::refused(target, &refusal, self.session.events.role()), Some(request.method.clone()))
        };
        match renewed.and_then(|()| self.judge(request)) {
            Err(refusal) => return Err(refused(record, refusal, self.target())),
            Ok(would) => would.into_iter().for_each(|would| record.would_be(would)),
        }
        let address = match self.address {
            Some(address) => address,
            None => match pipeline::open(&self.session, &self.flow, &self.grant).await {
                Ok(dialed) => {
                    *upstream = Some(Connection::new(dialed.stream));
                    *self.address.insert(dialed.address)
                }
                Err(OpenError::Refused(refusal)) => return Err(refused(record, refusal, self.target())),
                Err(OpenError::Failed(reason)) => {
                    record.fail(reason);
                    return Err(self.failed());
                }
            },
        };
        record.allow(address);
        Ok(record)
    }

    fn unreadable(&mut self, error: &HeadError, _: &[u8]) -> Telling {
        self.record().refuse(&Refusal::new(error.reason()));
        Telling::Http(Answer::unreadable(error), None)
    }

    fn given_up(&mut self) {
        self.record().refuse(&Refusal::new(Reason::Limit));
    }

    /// As if the far side had been reached directly.
    fn failed(&self) -> Telling {
        Telling::Reset
    }
}
