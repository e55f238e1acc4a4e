//! Holds what the client sends, while the server's bytes flow already, until it is known what it is.

use std::sync::Arc;

use bytes::BytesMut;
use netbox_config::{Reason, Refusal};

use crate::agreement::Agreement;
use crate::first_bytes::{FirstBytes, Line};
use crate::flow::Flow;
use crate::meter::Meter;
use crate::opening::{First, Opening, Patience};
use crate::pipeline::Grant;
use crate::record::Late;
use crate::session::Session;
use crate::socket;
use crate::stream::Stream;
use crate::tunnel::{Gate, PumpError, Stopped};

/// Lets the client's bytes pass once they agree with the target.
pub(crate) struct FirstBytesGate {
    session: Arc<Session>,
    flow: Arc<Flow>,
    grant: Grant,
    opening: Opening,
    patience: Patience,
    released: bool,
    late: Late,
}

impl FirstBytesGate {
    /// `released`: what has come so far was waited for long enough, and may go if what follows is watched. The connection
    /// has been told of; what is seen now is told by `late`.
    pub(crate) fn new(
        session: Arc<Session>,
        flow: Arc<Flow>,
        grant: Grant,
        opening: Opening,
        patience: Patience,
        released: bool,
        late: Late,
    ) -> Self {
        Self { session, flow, grant, opening, patience, released, late }
    }
}

impl Gate for Option<FirstBytesGate> {
    async fn pass(self, from: &Stream, held: &mut BytesMut, to: &Stream, moved: &Meter) -> Result<(), Stopped> {
        match self {
            // In a box, so that the tunnel behind it does not pay for its size.
            Some(gate) => Box::pin(gate.pass(from, held, to, moved)).await,
            None => Ok(()),
        }
    }
}

impl FirstBytesGate {
    async fn pass(mut self, from: &Stream, held: &mut BytesMut, to: &Stream, moved: &Meter) -> Result<(), Stopped> {
        let refuse = |reason| Err(Stopped::Refused(Refusal::new(reason)));
        let first = match self.released {
            true => First::Word,
            false => self.opening.wait_once_begun(from, held, &self.patience, &self.session).await,
        };
        if let First::Known(FirstBytes::Tls { sni: Some(sni), .. }) = &first {
            self.late.saw_sni(sni.as_str());
        }
        match first {
            First::Word => self.watch(from, held, to, moved).await,
            First::Ended => Ok(()),
            First::Gone => Err(PumpError::Read.into()),
            First::Partial | First::Silent => refuse(Reason::Malformed),
            First::GivenUp => refuse(Reason::Limit),
            First::Known(first) => match self.session.agree(&self.flow, &self.grant, &first) {
                Agreement::Tunnel(would) => {
                    would.into_iter().for_each(|would| self.late.would_be(would));
                    Ok(())
                }
                // The exchange of requests begins with the client.
                Agreement::Requests(_) => refuse(Reason::Unsupported),
                Agreement::Refuse(refusal) => Err(Stopped::Refused(refusal)),
            },
        }
    }

    /// Passes on the beginning of a line, and what follows up to the line's end. No server acts on half a request line:
    /// if it becomes one, its end is never sent.
    async fn watch(self, from: &Stream, held: &mut BytesMut, to: &Stream, moved: &Meter) -> Result<(), Stopped> {
        let mut watch = self.opening.into_watch();
        loop {
            socket::write_all(to, held).await.map_err(|_| PumpError::Write)?;
            moved.count(held.len()).await.map_err(PumpError::from)?;
            held.clear();
            match socket::read(from, held).await {
                // A server might take the end for the end of the line.
                Ok(0) if watch.ends_in_version() => return Err(Stopped::Refused(Refusal::new(Reason::Unsupported))),
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(_) => return Err(PumpError::Read.into()),
            }
            match watch.feed(held) {
                None => {}
                Some(Line::Other) => return Ok(()),
                // Requests that come in pieces cannot be judged before they are passed on.
                Some(Line::Http | Line::Http2) => return Err(Stopped::Refused(Refusal::new(Reason::Unsupported))),
            }
        }
    }
}
