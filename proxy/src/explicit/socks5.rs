//! SOCKS5 (RFC 1928): CONNECT to names and addresses, without authentication or, where a token is asked for, with that as the
//! password (RFC 1929).
//!
//! A name is parsed by the one parser of hosts, and so is an address that is written out where a name should stand, as
//! browsers send it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bytes::Buf;
use netbox_config::{Host, HostError, Port, Reason, Via};
use tokio::time::timeout;

use super::opened::{Shut, open};
use crate::flow::Flow;
use crate::refuse::{Telling, refuse};
use crate::service::credentials::{Bearer, Proof, TenantDoor, TurnedAway};
use crate::session::Session;
use crate::settled::Settled;
use crate::socket::{self, Connection};

/// The first byte of a greeting and of a request.
pub(crate) const VERSION: u8 = 5;

/// The method that needs nothing, and the answer where it is not offered (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
pub(crate) const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// The method with a user name and a password (RFC 1929), and the answer where the password is no token that is known.
const PASSWORD: u8 = 2;
const LOGIN_VERSION: u8 = 1;
const LOGGED_IN: [u8; 2] = [LOGIN_VERSION, 0];
pub(crate) const WRONG_TOKEN: [u8; 2] = [LOGIN_VERSION, 1];

/// RFC 1928 §4.
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The answer to a request (RFC 1928 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded = 0,
    /// Also for what is malformed.
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// The bytes. The address that netbox dialled from is nobody's business: it is all zeros.
    pub(crate) fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
    }

    /// Why a permitted target was not reached.
    fn unreached(reason: Reason) -> Self {
        match reason {
            Reason::Refused => Self::ConnectionRefused,
            Reason::Unreachable => Self::NetworkUnreachable,
            // There is no code for a name without addresses; this one is what clients print as such.
            Reason::DnsNotFound | Reason::DnsFailed | Reason::Timeout => Self::HostUnreachable,
            _ => Self::GeneralFailure,
        }
    }
}

/// A message, from the beginning of what has arrived.
pub(crate) type Parsed<T> = Result<Option<(T, usize)>, Refused>;

/// A message that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    telling: Telling,
    reason: Reason,
    /// What stands where the target should, as far as there is any.
    text: Vec<u8>,
}

/// Carries a connection whose first byte is [`VERSION`], to its end or until it comes to rest.
pub(crate) async fn serve(
    session: Arc<Session>,
    tenants: Option<&TenantDoor>,
    mut client: Connection,
    flow: Arc<Flow>,
) -> Option<Settled> {
    let deadline = session.limits.head;
    let shaken = session.while_half_open(timeout(deadline, shake_hands(&mut client, tenants))).await;
    let (host, port, bearer) = match shaken {
        Some(Ok(Some(Ok(asked)))) => asked,
        Some(Ok(Some(Err(Refused { telling, reason: Reason::Unauthenticated, .. })))) => {
            let known = tenants.inspect(|door| door.tell(&session.events, String::new(), None, Via::Socks5));
            debug_assert!(known.is_some(), "nobody else asks for a token");
            refuse(client, telling).await;
            return None;
        }
        Some(Ok(Some(Err(Refused { telling, reason, text })))) => {
            super::refused(&session, &client.origin, Via::Socks5, &text, reason);
            refuse(client, telling).await;
            return None;
        }
        // It went away before it had asked for anything.
        Some(Ok(None)) => return None,
        late_or_given_up => {
            let reason = if late_or_given_up.is_some() { Reason::Malformed } else { Reason::Limit };
            super::refused(&session, &client.origin, Via::Socks5, b"", reason);
            socket::reset(client.stream);
            return None;
        }
    };
    // From here on it is the bearer's.
    let (session, flow) = match bearer {
        Some(bearer) => {
            client.flow = Some(Arc::clone(&bearer.flow));
            (bearer.session, bearer.flow)
        }
        None => (session, flow),
    };
    let reply = match open(&session, &client.origin, &flow, host, port, Via::Socks5).await {
        Ok(opened) => match socket::write_all(&client.stream, &Reply::Succeeded.bytes()).await {
            Ok(()) => return opened.carry(session, client, flow).await,
            Err(_) => return None,
        },
        Err(Shut::Refused(..)) => Reply::NotAllowed,
        Err(Shut::Failed(_, reason)) => Reply::unreached(reason),
    };
    refuse(client, Telling::Socks5(reply)).await;
    None
}

/// What a client asks for, and who it is, where that has to be proved.
type Asked = (Host, Port, Option<Bearer>);

/// The greeting, its answer, the token where one is asked for, and the request. What the client sent behind it stays in the
/// buffer. `None`: it has ended the connection.
async fn shake_hands(client: &mut Connection, tenants: Option<&TenantDoor>) -> Option<Result<Asked, Refused>> {
    let asks = tenants.is_some_and(TenantDoor::asks);
    let method = if asks { PASSWORD } else { NO_AUTHENTICATION };
    match next(client, |bytes| greeting(bytes, method)).await? {
        Ok(()) => socket::write_all(&client.stream, &[VERSION, method]).await.ok()?,
        Err(refused) => return Some(Err(refused)),
    }
    let proof = match asks {
        true => match next(client, login).await? {
            Ok(proof) => Some(proof),
            Err(refused) => return Some(Err(refused)),
        },
        false => None,
    };
    let mut bearer = None;
    if let Some(door) = tenants {
        match door.enter(proof, None, || client.stream.peer()).await {
            Ok(entered) => bearer = Some(entered),
            // Also where a token was asked for a moment later.
            Err(turned) if !asks => return Some(Err(Refused::full(turned))),
            Err(TurnedAway::Unproved) => return Some(Err(Refused::wrong_token(Reason::Unauthenticated))),
            Err(TurnedAway::Full(_)) => return Some(Err(Refused::wrong_token(Reason::Limit))),
        }
    }
    if asks {
        socket::write_all(&client.stream, &LOGGED_IN).await.ok()?;
    }
    Some(next(client, request).await?.map(|(host, port)| (host, port, bearer)))
}

/// Waits for a whole message, and takes it off the buffer.
async fn next<T>(client: &mut Connection, parse: impl Fn(&[u8]) -> Parsed<T>) -> Option<Result<T, Refused>> {
    loop {
        match parse(&client.buffer) {
            Err(refused) => return Some(Err(refused)),
            Ok(Some((message, length))) => {
                client.buffer.advance(length);
                return Some(Ok(message));
            }
            Ok(None) => {}
        }
        if client.fill().await.ok()? == 0 {
            return None;
        }
    }
}

impl Refused {
    /// No place, at a listener that asks for nothing: the request is not waited for.
    fn full(turned: TurnedAway) -> Self {
        let reason = if matches!(turned, TurnedAway::Full(_)) { Reason::Limit } else { Reason::Unauthenticated };
        Self { telling: Telling::Socks5(Reply::NotAllowed), reason, text: Vec::new() }
    }

    fn wrong_token(reason: Reason) -> Self {
        Self { telling: Telling::Socks5NoToken, reason, text: Vec::new() }
    }
}

/// Version, number of methods, methods. The one that is wanted has to be among them.
pub(crate) fn greeting(bytes: &[u8], wanted: u8) -> Parsed<()> {
    let refused = |reason| Err(Refused { telling: Telling::Socks5NoMethod, reason, text: Vec::new() });
    match bytes {
        [VERSION, 0, ..] => refused(Reason::Malformed),
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            None => Ok(None),
            Some(methods) if methods.contains(&wanted) => Ok(Some(((), 2 + methods.len()))),
            Some(_) if wanted == PASSWORD => refused(Reason::Unauthenticated),
            Some(_) => refused(Reason::Unsupported),
        },
        [] | [VERSION] => Ok(None),
        _ => refused(Reason::Malformed),
    }
}

/// Version, length of the user's name, the name, length of the password, the password. The name says nothing.
pub(crate) fn login(bytes: &[u8]) -> Parsed<Proof> {
    let (user_length, rest) = match bytes {
        [LOGIN_VERSION, length, rest @ ..] => (usize::from(*length), rest),
        [] | [LOGIN_VERSION] => return Ok(None),
        _ => return Err(Refused::wrong_token(Reason::Malformed)),
    };
    let Some([password_length, rest @ ..]) = rest.get(user_length..) else { return Ok(None) };
    let password_length = usize::from(*password_length);
    let Some(password) = rest.get(..password_length) else { return Ok(None) };
    Ok(Some((Proof::of(password), 3 + user_length + password_length)))
}

/// Version, command, a zero, address type, address, port.
pub(crate) fn request(bytes: &[u8]) -> Parsed<(Host, Port)> {
    let refused =
        |reply, reason, text: &[u8]| Err(Refused { telling: Telling::Socks5(reply), reason, text: text.to_owned() });
    let malformed = |text| refused(Reply::GeneralFailure, Reason::Malformed, text);
    let (command, kind, rest) = match bytes {
        [VERSION, command, 0, kind, rest @ ..] => (*command, *kind, rest),
        [] | [VERSION] | [VERSION, _] | [VERSION, _, 0] => return Ok(None),
        _ => return malformed(b""),
    };
    if command != CONNECT {
        return refused(Reply::CommandNotSupported, Reason::Unsupported, b"");
    }
    let address_length = match (kind, rest) {
        (IPV4, _) => 4,
        (IPV6, _) => 16,
        (NAME, []) => return Ok(None),
        (NAME, [length, ..]) => 1 + usize::from(*length),
        _ => return refused(Reply::AddressTypeNotSupported, Reason::Malformed, b""),
    };
    let Some((address, [high, low, ..])) = rest.split_at_checked(address_length) else { return Ok(None) };
    let text = address.get(1..).unwrap_or_default();
    let host = match (kind, address) {
        (NAME, _) => named(text),
        (_, &[a, b, c, d]) => Some(Host::from_ip(Ipv4Addr::new(a, b, c, d).into())),
        _ => <[u8; 16]>::try_from(address).ok().map(|octets| Host::from_ip(Ipv6Addr::from(octets).into())),
    };
    match (host, Port::new(u16::from_be_bytes([*high, *low]))) {
        (Some(host), Some(port)) => Ok(Some(((host, port), 4 + address_length + 2))),
        (Some(host), None) => malformed(host.to_string().as_bytes()),
        (None, _) => malformed(text),
    }
}

/// A name, or an address that is written out. Its end is known, so an IPv6 address needs no brackets.
fn named(text: &[u8]) -> Option<Host> {
    match Host::parse_wire(text) {
        Ok(host) => Some(host),
        Err(HostError::BareIpv6) => std::str::from_utf8(text).ok()?.parse::<IpAddr>().ok().map(Host::from_ip),
        Err(_) => None,
    }
}
