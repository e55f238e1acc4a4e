//! A connection that has come to rest: it waits, or its bytes are moved.
//!
//! What is before that, heads, lookups, dials and refusals, takes many times the memory, and lasts for moments where this may
//! last for days. So the one is a future in a box of its own, which is gone when the other begins, and the task of a connection
//! has no more than the other needs.

use std::io;

use crate::dial::Dialed;
use crate::gate::FirstBytesGate;
use crate::judged::Judged;
use crate::pipeline::Grant;
use crate::record::Record;
use crate::socket::{self, Connection};
use crate::tunnel::tunnel;

/// What a connection has come to.
pub(crate) enum Settled {
    /// Nobody speaks.
    Silent(Box<Silent>),
    /// All is said and judged.
    Tunnel(Box<Tunnel>),
}

/// Both sides are connected, either may speak first, and neither has.
pub(crate) struct Silent {
    pub(crate) judged: Judged,
    pub(crate) grant: Grant,
    pub(crate) upstream: Dialed,
}

/// Which side spoke.
pub(crate) enum Spoke {
    /// The client, as [`socket::read`] says.
    Client(io::Result<usize>),
    /// The upstream: there are bytes, an end or an error, and the tunnel finds out which.
    Upstream,
    /// Neither: it may no longer be.
    Revoked,
}

/// A tunnel that has not begun.
pub(crate) struct Tunnel {
    pub(crate) client: Connection,
    pub(crate) upstream: Connection,
    /// What has to be seen of the client first, while the server's bytes flow already.
    pub(crate) gate: Option<FirstBytesGate>,
    /// Dropped last: it tells of the end of the others.
    pub(crate) record: Record,
}

/// Carries a connection to its end: through `opening`, and through what comes of it.
pub(crate) fn carry(opening: impl Future<Output = Option<Settled>> + Send) -> impl Future<Output = ()> + Send {
    let opening = Box::pin(opening);
    async move {
        let mut settled = opening.await;
        loop {
            match settled {
                None => return,
                Some(Settled::Silent(mut silent)) => {
                    let spoke = silent.wait().await;
                    let Silent { judged, grant, upstream } = *silent;
                    settled = Box::pin(judged.spoken(grant, upstream, spoke)).await;
                }
                Some(Settled::Tunnel(mut tunnel)) => return tunnel.carry().await,
            }
        }
    }
}

impl Silent {
    async fn wait(&mut self) -> Spoke {
        let client = &mut self.judged.client;
        if !client.buffer.is_empty() {
            return Spoke::Client(Ok(client.buffer.len()));
        }
        socket::release(&mut client.buffer);
        tokio::select! {
            biased;
            () = client.revocation() => Spoke::Revoked,
            read = client.fill() => Spoke::Client(read),
            _ = self.upstream.stream.readable() => Spoke::Upstream,
        }
    }
}

impl Tunnel {
    async fn carry(&mut self) {
        let end = tunnel(&mut self.client, &mut self.upstream, self.gate.take(), &self.record.counts).await;
        self.record.tunnel_ended(end);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    /// Bytes of what is allocated for one, beside what stands for its sockets, its flow and its events.
    #[test]
    fn an_idle_connection_takes_less_than_a_page() {
        let task = size_of_val(&carry(ready(None)));
        assert!(task + size_of::<Tunnel>() < 3500, "{task} and {}", size_of::<Tunnel>());
        assert!(task + size_of::<Silent>() < 3500, "{task} and {}", size_of::<Silent>());
    }
}
