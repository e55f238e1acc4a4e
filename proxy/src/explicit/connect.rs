//! HTTP CONNECT (RFC 9110 §9.3.6).

use std::sync::Arc;

use netbox_config::{Reason, Target, Via};

use super::opened::{Shut, judge};
use crate::flow::Flow;
use crate::http::answer::Answer;
use crate::http::framing::Framing;
use crate::http::head::HeadError;
use crate::http::request::{Form, RequestHead};
use crate::nesting;
use crate::refuse::{Telling, refuse};
use crate::session::Session;
use crate::settled::Settled;
use crate::socket::{self, Connection};

/// What follows the empty line is the tunnel (RFC 9110 §9.3.6: neither length nor coding).
const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

/// Carries a connection whose request is CONNECT, to its end or until it comes to rest. What the client sent behind the head is in its buffer, and goes first.
///
/// `Host` counts for nothing here (RFC 9112 §3.2.3): nothing of the head goes anywhere.
pub(crate) async fn serve(
    session: Arc<Session>,
    mut client: Connection,
    flow: Arc<Flow>,
    request: RequestHead,
) -> Option<Settled> {
    let is_nested = request.says(nesting::NESTED);
    let RequestHead { form: Form::Authority(host, port), framing, .. } = request else {
        socket::reset(client.stream);
        return None;
    };
    // A body would be the tunnel's first bytes to one reader and none of them to another.
    if framing != Framing::Length(0) {
        let target = Target::new(host, port, Via::Connect).to_string();
        super::refused(&session, &client.origin, Via::Connect, target.as_bytes(), Reason::Malformed);
        let answer = Answer::unreadable(&HeadError::Malformed("CONNECT with a body"));
        refuse(client, Telling::Http(answer, None)).await;
        return None;
    }
    let opened = match judge(&session, &client.origin, &flow, host, port, Via::Connect).await {
        Ok(mut permitted) => {
            if is_nested {
                let agreement = nesting::agree(&mut client, &mut permitted.vetted, session.limits.head);
                // It refuses them itself, and says so to whoever asked it.
                let Some(true) = session.while_half_open(agreement).await else { return None };
            }
            permitted.dial(&session, &flow).await
        }
        Err(shut) => Err(shut),
    };
    let (answer, reason) = match opened {
        Ok(opened) => {
            let established = if is_nested { nesting::established(opened.upstream()) } else { ESTABLISHED.to_owned() };
            socket::write_all(&client.stream, established.as_bytes()).await.ok()?;
            return opened.carry(session, client, flow).await;
        }
        Err(Shut::Refused(target, refusal)) => {
            (Answer::refused(&target, &refusal, session.events.role()), refusal.reason())
        }
        Err(Shut::Failed(target, reason)) => (Answer::unreached(&target, reason), reason),
    };
    let answer = if is_nested { answer.with_details(reason) } else { answer };
    refuse(client, Telling::Http(answer, None)).await;
    None
}
