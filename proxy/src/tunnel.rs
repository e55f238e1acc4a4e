//! Moves bytes between two sockets until both directions have ended.
//!
//! Each direction is one [`pump`](fn@pump). The end of one direction is passed on as a half-close, and the other goes on. A
//! reset of one side resets the other.

mod pump;

use std::future::Future;
use std::pin::pin;

use bytes::BytesMut;
use netbox_config::Refusal;

use crate::meter::{Counts, Meter};
use crate::socket::{self, Connection};
use crate::stream::Stream;

pub(crate) use pump::{PumpError, Pumped, pump};

/// How a tunnel ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// Both sides said that they were done, or the client did and is gone.
    Done,
    /// One side reset the connection, and then so was the other.
    Reset,
    /// What the client sent was refused, and both sides were reset.
    Refused(Refusal),
    /// The policy changed and no longer allows it, and both sides were reset.
    Revoked,
    /// The tenant has moved all the bytes that it may, and both sides were reset.
    Limit,
}

/// Why a direction ended before its end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// One of the sides failed, or no more may be moved.
    Failed(PumpError),
    /// The gate let nothing more through.
    Refused(Refusal),
}

impl From<PumpError> for Stopped {
    fn from(error: PumpError) -> Self {
        Self::Failed(error)
    }
}

/// Stands before the client's direction, while the other one is open already.
pub(crate) trait Gate: Send {
    /// Reads from `from` to the end of `held` and writes to `to`, until whatever follows may pass. What is left in `held`
    /// then is passed on before it.
    fn pass(
        self,
        from: &Stream,
        held: &mut BytesMut,
        to: &Stream,
        moved: &Meter,
    ) -> impl Future<Output = Result<(), Stopped>> + Send;
}

/// A gate that stands open.
pub(crate) struct Open;

impl Gate for Open {
    async fn pass(self, _: &Stream, _: &mut BytesMut, _: &Stream, _: &Meter) -> Result<(), Stopped> {
        Ok(())
    }
}

/// Moves bytes both ways, first those that the connections hold in their buffers. `counts` is kept up to date, so that
/// it is right also where the tunnel is dropped. The connections are to be dropped then.
pub(crate) async fn tunnel(
    client: &mut Connection,
    upstream: &mut Connection,
    gate: impl Gate,
    counts: &Counts,
) -> TunnelEnd {
    let mut revocation = client.revocation();
    let ended = {
        let mut up = pin!(async {
            gate.pass(&client.stream, &mut client.buffer, &upstream.stream, &counts.sent).await?;
            direction(&client.stream, &mut client.buffer, &upstream.stream, &counts.sent).await?;
            drop(client.undelivered.take());
            Ok::<_, Stopped>(())
        });
        let mut down = pin!(direction(&upstream.stream, &mut upstream.buffer, &client.stream, &counts.received));
        let (mut up_end, mut down_end) = (None, None);
        loop {
            tokio::select! {
                () = &mut revocation => break Ends::Revoked,
                end = &mut up, if up_end.is_none() => up_end = Some(end),
                end = &mut down, if down_end.is_none() => down_end = Some(end),
            }
            match (&up_end, &down_end) {
                (Some(Err(Stopped::Refused(refusal))), _) => break Ends::Refused(refusal.clone()),
                (Some(Err(Stopped::Failed(PumpError::Limit))), _) | (_, Some(Err(PumpError::Limit))) => {
                    break Ends::Limit;
                }
                // The side that was read from is gone in both directions.
                (Some(Err(Stopped::Failed(PumpError::Read))), _) | (_, Some(Err(PumpError::Read))) => {
                    break Ends::Reset;
                }
                (Some(Ok(())), Some(Ok(()))) => break Ends::Both,
                (Some(Err(_)), Some(Ok(()))) => break Ends::UpstreamFirst,
                (Some(Ok(())), Some(Err(_))) => break Ends::ClientFirst,
                (Some(Err(_)), Some(Err(_))) => break Ends::Reset,
                // Also after a failed write: what that side had sent before, and its end, are passed on.
                _ => {}
            }
        }
    };
    let end = match ended {
        Ends::Both => return TunnelEnd::Done,
        Ends::UpstreamFirst => {
            socket::finish(&client.stream).await;
            return TunnelEnd::Reset;
        }
        Ends::ClientFirst => {
            // A program that has closed its socket is done; what the server says afterwards meets nobody.
            socket::finish(&upstream.stream).await;
            return TunnelEnd::Done;
        }
        Ends::Reset => TunnelEnd::Reset,
        Ends::Refused(refusal) => TunnelEnd::Refused(refusal),
        Ends::Revoked => TunnelEnd::Revoked,
        Ends::Limit => TunnelEnd::Limit,
    };
    socket::reset_once_dropped(&client.stream);
    socket::reset_once_dropped(&upstream.stream);
    end
}

/// Who ended a tunnel.
enum Ends {
    Both,
    /// The upstream said that it was done, and then took no more.
    UpstreamFirst,
    /// The client did.
    ClientFirst,
    Reset,
    Refused(Refusal),
    Revoked,
    Limit,
}

async fn direction(from: &Stream, held: &mut BytesMut, to: &Stream, moved: &Meter) -> Result<(), PumpError> {
    socket::write_all(to, held).await.map_err(|_| PumpError::Write)?;
    moved.count(held.len()).await?;
    *held = BytesMut::new();
    pump(from, to, u64::MAX, moved).await?;
    to.half_close().await;
    Ok(())
}

#[cfg(test)]
mod tests;
