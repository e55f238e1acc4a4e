//! One captured connection, from its original destination to its end.
//!
//! # Theory of operation
//!
//! 1. [`identify`]: the original destination becomes the target, a synthetic address by the name that it stands for.
//! 2. The policy decides. A refused connection is told so in its own protocol, for which its first bytes are waited
//!    for, though not for long.
//! 3. Ports 80 and 443 have one protocol each: the program's first bytes are read and judged, and only then is anything
//!    looked up or dialled. Who names another host there never reaches the server.
//! 4. On other ports either side may speak first: the server is dialled at once and its bytes flow, while the program's
//!    are held until it is known what they are.
//! 5. What agrees becomes a tunnel; HTTP goes on request by request; `tcp://` skips all looking.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use netbox_config::{Decision, Host, Mode, Permit, Port, Reason, Refusal, Target, Via};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::agreement::{Agreement, agree};
use crate::captured_http::CapturedHttp;
use crate::dial::Dialed;
use crate::dns::SyntheticTable;
use crate::events::End;
use crate::first_bytes::FirstBytes;
use crate::gate::FirstBytesGate;
use crate::http::answer::Answer;
use crate::http::exchange::exchange;
use crate::http::head::{HeadScan, Lines};
use crate::http::request::RequestHead;
use crate::opening::{First, Opening, Patience};
use crate::pipeline::{self, OpenError};
use crate::record::Record;
use crate::refuse::{Telling, refuse};
use crate::session::Session;
use crate::socket::{self, Connection};
use crate::tunnel::{Gate, Open, tunnel};

/// The ports whose refused connections are given time for their first bytes: those of HTTP and TLS.
const ANSWERED_PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// Carries one captured connection that was meant for `original`, until its end. Dropping it ends the connection and
/// writes its events. It is judged, and counts as undelivered, before the future is first polled.
pub(crate) fn handle(
    session: Arc<Session>,
    stream: TcpStream,
    original: SocketAddr,
) -> impl Future<Output = ()> + Send {
    let since = Instant::now();
    socket::no_delay(&stream);
    let judged = Port::new(original.port()).map(|port| {
        // A connection that nobody redirected was made to the listener itself.
        let direct = stream.local_addr().is_ok_and(|local| local == original);
        let (target, decision) = identify(&session, original.ip(), port, direct);
        let record = match &decision {
            Decision::Refuse(refusal) => Record::refused(&session.events, &target, refusal, since),
            Decision::Allow(permit) => Record::permitted(&session.events, permit, since),
        };
        (target, decision, record)
    });
    let mut client = Connection::new(stream);
    client.undelivered = Some(session.deliveries.begin());
    async move {
        let Some((target, decision, record)) = judged else { return socket::reset(client.stream) };
        let port = target.port();
        let captured = Captured { client, opening: Opening::new(), record, target, session };
        match decision {
            Decision::Refuse(refusal) => captured.refuse_when_it_speaks(refusal).await,
            Decision::Allow(permit) if permit.is_raw() => captured.raw(&permit).await,
            Decision::Allow(permit) => match port {
                Port::HTTP | Port::HTTPS => captured.look_then_dial(permit).await,
                _ => captured.dial_then_look(permit).await,
            },
        }
    }
}

/// Refuses a connection that there is no room for.
pub(crate) fn refuse_over_limit(session: &Session, stream: TcpStream, original: SocketAddr) {
    if let Some(port) = Port::new(original.port()) {
        let (target, _) = identify(session, original.ip(), port, false);
        let refusal = Refusal::new(Reason::Limit);
        Record::refused(&session.events, &target, &refusal, Instant::now()).refuse(&refusal);
    }
    socket::reset(stream);
}

/// The target of a connection to this address, and the decision about it. `direct`: to the listener itself.
fn identify(session: &Session, address: IpAddr, port: Port, direct: bool) -> (Target, Decision) {
    let host = match session.names.synthetic.name_of(address) {
        Some(name) => Host::Name(name),
        None => Host::from_ip(address),
    };
    let target = Target::new(host, port, Via::Capture);
    let nameless = SyntheticTable::is_synthetic(address) && matches!(target.host(), Host::Address(_));
    let decision = match session.policy().mode() {
        _ if direct => Decision::Refuse(Refusal::new(Reason::SelfAddress)),
        // No rule can mean it: nothing is there that it stands for.
        Mode::Allowlist | Mode::Audit | Mode::Open if nameless => {
            Decision::Refuse(Refusal::new(Reason::AddressNotListed))
        }
        _ => pipeline::decide(session, &target),
    };
    (target, decision)
}

/// A captured connection whose target was judged.
struct Captured {
    client: Connection,
    opening: Opening,
    record: Record,
    target: Target,
    session: Arc<Session>,
}

impl Captured {
    /// Nothing is looked at.
    async fn raw(self, permit: &Permit) {
        if let Some((mut captured, upstream)) = self.dial(permit, None).await {
            captured.record.allow(upstream.address);
            captured.tunnel(upstream.stream, Open).await;
        }
    }

    /// Ports 80 and 443: what the program sends is judged before anything is looked up.
    async fn look_then_dial(mut self, permit: Permit) {
        let limits = self.session.limits;
        let patience = Patience { silence: Some(limits.silence), partial: Some(limits.first_bytes), word: None };
        let first = match self.opening.wait(&self.client.stream, &mut self.client.buffer, &patience).await {
            First::Known(first) => first,
            First::Word | First::Partial => {
                return self.refuse(&Refusal::new(Reason::Malformed), &FirstBytes::Other).await;
            }
            // Nothing was asked for, so nothing was dialled: a probe, or a connection opened ahead.
            First::Silent => {
                self.record.ended_before_it_began(End::Timeout);
                return socket::finish(self.client.stream).await;
            }
            First::Ended => {
                self.record.ended_before_it_began(End::Done);
                return socket::finish(self.client.stream).await;
            }
            First::Gone => return self.record.ended_before_it_began(End::Reset),
        };
        self.saw(&first);
        match agree(self.session.policy(), &permit, &first) {
            Agreement::Refuse(refusal) => self.refuse(&refusal, &first).await,
            Agreement::Requests(would) => self.requests(permit, would, None).await,
            Agreement::Tunnel(would) => {
                would.into_iter().for_each(|would| self.record.would_be(would));
                if let Some((mut captured, upstream)) = self.dial(&permit, Some(&first)).await {
                    captured.record.allow(upstream.address);
                    captured.tunnel(upstream.stream, Open).await;
                }
            }
        }
    }

    /// Any other port: the server may speak first.
    async fn dial_then_look(self, permit: Permit) {
        let Some((mut captured, upstream)) = self.dial(&permit, None).await else { return };
        let limits = captured.session.limits;
        let patience = Patience { silence: None, partial: Some(limits.first_bytes), word: Some(limits.word) };
        let first = tokio::select! {
            biased;
            first = captured.opening.wait(&captured.client.stream, &mut captured.client.buffer, &patience) => Some(first),
            // Bytes, an end or an error: the tunnel finds out which.
            _ = upstream.stream.readable() => None,
        };
        match first {
            Some(First::Known(first)) => {
                captured.saw(&first);
                match agree(captured.session.policy(), &permit, &first) {
                    Agreement::Refuse(refusal) => {
                        drop(upstream);
                        captured.refuse(&refusal, &first).await;
                    }
                    Agreement::Requests(would) => captured.requests(permit, would, Some(upstream)).await,
                    Agreement::Tunnel(would) => {
                        would.into_iter().for_each(|would| captured.record.would_be(would));
                        captured.record.allow(upstream.address);
                        captured.tunnel(upstream.stream, Open).await;
                    }
                }
            }
            Some(First::Partial | First::Silent) => {
                drop(upstream);
                captured.refuse(&Refusal::new(Reason::Malformed), &FirstBytes::Other).await;
            }
            Some(First::Gone) => {
                captured.record.allow(upstream.address);
                socket::reset(upstream.stream);
            }
            None | Some(First::Ended | First::Word) => {
                captured.record.allow(upstream.address);
                let released = first == Some(First::Word);
                let opening = std::mem::replace(&mut captured.opening, Opening::new());
                let session = Arc::clone(&captured.session);
                let gate = FirstBytesGate::new(session, permit, opening, patience, released);
                captured.tunnel(upstream.stream, gate).await;
            }
        }
    }

    /// Opens the upstream connection, or refuses in the protocol of what was spoken, or is spoken next.
    async fn dial(mut self, permit: &Permit, spoken: Option<&FirstBytes>) -> Option<(Self, Dialed)> {
        match (pipeline::open(&self.session, permit).await, spoken) {
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

    async fn tunnel(mut self, upstream: TcpStream, gate: impl Gate) {
        let end = tunnel(self.client, Connection::new(upstream), gate, &self.record.counts).await;
        self.record.tunnel_ended(end);
    }

    async fn requests(self, permit: Permit, would: Option<Reason>, upstream: Option<Dialed>) {
        let head_deadline = self.session.limits.head;
        let address = upstream.as_ref().map(|upstream| upstream.address);
        let upstream = upstream.map(|upstream| Connection::new(upstream.stream));
        let door = CapturedHttp::new(self.session, permit, would, self.record, address);
        // In a box, so that a tunnel does not pay for the size of an exchange.
        Box::pin(exchange(self.client, upstream, door, head_deadline)).await;
    }

    fn saw(&mut self, first: &FirstBytes) {
        if let FirstBytes::Tls(Some(sni)) = first {
            self.record.saw_sni(sni.as_str());
        }
    }

    /// Waits for the first bytes, and refuses in their protocol.
    async fn refuse_when_it_speaks(mut self, refusal: Refusal) {
        let limits = self.session.limits;
        let answered = ANSWERED_PORTS.contains(&self.target.port().get());
        let deadline = tokio::time::Instant::now() + if answered { limits.refused } else { limits.refused_other };
        let patience = Patience { silence: None, partial: None, word: None };
        self.record.will_refuse(&refusal);
        let wait = self.opening.wait(&self.client.stream, &mut self.client.buffer, &patience);
        let first = match timeout_at(deadline, wait).await {
            Ok(First::Known(first)) => first,
            _ => FirstBytes::Other,
        };
        self.saw(&first);
        self.refuse_by(&refusal, &first, deadline).await;
    }

    async fn refuse(self, refusal: &Refusal, first: &FirstBytes) {
        let deadline = tokio::time::Instant::now() + self.session.limits.refused;
        self.refuse_by(refusal, first, deadline).await;
    }

    /// Refuses in the protocol of the first bytes. Of HTTP the whole head is awaited, for the record.
    async fn refuse_by(mut self, refusal: &Refusal, first: &FirstBytes, deadline: tokio::time::Instant) {
        self.record.will_refuse(refusal);
        let telling = match first {
            FirstBytes::Tls(_) => Telling::Tls,
            FirstBytes::Http => {
                let request = timeout_at(deadline, read_request(&mut self.client)).await.ok().flatten();
                if let Some(request) = &request {
                    self.record.saw_request(&request.method, request.path());
                }
                Telling::Http(Answer::refused(&self.target, refusal), request.map(|request| request.method))
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

#[cfg(test)]
pub(crate) mod tests;
