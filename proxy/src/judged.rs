//! A connection whose target was judged, on whatever way it came in: what becomes of it.
//!
//! # Theory of operation
//!
//! 1. Ports 80 and 443 have one protocol each: the program's first bytes are read and judged, and only then does
//!    anything reach the server. A captured connection has not even been looked up or dialled then; one that came
//!    through an explicit door has, since that answers only when there is a connection.
//! 2. On other ports either side may speak first: the server is dialled at once and its bytes flow, while the program's
//!    are held until it is known what they are.
//! 3. What agrees becomes a tunnel; HTTP goes on request by request; `tcp://` skips all looking.

use std::sync::Arc;

use netbox_config::{Port, Reason, Refusal, Target};
use tokio::time::{Instant, timeout_at};

use crate::agreement::Agreement;
use crate::dial::Dialed;
use crate::events::End;
use crate::first_bytes::FirstBytes;
use crate::flow::Flow;
use crate::gate::FirstBytesGate;
use crate::http::answer::Answer;
use crate::http::exchange::{Left, exchange};
use crate::http::head::{HeadScan, Lines};
use crate::http::request::RequestHead;
use crate::judged_http::JudgedHttp;
use crate::opening::{First, Opening, Patience};
use crate::pipeline::{self, Grant, OpenError};
use crate::record::Record;
use crate::refuse::{Telling, refuse};
use crate::session::Session;
use crate::settled::{Settled, Silent, Spoke, Tunnel};
use crate::socket::{self, Connection};

/// The ports whose refused connections are given time for their first bytes: those of HTTP and TLS.
pub const ANSWERED_PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// A connection whose target was judged.
pub(crate) struct Judged {
    pub(crate) client: Connection,
    flow: Arc<Flow>,
    opening: Opening,
    record: Record,
    target: Target,
    session: Arc<Session>,
}

impl Judged {
    pub(crate) fn new(
        session: Arc<Session>,
        client: Connection,
        flow: Arc<Flow>,
        target: Target,
        record: Record,
    ) -> Self {
        Self { client, flow, opening: Opening::new(), record, target, session }
    }

    /// Carries or refuses it, as was decided. Nothing has been dialled.
    pub(crate) async fn follow(self, decision: Result<Grant, Refusal>) -> Option<Settled> {
        match decision {
            Err(refusal) => {
                self.refuse_when_it_speaks(refusal).await;
                None
            }
            Ok(grant) => self.carry(grant, None).await,
        }
    }

    /// Carries it to its end, or until it comes to rest. `upstream`: the connection that was made to the target already, if
    /// one was.
    pub(crate) async fn carry(self, grant: Grant, upstream: Option<Dialed>) -> Option<Settled> {
        match grant.target().port() {
            _ if grant.permit.is_raw() => self.raw(grant, upstream).await,
            Port::HTTP | Port::HTTPS => self.client_first(grant, upstream).await,
            _ => self.either_first(grant, upstream).await,
        }
    }

    /// Nothing is looked at.
    async fn raw(self, grant: Grant, upstream: Option<Dialed>) -> Option<Settled> {
        let (judged, upstream) = self.connected(&grant, upstream, None).await?;
        Some(judged.settle(upstream, None))
    }

    /// Ports 80 and 443: what the program sends is judged before anything reaches the server.
    async fn client_first(mut self, grant: Grant, upstream: Option<Dialed>) -> Option<Settled> {
        let limits = self.session.limits;
        let patience = Patience { silence: Some(limits.silence), partial: Some(limits.first_bytes), word: None };
        let revocation = self.client.revocation();
        let wait = self.opening.wait(&self.client.stream, &mut self.client.buffer, &patience);
        let first = tokio::select! {
            biased;
            () = revocation => return self.revoked(upstream),
            first = self.session.while_half_open(wait) => first.unwrap_or(First::GivenUp),
            () = self.session.drained_in_silence() => return self.end_unused(upstream, End::Done).await,
        };
        let first = match first {
            First::Known(first) => first,
            First::Word | First::Partial => {
                return self.refuse(&Refusal::new(Reason::Malformed), &FirstBytes::Other).await;
            }
            // Nothing was asked for: a probe, or a connection opened ahead.
            First::Silent => return self.end_unused(upstream, End::Timeout).await,
            First::Ended => return self.end_unused(upstream, End::Done).await,
            First::Gone => return self.end_unused(upstream, End::Reset).await,
            First::GivenUp => {
                drop(upstream);
                return self.refuse(&Refusal::new(Reason::Limit), &FirstBytes::Other).await;
            }
        };
        self.saw(&first);
        match self.session.agree(&self.flow, &grant, &first) {
            Agreement::Refuse(refusal) => {
                drop(upstream);
                self.refuse(&refusal, &first).await
            }
            Agreement::Requests(would) => self.requests(grant, would, upstream).await,
            Agreement::Tunnel(would) => {
                would.into_iter().for_each(|would| self.record.would_be(would));
                let (judged, upstream) = self.connected(&grant, upstream, Some(&first)).await?;
                Some(judged.settle(upstream, None))
            }
        }
    }

    /// Any other port: the server may speak first.
    async fn either_first(self, grant: Grant, upstream: Option<Dialed>) -> Option<Settled> {
        let (judged, upstream) = self.connected(&grant, upstream, None).await?;
        Some(Settled::Silent(Box::new(Silent { judged, grant, upstream })))
    }

    /// There, one side has spoken.
    pub(crate) async fn spoken(mut self, grant: Grant, upstream: Dialed, spoke: Spoke) -> Option<Settled> {
        let session = Arc::clone(&self.session);
        let limits = session.limits;
        let patience = Patience { silence: None, partial: Some(limits.first_bytes), word: Some(limits.word) };
        let first = match spoke {
            Spoke::Revoked => return self.revoked(Some(upstream)),
            Spoke::Upstream => None,
            Spoke::Client(Err(_)) => Some(First::Gone),
            Spoke::Client(Ok(0)) => Some(First::Ended),
            Spoke::Client(Ok(_)) => {
                let revocation = self.client.revocation();
                let Connection { stream, buffer, .. } = &mut self.client;
                tokio::select! {
                    biased;
                    () = revocation => return self.revoked(Some(upstream)),
                    first = self.opening.wait_once_begun(stream, buffer, &patience, &session) => Some(first),
                    _ = upstream.stream.readable() => None,
                }
            }
        };
        match first {
            Some(First::Known(first)) => {
                self.saw(&first);
                match self.session.agree(&self.flow, &grant, &first) {
                    Agreement::Refuse(refusal) => {
                        drop(upstream);
                        self.refuse(&refusal, &first).await
                    }
                    Agreement::Requests(would) => self.requests(grant, would, Some(upstream)).await,
                    Agreement::Tunnel(would) => {
                        would.into_iter().for_each(|would| self.record.would_be(would));
                        Some(self.settle(upstream, None))
                    }
                }
            }
            Some(First::Partial | First::Silent) => {
                drop(upstream);
                self.refuse(&Refusal::new(Reason::Malformed), &FirstBytes::Other).await
            }
            Some(First::GivenUp) => {
                drop(upstream);
                self.refuse(&Refusal::new(Reason::Limit), &FirstBytes::Other).await
            }
            Some(First::Gone) => {
                self.record.allow(upstream.address);
                socket::reset(upstream.stream);
                None
            }
            None | Some(First::Ended | First::Word) => {
                let released = first == Some(First::Word);
                let opening = std::mem::replace(&mut self.opening, Opening::new());
                let flow = Arc::clone(&self.flow);
                let late = self.record.late();
                let gate = FirstBytesGate::new(session, flow, grant, opening, patience, released, late);
                Some(self.settle(upstream, Some(gate)))
            }
        }
    }

    /// The upstream connection: the one that there is, or a new one. Where there can be none, it refuses in the protocol
    /// of what was spoken, or is spoken next.
    async fn connected(
        mut self,
        grant: &Grant,
        upstream: Option<Dialed>,
        spoken: Option<&FirstBytes>,
    ) -> Option<(Self, Dialed)> {
        if let Some(upstream) = upstream {
            return Some((self, upstream));
        }
        match (pipeline::open(&self.session, &self.flow, grant).await, spoken) {
            (Ok(upstream), _) => return Some((self, upstream)),
            (Err(OpenError::Refused(refusal)), Some(first)) => drop(self.refuse(&refusal, first).await),
            (Err(OpenError::Refused(refusal)), None) => self.refuse_when_it_speaks(refusal).await,
            (Err(OpenError::Failed(reason)), _) => {
                self.record.fail(reason);
                drop(self.record);
                socket::reset(self.client.stream);
            }
        }
        None
    }

    /// It is a tunnel from now on.
    fn settle(mut self, upstream: Dialed, gate: Option<FirstBytesGate>) -> Settled {
        self.record.allow(upstream.address);
        let upstream = Connection::new(upstream.stream);
        Settled::Tunnel(Box::new(Tunnel { client: self.client, upstream, gate, record: self.record }))
    }

    /// It ends, and was never used. Leaves nothing to carry.
    async fn end_unused(mut self, upstream: Option<Dialed>, end: End) -> Option<Settled> {
        self.record.ended_unused(upstream.map(|upstream| upstream.address), end.clone());
        if !matches!(end, End::Reset) {
            socket::finish(self.client.stream).await;
        }
        None
    }

    /// It ends with its permit. Leaves nothing to carry.
    fn revoked(mut self, upstream: Option<Dialed>) -> Option<Settled> {
        self.record.refuse(&Refusal::new(Reason::Revoked));
        socket::reset(self.client.stream);
        upstream.into_iter().for_each(|upstream| socket::reset(upstream.stream));
        None
    }

    async fn requests(self, grant: Grant, would: Option<Reason>, upstream: Option<Dialed>) -> Option<Settled> {
        let address = upstream.as_ref().map(|upstream| upstream.address);
        let upstream = upstream.map(|upstream| Connection::new(upstream.stream));
        let mut door = JudgedHttp::new(Arc::clone(&self.session), self.flow, grant, would, self.record, address);
        // In a box, so that others do not pay for the size of an exchange.
        match Box::pin(exchange(self.client, upstream, &mut door, &self.session)).await {
            Left::Tunnel(tunnel) => Some(Settled::Tunnel(tunnel)),
            // No request leaves by this door.
            Left::Nothing | Left::Request(..) => None,
        }
    }

    fn saw(&mut self, first: &FirstBytes) {
        if let FirstBytes::Tls { sni: Some(sni), .. } = first {
            self.record.saw_sni(sni.as_str());
        }
    }

    /// Waits for the first bytes, and refuses in their protocol.
    async fn refuse_when_it_speaks(mut self, refusal: Refusal) {
        let limits = self.session.limits;
        let answered = ANSWERED_PORTS.contains(&self.target.port().get());
        let deadline = Instant::now() + if answered { limits.refused } else { limits.refused_other };
        let patience = Patience { silence: None, partial: None, word: None };
        self.record.will_refuse(&refusal);
        let wait = self.opening.wait(&self.client.stream, &mut self.client.buffer, &patience);
        let wait = self.session.while_half_open(timeout_at(deadline, wait));
        let first = match wait.await {
            Some(Ok(First::Known(first))) => first,
            _ => FirstBytes::Other,
        };
        self.saw(&first);
        self.refuse_by(&refusal, &first, deadline).await;
    }

    /// Leaves nothing to carry.
    async fn refuse(self, refusal: &Refusal, first: &FirstBytes) -> Option<Settled> {
        let deadline = Instant::now() + self.session.limits.refused;
        self.refuse_by(refusal, first, deadline).await;
        None
    }

    /// Refuses in the protocol of the first bytes. Of HTTP the whole head is awaited, for the record.
    async fn refuse_by(mut self, refusal: &Refusal, first: &FirstBytes, deadline: Instant) {
        self.record.will_refuse(refusal);
        let telling = match first {
            FirstBytes::Tls { .. } => Telling::Tls,
            FirstBytes::Http => {
                let request = timeout_at(deadline, read_request(&mut self.client));
                let request = self.session.while_half_open(request).await.and_then(Result::ok).flatten();
                if let Some(request) = &request {
                    self.record.saw_request(&request.method, request.path());
                }
                Telling::Http(
                    Answer::refused(&self.target, refusal, self.session.events.role()),
                    request.map(|request| request.method),
                )
            }
            _ => Telling::Reset,
        };
        self.record.refuse(refusal);
        drop(self.record);
        refuse(self.client, telling).await;
    }
}

/// The head of a request that is refused anyway, if there is one to be read.
async fn read_request(client: &mut Connection) -> Option<RequestHead> {
    let mut scan = HeadScan::new(Lines::Strict);
    loop {
        if let Some(head) = scan.take(&mut client.buffer).ok()? {
            return RequestHead::parse(&head).ok();
        }
        if client.fill().await.ok()? == 0 {
            return None;
        }
    }
}
