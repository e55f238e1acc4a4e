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
use crate::http::exchange::exchange;
use crate::http::head::{HeadScan, Lines};
use crate::http::request::RequestHead;
use crate::judged_http::JudgedHttp;
use crate::opening::{First, Opening, Patience};
use crate::pipeline::{self, Grant, OpenError};
use crate::record::Record;
use crate::refuse::{Telling, refuse};
use crate::session::Session;
use crate::socket::{self, Connection};
use crate::tunnel::{Gate, Open, tunnel};

/// The ports whose refused connections are given time for their first bytes: those of HTTP and TLS.
pub const ANSWERED_PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// A connection whose target was judged.
pub(crate) struct Judged {
    client: Connection,
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
    pub(crate) async fn follow(self, decision: Result<Grant, Refusal>) {
        match decision {
            Err(refusal) => self.refuse_when_it_speaks(refusal).await,
            Ok(grant) => self.carry(grant, None).await,
        }
    }

    /// Carries it to its end. `upstream`: the connection that was made to the target already, if one was.
    pub(crate) async fn carry(self, grant: Grant, upstream: Option<Dialed>) {
        match grant.target().port() {
            _ if grant.permit.is_raw() => self.raw(grant, upstream).await,
            Port::HTTP | Port::HTTPS => self.client_first(grant, upstream).await,
            _ => self.either_first(grant, upstream).await,
        }
    }

    /// Nothing is looked at.
    async fn raw(self, grant: Grant, upstream: Option<Dialed>) {
        if let Some((judged, upstream)) = self.connected(&grant, upstream, None).await {
            judged.tunnel(upstream, Open).await;
        }
    }

    /// Ports 80 and 443: what the program sends is judged before anything reaches the server.
    async fn client_first(mut self, grant: Grant, upstream: Option<Dialed>) {
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
                self.refuse(&refusal, &first).await;
            }
            Agreement::Requests(would) => self.requests(grant, would, upstream).await,
            Agreement::Tunnel(would) => {
                would.into_iter().for_each(|would| self.record.would_be(would));
                if let Some((judged, upstream)) = self.connected(&grant, upstream, Some(&first)).await {
                    judged.tunnel(upstream, Open).await;
                }
            }
        }
    }

    /// Any other port: the server may speak first.
    async fn either_first(self, grant: Grant, upstream: Option<Dialed>) {
        let Some((mut judged, upstream)) = self.connected(&grant, upstream, None).await else { return };
        let session = Arc::clone(&judged.session);
        let limits = session.limits;
        let patience = Patience { silence: None, partial: Some(limits.first_bytes), word: Some(limits.word) };
        let revocation = judged.client.revocation();
        let Connection { stream, buffer, .. } = &mut judged.client;
        let first = tokio::select! {
            biased;
            () = revocation => return judged.revoked(Some(upstream)),
            first = judged.opening.wait_once_begun(stream, buffer, &patience, &session) => Some(first),
            // Bytes, an end or an error: the tunnel finds out which.
            _ = upstream.stream.readable() => None,
        };
        match first {
            Some(First::Known(first)) => {
                judged.saw(&first);
                match judged.session.agree(&judged.flow, &grant, &first) {
                    Agreement::Refuse(refusal) => {
                        drop(upstream);
                        judged.refuse(&refusal, &first).await;
                    }
                    Agreement::Requests(would) => judged.requests(grant, would, Some(upstream)).await,
                    Agreement::Tunnel(would) => {
                        would.into_iter().for_each(|would| judged.record.would_be(would));
                        judged.tunnel(upstream, Open).await;
                    }
                }
            }
            Some(First::Partial | First::Silent) => {
                drop(upstream);
                judged.refuse(&Refusal::new(Reason::Malformed), &FirstBytes::Other).await;
            }
            Some(First::GivenUp) => {
                drop(upstream);
                judged.refuse(&Refusal::new(Reason::Limit), &FirstBytes::Other).await;
            }
            Some(First::Gone) => {
                judged.record.allow(upstream.address);
                socket::reset(upstream.stream);
            }
            None | Some(First::Ended | First::Word) => {
                let released = first == Some(First::Word);
                let opening = std::mem::replace(&mut judged.opening, Opening::new());
                let flow = Arc::clone(&judged.flow);
                let late = judged.record.late();
                let gate = FirstBytesGate::new(session, flow, grant, opening, patience, released, late);
                judged.tunnel(upstream, gate).await;
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
            (Err(OpenError::Refused(refusal)), Some(first)) => self.refuse(&refusal, first).await,
            (Err(OpenError::Refused(refusal)), None) => self.refuse_when_it_speaks(refusal).await,
            (Err(OpenError::Failed(reason)), _) => {
                self.record.fail(reason);
                drop(self.record);
                socket::reset(self.client.stream);
            }
        }
        None
    }

    async fn tunnel(mut self, upstream: Dialed, gate: impl Gate) {
        self.record.allow(upstream.address);
        let end = tunnel(self.client, Connection::new(upstream.stream), gate, &self.record.counts).await;
        self.record.tunnel_ended(end);
    }

    /// It ends, and was never used.
    async fn end_unused(mut self, upstream: Option<Dialed>, end: End) {
        self.record.ended_unused(upstream.map(|upstream| upstream.address), end.clone());
        if !matches!(end, End::Reset) {
            socket::finish(self.client.stream).await;
        }
    }

    /// It ends with its permit.
    fn revoked(mut self, upstream: Option<Dialed>) {
        self.record.refuse(&Refusal::new(Reason::Revoked));
        socket::reset(self.client.stream);
        upstream.into_iter().for_each(|upstream| socket::reset(upstream.stream));
    }

    async fn requests(self, grant: Grant, would: Option<Reason>, upstream: Option<Dialed>) {
        let address = upstream.as_ref().map(|upstream| upstream.address);
        let upstream = upstream.map(|upstream| Connection::new(upstream.stream));
        let mut door = JudgedHttp::new(Arc::clone(&self.session), self.flow, grant, would, self.record, address);
        // In a box, so that a tunnel does not pay for the size of an exchange.
        Box::pin(exchange(self.client, upstream, &mut door, &self.session)).await;
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

    async fn refuse(self, refusal: &Refusal, first: &FirstBytes) {
        let deadline = Instant::now() + self.session.limits.refused;
        self.refuse_by(refusal, first, deadline).await;
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
